package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/store"
)

// The simulation of losses: processes at a model store that keeps histories, and forgets. Each take
// is of another power of two units, so the store's entries show what counts, and how often.

// mostUids is how many takes a store may see: so many powers of two are below the greatest amount.
const mostUids = 36

// losses is what may happen, besides takes.
type losses struct {
	events []string
	faults faults
	misses bool // a loss may be missed, because an older program is beside
}

// admitted is what a take was, from its caller's point of view.
type admission struct {
	bit     int64
	owner   *proc
	take    store.Take
	grant   *grant
	charge  bool // it is a charge by a caller
	local   bool // admitted here
	allowed bool
	asking  bool
	end     int64
	first   int64 // the end before it was renewed
	settled bool
	ended   int64 // when it was settled
	used    int64
	may     bool // it may count or not: it was reset, or its process has ended, or others changed it
}

type lossSim struct {
	*sim
	all    []*admission
	misses bool
	reset  int64 // the last one, of any server
}

func simulateLosses(t *testing.T, n int, what *losses) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		s := &lossSim{sim: &sim{
			t: rt, f: what.faults, now: 1_000_000 * second, store: newKeeper(), spoiled: map[string]bool{},
			ending: map[int64]bool{}, plan: lossPlan(),
		}, misses: what.misses}
		for i := range n {
			s.procs = append(s.procs, s.process(i, n))
		}
		for range rapid.IntRange(5, 40).Draw(rt, "steps") {
			s.do(rapid.SampledFrom(what.events).Draw(rt, "event"))
			s.run(s.now + rapid.SampledFrom([]int64{0, 2 * ms, 10 * ms, 200 * ms, 5 * second}).Draw(rt, "pause"))
			s.once(false)
		}
		s.heard()
	})
}

// lossPlan has limits that nothing reaches, and in which nothing ages.
func lossPlan() *store.Plan {
	p, err := drawgate.Policy{Name: "p", Fallback: drawgate.FallbackShare, Limits: []drawgate.Limit{
		{
			Name: "units", Kind: drawgate.Rolling, Amount: store.MaxAmount, Window: 1000 * time.Hour,
			Precision: drawgate.Exact,
		},
		{Name: "slots", Kind: drawgate.Concurrency, Amount: 1000},
	}}.Compile()
	if err != nil {
		panic(fmt.Sprint("a plan of the tests: ", err))
	}
	return p.Plan
}

func (s *lossSim) process(i, n int) *proc {
	p := &proc{s: s.sim, name: i, started: s.now}
	p.l = ledger.New(ledger.Options{
		Instances: func() (int, bool) { return n, true }, Start: drawgate.StartFull, MaxEntries: 100, MaxHeld: 10_000,
		Recovers: func() bool { return true },
	})
	return p
}

func (s *lossSim) do(what string) {
	m := s.store
	switch what {
	case "take", "reserve":
		s.takes(what == "reserve")
	case "charge":
		s.charges()
	case "settle", "cancel":
		s.settles(what == "cancel")
	case "renew":
		s.renews()
	case "cut":
		p := s.pick()
		p.cut = !p.cut
		s.note("process %d: cut off %v", p.name, p.cut)
	case "fail over":
		k := rapid.IntRange(0, len(m.hist)-1).Draw(s.t, "to")
		s.note("fail-over to write %d of %d", k, len(m.hist)-1)
		m.failover(k)
	case "back":
		if len(m.olds) > 0 {
			k := rapid.IntRange(0, len(m.olds)-1).Draw(s.t, "old")
			s.note("the primary %d is back", m.olds[k].gen)
			m.back(k)
		}
	case "evict":
		s.note("evicted")
		m.evict()
	case "migrate":
		s.note("migrated")
		m.migrate()
	case "peek":
		p := s.pick()
		var st store.State
		p.call(func(bool) { st = m.look(s.now) }, func(ok bool) {
			if ok {
				p.l.Peeked(p.now(), &bucket(s.plan, 0, 0)[0], 0, &st)
				p.recover()
			}
		})
	case "rename":
		m.rename()
		s.note("the server is called %d", m.gen)
	case "older":
		s.note("a program of the version before writes")
		m.older(s.now, s.chance(30, "drops the list"))
	case "reset":
		s.note("reset")
		m.reset(s.now)
		s.reset = max(s.reset, m.past.reset)
		for _, a := range s.all {
			a.may = true
		}
	case "crash":
		s.ends(s.pick())
	}
}

func (s *lossSim) pick() *proc {
	return s.procs[rapid.IntRange(0, len(s.procs)-1).Draw(s.t, "process")]
}

// ends ends a process, and starts another. What only it knew is forgotten.
func (s *lossSim) ends(p *proc) {
	s.note("process %d ends", p.name)
	p.dead = true
	for _, a := range s.all {
		if a.owner == p {
			a.may = true
		}
	}
	for i := range s.procs {
		if s.procs[i] == p {
			s.procs[i] = s.process(p.name+10, len(s.procs))
			s.procs[i].cut = p.cut
		}
	}
}

func (s *lossSim) takes(reserve bool) {
	if len(s.all) >= mostUids {
		return
	}
	p := s.pick()
	a := &admission{bit: 1 << len(s.all), owner: p, asking: true}
	a.used = a.bit
	s.all = append(s.all, a)
	a.take = store.Take{Buckets: bucket(s.plan, a.bit, 0)}
	if reserve {
		a.take = store.Take{
			ID: fmt.Sprintf("id%d", len(s.all)), Grant: store.Grant(len(s.all)), Buckets: bucket(s.plan, a.bit, 1),
			Hold: rapid.SampledFrom([]time.Duration{10 * time.Second, time.Hour}).Draw(s.t, "hold"),
		}
	}
	a.grant = &grant{take: a.take, owner: p}
	s.grants = append(s.grants, a.grant)
	p.take(a.take, 0, func(d store.Verdict, _ bool) {
		s.note("process %d: u%d reserve %v: allowed %v, fallback %v, %v", p.name, len(s.all)-1, reserve, d.Allowed,
			d.Fallback, d.Fail)
		a.asking = false
		a.allowed, a.local, a.end, a.first = d.Allowed, d.Fallback, d.End, d.End
		a.may = a.may || s.resetSince(&d)
	})
}

// charges lets a caller charge units.
func (s *lossSim) charges() {
	if len(s.all) >= mostUids {
		return
	}
	p := s.pick()
	a := &admission{bit: 1 << len(s.all), owner: p, asking: true, charge: true}
	a.used = a.bit
	s.all = append(s.all, a)
	n, began := len(s.all)-1, s.now
	p.settle(store.Settlement{
		Op: store.OpCharge, At: store.Internal.Instant(s.now), Buckets: bucket(s.plan, a.bit, 0),
	}, func(_ store.Outcome, ok bool) {
		s.note("process %d: u%d is charged: %v", p.name, n, ok)
		a.asking, a.allowed = false, ok
		a.may = a.may || s.reset >= began
	})
}

// resetSince reports whether the record was reset at or after a decision whose answer comes now.
func (s *lossSim) resetSince(d *store.Verdict) bool { return s.reset >= d.Now }

func (s *lossSim) working() (as []*admission) {
	for _, a := range s.all {
		if a.take.ID != "" && a.allowed && !a.settled && !a.owner.dead && a.end > s.now+second {
			as = append(as, a)
		}
	}
	return as
}

func (s *lossSim) settles(cancel bool) {
	as := s.working()
	if len(as) == 0 {
		return
	}
	a := as[rapid.IntRange(0, len(as)-1).Draw(s.t, "which")]
	a.settled, a.ended = true, s.now
	st := store.Settlement{
		Op: store.OpSettle, ID: a.take.ID, Grant: a.take.Grant, Buckets: bucket(s.plan, a.bit, 1),
	}
	if cancel {
		a.used, st.Op = 0, store.OpCancel
	}
	a.owner.settle(st, func(o store.Outcome, ok bool) {
		s.note("process %d: %v of %s: gone %v, ok %v", a.owner.name, st.Op, a.take.ID, o.Gone, ok)
		if ok && o.Gone && !s.misses && !a.may && a.first > s.now {
			s.failf("%s is gone, though nobody ended it", a.take.ID)
		}
		a.may = a.may || !ok
	})
}

func (s *lossSim) renews() {
	as := s.working()
	if len(as) == 0 {
		return
	}
	a := as[rapid.IntRange(0, len(as)-1).Draw(s.t, "which")]
	st := store.Settlement{
		Op: store.OpRenew, ID: a.take.ID, Grant: a.take.Grant, Hold: time.Hour, Buckets: bucket(s.plan, 0, 0),
	}
	a.owner.settle(st, func(o store.Outcome, ok bool) {
		s.note("process %d: renews %s: gone %v, ok %v, until %v", a.owner.name, a.take.ID, o.Gone, ok, o.End.UnixMicro())
		if ok && !o.Gone {
			a.end = max(a.end, o.End.UnixMicro())
		}
	})
}

// once fails the test if something counts twice.
func (s *lossSim) once(calm bool) {
	seen := int64(0)
	for _, e := range s.store.entries {
		for _, a := range s.all {
			if e.n&a.bit == 0 {
				continue
			}
			if seen&a.bit != 0 && !s.doubtful(a, calm) {
				s.failf("%d units count twice", a.bit)
			}
			seen |= a.bit
		}
	}
}

// doubtful reports whether units may count twice without any loss: a plain take that was decided
// here, and that the store decided too, or that arrived twice, as may a charge; a reservation
// whose take the network repeated, or that the store may have although it was given here.
func (s *lossSim) doubtful(a *admission, calm bool) bool {
	switch {
	case a.charge: // the first attempt, which has no grant, was carried out, and was not answered
		return s.store.plains[a.bit] > 0 && (s.f.lost || s.f.late)
	case a.take.ID == "":
		return a.local || a.asking || !a.allowed || s.store.plains[a.bit] > 1
	case a.settled && s.now-a.ended > 55*second: // a process that hears of a loss now has forgotten it
		return true
	case a.local && (s.f.late || s.f.lost), !calm && (a.local || a.asking):
		return true
	}
	return a.grant.repeats
}

// withdrawn reports whether a cancellation for late messages found a reservation open again that
// was settled, because the store had lost that, and its answer was lost, too. That is not
// recovered.
func (s *lossSim) withdrawn(a *admission) bool {
	return a.take.ID != "" && s.f.lost && s.store.cancelled[a.take.Grant]
}

// heard lets every process have an answer, and checks that all counts that should.
func (s *lossSim) heard() {
	s.calm = true
	for round := range 4 {
		for _, p := range s.procs {
			p.cut = false
			p.kick()
		}
		s.run(s.now + 3*second)
		for _, p := range s.procs {
			st := s.store.look(s.now)
			p.l.Peeked(p.now(), &bucket(s.plan, 0, 0)[0], 0, &st)
			p.kick()
		}
		s.run(s.now + 3*second)
		s.note("round %d is over", round)
	}
	s.once(true)
	for _, p := range s.procs {
		if p.l.Pending() > 0 {
			s.failf("process %d still has something pending", p.name)
		}
	}
	counts := int64(0)
	s.store.used(s.now)
	for _, e := range s.store.entries {
		counts |= e.n
	}
	for _, a := range s.all {
		if s.misses || a.may || !a.allowed || a.asking {
			continue
		}
		h := s.store.open[a.take.ID]
		open := a.take.ID != "" && h != nil
		switch {
		case a.used > 0 && counts&a.bit == 0 && !s.withdrawn(a):
			s.failf("%d units are missing", a.bit)
		case a.used == 0 && counts&a.bit != 0 && a.first > s.now && !s.doubtful(a, true):
			s.failf("%d units count, though %s was cancelled", a.bit, a.take.ID)
		case a.settled && open && a.first > s.now && !s.doubtful(a, true):
			s.failf("%s is open, though it was settled", a.take.ID)
		case a.take.ID != "" && !a.settled && a.first > s.now && !open: // older data may have only the first hold
			s.failf("%s is not open", a.take.ID)
		case open && !a.settled && h.end < a.end && a.first > s.now:
			s.failf("%s is open until %d, not %d", a.take.ID, h.end, a.end)
		}
	}
}

var plainLosses = []string{"take", "take", "charge", "cut", "fail over", "evict", "migrate", "back"}

var allLosses = append([]string{"reserve", "reserve", "settle", "cancel", "renew"}, plainLosses...)

// TestLossesOfUnits: fail-overs to older data, evictions, migrations, and primaries that come back.
func TestLossesOfUnits(t *testing.T) {
	t.Parallel()
	simulateLosses(t, 2, &losses{events: plainLosses})
}

// TestLossesWithFaults: in addition, requests and answers are lost or late.
func TestLossesWithFaults(t *testing.T) {
	t.Parallel()
	simulateLosses(t, 3, &losses{events: plainLosses, faults: faults{lost: true, late: true}})
}

// TestLossesOfReservations: they are opened, renewed and settled again under their grants.
func TestLossesOfReservations(t *testing.T) {
	t.Parallel()
	simulateLosses(t, 2, &losses{events: allLosses})
}

// TestLossesOfReservationsWithFaults: in addition, requests and answers are lost or late.
func TestLossesOfReservationsWithFaults(t *testing.T) {
	t.Parallel()
	simulateLosses(t, 2, &losses{events: allLosses, faults: faults{lost: true, late: true}})
}

// TestLossesAndResets: what was admitted before a reset is forgiven, and processes end.
func TestLossesAndResets(t *testing.T) {
	t.Parallel()
	events := append([]string{"reset", "crash"}, allLosses...)
	simulateLosses(t, 3, &losses{events: events, faults: faults{lost: true}})
}

// TestLossesOfRenamedServers: a server draws another master_replid, and has its data, and there are
// connections from before.
func TestLossesOfRenamedServers(t *testing.T) {
	t.Parallel()
	events := append([]string{"rename", "rename", "peek", "peek"}, allLosses...)
	simulateLosses(t, 2, &losses{events: events, faults: faults{lost: true, late: true}})
}

// TestLossesBesideOlderProgram: a program that keeps no list writes, too. Losses may be missed, but
// nothing counts twice.
func TestLossesBesideOlderProgram(t *testing.T) {
	t.Parallel()
	events := append([]string{"older", "older"}, allLosses...)
	simulateLosses(t, 2, &losses{events: events, misses: true})
}
