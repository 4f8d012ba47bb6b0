package server

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/store"
)

// How long a request waits for a reading.
const (
	usageWait = 10 * time.Second // readings of other tenants may come first
	// if it asks for a text, which people type, and there is one that was good enough a moment ago.
	usageFresh = 20 * time.Millisecond
)

// usage serves GET /v1/usage.
func (s *Server) usage(w http.ResponseWriter, r *http.Request, who *access) {
	q, p := s.usageQuery(r, who)
	lister, ok := s.store.(store.Lister)
	if p == nil && !ok {
		p = problem(api.CodeNotSupported, "the store cannot list its buckets")
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	all, p := s.reading(r.Context(), lister, &q)
	if p != nil {
		writeProblem(w, p)
		return
	}
	writeJSON(w, http.StatusOK, q.choose(all))
}

// reading returns a reading that is done.
func (s *Server) reading(ctx context.Context, lister store.Lister, q *usageQuery) (*reading, *api.Problem) {
	tenant := q.tenant
	r, before := s.usages.latest(tenant, func(ctx context.Context, r *reading) error { //nolint:contextcheck // a reading is for all who ask, and outlives the request that begins it
		return s.readUsage(ctx, lister, tenant, r)
	})
	if r == nil {
		return nil, problem(api.CodeStoreUnavailable,
			"the buckets of %d other tenants are to be read first: try again later", usageBegun)
	}
	patience := usageWait
	if q.match == "" {
		before = nil
	}
	if before != nil {
		patience = usageFresh
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.done:
		if r.err != nil {
			return nil, s.fail(r.err)
		}
		return r, nil
	case <-ctx.Done():
		return nil, s.fail(ctx.Err())
	case <-timer.C:
		if before != nil {
			return before, nil
		}
		return nil, problem(api.CodeStoreUnavailable, "reading all buckets takes more than %v", usageWait)
	}
}

// usageQuery says which buckets are wanted.
type usageQuery struct {
	policy, tenant string
	match          string // in lower case
	limit          int
}

func (s *Server) usageQuery(r *http.Request, who *access) (q usageQuery, p *api.Problem) {
	q.limit = api.DefaultBuckets
	for name, values := range r.URL.Query() {
		v := values[len(values)-1]
		switch name {
		case "policy":
			q.policy = v
		case "tenant":
			q.tenant = v
		case "match":
			q.match = strings.ToLower(v)
		case "limit":
			if q.limit, p = listLimit(v); p != nil {
				return q, p
			}
		default:
			return q, problem(api.CodeInvalid, "%q is not one of policy, tenant, match and limit", name)
		}
	}
	if q.policy != "" {
		if _, p = s.policy(strings.TrimSuffix(q.policy, engine.ShadowSuffix)); p != nil {
			return q, p
		}
	}
	if q.tenant, p = who.tenantOf(q.tenant); q.tenant == "" {
		q.tenant = s.opts.Tenant
	}
	return q, p
}

// choose returns the buckets of a reading that are wanted.
func (q *usageQuery) choose(all *reading) api.UsageAnswer {
	out := api.UsageAnswer{At: all.began.UTC(), Buckets: []api.BucketUsage{}, More: all.partial, Partial: all.partial}
	for i := range all.buckets {
		b := &all.buckets[i]
		if q.policy != "" && b.Policy != q.policy || !b.has(q.match) {
			continue
		}
		if out.Total++; out.Total > q.limit {
			out.More = true
			continue
		}
		out.Buckets = append(out.Buckets, b.BucketUsage)
	}
	return out
}
