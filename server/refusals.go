package server

import (
	"net/http"
	"time"

	"github.com/drawgate/drawgate/api"
)

// refusals serves GET /v1/refusals.
func (s *Server) refusals(w http.ResponseWriter, r *http.Request, who *access) {
	limit, query := api.DefaultBuckets, r.URL.Query()
	var p *api.Problem
	if v := query["limit"]; len(v) > 0 {
		limit, p = listLimit(v[len(v)-1])
		query.Del("limit")
	}
	var policy, tenant string
	if p == nil {
		policy, tenant, p = s.lineQuery(query, who, "policy, tenant and limit")
	}
	if p == nil && s.opts.Refusals == nil {
		p = problem(api.CodeNotSupported, "this server does not keep what it refused")
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	out := api.RefusalsAnswer{At: time.Now().UTC(), Refusals: []api.Refusal{}}
	list, dropped := s.opts.Refusals()
	out.Dropped = dropped
	for i := range list {
		if f := &list[i]; (policy == "" || f.Policy == policy) && (tenant == "" || f.Tenant == tenant) {
			if out.Total++; out.Total <= limit {
				out.Refusals = append(out.Refusals, *f)
			}
		}
	}
	writeJSON(w, http.StatusOK, out)
}
