package ledger

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Request is a take in progress. It must not be copied after [Ledger.Begin].
type Request struct {
	take    *store.Take
	parts   []part
	one     [1]part // storage for parts, enough for most takes
	begun   bool
	sent    bool  // the store was asked, and did not answer
	several bool  // more than once
	doubted bool  // the store may have granted it: its cancellation is on its way, or was not answered
	until   int64 // messages on their way may open something until then, on the own clock
}

// part is one bucket of a take or settlement.
type part struct {
	plan *FallbackPlan
	n    store.Amounts
	key  store.Key
	e    *entry // nil if there is none
	bare bool   // of a reservation: there was none when it was given, so it is not recorded here
}

// Opens reports whether a limit of the take has FallbackOpen.
func (r *Request) Opens() bool {
	for i := range r.parts {
		if r.parts[i].plan.Opens() {
			return true
		}
	}
	return false
}

// Init makes r the request for a take. It keeps t until the request is over.
func (r *Request) Init(t *store.Take) { r.take = t }

// resolve finds the plans and entries of a request's buckets. It makes entries for policies with
// recorded limits.
func (l *Ledger) resolve(now Now, r *Request) (mayShare bool) {
	n, mayShare := l.plans.instances()
	if r.parts == nil {
		r.parts = r.one[:]
		if len(r.take.Buckets) != 1 {
			r.parts = make([]part, len(r.take.Buckets))
		}
	}
	for i := range r.parts {
		b, p := &r.take.Buckets[i], &r.parts[i]
		p.plan, p.key, p.n = l.plans.of(b.Plan, n), b.Key, b.N
		if p.e != nil {
			continue
		}
		switch {
		case p.plan.records():
			p.e = l.entries.ensure(b.Key, now)
		case l.recovers():
			p.e = l.entries.find(b.Key, now)
		default:
			p.e = l.entries.byKey[b.Key]
		}
	}
	return mayShare
}

// parts finds the plans and entries of a settlement's buckets. With ensure, it makes missing
// entries.
func (l *Ledger) parts(now Now, buckets []store.BucketCost, ensure bool) []part {
	n, _ := l.plans.instances()
	ps := make([]part, len(buckets))
	for i := range buckets {
		b := &buckets[i]
		ps[i] = part{plan: l.plans.of(b.Plan, n), n: b.N, key: b.Key}
		if ensure {
			ps[i].e = l.entries.ensure(b.Key, now)
		} else {
			ps[i].e = l.entries.byKey[b.Key]
		}
	}
	return ps
}

// Begin notes that the store is about to be asked for a take. Until the store answers, the take's
// units count here, so that local decisions cannot use them too. It reports whether items of the
// buckets must be delivered first: see [Ledger.Blocked].
func (l *Ledger) Begin(now Now, r *Request) (blocked bool) {
	l.resolve(now, r)
	r.begun = true
	blocked = l.withdraw(now, r)
	for i := range r.parts {
		p := &r.parts[i]
		if p.e == nil {
			continue
		}
		p.e.asked = append(p.e.asked, p)
		blocked = blocked || len(p.e.items) > 0
	}
	return blocked
}

// Blocked reports whether items of a request's buckets are still pending, and moves them to the
// front of the queue. fault is why an item of one of these buckets could not be delivered.
func (l *Ledger) Blocked(now Now, r *Request) (blocked bool, fault error) {
	blocked = l.withdraw(now, r)
	for i := range r.parts {
		e := r.parts[i].e
		if e == nil || len(e.items) == 0 {
			continue
		}
		blocked = true
		if e.fault != nil {
			fault = e.fault
		}
		l.queue.want(e)
	}
	return blocked, fault
}

// Unanswered notes that the store was asked and did not answer: the message may have opened
// something, or may do so within [store.SendLife].
func (l *Ledger) Unanswered(now Now, r *Request) {
	r.sent, r.several, r.until = true, r.sent, now.Own+store.SendLife.Microseconds()
}

// Answered records the store's decision about a request.
func (l *Ledger) Answered(now Now, r *Request, d *store.Verdict) {
	if d.Allowed {
		if r.take.ID != "" {
			l.storeGave(now, r, d)
		}
		l.enter(now, r, d)
	} else {
		if d.Fail == nil {
			for k := range r.parts {
				l.learn(now, &r.parts[k], d, k, r.take.Priority)
			}
		}
		// An earlier message may have opened it, or may do so yet.
		if r.sent && !errors.Is(d.Fail, store.ErrIDReused) {
			d.Unsure = d.Fail == nil
			l.pendCancel(now, r)
		}
	}
	l.enterTake(now, r, d)
	l.notePauses(now, r, d)
	l.leave(r)
	l.release(r)
}

// Abandon ends a request that stays undecided: its caller has left, or made a mistake. If the store
// may have granted a take with an ID, it is cancelled.
func (l *Ledger) Abandon(now Now, r *Request) {
	l.leave(r)
	if r.sent {
		l.pendCancel(now, r)
	}
	l.release(r)
}

// leave removes a request from the takes that the store is being asked for.
func (l *Ledger) leave(r *Request) {
	if !r.begun {
		return
	}
	r.begun = false
	for i := range r.parts {
		if e := r.parts[i].e; e != nil {
			e.leave(&r.parts[i])
		}
	}
}

// release ends a request, and removes entries that are blank.
func (l *Ledger) release(r *Request) { l.releaseParts(r.parts) }

// openID returns the key under which records keep a reservation. Grants of one ID are different
// reservations.
func openID(id string, g store.Grant) string {
	return string(binary.BigEndian.AppendUint64(append(make([]byte, 0, len(id)+9), id...), uint64(g)))
}

// recordTake converts a take for package record.
func recordTake(t *store.Take, priority int8) record.Take {
	rt := record.Take{Hold: t.Hold.Microseconds(), Lease: t.Lease, Priority: priority}
	if t.ID != "" {
		rt.ID, rt.Fingerprint = openID(t.ID, t.Grant), t.Fingerprint()
	}
	return rt
}

// asksFor returns a slice of n asks, which is used again.
func (l *Ledger) asksFor(n int) []record.Ask {
	if cap(l.asks) < n {
		l.asks = make([]record.Ask, n, store.MaxBuckets)
	}
	return l.asks[:0]
}

// unrecorded notes that units of a bucket without an entry are held.
func (l *Ledger) unrecorded(now Now, p *part, hold int64) {
	if p.plan.records() {
		l.entries.lose(now.Own + hold + 1)
	}
}

// bookAhead makes units that are granted for a future instant count until then, too: it extends
// each limit's margin by the delay. What drains from a bucket meanwhile is not theirs, so it is
// charged in addition.
func bookAhead(asks []record.Ask, delay, at int64) {
	for i := range asks {
		a := &asks[i]
		a.Specs = slices.Clone(a.Specs)
		a.Rec.Advance(a.Specs, at)
		gap, some := record.Ask{Rec: a.Rec, Specs: a.Specs}, false
		for j := range a.Specs {
			s := &a.Specs[j]
			if s.Margin += delay; s.Kind != record.Bucket || s.ChargeEnd || a.N[j] == 0 {
				continue
			}
			drained := min(delay, math.MaxInt64/4/s.Drain) * s.Drain
			if st := stateOf(a.Rec, s.ID); st != nil {
				drained = max(0, drained-st.Used)
			}
			gap.N[j] = min(unlimited/s.Scale, record.CeilDiv(drained, s.Scale))
			some = some || gap.N[j] > 0
		}
		if some {
			record.Charge([]record.Ask{gap}, at, at)
		}
	}
}

// enter records what the store has allowed, whatever is left of this process's share.
func (l *Ledger) enter(now Now, r *Request, d *store.Verdict) {
	asks := l.asksFor(len(r.parts))
	for k := range r.parts {
		p := &r.parts[k]
		if p.e == nil || !p.plan.records() {
			l.unrecorded(now, p, r.take.Hold.Microseconds())
			continue
		}
		n := p.n
		if r.take.ID != "" {
			n = d.Granted(k)
		}
		if p.e.assumes(p.plan) {
			took := n // n itself should not escape to the heap
			l.assumePriorUse(now, p, usedByOthers(d, k, r.take.Priority, &took))
		}
		p.plan.adapt(&p.e.rec, now.Store)
		asks = append(asks, record.Ask{Rec: &p.e.rec, Specs: p.plan.unbounded, N: record.Amounts(p.plan.pick(&n))})
	}
	if len(asks) == 0 {
		return
	}
	t := recordTake(r.take, store.MaxPriority)
	if t.ID != "" {
		t.Hold = d.HoldEnd().Sub(d.At()).Microseconds()
	}
	if delay := d.Delay().Microseconds(); delay > 0 {
		bookAhead(asks, delay, d.At().UnixMicro())
	}
	record.Decide(asks, &t, d.At().UnixMicro())
	clear(asks)
	for k := range r.parts {
		if p := &r.parts[k]; p.e != nil {
			p.plan.clamp(&p.e.rec, &store.Amounts{})
		}
	}
}

// Take returns the request's take.
func (r *Request) Take() *store.Take { return r.take }
