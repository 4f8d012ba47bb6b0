package simulator

import (
	"cmp"
	"slices"
	"time"
)

// Outcome is how a call ended.
type Outcome string

// The outcomes.
const (
	Running  Outcome = "running"  // it has not ended yet
	Answered Outcome = "answered" // in full
	Refused  Outcome = "refused"  // by a limit: a violation
	Rejected Outcome = "rejected" // an invalid request, an unknown key or an unknown model
	Failed   Outcome = "failed"   // by a fault, instead of an answer
	Cut      Outcome = "cut"      // by a fault, in the middle of an answer
	Left     Outcome = "left"     // the client did not wait for the end
)

// Call is one call in the ledger.
type Call struct {
	// ID counts calls from 1, in the order of their arrival.
	ID int64 `json:"id"`
	// Arrived is when the call counts from; Ended is zero while it runs.
	Arrived time.Time `json:"arrived"`
	Ended   time.Time `json:"ended,omitzero"`

	Provider Provider `json:"provider,omitempty"`
	Path     string   `json:"path"`
	Model    string   `json:"model,omitempty"`
	Quota    string   `json:"quota,omitempty"` // that decided; "" if no quota is for this model
	Stream   bool     `json:"stream,omitempty"`

	// Key is the name of the API key, never the key itself.
	Key          string `json:"key,omitempty"`
	Organization string `json:"organization"`
	Project      string `json:"project"`

	Outcome Outcome `json:"outcome"`
	// Admitted says that all limits let it pass, whatever happened to it later.
	Admitted bool `json:"admitted"`
	// Status is the HTTP status; 0 if the connection was closed before.
	Status int `json:"status"`
	// Fault is the kind of fault that was injected, if any.
	Fault FaultKind `json:"fault,omitempty"`
	// Refusals are the limits that were full.
	Refusals []Refusal `json:"refusals,omitempty"`

	// Charged is what was charged at the arrival, corrections included.
	Charged Amounts `json:"charged"`
	// Later is what was charged afterwards, such as output that was produced.
	Later []Entry `json:"later,omitempty"`
	// Final is the sum of both.
	Final Amounts `json:"final"`

	// Input is the true number of tokens of the input. Output is how many were produced; this and
	// what follows is known when the call has ended.
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
	// CacheRead and CacheWrite are of Input, Reasoning is of Output: billed, and never shown.
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	Reasoning  int64 `json:"reasoning,omitempty"`
	// Images is how many were made, and ImageInput how many tokens of Input are of images.
	Images     int64 `json:"images,omitempty"`
	ImageInput int64 `json:"image_input,omitempty"`
	// Surcharges names what costs beyond the tokens: "tools" that have a fee per use, a tier …
	Surcharges []string `json:"surcharges,omitempty"`
	// Delivered is how many of the output's tokens were written to the client, and Bytes how long
	// the body of the answer was.
	Delivered int64 `json:"delivered"`
	Bytes     int64 `json:"bytes"`
}

// Entry is what was charged at one instant.
type Entry struct {
	At     time.Time `json:"at"`
	Amount Amounts   `json:"amount"`
}

// Refusal is one limit that a call found full.
type Refusal struct {
	Limit     string    `json:"limit"` // its name
	Dimension Dimension `json:"dimension"`
	Window    Window    `json:"window"`
	Amount    int64     `json:"amount"` // of a bucket: its burst
	Used      int64     `json:"used"`
	Requested int64     `json:"requested"`
	Over      int64     `json:"over"` // Used + Requested - Amount
	// RetryAfter is when the same call would fit if nothing else happened; negative means never.
	RetryAfter time.Duration `json:"retry_after_ns"`
}

// DefaultMaxCalls is how many calls and later entries a ledger keeps: enough for a million calls.
// A call takes about 500 bytes, and an entry 100.
const DefaultMaxCalls = 2_000_000

// ledger keeps the latest calls.
type ledger struct {
	calls   []*Call
	entries int // calls, and their later entries
	most    int
	lastID  int64
	dropped int64
	summary summary
}

// summary counts all calls, also those that were dropped.
type summary struct {
	admitted   int64
	outcomes   map[Outcome]int64
	violations map[Dimension]int64
	violating  int64
}

func newLedger(most int) *ledger {
	return &ledger{most: most, summary: summary{outcomes: map[Outcome]int64{}, violations: map[Dimension]int64{}}}
}

// open records the arrival of a call.
func (l *ledger) open(c *Call) {
	l.lastID++
	c.ID, c.Outcome = l.lastID, Running
	l.calls = append(l.calls, c)
	l.grow()
}

// later records what a call is charged after its arrival. Entries of one instant are one.
func (l *ledger) later(c *Call, at time.Time, more Amounts) {
	c.Final = c.Final.plus(more)
	n := len(c.Later)
	switch {
	case n > 0 && c.Later[n-1].At.Equal(at):
		c.Later[n-1].Amount = c.Later[n-1].Amount.plus(more)
	case len(l.calls) > 0 && c.ID >= l.calls[0].ID: // it has not been dropped
		c.Later = append(c.Later, Entry{at, more})
		l.grow()
	}
}

// grow counts one more entry, and drops the oldest calls if there are too many.
func (l *ledger) grow() {
	l.entries++
	for l.entries > l.most {
		l.entries -= 1 + len(l.calls[0].Later)
		l.calls[0] = nil
		l.calls = l.calls[1:]
		l.dropped++
	}
}

// refused records a violation.
func (l *ledger) refused(c *Call) {
	l.summary.violating++
	seen := map[Dimension]bool{}
	for _, r := range c.Refusals {
		if !seen[r.Dimension] {
			l.summary.violations[r.Dimension]++
			seen[r.Dimension] = true
		}
	}
}

// close records the end of a call. Only the first end counts.
func (l *ledger) close(c *Call, at time.Time, o Outcome) {
	if c.Outcome == Running {
		c.Ended, c.Outcome = at, o
		l.summary.outcomes[o]++
	}
}

// after returns copies of up to most calls with higher numbers than id.
func (l *ledger) after(id int64, most int) []Call {
	i, _ := slices.BinarySearchFunc(l.calls, id+1, func(c *Call, id int64) int { return cmp.Compare(c.ID, id) })
	all := make([]Call, 0, min(most, len(l.calls)-i))
	for _, c := range l.calls[i:min(len(l.calls), i+most)] {
		all = append(all, c.clone())
	}
	return all
}

func (c *Call) clone() Call {
	d := *c
	d.Refusals, d.Later, d.Surcharges = slices.Clone(c.Refusals), slices.Clone(c.Later), slices.Clone(c.Surcharges)
	return d
}

// Violations are the calls that found a limit full, to which a real provider would have answered
// 429 because of a quota.
type Violations struct {
	// Total counts calls; a call that found several limits full counts once.
	Total int64 `json:"total"`
	// ByDimension counts calls by the dimensions of the limits that were full.
	ByDimension map[Dimension]int64 `json:"by_dimension"`
	// Calls are those that the ledger still has.
	Calls []Call `json:"calls,omitempty"`
}
