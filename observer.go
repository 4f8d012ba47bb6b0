package drawgate

import (
	"time"

	"github.com/drawgate/drawgate/store"
)

// Observer is notified of what limiters do: see [Options.Observer]. Each func may be nil, and is
// called on the caller's path, by many goroutines at a time: it must not block, or keep or change
// its arguments. Keys may be personal data: whoever writes them must bound and hide them.
type Observer struct {
	Taken func(*Taken) // a take was decided, or failed
	// a reservation was settled, cancelled or renewed, units charged or refunded, a pause changed
	Settled func(*Settled)
	Called  func(*StoreCall) // a store was asked for something
}

// Taken describes one [Limiter.Allow], Wait, Take, Reserve or Book that was sent to the store, or
// refused without asking it. Calls that are invalid or never fit are not reported.
type Taken struct {
	Take     *store.Take
	Decision *Decision     // empty if Err is not nil and not a refusal
	Err      error         // why it was not decided, or how waiting ended
	Wait     bool          // it would have waited
	Queued   time.Duration // the part of Took that it spent in the queue
	QueuedAt int           // position of the bucket in whose queue it last waited, or that was full; 0: none
	Took     time.Duration
}

// Settled describes one settlement: see [Observer] for what that may be.
type Settled struct {
	Settlement *store.Settlement
	Outcome    store.Outcome
	Err        error
	Took       time.Duration // one store call
}

// StoreCall describes one call of the store by a limiter. A store in memory that is asked directly
// for a plain take makes none.
type StoreCall struct {
	Op   string // "take", "peek", "reset", or the name of a [store.Op], such as "settle" or "pause"
	Err  error  // nil, or why the store did not answer; a refusal is an answer
	Took time.Duration
}

// called reports a store call that began at start.
func (o *Observer) called(op string, start time.Time, err error) {
	if o != nil && o.Called != nil {
		o.Called(&StoreCall{Op: op, Err: err, Took: time.Since(start)})
	}
}

// Waiting returns how many callers wait in this process, in all the queues that l shares with the
// limiters it was made from or with, and how long the longest-waiting one has been waiting.
func (l *Limiter) Waiting() (callers int, oldest time.Duration) { return l.queue.waiting() }
