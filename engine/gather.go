package engine

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/store"
)

// scratch is the memory of one take, which the next one reuses.
type scratch struct {
	matches  rules.Matches
	enforced []drawgate.Ask
	shadow   []drawgate.Ask
	asked    []drawgate.Ask // one for each Applied, also if it is disabled
	costs    []drawgate.Cost
	known    []bool // per cost of the request: some policy counts its unit
	spared   bool   // a policy that counts requests is disabled
	never    error  // several sets together ask an enforced bucket for more than its limit grants
	failed   error  // why the shadows cannot be evaluated
}

// clear removes what belongs to the request.
func (sc *scratch) clear() {
	sc.matches.Clear()
	clear(sc.enforced)
	clear(sc.shadow)
	clear(sc.asked)
	sc.enforced, sc.shadow, sc.asked, sc.costs, sc.known = sc.enforced[:0], sc.shadow[:0], sc.asked[:0], sc.costs[:0],
		sc.known[:0]
	sc.never, sc.failed, sc.spared = nil, nil, false
}

// gather finds what counts a request.
func (e *Engine) gather(s *state, r *Request, sc *scratch, res *Result) error {
	for i := range r.Asks {
		a := &r.Asks[i]
		p, err := s.asked(a)
		if err != nil && s.config.Off {
			res.Applied = append(res.Applied, Applied{
				Rule: -1, Policy: a.Policy, Tenant: a.Tenant, Key: a.Key,
				Bucket: -1, Disabled: true,
			})
			sc.asked = append(sc.asked, drawgate.Ask{})
			continue
		}
		if err != nil {
			return err
		}
		u := use{policy: p, variant: p.of(e.tenant(a.Tenant), a.Key, p.plain).adapted(a), costs: a.Costs}
		if len(a.Costs) == 1 && a.Costs[0].N == 1 && same(a.Costs[0].Unit, drawgate.UnitRequests) &&
			has(p.plain, drawgate.UnitRequests) {
			u.costs = nil // the rule's own costs need no merging
		}
		if err := e.add(r, &u, Applied{
			Rule: -1, Policy: p.name, Tenant: a.Tenant, Key: drawgate.BoundedKey(a.Key),
			Shadow: p.shadow,
		}, sc, res); err != nil {
			return err
		}
	}
	return e.match(s, r, sc, res)
}

// match adds what the rules apply, for each set of attributes separately.
func (e *Engine) match(s *state, r *Request, sc *scratch, res *Result) error {
	sets := r.Sets
	switch {
	case len(sets) == 0 && r.Attributes == nil:
		res.Unmatched = len(r.Asks) == 0
		return nil
	case len(sets) == 0:
		one := [1]Set{{r.Attributes, r.Costs}}
		sets = one[:]
	case r.Attributes != nil || r.Costs != nil:
		return fmt.Errorf("%w: give either Sets, or Attributes and Costs", drawgate.ErrInvalid)
	}
	var now time.Time
	if s.set.Timed() {
		now = time.Now()
	}
	exempt, matched := true, len(r.Asks) > 0
	for i := range sets {
		if sets[i].Attributes == nil {
			return fmt.Errorf("%w: set %d has no Attributes", drawgate.ErrInvalid, i)
		}
		if err := s.set.Match(sets[i].Attributes, now, &sc.matches); err != nil {
			return err
		}
		if err := e.apply(s, r, i, sets[i].Costs, sc, res); err != nil {
			return err
		}
		exempt, matched = exempt && sc.matches.Exempt, matched || sc.matches.Matched
	}
	res.Exempt, res.Unmatched = exempt, !matched
	return nil
}

// apply adds what the matching rules apply to set i, which asks for costs.
func (e *Engine) apply(s *state, r *Request, i int, costs []drawgate.Cost, sc *scratch, res *Result) error {
	sc.known = append(sc.known[:0], make([]bool, len(costs))...)
	some := false
	for k := range sc.matches.Applied {
		m := &sc.matches.Applied[k]
		u := s.uses[m.Index]
		a := Applied{
			Set: i, Rule: m.Rule, RuleName: s.set.Rule(m.Rule).Name, Policy: u.policy.name,
			Tenant: drawgate.BoundedKey(m.Tenant), Key: drawgate.BoundedKey(m.Key),
			Shadow: m.Shadow || u.policy.shadow,
		}
		if len(costs) > 0 {
			u.costs = sc.merge(&u, costs)
			some = true
		}
		if e.twice(&a, res.Applied) {
			continue
		}
		u.variant = u.policy.of(e.tenant(a.Tenant), m.Key, u.variant)
		if err := e.add(r, &u, a, sc, res); err != nil {
			return err
		}
	}
	for k, known := range sc.known {
		if some && !known && !r.Spare {
			return fmt.Errorf("%w: none of the policies of this request counts %q", drawgate.ErrUnknownUnit,
				cmp.Or(costs[k].Unit, drawgate.UnitRequests))
		}
	}
	return nil
}

// twice reports whether a bucket is already in the list: an ask by name takes precedence over a
// rule, and an earlier apply of a rule over a later one for the same set.
func (e *Engine) twice(a *Applied, list []Applied) bool {
	for i := range list {
		if list[i].Rule >= 0 {
			break // asks by name come first
		}
		if e.equal(a, &list[i]) {
			return true
		}
	}
	// only its own set, which is at the end: there may be very many sets
	for i := len(list) - 1; i >= 0 && list[i].Set == a.Set; i-- {
		if e.equal(a, &list[i]) {
			return true
		}
	}
	return false
}

// equal reports whether two uses count in the same bucket.
func (e *Engine) equal(a, b *Applied) bool {
	return a.Policy == b.Policy && a.Shadow == b.Shadow && a.Key == b.Key && e.tenant(a.Tenant) == e.tenant(b.Tenant)
}

// merge returns the costs of a use, replaced by those of the request where it has them.
func (sc *scratch) merge(u *use, asked []drawgate.Cost) []drawgate.Cost {
	from := len(sc.costs)
	for i := range asked {
		if has(u.variant, asked[i].Unit) {
			sc.costs = append(sc.costs, asked[i])
			sc.known[i] = true
		}
	}
	for i := range u.costs {
		if !named(asked, u.costs[i].Unit) {
			sc.costs = append(sc.costs, u.costs[i])
		}
	}
	return sc.costs[from:len(sc.costs):len(sc.costs)]
}

// has reports whether a policy counts a unit.
func has(v *variant, unit string) bool {
	limits := v.own.Plan().Policy().Limits
	for i := range limits {
		if same(limits[i].Unit, unit) {
			return true
		}
	}
	return false
}

func named(list []drawgate.Cost, unit string) bool {
	for i := range list {
		if same(list[i].Unit, unit) {
			return true
		}
	}
	return false
}

// same reports whether two units are the same; "" is requests.
func same(a, b string) bool {
	return cmp.Or(a, drawgate.UnitRequests) == cmp.Or(b, drawgate.UnitRequests)
}

// add adds a use to what is enforced, to the shadows, or to neither if the policy is disabled.
func (e *Engine) add(r *Request, u *use, a Applied, sc *scratch, res *Result) (err error) {
	a.Bucket, a.Disabled = -1, u.policy.disabled.now()
	sc.spared = sc.spared || a.Disabled && u.policy.plain.own.Plan().CountsRequests()
	a.limiter = u.variant.limiter(a.Shadow)
	ask := drawgate.Ask{Limiter: a.limiter, Tenant: a.Tenant, Key: a.Key, Costs: u.costs}
	sc.asked = append(sc.asked, ask)
	if !a.Disabled {
		switch {
		case a.Shadow && r.Hold == 0 && ask.Limiter.Plan().NeedsHold():
			res.Shadow = append(res.Shadow, Shadow{
				Policy: a.Policy, Rule: a.Rule, RuleName: a.RuleName,
				Tenant: a.Tenant, Bucket: -1, Err: drawgate.ErrNeedsReserve,
			})
		case a.Shadow:
			e.addShadow(r, &a, &ask, sc, res)
		default:
			sc.enforced, a.Bucket, err = e.together(r, sc, sc.enforced, a.Set, &ask)
			if errors.Is(err, drawgate.ErrNeverFits) { // first collect everything that counts the request
				a.NeverFits, sc.never, err = true, err, nil
			}
		}
	}
	res.Applied = append(res.Applied, a)
	if max(len(sc.enforced), len(sc.shadow)) > store.MaxBuckets {
		return tooMany(res.Applied)
	}
	return err
}

// addShadow adds an ask to the shadows. A mistake in it does not affect what is enforced.
func (e *Engine) addShadow(r *Request, a *Applied, ask *drawgate.Ask, sc *scratch, res *Result) {
	list, n, err := e.together(r, sc, sc.shadow, a.Set, ask)
	if len(list) > len(sc.shadow) {
		res.Shadow = append(res.Shadow, Shadow{
			Policy: a.Policy, Rule: a.Rule, RuleName: a.RuleName, Tenant: a.Tenant,
			Bucket: n,
		})
	}
	if sc.shadow = list; sc.failed == nil {
		sc.failed = err
	}
}

// shown is how many of the policies an error names.
const shown = 9

// tooMany returns an error that names the first of too many buckets.
func tooMany(list []Applied) error {
	var b strings.Builder
	for i := range list {
		if i == shown {
			b.WriteString(", and more")
			break
		}
		a := &list[i]
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "policy %q ", a.Policy)
		switch {
		case a.Rule < 0:
			b.WriteString("(asked for by name)")
		case a.RuleName != "":
			fmt.Fprintf(&b, "(rule %d %q)", a.Rule+1, a.RuleName)
		default:
			fmt.Fprintf(&b, "(rule %d)", a.Rule+1)
		}
	}
	return fmt.Errorf("%w: more than %d: %s", ErrTooMany, store.MaxBuckets, b.String())
}
