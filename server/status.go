package server

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
)

// status serves GET and POST /v1/status.
func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	if !allowMethod(w, r, http.MethodGet, http.MethodPost) {
		return
	}
	var q api.StatusRequest
	var p *api.Problem
	if r.Method == http.MethodGet {
		p = statusQuery(r, &q)
	} else {
		p = s.decode(w, r, &q)
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	l, p := s.limiter(q.Policy)
	if p != nil {
		writeProblem(w, p)
		return
	}
	key := cmp.Or(q.Key, api.DefaultKey)
	st, err := l.StatusAt(r.Context(), q.Priority, l.Ask(key, Costs(q.Costs)...))
	if err != nil {
		writeProblem(w, s.fail(err))
		return
	}
	writeJSON(w, http.StatusOK, Status(l.Plan().Name(), key, &st))
}

func statusQuery(r *http.Request, q *api.StatusRequest) *api.Problem {
	for name, values := range r.URL.Query() {
		v := values[len(values)-1]
		switch name {
		case "policy":
			q.Policy = v
		case "key":
			q.Key = v
		case "priority":
			n, err := strconv.Atoi(v)
			if err != nil {
				return problem(api.CodeInvalid, "priority %q is not a number", v)
			}
			q.Priority = n
		default:
			return problem(api.CodeInvalid, "%q is not one of policy, key and priority; costs are for POST", name)
		}
	}
	return nil
}

// healthz says that this process is alive. It asks nobody: a process must not be restarted because its store is away.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	if allowMethod(w, r, http.MethodGet, http.MethodHead) {
		writeJSON(w, http.StatusOK, s.health())
	}
}

func (s *Server) health() api.Health {
	return api.Health{Status: "ok", Waiting: s.waiting.Load(), UptimeMS: time.Since(s.start).Milliseconds()}
}

// readyTimeout bounds how long the store may take to say that it is there.
const readyTimeout = 2 * time.Second

// readyz says whether this process can decide.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if !allowMethod(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	h := s.health()
	h.Policies = s.names
	h.Store = &api.StoreHealth{Status: "ok"}
	sent := time.Now()
	err := s.ping(r.Context())
	h.Store.LatencyMS = millis(time.Since(sent))
	if err == nil && s.drain.Err() == nil {
		writeJSON(w, http.StatusOK, h)
		return
	}
	if err != nil {
		s.warn("the store is away", err)
		h.Store.Status = "away"
	}
	h.Status = "away"
	w.Header().Set("Retry-After", "1")
	writeJSON(w, http.StatusServiceUnavailable, h)
}

// ping asks the store; one that cannot be asked is there.
func (s *Server) ping(ctx context.Context) error {
	p, ok := s.store.(drawgate.Pinger)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return p.Ping(ctx)
}
