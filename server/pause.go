package server

import (
	"cmp"
	"net/http"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/present"
)

// pause serves POST /v1/pause. It is for administrators: a pause stops everybody, whatever their
// limits have left.
func (s *Server) pause(w http.ResponseWriter, r *http.Request, who *access) {
	var q api.PauseRequest
	p := s.whose(who, &q.Policy, &q.Tenant, s.decode(w, r, &q))
	var pause drawgate.Pause
	if p == nil {
		pause, p = pauseOf(&q)
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	pause.By = who.name
	out, err := s.engine.Pause(r.Context(), engine.Ask{Policy: q.Policy, Tenant: q.Tenant, Key: q.Key}, pause)
	if err != nil {
		writeProblem(w, s.fail(err))
		return
	}
	if !out.Kept {
		s.log.Warn("a bucket was paused", "policy", q.Policy, "until", out.Until.UTC(), "reason", q.Reason, "by",
			who.name)
	}
	writeJSON(w, http.StatusOK, present.Pause(&out))
}

// unpause serves POST /v1/unpause. It ends only the pause that its caller saw: of several
// administrators, one does not end the pause that another has made meanwhile.
func (s *Server) unpause(w http.ResponseWriter, r *http.Request, who *access) {
	var q api.UnpauseRequest
	p := s.whose(who, &q.Policy, &q.Tenant, s.decode(w, r, &q))
	q.Key = cmp.Or(q.Key, api.DefaultKey)
	if p == nil && q.Until == nil {
		p = problem(api.CodeInvalid, "until is missing: name the pause to end by its end, as /v1/status shows it")
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	pause := drawgate.Pause{Until: *q.Until, Reason: q.Reason, By: who.name}
	out, err := s.engine.Unpause(r.Context(), engine.Ask{Policy: q.Policy, Tenant: q.Tenant, Key: q.Key}, pause)
	if err != nil {
		writeProblem(w, s.fail(err))
		return
	}
	if !out.Kept {
		s.log.Warn("a bucket's pause was ended", "policy", q.Policy, "until", q.Until.UTC(), "reason", q.Reason, "by",
			who.name)
	}
	writeJSON(w, http.StatusOK, present.Unpause(&out))
}

// pauseOf converts a pause for the engine, which checks the rest.
func pauseOf(q *api.PauseRequest) (p drawgate.Pause, _ *api.Problem) {
	q.Key = cmp.Or(q.Key, api.DefaultKey)
	switch {
	case q.ForMS == 0 && q.Until == nil:
		return p, problem(api.CodeInvalid, "give one of for_ms and until: a pause needs an end")
	case q.ForMS != 0 && q.Until != nil:
		return p, problem(api.CodeInvalid, "give only one of for_ms and until")
	}
	if q.ForMS < 0 || q.ForMS > api.MaxPause.Milliseconds() {
		return p, problem(api.CodeInvalid, "for_ms %d is not between 1 and %d", q.ForMS, api.MaxPause.Milliseconds())
	}
	p = drawgate.Pause{For: time.Duration(q.ForMS) * time.Millisecond, Reason: q.Reason}
	if q.Until != nil {
		p.Until = *q.Until
	}
	return p, nil
}
