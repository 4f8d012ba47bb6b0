package drawgate

import (
	"iter"
	"math"
	"slices"
	"time"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Reason says why a take was refused; 0 if it was not. Its String is "passed", "limited", "queued",
// "unavailable" or "paused".
type Reason = store.Reason

// The reasons.
const (
	Limited     = store.Limited     // a limit does not have enough left
	Queued      = store.Queued      // other callers are ahead in the queue
	Unavailable = store.Unavailable // without the store a limit admits nothing of that size: see [Fallback]
	Paused      = store.Paused      // a bucket is paused: see [Limiter.Pause]
)

// Decision answers a take. Being over the limit is a normal answer, not an error. It is a value,
// and may be copied and kept.
type Decision struct {
	Allowed  bool
	Fallback bool   // the store was unavailable: this process decided by itself, as the policy's [Fallback] says
	Replayed bool   // the take's id was already open: this repeats its answer, and nothing more was charged
	Reason   Reason // why not
	first    uint8  // position of the first bucket that is described: not 0 only if Queued
	pausedAt uint8  // position of the bucket whose pause ends last, if Paused
	priority uint8  // of the take
	raw      bool   // res[0] counts parts of a bucket: its divisions are left to whoever looks

	// What an allowed take sets stands together: a copy is faster where it does not mix fresh words
	// with old ones.
	at   int64
	plan *Plan                 // of the first bucket
	res  [inline]record.Result // its first limits

	RetryAfter    time.Duration // 0 if allowed; after this wait it fits if nothing else happens; never negative
	EarliestRetry time.Duration // at most RetryAfter: it fits no earlier, even if everything held were given back now
	more          *details      // nil for a plain take of one bucket with few limits
	// makes it a multiple of 16 bytes: the copy of an odd one overlaps, which stalls the next
	_ [8]byte
}

// inline is how many limits a Decision describes by itself. It is copied at every return: a smaller
// one is faster.
const inline = 3

// details are what most decisions do not have; apart, so that a Decision is small enough to be
// copied without a thought.
type details struct {
	start   int64           // from when the units count; 0 or not after the decision: at once
	end     int64           // of the hold
	sent    time.Time       // before the store was asked
	got     []store.Amounts // per bucket: units charged
	unknown bool
	unsure  bool
	rest    [record.MaxLimits - inline]record.Result
	buckets []bucketResult
}

// bucketResult is what a decision says about a bucket after the first.
type bucketResult struct {
	plan *Plan
	res  [record.MaxLimits]record.Result
}

// LimitResult is what a decision says about one limit.
type LimitResult struct {
	Bucket     int // position of its bucket in the take
	Policy     string
	Limit      *Limit        // must not be changed
	Remaining  int64         // units that a take of the same priority would be granted right now; never negative
	Max        int64         // units that takes of the same priority may use in total; of a bucket, in a burst
	RetryAfter time.Duration // until this limit would pass the take if nothing else happened; 0 if it passes

	at, reset int64
	spec      *record.Spec
}

// Quota returns what the limit grants per window, less its headroom, and at once, to a take of the
// highest priority. They differ for a bucket.
func (r LimitResult) Quota() (perWindow, atOnce int64) {
	atOnce = r.spec.Effective[MaxPriority]
	if r.Limit.Kind == Bucket && atOnce > 0 {
		return r.spec.Rate, atOnce
	}
	return atOnce, atOnce
}

// ResetAt returns when nothing is used, or when a calendar limit's window ends.
func (r LimitResult) ResetAt() time.Time { return time.UnixMicro(r.reset) }

// ResetAfter returns how long after the decision ResetAt is.
func (r LimitResult) ResetAfter() time.Duration { return duration(max(0, r.reset-r.at)) }

// Part returns what remains as a fraction of Max (not of the amount, of which headroom and higher
// priorities keep a part); 0 if Max is 0.
func (r LimitResult) Part() float64 { return part(r.Remaining, r.Max) }

func part(remaining, most int64) float64 { return float64(remaining) / float64(max(1, most)) }

// Refused reports whether this limit refuses the take.
func (r LimitResult) Refused() bool { return r.RetryAfter > 0 }

// Limits yields what the decision says about each limit: bucket by bucket, in the policy's order,
// without those that only count ([store.OwnPolicies]).
func (d *Decision) Limits() iter.Seq[LimitResult] {
	return func(yield func(LimitResult) bool) {
		for b := range d.Buckets() {
			if d.bucket(b).own {
				continue
			}
			for i := range d.bucket(b).specs {
				if !yield(d.limit(b, i)) {
					return
				}
			}
		}
	}
}

// Counts reports whether one of the buckets counts a unit; "" is requests.
func (d *Decision) Counts(unit string) bool {
	if unit == "" {
		unit = UnitRequests
	}
	for b := range d.Buckets() {
		if slices.Contains(d.bucket(b).units, unit) {
			return true
		}
	}
	return false
}

// UsageUnknown reports whether a refusal without the store counts use that this process does not
// know of, but has to assume: see [Start].
func (d *Decision) UsageUnknown() bool { return d.more != nil && d.more.unknown }

// Unsure reports whether the store was asked about a take and did not answer: it may have granted
// it. If the take was allowed without the store, and its hold ends there before the store is back,
// it counts twice unless the store remembers the hold: for an hour, and the last 64 of a bucket. If
// it was refused, also by a later answer, it counts until it is cancelled.
func (d *Decision) Unsure() bool { return d.more != nil && d.more.unsure }

// Left returns what remains of limit i of the first bucket, if it has one.
func (d *Decision) Left(i int) int64 {
	if d.raw || i >= inline {
		if d.plan == nil || i >= len(d.plan.specs) {
			return 0
		}
		return d.result(0, i).Remaining
	}
	return d.res[i].Remaining
}

// Buckets returns the number of buckets that the decision describes.
func (d *Decision) Buckets() int {
	switch {
	case d.plan == nil:
		return 0
	case d.more == nil:
		return 1
	}
	return 1 + len(d.more.buckets)
}

// bucket returns the plan of bucket b.
func (d *Decision) bucket(b int) *Plan {
	if b == 0 {
		return d.plan
	}
	return d.more.buckets[b-1].plan
}

// result returns what is said of limit i of bucket b.
func (d *Decision) result(b, i int) record.Result {
	switch {
	case b > 0:
		return d.more.buckets[b-1].res[i]
	case d.raw:
		r, s := d.res[0], &d.plan.specs[0]
		return record.Result{
			Remaining: max(0, r.Remaining) / s.Scale, RetryAfter: r.RetryAfter,
			ResetAt: d.at + record.CeilDiv(r.ResetAt, s.Drain),
		}
	case i < inline:
		return d.res[i]
	}
	return d.more.rest[i-inline]
}

// results sets what is said of the first bucket.
func (d *Decision) results(plan *Plan, out *[record.MaxLimits]record.Result) {
	d.plan = plan
	copy(d.res[:], out[:])
	if len(plan.specs) > inline {
		if d.more == nil {
			d.more = &details{}
		}
		copy(d.more.rest[:], out[inline:])
	}
}

func (d *Decision) limit(b, i int) LimitResult {
	plan, r := d.bucket(b), d.result(b, i)
	return LimitResult{
		Bucket: b + int(d.first), Policy: plan.policy.Name, Limit: &plan.policy.Limits[i],
		Remaining: r.Remaining, Max: plan.specs[i].Effective[d.priority], RetryAfter: duration(r.RetryAfter),
		at: d.at, reset: r.ResetAt, spec: &plan.specs[i],
	}
}

// Granted returns the units that a hold was granted per limit of bucket b: for a lease they may be
// fewer than asked. It is zero for a plain take.
func (d *Decision) Granted(b int) store.Amounts {
	if d.more == nil || b >= len(d.more.got) {
		return store.Amounts{}
	}
	return d.more.got[b]
}

// Remaining returns what is left of the tightest limit: see [Decision.Tightest].
func (d *Decision) Remaining() int64 {
	t, _ := d.Tightest()
	return t.Remaining
}

// ResetAfter is [LimitResult.ResetAfter] of the tightest limit.
func (d *Decision) ResetAfter() time.Duration {
	t, _ := d.Tightest()
	return t.ResetAfter()
}

// Tightest returns the limit with the smallest [LimitResult.Part], the first of several, which
// headers describe. It is false for an empty decision.
func (d *Decision) Tightest() (LimitResult, bool) {
	best, bb, bi := math.Inf(1), -1, 0
	for b := range d.Buckets() {
		plan := d.bucket(b)
		if plan.own {
			continue
		}
		for i := range plan.specs {
			if f := part(d.result(b, i).Remaining, plan.specs[i].Effective[d.priority]); f < best {
				best, bb, bi = f, b, i
			}
		}
	}
	if bb < 0 {
		return LimitResult{}, false
	}
	return d.limit(bb, bi), true
}

// Refusing returns the limit that refuses longest. It is false if none does.
func (d *Decision) Refusing() (LimitResult, bool) {
	most, bb, bi := int64(0), -1, 0
	for b := range d.Buckets() {
		for i := range d.bucket(b).specs {
			if w := d.result(b, i).RetryAfter; w > most {
				most, bb, bi = w, b, i
			}
		}
	}
	if bb < 0 {
		return LimitResult{}, false
	}
	return d.limit(bb, bi), true
}

// refusingBucket returns the position of the bucket that refuses longest, or that is paused; 0 if
// none is.
func (d *Decision) refusingBucket() int {
	if d.Reason == Paused {
		return int(d.pausedAt)
	}
	r, _ := d.Refusing()
	return r.Bucket
}

// At returns when the decision was made, according to the store's clock. A take that was granted
// ahead counts later, from At + [Decision.Delay].
func (d *Decision) At() time.Time { return time.UnixMicro(d.at) }

// Delay returns how long after the decision its units count, and its work may start: more than 0
// only for a take that was granted ahead, see [Limiter.Book].
func (d *Decision) Delay() time.Duration {
	if d.more == nil || d.more.start <= d.at {
		return 0
	}
	return duration(d.more.start - d.at)
}

// holdEnd returns when the hold ends, according to the store's clock; the zero time without a hold.
// A holder may rely on it for holdEnd - At from when it asked: see deadline.
func (d *Decision) holdEnd() time.Time {
	if d.more == nil || d.more.end == 0 {
		return time.Time{}
	}
	return time.UnixMicro(d.more.end)
}

// Err returns nil if the take was allowed, and otherwise a *[LimitedError] that names the limit
// that refuses longest.
func (d *Decision) Err() error {
	if d.Allowed {
		return nil
	}
	e := &LimitedError{RetryAfter: d.RetryAfter, Queued: d.Reason == Queued, Decision: *d}
	if r, ok := d.Refusing(); ok {
		e.Policy, e.Limit, e.ResetAt = r.Policy, r.Limit.Name, r.ResetAt()
	} else if d.plan != nil {
		e.Policy = d.plan.policy.Name
	}
	if d.Reason == Paused && int(d.pausedAt) < d.Buckets() {
		e.Policy, e.Limit, e.ResetAt = d.bucket(int(d.pausedAt)).policy.Name, "", time.Time{}
	}
	return e
}

// duration converts µs, saturating.
func duration(us int64) time.Duration {
	if us > math.MaxInt64/1000 {
		return math.MaxInt64
	}
	return time.Duration(us) * time.Microsecond
}
