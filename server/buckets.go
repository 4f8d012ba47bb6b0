package server

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
)

// listTimeout bounds going through all keys of a policy.
const listTimeout = 30 * time.Second

// buckets serves GET /v1/buckets. A store lists keys in no order, so each page goes through all of them, and keeps no more than it answers.
func (s *Server) buckets(w http.ResponseWriter, r *http.Request, who *access) {
	q, p := s.listQuery(r, who)
	lister, ok := s.store.(drawgate.Lister)
	if p == nil && !ok {
		p = problem(api.CodeNotSupported, "the store cannot list its buckets")
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), listTimeout)
	defer cancel()
	c := http.NewResponseController(w)
	_ = c.SetWriteDeadline(time.Now().Add(listTimeout + writeTimeout)) // a writer that knows no deadlines has none to move
	page := page{after: q.after, size: q.limit + 1}
	err := lister.List(ctx, q.tenant, q.policy, func(k drawgate.Key) bool {
		page.add(k.Name)
		return ctx.Err() == nil
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		writeProblem(w, s.fail(err))
		return
	}
	out := api.BucketsAnswer{Policy: q.policy, Tenant: q.tenant, Keys: page.keys}
	if len(out.Keys) > q.limit {
		out.Keys = out.Keys[:q.limit]
		out.After = base64.RawURLEncoding.EncodeToString([]byte(out.Keys[q.limit-1]))
	}
	if out.Keys == nil {
		out.Keys = []string{}
	}
	writeJSON(w, http.StatusOK, out)
}

// page keeps the first keys, in the order of their bytes, after one.
type page struct {
	after string
	size  int
	keys  []string // in order
}

func (p *page) add(key string) {
	if key <= p.after || len(p.keys) == p.size && key >= p.keys[p.size-1] {
		return
	}
	i, twice := slices.BinarySearch(p.keys, key)
	if twice { // a store that is changed while it is listed may say a key again
		return
	}
	if len(p.keys) == p.size {
		p.keys = p.keys[:p.size-1]
	}
	p.keys = slices.Insert(p.keys, i, key)
}

type listQuery struct {
	policy, tenant, after string
	limit                 int
}

func (s *Server) listQuery(r *http.Request, who *access) (q listQuery, p *api.Problem) {
	q.limit = api.DefaultBuckets
	for name, values := range r.URL.Query() {
		v := values[len(values)-1]
		switch name {
		case "policy":
			q.policy = v
		case "tenant":
			q.tenant = v
		case "after":
			after, err := base64.RawURLEncoding.DecodeString(v)
			if err != nil {
				return q, problem(api.CodeInvalid, "after is not what an answer said: give it unchanged")
			}
			q.after = string(after)
		case "limit":
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 || n > api.MaxBuckets {
				return q, problem(api.CodeInvalid, "limit %q is not a number from 1 to %d", v, api.MaxBuckets)
			}
			q.limit = n
		default:
			return q, problem(api.CodeInvalid, "%q is not one of policy, tenant, limit and after", name)
		}
	}
	if q.policy, p = s.policy(q.policy); p == nil {
		q.tenant, p = who.tenantOf(q.tenant)
	}
	if q.tenant == "" {
		q.tenant = s.opts.Tenant
	}
	return q, p
}
