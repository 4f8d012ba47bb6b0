package outbound

import (
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
)

// Outcome is how a call ended.
type Outcome uint8

// The outcomes.
const (
	Succeeded  Outcome = iota // the upstream answered
	Failed                    // a time-out, a lost connection, or an answer that says that the upstream is broken
	Refused                   // the upstream refused it for the quota, though we had granted it
	GaveUp                    // the caller left, or nothing was sent
	NotGranted                // the quota did not grant it: nothing was sent
	TurnedAway                // the circuit was open: nothing was taken or sent
	HoldFailed                // not a call's end: what one holds could not be renewed or given back; Err says why
)

// String returns "succeeded", "failed", "refused", "gave_up", "not_granted", "turned_away" or
// "hold_failed".
func (o Outcome) String() string {
	return [...]string{
		"succeeded", "failed", "refused", "gave_up", "not_granted", "turned_away",
		"hold_failed",
	}[min(o, HoldFailed)]
}

// Event describes a call: one attempt, if it is made again.
type Event struct {
	ID       uint64 // of this call, among those of its Client; 0 if it asked for nothing
	Upstream string
	Owner    string // whose quota it is, as [Options] says
	Model    string
	Series   string // of the [Call]
	Priority int
	Labels   []drawgate.Label // of the [Call]
	Outcome  Outcome
	Estimate []drawgate.Cost   // what was held
	Used     []drawgate.Cost   // what it was settled with; nil: the estimate stands, or everything was given back
	Decision drawgate.Decision // as it was granted; empty if it was not
	UnderWay int               // calls of this client that held units when this one began, itself included
	Asked    time.Time         // when it began, before it asked for anything
	Granted  time.Time         // no later than the store's decision; zero if it was not granted
	// no later than the first byte that was sent; zero if nothing was. [Do]: when its function was
	// called
	Sent     time.Time
	Answered time.Time     // when the answer began; zero if there was none. [Do]: when its function returned
	Ended    time.Time     // when the call had ended, before it was settled; zero: it was not granted
	Queued   time.Duration // until it was granted, or was not
	Took     time.Duration // all of it
	Until    time.Time     // Refused: until when the quota is closed
	Reason   string        // Refused: what the upstream said, in short
	Status   int           // of the answer; 0 if there was none, and for [Do]
	Refusal  llm.Refusal   // what the answer's error means; empty if it was none, and for [Do]
	Usage    llm.Usage     // what the answer said it used; empty for [Do]
	Err      error         // why there was no answer; Refused: why the quota could not be paused
	// why the store has not heard how the call ended: what it reserved counts when the hold ends
	Unsettled error
}

// Spent returns what the call was settled with: the estimate, if it was sent and nobody said what
// it used, and nothing if everything was given back.
func (e *Event) Spent() []drawgate.Cost {
	if e.Used == nil && !e.Sent.IsZero() {
		return e.Estimate
	}
	return e.Used
}

// Observer is told what a [Client] does. Each func may be nil, and is called on the caller's path,
// perhaps by many goroutines at once: it must be quick. Nothing that it is given may be changed, or
// kept.
type Observer struct {
	Asking  func(*Event) // a call asks its quota, from now on. Whether it is granted is not known
	Granted func(*Event) // a call was granted; nothing was sent yet. Its end is not known
	// Ended: a call that was granted has ended; it is settled after this. Took is not known.
	Ended   func(*Event)
	Called  func(*Event)                      // a call has ended and was settled, or it was not granted
	Circuit func(upstream string, c *Circuit) // a circuit opened or closed
	// Lowered tells that takes now obey less than what is configured, because the upstream said so:
	// once for each set of amounts that a [Transport] lowers a policy to.
	Lowered func(*Lowered)
}

// Lowered is a limit whose amount the upstream has told to be less than what is configured.
type Lowered struct {
	Upstream string
	Model    string         // the family of the call's model
	Policy   string         // which has the limit
	Limit    drawgate.Limit // as it is configured
	Amount   int64          // what takes obey, in the limit's unit; at least 1
}

// Join returns an Observer that tells all others, in this order. Those that are nil are left out.
func Join(list ...*Observer) *Observer {
	list = slices.DeleteFunc(slices.Clone(list), func(o *Observer) bool { return o == nil })
	return &Observer{
		Asking: func(e *Event) {
			for _, o := range list {
				o.asking(e)
			}
		},
		Granted: func(e *Event) {
			for _, o := range list {
				o.granted(e)
			}
		},
		Ended: func(e *Event) {
			for _, o := range list {
				o.ended(e)
			}
		},
		Called: func(e *Event) {
			for _, o := range list {
				o.called(e)
			}
		},
		Circuit: func(upstream string, c *Circuit) {
			for _, o := range list {
				o.circuit(upstream, c)
			}
		},
		Lowered: func(l *Lowered) {
			for _, o := range list {
				o.lowered(l)
			}
		},
	}
}

func (o *Observer) asking(e *Event) {
	if o != nil && o.Asking != nil {
		o.Asking(e)
	}
}

func (o *Observer) granted(e *Event) {
	if o != nil && o.Granted != nil {
		o.Granted(e)
	}
}

func (o *Observer) ended(e *Event) {
	if o != nil && o.Ended != nil {
		o.Ended(e)
	}
}

func (o *Observer) called(e *Event) {
	if o != nil && o.Called != nil {
		o.Called(e)
	}
}

func (o *Observer) circuit(upstream string, c *Circuit) {
	if o != nil && o.Circuit != nil {
		o.Circuit(upstream, c)
	}
}

func (o *Observer) lowered(l *Lowered) {
	if o != nil && o.Lowered != nil {
		o.Lowered(l)
	}
}

// observe tells the end of a call, or what went wrong with its hold.
func (c *Client) observe(e *Event) {
	e.Upstream, e.Owner = c.opts.Upstream, c.opts.Owner
	c.opts.Observer.called(e)
}

func (c *Client) circuitsChanged(list []Circuit) {
	for i := range list {
		c.opts.Observer.circuit(c.opts.Upstream, &list[i])
	}
}
