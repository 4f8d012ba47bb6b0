// Package memstore keeps buckets in the memory of one process. It is the reference for the other stores, and the fastest.
//
// Everything is lost when the process ends. Time is the process's monotonic clock, placed on the wall clock when the store is made: a step of
// the wall clock changes nothing.
package memstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// Options holds what a Store can do without. The zero value is ready to use.
type Options struct {
	// MaxBuckets is the most buckets that may be in use at once: 0 means 10 million (about 1 GB). A take that would open another one fails
	// with a [drawgate.StoreError]; no bucket that still limits is ever given up. Buckets of which nothing is used make room by themselves.
	MaxBuckets int
}

// ErrFull is in the StoreError of a take for which there was no room.
var ErrFull = errors.New("as many buckets are in use as MaxBuckets allows")

// Store keeps buckets in memory. It is safe for concurrent use.
type Store struct {
	epoch  time.Time
	base   int64 // epoch in Unix µs
	most   int64
	closed atomic.Bool
	spaces *xsync.Map[spaceKey, *space]
	sweeper
	watchers
}

type spaceKey struct{ tenant, policy string }

// space holds the buckets of one policy for one tenant.
type space struct {
	store *Store
	key   spaceKey
	cells *xsync.Map[string, *cell]

	mu    sync.Mutex
	leans []*lean // one per way of counting, so that equal ways are the same pointer
}

var (
	_ drawgate.Store    = (*Store)(nil)
	_ drawgate.Opener   = (*Store)(nil)
	_ drawgate.Resetter = (*Store)(nil)
	_ drawgate.Lister   = (*Store)(nil)
	_ drawgate.Pinger   = (*Store)(nil)
	_ drawgate.Watcher  = (*Store)(nil)
)

// New returns an empty store. opts may be nil.
func New(opts *Options) *Store {
	s := &Store{epoch: time.Now(), most: 10_000_000, spaces: xsync.NewMap[spaceKey, *space]()}
	s.base = s.epoch.UnixMicro()
	s.sweepAt.Store(firstSweep)
	if opts != nil && opts.MaxBuckets > 0 {
		s.most = int64(opts.MaxBuckets)
	}
	return s
}

// now returns the time in µs since the store was made.
func (s *Store) now() int64 { return int64(time.Since(s.epoch)) / 1000 }

func (s *Store) fail(op string, err error) error {
	return &drawgate.StoreError{Store: "memory", Op: op, Err: err}
}

func (s *Store) space(tenant, policy string) *space {
	key := spaceKey{tenant, policy}
	if sp, ok := s.spaces.Load(key); ok {
		return sp
	}
	sp, _ := s.spaces.LoadOrStore(key, &space{store: s, key: key, cells: xsync.NewMap[string, *cell]()})
	return sp
}

// ready reports why nothing can be decided: the store is closed, or the caller does not want it any more.
func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return drawgate.ErrClosed
	}
	return ctx.Err()
}

// Take implements [drawgate.Store]. It never waits for anything but other takes of the same buckets.
func (s *Store) Take(ctx context.Context, batch []drawgate.Take, out []drawgate.Decision) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for i := range batch {
		out[i] = s.take(&batch[i])
	}
	return nil
}

func (s *Store) take(t *drawgate.Take) (d drawgate.Decision) {
	if len(t.Buckets) == 1 && t.ID == "" {
		b := &t.Buckets[0]
		l := s.local(b.Key.Tenant, b.Plan)
		if g, ok := l.TakeLean(b.Key.Name, b.N[0], t.Priority); ok {
			return drawgate.AnswerLean(b.Plan, g)
		}
		d, err := l.TakeOne(b.Key.Name, b.N, t.Priority)
		if err != nil {
			d.Fail = err
		}
		return d
	}
	err := s.with(t.Buckets, true, func(recs []*record.Record) {
		d = drawgate.Decide(t, recs, false, s.base+s.now())
	})
	if err != nil {
		return drawgate.Decision{Fail: s.fail("take", err)}
	}
	return d
}

// Settle implements [drawgate.Store].
func (s *Store) Settle(ctx context.Context, batch []drawgate.Settlement, out []drawgate.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for i := range batch {
		st := &batch[i]
		err := s.with(st.Buckets, st.Op == drawgate.OpCharge, func(recs []*record.Record) {
			out[i] = drawgate.Carry(st, recs, false, s.base+s.now())
		})
		if err != nil {
			out[i] = drawgate.Outcome{Err: s.fail(st.Op.String(), err)}
		}
		if st.Op == drawgate.OpSettle || st.Op == drawgate.OpCancel {
			s.hint(st.Buckets)
		}
	}
	return nil
}

// Peek implements [drawgate.Store].
func (s *Store) Peek(ctx context.Context, buckets []drawgate.BucketCost, priority int8, out []drawgate.Status) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for i := range buckets {
		err := s.with(buckets[i:i+1], false, func(recs []*record.Record) {
			out[i] = drawgate.Describe(&buckets[i], recs[0], priority, false, s.base+s.now())
		})
		if err != nil {
			out[i] = drawgate.Status{Decision: drawgate.Decision{Fail: s.fail("peek", err)}}
		}
	}
	return nil
}

// with calls f with the records of the buckets, all locked, in the order of buckets. Where create is false, a bucket that does not exist is an
// empty record that is thrown away.
func (s *Store) with(buckets []drawgate.BucketCost, create bool, f func([]*record.Record)) error {
	order := make([]int, len(buckets))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compareKeys(buckets[a].Key, buckets[b].Key) })
	recs := make([]*record.Record, len(buckets))
	locked := make([]*full, 0, len(buckets))
	defer func() {
		for _, f := range locked {
			f.mu.Unlock()
		}
	}()
	for k, i := range order {
		key := buckets[i].Key
		if k > 0 && key == buckets[order[k-1]].Key {
			return fmt.Errorf("%w: a bucket is named twice", drawgate.ErrInvalid)
		}
		fl, err := s.space(key.Tenant, key.Policy).lock(key.Name, create)
		if err != nil {
			return err
		}
		if fl == nil {
			recs[i] = &record.Record{}
			continue
		}
		recs[i] = &fl.rec
		locked = append(locked, fl)
	}
	f(recs)
	return nil
}

func compareKeys(a, b drawgate.Key) int {
	for _, p := range [...][2]string{{a.Tenant, b.Tenant}, {a.Policy, b.Policy}, {a.Name, b.Name}} {
		if p[0] < p[1] {
			return -1
		} else if p[0] > p[1] {
			return 1
		}
	}
	return 0
}

// Reset implements [drawgate.Resetter].
func (s *Store) Reset(_ context.Context, keys []drawgate.Key) error {
	if s.closed.Load() {
		return drawgate.ErrClosed
	}
	for _, k := range keys {
		sp := s.space(k.Tenant, k.Policy)
		if fl, _ := sp.lock(k.Name, false); fl != nil {
			fl.rec = record.Record{Last: fl.rec.Last}
			fl.mu.Unlock()
		}
		s.hint([]drawgate.BucketCost{{Key: k}})
	}
	return nil
}

// List implements [drawgate.Lister].
func (s *Store) List(ctx context.Context, tenant, policy string, yield func(drawgate.Key) bool) error {
	if s.closed.Load() {
		return drawgate.ErrClosed
	}
	sp := s.space(tenant, policy)
	for name, c := range sp.cells.All() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !sp.idle(c) && !yield(drawgate.Key{Tenant: tenant, Policy: policy, Name: name}) {
			return nil
		}
	}
	return nil
}

// Ping implements [drawgate.Pinger].
func (s *Store) Ping(context.Context) error {
	if s.closed.Load() {
		return drawgate.ErrClosed
	}
	return nil
}

// Close implements [drawgate.Store]. Calls under way are finished.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.running.Wait()
	return nil
}
