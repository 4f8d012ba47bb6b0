package server

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/store"
)

// resetTimeout bounds the time for a reset.
const resetTimeout = 10 * time.Second

// reset serves POST /v1/reset: it forgets buckets, and their counterparts for rules in shadow.
func (s *Server) reset(w http.ResponseWriter, r *http.Request, who *access) {
	var q api.ResetRequest
	p := s.whose(who, &q.Policy, &q.Tenant, s.decode(w, r, &q))
	if p == nil {
		p = checkReset(&q)
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	if err := s.forget(r.Context(), &q); err != nil {
		writeProblem(w, s.fail(err))
		return
	}
	s.log.Warn("buckets were reset", "policy", q.Policy, "buckets", len(q.Keys))
	writeJSON(w, http.StatusOK, api.ResetAnswer{Reset: len(q.Keys)})
}

func checkReset(q *api.ResetRequest) *api.Problem {
	switch {
	case q.Keys == nil:
		q.Keys = []string{cmp.Or(q.Key, api.DefaultKey)}
	case q.Key != "":
		return problem(api.CodeInvalid, "give either key or keys")
	case len(q.Keys) == 0 || len(q.Keys) > api.MaxTakes:
		return problem(api.CodeInvalid, "keys has %d elements, not 1 to %d", len(q.Keys), api.MaxTakes)
	}
	for _, k := range q.Keys {
		if len(k) > drawgate.MaxKey {
			return problem(api.CodeInvalid, "a key has more than %d bytes", drawgate.MaxKey)
		}
	}
	return nil
}

func (s *Server) forget(ctx context.Context, q *api.ResetRequest) error {
	store, ok := s.store.(store.Resetter)
	if !ok {
		return problem(api.CodeNotSupported, "the store cannot reset buckets")
	}
	l := s.engine.Limiter(q.Policy)
	if l == nil { // a reload has just removed it
		return problem(api.CodeUnknownPolicy, "unknown policy %q", q.Policy)
	}
	ctx, cancel := context.WithTimeout(ctx, resetTimeout)
	defer cancel()
	tenant := cmp.Or(q.Tenant, s.opts.Tenant)
	own := tenant == s.opts.Tenant
	var keys []drawgate.Key
	for _, k := range q.Keys {
		keys = append(keys, drawgate.Key{
			Tenant: tenant, Policy: q.Policy + engine.ShadowSuffix,
			Name: drawgate.BoundedKey(k),
		})
		if !own {
			keys = append(keys, drawgate.Key{Tenant: tenant, Policy: q.Policy, Name: drawgate.BoundedKey(k)})
		}
	}
	if err := store.Reset(ctx, keys); err != nil || !own {
		return err
	}
	return l.Reset(ctx, q.Keys...) // through the limiter, so that waiting callers try at once
}
