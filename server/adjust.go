package server

import (
	"cmp"
	"net/http"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
)

// adjust serves POST /v1/adjust. It is for administrators: what it gives back may be used again,
// whether or not it was used before.
func (s *Server) adjust(w http.ResponseWriter, r *http.Request, who *access) {
	var q api.AdjustRequest
	p := s.whose(who, &q.Policy, &q.Tenant, s.decode(w, r, &q))
	q.Key = cmp.Or(q.Key, api.DefaultKey)
	if p == nil && q.Used == nil {
		p = problem(api.CodeInvalid, "used is missing: what the limit has used from now on")
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	done, err := s.engine.Adjust(r.Context(), engine.Ask{Policy: q.Policy, Tenant: q.Tenant, Key: q.Key}, q.Limit,
		*q.Used, q.Reason)
	if err != nil {
		writeProblem(w, s.fail(err))
		return
	}
	s.log.Warn("a limit's use was adjusted", "policy", q.Policy, "limit", done.Limit, "was", done.Was, "used",
		done.Used, "debt", done.Debt, "reason", q.Reason)
	writeJSON(w, http.StatusOK, api.AdjustAnswer{
		Policy: q.Policy, Limit: done.Limit, Was: done.Was, Used: done.Used,
		Debt: done.Debt,
	})
}
