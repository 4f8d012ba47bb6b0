package server

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/store"
)

// healthz says that this process is alive. It does not ask the store: a process must not be
// restarted because its store is unavailable.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request, _ *access) {
	writeJSON(w, http.StatusOK, s.health())
}

func (s *Server) health() api.Health {
	waiting, _ := s.engine.Waiting()
	return api.Health{Status: api.StatusOK, Waiting: int64(waiting), UptimeMS: time.Since(s.start).Milliseconds()}
}

// healthcheck answers as envoyproxy/ratelimit does, for its users' probes: 200 with OK, and 500
// while the server stops.
func (s *Server) healthcheck(w http.ResponseWriter, _ *http.Request, _ *access) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if s.drain.Err() != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("OK"))
}

// readyTimeout bounds the time for the store to answer.
const readyTimeout = 2 * time.Second

// readyz says whether this process can decide about any policy, or about all of them if the options
// say so. If one policy that nothing decides took a process out of service, an outage of the store
// would do so with all processes, and with all other policies. If access tokens are needed, it
// lists policies only for the role read.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request, who *access) {
	h := s.health()
	sent := time.Now()
	err := s.ping(r.Context())
	h.Store = &api.StoreHealth{Status: api.StatusOK, LatencyMS: present.Millis(time.Since(sent))}
	if err != nil {
		s.storeUnavailable(err)
		h.Store.Status = api.StatusUnavailable
	}
	h.States = s.policyHealth(err != nil)
	for i := range h.States {
		h.Policies = append(h.Policies, h.States[i].Name)
	}
	if err != nil {
		h.Status = s.withoutStore(h.States)
	}
	if s.drain.Err() != nil {
		h.Status = api.StatusUnavailable
	}
	if !who.read {
		h.Policies, h.States = nil, nil
	}
	status := http.StatusOK
	if h.Status == api.StatusUnavailable {
		w.Header().Set("Retry-After", "1")
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, h)
}

// withoutStore returns the state of the process while the store is unavailable. Policies that are
// switched off decide nothing.
func (s *Server) withoutStore(states []api.PolicyHealth) api.Status {
	has := func(status api.Status) bool {
		return slices.ContainsFunc(states, func(h api.PolicyHealth) bool { return h.Status == status })
	}
	if !has(api.StatusDegraded) || s.opts.ReadyAll && has(api.StatusUnavailable) {
		return api.StatusUnavailable
	}
	return api.StatusDegraded
}

// policyHealth returns how each policy is decided, by name.
func (s *Server) policyHealth(unavailable bool) []api.PolicyHealth {
	var all []api.PolicyHealth
	for _, info := range s.engine.Policies() {
		h := api.PolicyHealth{Name: info.Name, Status: api.StatusOK, Shadow: info.Shadow}
		fallback, open := s.fallback(&info.Policy)
		h.Fallback, h.NotApplied = fallback.String(), open
		switch {
		case !info.DisabledUntil.IsZero():
			h.Status = api.StatusDisabled
		case unavailable && fallback > drawgate.FallbackClosed:
			h.Status = api.StatusDegraded
		case unavailable:
			h.Status = api.StatusUnavailable
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b api.PolicyHealth) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// fallback returns what decides about a policy during an outage: of its limits' fallbacks the one
// that admits least, or FallbackDefault if nothing does. If others are open, it names their limits.
func (s *Server) fallback(p *drawgate.Policy) (least drawgate.Fallback, open []string) {
	if s.opts.Fallback == nil {
		return drawgate.FallbackDefault, nil
	}
	for i := range p.Limits {
		f := s.opts.Fallback(p, i)
		if i == 0 || f < least {
			least = f
		}
		if f == drawgate.FallbackOpen {
			open = append(open, p.Limits[i].Name)
		}
	}
	if least != drawgate.FallbackShare { // all are open, or nothing is admitted anyway
		open = nil
	}
	return least, open
}

// ping pings the store. A store without a ping counts as available.
func (s *Server) ping(ctx context.Context) error {
	p, ok := s.store.(store.Pinger)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return p.Ping(ctx)
}
