package store

import "time"

// Reason says why a take was refused.
type Reason uint8

// The reasons.
const (
	Passed  Reason = iota // not refused
	Limited               // a limit does not have enough left
	// other callers are ahead in the queue of the process, or in the line of all processes if the
	// store keeps one.
	Queued
	// the store is unavailable, and a limit admits nothing, or nothing of that size, without it:
	// package guard says so.
	Unavailable
	Paused // a bucket is paused
)

// String returns "passed", "limited", "queued", "unavailable" or "paused".
func (r Reason) String() string {
	return [...]string{"passed", "limited", "queued", "unavailable", "paused"}[min(r, Paused)]
}

// Verdict answers a [Take]. [Decide] makes one; a store that decides in another way makes it
// itself. Its instants are in Unix microseconds of the store's clock.
type Verdict struct {
	Allowed  bool
	Fallback bool // the store was unavailable: this process decided by itself
	Replayed bool // the take's id was already open: this repeats its answer, and nothing more was charged
	// the store was asked and did not answer, so it may have granted the take. If it is allowed,
	// this process did that by itself; it may be refused by either
	Unsure bool
	// refused without the store, because of use that this process does not know of, but has to
	// assume
	UsageUnknown bool
	Reason       Reason // why not
	PausedAt     int    // position of the bucket whose pause ends last, if Paused

	// Arrival is the place in the line of a refused take with a ticket, to be sent with each of its
	// next tries; 0 if the store keeps no line. See [Ticket].
	Arrival  int64
	Standing Standing // among those who wait, if it left a ticket

	Now   int64 // when it was decided
	Start int64 // from when the units count: later than Now if the take was granted ahead; otherwise 0 or Now
	End   int64 // when the hold ends; 0 without a hold

	// 0 if allowed; otherwise this take fits after this wait if nothing else happens; never
	// negative
	RetryAfter    time.Duration
	EarliestRetry time.Duration // at most RetryAfter: it fits no earlier, even if everything held were given back now
	Fail          error         // why this take was not decided; nothing else is set then

	First Answer   // what is said of the take's first bucket
	Rest  []Answer // and of the others

	Histories []History // per bucket, if the take has Known and the store is a [Historian]
}

// Answer is what a [Verdict] says of one bucket.
type Answer struct {
	Limits  [MaxLimits]Result // per limit of its plan
	Granted Amounts           // of a take that is held: the units charged, for a lease perhaps fewer than asked
}

// Result is what a [Verdict] says of one limit.
type Result struct {
	Remaining int64 // units that a take of the same priority would be granted right now; never negative
	// until this limit would pass the take if nothing else happened; 0 if it passes; the largest
	// Duration: never
	RetryAfter time.Duration
	ResetAt    int64 // when nothing is used; of a calendar limit the end of its window
}

// Buckets returns the number of buckets that the verdict describes.
func (v *Verdict) Buckets() int { return 1 + len(v.Rest) }

// Bucket returns what is said of bucket i, to be read or set.
func (v *Verdict) Bucket(i int) *Answer {
	if i == 0 {
		return &v.First
	}
	return &v.Rest[i-1]
}

// Granted returns the units that a take which is held was granted per limit of bucket i.
func (v *Verdict) Granted(i int) Amounts { return v.Bucket(i).Granted }

// At returns Now as a time.
func (v *Verdict) At() time.Time { return time.UnixMicro(v.Now) }

// HoldEnd returns End as a time: the zero time without a hold.
func (v *Verdict) HoldEnd() time.Time { return instant(v.End) }

// Delay returns how long after the verdict the units count.
func (v *Verdict) Delay() time.Duration { return duration(max(0, v.Start-v.Now)) }

// State describes a bucket without spending anything.
type State struct {
	Verdict              // what a take of the asked amounts would get
	States  []LimitUsage // per limit
	Open    int          // open reservations
	Pause   Pause        // zero if the bucket is not paused
	Line    []Waiter     // who waits, in all processes, in their order, as far as there are tickets
	Barging *Verdict     // what such a take would get that pays no heed to who waits; nil: nobody does
}

// Standing says where a take that waits stands in the line of the bucket that refuses it longest.
type Standing struct {
	Tickets int      // in the line, with its own; 0: it left none there
	Before  []uint64 // the numbers of those before its own
	Oldest  int64    // when the one that has waited longest began to
}

// Waiter is who waits for a bucket, as its ticket says.
type Waiter struct {
	Number   uint64    // of the ticket
	Since    time.Time // it waits, by the store's clock
	Priority int8
	N        Amounts // the units that it waits for; 0 of limits after the one that refuses it
}

// LimitUsage is what one limit of a bucket has used.
type LimitUsage struct {
	Used  int64     // units that count now, rounded up, Held included
	Held  int64     // of these, units held that do not age yet
	Debt  int64     // how far Used exceeds what may be used
	Max   int64     // what a take of the asked priority may use in all
	Start time.Time // calendar: the open window
	End   time.Time
}

// Pause says until when a bucket refuses every take, and why.
type Pause struct {
	Until  time.Time // according to the store's clock
	Reason string    // for people, at most MaxReason bytes
}
