package guard

import (
	"math"
	"slices"
	"sync"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// terms are what a policy admits while the store is away.
//
// Limits that admit something then are kept here all along: each by a spec of its own for what is decided here (share), and by one without bound for what
// the store has decided (wide), both with one identity, so that they count in one state.
type terms struct {
	plan *drawgate.Plan
	mode [drawgate.MaxLimits]drawgate.Fallback // closed, share or open; a share of none is closed
	at   []int                                 // of each kept limit: its position in the plan
	part []record.Spec                         // what this process may use of it while away
	wide []record.Spec
	sole bool // there is no other process

	once   sync.Once
	lifted *drawgate.Plan // see force
}

// unbounded is more than any limit ever counts.
const unbounded = 1 << 60

// newTerms divides a policy among instances; 0 means that nobody knows how many there are.
func newTerms(plan *drawgate.Plan, instances int) *terms {
	t := &terms{plan: plan, sole: instances <= 1}
	policy, specs := plan.Policy(), plan.Specs(false)
	for i := range specs {
		mode := Mode(&policy, i, instances)
		part := specs[i]
		if mode == drawgate.FallbackShare && !divide(&part, instances) {
			mode = drawgate.FallbackClosed
		}
		t.mode[i] = mode
		if mode == drawgate.FallbackClosed {
			continue
		}
		wide := part
		lift(&wide)
		if mode == drawgate.FallbackOpen {
			part.ID = ^part.ID // drains at another rate than a share of the same limit does, if the policy is changed
			wide.ID = part.ID
			part.Effective = wide.Effective
		}
		t.at, t.part, t.wide = append(t.at, i), append(t.part, part), append(t.wide, wide)
	}
	return t
}

// Mode returns what limit i of a policy does while the store is away, where so many instances share its limits; 0 means that nobody knows how many.
// It is never FallbackDefault. A share of what nobody knows how to divide is FallbackClosed.
func Mode(p *drawgate.Policy, i, instances int) drawgate.Fallback {
	mode := p.Limits[i].Fallback
	if mode == drawgate.FallbackDefault {
		mode = p.Fallback
	}
	switch {
	case mode == drawgate.FallbackDefault && instances > 0:
		return drawgate.FallbackShare
	case mode == drawgate.FallbackDefault, mode == drawgate.FallbackShare && instances <= 0:
		return drawgate.FallbackClosed
	}
	return mode
}

// divide makes a limit the share of one of n instances. It reports whether that is at least one unit.
//
// What may be used at once is rounded down. A bucket's rate is divided exactly, by a longer period: so all shares together drain as fast as the limit does.
func divide(s *record.Spec, n int) bool {
	for p := range s.Effective {
		s.Effective[p] /= int64(n)
	}
	if s.Kind == record.Bucket {
		if s.Window > math.MaxInt64/4/int64(n) {
			return false
		}
		s.Window *= int64(n)
		s.Scale, s.Drain = record.BucketScale(s.Rate, s.Window)
	}
	return s.Effective[record.Priorities-1] > 0
}

// lift takes a limit's bound away.
func lift(s *record.Spec) {
	most := int64(unbounded)
	if s.Kind == record.Bucket {
		most = math.MaxInt64 / s.Scale
	}
	for p := range s.Effective {
		s.Effective[p] = most
	}
}

// force returns the policy with amounts that no take exceeds, and else the same limits: what was admitted already is entered by it in a store, whatever the
// store has admitted to others meanwhile. Amounts are no part of a limit's identity. A bucket's rate stays, since it is how the bucket drains.
func (t *terms) force() *drawgate.Plan {
	t.once.Do(func() {
		p := t.plan.Policy()
		p.Limits = slices.Clone(p.Limits)
		for i := range p.Limits {
			l := &p.Limits[i]
			l.Keep = nil
			if l.Kind == drawgate.Bucket {
				l.Burst = min(drawgate.MaxAmount, 1<<53/t.plan.Specs(false)[i].Scale)
			} else {
				l.Amount, l.Headroom = drawgate.MaxAmount, drawgate.Share{}
			}
		}
		t.lifted = t.plan
		if plan, err := p.Compile(); err == nil {
			t.lifted = plan
		}
	})
	return t.lifted
}

// pick returns what n says of the kept limits.
func (t *terms) pick(n *drawgate.Amounts) (k drawgate.Amounts) {
	for i, at := range t.at {
		k[i] = n[at]
	}
	return k
}

// place is the reverse of pick; of other limits it says nothing.
func (t *terms) place(k *drawgate.Amounts) (n drawgate.Amounts) {
	for i, at := range t.at {
		n[at] = k[i]
	}
	return n
}

// shut returns the position of the first limit that admits nothing of what is asked, and -1 if there is none.
func (t *terms) shut(n *drawgate.Amounts) int {
	for i := range t.plan.Specs(false) {
		if n[i] > 0 && t.mode[i] == drawgate.FallbackClosed {
			return i
		}
	}
	return -1
}

// counts reports whether a share has to be counted for a take of n.
func (t *terms) counts(n *drawgate.Amounts) bool {
	for _, at := range t.at {
		if n[at] > 0 && t.mode[at] == drawgate.FallbackShare {
			return true
		}
	}
	return false
}

// clamp forgets of buckets what was used beyond the share's burst: a process to which the store gave more than its share goes on from empty.
// A process that has no other beside it has no more than the limit.
func (t *terms) clamp(rec *record.Record) {
	if t.sole {
		return
	}
	for i := range t.part {
		s := &t.part[i]
		if s.Kind != record.Bucket || t.mode[t.at[i]] != drawgate.FallbackShare {
			continue
		}
		if st := stateOf(rec, s.ID); st != nil {
			st.Used = min(st.Used, s.Effective[record.Priorities-1]*st.Scale)
		}
	}
}

func stateOf(rec *record.Record, id uint64) *record.State {
	for i := range rec.Limits {
		if rec.Limits[i].ID == id {
			return &rec.Limits[i]
		}
	}
	return nil
}

// glossary keeps the terms of plans. It is emptied when it has grown large: policies are compiled again when a configuration is loaded.
type glossary struct {
	instances int

	mu    sync.RWMutex
	terms map[*drawgate.Plan]*terms // guarded by mu
}

const mostTerms = 4096

func (g *glossary) of(plan *drawgate.Plan) *terms {
	g.mu.RLock()
	t := g.terms[plan]
	g.mu.RUnlock()
	if t != nil {
		return t
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if t = g.terms[plan]; t == nil {
		if g.terms == nil || len(g.terms) >= mostTerms {
			g.terms = make(map[*drawgate.Plan]*terms)
		}
		t = newTerms(plan, g.instances)
		g.terms[plan] = t
	}
	return t
}
