package server

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/store"
)

// Bounds on listing the keys of a policy.
const (
	listTimeout = 30 * time.Second // including the time waiting for the previous listing
	maxPage     = 1 << 20          // bytes of the keys on a page, unless a single key has more
)

// buckets serves GET /v1/buckets. A store lists keys in no order, so each page goes through all of
// them, one at a time, and only keeps what it returns.
func (s *Server) buckets(w http.ResponseWriter, r *http.Request, who *access) {
	q, p := s.listQuery(r, who)
	lister, ok := s.store.(store.Lister)
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
	_ = c.SetWriteDeadline(time.Now().Add(listTimeout + writeTimeout)) // a writer without deadlines needs no extension
	page := page{after: q.after, size: q.limit, keys: []string{}}
	if err := s.list(ctx, lister, &q, &page); errors.Is(err, context.DeadlineExceeded) {
		writeProblem(w, problem(api.CodeStoreUnavailable, "listing all keys of the policy takes more than %v",
			listTimeout))
		return
	} else if err != nil {
		writeProblem(w, s.fail(err))
		return
	}
	out := api.BucketsAnswer{Policy: q.policy, Tenant: q.tenant, Keys: page.keys}
	if page.more {
		out.After = base64.RawURLEncoding.EncodeToString([]byte(out.Keys[len(out.Keys)-1]))
	}
	writeJSON(w, http.StatusOK, out)
}

// list fills a page, when no other listing is running.
func (s *Server) list(ctx context.Context, lister store.Lister, q *listQuery, p *page) error {
	select {
	case s.listing <- struct{}{}:
		defer func() { <-s.listing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := lister.List(ctx, q.tenant, q.policy, func(k drawgate.Key) bool {
		p.add(k.Name)
		return ctx.Err() == nil
	})
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// page keeps the first keys after a given one, in byte order.
type page struct {
	after string
	size  int
	keys  []string // in order
	bytes int      // of keys
	more  bool     // there are keys after these
}

func (p *page) add(key string) {
	if key <= p.after {
		return
	}
	i, twice := slices.BinarySearch(p.keys, key)
	if twice || p.more && i == len(p.keys) { // a store that changes during a listing may yield a key again
		return
	}
	p.keys = slices.Insert(p.keys, i, key)
	p.bytes += len(key)
	for len(p.keys) > p.size || p.bytes > maxPage && len(p.keys) > 1 {
		last := len(p.keys) - 1
		p.bytes -= len(p.keys[last])
		p.keys, p.more = slices.Delete(p.keys, last, last+1), true
	}
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
				return q, problem(api.CodeInvalid, "after must be the unchanged value of an earlier answer")
			}
			q.after = string(after)
		case "limit":
			if q.limit, p = listLimit(v); p != nil {
				return q, p
			}
		default:
			return q, problem(api.CodeInvalid, "%q is not one of policy, tenant, limit and after", name)
		}
	}
	name, shadow := strings.CutSuffix(q.policy, engine.ShadowSuffix) // the policy that a rule in shadow counts by
	if q.policy, p = s.policy(name); p == nil {
		if shadow {
			q.policy += engine.ShadowSuffix
		}
		q.tenant, p = who.tenantOf(q.tenant)
	}
	if q.tenant == "" {
		q.tenant = s.opts.Tenant
	}
	return q, p
}

// listLimit reads the largest number of buckets in an answer.
func listLimit(text string) (int, *api.Problem) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > api.MaxBuckets {
		return 0, problem(api.CodeInvalid, "limit %q is not a number from 1 to %d", text, api.MaxBuckets)
	}
	return n, nil
}
