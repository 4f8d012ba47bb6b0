package drawgate

import (
	"errors"
	"time"

	"github.com/drawgate/drawgate/internal/cells"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// This file is where decisions are made: of a store's verdicts, and here if the store lets us.

// take is a take on its way to the store, with what concerns its caller only.
type take struct {
	store.Take
	plans   []*Plan         // of its buckets
	refresh func(int) *Plan // the policy that counts a bucket by now; may be nil
	// when it was sent last without an answer; zero: whenever it was sent it was answered
	lost time.Time
	// the caller chose the grant: it may be sending the take again, and cancels it if not
	mine  bool
	place place
	one   [1]*Plan // room for plans, for most takes
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

// decision makes a decision of what the store said of t.
func (t *take) decision(v *store.Verdict) (d Decision) {
	d = decisionOf(v, t.plans)
	d.priority = uint8(t.Priority)
	if t.Hold > 0 && d.more == nil { // a store that forgot to say when the hold ends: nobody relies on it then
		d.more = &details{}
	}
	return d
}

func decisionOf(v *store.Verdict, plans []*Plan) (d Decision) {
	d.Allowed, d.Fallback, d.Replayed, d.Reason = v.Allowed, v.Fallback, v.Replayed, v.Reason
	d.RetryAfter, d.EarliestRetry, d.at = v.RetryAfter, v.EarliestRetry, v.Now
	if len(plans) > 1 || v.End != 0 || v.Start > v.Now || v.UsageUnknown || v.Unsure {
		d.more = &details{start: v.Start, end: v.End, unknown: v.UsageUnknown, unsure: v.Unsure}
	}
	for i, plan := range plans[:min(len(plans), v.Buckets())] {
		a := v.Bucket(i)
		if out := results(a); i == 0 {
			d.results(plan, &out)
		} else {
			d.more.buckets = append(d.more.buckets, bucketResult{plan: plan, res: out})
		}
		if v.End != 0 {
			d.more.got = append(d.more.got, a.Granted)
		}
	}
	if v.PausedAt > 0 && v.PausedAt < d.Buckets() { // otherwise it is the first one, or a store's mistake
		d.pausedAt = uint8(v.PausedAt)
	}
	return d
}

// results returns what a verdict says of a bucket as the arithmetic has it.
func results(a *store.Answer) (out [record.MaxLimits]record.Result) {
	for i := range a.Limits {
		r := &a.Limits[i]
		out[i] = record.Result{Remaining: r.Remaining, RetryAfter: r.RetryAfter.Microseconds(), ResetAt: r.ResetAt}
		if r.RetryAfter == Never {
			out[i].RetryAfter = record.Never
		}
	}
	return out
}

func (d *Decision) head(v *record.Verdict) {
	d.Allowed, d.at = v.Allowed, v.Now
	if !v.Allowed {
		d.Reason, d.RetryAfter, d.EarliestRetry = Limited, duration(v.RetryAfter), duration(v.EarliestRetry)
		if v.Paused {
			d.Reason = Paused
		}
	}
}

// takeLocal decides a plain take of one bucket in this process, as [Limiter.Allow] does.
func takeLocal(b *cells.Buckets, plan *Plan, name string, n store.Amounts, priority int8) (d Decision, err error) {
	if len(plan.specs) != 1 || !d.lean(b, plan, name, n[0], priority) {
		err = d.local(b, plan, name, &n, priority)
	}
	if err == nil {
		d.priority = uint8(priority)
	}
	return d, err
}

// local decides a plain take of one bucket in this process. d must be zero. It does not allocate
// for up to three limits.
func (d *Decision) local(b *cells.Buckets, plan *Plan, name string, n *store.Amounts, priority int8) error {
	if len(plan.specs) > inline {
		return d.localMany(b, plan, name, n, priority)
	}
	allowed, paused, at, after, earliest, err := b.Take(name, (*record.Amounts)(n), priority, d.res[:])
	if err != nil {
		return localError(err)
	}
	d.plan, d.at, d.Allowed = plan, at, allowed
	if !allowed {
		d.Reason, d.RetryAfter, d.EarliestRetry = Limited, duration(after), duration(earliest)
		if paused {
			d.Reason = Paused
		}
	}
	return nil
}

// localMany is local for more limits than a decision holds by itself.
func (d *Decision) localMany(b *cells.Buckets, plan *Plan, name string, n *store.Amounts, priority int8) error {
	var out [record.MaxLimits]record.Result
	allowed, paused, at, after, earliest, err := b.Take(name, (*record.Amounts)(n), priority, out[:])
	if err != nil {
		return localError(err)
	}
	d.head(&record.Verdict{Allowed: allowed, Paused: paused, Now: at, RetryAfter: after, EarliestRetry: earliest})
	d.results(plan, &out)
	return nil
}

func localError(err error) error {
	if errors.Is(err, cells.ErrClosed) {
		return ErrClosed
	}
	return &StoreError{Store: "memory", Op: "take", Err: err}
}

// lean decides a plain take of one bucket of a policy that is a single bucket limit; false if that
// needs [Decision.local].
func (d *Decision) lean(b *cells.Buckets, plan *Plan, name string, n int64, priority int8) bool {
	left, used, over, at, ok := b.TakeGCRA(name, n, priority)
	if !ok {
		return false
	}
	d.raw, d.at, d.plan = true, at, plan
	d.res[0].Remaining, d.res[0].ResetAt = left, used
	if over == 0 {
		d.Allowed = true
		return true
	}
	d.Reason = Limited
	d.res[0].RetryAfter = record.Never
	if over > 0 {
		d.res[0].RetryAfter = record.CeilDiv(over, plan.specs[0].Drain)
	}
	d.RetryAfter = duration(d.res[0].RetryAfter)
	d.EarliestRetry = d.RetryAfter // nothing is held that could come back
	return true
}

// near decides a plain take of one bucket of l's policy with units that the process holds; false if
// the store has to be asked.
func (d *Decision) near(l *Limiter, held holder, b store.BucketCost) bool {
	v, ok := held.TakeHeld(b, 0)
	if !ok {
		return false
	}
	d.Allowed, d.Reason, d.RetryAfter, d.EarliestRetry = v.Allowed, v.Reason, v.RetryAfter, v.EarliestRetry
	d.at = v.Now
	out := results(&v.First)
	d.results(l.plan, &out)
	return true
}
