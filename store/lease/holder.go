package lease

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/store"
)

// Shares of a lease life, and other numbers that the simulation of this package found to work.
const (
	covers     = 0.8 // of a life: for how long a lease is meant to last at most
	endsSoon   = 0.4 // of a life: a lease that is used up is not settled if it ends that soon
	fewestLife = 0.25
	worthTakes = 4   // least that a lease is meant for
	perLease   = 200 // decisions for each lease, which costs two calls, of a bucket that is asked for often
	largest    = 64  // a lease has at most that part of a limit
	lateTries  = 3   // answers in a row that are late, before takes go straight to the store
	bigTake    = 4   // a take that asks for more than that part of a lease goes straight to the store
)

// moment is an instant by the process's clocks, in ns.
type moment struct {
	at   int64 // monotonic
	jump int64 // by how much the wall clock is ahead of it: grows when the machine was suspended
}

// ask is a take of a lease.
type ask struct {
	id    string
	grant store.Grant
	n     store.Amounts
	hold  int64 // ns
	sent  moment
	epoch uint64
}

// ending is what the store is to be told of a lease.
type ending struct {
	id     string
	grant  store.Grant
	spent  store.Amounts
	cancel bool  // nothing was spent, or it is not known whether there is such a lease
	until  int64 // it has ended by itself by then
}

// refusal is what takes are answered that find nothing left, for some time.
type refusal struct {
	until   int64 // by the process's clock
	at      int64
	verdict store.Verdict // as of at
	limits  [store.MaxLimits]bool
}

// covers reports whether a take of n is refused by it.
func (r *refusal) covers(n *store.Amounts) bool {
	for j := range n {
		if n[j] > 0 && r.limits[j] {
			return true
		}
	}
	return false
}

// holder decides for one bucket what is asked of the store, what is spent, and what is given back.
// It has no clock, and does no I/O: who uses it sends what is in asked and ended, and says what was
// answered. All but the counters, and the units that it hands out, is guarded by its user's lock.
type holder struct {
	limits int
	max    store.Amounts
	edges  [store.MaxLimits]bool // the limit's window ends for all at once
	life   int64                 // ns
	margin int64                 // the own clock may be that slow within a life

	cur, next *units
	refusal   *refusal // nil: none, or it may be over
	asked     *ask     // to be sent, or on its way
	ended     []ending // to be sent

	waiting store.Amounts // units of the takes that wait for what is asked
	waited  store.Amounts // the same of what was asked before: some may have found nothing left of it

	epoch    uint64                // counts pauses and resets: what was asked before one is no lease after it
	dry      bool                  // the store had less than was asked for last
	again    int64                 // while dry, it is not asked earlier
	dried    int64                 // when it was answered so
	short    [store.MaxLimits]bool // of which limits
	direct   int64                 // takes go straight to the store until then
	failures int                   // in a row
	lates    int                   // answers that came late, in a row
	trip     int64                 // how long an answer takes
	edge     int64                 // the next end of a calendar window; no lease is held beyond
	rest     store.Amounts
	restAt   int64 // when the store said so; 0: never
	said     store.Answer
	stamp    int64 // and the instant of which it is, in Unix µs
	meter    meter
	spent    store.Amounts // of leases that were closed
	active   int64         // when a lease was asked for last

	takes   atomic.Int64                  // that were decided for this bucket
	refused [store.MaxLimits]atomic.Int64 // units that were asked for and not spent of a lease
}

// newHolder returns the holder of a bucket for takes of a priority, of which takes were counted in
// the last while ns.
func newHolder(plan *store.Plan, priority int8, now moment, takes, while int64, n *store.Amounts) *holder {
	p := plan.Policy()
	life := int64(plan.LeaseLife(int(priority)))
	h := &holder{
		limits: len(p.Limits), life: life, margin: marginOf(life), edge: math.MaxInt64,
		meter: meter{memory: life, at: now.at}, active: now.at,
	}
	for j := range p.Limits {
		h.max[j] = plan.Max(j, int(priority))
		h.edges[j] = p.Limits[j].Kind == store.Calendar
		h.meter.units[j] = float64(takes*n[j]) / float64(while)
	}
	h.meter.takes = float64(takes) / float64(while)
	return h
}

// marginOf returns how long before the store's end of a lease its holder stops: ten times what a
// clock that is wrong by 1000 ppm loses, and what reading it may take.
func marginOf(life int64) int64 { return life/100 + int64(time.Millisecond) }

// usable reports whether u may be spent.
func (h *holder) usable(u *units, now moment) bool {
	return now.at < u.deadline && now.jump-u.jump <= h.margin/2
}

// step is what becomes of a take that found no units.
type step uint8

const (
	retry     step = iota // there is another lease
	await                 // for the answer to what is asked
	refuse                // by the refusal
	goThrough             // to the store
)

// miss says what becomes of a take of n units that the current lease does not have.
func (h *holder) miss(now moment, n *store.Amounts) step {
	h.expire(now)
	for h.cur != nil {
		if h.has(h.cur, n) {
			return retry
		}
		if h.next == nil {
			break
		}
		h.retire(h.cur, now)
		h.cur, h.next = h.next, nil
	}
	if r := h.refusal; r != nil && now.at < r.until && r.covers(n) {
		return refuse
	}
	h.measure(now)
	if now.at < h.direct || !h.worth() || h.big(n) {
		return goThrough
	}
	if h.dry && now.at < h.again {
		if h.cur != nil && !h.lacks(n) {
			return goThrough
		}
		h.refuseFor(now, h.again)
		if h.refusal.covers(n) {
			return refuse
		}
		return goThrough
	}
	if h.asked == nil && !h.ask(now, n) {
		return goThrough
	}
	if h.dry && now.at-h.dried < 2*h.life { // nobody waits to be refused
		h.refuseFor(now, now.at+max(h.trip, int64(time.Millisecond)))
		if h.refusal.covers(n) {
			return refuse
		}
		return goThrough
	}
	for j := range n {
		h.waiting[j] += n[j]
	}
	return await
}

// low is called when little is left of the current lease: it asks for the next one.
func (h *holder) low(now moment) {
	h.expire(now)
	h.measure(now)
	if h.asked != nil || h.next != nil || now.at < h.direct || !h.worth() || h.dry && now.at < h.again {
		return
	}
	h.ask(now, &store.Amounts{})
}

func (h *holder) has(u *units, n *store.Amounts) bool {
	for j := range h.limits {
		if u.rest(j) < n[j] {
			return false
		}
	}
	return true
}

// lacks reports whether the current lease lacks units that were short when it was granted.
func (h *holder) lacks(n *store.Amounts) bool {
	for j := range h.limits {
		if n[j] > 0 && h.cur.rest(j) < n[j] && h.short[j] {
			return true
		}
	}
	return false
}

// measure brings what is asked for lately up to date.
func (h *holder) measure(now moment) {
	total := h.spent
	for j := range h.limits {
		total[j] += h.refused[j].Load()
		for _, u := range [...]*units{h.cur, h.next} {
			if u != nil {
				total[j] += u.granted[j] - u.rest(j)
			}
		}
	}
	h.meter.measure(now.at, h.takes.Load(), &total)
}

// meant returns for how long a lease with that hold is meant to last: it has to come, and what is
// left of it has to go back.
func (h *holder) meant(hold float64) float64 {
	return min(covers*hold, max(hold-float64(h.margin)-2*float64(h.trip), hold/8))
}

// worth reports whether enough is asked for lately for a lease.
func (h *holder) worth() bool { return h.meter.takes*h.meant(float64(h.life)) >= worthTakes }

// big reports whether a take asks for so much that a lease for many takes does not have it.
func (h *holder) big(n *store.Amounts) bool {
	for j := range h.limits {
		if n[j] > h.most(j) {
			return true
		}
	}
	return false
}

// most returns how many units of limit j a take may ask for that waits for a lease.
func (h *holder) most(j int) int64 {
	return max(1, h.lasts(j, h.meant(float64(h.life)))/bigTake, h.max[j]/largest/bigTake)
}

// lasts returns the units of limit j that are asked for in a time.
func (h *holder) lasts(j int, ns float64) int64 { return int64(math.Ceil(h.meter.units[j] * ns)) }

// spacing returns the time in which enough takes are decided for another call of the store.
func (h *holder) spacing() float64 {
	if h.meter.takes*float64(h.life) < perLease/6 { // it is not asked for often
		return 0
	}
	return min(perLease/h.meter.takes, float64(h.life))
}

// ask asks for a lease with room for a take of n, if there is time for one.
func (h *holder) ask(now moment, n *store.Amounts) bool {
	hold := h.life
	if left := h.edge - now.at - 2*h.margin - 2*h.trip; left < hold {
		hold = left
	}
	if float64(hold) < fewestLife*float64(h.life) {
		return false
	}
	a := &ask{grant: store.NewGrant(), hold: hold - hold%1000, sent: now, epoch: h.epoch}
	a.id = "drawgate:lease:" + a.grant.String()
	some := false
	for j := range h.limits {
		a.n[j] = max(h.size(now, j, float64(hold)), n[j])
		some = some || a.n[j] > 0
	}
	if !some {
		return false
	}
	h.asked, h.active = a, now.at
	return true
}

// size returns how many units of limit j a lease asks for.
func (h *holder) size(now moment, j int, hold float64) int64 {
	n := max(h.lasts(j, h.meant(hold)), h.waited[j])
	least := min(n, h.lasts(j, max(h.spacing(), hold/8))) // until it may ask again
	if h.dry {
		return max(least, min(1, n))
	}
	if h.restAt != 0 && now.at-h.restAt < h.life {
		n = min(n, max(h.rest[j]/4, least))
	}
	return min(n, max(h.max[j]/largest, 1))
}

// answered is told the answer to an ask. err is the store's, or the verdict's.
func (h *holder) answered(now moment, a *ask, v *store.Verdict, err error) {
	if h.asked != a { // each answer counts once
		return
	}
	h.asked = nil
	h.waited, h.waiting = h.waiting, store.Amounts{}
	took := now.at - a.sent.at
	h.trip += (took - h.trip) / 4
	cancel := ending{id: a.id, grant: a.grant, cancel: true, until: now.at + a.hold}
	switch {
	case err != nil:
		if !nothingDone(err) { // nobody knows what it got, if anything
			h.ended = append(h.ended, cancel)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			h.late(now)
		} else {
			h.failed(now)
		}
	case v.Fallback:
		if v.Allowed {
			h.ended = append(h.ended, cancel)
		}
		h.failed(now)
	case !v.Allowed:
		h.failures, h.lates = 0, 0
		h.learn(a.sent, now, v)
		h.refusedBy(now, v)
	default:
		h.learn(a.sent, now, v)
		u := h.lease(now, a, v)
		if a.epoch != h.epoch || !h.usable(u, now) || u.deadline-now.at < a.hold/8 {
			h.ended = append(h.ended, cancel)
			if a.epoch == h.epoch {
				h.late(now)
			}
			return
		}
		h.failures, h.lates = 0, 0
		h.hold(now, a, u)
	}
}

// learn remembers what a verdict says of the bucket.
func (h *holder) learn(sent, now moment, v *store.Verdict) {
	h.edge = math.MaxInt64
	for j := range h.limits {
		r := &v.First.Limits[j]
		h.rest[j] = r.Remaining
		if h.edges[j] && r.ResetAt > 0 {
			h.edge = min(h.edge, sent.at+(r.ResetAt-v.Now)*1000)
		}
	}
	h.restAt, h.said, h.stamp = now.at, v.First, v.Now
}

// lease makes a lease of what was granted. The store decided after a was sent, so its hold, and the
// calendar window, end no earlier than reckoned from there.
func (h *holder) lease(now moment, a *ask, v *store.Verdict) *units {
	granted := v.Granted(0)
	for j := range granted {
		granted[j] = max(0, min(granted[j], a.n[j]))
	}
	u := newUnits(granted, h.limits)
	u.id, u.grant, u.jump = a.id, a.grant, a.sent.jump
	hold := a.hold
	if v.End != 0 {
		hold = min(hold, (v.End-v.Now)*1000)
	}
	u.end = a.sent.at + hold
	back := min(h.trip-h.trip/4, a.hold/4) // so that what is left is back before the store's end
	u.deadline = min(u.end, h.edge) - h.margin - back
	u.answer, u.at, u.stamp = v.First, now.at, v.Now
	for j := range h.limits {
		u.partial = u.partial || granted[j] < a.n[j]
	}
	early := min(max(h.trip+h.trip/4, a.hold/16), a.hold/2)
	u.refresh = u.deadline - early
	for j := range h.limits {
		if !u.partial {
			u.low[j] = min(max(granted[j]/16, h.lasts(j, float64(h.trip+h.trip/4))), granted[j]/2)
		}
	}
	return u
}

// hold takes a lease into use.
func (h *holder) hold(now moment, a *ask, u *units) {
	h.dry = u.partial
	h.refusal = nil
	if h.dry {
		h.dried = now.at
		h.again = max(now.at, a.sent.at+int64(h.spacing()))
		for j := range h.limits {
			h.short[j] = u.granted[j] < a.n[j]
		}
	}
	switch {
	case h.cur == nil:
		h.cur = u
	case h.next == nil:
		h.next = u
	default: // two are enough
		h.retire(u, now)
	}
}

// refusedBy notes that the store had nothing.
func (h *holder) refusedBy(now moment, v *store.Verdict) {
	h.dry, h.dried = true, now.at
	wait := max(min(int64(v.RetryAfter), h.life), int64(h.spacing()))
	h.again = now.at + wait
	r := &refusal{until: h.again, at: now.at, verdict: *v}
	r.verdict.Histories = nil
	for j := range h.limits {
		r.limits[j] = v.Reason != store.Limited || v.First.Limits[j].RetryAfter > 0
	}
	h.short = r.limits
	h.refusal = r
	if v.Reason == store.Paused || v.Reason == store.Queued { // others are to be served first
		h.paused(now)
	}
}

// refuseFor makes takes of what the last answer was short of be refused until an instant.
func (h *holder) refuseFor(now moment, until int64) {
	if h.refusal != nil {
		r := *h.refusal
		r.until = until
		h.refusal = &r
		return
	}
	r := &refusal{until: until, at: now.at}
	r.verdict = store.Verdict{
		Reason: store.Limited, RetryAfter: time.Duration(until - now.at), First: h.said,
		Now: h.stamp + (now.at-h.restAt)/1000,
	}
	for j := range h.limits {
		r.verdict.First.Limits[j].RetryAfter = 0
		if h.short[j] {
			r.limits[j] = true
			r.verdict.First.Limits[j].Remaining = 0
			r.verdict.First.Limits[j].RetryAfter = r.verdict.RetryAfter
		}
	}
	h.refusal = r
}

// late notes an answer that came late, or that nobody waited for any longer. The next one may come
// in time: takes that wait for it are not in its way.
func (h *holder) late(now moment) {
	if h.lates++; h.lates >= lateTries {
		h.failed(now)
	}
}

// failed notes an ask that brought no lease: takes go straight to the store for a while.
func (h *holder) failed(now moment) {
	h.direct = now.at + h.life<<min(h.failures, 5)
	h.failures++
	h.lates = 0
}

// paused is called when the bucket is paused, or was reset: what is held goes back, and what is
// asked is not held.
func (h *holder) paused(now moment) {
	h.epoch++
	h.drop(now)
}

// drop gives back all that is held.
func (h *holder) drop(now moment) {
	for _, u := range [...]*units{h.cur, h.next} {
		if u != nil {
			h.retire(u, now)
		}
	}
	h.cur, h.next = nil, nil
}

// forget makes the next take ask the store, whatever it said before.
func (h *holder) forget() {
	h.refusal, h.dry, h.again, h.restAt = nil, false, 0, 0
}

// expire gives back what may not be spent any more.
func (h *holder) expire(now moment) {
	if h.cur != nil && !h.usable(h.cur, now) {
		h.retire(h.cur, now)
		h.cur = nil
	}
	if h.next != nil && !h.usable(h.next, now) {
		h.retire(h.next, now)
		h.next = nil
	}
	if h.cur == nil {
		h.cur, h.next = h.next, nil
	}
}

// retire closes a lease, and afterwards has the store told what was spent. One that is used up
// needs no settlement if it soon ends by itself, which counts the same.
func (h *holder) retire(u *units, now moment) {
	spent := u.close()
	all := true
	for j := range h.limits {
		h.spent[j] += spent[j]
		all = all && spent[j] == u.granted[j]
	}
	if all && float64(u.end-now.at) < endsSoon*float64(h.life) && u.end+h.margin < h.edge {
		return
	}
	if spent == (store.Amounts{}) {
		h.ended = append(h.ended, ending{id: u.id, grant: u.grant, cancel: true, until: u.end})
		return
	}
	h.ended = append(h.ended, ending{id: u.id, grant: u.grant, spent: spent, until: u.end})
}

// tick does what is due, and returns when to call it again. idle says that nothing is held, and
// that nothing was asked for lately.
func (h *holder) tick(now moment) (again int64, idle bool) {
	h.expire(now)
	again = math.MaxInt64
	for _, u := range [...]*units{h.cur, h.next} {
		if u != nil {
			again = min(again, u.deadline)
		}
	}
	rest := h.active + max(8*h.life, int64(2*time.Second))
	if again == math.MaxInt64 && h.asked == nil && now.at >= rest {
		return 0, true
	}
	return min(again, max(rest, now.at+h.life)), false
}

// nothingDone reports whether an error says that a take opened nothing.
func nothingDone(err error) bool {
	for _, sure := range [...]error{
		store.ErrNothingDone, store.ErrClosed, store.ErrInvalid, store.ErrTooManyOpen, store.ErrTooLate,
		store.ErrIDOpen, store.ErrIDReused,
	} {
		if errors.Is(err, sure) {
			return true
		}
	}
	return false
}
