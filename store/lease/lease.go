package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/store"
)

// Options holds the optional settings of a Store. The zero value is ready to use.
type Options struct {
	// MaxKeys is how many buckets have leases at once: 0 means 100,000. Takes of others go straight
	// to the store. One takes about 3 KB.
	MaxKeys int
}

// Store decides takes of leased policies in this process, and sends all others to the store behind
// it. It is safe for concurrent use. Use [Store.Full] to keep the optional interfaces of the store
// behind it.
type Store struct {
	inner store.Store
	most  int64
	clock clock
	keys  keys
	give  give
	stats counters

	ctx    context.Context //nolint:containedctx // of the calls for leases, which are nobody's alone
	cancel context.CancelFunc

	ended   chan struct{} // closed once Close has ended what is under way
	closing sync.RWMutex
	closed  bool           // guarded by closing
	calls   sync.WaitGroup // for leases
}

type counters struct{ local, through, calls, entries atomic.Int64 }

var (
	_ store.Store   = (*Store)(nil)
	_ store.Pinger  = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
	_ store.Timed   = (*Store)(nil)
	_ store.Liner   = (*Store)(nil)
)

// New returns a store that decides locally what it can, in front of inner, which it owns and
// closes. opts may be nil. Put it in front of a guard, not behind one. A memory store needs no
// leases: it is faster by itself.
func New(inner store.Store, opts *Options) *Store {
	s := &Store{inner: inner, most: 100_000, clock: newClock(), ended: make(chan struct{})}
	if opts != nil && opts.MaxKeys > 0 {
		s.most = int64(opts.MaxKeys)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.give.s = s
	s.keys.init()
	return s
}

// begin registers a call for a lease, unless the store is closed.
func (s *Store) begin() bool {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed {
		return false
	}
	s.calls.Add(1)
	return true
}

// closeTime is how long Close waits for what is given back.
const closeTime = time.Second

// Close gives back what is held, for up to a second, and closes the store behind it. What could not
// be given back counts as used when its lease ends.
func (s *Store) Close() error {
	s.closing.Lock()
	was := s.closed
	s.closed = true
	s.closing.Unlock()
	if was {
		<-s.ended
	} else {
		s.finish()
	}
	return s.inner.Close()
}

// finish ends all leases, and what is under way.
func (s *Store) finish() {
	defer close(s.ended)
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	for _, e := range s.keys.all(nil) {
		e.giveBack(true)
	}
	defer context.AfterFunc(ctx, s.cancel)()
	s.calls.Wait()
	s.give.wait(context.Background())
	s.cancel()
}

// State describes a Store.
type State struct {
	Keys    int64 // buckets that are asked for often
	Local   int64 // takes that were decided in this process since it was made
	Through int64 // takes of leased policies that went straight to the store
	Calls   int64 // of the store, for leases and for these takes
}

// State returns the store's state.
func (s *Store) State() State {
	return State{
		Keys: s.stats.entries.Load(), Local: s.stats.local.Load(), Through: s.stats.through.Load(),
		Calls: s.stats.calls.Load(),
	}
}
