package guard

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/breaker"
	"github.com/drawgate/drawgate/internal/ledger"
)

// Options holds what a Store can do without. The zero value is ready to use.
type Options struct {
	// Instances is the number of processes that share the limits; each gets that part of a limit
	// whose fallback is share. 0 means that nobody knows: the default is FallbackClosed then, and a
	// share is nothing. For a store that only this process uses it is 1.
	Instances int
	// CountInstances counts the guards that share the store, by a slot that each holds in a bucket
	// of the policy "drawgate:instances", and divides by the largest number of the last five
	// minutes of contact; Instances is then the least that is assumed. A process that was in
	// contact with the store for less than 40 s before the store became unavailable admits no
	// share. docs/fallback.md has the rule and what it can cost.
	CountInstances bool

	// Timeout bounds what a caller waits for the store, all attempts included: 0 means 40ms, so
	// that an Allow is answered within 50 ms. A caller whose own deadline is earlier is answered a
	// little before that.
	Timeout time.Duration

	// Failures in a row after which callers are not sent to the store any more: 0 means 3.
	Failures int

	// StartFull trusts that nothing was admitted before the process started. Without it, a bucket
	// that this process meets for the first time while the store is away is taken to have used its
	// share when the process started: otherwise each restart during an outage would hand out
	// another share.
	StartFull bool

	MaxBuckets int // most buckets that are recorded: 0 means a million. Of one for which there is no room nothing is admitted as a share
	MaxHeld    int // most reservations and settlements that are kept: 0 means 100,000. Beyond, none are given while the store is away

	WarnEvery time.Duration // at most one warning per cause in this time: 0 means 5 minutes. Negative: none of outages, where an Observer warns of them
	Observer  *Observer     // is told what happens; nil costs nothing
	Logger    *slog.Logger  // nil discards

	random func() float64 // for tests: in [0, 1)
}

const (
	defaultTimeout = 40 * time.Millisecond
	firstPause     = 100 * time.Millisecond // before the store is tried again
	lastPause      = time.Second
)

// Store is a store that always answers. It is safe for concurrent use.
//
// It has a goroutine of its own: Close ends it. Use [Store.Full] where the store behind it offers
// more than every store does.
type Store struct {
	opts    Options
	timeout time.Duration
	clock   clock
	sharing sharing
	news    *reporter
	hints   watchers

	inner atomic.Pointer[drawgate.Store]

	mu        sync.Mutex           // the only lock that is held while another (of news or hints) may be taken, and never while the store is asked
	ledger    *ledger.Ledger       // guarded by mu
	delivered chan struct{}        // guarded by mu: closed when the delivery that is under way, or about to begin, is over
	brk       *breaker.Breaker     // guarded by mu
	fault     *drawgate.StoreError // guarded by mu: the last failure

	open   atomic.Bool   // of brk: callers do not go to the store
	epoch  atomic.Uint64 // of brk
	shaky  atomic.Bool   // an attempt failed since the last one that succeeded
	closed atomic.Bool
	woken  chan struct{} // holds a token when there is something to do in the background
	quit   chan struct{} // closed when the guard is
	done   chan struct{} // closed when its goroutine has ended
}

var (
	_ drawgate.Store   = (*Store)(nil)
	_ drawgate.Pinger  = (*Store)(nil)
	_ drawgate.Watcher = (*Store)(nil)
)

// New returns a guard before store, which from then on is the guard's to close. opts may be nil.
//
// A store in memory needs none: it is never away, and a guard keeps a limiter from using it
// directly.
func New(store drawgate.Store, opts *Options) *Store {
	s := &Store{woken: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	if opts != nil {
		s.opts = *opts
	}
	s.inner.Store(&store)
	if s.opts.random == nil {
		s.opts.random = rand.Float64
	}
	s.timeout = cmp.Or(max(0, s.opts.Timeout), defaultTimeout)
	s.ledger = ledger.New(ledger.Options{
		Instances: s.sharing.share, StartFull: s.opts.StartFull,
		MaxEntries: cmp.Or(max(0, s.opts.MaxBuckets), 1_000_000), MaxHeld: cmp.Or(max(0, s.opts.MaxHeld), 100_000),
	})
	s.delivered = make(chan struct{})
	s.clock.init()
	s.news = newReporter(&s.opts)
	s.brk = breaker.New(cmp.Or(max(0, s.opts.Failures), 3), firstPause, lastPause)
	s.news.started(&s.opts)
	s.sharing.start(&s.opts, s.store, s.news.uncounted)
	go s.run()
	return s
}

// store returns the store that is guarded.
func (s *Store) store() drawgate.Store { return *s.inner.Load() }

// Replace puts another store in the place of the one that is guarded, and returns that one, which
// is the caller's to close. It is for a store that stays away until it is repaired and opened
// again. What the old one has yet to be told is told to the new one.
func (s *Store) Replace(store drawgate.Store) (old drawgate.Store) {
	was := s.inner.Swap(&store)
	s.wake()
	return *was
}

// Close ends the guard and closes the store. What the store has yet to be told is told now, if that
// can be done within a second, and otherwise lost.
func (s *Store) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		<-s.done
		return nil
	}
	close(s.quit)
	<-s.done
	s.sharing.close()
	s.deliverLast()
	return s.store().Close()
}

// State is how a guard is.
type State struct {
	Unavailable bool      // callers are not sent to the store
	Since       time.Time // since when, if it is away
	Err         error     // the last failure, if it is away
	Pending     int       // buckets of which the store has yet to be told something
	Decided     uint64    // takes that were decided here, since the guard was made
	Buckets     int       // buckets that are recorded

	Instances int  // processes that a limit is divided by for a share; 0: nobody knows
	MayShare  bool // this process may admit its share
}

// State returns how the guard is.
func (s *Store) State() State {
	s.mu.Lock()
	st := State{Unavailable: s.open.Load(), Pending: s.ledger.Pending(), Decided: s.news.decided.Load(), Buckets: s.ledger.Len()}
	if st.Unavailable && s.fault != nil {
		st.Err = s.fault
	}
	s.mu.Unlock()
	st.Instances, st.MayShare = s.sharing.share()
	if st.Unavailable {
		st.Since = s.news.since()
	}
	return st
}

// ready says why nothing is decided: the guard is closed, or the caller has given up.
func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return drawgate.ErrClosed
	}
	return ctx.Err()
}

func (s *Store) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}
