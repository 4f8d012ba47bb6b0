package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/drawgate/drawgate/store"
)

// Full returns the guard with the optional interfaces of the store behind it: whichever of
// [store.Resetter], [store.Lister] and [store.Journal] the store had when Full was called.
// Limiters and servers check for these interfaces, so pass them this value.
// During an outage these methods return a [store.Error]: they have no fallback.
// What lets a limiter decide by the memory of its own process is never offered, because it would
// bypass the guard.
func (s *Store) Full() store.Store {
	inner := s.store()
	_, reset := inner.(store.Resetter)
	_, list := inner.(store.Lister)
	_, journal := inner.(store.Journal)
	r, l, j := resetter{s}, lister{s}, reader{s}
	switch {
	case reset && list && journal:
		return struct {
			*Store
			resetter
			lister
			reader
		}{s, r, l, j}
	case reset && list:
		return struct {
			*Store
			resetter
			lister
		}{s, r, l}
	case reset && journal:
		return struct {
			*Store
			resetter
			reader
		}{s, r, j}
	case list && journal:
		return struct {
			*Store
			lister
			reader
		}{s, l, j}
	case reset:
		return struct {
			*Store
			resetter
		}{s, r}
	case list:
		return struct {
			*Store
			lister
		}{s, l}
	case journal:
		return struct {
			*Store
			reader
		}{s, j}
	}
	return s
}

// through calls f unless the store is unavailable. That it did not answer in time says nothing
// about it: the caller says how long a list of all buckets may take, or a note that can wait.
func (s *Store) through(ctx context.Context, op string, f func(context.Context) error) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if s.open.Load() {
		return s.unavailable(op)
	}
	return s.attempt(ctx, ctx, op, false, f)
}

// Withdraw implements [store.Liner]. Where the store keeps no line, or is unavailable, there is
// nothing to do: tickets end by themselves.
func (s *Store) Withdraw(ctx context.Context, number uint64, keys []store.Key) error {
	inner, ok := s.store().(store.Liner)
	if !ok {
		return nil
	}
	return s.through(ctx, "withdraw", func(ctx context.Context) error { return inner.Withdraw(ctx, number, keys) })
}

// KeepsLine implements [store.Liner]. During an outage nobody keeps one.
func (s *Store) KeepsLine() bool {
	l, ok := s.store().(store.Liner)
	return ok && !s.open.Load() && l.KeepsLine()
}

// Index implements [store.Indexer]. Where the store is none there is nothing to do.
func (s *Store) Index(ctx context.Context, keep time.Duration, keys []store.Key) error {
	inner, ok := s.store().(store.Indexer)
	if !ok {
		return nil
	}
	return s.through(ctx, "index", func(ctx context.Context) error { return inner.Index(ctx, keep, keys) })
}

// KeepsDocuments implements [store.Documents].
func (s *Store) KeepsDocuments() bool {
	d, ok := s.store().(store.Documents)
	return ok && d.KeepsDocuments()
}

// ReadDocuments implements [store.Documents]. It has no fallback.
func (s *Store) ReadDocuments(ctx context.Context, collection string, names []string) (list []store.Document,
	err error,
) {
	inner, ok := s.store().(store.Documents)
	if !ok {
		return nil, errLacks("keep documents")
	}
	err = s.through(ctx, "read", func(ctx context.Context) (err error) {
		list, err = inner.ReadDocuments(ctx, collection, names)
		return err
	})
	return list, err
}

// WriteDocuments implements [store.Documents]. It has no fallback.
func (s *Store) WriteDocuments(ctx context.Context, collection string, was store.Document, docs []store.Document,
) (done bool, err error) {
	inner, ok := s.store().(store.Documents)
	if !ok {
		return false, errLacks("keep documents")
	}
	err = s.through(ctx, "write", func(ctx context.Context) (err error) {
		done, err = inner.WriteDocuments(ctx, collection, was, docs)
		return err
	})
	return done, err
}

// errLacks is the error if the store was replaced by one that cannot do this.
func errLacks(what string) error {
	return fmt.Errorf("%w: the store cannot %s", store.ErrInvalid, what)
}

type resetter struct{ s *Store }

// Reset implements [store.Resetter]. It also forgets what is pending for these buckets.
func (r resetter) Reset(ctx context.Context, keys []store.Key) error {
	inner, ok := r.s.store().(store.Resetter)
	if !ok {
		return errLacks("reset buckets")
	}
	err := r.s.through(ctx, "reset", func(ctx context.Context) error { return inner.Reset(ctx, keys) })
	if err == nil {
		r.s.mu.Lock()
		r.s.ledger.Forget(keys)
		r.s.mu.Unlock()
	}
	return err
}

type lister struct{ s *Store }

// List implements [store.Lister].
func (l lister) List(ctx context.Context, tenant, policy string, yield func(store.Key) bool) error {
	inner, ok := l.s.store().(store.Lister)
	if !ok {
		return errLacks("list buckets")
	}
	return l.s.through(ctx, "list", func(ctx context.Context) error { return inner.List(ctx, tenant, policy, yield) })
}

type reader struct{ s *Store }

// Read implements [store.Journal].
func (r reader) Read(ctx context.Context, want store.EventQuery, yield func(store.Event) bool) error {
	inner, ok := r.s.store().(store.Journal)
	if !ok {
		return errLacks("keep a history")
	}
	return r.s.through(ctx, "read", func(ctx context.Context) error { return inner.Read(ctx, want, yield) })
}
