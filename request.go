package drawgate

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/drawgate/drawgate/store"
)

// Request is a take with all its options: see [Limiter.Take].
type Request struct {
	Buckets  []Ask   // 1 to 64 different ones: all or nothing
	Wait     bool    // wait in the queue until the take fits
	Priority int     // 0 to MaxPriority: higher ones are served first, and a limit may keep a share for them
	Labels   []Label // for the store's history: at most 32, each of at most 1,024 bytes in all
	Hold     Hold    // zero: a plain take. Otherwise the units are held, and the take makes a [Reservation]

	// RefreshLimiter tells a take that waits which limiter counts its bucket i by now, before each
	// attempt: see [Limiter.WakeAll]. nil leaves it unchanged; so does a limiter whose policy has
	// another name or other limits; amounts and the like may differ.
	RefreshLimiter func(i int) *Limiter
}

// Ask names one bucket, by a limiter and a key, and what to take from it. It is one bucket's part
// of a [Request]; [Ask.Status], [Ask.Refund], [Ask.Adjust] and [Ask.Pause] concern its bucket
// alone.
type Ask struct {
	Limiter *Limiter // nil: in a Request, the one that is asked
	Tenant  string   // "": the limiter's own; at most 256 bytes
	Key     string   // at most MaxKey bytes; see [BoundedKey]
	Costs   []Cost   // units not named cost 0, requests 1; if no bucket of a take names a unit, one must count requests
}

// Hold says how the units of a [Request] are held.
type Hold struct {
	For   time.Duration // MinHold to MaxHold
	Lease bool          // the units do not age while held, and may be granted in part: see [Decision.Granted]

	ID string // names the reservation, in up to 128 bytes; "": a random one; may be used again once that is over
	// Grant is the take's number; it needs an ID. 0 makes a random one. A take whose id and grant
	// are still open is answered again: see [Grant]. A take whose Grant you choose is not cancelled
	// for you if its answer is lost: send it again, or cancel it with [Limiter.Resume].
	Grant Grant
}

const maxID = 128 // bytes

// Ask asks for units from the bucket of key under this limiter's policy.
func (l *Limiter) Ask(key string, costs ...Cost) Ask {
	return Ask{Limiter: l, Key: key, Costs: costs}
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
	}
	if t.plans = t.one[:]; len(r.Buckets) > 1 {
		t.plans = make([]*Plan, len(r.Buckets))
	}
	t.refresh = plansOf(r.RefreshLimiter)
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

// plansOf returns a func for the policies of what limiters returns; nil if there is none. It is
// apart because what it captures is on the heap, and a Request need not be.
func plansOf(limiters func(int) *Limiter) func(int) *Plan {
	if limiters == nil {
		return nil
	}
	return func(i int) *Plan {
		if l := limiters(i); l != nil {
			return l.plan
		}
		return nil
	}
}

func (h *Hold) check() error {
	switch {
	case *h == (Hold{}):
		return nil
	case h.For < MinHold || h.For > MaxHold:
		return errHold(h.For)
	case len(h.ID) > maxID:
		return fmt.Errorf("%w: the id has %d bytes, more than %d", ErrInvalid, len(h.ID), maxID)
	case h.ID == "" && h.Grant != 0:
		return fmt.Errorf("%w: a grant needs an id: set Hold.ID as well", ErrInvalid)
	}
	return nil
}

func errHold(hold time.Duration) error {
	return fmt.Errorf("%w: hold %v is not between %v and %v", ErrInvalid, hold, MinHold, MaxHold)
}

// of makes t a take that is held like this.
func (h *Hold) of(t *take) {
	if h.For == 0 {
		return
	}
	t.Hold, t.Lease, t.ID, t.Grant, t.mine = h.For, h.Lease, h.ID, h.Grant, h.Grant != 0
	if t.ID == "" {
		t.ID = rand.Text()
	}
	if t.Grant == 0 {
		t.Grant = NewGrant()
	}
}

// keyOf returns the key of what is asked of this limiter's policy.
func (l *Limiter) keyOf(a *Ask) Key {
	k := l.key(a.Key)
	if a.Tenant != "" {
		k.Tenant = a.Tenant
	}
	return k
}

// key returns the key of a bucket of this limiter's policy.
func (l *Limiter) key(name string) Key {
	return Key{Tenant: l.tenant, Policy: l.plan.policy.Name, Name: BoundedKey(name)}
}

// bucket checks what names the bucket.
func (a *Ask) bucket() (store.BucketCost, error) {
	if a.Limiter == nil {
		return store.BucketCost{}, errNoLimiter
	}
	if err := checkKey(a.Tenant, a.Key); err != nil {
		return store.BucketCost{}, err
	}
	return store.BucketCost{Key: a.Limiter.keyOf(a), Plan: a.Limiter.plan.Plan}, nil
}

// checkKey says what is wrong with a key or a tenant.
func checkKey(tenant, key string) error {
	switch {
	case len(key) > MaxKey:
		return fmt.Errorf("%w: the key has %d bytes, more than %d", ErrInvalid, len(key), MaxKey)
	case len(tenant) > maxTenant:
		return fmt.Errorf("%w: the tenant has %d bytes, more than %d", ErrInvalid, len(tenant), maxTenant)
	}
	return nil
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
