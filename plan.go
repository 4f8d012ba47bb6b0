package drawgate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Policy is a named set of limits, which must all pass a take.
type Policy struct {
	Name   string  // required; at most 128 bytes; part of every bucket's key
	Limits []Limit // 1 to 6
	Wait   Wait    // how callers wait

	Fallback Fallback // while the store is unavailable, for limits that do not set their own
	Start    Start    // while the store is unavailable, in a process that does not know what was used before

	// Leased lets this process decide by itself, with units that it took ahead from a store of
	// package lease: never over, but Remaining is approximate, and units that others hold may be
	// refused. It needs windows of at least a second, and no concurrency limit.
	Leased bool
}

// Wait says how [Limiter.Wait] and [Limiter.Reserve] wait for a policy's buckets.
type Wait struct {
	MaxWait time.Duration   // longest wait, unless the caller's context ends earlier; 0: no bound
	Queue   int             // most waiters per bucket and process; 0 means 10,000
	Backoff []time.Duration // fixed waits instead of retry-after, the last one repeated: up to 32 of 1ms to 24h
	Barge   bool            // Allow may pass in front of waiters
	// OwnLine keeps them out of the line of all processes, if the store has one: others may pass
	// them, and they stand behind those who are in it.
	OwnLine bool
}

// Plan is a checked policy. It is immutable and safe for concurrent use.
type Plan struct {
	*store.Plan // what stores receive

	policy Policy
	specs  []record.Spec
	units  []string
	counts bool // has a limit of requests
	own    bool // this module made it for itself: it only counts
	// per priority; those of one may use the same units, and those of a higher one more
	classes [MaxPriority + 1]uint8
}

// Compile checks a policy. The error joins the first mistake of each limit: a *[LimitError].
func (p Policy) Compile() (*Plan, error) {
	contract := store.Policy{
		Name: p.Name, Limits: make([]store.Limit, len(p.Limits)), Fallback: p.Fallback,
		Start: p.Start, Leased: p.Leased,
	}
	for i := range p.Limits {
		contract.Limits[i] = store.Limit(p.Limits[i])
	}
	plan, err := contract.Compile()
	if err = errors.Join(append(p.Wait.check(p.Name), err)...); err != nil {
		return nil, err
	}
	pl := &Plan{
		Plan: plan, policy: p, specs: store.Internal.Specs(plan, false),
		own: strings.HasPrefix(p.Name, store.OwnPolicies),
	}
	pl.policy.Limits, pl.policy.Wait.Backoff = slices.Clone(p.Limits), slices.Clone(p.Wait.Backoff)
	for i := range p.Limits {
		pl.units = append(pl.units, p.Limits[i].unit())
	}
	pl.counts = slices.Contains(pl.units, UnitRequests)
	for k := 1; k <= MaxPriority; k++ {
		if pl.classes[k] = pl.classes[k-1]; slices.ContainsFunc(pl.specs, func(s record.Spec) bool {
			return s.Effective[k] != s.Effective[k-1]
		}) {
			pl.classes[k]++
		}
	}
	return pl, nil
}

func (w *Wait) check(policy string) (errs []error) {
	if w.MaxWait < 0 || w.Queue < 0 || len(w.Backoff) > 32 {
		errs = append(errs,
			fmt.Errorf("drawgate: policy %q: wait: up_to and queue must not be negative, and backoff must have at most 32 steps", policy))
	}
	for _, d := range w.Backoff {
		if d < time.Millisecond || d > 24*time.Hour {
			errs = append(errs, fmt.Errorf("drawgate: policy %q: wait: backoff %v is not between 1ms and 24h", policy,
				d))
		}
	}
	return errs
}

// Policy returns the policy. Its slices must not be changed.
func (p *Plan) Policy() Policy { return p.policy }

// sameLimits reports whether two plans count in the same way, in the same buckets: what one asks of
// a limit can be asked by the other.
func (p *Plan) sameLimits(o *Plan) bool {
	return p.policy.Name == o.policy.Name && slices.EqualFunc(p.specs, o.specs,
		func(a, b record.Spec) bool { return a.ID == b.ID })
}

// sameAmounts reports whether both count the same limits with the same amounts.
func (p *Plan) sameAmounts(o *Plan) bool {
	return p == o || slices.EqualFunc(p.specs, o.specs, func(a, b record.Spec) bool {
		return a.ID == b.ID && a.Effective == b.Effective && a.Rate == b.Rate
	})
}

// CountsRequests reports whether the policy has a limit of requests, so that a take of it need not
// name a unit.
func (p *Plan) CountsRequests() bool { return p.counts }

// Amounts resolves costs to one number per limit. A unit that is not named costs 0, requests 1.
// Costs of the same unit add up. It fails with [ErrUnknownUnit] or [ErrInvalid].
func (p *Plan) Amounts(costs []Cost) (store.Amounts, error) {
	return p.resolve(costs, UnitRequests, 0)
}

// actual resolves what was really used to one number per limit, [store.KeepEstimate] for a limit
// whose unit is not named.
func (p *Plan) actual(costs []Cost) (store.Amounts, error) {
	return p.resolve(costs, "", store.KeepEstimate)
}

func (p *Plan) resolve(costs []Cost, one string, rest int64) (a store.Amounts, err error) {
	for i, u := range p.units {
		a[i] = rest
		if u == one {
			a[i] = 1
		}
	}
	for k, c := range costs {
		unit := c.Unit
		if unit == "" {
			unit = UnitRequests
		}
		if c.N < 0 || c.N > MaxAmount {
			return a, fmt.Errorf("%w: n=%d %s is not between 0 and %d", ErrInvalid, c.N, unit, int64(MaxAmount))
		}
		found := false
		for i, u := range p.units {
			if u != unit {
				continue
			}
			found = true
			if !named(costs[:k], unit) {
				a[i] = c.N
			} else if a[i] += c.N; a[i] > MaxAmount { // a settlement, which has to count, counts this much
				a[i], err = MaxAmount, fmt.Errorf("%w: the costs add up to more than %d %s", ErrInvalid,
					int64(MaxAmount), unit)
			}
		}
		if !found {
			return a, fmt.Errorf("%w: %q in policy %q, whose units are %s", ErrUnknownUnit, unit, p.policy.Name,
				units(p.units))
		}
	}
	return a, err
}

// units names units, each once.
func units(list []string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(list))), ", ")
}

func named(costs []Cost, unit string) bool {
	for _, c := range costs {
		if c.Unit == unit || c.Unit == "" && unit == UnitRequests {
			return true
		}
	}
	return false
}

// neverFits returns an error if a take of n at this priority can never be granted. What is left of
// a total is refused like what is used up: more may be credited to it.
func (p *Plan) neverFits(n *store.Amounts, priority int8) error {
	for i := range p.specs {
		if !p.specs[i].Fits(n[i], priority) && p.policy.Limits[i].Every != Total {
			l := &p.policy.Limits[i]
			return &NeverFitsError{
				Policy: p.policy.Name, Limit: l.Name, Unit: p.units[i], Amount: l.Amount, N: n[i],
				Max: p.specs[i].Effective[priority],
			}
		}
	}
	return nil
}
