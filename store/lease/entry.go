package lease

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/store"
)

// entry is a bucket that is asked for often: its holder, and what callers read without its lock.
type entry struct {
	s  *Store
	id ident

	cur     atomic.Pointer[units]   // copy of the holder's
	refusal atomic.Pointer[refusal] // copy of the holder's
	busy    atomic.Bool             // the holder knows that little is left of cur
	coming  atomic.Pointer[coming]  // a lease that is asked for, and worth waiting for; nil: there is none

	mu     sync.Mutex
	h      *holder       // guarded by mu, but for its counters
	called chan struct{} // guarded by mu: closed when the call on its way is answered; nil: there is none
	timer  *time.Timer   // guarded by mu
	closed bool          // guarded by mu: no lease is asked for
}

// coming is a lease that is asked for. Takes can wait for it without the entry's lock: where very
// many do, the answer would come behind all of them.
type coming struct {
	answered chan struct{}
	most     store.Amounts // a take that asks for more does not wait
	waiting  [store.MaxLimits]atomic.Int64
}

// join reports whether a take of n units may wait, and counts it.
func (c *coming) join(n *store.Amounts) bool {
	for j := range n {
		if n[j] > c.most[j] {
			return false
		}
	}
	for j := range n {
		if n[j] > 0 {
			c.waiting[j].Add(n[j])
		}
	}
	return true
}

// newEntry returns an entry whose bucket was asked for often enough.
func newEntry(s *Store, id ident, now moment, takes int64, n *store.Amounts) *entry {
	e := &entry{s: s, id: id}
	e.h = newHolder(id.plan, id.priority, now, takes, max(now.at%sketchEpoch, sketchEpoch/16), n)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.timer = time.AfterFunc(time.Duration(e.h.life), e.tick)
	return e
}

// sync carries out what the holder decided. e.mu is held; it does no I/O.
func (e *entry) sync() {
	h := e.h
	if e.cur.Load() != h.cur {
		e.cur.Store(h.cur)
		if h.cur != nil {
			e.timer.Reset(time.Duration(h.cur.deadline - e.s.clock.now().at))
		}
	}
	if e.refusal.Load() != h.refusal {
		e.refusal.Store(h.refusal)
	}
	if len(h.ended) > 0 {
		e.s.give.add(e.id, h.ended)
		h.ended = nil
	}
	if h.asked != nil && e.called == nil {
		if e.closed || !e.s.begin() {
			h.asked, h.direct = nil, math.MaxInt64
			return
		}
		e.called = make(chan struct{})
		if !h.dry {
			c := &coming{answered: e.called}
			for j := range h.limits {
				c.most[j] = h.most(j)
			}
			e.coming.Store(c)
		}
		go e.call(h.asked)
	}
}

// call asks the store for a lease.
func (e *entry) call(a *ask) {
	defer e.s.calls.Done()
	ctx, cancel := context.WithTimeout(e.s.ctx, time.Duration(a.hold))
	defer cancel()
	t := [1]store.Take{{
		ID: a.id, Grant: a.grant, Hold: time.Duration(a.hold), Lease: true, Priority: e.id.priority,
		Buckets: []store.BucketCost{{Key: e.id.key, Plan: e.id.plan, N: a.n}},
	}}
	var out [1]store.Verdict
	e.s.stats.calls.Add(1)
	err := e.s.inner.Take(ctx, t[:], out[:])
	if err == nil {
		err = out[0].Fail
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.coming.Swap(nil); c != nil {
		for j := range c.waiting {
			e.h.waiting[j] += c.waiting[j].Load()
		}
	}
	e.h.answered(e.s.clock.now(), a, &out[0], err)
	if e.closed {
		e.h.drop(e.s.clock.now())
	}
	close(e.called)
	e.called = nil
	e.busy.Store(false)
	e.sync()
}

// miss is called for a take that found no units. It waits for a call that is on its way, if that
// can help.
func (e *entry) miss(ctx context.Context, n *store.Amounts) (step, error) {
	if c := e.coming.Load(); c != nil && c.join(n) {
		return e.wait(ctx, c.answered)
	}
	e.mu.Lock()
	what := goThrough
	if !e.closed {
		what = e.h.miss(e.s.clock.now(), n)
	}
	e.sync()
	called := e.called
	e.mu.Unlock()
	if what != await {
		return what, nil
	}
	if called == nil { // the store is being closed
		return goThrough, nil
	}
	return e.wait(ctx, called)
}

// wait waits for an answer, if it comes in time.
func (e *entry) wait(ctx context.Context, called chan struct{}) (step, error) {
	var late <-chan time.Time // then the store may still answer in time
	if end, ok := ctx.Deadline(); ok {
		t := time.NewTimer(time.Until(end) / 2)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-called:
		return retry, nil
	case <-late:
		return goThrough, nil
	case <-ctx.Done():
		return goThrough, ctx.Err()
	}
}

// low is called when little is left.
func (e *entry) low() {
	if !e.busy.CompareAndSwap(false, true) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.h.low(e.s.clock.now())
	}
	e.sync()
	if e.called == nil {
		e.busy.Store(false)
	}
}

// passed learns from what the store said of a take that went straight to it.
func (e *entry) passed(sent moment, v *store.Verdict) {
	if v.Fail != nil || v.Fallback {
		return
	}
	now := e.s.clock.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.h.restAt <= sent.at {
		e.h.learn(sent, now, v)
	}
	if v.Reason == store.Paused || v.Reason == store.Queued { // others are to be served first
		e.h.paused(now)
		e.sync()
	}
}

// giveBack closes what is held. What is asked is no lease when it is answered. With last, none is
// asked for any more.
func (e *entry) giveBack(last bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = e.closed || last
	e.h.paused(e.s.clock.now())
	e.h.forget()
	e.sync()
	if last {
		e.timer.Stop()
	}
}

// tick gives back what has reached its deadline, and removes an entry that is idle.
func (e *entry) tick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	now := e.s.clock.now()
	again, idle := e.h.tick(now)
	e.sync()
	if idle && e.called == nil {
		e.closed = true
		e.s.keys.remove(e)
		e.s.stats.entries.Add(-1)
		return
	}
	e.timer.Reset(time.Duration(max(again-now.at, int64(time.Millisecond))))
}

// give tells the store of leases that ended, of all buckets together.
type give struct {
	s       *Store
	mu      sync.Mutex
	todo    []given       // guarded by mu
	running chan struct{} // guarded by mu: closed when what is running has nothing left to do; nil: nothing runs
}

type given struct {
	id ident
	ending
}

// mostGiven is how many leases one call ends.
const mostGiven = 64

func (g *give) add(id ident, list []ending) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range list {
		g.todo = append(g.todo, given{id, e})
	}
	if g.running == nil {
		g.running = make(chan struct{})
		go g.run(g.running)
	}
}

// run ends leases until none is left to end.
func (g *give) run(done chan struct{}) {
	defer close(done)
	for {
		g.mu.Lock()
		some := g.todo[:min(len(g.todo), mostGiven)]
		g.todo = g.todo[len(some):]
		if len(some) == 0 {
			g.todo, g.running = nil, nil
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		now := g.s.clock.now().at
		g.send(slices.DeleteFunc(some, func(x given) bool { return x.until <= now })) // these count as used by now
	}
}

// wait waits until all is told that was to be told when it was called, or ctx ends.
func (g *give) wait(ctx context.Context) {
	g.mu.Lock()
	running := g.running
	g.mu.Unlock()
	if running == nil {
		return
	}
	select {
	case <-running:
	case <-ctx.Done():
	}
}

// giveTime bounds one call that ends leases, and giveTries the calls: afterwards they count as
// used.
const (
	giveTime  = time.Second
	giveTries = 2
)

// send tells the store how some leases ended. What it says twice counts once.
func (g *give) send(some []given) {
	for try := 0; try < giveTries && len(some) > 0 && g.s.ctx.Err() == nil; try++ {
		batch, out := make([]store.Settlement, len(some)), make([]store.Outcome, len(some))
		for i := range some {
			x := &some[i]
			batch[i] = store.Settlement{
				Op: store.OpSettle, ID: x.ending.id, Grant: x.grant,
				Buckets: []store.BucketCost{{Key: x.id.key, Plan: x.id.plan, N: x.spent}},
			}
			if x.cancel {
				batch[i].Op = store.OpCancel
			}
		}
		ctx, cancel := context.WithTimeout(g.s.ctx, giveTime)
		g.s.stats.calls.Add(1)
		err := g.s.inner.Settle(ctx, batch, out)
		cancel()
		if errors.Is(err, store.ErrClosed) {
			return
		}
		now := g.s.clock.now().at
		left := some[:0:0]
		for i := range some {
			if failed := err != nil || out[i].Err != nil; failed && now < some[i].until {
				left = append(left, some[i])
			}
		}
		some = left
	}
}
