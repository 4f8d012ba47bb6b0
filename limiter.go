package drawgate

import (
	"fmt"
	"time"

	"github.com/drawgate/drawgate/internal/cells"
	"github.com/drawgate/drawgate/store"
)

// Times that a caller may spend on the store.
const (
	defaultTimeout = 50 * time.Millisecond // Allow, all of it, if the store does not say what it needs
	answerTime     = 10 * time.Millisecond // for the answer, beyond what the store needs
	stepTimeout    = 2 * time.Second       // one store call of Wait, Reserve, Settle, Status, Reset, at least
)

// Options holds what a Limiter can do without. The zero value is ready to use.
type Options struct {
	Tenant   string    // a part of every key, so that tenants share nothing; "" is a tenant too; at most 256 bytes
	Observer *Observer // is notified of every decision; nil costs nothing
	// StoreTimeout bounds Allow, AllowUpTo, Book, and a Take without Wait, all attempts included. 0
	// means what the store needs (see [store.Timed]), or 50ms; negative: only the context does.
	// Other calls have 2s per attempt, or as long as that if it is longer; what has an id, such as
	// a settlement, three attempts.
	StoreTimeout time.Duration
}

// Limiter decides takes under one policy. It is safe for concurrent use.
//
// [Limiter.Allow] answers now, and [Limiter.Wait] waits in a fair queue. [Limiter.Reserve] holds an
// estimate until it is settled, for slots and costs that are only known afterwards. [Limiter.Take]
// has all options. Limiters made with [Limiter.With] share a store and a queue, and may be mixed in
// one take.
type Limiter struct {
	store   store.Store
	local   *cells.Buckets // nil: the store does I/O
	held    holder         // nil: it holds nothing in this process
	plan    *Plan
	tenant  string
	timeout time.Duration // 0: none
	step    time.Duration // for one store call of what waits or has an id
	one     store.Amounts // what a take without costs asks
	// local, not observed, and such a take asks for something, needs no hold and fits at priority 0
	plain bool
	near  bool // the same for held
	lean  bool // plain, and the only limit is a bucket
	queue *waitQueue
	given *abandoned // takes that callers gave up
	watch *Observer  // may be nil
}

// New returns a Limiter over s. The caller remains responsible for closing s. opts may be
// nil. It reports bad limits here, so that no later call has to.
func New(s Store, policy Policy, opts *Options) (*Limiter, error) {
	if s == nil {
		return nil, fmt.Errorf("%w: the store is nil: pass one, such as memstore.New(nil)", ErrInvalid)
	}
	if opts == nil {
		opts = &Options{}
	}
	if err := checkKey(opts.Tenant, ""); err != nil {
		return nil, err
	}
	base := &Limiter{
		store: s, tenant: opts.Tenant, timeout: opts.StoreTimeout, queue: newWaitQueue(s),
		watch: opts.Observer,
	}
	st, timed := s.(store.Timed)
	needs := time.Duration(0)
	if timed {
		needs = st.TakeTime(0) + answerTime
	}
	switch {
	case base.timeout < 0:
		base.timeout = 0
	case timed && base.timeout == 0:
		base.timeout = needs
	case timed:
		base.timeout = st.TakeTime(base.timeout)
	case base.timeout == 0:
		base.timeout = defaultTimeout
	}
	base.step = max(stepTimeout, needs, base.timeout)
	base.given = newAbandoned(base.step)
	return base.With(policy)
}

// With returns a Limiter for another policy that shares everything else.
func (l *Limiter) With(policy Policy) (*Limiter, error) {
	plan, err := policy.Compile()
	if err != nil {
		return nil, err
	}
	o := *l
	o.plan, o.local = plan, nil
	o.held, _ = l.store.(holder)
	if s, ok := l.store.(opener); ok {
		o.local = s.Open(l.tenant, plan.Plan)
	}
	o.one, _ = plan.Amounts(nil)
	o.near = o.held != nil && plan.LeaseLife(0) > 0 && o.watch == nil && plan.counts && plan.neverFits(&o.one, 0) == nil
	o.plain = o.local != nil && o.watch == nil && !plan.NeedsHold() && plan.counts && plan.neverFits(&o.one, 0) == nil
	o.lean = o.plain && len(plan.specs) == 1 && policy.Limits[0].Kind == Bucket
	return &o, nil
}

// Plan returns the policy as it was checked.
func (l *Limiter) Plan() *Plan { return l.plan }

// Close ends every wait, and refuses every later take, with ErrClosed: of l and of all limiters
// that were made from each other with [Limiter.With]. Takes that callers gave up are cancelled
// first, in two seconds at most. Everything but takes works until the store is closed, which is
// the caller's: reservations can be settled. A program that ends need not close a Limiter.
func (l *Limiter) Close() error {
	l.queue.close()
	l.given.close()
	return nil
}
