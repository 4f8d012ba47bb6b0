package telemetry

import (
	"fmt"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/store/guard"
)

// Kind says what a [Warning] is about.
type Kind string

// The kinds.
const (
	Milestone         Kind = "milestone"          // a bucket has used 50, 80, 95 or 100 % of a limit
	LimitExceeded     Kind = "limit_exceeded"     // a limit refuses takes
	BackendError      Kind = "backend_error"      // the store fails
	FallbackActivated Kind = "fallback_activated" // the store is unavailable: this process decides by itself
	FallbackEnded     Kind = "fallback_ended"     // the store is back
	ShadowDivergence  Kind = "shadow_divergence"  // a shadow policy would have decided differently
	CircuitOpened     Kind = "circuit_opened"     // calls to an upstream fail: none is made for a while
	CircuitClosed     Kind = "circuit_closed"     // calls to it succeed again
	StoreLost         Kind = "store_lost"         // the store lost its data: what was used before may be granted again
	Incident          Kind = "incident"           // an upstream refused a call that our limits had allowed
)

// kinds are all of them.
var kinds = [...]Kind{
	Milestone, LimitExceeded, BackendError, FallbackActivated, FallbackEnded, ShadowDivergence,
	CircuitOpened, CircuitClosed, StoreLost, Incident,
}

// position returns the index of a kind in kinds.
func (k Kind) position() int {
	for i := range kinds {
		if kinds[i] == k {
			return i
		}
	}
	return -1
}

// Warning is an event that operators should know about. It holds no key, only its hash. It must not
// be changed.
type Warning struct {
	Kind Kind
	At   time.Time

	Policy     string // of Milestone, LimitExceeded and ShadowDivergence
	Limit      string // of Milestone and LimitExceeded, as are Unit and Period
	Unit       string
	Period     string // see the func Period
	Identifier string // the key's hash, see Hasher; "" if the warning is about many keys

	Percent int // Milestone: 50, 80, 95 or 100: the highest one that is reached now
	From    int // Milestone: the lowest one that was newly reached; one take may pass several
	// Milestone, LimitExceeded: units that count now, and that may count at the take's priority
	Used, Most int64
	Asked      int64 // LimitExceeded: units that the refused take asked for
	// LimitExceeded: refused by this process's share while the store is unavailable; the true usage
	// is then unknown
	Fallback   bool
	RetryAfter time.Duration // LimitExceeded: until the refused take would fit; 0 if no wait helps
	// Milestone, LimitExceeded: when nothing counts any more, or the window ends; zero of a
	// [drawgate.Total], which never ends
	ResetAt time.Time

	Suppressed  int64 // how many more of the same, of any key, were held back since the last report
	WouldRefuse int64 // ShadowDivergence: takes since the last one that the shadow would have refused
	WouldAllow  int64 // ShadowDivergence: and those that it would have allowed

	Outage  time.Duration // FallbackEnded: how long the store was unavailable
	Decided int64         // FallbackEnded: takes that were decided without it

	Upstream string // CircuitOpened, CircuitClosed: the name of the upstream, as are Model and Caller
	Model    string // whose calls fail; "": no connection can be made
	Caller   string // such as "key alice" or "team red": only their calls fail; "": everybody's

	Fault string // BackendError, FallbackActivated: the class of the error, as in drawgate_store_errors_total
	Err   error  // BackendError, FallbackActivated: the store's error; it may name hosts, so it is for the log only

	Incident *api.Incident // Incident: all that is known of it
}

// Message returns the warning as one English sentence, without Err.
func (w *Warning) Message() string {
	text := w.event()
	if w.Suppressed > 0 {
		text += fmt.Sprintf("; %d more since the last report", w.Suppressed)
	}
	return text
}

func (w *Warning) event() string {
	limit := fmt.Sprintf("limit %q of policy %q", w.Limit, w.Policy)
	switch w.Kind {
	case Milestone:
		if w.Identifier == "" {
			return fmt.Sprintf("buckets have used %d%% of %s", w.Percent, limit)
		}
		return fmt.Sprintf("a bucket has used %d%% of %s: %d of %d %s", w.Percent, limit, w.Used, w.Most, w.Unit)
	case LimitExceeded:
		if w.Identifier == "" {
			return fmt.Sprintf("%s refused takes", limit)
		}
		if w.Fallback {
			return fmt.Sprintf("this process's share of %s is used up while the store is unavailable", limit)
		}
		return fmt.Sprintf("%s refused a take of %d %s: %d of %d are used", limit, w.Asked, w.Unit, w.Used, w.Most)
	case BackendError:
		return fmt.Sprintf("the store failed (%s)", w.Fault)
	case FallbackActivated:
		return guard.FallbackEvent +
			": the store is unavailable, this process decides by itself, as the fallback of each limit says"
	case FallbackEnded:
		return fmt.Sprintf("the store is back after %s; takes decided without it: %d", w.Outage.Round(time.Millisecond),
			w.Decided)
	case ShadowDivergence:
		return fmt.Sprintf("policy %q in shadow would have refused %d takes that were allowed, and allowed %d that were refused",
			w.Policy, w.WouldRefuse, w.WouldAllow)
	case CircuitOpened:
		return fmt.Sprintf("%s fail: their circuit has opened, and this process makes none for a while", w.calls())
	case CircuitClosed:
		return fmt.Sprintf("%s succeed again: their circuit has closed", w.calls())
	case StoreLost:
		return "the store lost its data, so what was used before may be granted again"
	case Incident:
		return w.Incident.Summary
	}
	return string(w.Kind)
}

// calls says in words which calls a circuit stops.
func (w *Warning) calls() string {
	switch to := fmt.Sprintf("to upstream %q", w.Upstream); {
	case w.Model == "":
		return "connections " + to
	case w.Caller == "":
		return fmt.Sprintf("calls of model %q %s", w.Model, to)
	default:
		return fmt.Sprintf("calls by %s of model %q %s", w.Caller, w.Model, to)
	}
}
