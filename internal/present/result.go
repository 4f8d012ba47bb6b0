package present

import (
	"context"
	"slices"
	"strconv"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
)

// Result converts an engine's result to its wire form, as POST /v1/take does. If err is a refusal,
// so is the answer; otherwise the error is err, or that of a peek. For ctx see [Refusal].
func Result(ctx context.Context, req *engine.Request, res *engine.Result, err error) (api.Answer, error) {
	var out api.Answer
	if err == nil {
		out = Answer(&res.Decision)
	} else if out, err = RefusalOf(ctx, req, res, err); err != nil {
		return out, err
	}
	AddResult(&out, res, req.Attributes != nil)
	return out, nil
}

// AddResult adds to an answer what the engine returned besides its decision.
func AddResult(out *api.Answer, res *engine.Result, byRules bool) {
	out.Exempt, out.Unmatched = res.Exempt, res.Unmatched
	if byRules || someDisabled(res.Applied) {
		out.Applied = make([]api.Applied, len(res.Applied))
		for i := range res.Applied {
			out.Applied[i] = applied(&res.Applied[i])
		}
	}
	if len(res.Shadow) > 0 {
		out.Shadow = make([]api.Shadow, len(res.Shadow))
		for i := range res.Shadow {
			out.Shadow[i] = shadow(&res.Shadow[i])
		}
	}
}

// someDisabled reports whether a policy that was named is disabled.
func someDisabled(list []engine.Applied) bool {
	return slices.ContainsFunc(list, func(a engine.Applied) bool { return a.Disabled })
}

func applied(a *engine.Applied) api.Applied {
	out := api.Applied{
		Rule: RuleName(a.Rule, a.RuleName), Policy: a.Policy, Tenant: a.Tenant, Key: a.Key,
		Shadow: a.Shadow, Disabled: a.Disabled,
	}
	if a.Bucket >= 0 {
		out.Bucket = new(a.Bucket)
	}
	return out
}

// RuleName returns a rule's name for people, or "" if there is no rule.
func RuleName(i int, name string) string {
	if i >= 0 && name == "" {
		return "#" + strconv.Itoa(i+1)
	}
	return name
}

func shadow(sh *engine.Shadow) api.Shadow {
	out := api.Shadow{
		Policy: sh.Policy, Rule: RuleName(sh.Rule, sh.RuleName), Allowed: sh.Allowed,
		Divergence: sh.Divergence, Error: sh.Err != nil,
	}
	if sh.Err != nil || sh.Bucket < 0 {
		return out
	}
	var longest, tightest drawgate.LimitResult
	for l := range sh.Decision.Limits() {
		if l.Bucket != sh.Bucket {
			continue
		}
		if tightest.Limit == nil || l.Part() < tightest.Part() {
			tightest = l
		}
		if l.Refused() && (longest.Limit == nil || l.RetryAfter > longest.RetryAfter) {
			longest = l
		}
	}
	out.Remaining = tightest.Remaining
	if longest.Limit != nil {
		out.RefusedBy = &api.LimitName{Policy: sh.Policy, Limit: longest.Limit.Name}
		out.RetryAfterMS = retryAfter(longest.RetryAfter)
	}
	return out
}
