package server

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/present"
)

// usageTime bounds the time for reading the quotas of an answer. Those that were not read by then
// have an error in their place.
const usageTime = 10 * time.Second

// upstreams serves GET /v1/upstreams. Upstreams belong to no tenant.
func (s *Server) upstreams(w http.ResponseWriter, r *http.Request, who *access) {
	list, p := s.chosen(r)
	if bound := who.unbound(); bound != nil {
		p = bound
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), usageTime)
	defer cancel()
	present.ReadQuotas(ctx, s.engine, "", list, s.fail)
	writeJSON(w, http.StatusOK, api.UpstreamsAnswer{Upstreams: list})
}

// chosen returns the upstreams that a request asks for.
func (s *Server) chosen(r *http.Request) ([]api.Upstream, *api.Problem) {
	list := []api.Upstream{}
	if s.opts.Upstreams != nil {
		list = s.opts.Upstreams()
	}
	q := r.URL.Query()
	for name := range q {
		if name != "name" {
			return nil, problem(api.CodeInvalid, "%q is not a parameter: there is only name", name)
		}
	}
	if !q.Has("name") {
		return list, nil
	}
	i := slices.IndexFunc(list, func(u api.Upstream) bool { return u.Name == q.Get("name") })
	if i < 0 {
		return nil, problem(api.CodeInvalid, "there is no upstream %q: GET /v1/upstreams without name lists them",
			q.Get("name"))
	}
	return list[i : i+1], nil
}
