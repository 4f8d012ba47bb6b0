package server

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/present"
)

// policies serves GET /v1/policies.
func (s *Server) policies(w http.ResponseWriter, _ *http.Request, _ *access) {
	out := api.PoliciesAnswer{Policies: []api.Policy{}}
	for _, info := range s.engine.Policies() {
		out.Policies = append(out.Policies, present.Policy(&info))
	}
	slices.SortFunc(out.Policies, func(a, b api.Policy) int { return cmp.Compare(a.Name, b.Name) })
	writeJSON(w, http.StatusOK, out)
}

// disable serves POST /v1/policies/{name}/disable.
func (s *Server) disable(w http.ResponseWriter, r *http.Request, who *access) {
	var q api.DisableRequest
	p := who.unbound()
	if p == nil {
		p = s.decode(w, r, &q)
	}
	var until time.Time
	if p == nil {
		until, p = disableUntil(&q)
	}
	s.change(w, r, p, func(name string) error {
		err := s.engine.Disable(name, until)
		if err == nil {
			s.log.Warn("a policy was switched off", "policy", name, "until", until.UTC())
		}
		return err
	})
}

// enable serves POST /v1/policies/{name}/enable.
func (s *Server) enable(w http.ResponseWriter, r *http.Request, who *access) {
	s.change(w, r, who.unbound(), func(name string) error {
		err := s.engine.Enable(name)
		if err == nil {
			s.log.Info("a policy was switched on", "policy", name)
		}
		return err
	})
}

// change changes the policy named in the path, unless there already is a problem, and answers with
// the policy.
func (s *Server) change(w http.ResponseWriter, r *http.Request, p *api.Problem, how func(name string) error) {
	name := r.PathValue("name")
	if p == nil {
		_, p = s.policy(name)
	}
	if p == nil {
		if err := how(name); err != nil {
			p = s.fail(err)
		}
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	if info, ok := s.engine.Policy(name); ok {
		writeJSON(w, http.StatusOK, present.Policy(&info))
		return
	}
	writeProblem(w, problem(api.CodeUnknownPolicy, "policy %q was removed", name))
}

func disableUntil(q *api.DisableRequest) (time.Time, *api.Problem) {
	now := time.Now()
	switch {
	case (q.ForMS == 0) == (q.Until == nil):
		return now, problem(api.CodeInvalid, "give one of for_ms and until: switching a policy off needs an end")
	case q.Until != nil && !q.Until.After(now):
		return now, problem(api.CodeInvalid, "until is in the past")
	case q.Until != nil && q.Until.Sub(now) > api.MaxDisable, q.ForMS < 0 || q.ForMS > api.MaxDisable.Milliseconds():
		return now, problem(api.CodeInvalid,
			"a policy can be switched off for at most %d ms: remove it from the configuration instead",
			api.MaxDisable.Milliseconds())
	case q.Until != nil:
		return *q.Until, nil
	}
	return now.Add(time.Duration(q.ForMS) * time.Millisecond), nil
}
