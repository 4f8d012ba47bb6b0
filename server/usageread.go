package server

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/store"
)

// Bounds on reading what all buckets have used.
const (
	usageEvery   = time.Second     // the default of Options.UsageEvery
	usageList    = 2 * time.Second // for listing the keys
	usageRead    = 5 * time.Second // for all of it
	usageRest    = 4               // after a reading, none begins for so many times as long as it took
	usageBuckets = 50_000          // in a reading
	usageBatch   = 100             // buckets in a call of the store, so that takes need not wait long behind it
	usageTenants = 4               // whose latest readings are kept
	usageKept    = time.Minute     // how long a reading is kept, at most
	usageBegun   = 8               // readings that are not done, of which all but one wait for their turn
)

// usages reads what all buckets have used, once for everybody who asks at about the same time.
type usages struct {
	every time.Duration
	ctx   context.Context //nolint:containedctx // it belongs to the server: readings end with it
	going sync.WaitGroup

	mu       sync.Mutex
	readings map[string]*reading // guarded by mu: the latest, by tenant
	closed   bool                // guarded by mu: none is begun

	turn chan struct{} // capacity 1: held while the store is read
	rest time.Time     // until when the store is not read; belongs to whoever has the turn
}

// reading is what the buckets of a tenant have used. Nothing of it is changed once done is closed.
type reading struct {
	done    chan struct{}
	began   time.Time
	until   time.Time    // until when it is good enough
	buckets []usedBucket // the most used first
	partial bool         // not all buckets were read
	err     error
	before  *reading    // guarded by usages.mu: the one before, until this one is done
	expiry  *time.Timer // guarded by usages.mu: forgets it; nil until it is done
}

// usedBucket is a bucket of a reading.
type usedBucket struct {
	api.BucketUsage
	part  float64 // how much is used of the limit of which the largest part is used
	lower string  // the key, in lower case
}

// has reports whether the bucket's name has a text, which is in lower case.
func (b *usedBucket) has(text string) bool {
	return strings.Contains(b.lower, text) || strings.Contains(strings.ToLower(b.Policy), text) ||
		strings.Contains(strings.ToLower(b.Tenant), text)
}

// newUsages returns a usages whose readings end with ctx.
func newUsages(ctx context.Context, every time.Duration) *usages {
	return &usages{
		ctx: ctx, every: cmp.Or(every, usageEvery), readings: map[string]*reading{},
		turn: make(chan struct{}, 1),
	}
}

// latest returns the latest reading for a tenant. If it is too old, another one is begun with read.
// While that is not done, before is the one that was too old, unless it is so by far, or failed. r
// is nil if too many others are not done.
func (u *usages) latest(tenant string, read func(context.Context, *reading) error) (r, before *reading) {
	u.mu.Lock()
	defer u.mu.Unlock()
	old := u.readings[tenant]
	if old != nil && (!old.isDone() || time.Now().Before(old.until)) {
		return old, old.before
	}
	if old != nil && (old.err != nil || time.Since(old.until) > 2*u.every) {
		old = nil
	}
	begun := 0
	for _, other := range u.readings {
		if !other.isDone() {
			begun++
		}
	}
	if begun >= usageBegun {
		return nil, nil
	}
	for t, other := range u.readings {
		if t == tenant || len(u.readings) >= usageTenants && other.isDone() {
			other.stop()
			delete(u.readings, t)
		}
	}
	r = &reading{done: make(chan struct{}), before: old}
	if u.closed {
		r.err = drawgate.ErrClosed
		close(r.done)
		return r, nil
	}
	u.readings[tenant] = r
	u.going.Go(func() {
		defer close(r.done)
		r.err = u.inTurn(r, read)
		u.mu.Lock()
		defer u.mu.Unlock()
		r.before, r.expiry = nil, time.AfterFunc(usageKept, func() { u.forget(tenant, r) })
	})
	return r, old
}

// close waits for readings to end, whose context has ended.
func (u *usages) close() {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.going.Wait()
}

func (r *reading) isDone() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// stop ends the timer, which otherwise keeps the reading in memory. usages.mu is held.
func (r *reading) stop() {
	if r.expiry != nil {
		r.expiry.Stop()
	}
}

// forget drops a reading, unless there is a later one.
func (u *usages) forget(tenant string, r *reading) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.readings[tenant] == r {
		delete(u.readings, tenant)
	}
}

// inTurn carries out a reading when no other is running and the store has had its rest.
func (u *usages) inTurn(r *reading, read func(context.Context, *reading) error) error {
	select {
	case u.turn <- struct{}{}:
		defer func() { <-u.turn }()
	case <-u.ctx.Done():
		return drawgate.ErrClosed
	}
	rest := time.NewTimer(time.Until(u.rest))
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-u.ctx.Done():
		return drawgate.ErrClosed
	}
	ctx, cancel := withinQuietly(u.ctx, usageRead)
	defer cancel()
	r.began = time.Now()
	err := read(ctx, r)
	now := time.Now()
	u.rest = now.Add(usageRest * now.Sub(r.began))
	if r.until = r.began.Add(u.every); r.until.Before(u.rest) {
		r.until = u.rest
	}
	return err
}

// withinQuietly is [context.WithTimeout] whose context is cancelled, and has no deadline: a store
// that is too slow for a reading is not taken for one that is unavailable.
func withinQuietly(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	t := time.AfterFunc(d, cancel)
	return ctx, func() {
		t.Stop()
		cancel()
	}
}

// readUsage reads the buckets of all policies.
func (s *Server) readUsage(ctx context.Context, lister store.Lister, tenant string, r *reading) error {
	buckets, err := s.listAll(ctx, lister, tenant, r)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(buckets, usageBatch) {
		err := s.peekAll(ctx, batch, r)
		if ctx.Err() != nil { // out of time, or the server is closing
			r.partial = true
			break
		}
		if err != nil {
			return err
		}
	}
	slices.SortFunc(r.buckets, func(a, b usedBucket) int {
		return cmp.Or(cmp.Compare(b.part, a.part), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Key, b.Key))
	})
	return s.drain.Err()
}

// listAll lists the buckets in use. If there are too many, each policy has a share.
func (s *Server) listAll(ctx context.Context, lister store.Lister, tenant string, r *reading) (all []store.BucketCost,
	err error,
) {
	ctx, cancel := withinQuietly(ctx, usageList)
	defer cancel()
	policies := s.counted()
	for i, policy := range policies {
		var names []string
		most := (usageBuckets - len(all)) / (len(policies) - i)
		err := lister.List(ctx, tenant, policy, func(k drawgate.Key) bool {
			if len(names) == most {
				r.partial = true
				return false
			}
			names = append(names, k.Name)
			return ctx.Err() == nil
		})
		if ctx.Err() != nil {
			r.partial, err = true, s.drain.Err()
		}
		if err != nil {
			return nil, err
		}
		slices.Sort(names) // a store that changes during a listing may yield a key again
		for _, name := range slices.Compact(names) {
			if plan := s.engine.Plan(policy, tenant, name); plan != nil { // a reload may have removed the policy
				all = append(all, store.BucketCost{
					Key:  drawgate.Key{Tenant: tenant, Policy: policy, Name: name},
					Plan: plan.Plan,
				})
			}
		}
	}
	return all, nil
}

// counted returns the policies by which buckets count, with those of rules in shadow.
func (s *Server) counted() (policies []string) {
	for _, name := range s.names() {
		policies = append(policies, name)
		if shadow := name + engine.ShadowSuffix; s.engine.Plan(shadow, "", "") != nil {
			policies = append(policies, shadow)
		}
	}
	return policies
}

// peekAll adds buckets to a reading.
func (s *Server) peekAll(ctx context.Context, buckets []store.BucketCost, r *reading) error {
	all := make([]store.State, len(buckets))
	if err := s.store.Peek(ctx, buckets, 0, all); err != nil {
		return err
	}
	for i := range all {
		if all[i].Fail != nil { // its record cannot be read
			r.partial = true
			continue
		}
		r.buckets = append(r.buckets, used(&buckets[i], &all[i]))
	}
	return nil
}

// used describes a bucket.
func used(b *store.BucketCost, st *store.State) usedBucket {
	u := usedBucket{lower: strings.ToLower(b.Key.Name)}
	u.Policy, u.Tenant, u.Key, u.Open, u.Fallback = b.Key.Policy, b.Key.Tenant, b.Key.Name, st.Open, st.Fallback
	if !st.Pause.Until.IsZero() {
		u.PausedUntil = new(st.Pause.Until.UTC())
	}
	limits := b.Plan.Policy().Limits
	for i, l := range st.States {
		u.Limits = append(u.Limits, api.LimitUse{
			Name: limits[i].Name,
			Unit: cmp.Or(limits[i].Unit, drawgate.UnitRequests), Used: l.Used, Max: l.Max, Held: l.Held, Debt: l.Debt,
		})
		u.part = max(u.part, float64(l.Used)/float64(max(1, l.Max)))
	}
	return u
}
