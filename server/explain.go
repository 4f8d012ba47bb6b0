package server

import (
	"net/http"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/present"
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
	out, err := present.Explain(r.Context(), s.engine, &req, q.Priority, s.fail)
	if err != nil {
		writeProblem(w, s.fail(err))
		return
	}
	writeJSON(w, http.StatusOK, out)
}
