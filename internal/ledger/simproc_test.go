package ledger_test

import (
	"errors"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/store"
)

// proc is a process. It does what package guard does around a ledger, without goroutines.
type proc struct {
	s          *sim
	name       int
	l          *ledger.Ledger
	started    int64
	dead       bool
	cut        bool
	down       bool // the breaker is open
	failures   int
	delivering bool
	waiting    []func()
	rep        ledger.Report
}

func (p *proc) now() ledger.Now { return ledger.Now{Own: p.s.now - p.started + 1, Store: p.s.now} }

// call sends a message. do runs at the store when the message arrives; done learns whether the
// answer came in time.
func (p *proc) call(do func(again bool), done func(ok bool)) {
	s := p.s
	there, back := ms+int64(rapid.IntRange(0, 3000).Draw(s.t, "there")), ms
	fate := "well"
	switch {
	case s.calm:
	case p.cut:
		fate = "request lost"
	case s.f.late && s.chance(10, "late"):
		fate = "late"
	case s.f.late && s.chance(10, "twice"):
		fate = "twice"
	case s.f.lost && s.chance(10, "lost"):
		fate = rapid.SampledFrom([]string{"request lost", "answer lost"}).Draw(s.t, "what is lost")
	}
	named, by := s.store.named(), s.store.gen
	if names := s.store.names(); s.store.keeps && len(names) > 1 {
		by = rapid.SampledFrom(names).Draw(s.t, "a connection from when it was called")
	}
	at := do
	do = func(again bool) {
		s.store.conn = by
		at(again)
		s.store.conn = 0
	}
	answered := false
	end := func(ok bool) {
		if !answered && !p.dead {
			answered = true
			done(ok)
		}
		answered = true
	}
	late := 100*ms + int64(rapid.IntRange(0, 1700).Draw(s.t, "late by"))*ms
	if fate != "well" {
		s.note("process %d: %s (late by %d ms)", p.name, fate, late/ms)
	}
	switch fate {
	case "request lost":
	case "late":
		s.after(late, func() {
			if named() {
				do(false)
			}
		})
	case "twice":
		s.after(late, func() {
			if named() {
				do(true)
			}
		})
		fallthrough
	default:
		s.after(there, func() {
			if !named() {
				return
			}
			do(false)
			if fate != "answer lost" {
				s.after(back, func() { end(true) })
			}
		})
	}
	s.after(timeout, func() { end(false) })
}

// failed counts a failure, as the breaker does.
func (p *proc) failed() {
	if p.failures++; p.failures < 3 || p.down {
		return
	}
	p.down = true
	p.s.note("process %d: the store is unavailable", p.name)
	p.s.after(probing, p.probe)
}

func (p *proc) probe() {
	if p.dead {
		return
	}
	p.l.Expire(p.now())
	if p.cut && !p.s.calm {
		p.s.after(probing, p.probe)
		return
	}
	p.down, p.failures = false, 0
	p.s.note("process %d: the store is back", p.name)
	p.kick()
}

// kick starts a delivery, if none is running.
func (p *proc) kick() {
	if p.dead || p.down || p.delivering {
		return
	}
	d := p.l.Next(p.now())
	if d == nil {
		if us := p.l.Wait(p.now()); us > 0 {
			p.s.after(us, p.kick)
		}
		return
	}
	p.delivering = true
	p.looks(d)
}

func (p *proc) looks(d *ledger.Delivery) {
	if len(d.Looks) == 0 {
		p.settlements(d)
		return
	}
	out := make([]store.State, len(d.Looks))
	p.call(func(again bool) {
		for i := range d.Looks {
			if !again {
				out[i] = p.s.store.look(p.s.now)
			}
		}
	}, func(ok bool) {
		if !ok {
			p.l.Failed(p.now(), d)
			p.over(true)
			return
		}
		p.l.Looked(p.now(), d, out, &p.rep)
		p.settlements(d)
	})
}

// recover delivers what an answer showed to be lost.
func (p *proc) recover() {
	if p.l.Recovering() {
		p.kick()
	}
}

// over ends a delivery.
func (p *proc) over(failed bool) {
	p.delivering = false
	waiting := p.waiting
	p.waiting = nil
	for _, f := range waiting {
		f()
	}
	if failed {
		p.failed()
		p.s.after(100*ms, p.kick)
		return
	}
	p.failures = 0
	p.kick()
}

func (p *proc) settlements(d *ledger.Delivery) {
	if len(d.Settlements) == 0 {
		p.takes(d)
		return
	}
	out := make([]store.Outcome, len(d.Settlements))
	p.call(func(again bool) {
		for i := range d.Settlements {
			o := p.s.store.settle(&d.Settlements[i], p.s.now)
			p.s.note("store: process %d delivers %v %s/%d of %v: gone %v", p.name, d.Settlements[i].Op,
				d.Settlements[i].ID, d.Settlements[i].Grant, d.Settlements[i].Buckets[0].N, o.Gone)
			if !again {
				out[i] = o
			}
		}
	}, func(ok bool) {
		if !ok {
			p.l.Failed(p.now(), d)
			p.over(true)
			return
		}
		p.l.Delivered(p.now(), d, out, &p.rep)
		p.takes(d)
	})
}

func (p *proc) takes(d *ledger.Delivery) {
	if len(d.Takes) == 0 {
		p.over(false)
		return
	}
	out := make([]store.Verdict, len(d.Takes))
	for i := range d.Takes {
		d.Takes[i].NotAfter = time.UnixMicro(p.s.now).Add(store.SendLife)
	}
	p.call(func(again bool) {
		for i := range d.Takes {
			o := p.s.store.take(&d.Takes[i], p.s.now)
			p.s.note("store: process %d replays %s/%d: allowed %v, replayed %v, %v", p.name, d.Takes[i].ID,
				d.Takes[i].Grant, o.Allowed, o.Replayed, o.Fail)
			if !again {
				out[i] = o
				continue
			}
			p.s.repeated(d.Takes[i].Grant)
		}
	}, func(ok bool) {
		if !ok {
			p.l.Failed(p.now(), d)
			p.over(true)
			return
		}
		p.l.Replayed(p.now(), d, out, &p.rep)
		p.over(false)
	})
}

// take has the process decide a take, as guard.Store does.
func (p *proc) take(tk store.Take, leaves int64, done func(d store.Verdict, left bool)) {
	r := new(ledger.Request)
	r.Init(&tk)
	decide := func() { done(p.l.Decide(p.now(), r), false) }
	if p.down {
		decide()
		p.kick()
		return
	}
	blocked, end, over := p.l.Begin(p.now(), r), p.s.now+timeout, false
	var proceed func()
	proceed = func() {
		if over || p.dead {
			return
		}
		if blocked {
			blocked, _ = p.l.Blocked(p.now(), r)
		}
		switch {
		case !blocked:
			over = true
			p.ask(r, &tk, leaves, done, decide)
		case p.s.now >= end || p.down:
			over = true
			decide()
		default:
			p.waiting = append(p.waiting, proceed)
			p.kick()
		}
	}
	proceed()
	if !over {
		p.s.after(timeout, proceed)
	}
}

func (p *proc) ask(r *ledger.Request, tk *store.Take, leaves int64, done func(d store.Verdict, left bool),
	decide func(),
) {
	s := p.s
	var d store.Verdict
	sent := *tk
	sent.NotAfter = time.UnixMicro(s.now).Add(store.SendLife)
	over := false
	sent = p.l.SentTakes([]store.Take{sent})[0]
	p.call(func(again bool) {
		o := s.store.take(&sent, s.now)
		s.note("store: process %d takes %s/%d of %v: allowed %v, replayed %v, %v", p.name, tk.ID, tk.Grant,
			tk.Buckets[0].N, o.Allowed, o.Replayed, o.Fail)
		if again {
			s.repeated(tk.Grant)
		} else {
			d = o
		}
	}, func(ok bool) {
		if over {
			return
		}
		over = true
		if !ok || errors.Is(d.Fail, store.ErrTooLate) {
			p.l.Unanswered(p.now(), r)
			p.failed()
			decide()
			p.kick()
			return
		}
		p.failures = 0
		p.l.Answered(p.now(), r, &d)
		p.recover()
		done(d, false)
	})
	if leaves > 0 {
		s.after(leaves, func() {
			if over || p.dead {
				return
			}
			over = true
			p.l.Unanswered(p.now(), r)
			p.l.Abandon(p.now(), r)
			p.kick()
			done(store.Verdict{}, true)
		})
	}
}

// settle has the process carry out a settlement. ok reports whether it was answered.
func (p *proc) settle(st store.Settlement, done func(o store.Outcome, ok bool)) {
	if o, mine := p.l.Settle(p.now(), &st); mine {
		p.kick()
		done(o, true)
		return
	}
	keep := func() {
		o, kept := p.l.Keep(p.now(), &st)
		p.kick()
		done(o, kept)
	}
	if p.down {
		keep()
		return
	}
	var o store.Outcome
	began := p.s.now
	sent := p.l.SentSettlements([]store.Settlement{st})[0]
	p.call(func(again bool) {
		out := p.s.store.settle(&sent, p.s.now)
		p.s.note("store: process %d: %v %s/%d with %v: gone %v", p.name, st.Op, st.ID, st.Grant, st.Buckets[0].N,
			out.Gone)
		if !again {
			o = out
		}
	}, func(ok bool) {
		if !ok {
			p.failed()
			keep()
			return
		}
		p.failures = 0
		p.l.Settled(p.now(), began, &st, &o)
		p.recover()
		done(o, true)
	})
}
