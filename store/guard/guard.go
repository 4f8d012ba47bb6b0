package guard

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/internal/breaker"
	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/store"
)

// Options holds the optional settings of a Store. The zero value is ready to use.
type Options struct {
	// Instances is the number of processes that share the limits. Each gets that fraction of a
	// limit whose fallback is share. 0 means that the number is unknown: then the default fallback
	// is FallbackClosed, and a share is nothing. If only this process uses the store, it is 1.
	Instances int
	// CountInstances counts the guards that share the store: each holds a slot in a bucket of the
	// policy "drawgate:instances". A share is divided by the largest number seen in the last five
	// minutes of contact, and at least by Instances. A process that had been in contact for less
	// than 40 s before the outage admits no share. docs/fallback.md has the rule and its worst
	// case.
	CountInstances bool
	// CountInCalls renews the slot once a minute, and within a take if it is due: for a store that
	// charges for each call, and for processes that stand still between calls, such as functions of
	// AWS Lambda. That take, and those that come meanwhile, wait for the renewal, at most for
	// Timeout. The 40 s are then at least two minutes.
	CountInCalls bool

	// Timeout is how long a caller waits for the store, all attempts included. 0 means what the
	// store needs (see [store.Timed]): 1s for DynamoDB, 500ms for SQLite and PostgreSQL, and
	// otherwise 40ms, so that Allow answers within 50 ms. A caller with an earlier deadline is
	// answered shortly before that deadline.
	Timeout time.Duration

	// Failures is how many failures in a row open the breaker. 0 means 3.
	Failures int

	// Start says how policies start that do not say it themselves: what the process admits of a
	// bucket that it first sees during an outage. StartDefault means StartClosed. With StartFull
	// each start during an outage admits a share again.
	Start store.Start
	// Owner reports whether this process alone uses the store, so that policies may start full.
	// Otherwise they start cold. nil means that they may: whoever sets StartFull vouches for it. It
	// is called during an outage, while takes wait: it must be quick, and must not call the store.
	Owner func() bool

	// NoRecovery leaves lost what a store lost that keeps histories of its buckets, as Redis may
	// in a fail-over: see [store.Historian]. Otherwise the guard charges and opens again what its
	// process was admitted. docs/fallback.md says what comes back.
	NoRecovery bool

	MaxBuckets int // most buckets that are recorded: 0 means a million. A bucket without room has no share
	// most reservations and settlements that are kept: 0 means 100,000. Without room, no
	// reservations are given during an outage
	MaxHeld int

	// shortest time between warnings of one cause: 0 means 5 minutes. Negative: no warnings of
	// outages, because an Observer gives them; that time, at least 1s, is then between those of
	// recoveries, and -1 means 5 minutes
	WarnEvery time.Duration
	Observer  *Observer    // receives the guard's events; nil costs nothing
	Logger    *slog.Logger // nil discards

	random func() float64 // for tests: in [0, 1)
}

const (
	defaultTimeout = 40 * time.Millisecond
	firstPause     = 100 * time.Millisecond // before the store is tried again
	lastPause      = time.Second
)

// Store is a guarded store. Take, Peek and Settle answer within Timeout even if the store behind it
// does not. It is safe for concurrent use.
// It runs a goroutine, which Close ends. Use [Store.Full] to keep the optional interfaces of the
// store behind it.
type Store struct {
	opts    Options
	timeout time.Duration
	clock   clock
	sharing sharing
	news    *reporter
	hasty   sync.Once // the warning that a limiter has less time
	hints   watchers

	inner atomic.Pointer[store.Store]

	// the only lock that may be held while another (of news or hints) is taken; never held while
	// the store is called
	mu        sync.Mutex
	ledger    *ledger.Ledger   // guarded by mu
	delivered chan struct{}    // guarded by mu: closed when the delivery that is running, or about to start, has ended
	brk       *breaker.Breaker // guarded by mu
	fault     *store.Error     // guarded by mu: the last failure

	open   atomic.Bool   // copy of brk's state: callers are not sent to the store
	epoch  atomic.Uint64 // copy of brk's epoch
	shaky  atomic.Bool   // an attempt failed since the last one that succeeded
	closed atomic.Bool
	woken  chan struct{} // holds a token when there is work for the goroutine
	quit   chan struct{} // closed when the guard is
	done   chan struct{} // closed when its goroutine has ended
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Pinger  = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
	_ store.Timed   = (*Store)(nil)
	_ store.Liner   = (*Store)(nil)
)

// New returns a guard for store. The guard owns the store and closes it. opts may be nil.
// A memory store needs no guard: it is always available, and behind a guard a limiter cannot use
// its fast path.
func New(inner store.Store, opts *Options) *Store {
	s := &Store{woken: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	if opts != nil {
		s.opts = *opts
	}
	s.inner.Store(&inner)
	if s.opts.random == nil {
		s.opts.random = rand.Float64
	}
	s.timeout = max(0, s.opts.Timeout)
	if t, ok := inner.(store.Timed); ok {
		s.timeout = t.TakeTime(s.timeout)
	}
	s.timeout = cmp.Or(s.timeout, defaultTimeout)
	s.ledger = ledger.New(ledger.Options{
		Instances: s.sharing.share, AtLeast: s.opts.Instances, Start: s.opts.Start, Full: s.opts.Owner,
		Recovers:   s.recovers,
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

// TakeTime implements [store.Timed]: a caller waits for Timeout.
func (s *Store) TakeTime(set time.Duration) time.Duration {
	if set <= 0 {
		return s.timeout
	}
	if set < s.timeout {
		s.hasty.Do(func() { s.news.hasty(set, s.timeout) })
	}
	return set
}

// store returns the store that is guarded.
func (s *Store) store() store.Store { return *s.inner.Load() }

// recovers reports whether what the store loses is recovered.
func (s *Store) recovers() bool {
	if s.opts.NoRecovery {
		return false
	}
	h, ok := s.store().(store.Historian)
	return ok && h.KeepsHistory()
}

// Replace puts another store in place of the guarded one, and returns the old store, which the
// caller must close. It serves to replace a store that stays unavailable until it is repaired and
// opened again. What is pending for the old store is delivered to the new one, and a call that
// finds the old one closed is made again.
func (s *Store) Replace(store store.Store) (old store.Store) {
	was := s.inner.Swap(&store)
	s.wake()
	return *was
}

// Close ends the guard and closes the store. It tries for up to one second to deliver what is
// pending; the rest is lost.
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

// State describes a guard.
type State struct {
	Unavailable bool      // callers are not sent to the store
	Since       time.Time // start of the outage
	Err         error     // the last failure, during an outage
	Pending     int       // buckets with something pending for the store
	// something is pending for the store, or it may count twice what no decision said to be Unsure
	Undelivered bool
	// how often the store may have counted a reservation wrongly for good, though no decision said
	// to be Unsure: it was away until the hold had ended, and has forgotten it
	Miscounted uint64
	Decided    uint64 // takes that the guard decided since it was made
	Buckets    int    // buckets that are recorded

	Instances int  // processes that a share is divided by; 0: unknown
	MayShare  bool // this process may admit its share
}

// State returns the guard's state.
func (s *Store) State() State {
	s.mu.Lock()
	st := State{
		Unavailable: s.open.Load(), Pending: s.ledger.Pending(), Undelivered: s.ledger.Undelivered(),
		Decided:    s.news.decided.Load(),
		Miscounted: s.ledger.Miscounted(), Buckets: s.ledger.Len(),
	}
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

// ready returns an error if the guard is closed or the caller has given up.
func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

func (s *Store) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}
