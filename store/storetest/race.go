package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// Racing cases have few callers and many rounds, so that they are cheap for stores that write to
// disk.
const callers = 16

var raceCases = []testCase{
	{
		"peers 05, racing takes", "racing callers get all of each kind of limit and never a unit more",
		testPeers05RacingTakes, true,
	},
	{
		"racing refills", "a minute brings back a minute's units once, however many callers race for them", testRaceRefill,
		false,
	},
	{
		"racing over two clients",
		"callers of two clients of the same buckets get all of the limit and never a unit more, as in one process",
		testTwoClients, true,
	},
	{
		"racing over many buckets", "takes from several buckets in opposite orders neither deadlock nor succeed in part",
		testRaceManyBuckets, true,
	},
	{"racing settlements", "of racing settlements of an id one succeeds, and credits once", testRaceSettle, true},
	{
		"racing replays", "of racing takes with the same id one is charged, and the others get its answer", testRaceReplay,
		true,
	},
	{"racing reservations", "callers that reserve and settle leave used what they settled with", testRaceReserve, true},
	{
		"racing versions", "callers with two versions of a policy each get all of their own limit", testRaceVersions,
		true,
	},
}

// start runs f in n goroutines.
func (e *env) start(n int, f func(g int) error) <-chan error {
	errs := make(chan error, n)
	for g := range n {
		go func() { errs <- f(g) }()
	}
	return errs
}

// race runs f for each of the callers at once and waits for them.
func (e *env) race(f func(g int) error) {
	e.Helper()
	errs := e.start(callers, f)
	for range callers {
		if err := <-errs; err != nil {
			e.Error(err)
		}
	}
	if e.Failed() {
		e.FailNow()
	}
}

func takeOf(e *env, s store.Store, t store.Take) (store.Verdict, error) {
	out := make([]store.Verdict, 1)
	if err := s.Take(e.ctx(), []store.Take{t}, out); err != nil {
		return out[0], err
	}
	return out[0], out[0].Fail
}

// Check and update are one atomic step.
//
// req: A1, A3, A8, C1, E1, E10, PEERS 5
func testPeers05RacingTakes(e *env) {
	const amount, each = 100, 10
	limits := append(e.fourKinds(amount), chargeEnd(rolling(amount, 2*time.Hour)))
	for i, l := range limits {
		b := e.bucket(fmt.Sprint("k", i), l)
		var granted atomic.Int64
		e.race(func(g int) error { // 16 callers ask for 10 times 1 or 2 units: 240
			for k := range each {
				n := int64(1 + g%2)
				t := store.Take{Buckets: b.costs(n)}
				if l.Kind == drawgate.Concurrency || k%2 == 1 {
					t.ID, t.Hold = fmt.Sprint(g, " ", k), time.Hour
				}
				d, err := takeOf(e, e.s, t)
				if err != nil {
					return err
				}
				if d.Allowed {
					granted.Add(n)
				}
			}
			return nil
		})
		if n := granted.Load(); n != amount {
			e.Errorf("%s: %d of %d granted", l.Name, n, amount)
		}
		b.wantUsed(l.Name, amount)
	}
}

// Each minute's requests and tokens are taken by some of the racing callers, and none are left.
//
// req: A4
func testRaceRefill(e *env) {
	const requests, tokens = 5, 250_000
	b := e.bucket("k", leaky(requests, time.Minute, 0), drawgate.Limit{
		Name: "tokens", Unit: "tokens",
		Kind: drawgate.Bucket, Window: time.Minute, Amount: tokens,
	})
	e.allowed("all of it", b.take(requests, tokens))
	for _, c := range []struct {
		after time.Duration
		want  int64
	}{{time.Minute, requests}, {24 * time.Second, 2}, {12*time.Second - tick, 0}, {tick, 1}, {time.Hour, requests}} {
		e.advance(c.after)
		var granted atomic.Int64
		e.race(func(int) error {
			d, err := takeOf(e, e.s, store.Take{Buckets: b.costs(1, tokens/requests)})
			if d.Allowed {
				granted.Add(1)
			}
			return err
		})
		if n := granted.Load(); n != c.want {
			e.Errorf("%v later %d callers got in, want %d", c.after, n, c.want)
		}
	}
	b.wantUsed("at the end", requests, tokens)
}

// req: E1
func testTwoClients(e *env) {
	stores := []store.Store{e.s, e.s}
	if e.h.Second != nil {
		stores[1] = e.h.Second(e.T, e.s)
	}
	b := e.bucket("k", rolling(50, time.Hour), leaky(100, 24*time.Hour, 0))
	other := &bucket{e: &env{T: e.T, h: e.h, s: stores[1]}, key: b.key, plan: b.plan}
	e.allowed("one client", b.hold("a", time.Hour, 5, 5))
	other.wantUsed("the other client", 5, 5)
	if d := other.hold("a", time.Hour, 5, 5); !d.Replayed {
		e.Error("the other client does not know the id")
	}
	if !other.settle("a", 1, 1) || b.settle("a", 0, 0) {
		e.Error("settled by the other client: gone, or settled again")
	}
	var granted atomic.Int64
	e.race(func(g int) error {
		for range 5 {
			d, err := takeOf(e, stores[g%2], store.Take{Buckets: b.costs(1, 1)})
			if err != nil {
				return err
			}
			if d.Allowed {
				granted.Add(1)
			}
		}
		return nil
	})
	if n := granted.Load(); n != 49 {
		e.Errorf("%d of 49 granted", n)
	}
	other.wantUsed("the other client", 50, 50)
}

// req: A3, A8
func testRaceManyBuckets(e *env) {
	var buckets []*bucket
	for i := range 4 {
		buckets = append(buckets, e.bucket(fmt.Sprint("k", i), rolling(40, time.Hour), leaky(1000, 1000*time.Hour, 0)))
	}
	var granted atomic.Int64
	e.race(func(g int) error {
		for k := range 8 {
			t := store.Take{}
			for i := range buckets {
				t.Buckets = append(t.Buckets, buckets[(g+i*(1+g%2*2))%4].cost(1, 1))
			}
			if k%2 == 0 {
				t.ID, t.Hold = fmt.Sprint(g, " ", k), time.Hour
			}
			d, err := takeOf(e, e.s, t)
			if err != nil {
				return err
			}
			if d.Allowed {
				granted.Add(1)
			}
		}
		return nil
	})
	if n := granted.Load(); n != 40 {
		e.Errorf("%d of 40 granted", n)
	}
	for i, b := range buckets {
		b.wantUsed(fmt.Sprint("bucket ", i), 40, 40)
	}
}

func testRaceSettle(e *env) {
	a, b := e.bucket("a", rolling(100, time.Hour)), e.bucket("b", chargeEnd(rolling(100, time.Hour)))
	for round := range 10 {
		id := fmt.Sprint(round)
		e.allowed("reserve", e.take(store.Take{
			ID: id, Hold: time.Hour,
			Buckets: []store.BucketCost{a.cost(10), b.cost(10)},
		}))
		var settled atomic.Int64
		e.race(func(g int) error {
			s := settlement(store.OpSettle, id, a.cost(3), b.cost(3))
			if g%2 == 1 {
				s.Buckets[0], s.Buckets[1] = s.Buckets[1], s.Buckets[0]
			}
			out := make([]store.Outcome, 1)
			if err := e.s.Settle(e.ctx(), []store.Settlement{s}, out); err != nil {
				return err
			}
			if !out[0].Gone {
				settled.Add(1)
			}
			return out[0].Err
		})
		if n := settled.Load(); n != 1 {
			e.Errorf("round %d: settled %d times", round, n)
		}
		a.wantUsed("a", int64(3*round+3))
		b.wantUsed("b", int64(3*round+3))
	}
}

// req: A12
func testRaceReplay(e *env) {
	a, b := e.bucket("a", rolling(100, time.Hour)), e.bucket("b", slots(100))
	for round := range 10 {
		var first, replayed atomic.Int64
		e.race(func(int) error {
			t := store.Take{ID: fmt.Sprint(round), Hold: time.Hour, Buckets: []store.BucketCost{b.cost(1), a.cost(7)}}
			d, err := takeOf(e, e.s, t)
			if d.Replayed {
				replayed.Add(1)
			} else if d.Allowed {
				first.Add(1)
			}
			return err
		})
		if first.Load() != 1 || replayed.Load() != callers-1 {
			e.Errorf("round %d: %d first answers, %d replays", round, first.Load(), replayed.Load())
		}
		a.wantUsed("a", int64(7*round+7))
		b.wantUsed("b", int64(round+1))
	}
}

func testRaceReserve(e *env) {
	b := e.bucket("k", rolling(1000, time.Hour), chargeEnd(leaky(1_000_000, 8000*time.Hour, 0)), slots(5))
	var used atomic.Int64
	e.race(func(g int) error {
		for k := range 15 {
			id := fmt.Sprint(g, " ", k)
			d, err := takeOf(e, e.s, store.Take{ID: id, Hold: time.Hour, Buckets: b.costs(5, 500, 1)})
			if err != nil {
				return err
			}
			if !d.Allowed {
				continue
			}
			s := settlement(store.OpSettle, id, b.cost(int64(k%4), int64(k%4), 1))
			if used.Add(int64(k % 4)); k%4 == 0 {
				s = settlement(store.OpCancel, id, b.cost())
			}
			out := make([]store.Outcome, 1)
			if err := e.s.Settle(e.ctx(), []store.Settlement{s}, out); err != nil {
				return err
			}
			if out[0].Err != nil || out[0].Gone {
				return fmt.Errorf("%s: gone %v, %w", id, out[0].Gone, out[0].Err)
			}
		}
		return nil
	})
	b.wantUsed("settled", used.Load(), used.Load(), 0)
	if st := b.peek(); st.Open != 0 {
		e.Errorf("%d open", st.Open)
	}
}

func testRaceVersions(e *env) {
	v1 := e.bucket("k", leaky(40, time.Hour, 0))
	v2 := v1.with(leaky(40, 2*time.Hour, 0))
	var granted [2]atomic.Int64
	e.race(func(g int) error {
		for range 8 {
			b := []*bucket{v1, v2}[g%2]
			d, err := takeOf(e, e.s, store.Take{Buckets: b.costs(1)})
			if err != nil {
				return err
			}
			if d.Allowed {
				granted[g%2].Add(1)
			}
		}
		return nil
	})
	for i := range granted {
		if n := granted[i].Load(); n != 40 {
			e.Errorf("version %d: %d of 40 granted", i+1, n)
		}
	}
}
