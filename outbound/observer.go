package outbound

import (
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
	return [...]string{"succeeded", "failed", "refused", "gave_up", "not_granted", "turned_away", "hold_failed"}[min(o, HoldFailed)]
}

// Event describes the end of a call.
type Event struct {
	Model    string
	Priority int
	Outcome  Outcome
	Estimate []drawgate.Cost   // what was held
	Used     []drawgate.Cost   // what it was settled with; nil: the estimate stands, or everything was given back
	Decision drawgate.Decision // as it was granted; empty if it was not
	UnderWay int               // calls of this client that held units when this one began, itself included
	Queued   time.Duration     // until it was granted, or was not
	Took     time.Duration     // all of it
	Until    time.Time         // Refused: until when the quota is closed
	Reason   string            // Refused: what the upstream said, in short
	Status   int               // of the answer; 0 if there was none, and for [Do]
	Refusal  llm.Refusal       // what the answer's error means; empty if it was none, and for [Do]
	Usage    llm.Usage         // what the answer said it used; empty for [Do]
	Err      error
}

// Observer is told what a [Client] does. Each func may be nil, and is called on the caller's path,
// perhaps by many goroutines at once: it must be quick. Nothing that it is given may be changed.
type Observer struct {
	Called  func(*Event)
	Circuit func(upstream, state string) // the circuit opened or closed
}

func (c *Client) observe(e *Event) {
	if o := c.opts.Observer; o != nil && o.Called != nil {
		o.Called(e)
	}
}

func (c *Client) circuitChanged(state string) {
	if o := c.opts.Observer; o != nil && o.Circuit != nil {
		o.Circuit(c.opts.Upstream, state)
	}
}
