package lease

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/drawgate/drawgate/store"
)

// world is a simulation of several processes that share one bucket of one store, with the holder
// that ships. Time is that of the store, in ns, and moves from event to event.
type world struct {
	rng   *rand.Rand
	now   int64
	queue events
	order uint64

	plan *store.Plan
	rec  *store.Record

	least, most int64   // ns: how long a message takes
	lost        float64 // share of messages
	twice       float64 // share of takes that arrive once more, up to two seconds later
	back        int64   // µs by which the store's clock was set back
	slow        float64 // by how much the slowest process's clock is slow

	procs     []*proc
	admitted  []admission
	decisions int64
	calls     int64
}

type admission struct{ at, n int64 }

type event struct {
	at    int64
	order uint64
	do    func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

// proc is a process.
type proc struct {
	w       *world
	h       *holder
	rate    float64 // takes per second
	slow    float64 // by how much its clock is slow
	born    int64
	jump    int64 // of its wall clock
	asleep  int64 // how long its machine was suspended
	dead    bool
	stopped int64 // until then it stands still
	sent    bool  // an ask is on its way
	waiting []store.Amounts
	served  int64
	cost    store.Amounts
	hung    float64 // share of takes between whose two steps the process stands still
}

func newWorld(seed uint64, p store.Policy) *world {
	p.Name, p.Leased = "p", true
	plan, err := p.Compile()
	if err != nil {
		panic(err)
	}
	rec, _ := store.Decode(nil)
	return &world{
		rng: rand.New(rand.NewPCG(seed, 1)), plan: plan, rec: rec,
		least: int64(time.Millisecond), most: int64(200 * time.Millisecond), slow: 0.001,
	}
}

func (w *world) in(d int64, do func()) {
	w.order++
	heap.Push(&w.queue, event{w.now + max(0, d), w.order, do})
}

func (w *world) run(until int64) {
	for len(w.queue) > 0 && w.queue[0].at <= until {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
	}
	w.now = until
}

// epoch is when simulations start: a minute before midnight.
const epoch = 1_800_000_000_000_000 - 1_800_000_000_000_000%86_400_000_000 - 60_000_000

func (w *world) clock() time.Time { return time.UnixMicro(epoch + w.now/1000 - w.back) }

func (w *world) delay() int64 {
	return w.least + int64(math.Pow(w.rng.Float64(), 3)*float64(w.most-w.least)) // most are quick
}

func (w *world) loses() bool { return w.rng.Float64() < w.lost }

// start adds a process.
func (w *world) start(rate float64) *proc {
	p := &proc{w: w, rate: rate, slow: w.slow * w.rng.Float64(), born: w.now - w.rng.Int64N(1e12)}
	for j := range w.plan.Policy().Limits {
		p.cost[j] = 1
	}
	p.h = newHolder(w.plan, 0, p.now(), 1, int64(time.Second), &p.cost)
	w.procs = append(w.procs, p)
	p.arrive()
	p.tick()
	return p
}

func (p *proc) now() moment {
	return moment{at: int64(float64(p.w.now-p.born-p.asleep) * (1 - p.slow)), jump: p.jump}
}

// suspend makes the machine of a process stand still: its monotonic clock does, too.
func (p *proc) suspend(d int64) {
	p.stopped = max(p.stopped, p.w.now+d)
	p.asleep += d // the clock stands still at once, which is the worst
	p.jump += d
}

// when calls f when the process runs, and not at all once it is dead.
func (p *proc) when(d int64, f func()) {
	p.w.in(d, func() {
		switch {
		case p.dead:
		case p.stopped > p.w.now:
			p.when(p.stopped-p.w.now, f)
		default:
			f()
		}
	})
}

// beat is how often takes come.
const beat = int64(10 * time.Millisecond)

func (p *proc) arrive() {
	p.when(beat, func() {
		want := p.rate * float64(beat) / 1e9
		n := int(want)
		if p.w.rng.Float64() < want-float64(n) {
			n++
		}
		for range n {
			p.w.decisions++
			p.take(p.cost)
		}
		p.arrive()
	})
}

func (p *proc) tick() {
	again, _ := p.h.tick(p.now())
	p.sync()
	p.when(min(max(again-p.now().at, int64(time.Millisecond)), int64(50*time.Millisecond)), p.tick)
}

// take is what entry.take and Store.here do.
func (p *proc) take(n store.Amounts) {
	for range tries {
		if u := p.h.cur; u != nil {
			if ok, low := u.spend(&n); ok {
				at := p.w.now // it counts when it is taken off
				finish := func() bool {
					now := p.now()
					if !p.h.usable(u, now) {
						return false
					}
					p.h.takes.Add(1)
					if low || now.at >= u.refresh {
						p.h.low(now)
						p.sync()
					}
					p.admit(at, n[0])
					return true
				}
				if p.w.rng.Float64() < p.hung { // this goroutine alone stands still
					p.when(p.w.rng.Int64N(2*p.h.life), func() {
						if !finish() {
							p.take(n)
						}
					})
					return
				}
				if finish() {
					return
				}
			}
		}
		if r := p.h.refusal; r != nil && r.covers(&n) && p.now().at < r.until {
			p.count(&n)
			return
		}
		what := p.h.miss(p.now(), &n)
		p.sync()
		switch what {
		case await:
			p.waiting = append(p.waiting, n)
			return
		case goThrough:
			p.through(n)
			return
		}
	}
	p.through(n)
}

func (p *proc) count(n *store.Amounts) {
	p.h.takes.Add(1)
	for j := range p.h.limits {
		p.h.refused[j].Add(n[j])
	}
}

func (p *proc) admit(at, n int64) {
	p.served += n
	p.w.admitted = append(p.w.admitted, admission{at, n})
}

func (w *world) buckets(n store.Amounts) []store.BucketCost {
	return []store.BucketCost{{Key: store.Key{Policy: "p", Name: "k"}, Plan: w.plan, N: n}}
}

func (w *world) decide(t *store.Take) store.Verdict {
	return store.Decide(t, []*store.Record{w.rec}, w.clock())
}

// through sends a plain take.
func (p *proc) through(n store.Amounts) {
	p.count(&n)
	w := p.w
	w.calls++
	sent := p.now()
	if w.loses() {
		return
	}
	w.in(w.delay(), func() {
		v := w.decide(&store.Take{Buckets: w.buckets(n)})
		if v.Allowed { // it counts from here, whether or not the answer arrives
			p.admit(w.now, n[0])
		}
		if !w.loses() {
			p.when(w.delay(), func() {
				if p.h.restAt <= sent.at {
					p.h.learn(sent, p.now(), &v)
				}
				if v.Reason == store.Paused {
					p.h.paused(p.now())
					p.sync()
				}
			})
		}
	})
}

// sync is what entry.sync does.
func (p *proc) sync() {
	for _, e := range p.h.ended {
		p.give(e, giveTries)
	}
	p.h.ended = nil
	if p.h.asked != nil && !p.sent {
		p.sent = true
		p.call(p.h.asked)
	}
}

// call is what entry.call does.
func (p *proc) call(a *ask) {
	w := p.w
	w.calls++
	t := &store.Take{
		ID: a.id, Grant: a.grant, Hold: time.Duration(a.hold), Lease: true, Buckets: w.buckets(a.n),
		NotAfter: w.clock().Add(store.SendLife),
	}
	answered := false
	answer := func(v store.Verdict, err error) {
		if answered {
			return
		}
		answered = true
		p.sent = false
		p.h.answered(p.now(), a, &v, err)
		p.sync()
		waiting := p.waiting
		p.waiting = nil
		for _, n := range waiting {
			p.take(n)
		}
	}
	p.when(a.hold, func() { answer(store.Verdict{}, &store.Error{Store: "sim"}) })
	if w.rng.Float64() < w.twice {
		w.in(w.rng.Int64N(int64(store.SendLife)), func() { w.decide(t) })
	}
	if w.loses() {
		return
	}
	w.in(w.delay(), func() {
		v := w.decide(t)
		if !w.loses() {
			p.when(w.delay(), func() { answer(v, v.Fail) })
		}
	})
}

// give is what give.send does.
func (p *proc) give(e ending, tries int) {
	w := p.w
	w.calls++
	s := &store.Settlement{Op: store.OpSettle, ID: e.id, Grant: e.grant, Buckets: w.buckets(e.spent)}
	if e.cancel {
		s.Op = store.OpCancel
	}
	if w.loses() {
		if tries > 1 {
			p.when(int64(giveTime), func() { p.give(e, tries-1) })
		}
		return
	}
	send := func() { store.Apply(s, []*store.Record{w.rec}, w.clock()) }
	w.in(w.delay(), send)
	if w.rng.Float64() < w.twice {
		w.in(w.delay()+w.rng.Int64N(int64(store.SendLife)), send)
	}
}

// everySome calls f after random times, about d apart.
func (w *world) everySome(d time.Duration, f func()) {
	w.in(w.rng.Int64N(2*int64(d)), func() {
		f()
		w.everySome(d, f)
	})
}

// any returns one of the processes that live.
func (w *world) any() *proc {
	w.procs = slices.DeleteFunc(w.procs, func(p *proc) bool { return p.dead })
	return w.procs[w.rng.IntN(len(w.procs))]
}

// over returns by how many units a limit was exceeded in the worst window.
func (w *world) over() (most int64) {
	slices.SortFunc(w.admitted, func(a, b admission) int { return int(a.at/1000 - b.at/1000) })
	for j, l := range w.plan.Policy().Limits {
		limit := w.plan.Max(j, 0)
		switch l.Kind {
		case store.Rolling:
			first, sum := 0, int64(0)
			for _, a := range w.admitted {
				for sum += a.n; w.admitted[first].at/1000+l.Window.Microseconds() <= a.at/1000; first++ {
					sum -= w.admitted[first].n
				}
				most = max(most, sum-limit)
			}
		case store.Calendar:
			used := map[int64]int64{}
			for _, a := range w.admitted {
				used[(epoch+a.at/1000)/60_000_000] += a.n // minutes
			}
			for _, n := range used {
				most = max(most, n-limit)
			}
		case store.Bucket:
			level, at := float64(0), int64(0)
			for _, a := range w.admitted {
				drained := float64(a.at/1000-at) * float64(l.Amount) / float64(l.Window.Microseconds())
				level = max(0, level-drained) + float64(a.n)
				at = a.at / 1000
				most = max(most, int64(math.Ceil(level-float64(limit)-1e-6)))
			}
		}
	}
	return most
}

func (w *world) sum() (n int64) {
	for _, a := range w.admitted {
		n += a.n
	}
	return n
}
