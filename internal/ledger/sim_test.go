package ledger_test

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
)

// The simulation runs processes against a model store over a network that loses requests and
// answers, repeats and delays messages, and cuts processes off. Processes crash. The seed decides
// the order of events on a single clock: there are no goroutines and no sleeps.

const (
	ms      = int64(time.Millisecond / time.Microsecond)
	timeout = 40 * ms
	probing = 300 * ms
)

// faults lists what may go wrong.
type faults struct {
	lost    bool // requests and answers
	late    bool // messages arrive late or twice
	crashes bool
	cold    bool // who starts after a crash starts cold
	plain   bool // some takes have no ID
	brief   bool // some holds are shorter than outages
	forgets bool // the store remembers no holds that have ended
	pauses  bool
}

type event struct {
	at, seq int64
	do      func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}

// sim is the whole simulated world.
type sim struct {
	t          *rapid.T
	f          faults
	now        int64
	seq        int64
	queue      events
	store      *modelStore
	plan       *store.Plan
	procs      []*proc
	grants     []*grant
	plains     []*grant        // admissions without an ID
	spoiled    map[string]bool // IDs for which the store may hold a grant that nobody uses
	calm       bool            // nothing goes wrong any more
	ids        int
	starts     int // after crashes
	pausedFrom int64
	paused     int64          // a caller was told that the bucket is paused until then
	ending     map[int64]bool // the ends of pauses that callers wanted to be over before
	unpaused   int64          // a caller was told that the pause that ended then is over
	log        strings.Builder
}

// grant is one logical take, from its caller's point of view.
type grant struct {
	take    store.Take
	owner   *proc
	asking  bool
	allowed bool
	local   bool
	at      int64 // when it was admitted
	end     int64 // its caller may work until then
	n       int64 // what it used: the estimate until it is settled
	slots   int64
	settled bool // a settlement was sent
	acked   bool // and confirmed
	stopped int64
	renewed bool
	repeats bool // the network repeated its take: at worst one hold that nobody uses
	dead    bool // its process crashed
}

func (s *sim) after(d int64, do func()) {
	s.seq++
	heap.Push(&s.queue, event{s.now + d, s.seq, do})
}

func (s *sim) run(until int64) {
	for len(s.queue) > 0 && s.queue[0].at <= until {
		e := heap.Pop(&s.queue).(event)
		s.now = e.at
		e.do()
	}
	s.now = until
}

func (s *sim) chance(percent int, what string) bool {
	return rapid.IntRange(0, 99).Draw(s.t, what) < percent
}

func (s *sim) note(format string, args ...any) {
	fmt.Fprintf(&s.log, "%9.3f  ", float64(s.now)/1e6)
	fmt.Fprintf(&s.log, format+"\n", args...)
}

func (s *sim) failf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), s.log.String())
}

// repeated notes that the network repeated a take. It may open a hold that nobody uses, which
// blocks other grants of its ID.
func (s *sim) repeated(g store.Grant) {
	for _, o := range s.grants {
		if o.take.Grant == g {
			o.repeats = true
			s.spoiled[o.take.ID] = true
		}
	}
}

func (s *sim) start(i, n int, start drawgate.Start) *proc {
	p := &proc{s: s, name: i, started: s.now}
	p.l = ledger.New(ledger.Options{
		Instances: func() (int, bool) { return n, true }, Start: start, MaxEntries: 100,
		MaxHeld: 10_000,
	})
	return p
}

// step lets a caller do something.
func (s *sim) step() {
	p := s.procs[rapid.IntRange(0, len(s.procs)-1).Draw(s.t, "process")]
	switch rapid.SampledFrom([]string{
		"take", "take", "take", "again", "settle", "settle", "renew", "cut", "crash",
		"pause",
	}).Draw(s.t, "step") {
	case "take":
		s.caller(p)
	case "again": // a caller that was refused asks for the same grant again
		if i := len(s.grants) - 1; i >= 0 && !s.grants[i].asking && !s.grants[i].allowed && !s.grants[i].dead &&
			s.grants[i].stopped == 0 {
			s.ask(s.grants[i])
		}
	case "settle":
		s.settleOne()
	case "renew":
		s.renewOne()
	case "cut":
		p.cut = !p.cut
		s.note("process %d: cut off %v", p.name, p.cut)
	case "crash":
		if s.f.crashes && s.chance(20, "crash") {
			s.crash(p)
		}
	case "pause":
		switch {
		case !s.f.pauses:
		case s.chance(30, "pause"):
			s.pause(p)
		case s.chance(30, "unpause"):
			s.unpause(p)
		}
	}
}

func (s *sim) caller(p *proc) {
	began, g := s.now, &grant{owner: p, n: rapid.Int64Range(1, 3).Draw(s.t, "n")}
	if s.f.plain && s.chance(40, "plain") {
		g.take = store.Take{Buckets: bucket(s.plan, g.n, 0)}
		p.take(g.take, 0, func(d store.Verdict, _ bool) {
			s.note("process %d: a plain take of %d: allowed %v, fallback %v", p.name, g.n, d.Allowed, d.Fallback)
			s.mayAllow(began, &d)
			if d.Allowed {
				g.allowed, g.at, g.local, g.stopped = true, d.At().UnixMicro(), d.Fallback, s.now
				s.plains = append(s.plains, g)
			}
		})
		return
	}
	g.slots = rapid.Int64Range(0, 1).Draw(s.t, "slots")
	s.ids++
	id := fmt.Sprintf("id%d", rapid.IntRange(0, 7).Draw(s.t, "id")) // processes use the same IDs
	hold := time.Hour
	if s.f.brief {
		hold = rapid.SampledFrom([]time.Duration{time.Second, 5 * time.Second, time.Hour}).Draw(s.t, "hold")
	}
	g.take = store.Take{ID: id, Grant: store.Grant(s.ids), Hold: hold, Buckets: bucket(s.plan, g.n, g.slots)}
	s.grants = append(s.grants, g)
	s.ask(g)
}

func (s *sim) ask(g *grant) {
	leaves := int64(0)
	if s.chance(15, "leaves") {
		leaves = int64(rapid.IntRange(1, 30).Draw(s.t, "after")) * ms
		g.stopped = -1 // it will not be sent again
	}
	p, began := g.owner, s.now
	g.asking = true
	p.take(g.take, leaves, func(d store.Verdict, left bool) {
		s.note("process %d: %s/%d of %d units and %d slots: allowed %v, fallback %v, left %v, %v, %v", p.name,
			g.take.ID, g.take.Grant, g.n, g.slots, d.Allowed, d.Fallback, left, d.Reason, d.Fail)
		g.asking = false
		if left {
			g.stopped = s.now
			return
		}
		if !d.Replayed {
			s.mayAllow(began, &d)
		}
		if d.Allowed && !g.allowed {
			g.allowed, g.at, g.local, g.end, g.stopped = true, d.At().UnixMicro(), d.Fallback, d.HoldEnd().UnixMicro(),
				0
			if e := s.store.entryOf(g.take.Grant); e != nil && d.Replayed {
				g.at = e.at
			}
		}
	})
}

// mayAllow fails the test if a take was allowed in a bucket that everybody knew to be paused when
// it began.
func (s *sim) mayAllow(began int64, d *store.Verdict) {
	if d.Allowed && s.pausedFrom <= began && s.pausedFrom <= d.At().UnixMicro() && d.At().UnixMicro() < s.paused {
		s.failf("allowed at %v, though paused until %v", float64(d.At().UnixMicro())/1e6, float64(s.paused)/1e6)
	}
}

// working returns the grants whose callers work.
func (s *sim) working() (gs []*grant) {
	for _, g := range s.grants {
		if g.allowed && g.stopped == 0 && !g.dead && !g.settled && g.end > s.now {
			gs = append(gs, g)
		}
	}
	return gs
}

func (s *sim) settleOne() {
	gs := s.working()
	if len(gs) == 0 {
		return
	}
	g := gs[rapid.IntRange(0, len(gs)-1).Draw(s.t, "which")]
	st := store.Settlement{
		Op: store.OpSettle, ID: g.take.ID, Grant: g.take.Grant,
		Buckets: bucket(s.plan, rapid.Int64Range(0, g.n).Draw(s.t, "used"), g.slots),
	}
	if s.chance(30, "cancel") {
		st.Op, st.Buckets[0].N[0] = store.OpCancel, 0
	}
	g.settled, g.stopped = true, s.now
	sent := s.now
	g.owner.settle(st, func(o store.Outcome, ok bool) {
		s.note("process %d: %v %s/%d with %d: gone %v, ok %v", g.owner.name, st.Op, g.take.ID, g.take.Grant,
			st.Buckets[0].N[0], o.Gone, ok)
		if ok && o.Gone && g.end > s.now && !g.repeats {
			s.failf("%s/%d is gone at %v, though it was granted until %v", g.take.ID, g.take.Grant, float64(sent)/1e6,
				float64(g.end)/1e6)
		}
		g.acked = ok && !o.Gone
	})
	g.n = st.Buckets[0].N[0]
}

func (s *sim) renewOne() {
	gs := s.working()
	if len(gs) == 0 {
		return
	}
	g := gs[rapid.IntRange(0, len(gs)-1).Draw(s.t, "which")]
	st := store.Settlement{
		Op: store.OpRenew, ID: g.take.ID, Grant: g.take.Grant, Hold: 20 * time.Second,
		Buckets: bucket(s.plan, 0, 0),
	}
	g.owner.settle(st, func(o store.Outcome, ok bool) {
		s.note("process %d: renew %s/%d: gone %v, ok %v, until %v", g.owner.name, g.take.ID, g.take.Grant, o.Gone, ok,
			o.End.UnixMicro())
		if ok && !o.Gone {
			g.end, g.renewed = max(g.end, o.End.UnixMicro()), true
		} else if !ok { // the store may hold it for longer than its caller knows
			s.spoiled[g.take.ID] = true
		}
	})
}

func (s *sim) pause(p *proc) {
	if len(s.procs) > 1 {
		return // the others learn of it from the store
	}
	until := s.now + int64(rapid.IntRange(1, 30).Draw(s.t, "seconds"))*second
	st := store.Settlement{
		Op: store.OpPause, At: time.UnixMicro(until), Reason: "a test",
		Buckets: bucket(s.plan, 0, 0),
	}
	p.settle(st, func(o store.Outcome, ok bool) {
		s.note("process %d: paused until %v: %v", p.name, float64(until)/1e6, ok)
		if ok && o.End.UnixMicro() > s.paused && !s.ending[o.End.UnixMicro()] {
			if s.paused <= s.now {
				s.pausedFrom = s.now
			}
			s.paused = o.End.UnixMicro()
		}
	})
}

// unpause ends the pause that was answered last, or one that ended at another instant: that must
// change nothing.
func (s *sim) unpause(p *proc) {
	if len(s.procs) > 1 || s.paused == 0 {
		return
	}
	until := s.paused
	if s.chance(30, "another") {
		until += second
	} else {
		s.paused, s.ending[until] = 0, true // from now on it may be over, whatever answers are on their way
	}
	st := store.Settlement{Op: store.OpUnpause, At: time.UnixMicro(until), Buckets: bucket(s.plan, 0, 0)}
	p.settle(st, func(o store.Outcome, ok bool) {
		s.note("process %d: no pause until %v: paused until %v, %v", p.name, float64(until)/1e6, o.End.UnixMicro(), ok)
		if ok && !o.Kept {
			s.unpaused = until
		}
	})
}

// crash ends a process, and starts another in its place. What was pending is lost: docs/fallback.md
// has the bound.
func (s *sim) crash(p *proc) {
	s.note("process %d crashes", p.name)
	p.dead = true
	for _, g := range append(slices.Clone(s.grants), s.plains...) {
		if g.owner == p {
			g.dead = true
			if g.stopped == 0 {
				g.stopped = s.now
			}
		}
	}
	i := slices.Index(s.procs, p)
	start := drawgate.StartClosed
	if s.f.cold {
		start = drawgate.StartCold
	}
	s.starts++
	next := s.start(p.name+10, len(s.procs), start)
	next.cut = p.cut
	s.procs[i] = next
}

func (m *modelStore) entryOf(g store.Grant) *entry {
	for _, e := range slices.Backward(m.entries) {
		if e.grant == g {
			return e
		}
	}
	return nil
}

// admitted returns what callers were admitted, without what was lost in crashes.
func (s *sim) admitted() (all []*grant) {
	for _, g := range append(slices.Clone(s.grants), s.plains...) {
		if g.allowed && (!g.dead || !g.local) {
			all = append(all, g)
		}
	}
	return all
}

// within fails the test if callers were admitted more than extra units beyond the limit in a
// window, or extra slots at once.
func (s *sim) within(extra [2]int64) {
	all := s.admitted()
	specs := store.Internal.Specs(s.plan, true)
	for _, g := range all {
		units, slots := int64(0), int64(0)
		for _, o := range all {
			if o.at <= g.at && g.at < o.at+window {
				units += o.n
			}
			stop := o.end
			if o.stopped > 0 {
				stop = min(stop, o.stopped)
			}
			if o.slots > 0 && !s.spoiled[o.take.ID] && o.at <= g.at && g.at < stop {
				slots++
			}
		}
		if most := specs[0].Effective[9] + extra[0]; units > most {
			s.failf("%d units in the window that ends at %v, at most %d", units, float64(g.at)/1e6, most)
		}
		if most := specs[1].Effective[9] + extra[1]; slots > most {
			s.failf("%d slots are held at %v, at most %d", slots, float64(g.at)/1e6, most)
		}
	}
}

// unused returns the units of holds that were over before they could be cancelled, and that nobody
// here used: of takes that were refused, and of those that were refused first, and allowed when
// their callers asked again.
func (s *sim) unused() (units int64) {
	counts := map[store.Grant]bool{} // of brief holds: whether they are among them
	for _, g := range s.grants {
		if g.take.Hold < time.Hour {
			counts[g.take.Grant] = !g.allowed
		}
	}
	for _, e := range slices.Backward(s.store.entries) {
		unused, brief := counts[e.grant]
		if unused {
			units += e.n
		}
		if brief {
			counts[e.grant] = true
		}
	}
	return units
}

// settledUp waits until everything is delivered, and checks what the store knows.
func (s *sim) settledUp() {
	s.calm = true
	for _, p := range s.procs {
		p.cut = false
		p.kick()
	}
	s.run(s.now + 10*second)
	if s.store.paused > s.now && s.store.paused == s.unpaused && !s.f.lost {
		s.failf("the store still has the pause until %v, which was ended", float64(s.unpaused)/1e6)
	}
	s.run(s.now + 30*second) // pauses included
	for _, p := range s.procs {
		if p.l.Pending() > 0 || p.down {
			s.failf("process %d still has items pending for %d buckets at the end", p.name, p.l.Pending())
		}
	}
	units, _ := s.store.used(s.now)
	want, ended := int64(0), int64(0)
	for _, g := range s.admitted() {
		if g.at+window > s.now {
			want += g.n
			// if its hold ended before the settlement was delivered, it counts as granted where the
			// store forgets it, or if its caller was not told that it was settled
			if (s.f.forgets || !g.acked) && g.settled && g.end <= s.now {
				ended += g.take.Buckets[0].N[0] - g.n
			}
		}
	}
	for _, g := range s.grants { // or was over before the store learned that it was renewed here
		if s.f.forgets && g.local && g.renewed && g.take.Hold < time.Hour {
			ended += g.take.Buckets[0].N[0]
		}
	}
	ended += s.unused()
	if units < want {
		s.failf("the store knows of %d units, but %d were used", units, want)
	}
	// a plain take whose answer is lost may count twice, and so may one whose hold ends before the
	// store says whether it has it, unless that remembers it
	twice := s.f.lost && (s.f.plain || s.f.brief && s.f.forgets)
	if exact := !twice && !s.f.late && !s.f.crashes; exact && units > want+ended {
		s.failf("the store knows of %d units, and %d were used (or %d)", units, want, want+ended)
	}
	holders := map[store.Grant]*grant{}
	for _, g := range s.grants {
		holders[g.take.Grant] = g
	}
	for id, h := range s.store.open {
		g := holders[h.grant]
		if g == nil { // of a late charge: it is settled as soon as nothing can open it again
			if !s.f.crashes && !s.f.late {
				s.failf("the store still holds %s/%d", id, h.grant)
			}
			continue
		}
		if !g.dead && !g.repeats && (!g.allowed || g.settled) {
			s.failf("the store holds %s/%d for nobody", id, h.grant)
		}
	}
	held := map[store.Grant]bool{}
	for _, h := range s.store.open {
		held[h.grant] = true
	}
	for _, g := range s.working() {
		if !held[g.take.Grant] && !s.spoiled[g.take.ID] {
			s.failf("the store does not hold %s/%d, which is granted until %v", g.take.ID, g.take.Grant,
				float64(g.end)/1e6)
		}
	}
	for _, g := range s.grants { // each settlement was recorded once, by its grant
		if e := s.store.entryOf(g.take.Grant); e != nil && g.acked && g.allowed && !g.repeats && !g.dead && e.n > g.n &&
			g.end > s.now {
			s.failf("%s/%d was settled with %d, and counts %d", g.take.ID, g.take.Grant, g.n, e.n)
		}
	}
}

// long enables the long forms of tests.
var long = needs.Long()

func simulate(t *testing.T, n int, f faults) {
	t.Helper()
	rounds := 1
	if long {
		rounds = 50
	}
	for range rounds {
		simulateOnce(t, n, f)
	}
}

func simulateOnce(t *testing.T, n int, f faults) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		s := &sim{
			t: rt, f: f, now: 1_000_000 * second, store: newModel(), spoiled: map[string]bool{},
			ending: map[int64]bool{}, plan: plan(rapid.Int64Range(3, 20).Draw(rt, "units"),
				rapid.Int64Range(1, 4).Draw(rt, "slots")),
		}
		if !f.forgets {
			s.store.ended = map[string]*entry{}
		}
		for i := range n {
			s.procs = append(s.procs, s.start(i, n, drawgate.StartFull))
		}
		for range rapid.IntRange(20, 80).Draw(rt, "steps") {
			s.step()
			s.run(s.now + rapid.SampledFrom([]int64{0, ms, 10 * ms, 100 * ms, second, 10 * second}).Draw(rt, "pause"))
		}
		s.settledUp()
		extra := [2]int64{}
		for i, spec := range store.Internal.Specs(s.plan, true)[:2] {
			share := spec.Effective[9] / int64(n)
			if extra[i] = int64(n-1) * share; f.cold && i == 0 {
				extra[i] += int64(s.starts) * ledger.ColdPart(share, n)
			}
		}
		s.within(extra)
	})
}

// TestSimulatedOutages: a process is cut off and comes back, and nothing else goes wrong. In the
// end the store knows exactly what was used.
//
// req: A1, A10
func TestSimulatedOutages(t *testing.T) {
	t.Parallel()
	simulate(t, 1, faults{plain: true, brief: true, pauses: true})
}

// TestSimulatedLosses: in addition, requests and answers are lost.
//
// req: A1, A10, A12
func TestSimulatedLosses(t *testing.T) {
	t.Parallel()
	simulate(t, 1, faults{plain: true, brief: true, lost: true, pauses: true})
}

// TestSimulatedLossesOfReservations: of what has an id, and a hold longer than the outage or that
// the store remembers, the store knows exactly what was used, although requests and answers are
// lost.
//
// req: A1, A10, A12
func TestSimulatedLossesOfReservations(t *testing.T) {
	t.Parallel()
	for _, f := range []faults{{lost: true}, {lost: true, forgets: true}, {lost: true, brief: true}} {
		simulate(t, 1, f)
		simulate(t, 3, f)
	}
}

// TestSimulatedDelays: in addition, messages are late or arrive twice.
//
// req: A1, A10, A12
func TestSimulatedDelays(t *testing.T) {
	t.Parallel()
	simulate(t, 1, faults{plain: true, brief: true, lost: true, late: true})
}

// TestSimulatedCrashes: in addition, processes crash, during an outage or not.
//
// req: A1, A10
func TestSimulatedCrashes(t *testing.T) {
	t.Parallel()
	simulate(t, 1, faults{plain: true, brief: true, lost: true, late: true, crashes: true})
}

// TestSimulatedProcesses: three processes share the limits, and each is cut off independently.
//
// req: A1, A10
func TestSimulatedProcesses(t *testing.T) {
	t.Parallel()
	simulate(t, 3, faults{plain: true, brief: true, lost: true, late: true, crashes: long})
}

// TestSimulatedColdStarts: processes crash, and others start cold in their places, during an outage
// or not. They go beyond the limit by the parts of the starts at most.
//
// req: A10
func TestSimulatedColdStarts(t *testing.T) {
	t.Parallel()
	simulate(t, 1, faults{plain: true, brief: true, crashes: true, cold: true})
	simulate(t, 3, faults{plain: true, brief: true, lost: true, late: true, crashes: true, cold: true})
}
