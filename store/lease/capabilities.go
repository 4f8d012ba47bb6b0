package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/drawgate/drawgate/store"
)

// Settle implements [store.Store]. Whoever pauses a bucket has what is held of it given back first;
// so nothing is spent of it in this process once the pause is answered.
func (s *Store) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	var keys []store.Key
	for i := range batch {
		if op := batch[i].Op; op == store.OpPause || op == store.OpUnpause {
			for k := range batch[i].Buckets {
				keys = append(keys, batch[i].Buckets[k].Key)
			}
		}
	}
	if keys == nil {
		return s.inner.Settle(ctx, batch, out)
	}
	s.giveBack(ctx, keys)
	err := s.inner.Settle(ctx, batch, out)
	s.giveBack(ctx, keys) // what was asked for meanwhile
	return err
}

// giveBack gives back what is held of some buckets, and waits until the store has been told.
func (s *Store) giveBack(ctx context.Context, keys []store.Key) {
	for _, e := range s.keys.all(keys) {
		e.giveBack(false)
	}
	s.give.wait(ctx)
}

// Peek implements [store.Store]: the store's answer. What processes have leased counts as used.
func (s *Store) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	return s.inner.Peek(ctx, buckets, priority, out)
}

// Withdraw implements [store.Liner], with that of the store behind it. Where that keeps no line
// there is nothing to do.
func (s *Store) Withdraw(ctx context.Context, number uint64, keys []store.Key) error {
	if l, ok := s.inner.(store.Liner); ok {
		return l.Withdraw(ctx, number, keys)
	}
	return nil
}

// KeepsLine implements [store.Liner].
func (s *Store) KeepsLine() bool {
	l, ok := s.inner.(store.Liner)
	return ok && l.KeepsLine()
}

// Index implements [store.Indexer], with that of the store behind it. Where that is none there is
// nothing to do.
func (s *Store) Index(ctx context.Context, keep time.Duration, keys []store.Key) error {
	if x, ok := s.inner.(store.Indexer); ok {
		return x.Index(ctx, keep, keys)
	}
	return nil
}

// KeepsDocuments implements [store.Documents].
func (s *Store) KeepsDocuments() bool {
	d, ok := s.inner.(store.Documents)
	return ok && d.KeepsDocuments()
}

// ReadDocuments implements [store.Documents], with that of the store behind it.
func (s *Store) ReadDocuments(ctx context.Context, collection string, names []string) ([]store.Document, error) {
	if d, ok := s.inner.(store.Documents); ok {
		return d.ReadDocuments(ctx, collection, names)
	}
	return nil, errNoDocuments
}

// WriteDocuments implements [store.Documents], with that of the store behind it.
func (s *Store) WriteDocuments(ctx context.Context, collection string, was store.Document, docs []store.Document,
) (done bool, err error) {
	if d, ok := s.inner.(store.Documents); ok {
		return d.WriteDocuments(ctx, collection, was, docs)
	}
	return false, errNoDocuments
}

var errNoDocuments = fmt.Errorf("%w: the store cannot keep documents", store.ErrInvalid)

// Ping implements [store.Pinger], with that of the store behind it.
func (s *Store) Ping(ctx context.Context) error {
	if p, ok := s.inner.(store.Pinger); ok {
		return p.Ping(ctx)
	}
	return ctx.Err()
}

// defaultTime is what a store needs that does not say it, as a guard has it.
const defaultTime = 40 * time.Millisecond

// TakeTime implements [store.Timed], with that of the store behind it.
func (s *Store) TakeTime(set time.Duration) time.Duration {
	if t, ok := s.inner.(store.Timed); ok {
		return t.TakeTime(set)
	}
	if set <= 0 {
		return defaultTime
	}
	return set
}

// Watch implements [store.Watcher], with that of the store behind it.
func (s *Store) Watch(keys chan<- store.Key) (stop func()) {
	if w, ok := s.inner.(store.Watcher); ok {
		return w.Watch(keys)
	}
	return func() {}
}

// Full returns the store with the optional interfaces of the store behind it: whichever of
// [store.Resetter], [store.Lister] and [store.Journal] that one has. Limiters and servers check for
// these interfaces, so pass them this value. What lets a limiter decide by the memory of its own
// process is never offered, because it would bypass the leases.
func (s *Store) Full() store.Store {
	r, reset := s.inner.(store.Resetter)
	l, list := s.inner.(store.Lister)
	j, journal := s.inner.(store.Journal)
	switch mine := (resetter{s, r}); {
	case reset && list && journal:
		return struct {
			*Store
			resetter
			store.Lister
			store.Journal
		}{s, mine, l, j}
	case reset && list:
		return struct {
			*Store
			resetter
			store.Lister
		}{s, mine, l}
	case reset && journal:
		return struct {
			*Store
			resetter
			store.Journal
		}{s, mine, j}
	case list && journal:
		return struct {
			*Store
			store.Lister
			store.Journal
		}{s, l, j}
	case reset:
		return struct {
			*Store
			resetter
		}{s, mine}
	case list:
		return struct {
			*Store
			store.Lister
		}{s, l}
	case journal:
		return struct {
			*Store
			store.Journal
		}{s, j}
	}
	return s
}

type resetter struct {
	s     *Store
	inner store.Resetter
}

// Reset implements [store.Resetter]. What this process holds is given back first. Leases of other
// processes are spent until they end.
func (r resetter) Reset(ctx context.Context, keys []store.Key) error {
	r.s.giveBack(ctx, keys)
	err := r.inner.Reset(ctx, keys)
	r.s.giveBack(ctx, keys)
	return err
}
