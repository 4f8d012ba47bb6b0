package server

import (
	"net/http"
	"time"

	"github.com/drawgate/drawgate/api"
)

// lastIncident is the id of the newest incident.
const lastIncident = "last"

// incidents serves GET /v1/incidents.
func (s *Server) incidents(w http.ResponseWriter, r *http.Request, who *access) {
	all, p := s.allIncidents(who)
	var since time.Time
	if p == nil {
		since, p = sinceOf(r)
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	out := api.IncidentsAnswer{Incidents: []api.Incident{}}
	for i := range all {
		if in := all[i]; !in.Last.Before(since) {
			in.Limits, in.Now, in.Takes = nil, nil, nil
			out.Incidents = append(out.Incidents, in)
		}
	}
	writeJSON(w, http.StatusOK, out)
}

// incident serves GET /v1/incidents/{id}.
func (s *Server) incident(w http.ResponseWriter, r *http.Request, who *access) {
	all, p := s.allIncidents(who)
	if p != nil {
		writeProblem(w, p)
		return
	}
	id := r.PathValue("id")
	for i := range all {
		if id == lastIncident || all[i].ID == id {
			writeJSON(w, http.StatusOK, all[i])
			return
		}
	}
	if len(all) == 0 {
		writeProblem(w, problem(api.CodeInvalid, "there are no incidents"))
		return
	}
	writeProblem(w, problem(api.CodeInvalid,
		"there is no incident %q among the latest %d: older ones are in the gateway's file", id, api.MaxIncidents))
}

// allIncidents returns the incidents, which concern all tenants.
func (s *Server) allIncidents(who *access) ([]api.Incident, *api.Problem) {
	if p := who.unbound(); p != nil {
		return nil, p
	}
	if s.opts.Incidents == nil {
		return nil, problem(api.CodeNotSupported, "there is no gateway in this process, so there are no incidents")
	}
	return s.opts.Incidents(), nil
}

func sinceOf(r *http.Request) (since time.Time, p *api.Problem) {
	for name, values := range r.URL.Query() {
		if name != "since" {
			return since, problem(api.CodeInvalid, "%q is not since", name)
		}
		var err error
		if since, err = time.Parse(time.RFC3339, values[len(values)-1]); err != nil {
			return since, problem(api.CodeInvalid, "since is not an instant such as 2026-07-01T00:00:00Z")
		}
	}
	return since, nil
}
