// Package memstore keeps buckets in the memory of one process. It is the reference for the other
// stores, and the fastest.
//
// Everything is lost when the process ends. Time is the process's monotonic clock, set from the
// wall clock when the store is made: later changes of the wall clock have no effect.
package memstore

import (
	"context"
	"errors"
	"slices"

	"github.com/drawgate/drawgate/internal/cells"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Options holds the optional settings of a Store. The zero value is ready to use.
type Options struct {
	// MaxBuckets is the largest number of buckets in use at once: 0 means 10 million. Takes that
	// need another bucket are refused with a [store.Error]; no bucket that still limits is
	// ever dropped. Unused buckets are dropped when room is needed, and their memory is released
	// within minutes.
	//
	// A bucket of a policy with one bucket limit takes about 105 bytes, any other about 0.5 KB,
	// plus 30 bytes for each entry of a rolling limit: 10 million are about 1 GB of the first kind,
	// 5.4 GB of the second. docs/configuration.md has more figures.
	MaxBuckets int
}

// ErrFull is wrapped in the StoreError of a take for which there was no room.
var ErrFull = cells.ErrFull

// Store keeps buckets in memory. It is safe for concurrent use.
type Store struct {
	cells *cells.Store
	watchers
	documents documents
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Resetter = (*Store)(nil)
	_ store.Lister   = (*Store)(nil)
	_ store.Pinger   = (*Store)(nil)
	_ store.Watcher  = (*Store)(nil)
)

// New returns an empty store. opts may be nil.
func New(opts *Options) *Store {
	most := 10_000_000
	if opts != nil && opts.MaxBuckets > 0 {
		most = opts.MaxBuckets
	}
	return &Store{cells: cells.New(int64(most))}
}

// Open returns the buckets of a policy: a [drawgate.Limiter] decides plain takes of one bucket in
// them directly.
func (s *Store) Open(tenant string, plan *store.Plan) *cells.Buckets {
	return s.cells.Space(tenant, plan.Name()).Bind(store.Internal.Specs(plan, false))
}

// ready returns an error if the store is closed or the caller has given up.
func (s *Store) ready(ctx context.Context) error {
	if s.cells.Closed() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Take implements [store.Store]. It only ever waits for other takes of the same buckets.
func (s *Store) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for i := range batch {
		t := &batch[i]
		if err := t.Check(); err != nil {
			out[i] = store.Verdict{Fail: err}
			continue
		}
		err := s.with(t.Buckets, s.cells.With, func(recs []*record.Record) {
			out[i] = store.Internal.Decide(t, recs, false, s.cells.Now())
		})
		if err != nil {
			out[i] = store.Verdict{Fail: fail("take", err)}
		}
	}
	return nil
}

// Settle implements [store.Store].
func (s *Store) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for i := range batch {
		st := &batch[i]
		if err := st.Check(); err != nil {
			out[i] = store.Outcome{Err: err}
			continue
		}
		in := s.among
		if st.Op == store.OpCharge || st.Op == store.OpPause {
			in = s.cells.With
		}
		err := s.with(st.Buckets, in, func(recs []*record.Record) {
			out[i] = store.Internal.Apply(st, recs, false, s.cells.Now())
		})
		if err != nil {
			out[i] = store.Outcome{Err: fail(st.Op.String(), err)}
		}
		if st.Op == store.OpSettle || st.Op == store.OpCancel || st.Op == store.OpRefund || st.Op == store.OpUnpause {
			s.hint(st.Buckets)
		}
	}
	return nil
}

// Peek implements [store.Store].
func (s *Store) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for i := range buckets {
		if err := buckets[i].Check(priority); err != nil {
			out[i] = store.State{Verdict: store.Verdict{Fail: err}}
			continue
		}
		err := s.with(buckets[i:i+1], s.look, func(recs []*record.Record) {
			out[i] = store.Internal.Describe(&buckets[i], recs[0], nil, priority, false, s.cells.Now())
		})
		if err != nil {
			out[i] = store.State{Verdict: store.Verdict{Fail: fail("peek", err)}}
		}
	}
	return nil
}

func fail(op string, err error) error {
	if errors.Is(err, store.ErrInvalid) {
		return err
	}
	return &store.Error{Store: "memory", Op: op, Err: err}
}

// among and look are cells.Store.With without making missing buckets.
func (s *Store) among(names []cells.Named, f func([]*record.Record)) error {
	s.cells.Among(names, false, f)
	return nil
}

func (s *Store) look(names []cells.Named, f func([]*record.Record)) error {
	s.cells.Among(names, true, f)
	return nil
}

// with calls f with the records of the buckets, in the order of buckets. in locks all of them.
func (s *Store) with(buckets []store.BucketCost, in func([]cells.Named, func([]*record.Record)) error,
	f func([]*record.Record),
) error {
	order := make([]int, len(buckets))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return name(buckets[a].Key).Compare(name(buckets[b].Key)) })
	names := make([]cells.Named, len(buckets))
	for k, i := range order {
		names[k] = cells.Named{Name: name(buckets[i].Key), Specs: store.Internal.Specs(buckets[i].Plan, false)}
	}
	return in(names, func(sorted []*record.Record) {
		recs := make([]*record.Record, len(sorted))
		for k, i := range order {
			recs[i] = sorted[k]
		}
		f(recs)
	})
}

func name(k store.Key) cells.Name { return cells.Name(k) }

// Reset implements [store.Resetter].
func (s *Store) Reset(ctx context.Context, keys []store.Key) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for _, k := range keys {
		s.cells.Reset(name(k))
		s.hint([]store.BucketCost{{Key: k}})
	}
	return nil
}

// List implements [store.Lister].
func (s *Store) List(ctx context.Context, tenant, policy string, yield func(store.Key) bool) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.cells.List(tenant, policy, func(name string) bool {
		return ctx.Err() == nil && yield(store.Key{Tenant: tenant, Policy: policy, Name: name})
	})
	return ctx.Err()
}

// Ping implements [store.Pinger].
func (s *Store) Ping(ctx context.Context) error { return s.ready(ctx) }

// Close implements [store.Store]. Running calls finish first.
func (s *Store) Close() error {
	s.cells.Close()
	return nil
}
