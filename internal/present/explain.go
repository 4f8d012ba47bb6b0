package present

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
)

// Explain returns what would apply to a request, and its current state, as POST /v1/explain does.
// fail describes an error in a bucket.
func Explain(ctx context.Context, e *engine.Engine, req *engine.Request, priority int, fail func(error) *api.Problem) (out api.ExplainAnswer, err error) {
	uses, err := usesOf(e, req, &out)
	if err != nil {
		return out, err
	}
	if out.Allowed = true; out.Applied == nil {
		out.Applied = make([]api.Explanation, 0, len(uses))
	}
	bucket := 0
	for i := range uses {
		u := &uses[i]
		st, err := u.ask.Status(ctx, priority)
		if err != nil {
			u.out.Error = fail(err)
		} else {
			status := Status(u.out.Policy, u.out.Key, &st)
			status.Tenant = u.out.Tenant
			u.out.Status = &status
		}
		if !u.out.Shadow && !u.out.Disabled {
			u.out.Bucket = new(bucket)
			bucket++
			out.Allowed = out.Allowed && err == nil && st.Allowed
		}
		out.Applied = append(out.Applied, u.out)
	}
	return out, nil
}

// use is one policy that would apply.
type use struct {
	out api.Explanation
	ask drawgate.Ask
}

// usesOf finds what would apply, as [engine.Engine.Take] does. It adds to out the policies that are
// switched off.
func usesOf(e *engine.Engine, req *engine.Request, out *api.ExplainAnswer) (uses []use, err error) {
	res := engine.Result{}
	config := e.Config()
	if req.Attributes != nil {
		if res, err = e.Match(req.Attributes); err != nil {
			return nil, err
		}
		out.Exempt, out.Unmatched = res.Exempt, res.Unmatched
	}
	for _, a := range req.Asks {
		res.Applied = append(res.Applied, engine.Applied{Rule: -1, Policy: a.Policy, Tenant: a.Tenant, Key: a.Key})
	}
	for i := range res.Applied {
		a := &res.Applied[i]
		info, ok := e.Policy(a.Policy)
		if !ok && config.Off {
			a.Disabled = true
			out.Applied = append(out.Applied, api.Explanation{Applied: applied(a)})
			continue
		}
		if req.Within != "" && a.Tenant != req.Within {
			return nil, engine.ErrOtherTenant // the rules have changed since the request was checked
		}
		if !ok || a.Rule >= len(config.Rules) {
			return nil, engine.ErrUnknownPolicy // the configuration was just replaced
		}
		u := use{out: api.Explanation{Applied: applied(a)}}
		u.out.Bucket = nil
		if a.Rule < 0 {
			u.ask, err = e.Ask(a.Policy, a.Tenant, a.Key, req.Asks[i].Costs...)
			u.out.Shadow, u.out.Disabled = info.Shadow, !info.DisabledUntil.IsZero()
		} else {
			u.ask, err = askByRule(e, a, &info, &config.Rules[a.Rule], req.Costs)
		}
		if err != nil {
			return nil, err
		}
		uses = append(uses, u)
	}
	if err := counted(uses, req.Costs); err != nil {
		return nil, err
	}
	return uses, asked(uses)
}

// asked returns an error if the take is not valid: it names no unit, and no policy counts requests.
func asked(uses []use) error {
	var units []string
	for _, u := range uses {
		limits := u.ask.Limiter.Plan().Policy().Limits
		switch {
		case len(u.ask.Costs) > 0 && !u.out.Shadow && !u.out.Disabled, has(limits, drawgate.UnitRequests) && !u.out.Shadow:
			return nil // a disabled policy that counts requests is enough: see the engine
		case u.out.Shadow || u.out.Disabled:
			continue
		}
		for i := range limits {
			units = append(units, Unit(&limits[i]))
		}
	}
	if len(units) == 0 {
		return nil
	}
	slices.Sort(units)
	return fmt.Errorf("%w: the take names no unit, so it would take nothing: its policies do not count requests; name a cost in %s", drawgate.ErrUnknownUnit,
		strings.Join(slices.Compact(units), ", "))
}

// counted returns an error, as a take does, for a unit that none of the applied policies counts.
func counted(uses []use, costs []drawgate.Cost) error {
	for _, c := range costs {
		if len(uses) > 0 && !slices.ContainsFunc(uses, func(u use) bool { return has(u.ask.Limiter.Plan().Policy().Limits, c.Unit) }) {
			return Problemf(api.CodeUnknownUnit, "unknown unit: none of the policies of this request counts %q", c.Unit)
		}
	}
	return nil
}

// has reports whether one of the limits counts a unit.
func has(limits []drawgate.Limit, name string) bool {
	return slices.ContainsFunc(limits, func(l drawgate.Limit) bool { return Unit(&l) == cmp.Or(name, drawgate.UnitRequests) })
}

// askByRule returns the ask for what a rule applies: with its amounts and costs, in the buckets
// that it counts by.
func askByRule(e *engine.Engine, a *engine.Applied, info *engine.Info, rule *rules.Rule, costs []drawgate.Cost) (drawgate.Ask, error) {
	i := slices.IndexFunc(rule.Apply, func(p rules.Apply) bool {
		return p.Policy == a.Policy && (p.Shadow || rule.Shadow || info.Shadow) == a.Shadow
	})
	if i < 0 {
		return drawgate.Ask{}, engine.ErrUnknownPolicy
	}
	apply := &rule.Apply[i]
	ask, err := e.Ask(a.Policy, a.Tenant, a.Key, mergeCosts(&info.Policy, apply.Costs, costs)...)
	if err != nil {
		return ask, err
	}
	err = vary(e, &ask, info, apply, a.Shadow && !info.Shadow)
	return ask, err
}

// vary changes an ask to the amounts and the buckets of a rule. An override for the key takes
// precedence over a rule's amounts.
func vary(e *engine.Engine, ask *drawgate.Ask, info *engine.Info, apply *rules.Apply, inShadow bool) (err error) {
	p := ask.Limiter.Plan().Policy()
	p.Limits = slices.Clone(p.Limits)
	if ask.Limiter == e.Limiter(info.Name) {
		for i := range p.Limits {
			l := &p.Limits[i]
			if n, ok := apply.Amounts[l.Name]; ok {
				l.Amount = n
			}
			l.Burst = cmp.Or(apply.Amounts[l.Name+".burst"], l.Burst)
		}
	}
	if inShadow {
		p.Name += engine.ShadowSuffix
	}
	ask.Limiter, err = ask.Limiter.With(p)
	return err
}

// mergeCosts returns the costs for a policy: those of the rule, replaced by those of the request
// for units that the policy counts.
func mergeCosts(p *drawgate.Policy, rule map[string]int64, asked []drawgate.Cost) []drawgate.Cost {
	all := maps.Clone(rule)
	if all == nil {
		all = map[string]int64{}
	}
	for _, c := range asked {
		if has(p.Limits, c.Unit) {
			all[c.Unit] = c.N
		}
	}
	return Costs(all)
}
