package record

import "github.com/drawgate/drawgate/internal/calendar"

// MaxLimits is the most limits that a policy may have.
const MaxLimits = 6

// MaxOpen is the most reservations that may be open in one bucket. Every answer that explains what
// is held looks at all of them.
const MaxOpen = 10_000

// Priorities is the number of priorities: 0 (lowest) to 9.
const Priorities = 10

// Keep in the Amounts of a settlement means that the estimate is kept.
const KeepEstimate int64 = -1

// Amounts holds one number of units per limit of a policy, in the policy's order.
type Amounts [MaxLimits]int64

// Kind is the kind of a limit. The numbers are stored and never change.
type Kind uint8

// The four kinds.
const (
	Bucket Kind = iota + 1
	Rolling
	Calendar
	Concurrency
)

// Spec is one limit, prepared for the arithmetic. It is immutable.
type Spec struct {
	ID        uint64        // identity: name, unit, kind, window, zone, anchor; never 0
	Kind      Kind          //
	ChargeEnd bool          // units count from the settlement; while held they do not age
	Window    int64         // µs: a rolling window, a bucket's period
	Join      int64         // rolling, µs: how far after an entry's first take another may join it; 0 never
	Rule      calendar.Rule // calendar
	Margin    int64         // µs between the decision and the latest instant at which the unit may arrive
	// µs by which the store's clock may be ahead of the instant that it says: units count that much
	// longer
	Blur      int64
	Effective [Priorities]int64 // the most that a take of each priority may bring use to; bucket: of the burst
	Rate      int64             // bucket: units drained per Window
	Scale     int64             // bucket: State.Used counts 1/Scale units
	Drain     int64             // bucket: 1/Scale units drained per µs
}

// Fits reports whether n units could ever be granted at this priority.
func (s *Spec) Fits(n int64, priority int8) bool { return n <= s.Effective[priority] }

// way is how long after their decision units may still arrive. Units that are charged at the end
// have arrived by then.
func (s *Spec) way() int64 {
	if s.ChargeEnd {
		return 0
	}
	return s.Margin
}

// lateness is how long after the instant of their decision, or after the end of their hold, units
// may still arrive.
func (s *Spec) lateness() int64 { return s.way() + s.Blur }

// reach is how far a take may reach into the window after the open one.
func (s *Spec) reach() int64 { return s.Margin + s.Blur }

// BucketScale returns the scale and the drain per µs that count rate units per window µs without
// fractions.
func BucketScale(rate, window int64) (scale, drain int64) {
	g := gcd(rate, window)
	return window / g, rate / g
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
