package audit

import (
	"encoding/json"
	"strconv"
)

// Version is of the files that are written now. Files of a later version are not read.
const Version = 1

// Event is what a [Line] tells.
type Event string

// The events.
const (
	Opened   Event = "open"     // a file begins
	Asked    Event = "asked"    // a call asks its quota: whether it is granted is told later
	Reserved Event = "reserved" // a call was granted, and may be sent from now on
	Settled  Event = "settled"  // it was sent, and has ended
	Refunded Event = "refunded" // it was not sent: everything came back
	Refused  Event = "refused"  // a call was not granted: nothing was taken or sent
	Unheard  Event = "unheard"  // the store could not be told how a call ended, and will not be
	Alive    Event = "alive"    // nothing happened, but calls are running
	Closed   Event = "closed"   // the process ended as it should
)

// Reported says how much of a call's usage the upstream has said.
type Reported string

// What an upstream can say. "" is nothing.
const (
	ReportedInput Reported = "input" // what the prompt counted
	ReportedAll   Reported = "all"
)

// AliveEvery is the longest time between two lines of a process that has running calls, in seconds.
const AliveEvery = 10

// Amount is units of one kind.
type Amount struct {
	Unit string
	N    int64
}

// Line is one line of a ledger. Instants are nanoseconds since 1970 by the clock of the process's
// host; 0 is none.
type Line struct {
	N     uint64 // counts the lines of a run from 1, also those that could not be written
	At    int64  // when it was written
	Event Event
	// the store has heard of all ends of calls up to the line of this number, but for those that
	// are Unheard; 0 if there is nothing new
	Heard uint64
	// the store may count a call wrongly for good: one of whose end it had not Heard before this
	// line, or that was granted without it (Fallback) and has not ended
	Miscounted bool

	// Opened:
	Version int
	Run     string // names a run of a process
	Host    string // its name
	Part    int    // counts the files of a run from 1

	// Of a call. Call and Granted, or Call and Asked, tell it from other calls of the upstream,
	// with the same run.
	Call     uint64
	Upstream string
	Granted  int64 // no later than the decision

	// Asked, Reserved and Refused:
	Asked    int64    // when it began, before it asked for anything
	Key      string   // of the gateway that made it, by name; "" if it has none
	Team     string   // of the key
	Owner    string   // whose quota it is
	Model    string   // or the family of models that has its own quota
	Policy   string   // that granted it; "" if none did
	Reserved []Amount // of requests one, unless it names them; a unit that is named twice adds up
	Fallback bool     // the store was unavailable, and has not heard of it yet
	// with Fallback: the store was asked and did not answer: it may count it twice, or though it
	// was refused
	Unsure bool
	Limit  string // Refused: which limits refused it, as policy/limit, or why there was no decision

	// Settled and Refunded:
	Sent     int64 // no later than the first byte
	Answered int64 // when the answer began
	Ended    int64 // when it had ended
	Outcome  string
	Status   int      // of HTTP
	Meaning  string   // of an answer that is an error, such as "minute" or "overload"
	Unit     string   // that the upstream said had run out
	Used     []Amount // what it was settled with; of a unit that it does not name the reservation stands
	Reported Reported
}

// Append appends the line as JSON, with a newline at its end.
func (l *Line) Append(b []byte) []byte {
	b = append(b, `{"n":`...)
	b = strconv.AppendUint(b, l.N, 10)
	b = number(b, "t", l.At)
	b = text(b, "e", string(l.Event))
	b = number(b, "heard", int64(l.Heard))
	if l.Miscounted {
		b = number(b, "miscounted", 1)
	}
	b = number(b, "v", int64(l.Version))
	b = text(b, "run", l.Run)
	b = text(b, "host", l.Host)
	b = number(b, "part", int64(l.Part))
	b = number(b, "call", int64(l.Call))
	b = text(b, "upstream", l.Upstream)
	b = number(b, "granted", l.Granted)
	b = number(b, "asked", l.Asked)
	b = text(b, "key", l.Key)
	b = text(b, "team", l.Team)
	b = text(b, "owner", l.Owner)
	b = text(b, "model", l.Model)
	b = text(b, "policy", l.Policy)
	b = amounts(b, "reserved", l.Reserved)
	switch {
	case l.Fallback && l.Unsure:
		b = number(b, "fallback", 2)
	case l.Fallback:
		b = number(b, "fallback", 1)
	}
	b = text(b, "limit", l.Limit)
	b = number(b, "sent", l.Sent)
	b = number(b, "answered", l.Answered)
	b = number(b, "ended", l.Ended)
	b = text(b, "outcome", l.Outcome)
	b = number(b, "status", int64(l.Status))
	b = text(b, "meaning", l.Meaning)
	b = text(b, "unit", l.Unit)
	b = amounts(b, "used", l.Used)
	b = text(b, "reported", string(l.Reported))
	return append(b, '}', '\n')
}

func key(b []byte, name string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

// number appends a number unless it is 0.
func number(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(key(b, name), n, 10)
}

// text appends a text unless it is empty.
func text(b []byte, name, s string) []byte {
	if s == "" {
		return b
	}
	return quote(key(b, name), s)
}

func amounts(b []byte, name string, list []Amount) []byte {
	if list == nil {
		return b
	}
	b = append(key(b, name), '{')
	for i, a := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(quote(b, a.Unit), ':')
		b = strconv.AppendInt(b, a.N, 10)
	}
	return append(b, '}')
}

// quote appends a text as JSON: at once if nothing in it has to be escaped.
func quote(b []byte, s string) []byte {
	if !plain(s) {
		q, _ := json.Marshal(s) // it has no error
		return append(b, q...)
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
