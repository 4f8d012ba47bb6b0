package server

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/rules"
)

// explain serves POST /v1/explain. It spends nothing.
func (s *Server) explain(w http.ResponseWriter, r *http.Request, who *access) {
	var q api.ExplainRequest
	p := s.decode(w, r, &q)
	var req engine.Request
	if p == nil {
		p = s.what(who, &q.Bucket, q.Buckets, q.Attributes, &req)
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	out, err := s.explanation(r.Context(), &req, q.Priority)
	if err != nil {
		writeProblem(w, s.fail(err))
		return
	}
	writeJSON(w, http.StatusOK, out)
}

// explanation says what would apply to a request, and how it stands there.
func (s *Server) explanation(ctx context.Context, req *engine.Request, priority int) (out api.ExplainAnswer, err error) {
	uses, err := s.uses(req, &out)
	if err != nil {
		return out, err
	}
	out.Allowed, out.Applied = true, make([]api.Explanation, 0, len(uses))
	bucket := 0
	for i := range uses {
		u := &uses[i]
		st, err := u.ask.Limiter.StatusAt(ctx, priority, u.ask)
		if err != nil {
			u.out.Error = s.fail(err)
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

// uses finds what would apply, as [engine.Engine.Take] does.
func (s *Server) uses(req *engine.Request, out *api.ExplainAnswer) (uses []use, err error) {
	infos := map[string]*engine.Info{}
	for _, info := range s.engine.Policies() {
		infos[info.Name] = &info
	}
	add := func(a api.Applied, apply *rules.Apply, costs []drawgate.Cost) error {
		info := infos[a.Policy]
		if info == nil {
			return engine.ErrUnknownPolicy // it was replaced this moment
		}
		a.Disabled = !info.DisabledUntil.IsZero()
		ask, err := s.engine.Ask(a.Policy, a.Tenant, a.Key, costs...)
		if err == nil && apply != nil {
			err = s.vary(&ask, info, apply, a.Shadow && !info.Shadow)
		}
		a.Shadow = a.Shadow || info.Shadow
		uses = append(uses, use{api.Explanation{Applied: a}, ask})
		return err
	}
	for _, a := range req.Asks {
		if err := add(api.Applied{Policy: a.Policy, Tenant: a.Tenant, Key: a.Key}, nil, a.Costs); err != nil {
			return nil, err
		}
	}
	if req.Attributes == nil {
		return uses, nil
	}
	set, err := s.rules.of(s.engine)
	if err != nil {
		return nil, err
	}
	var m rules.Matches
	if err := set.Match(req.Attributes, time.Now(), &m); err != nil {
		return nil, err
	}
	out.Exempt, out.Unmatched = m.Exempt, !m.Matched
	for i := range m.Applied {
		a := &m.Applied[i]
		info := infos[a.Apply.Policy]
		if info == nil {
			return nil, engine.ErrUnknownPolicy
		}
		name := ruleName(a.Rule, set.Rule(a.Rule).Name)
		if err := add(api.Applied{Rule: name, Policy: info.Name, Tenant: a.Tenant, Key: a.Key, Shadow: a.Shadow}, a.Apply, mergeCosts(&info.Policy, a.Apply.Costs, req.Costs)); err != nil {
			return nil, err
		}
	}
	return uses, nil
}

// shadowSuffix ends the policy part of the keys that a rule in shadow counts by.
const shadowSuffix = "~shadow"

// vary gives an ask the amounts and the buckets that a rule says. An override for the key goes before a rule's amounts.
func (s *Server) vary(ask *drawgate.Ask, info *engine.Info, apply *rules.Apply, beside bool) (err error) {
	p := ask.Limiter.Plan().Policy()
	p.Limits = slices.Clone(p.Limits)
	if ask.Limiter == s.engine.Limiter(info.Name) {
		for i := range p.Limits {
			l := &p.Limits[i]
			l.Amount = cmp.Or(apply.Amounts[l.Name], l.Amount)
			l.Burst = cmp.Or(apply.Amounts[l.Name+".burst"], l.Burst)
		}
	}
	if beside {
		p.Name += shadowSuffix
	}
	ask.Limiter, err = ask.Limiter.With(p)
	return err
}

// mergeCosts returns what is asked of a policy: what the rule says, but for the units that the request names and the policy counts.
func mergeCosts(p *drawgate.Policy, rule map[string]int64, asked []drawgate.Cost) []drawgate.Cost {
	all := maps.Clone(rule)
	if all == nil {
		all = map[string]int64{}
	}
	for _, c := range asked {
		if slices.ContainsFunc(p.Limits, func(l drawgate.Limit) bool { return unit(&l) == c.Unit }) {
			all[c.Unit] = c.N
		}
	}
	return Costs(all)
}
