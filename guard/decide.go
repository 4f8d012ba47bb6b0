package guard

import (
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// again is how soon a take may be asked again that was refused because the store is away: by then it may be back.
const again = lastPause

// local is a take that is decided here.
type local struct {
	*request
	pages []*page
	now   int64
	asks  []record.Ask              // of the buckets that have a page with kept limits
	of    []int                     // of each: its bucket
	blind [drawgate.MaxBuckets]bool // of each bucket: nobody knows what of a share is used
	shut  bool                      // a limit admits nothing of it, or there is no room to count it
	room  bool                      // there was room to keep it
}

// decide decides one take here.
func (s *Store) decide(r *request) (d drawgate.Decision) {
	now := s.clock.now()
	if err := r.take.Check(); err != nil {
		s.book.with(r.parts, found, now, r.leave)
		return drawgate.Decision{Fail: err}
	}
	s.book.with(r.parts, kept, now, func(pages []*page) {
		r.leave(pages)
		l := &local{request: r, pages: pages, now: now.at, room: true}
		s.prepare(l)
		v := l.verdict()
		if v.Allowed && !v.Replayed && !s.bind(l, &v, now) {
			l.room = false
			v = l.refuse()
		}
		d = l.answer(&v)
	})
	if !d.Allowed {
		s.hints.note(r.parts)
	}
	return d
}

// prepare finds what each bucket has to say.
func (s *Store) prepare(l *local) {
	for k, p := range l.pages {
		pt := &l.parts[k]
		l.shut = l.shut || pt.terms.shut(&pt.n) >= 0
		if len(pt.terms.at) == 0 {
			continue
		}
		if p != nil && p.fresh {
			s.former(p, pt, all)
		}
		if p == nil || p.fresh { // a share cannot be counted
			l.blind[k] = true
			l.shut = l.shut || pt.terms.counts(&pt.n)
		}
		if p == nil {
			continue
		}
		l.asks, l.of = append(l.asks, record.Ask{Rec: &p.rec, Specs: pt.terms.part, N: pt.terms.pick(&pt.n)}), append(l.of, k)
	}
}

// verdict decides by the kept limits, and if these let it pass counts it: all or nothing.
func (l *local) verdict() record.Verdict {
	if l.shut && !l.open() {
		return l.refuse()
	}
	if len(l.asks) == 0 {
		return record.Verdict{Now: l.now, Allowed: true}
	}
	undo := l.hold()
	v := record.Decide(l.asks, l.form(), l.now)
	undo()
	if !v.Allowed && !v.Reused && l.underWay() {
		if v = l.look(v.Now); v.Allowed {
			l.wait(&v)
		}
	}
	return v
}

func (l *local) form() *record.Take {
	t := &record.Take{ID: l.take.ID, Hold: l.take.Hold.Microseconds(), Lease: l.take.Lease, Priority: l.take.Priority}
	if t.ID != "" {
		t.Print = l.take.Print()
	}
	return t
}

// open reports whether the take's id is open here: then it is answered again.
func (l *local) open() bool {
	for i := range l.asks {
		l.asks[i].Rec.Advance(l.asks[i].Specs, l.now)
		if l.take.ID != "" && l.asks[i].Rec.Open[l.take.ID] != nil {
			return true
		}
	}
	return false
}

// refuse refuses without counting, and describes the kept limits.
func (l *local) refuse() record.Verdict {
	v := l.look(l.now)
	v.Allowed = false
	return v
}

// look says what the kept limits would say, but for takes that are under way.
func (l *local) look(now int64) record.Verdict {
	v := record.Verdict{Now: now, Allowed: true}
	for i := range l.asks {
		w := record.Peek(&l.asks[i], l.take.Priority, now)
		v.Now, v.Allowed = max(v.Now, w.Now), v.Allowed && w.Allowed
		v.Soonest = max(v.Soonest, w.Soonest)
	}
	return v
}

// wait refuses a take because of what the store is being asked for: which will be known soon.
func (l *local) wait(v *record.Verdict) {
	v.Allowed = false
	for i := range l.asks {
		for j, n := range l.asks[i].N {
			if n > 0 {
				l.asks[i].Out[j].RetryAfter = again.Microseconds()
				return
			}
		}
	}
}

// underWay reports whether the store is being asked for units of the take's buckets.
func (l *local) underWay() bool {
	for _, k := range l.of {
		if len(l.pages[k].asked) > 0 {
			return true
		}
	}
	return false
}

// hold has the units that the store is being asked for count, until undo.
func (l *local) hold() (undo func()) {
	type hold struct {
		rec *record.Record
		id  uint64
		n   int64
	}
	var holds []hold
	for i, k := range l.of {
		rec := l.asks[i].Rec
		for _, a := range l.pages[k].asked {
			for j, at := range a.terms.at {
				n, spec := a.n[at], &a.terms.part[j]
				if n == 0 {
					continue
				}
				st := stateOf(rec, spec.ID)
				if st == nil {
					rec.Limits = append(rec.Limits, blank(spec, l.now))
					rec.Advance(a.terms.part, l.now)
					st = stateOf(rec, spec.ID)
				}
				st.Held += n
				holds = append(holds, hold{rec, spec.ID, n})
			}
		}
	}
	return func() {
		for _, h := range holds {
			stateOf(h.rec, h.id).Held -= h.n
		}
	}
}

// blank is the state of a limit of which nothing is used.
func blank(s *record.Spec, now int64) record.State {
	st := record.State{ID: s.ID, Kind: s.Kind, Window: s.Window}
	if s.Kind == record.Bucket {
		st.At, st.Rate, st.Scale = now, s.Rate, s.Scale
	}
	return st
}

// bind keeps what the store has to be told of an allowed take. It reports whether there is room for that.
func (s *Store) bind(l *local, v *record.Verdict, now instant) bool {
	if l.take.ID == "" {
		for k, p := range l.pages {
			if p == nil {
				continue
			}
			pt := &l.parts[k]
			n := pt.terms.pick(&pt.n)
			n = pt.terms.place(&n)
			if p.charge(pt.terms, &n); p.owes() {
				s.tell.mark(pt.key)
			}
		}
		return true
	}
	var h *held
	if len(l.asks) > 0 {
		h = s.held.give(l, now)
	}
	if h == nil {
		for i := range l.asks {
			record.Settle(l.asks[i:i+1], l.take.ID, uint64(l.take.Grant), true, v.Now)
		}
		return false
	}
	for k, p := range l.pages {
		if p != nil {
			p.owed = append(p.owed, h)
			s.tell.mark(l.parts[k].key)
		}
	}
	return true
}

// granted returns what each bucket was granted, per limit of its plan: of a lease perhaps a part.
func (l *local) granted() []drawgate.Amounts {
	got := make([]drawgate.Amounts, len(l.parts))
	for k := range l.parts {
		got[k] = l.parts[k].n
	}
	for i, k := range l.of {
		for j, at := range l.parts[k].terms.at {
			got[k][at] = l.asks[i].Got[j]
		}
	}
	return got
}

// answer makes the decision: what it says of limits that are not kept follows from their mode.
func (l *local) answer(v *record.Verdict) drawgate.Decision {
	full := make([]record.Ask, len(l.parts))
	for k := range l.parts {
		pt := &l.parts[k]
		full[k].Got = pt.n
		for j := range pt.terms.plan.Specs(false) {
			full[k].Out[j] = record.Result{ResetAt: v.Now + again.Microseconds()}
		}
	}
	for i, k := range l.of {
		l.place(&full[k], i, k)
	}
	away := false
	if !v.Allowed && !v.Reused {
		away = l.blame(full, v)
	}
	if v.Allowed && l.take.Hold > 0 && v.End == 0 { // no kept limit has an opinion
		v.End = v.Now + l.take.Hold.Microseconds()
	}
	d := drawgate.Answer(l.take, *v, full)
	d.Fallback = d.Fail == nil
	if away {
		d.Reason = drawgate.Away
	}
	return d
}

// place puts what the i-th bucket with kept limits has to say where it belongs.
func (l *local) place(full *record.Ask, i, k int) {
	t, specs := l.parts[k].terms, l.parts[k].terms.plan.Specs(false)
	for j, at := range t.at {
		out := l.asks[i].Out[j]
		if t.mode[at] == drawgate.FallbackOpen {
			used := l.asks[i].Rec.Usage(&t.part[j], l.take.Priority).Used
			out.Remaining = max(0, specs[at].Effective[l.take.Priority]-used)
		}
		full.Out[at], full.Got[at] = out, l.asks[i].Got[j]
	}
}

// blame says of a refusal which limits it is by, and when to ask again. It reports whether it is for want of the store: a limit admits nothing without it,
// or nothing of that size.
func (l *local) blame(full []record.Ask, v *record.Verdict) (away bool) {
	wait := again.Microseconds()
	away, v.RetryAfter = !l.room, 0
	for k := range full {
		pt := &l.parts[k]
		for j := range pt.terms.plan.Specs(false) {
			out, mode := &full[k].Out[j], pt.terms.mode[j]
			none := mode == drawgate.FallbackClosed || mode == drawgate.FallbackShare && l.blind[k]
			if pt.n[j] > 0 && (none || !l.room || out.RetryAfter == record.Never) {
				out.RetryAfter, away = wait, true
			}
			v.RetryAfter = max(v.RetryAfter, out.RetryAfter)
		}
	}
	v.Soonest = min(v.RetryAfter, v.Soonest, firstPause.Microseconds()) // the store may be back
	return away
}

// holdEnd returns when a hold that begins now ends.
func holdEnd(now instant, hold time.Duration) int64 { return now.at + hold.Microseconds() }
