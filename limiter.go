package drawgate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drawgate/drawgate/internal/cells"
	"github.com/drawgate/drawgate/store"
)

// Times that a caller may spend on the store.
const (
	defaultTimeout = 50 * time.Millisecond // Allow, all of it, if the store does not say what it needs
	answerTime     = 10 * time.Millisecond // for the answer, beyond what the store needs
	stepTimeout    = 2 * time.Second       // one store call of Wait, Reserve, Settle, Status, Reset
)

// Options holds what a Limiter can do without. The zero value is ready to use.
type Options struct {
	Tenant   string    // a part of every key, so that tenants share nothing; "" is a tenant too; at most 256 bytes
	Observer *Observer // is notified of every decision; nil costs nothing
	// StoreTimeout bounds an Allow, all attempts included: 0 means what the store needs (see
	// [store.Timed]), or 50ms if it does not say; negative means that only the caller's context
	// bounds it. A Reserve that does not wait is bounded like an Allow. A store in memory needs
	// none.
	StoreTimeout time.Duration
}

// Limiter decides takes under one policy. It is safe for concurrent use.
//
// [Limiter.Allow] answers now, and [Limiter.Wait] waits in a fair queue. If the cost is only known
// afterwards, or slots are counted, [Limiter.Reserve] holds an estimate until it is settled.
// [Limiter.Take] has all options: several buckets, priorities, labels. Limiters made with
// [Limiter.With] share a store and a queue, and may be mixed in one take.
type Limiter struct {
	store   store.Store
	local   *cells.Buckets // nil: the store does I/O
	plan    *Plan
	tenant  string
	timeout time.Duration // 0: none
	one     store.Amounts // what a take without costs asks
	// local, not observed, and such a take asks for something, needs no hold and fits at priority 0
	plain bool
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
		given: newAbandoned(), watch: opts.Observer,
	}
	st, timed := s.(store.Timed)
	switch {
	case base.timeout < 0:
		base.timeout = 0
	case timed && base.timeout == 0:
		base.timeout = st.TakeTime(0) + answerTime
	case timed:
		base.timeout = st.TakeTime(base.timeout)
	case base.timeout == 0:
		base.timeout = defaultTimeout
	}
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
	if s, ok := l.store.(opener); ok {
		o.local = s.Open(l.tenant, plan.Plan)
	}
	o.one, _ = plan.Amounts(nil)
	o.plain = o.local != nil && o.watch == nil && !plan.NeedsHold() && plan.counts && plan.neverFits(&o.one, 0) == nil
	o.lean = o.plain && len(plan.specs) == 1 && policy.Limits[0].Kind == Bucket
	return &o, nil
}

// Plan returns the policy as it was checked.
func (l *Limiter) Plan() *Plan { return l.plan }

// Close ends every wait, and refuses every later take, with ErrClosed: of l and of all limiters
// that were made from each other with [Limiter.With]. Takes that callers gave up are cancelled
// first, in two seconds at most. The store stays open: close it afterwards. Until then reservations
// can be settled, cancelled and renewed, and buckets looked at. A program that ends need not close
// a Limiter.
func (l *Limiter) Close() error {
	l.queue.close()
	l.given.close()
	return nil
}

// Request is a take with all its options: see [Limiter.Take].
type Request struct {
	Buckets  []Ask   // 1 to 64 different ones: all or nothing
	Wait     bool    // wait in the queue until the take fits
	Priority int     // 0 to MaxPriority: higher ones are served first, and a limit may keep a share for them
	Labels   []Label // for the store's history: a task's type, its id
	Hold     Hold    // zero: a plain take. Otherwise the units are held, and the take makes a [Reservation]

	// RefreshLimiter tells a take that waits which limiter counts its bucket i by now, before each
	// attempt: see [Limiter.WakeAll]. nil leaves it unchanged; so does a limiter whose policy has
	// another name or other limits; amounts and the like may differ.
	RefreshLimiter func(i int) *Limiter
}

// Hold says how the units of a [Request] are held.
type Hold struct {
	For   time.Duration // MinHold to MaxHold
	Lease bool          // the units do not age while held, and may be granted in part: see [Decision.Granted]

	ID string // names the reservation; "" makes a random one; it may be used again once its reservation is over
	// Grant is the take's number; it needs an ID. 0 makes a random one. A take whose id and grant
	// are still open is answered again: see [Grant]. A take whose Grant you choose is not cancelled
	// for you if its answer is lost: send it again, or cancel it with [Limiter.Resume].
	Grant Grant
}

// Bounds of what is held.
const (
	MinHold = time.Millisecond
	MaxHold = 31 * 24 * time.Hour
	maxID   = 128 // bytes
)

// Allow decides now: may this take of key pass? Without costs it asks for one request; a policy
// without a limit of requests needs costs; without them the error is ErrUnknownUnit. A cost of 0
// counts as a cost.
//
// A refusal is a Decision, not an error; it costs nothing. The error is ErrNeverFits,
// ErrUnknownUnit, ErrInvalid or ErrNeedsReserve if the request itself is wrong, ErrClosed, ctx's
// error, or a *[StoreError] if the store could not decide (the Decision is then not Allowed). Where
// others wait for the bucket the answer is a refusal with the reason [Queued].
func (l *Limiter) Allow(ctx context.Context, key string, costs ...Cost) (d Decision, err error) {
	if !l.plain || len(costs) != 0 || len(key) > longKey || !l.queue.idle() || ctx.Err() != nil {
		return l.allow(ctx, key, costs)
	}
	if l.lean && d.lean(l.local, l.plan, key, l.one[0], 0) {
		return d, nil
	}
	err = d.local(l.local, l.plan, key, &l.one, 0)
	return d, err
}

// allow is the long way: apart, so that the short one stays short.
func (l *Limiter) allow(ctx context.Context, key string, costs []Cost) (Decision, error) {
	d, _, err := l.Take(ctx, Request{Buckets: []Ask{{Key: key, Costs: costs}}})
	return d, err
}

// Wait is like [Limiter.Allow], but waits in the queue until the take fits: by priority and
// arrival, among the callers of this process.
//
// It ends with ErrDeadline at once if ctx's deadline (or the policy's MaxWait) could not be met
// even if everything that is held were given back now, with ErrQueueFull if too many are already
// waiting, and with ctx's error if ctx ends first. Nothing is spent then, unless the error is a
// *[GaveUpError]: the store was being asked when ctx ended.
func (l *Limiter) Wait(ctx context.Context, key string, costs ...Cost) (Decision, error) {
	d, _, err := l.Take(ctx, Request{Buckets: []Ask{{Key: key, Costs: costs}}, Wait: true})
	return d, err
}

// Take decides a take with all its options. A refusal is a Decision, not an error; the errors are
// those of Allow, and with r.Wait those of Wait. The Reservation is nil unless the take was allowed
// and r.Hold says how long to hold it.
func (l *Limiter) Take(ctx context.Context, r Request) (Decision, *Reservation, error) {
	if err := r.Hold.check(); err != nil {
		return Decision{}, nil, err
	}
	t, err := l.take(&r)
	if err == nil {
		err = t.fits()
	}
	if err != nil {
		return Decision{}, nil, err
	}
	d, err := l.decide(ctx, t, r.Wait)
	if err != nil || !d.Allowed || t.Hold == 0 {
		return d, nil, err
	}
	return d, l.reservation(t, d), nil
}

// decide decides now, or waits, and tells the observer.
func (l *Limiter) decide(ctx context.Context, t *take, wait bool) (d Decision, err error) {
	if t.ID != "" && !t.mine {
		defer func() { //nolint:contextcheck // the cancellation goes on when the caller has left
			if !t.lost.IsZero() && (err != nil || !d.Allowed) {
				l.given.cancel(l, t)
			}
		}()
	}
	if l.watch == nil || l.watch.Taken == nil {
		if wait {
			d, _, _, err = l.wait(ctx, t)
			return d, err
		}
		return l.try(ctx, t)
	}
	e := Taken{Take: &t.Take, Wait: wait}
	start := time.Now()
	if wait {
		d, e.QueuedAt, e.Queued, err = l.wait(ctx, t)
	} else {
		d, err = l.try(ctx, t)
	}
	e.Decision, e.Err, e.Took = &d, err, time.Since(start)
	l.watch.Taken(&e)
	return d, err
}

// take checks a request and makes the store's form of it.
func (l *Limiter) take(r *Request) (*take, error) {
	if n := len(r.Buckets); n == 0 || n > store.MaxBuckets {
		return nil, fmt.Errorf("%w: the take has %d buckets: give 1 to %d", ErrInvalid, n, store.MaxBuckets)
	}
	if err := checkPriority(r.Priority); err != nil {
		return nil, err
	}
	if err := checkLabels(r.Labels); err != nil {
		return nil, err
	}
	some, empty := false, true
	t := &take{
		Take: store.Take{
			Buckets: make([]store.BucketCost, len(r.Buckets)), Priority: int8(r.Priority),
			Labels: r.Labels,
		},
		refreshLimiter: r.RefreshLimiter,
	}
	if t.plans = t.one[:]; len(r.Buckets) > 1 {
		t.plans = make([]*Plan, len(r.Buckets))
	}
	r.Hold.of(t)
	for i := range r.Buckets {
		b := &r.Buckets[i]
		o := b.Limiter
		if o == nil {
			o = l
		}
		if o.queue != l.queue {
			return nil, errForeign
		}
		if err := checkKey(b.Tenant, b.Key); err != nil {
			return nil, err
		}
		n, err := o.plan.Amounts(b.Costs)
		if err != nil {
			return nil, err
		}
		if o.plan.NeedsHold() && t.Hold == 0 {
			return nil, fmt.Errorf("%w (policy %q)", ErrNeedsReserve, o.plan.policy.Name)
		}
		some, empty = some || n != store.Amounts{}, empty && len(b.Costs) == 0 && !o.plan.counts
		t.Buckets[i], t.plans[i] = store.BucketCost{Key: o.keyOf(b), Plan: o.plan.Plan, N: n}, o.plan
		for j := range i {
			if t.Buckets[j].Key == t.Buckets[i].Key {
				return nil, fmt.Errorf("%w: a bucket of policy %q is named twice", ErrInvalid, o.plan.policy.Name)
			}
		}
	}
	if empty {
		return nil, unnamed(t)
	}
	if t.Hold > 0 && !some {
		return nil, fmt.Errorf("%w: the hold has no units: give costs of more than 0, or leave out the hold",
			ErrInvalid)
	}
	return t, nil
}

// unnamed is the mistake of a take that asks for nothing, because it names no unit and its policies
// count others than requests.
func unnamed(t *take) error {
	var all []string
	for i := range t.plans {
		all = append(all, t.plans[i].units...)
	}
	return fmt.Errorf("%w: the take names no unit, so it would take nothing: its policies do not count requests; name a cost in %s", ErrUnknownUnit, units(all))
}

// errForeign is the mistake of mixing limiters that share nothing.
var errForeign = fmt.Errorf("%w: the limiters of one take must be made from one another, with With", ErrInvalid)

// errNoLimiter is the mistake of an Ask that was not made by Limiter.Ask, and is used by itself.
var errNoLimiter = fmt.Errorf("%w: the Ask names no Limiter", ErrInvalid)

func checkPriority(priority int) error {
	if priority < 0 || priority > MaxPriority {
		return fmt.Errorf("%w: priority %d is not between 0 and %d", ErrInvalid, priority, MaxPriority)
	}
	return nil
}

// fits returns an error if t can never be granted. Of a lease any part is welcome.
func (t *take) fits() error {
	for i := range t.Buckets {
		b := &t.Buckets[i]
		n := b.N
		if t.Lease {
			for j := range n {
				n[j] = min(n[j], 1)
			}
		}
		if err := t.plans[i].neverFits(&n, t.Priority); err != nil {
			return err
		}
	}
	return nil
}

// Bounds of labels, which a store may keep for weeks.
const (
	maxLabels = 32
	maxLabel  = 1024 // bytes, name and value together
)

func checkLabels(labels []Label) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("%w: %d labels are more than %d", ErrInvalid, len(labels), maxLabels)
	}
	for _, b := range labels {
		if len(b.Name)+len(b.Value) > maxLabel {
			return fmt.Errorf("%w: a label has more than %d bytes", ErrInvalid, maxLabel)
		}
	}
	return nil
}

// key returns the key of a bucket of this limiter's policy.
func (l *Limiter) key(name string) Key {
	return Key{Tenant: l.tenant, Policy: l.plan.policy.Name, Name: BoundedKey(name)}
}

// try decides now, behind those who wait.
func (l *Limiter) try(ctx context.Context, t *take) (Decision, error) {
	if d, refused := l.queue.queued(t); refused {
		return d, nil
	}
	return l.ask(ctx, t, l.timeout, l.timeout)
}

// once makes one store call within timeout. It notes in t if nobody knows what has come of it.
func (l *Limiter) once(ctx context.Context, t *take, timeout time.Duration) (Decision, error) {
	if ctx.Err() != nil {
		return Decision{}, t.ended(ctx, nil)
	}
	if l.queue.closed.Load() {
		return Decision{}, ErrClosed
	}
	var sent time.Time
	if t.Hold > 0 {
		sent = time.Now()
	}
	if l.local != nil && t.ID == "" && len(t.Buckets) == 1 && t.plans[0] == l.plan &&
		t.Buckets[0].Key.Tenant == l.tenant {
		b := &t.Buckets[0]
		d, err := takeLocal(l.local, l.plan, b.Key.Name, b.N, t.Priority)
		if err != nil || d.Allowed || d.RetryAfter > t.Ahead {
			return d, err
		}
	}
	var out [1]store.Verdict
	err := l.within(ctx, "take", timeout, func(ctx context.Context) error {
		if err := l.store.Take(ctx, []store.Take{t.Take}, out[:]); err != nil {
			return err
		}
		return out[0].Fail
	})
	if err != nil {
		if l.local == nil && !decided(err) && !errors.Is(err, store.ErrNothingDone) {
			t.lost = time.Now()
		}
		stored := l.storeError(ctx, "take", err)
		if over(ctx) && !decided(err) {
			stored = t.gaveUp(ctx, stored)
		}
		return Decision{}, stored
	}
	if out[0].Allowed {
		t.lost = time.Time{}
	}
	d := t.decision(&out[0])
	if t.Hold > 0 && d.more != nil {
		d.more.sent = sent
	}
	return d, nil
}

// ended says why waiting for t ended with ctx, and if nobody knows what has come of it. last may be
// nil.
func (t *take) ended(ctx context.Context, last *Decision) error {
	err := ended(ctx, last)
	if t.lost.IsZero() {
		return err
	}
	return &GaveUpError{MaySpend: t.ID == "" || t.mine, Err: err, mine: t.mine}
}

// over reports whether ctx has ended, or is about to: a store may have seen its deadline first.
func over(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}

// gaveUp is ended for a call that was running when the caller's time ran out, or when it
// left.
func (t *take) gaveUp(ctx context.Context, err error) error {
	ended := t.ended(ctx, nil)
	if g, ok := errors.AsType[*GaveUpError](ended); ok && errors.Is(ctx.Err(), context.DeadlineExceeded) &&
		errors.Is(err, ErrStoreUnavailable) {
		g.Store = err
	}
	return ended
}

// within calls the store with a deadline; a store in memory needs none.
func (l *Limiter) within(ctx context.Context, op string, timeout time.Duration,
	f func(context.Context) error,
) (err error) {
	if l.watch != nil {
		start := time.Now()
		defer func() { l.watch.called(op, start, err) }()
	}
	if l.local == nil && timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return f(ctx)
}

// decided reports whether a store's error says that certainly nothing was done.
func decided(err error) bool {
	for _, e := range [...]error{ErrClosed, ErrIDReused, ErrIDOpen, ErrInvalid, ErrTooManyOpen, ErrNeedsReserve} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// storeError makes sure that what a store reports is one of our errors.
func (l *Limiter) storeError(ctx context.Context, op string, err error) error {
	if decided(err) || errors.Is(err, ErrStoreUnavailable) {
		return err
	}
	if ctx.Err() != nil {
		return ended(ctx, nil)
	}
	return &StoreError{Store: "custom", Op: op, Err: err}
}

// Reset forgets everything about the buckets of keys, including open reservations. The error is
// ErrInvalid if the store cannot reset buckets.
func (l *Limiter) Reset(ctx context.Context, keys ...string) error {
	s, ok := l.store.(store.Resetter)
	if !ok {
		return fmt.Errorf("%w: the store cannot reset buckets", ErrInvalid)
	}
	ks := make([]Key, len(keys))
	for i, k := range keys {
		ks[i] = l.key(k)
	}
	if err := l.within(ctx, "reset", stepTimeout, func(ctx context.Context) error {
		return s.Reset(ctx,
			ks)
	}); err != nil {
		return l.storeError(ctx, "reset", err)
	}
	for i := range ks {
		l.queue.wake(ks[i])
	}
	return nil
}

// Handle is one key of a [Limiter], for code that expects a limiter of one thing.
type Handle struct {
	l   *Limiter
	key string
}

// Key returns a handle on one key.
func (l *Limiter) Key(key string) Handle { return Handle{l, key} }

// Allow reports whether one request may pass now. It is false if the store cannot decide.
func (h Handle) Allow() bool {
	d, err := h.l.Allow(context.Background(), h.key)
	return err == nil && d.Allowed
}

// Wait waits until one request may pass: see [Limiter.Wait].
func (h Handle) Wait(ctx context.Context) error {
	_, err := h.l.Wait(ctx, h.key)
	return err
}
