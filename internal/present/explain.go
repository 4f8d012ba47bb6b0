package present

import (
	"context"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
)

// Explain returns what would apply to a request, and its current state, as POST /v1/explain does.
// fail describes an error in a bucket.
func Explain(ctx context.Context, e *engine.Engine, req *engine.Request, priority int,
	fail func(error) *api.Problem,
) (out api.ExplainAnswer, err error) {
	res, asks, err := e.Asks(req)
	if err != nil {
		return out, err
	}
	out = api.ExplainAnswer{Allowed: true, Applied: make([]api.Explanation, 0, len(asks))}
	if req.Attributes != nil {
		out.Exempt, out.Unmatched = res.Exempt, res.Unmatched
	}
	for i := range asks {
		a := &res.Applied[i]
		x := api.Explanation{Applied: applied(a)}
		if asks[i].Limiter != nil {
			st, err := asks[i].Status(ctx, priority)
			if err != nil {
				x.Error = fail(err)
			} else {
				status := Status(a.Policy, a.Key, &st)
				status.Tenant = a.Tenant
				x.Status = &status
			}
			out.Allowed = out.Allowed && (a.Bucket < 0 || err == nil && st.Allowed)
		}
		out.Applied = append(out.Applied, x)
	}
	return out, nil
}
