package ledger

import (
	"errors"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

const (
	// tryAgain is the retry time, in µs, of a take that is refused because the store is
	// unavailable: by then the store may be back.
	tryAgain = 1_000_000
	// earliestReturn is the earliest time, in µs, at which the store may be back.
	earliestReturn = 100_000
	// mostAsked is how many units of one take count while the store is asked for them: more than
	// any limit has, and so few that no sum of them overflows.
	mostAsked = 2 * store.MaxAmount
)

// local is a take that this process decides.
type local struct {
	*Request
	l        *Ledger
	now      Now
	mayShare bool
	asks     []record.Ask           // of the buckets with an entry and recorded limits
	of       []int                  // for each: its bucket
	noShare  [store.MaxBuckets]bool // for each bucket: this process admits no share of it, or cannot count it
	shut     bool                   // a limit admits nothing of the take, or there is no room to count it
	full     bool                   // there is no room to keep it
}

// Decide decides a request locally, by the fallback of each limit.
func (l *Ledger) Decide(now Now, r *Request) store.Verdict {
	if err := r.take.Check(); err != nil {
		l.leave(r)
		l.release(r)
		return store.Verdict{Fail: err}
	}
	mayShare := l.resolve(now, r)
	l.leave(r)
	c := &local{Request: r, l: l, now: now, mayShare: mayShare}
	c.full = l.withdraw(now, r)
	d := c.decide()
	switch {
	case !r.sent: // if its cancellation is not answered, it is refused
		d.Unsure = r.doubted && d.Fail == nil
	case d.Allowed:
		d.Unsure = true
		if h := l.held.find(r.take.ID, r.take.Grant); h != nil {
			h.unsure, h.said, h.until = true, true, max(h.until, r.until)
		}
	case !errors.Is(d.Fail, store.ErrIDReused):
		d.Unsure = d.Fail == nil
		l.pendCancel(now, r)
	}
	l.release(r)
	return d
}

func (c *local) decide() store.Verdict {
	c.prepare()
	if c.take.ID != "" && c.l.idOpen(c.now, c.Request) {
		return store.Verdict{Fail: store.ErrIDOpen}
	}
	if c.full { // its grant is being cancelled
		v := c.refuse()
		return c.answer(&v)
	}
	if until := c.paused(); until > 0 && !c.open() {
		return c.refusePaused(until)
	}
	v := c.verdict()
	if v.Allowed && !v.Replayed && !c.bind(&v) {
		c.full = true
		v = c.refuse()
	}
	return c.answer(&v)
}

// prepare collects what decides about each bucket.
func (c *local) prepare() {
	for k := range c.parts {
		p := &c.parts[k]
		uncounted := !c.mayShare && c.l.startsUncounted(p.plan)
		if uncounted {
			if p.e != nil { // until now it drained as a share does
				p.e.rec.Advance(p.plan.share, c.now.Store)
			}
			p.plan = c.l.plans.uncounted(p.plan)
		}
		c.noShare[k] = !c.mayShare && !uncounted
		c.shut = c.shut || p.plan.shut(&p.n, !c.noShare[k])
		if !p.plan.records() {
			continue
		}
		// The entry of a process that is not counted stays fresh: what it does not know counts once
		// it may admit its share.
		if p.e != nil && !uncounted && p.e.assumes(p.plan) {
			c.l.assumePriorUse(c.now, p, nil)
		}
		if p.e == nil || p.e.fresh && !uncounted { // a share cannot be counted
			c.noShare[k] = true
			c.shut = c.shut || p.plan.needsShare(&p.n)
		}
		if p.e == nil {
			continue
		}
		p.plan.adapt(&p.e.rec, c.now.Store)
		c.asks = append(c.asks, record.Ask{Rec: &p.e.rec, Specs: p.plan.share, N: record.Amounts(p.plan.pick(&p.n))})
		c.of = append(c.of, k)
	}
}

// verdict decides by the recorded limits, and counts the take if all of them admit it.
func (c *local) verdict() record.Verdict {
	if c.shut && !c.open() {
		return c.refuse()
	}
	if len(c.asks) == 0 {
		return record.Verdict{Now: c.now.Store, Allowed: true}
	}
	undo := c.countAsked()
	t := recordTake(c.take, c.take.Priority)
	if t.ID != "" {
		t.NotAfter = record.Latest(c.take.NotAfter)
	}
	v := record.Decide(c.asks, &t, c.now.Store)
	undo()
	if !v.Allowed && !v.Reused && !v.Late && c.underWay() {
		if v = c.look(v.Now); v.Allowed {
			c.wait(&v)
		}
	}
	return v
}

// open reports whether the take's grant is open here. If so, the same answer is given again.
func (c *local) open() bool {
	if c.take.ID == "" {
		return false
	}
	id := openID(c.take.ID, c.take.Grant)
	for i := range c.asks {
		c.asks[i].Rec.Advance(c.asks[i].Specs, c.now.Store)
		if c.asks[i].Rec.Open[id] != nil {
			return true
		}
	}
	return false
}

// refuse refuses without counting, and describes the recorded limits.
func (c *local) refuse() record.Verdict {
	v := c.look(c.now.Store)
	v.Allowed = false
	return v
}

// look returns what the recorded limits would decide without the takes that the store is being
// asked for.
func (c *local) look(now int64) record.Verdict {
	v := record.Verdict{Now: now, Allowed: true}
	for i := range c.asks {
		w := record.Peek(&c.asks[i], c.take.Priority, now)
		v.Now, v.Allowed = max(v.Now, w.Now), v.Allowed && w.Allowed
		v.EarliestRetry = max(v.EarliestRetry, w.EarliestRetry)
	}
	return v
}

// wait refuses a take because of units that the store is being asked for. The answer will be known
// soon.
func (c *local) wait(v *record.Verdict) {
	v.Allowed = false
	for i := range c.asks {
		for j, n := range c.asks[i].N {
			if n > 0 {
				c.asks[i].Out[j].RetryAfter = tryAgain
				return
			}
		}
	}
}

// underWay reports whether the store is being asked for units of the take's buckets.
func (c *local) underWay() bool {
	for _, k := range c.of {
		if len(c.parts[k].e.asked) > 0 {
			return true
		}
	}
	return false
}

// countAsked counts the units that the store is being asked for, until undo is called.
func (c *local) countAsked() (undo func()) {
	type held struct {
		rec *record.Record
		id  uint64
		n   int64
	}
	var all []held
	for i, k := range c.of {
		rec := c.asks[i].Rec
		for _, a := range c.parts[k].e.asked {
			for j, at := range a.plan.at {
				n, spec := a.n[at], &a.plan.share[j]
				if n == 0 {
					continue
				}
				n = min(n, mostAsked) // several of them must not overflow
				st := stateOf(rec, spec.ID)
				if st == nil {
					rec.Limits = append(rec.Limits, unusedState(spec, c.now.Store))
					rec.Advance(a.plan.share, c.now.Store)
					st = stateOf(rec, spec.ID)
				}
				st.Held += n
				all = append(all, held{rec, spec.ID, n})
			}
		}
	}
	return func() {
		for _, h := range all {
			stateOf(h.rec, h.id).Held -= h.n
		}
	}
}

// unusedState is the state of a limit of which nothing is used.
func unusedState(s *record.Spec, now int64) record.State {
	st := record.State{ID: s.ID, Kind: s.Kind, Window: s.Window}
	if s.Kind == record.Bucket {
		st.At, st.Rate, st.Scale = now, s.Rate, s.Scale
	}
	return st
}

// bind makes pending what the store must learn about an allowed take. It reports whether there is
// room for that.
func (c *local) bind(v *record.Verdict) bool {
	l := c.l
	if c.take.ID == "" {
		for k := range c.parts {
			if p := &c.parts[k]; p.e != nil {
				l.charge(c.now, p.e, p.plan, &p.n, c.now.Store, false)
			}
		}
		return true
	}
	var h *reservation
	if len(c.asks) > 0 {
		h = l.give(c.now, c.Request, c.granted())
	}
	if h == nil {
		for i := range c.asks {
			record.Settle(c.asks[i:i+1], openID(c.take.ID, c.take.Grant), 0, true, v.Now)
		}
		return false
	}
	var es []*entry
	for k := range c.parts {
		if e := c.parts[k].e; e != nil {
			es = append(es, e)
		}
	}
	h.it = &item{kind: replayItem, h: h}
	l.pend(c.now, h.it, es)
	return true
}

// granted returns what each bucket was granted, per limit of its plan. A lease may be granted in
// part.
func (c *local) granted() []store.Amounts {
	got := make([]store.Amounts, len(c.parts))
	for k := range c.parts {
		got[k] = c.parts[k].n
	}
	for i, k := range c.of {
		for j, at := range c.parts[k].plan.at {
			got[k][at] = c.asks[i].Granted[j]
		}
	}
	return got
}

// answer makes the decision. For limits that are not recorded, it follows from their mode.
func (c *local) answer(v *record.Verdict) store.Verdict {
	all := make([]record.Ask, len(c.parts))
	for k := range c.parts {
		p := &c.parts[k]
		all[k].Granted = record.Amounts(p.n)
		for j := range store.Internal.Specs(p.plan.Plan, false) {
			all[k].Out[j] = record.Result{ResetAt: v.Now + tryAgain}
		}
	}
	for i, k := range c.of {
		c.place(&all[k], i, k)
	}
	unavailable := false
	if !v.Allowed && !v.Reused && !v.Late && !v.Full {
		unavailable = c.blame(all, v)
		v.Unknown = !unavailable && c.unknown(all)
	}
	if v.Allowed && c.take.Hold > 0 && v.End == 0 { // no recorded limit applies
		v.End = v.Now + c.take.Hold.Microseconds()
	}
	d := store.Internal.Verdict(v, all)
	d.Fallback = d.Fail == nil
	if unavailable {
		d.Reason = store.Unavailable
	}
	return d
}

// place copies the result of the i-th bucket with recorded limits to its position.
func (c *local) place(all *record.Ask, i, k int) {
	f := c.parts[k].plan
	specs := store.Internal.Specs(f.Plan, false)
	for j, at := range f.at {
		out := c.asks[i].Out[j]
		if f.Mode[at] == store.FallbackOpen {
			used := c.asks[i].Rec.Usage(&f.share[j], c.take.Priority).Used
			out.Remaining = max(0, specs[at].Effective[c.take.Priority]-used)
		}
		all.Out[at], all.Granted[at] = out, c.asks[i].Granted[j]
	}
}

// blame finds the limits that refuse a take, and when to try again. It reports whether the store's
// absence is the reason: a limit admits nothing without it, or nothing of that size.
func (c *local) blame(all []record.Ask, v *record.Verdict) (unavailable bool) {
	unavailable, v.RetryAfter = c.full, 0
	for k := range all {
		p := &c.parts[k]
		for j := range store.Internal.Specs(p.plan.Plan, false) {
			out, mode := &all[k].Out[j], p.plan.Mode[j]
			none := mode == store.FallbackClosed || mode == store.FallbackShare && c.noShare[k]
			if none { // whatever is left of a share that this process does not have
				out.Remaining = 0
			}
			if p.n[j] > 0 && (none || c.full || out.RetryAfter == record.Never) {
				out.RetryAfter, unavailable = tryAgain, true
			}
			v.RetryAfter = max(v.RetryAfter, out.RetryAfter)
		}
	}
	v.EarliestRetry = min(v.RetryAfter, v.EarliestRetry, earliestReturn)
	return unavailable
}

// unknown reports whether a limit refuses a take because of use that this process had to assume.
func (c *local) unknown(all []record.Ask) bool {
	for k := range all {
		p := &c.parts[k]
		if p.e == nil || !p.e.fresh && p.e.unknown <= c.now.Store {
			continue
		}
		for j, spec := range store.Internal.Specs(p.plan.Plan, false) {
			shared := p.plan.Mode[j] == store.FallbackShare && spec.Kind != record.Concurrency
			if shared && all[k].Out[j].RetryAfter > 0 {
				return true
			}
		}
	}
	return false
}

// Describe returns what a take of b would get here. It spends nothing.
func (l *Ledger) Describe(now Now, b *store.BucketCost, priority int8) (st store.State) {
	r := &Request{take: &store.Take{Buckets: []store.BucketCost{*b}, Priority: priority}}
	c := &local{Request: r, l: l, now: now, mayShare: l.resolve(now, r)}
	c.prepare()
	v := c.look(now.Store)
	v.Allowed = v.Allowed && !c.shut
	st.Verdict = c.answer(&v)
	if until := c.paused(); until > 0 {
		st.Verdict = c.refusePaused(until)
	}
	st.States = c.usage()
	if e := r.parts[0].e; e != nil {
		st.Open = len(e.rec.Open)
		st.Pause = e.pause(now.Store)
	}
	l.release(r)
	return st
}

// usage returns what each limit of the first bucket has used, as far as it is recorded here.
func (c *local) usage() []store.LimitUsage {
	f := c.parts[0].plan
	specs := store.Internal.Specs(f.Plan, false)
	us := make([]store.LimitUsage, len(specs))
	if len(c.asks) == 0 {
		return us
	}
	for j, at := range f.at {
		u := c.asks[0].Rec.Usage(&f.share[j], c.take.Priority)
		us[at] = store.LimitUsage{
			Used: u.Used, Held: u.Held, Debt: u.Debt, Max: u.Max,
			Start: store.Internal.Instant(u.Start), End: store.Internal.Instant(u.End),
		}
		if f.Mode[at] == store.FallbackOpen {
			us[at].Max = specs[at].Effective[c.take.Priority]
			us[at].Debt = max(0, u.Used-specs[at].Effective[record.Priorities-1])
		}
	}
	return us
}
