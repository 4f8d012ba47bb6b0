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

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/answer"
	"github.com/drawgate/drawgate/internal/cells"
	"github.com/drawgate/drawgate/internal/record"
)

// Options holds the optional settings of a Store. The zero value is ready to use.
type Options struct {
	// MaxBuckets is the largest number of buckets in use at once: 0 means 10 million. Takes that
	// need another bucket are refused with a [drawgate.StoreError]; no bucket that still limits is
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
}

var (
	_ drawgate.Store    = (*Store)(nil)
	_ answer.Opener     = (*Store)(nil)
	_ drawgate.Resetter = (*Store)(nil)
	_ drawgate.Lister   = (*Store)(nil)
	_ drawgate.Pinger   = (*Store)(nil)
	_ drawgate.Watcher  = (*Store)(nil)
)

// New returns an empty store. opts may be nil.
func New(opts *Options) *Store {
	most := 10_000_000
	if opts != nil && opts.MaxBuckets > 0 {
		most = opts.MaxBuckets
	}
	return &Store{cells: cells.New(int64(most))}
}

// Open implements [answer.Opener].
func (s *Store) Open(tenant string, plan *drawgate.Plan) *cells.Buckets {
	return s.cells.Space(tenant, plan.Name()).Bind(answer.Specs(plan, false))
}

// ready returns an error if the store is closed or the caller has given up.
func (s *Store) ready(ctx context.Context) error {
	if s.cells.Closed() {
		return drawgate.ErrClosed
	}
	return ctx.Err()
}

// Take implements [drawgate.Store]. It only ever waits for other takes of the same buckets.
func (s *Store) Take(ctx context.Context, batch []drawgate.Take, out []drawgate.Decision) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for i := range batch {
		t := &batch[i]
		if err := answer.Check(t); err != nil {
			out[i] = drawgate.Decision{Fail: err}
			continue
		}
		err := s.with(t.Buckets, s.cells.With, func(recs []*record.Record) {
			out[i] = answer.Decide(t, recs, false, s.cells.Now())
		})
		if err != nil {
			out[i] = drawgate.Decision{Fail: fail("take", err)}
		}
	}
	return nil
}

// Settle implements [drawgate.Store].
func (s *Store) Settle(ctx context.Context, batch []drawgate.Settlement, out []drawgate.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for i := range batch {
		st := &batch[i]
		if err := answer.CheckSettlement(st); err != nil {
			out[i] = drawgate.Outcome{Err: err}
			continue
		}
		in := s.among
		if st.Op == drawgate.OpCharge || st.Op == drawgate.OpPause {
			in = s.cells.With
		}
		err := s.with(st.Buckets, in, func(recs []*record.Record) {
			out[i] = answer.Apply(st, recs, false, s.cells.Now())
		})
		if err != nil {
			out[i] = drawgate.Outcome{Err: fail(st.Op.String(), err)}
		}
		if st.Op == drawgate.OpSettle || st.Op == drawgate.OpCancel || st.Op == drawgate.OpRefund || st.Op == drawgate.OpUnpause {
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
		if err := answer.CheckPeek(&buckets[i], priority); err != nil {
			out[i] = drawgate.Status{Decision: drawgate.Decision{Fail: err}}
			continue
		}
		err := s.with(buckets[i:i+1], s.look, func(recs []*record.Record) {
			out[i] = answer.Describe(&buckets[i], recs[0], priority, false, s.cells.Now())
		})
		if err != nil {
			out[i] = drawgate.Status{Decision: drawgate.Decision{Fail: fail("peek", err)}}
		}
	}
	return nil
}

func fail(op string, err error) error {
	if errors.Is(err, drawgate.ErrInvalid) {
		return err
	}
	return &drawgate.StoreError{Store: "memory", Op: op, Err: err}
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
func (s *Store) with(buckets []drawgate.BucketCost, in func([]cells.Named, func([]*record.Record)) error, f func([]*record.Record)) error {
	order := make([]int, len(buckets))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return name(buckets[a].Key).Compare(name(buckets[b].Key)) })
	names := make([]cells.Named, len(buckets))
	for k, i := range order {
		names[k] = cells.Named{Name: name(buckets[i].Key), Specs: answer.Specs(buckets[i].Plan, false)}
	}
	return in(names, func(sorted []*record.Record) {
		recs := make([]*record.Record, len(sorted))
		for k, i := range order {
			recs[i] = sorted[k]
		}
		f(recs)
	})
}

func name(k drawgate.Key) cells.Name { return cells.Name(k) }

// Reset implements [drawgate.Resetter].
func (s *Store) Reset(ctx context.Context, keys []drawgate.Key) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for _, k := range keys {
		s.cells.Reset(name(k))
		s.hint([]drawgate.BucketCost{{Key: k}})
	}
	return nil
}

// List implements [drawgate.Lister].
func (s *Store) List(ctx context.Context, tenant, policy string, yield func(drawgate.Key) bool) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.cells.List(tenant, policy, func(name string) bool {
		return ctx.Err() == nil && yield(drawgate.Key{Tenant: tenant, Policy: policy, Name: name})
	})
	return ctx.Err()
}

// Ping implements [drawgate.Pinger].
func (s *Store) Ping(ctx context.Context) error { return s.ready(ctx) }

// Close implements [drawgate.Store]. Running calls finish first.
func (s *Store) Close() error {
	s.cells.Close()
	return nil
}
