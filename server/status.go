package server

import (
	"cmp"
	"net/http"
	"strconv"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/present"
)

// status serves GET and POST /v1/status.
func (s *Server) status(w http.ResponseWriter, r *http.Request, who *access) {
	var q api.StatusRequest
	var p *api.Problem
	if r.Method == http.MethodPost {
		p = s.decode(w, r, &q)
	} else {
		p = statusQuery(r, &q)
	}
	if p = s.whose(who, &q.Policy, &q.Tenant, p); p != nil {
		writeProblem(w, p)
		return
	}
	q.Key = cmp.Or(q.Key, api.DefaultKey)
	ask, err := s.engine.Ask(q.Policy, q.Tenant, q.Key, present.Costs(q.Costs)...)
	if err != nil {
		writeProblem(w, s.fail(err))
		return
	}
	st, err := ask.Status(r.Context(), q.Priority)
	if err != nil {
		writeProblem(w, s.fail(err))
		return
	}
	out := present.Status(q.Policy, q.Key, &st)
	out.Tenant = q.Tenant
	writeJSON(w, http.StatusOK, out)
}

func statusQuery(r *http.Request, q *api.StatusRequest) *api.Problem {
	for name, values := range r.URL.Query() {
		v := values[len(values)-1]
		switch name {
		case "policy":
			q.Policy = v
		case "tenant":
			q.Tenant = v
		case "key":
			q.Key = v
		case "priority":
			n, err := strconv.Atoi(v)
			if err != nil {
				return problem(api.CodeInvalid, "priority %q is not a number", v)
			}
			q.Priority = n
		default:
			return problem(api.CodeInvalid, "%q is not one of policy, tenant, key and priority; costs are for POST",
				name)
		}
	}
	return nil
}
