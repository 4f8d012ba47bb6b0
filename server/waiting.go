package server

import (
	"net/http"
	"net/url"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/present"
)

// waiting serves GET /v1/waiting.
func (s *Server) waiting(w http.ResponseWriter, r *http.Request, who *access) {
	policy, tenant, p := s.lineQuery(r.URL.Query(), who, "policy and tenant")
	if p != nil {
		writeProblem(w, p)
		return
	}
	out := api.WaitingAnswer{At: time.Now().UTC(), Lines: []api.WaitingLine{}}
	lines := s.engine.Lines()
	for i := range lines {
		k := &lines[i].Key
		if len(out.Lines) == api.MaxLines {
			break
		}
		if (policy == "" || k.Policy == policy) && (tenant == "" || k.Tenant == tenant) {
			out.Lines = append(out.Lines, present.Waiting(&lines[i]))
		}
	}
	writeJSON(w, http.StatusOK, out)
}

// lineQuery returns whose lines a request asks for; "" means all. known names the parameters that
// there are.
func (s *Server) lineQuery(query url.Values, who *access, known string) (policy, tenant string, p *api.Problem) {
	for name, values := range query {
		v := values[len(values)-1]
		switch name {
		case "policy":
			policy, p = s.policy(v)
		case "tenant":
			tenant = v
		default:
			p = problem(api.CodeInvalid, "%q is not one of %s", name, known)
		}
		if p != nil {
			return "", "", p
		}
	}
	tenant, p = who.tenantOf(tenant)
	return policy, tenant, p
}
