package ledger

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// FallbackPlan is what a policy admits during an outage.
//
// Limits that admit something are recorded all the time. Each has two specs with one identity, so
// that they count in one state: share bounds what is decided here, and unbounded records what the
// store has decided.
type FallbackPlan struct {
	Plan *store.Plan
	Mode [store.MaxLimits]store.Fallback // closed, share or open; a share of less than one unit is closed

	instances int
	start     store.Start
	cold      *FallbackPlan // see planCache.uncounted
	at        []int         // for each recorded limit: its position in the plan
	share     []record.Spec
	unbounded []record.Spec
	forced    *store.Plan // see force
}

// unlimited is more than any limit ever counts.
const unlimited = 1 << 60

// NewFallbackPlan divides a policy among instances; 0 means that their number is unknown.
func NewFallbackPlan(plan *store.Plan, instances int) *FallbackPlan {
	return newFallbackPlan(plan, instances, 1)
}

// newFallbackPlan divides a policy among instances, and a share into parts. A part of a share is at
// least one unit.
func newFallbackPlan(plan *store.Plan, instances, parts int) *FallbackPlan {
	f := &FallbackPlan{Plan: plan, instances: instances * parts}
	policy, specs := plan.Policy(), store.Internal.Specs(plan, false)
	for i := range specs {
		mode := Mode(&policy, i, instances)
		share := specs[i]
		if mode == store.FallbackShare && !divide(&share, int64(instances), int64(parts)) {
			mode = store.FallbackClosed
		}
		f.Mode[i] = mode
		if mode == store.FallbackClosed {
			continue
		}
		unbounded := share
		unbound(&unbounded)
		if mode == store.FallbackOpen {
			// If the policy changes, it drains at another rate than a share of the same limit.
			share.ID = ^share.ID
			unbounded.ID = share.ID
			share.Effective = unbounded.Effective
		}
		f.at, f.share, f.unbounded = append(f.at, i), append(f.share, share), append(f.unbounded, unbounded)
	}
	return f
}

// Mode returns what limit i of a policy does during an outage, with so many processes (0: unknown).
// It is never FallbackDefault.
func Mode(p *store.Policy, i, instances int) store.Fallback {
	mode := p.Limits[i].Fallback
	if mode == store.FallbackDefault {
		mode = p.Fallback
	}
	switch {
	case p.Limits[i].Amount == 0: // an outage does not open what lets nothing pass
		return store.FallbackClosed
	case p.Limits[i].Every == store.Total: // what is spent twice never comes back
		return store.FallbackClosed
	case mode == store.FallbackDefault && instances > 0:
		return store.FallbackShare
	case mode == store.FallbackDefault, mode == store.FallbackShare && instances <= 0:
		return store.FallbackClosed
	}
	return mode
}

// divide turns a limit into the share of one of n instances, or into a part of it. It reports
// whether the share is at least one unit; then a part is, too.
//
// What may be used at once is rounded down. A bucket's rate is divided exactly, by using a longer
// period, so that all shares together drain as fast as the limit.
func divide(s *record.Spec, n, parts int64) bool {
	for p := range s.Effective {
		share := s.Effective[p] / n
		s.Effective[p] = min(share, max(1, share/parts))
	}
	if n *= parts; s.Kind == record.Bucket {
		if s.Window > math.MaxInt64/4/n {
			return false
		}
		s.Window *= n
		s.Scale, s.Drain = record.BucketScale(s.Rate, s.Window)
	}
	return s.Effective[record.Priorities-1] > 0
}

func unbound(s *record.Spec) {
	most := int64(unlimited)
	if s.Kind == record.Bucket {
		most = math.MaxInt64 / s.Scale
	}
	for p := range s.Effective {
		s.Effective[p] = most
	}
}

// force returns the policy with amounts that no take exceeds, and otherwise the same limits. With
// it, what was admitted here is recorded at the store, whatever the store admitted to others
// meanwhile. Amounts are not part of a limit's identity. A bucket keeps its rate, because that is
// how it drains.
func (f *FallbackPlan) force() *store.Plan {
	if f.forced != nil {
		return f.forced
	}
	p := f.Plan.Policy()
	p.Limits = slices.Clone(p.Limits)
	for i := range p.Limits {
		l := &p.Limits[i]
		l.ReservedByPriority = nil
		if l.Kind == store.Bucket {
			l.Amount = max(1, l.Amount) // an amount of 0 drains like 1
			l.Burst = min(store.MaxAmount, 1<<53/store.Internal.Specs(f.Plan, false)[i].Scale)
		} else {
			l.Amount, l.Headroom = store.MaxAmount, store.Share{}
		}
	}
	f.forced = f.Plan
	if plan, err := p.Compile(); err == nil {
		f.forced = plan
	}
	return f.forced
}

// records reports whether any limit is recorded here.
func (f *FallbackPlan) records() bool { return len(f.at) > 0 }

// pick returns the amounts of n that belong to recorded limits, in their order.
func (f *FallbackPlan) pick(n *store.Amounts) (k store.Amounts) {
	for i, at := range f.at {
		k[i] = n[at]
	}
	return k
}

// only returns n with the amounts of limits that are not recorded set to zero.
func (f *FallbackPlan) only(n *store.Amounts) (k store.Amounts) {
	for _, at := range f.at {
		k[at] = n[at]
	}
	return k
}

// shut reports whether a limit admits nothing of n.
func (f *FallbackPlan) shut(n *store.Amounts, mayShare bool) bool {
	for i := range store.Internal.Specs(f.Plan, false) {
		if n[i] > 0 && (f.Mode[i] == store.FallbackClosed || f.Mode[i] == store.FallbackShare && !mayShare) {
			return true
		}
	}
	return false
}

// needsShare reports whether a take of n uses up a share.
func (f *FallbackPlan) needsShare(n *store.Amounts) bool {
	for _, at := range f.at {
		if n[at] > 0 && f.Mode[at] == store.FallbackShare {
			return true
		}
	}
	return false
}

// Opens reports whether one of the limits has FallbackOpen.
func (f *FallbackPlan) Opens() bool { return slices.Contains(f.Mode[:], store.FallbackOpen) }

// clamp forgets what was used of buckets beyond the share's burst: a process that was given more
// than its share by the store continues from an empty bucket, not from debt. A process that is
// alone has no more than the limit.
//
// In units per share, use never falls below before. Otherwise settling a reservation under a rule
// with a smaller amount than that of other takes would free the difference again.
func (f *FallbackPlan) clamp(rec *record.Record, before *store.Amounts) {
	if f.instances <= 1 {
		return
	}
	for i := range f.share {
		s := &f.share[i]
		if s.Kind != record.Bucket || f.Mode[f.at[i]] != store.FallbackShare {
			continue
		}
		most := max(before[i], s.Effective[record.Priorities-1])
		// so that the product is at most what is used
		if st := stateOf(rec, s.ID); st != nil && st.Used/st.Scale >= most {
			st.Used = most * st.Scale
		}
	}
}

// used returns the units that are used of the buckets of a share, rounded up.
func (f *FallbackPlan) used(rec *record.Record) (n store.Amounts) {
	if f.instances <= 1 {
		return n
	}
	for i := range f.share {
		if st := stateOf(rec, f.share[i].ID); st != nil && st.Kind == record.Bucket {
			n[i] = record.CeilDiv(st.Used, st.Scale)
		}
	}
	return n
}

// adapt converts the buckets of a record to another number of instances, which changes their rates.
// The time of the change is unknown, so the slower of the two rates applies until now.
func (f *FallbackPlan) adapt(rec *record.Record, now int64) {
	for i := range f.share {
		s := &f.share[i]
		if s.Kind != record.Bucket {
			continue
		}
		st := stateOf(rec, s.ID)
		if st == nil || st.Window == s.Window {
			continue
		}
		if st.Window > s.Window {
			st.Leak(s, max(now, rec.Last))
		}
		scale, _ := record.BucketScale(st.Rate, s.Window)
		st.Used = mulDivUp(st.Used, scale, st.Scale)
		st.Peak = max(st.Peak, mulDivUp(st.Peak, s.Window, st.Window))
		st.Window, st.Scale = s.Window, scale
		st.Leak(s, max(now, rec.Last))
	}
}

// mulDivUp returns a·b/c, rounded up; the largest int64 if that is more.
func mulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(max(0, a)), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, r := bits.Div64(hi, lo, uint64(c))
	if r > 0 {
		q++
	}
	return int64(min(q, math.MaxInt64))
}

func stateOf(rec *record.Record, id uint64) *record.State {
	for i := range rec.Limits {
		if rec.Limits[i].ID == id {
			return &rec.Limits[i]
		}
	}
	return nil
}

// planCache caches fallback plans. It is emptied when it grows large, because policies are compiled
// again whenever a configuration is loaded.
type planCache struct {
	instances func() (int, bool)
	atLeast   int
	start     store.Start
	plans     map[*store.Plan]*FallbackPlan
}

const maxPlans = 4096

// of returns the fallback plan for a number of instances.
func (c *planCache) of(plan *store.Plan, instances int) *FallbackPlan {
	f := c.plans[plan]
	if f != nil && f.instances == instances {
		return f
	}
	if c.plans == nil || len(c.plans) >= maxPlans {
		c.plans = make(map[*store.Plan]*FallbackPlan)
	}
	f = NewFallbackPlan(plan, instances)
	f.start = cmp.Or(plan.Policy().Start, c.start, store.StartClosed)
	c.plans[plan] = f
	return f
}

// uncounted returns what a process admits of a policy that does not start closed as long as the
// process is not among the instances that are counted: in each window the part of a share with
// which it starts. It is never more than that, because any number of such processes may exist
// beside those that are counted.
func (c *planCache) uncounted(f *FallbackPlan) *FallbackPlan {
	if f.cold == nil {
		n := max(2, c.atLeast)
		f.cold = newFallbackPlan(f.Plan, n, n)
		f.cold.start = f.start
	}
	return f.cold
}

// ColdPart returns how much of a share of limit units a process may admit that starts cold, with so
// many instances: see [store.StartCold].
func ColdPart(share int64, instances int) int64 {
	return min(share, max(1, share/int64(max(2, instances))))
}
