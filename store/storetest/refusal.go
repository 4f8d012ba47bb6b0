package storetest

import (
	"fmt"
	"reflect"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

var refusalCases = []testCase{
	{
		"a refusal costs nothing",
		"refused takes leave every limit of the bucket as it was, and do not make the wait longer",
		testRefusalCostsNothing, false,
	},
	{
		"a refusal costs nothing in other buckets",
		"if one bucket refuses a take from several buckets, nothing is spent in any of them", testRefusalManyBuckets,
		true,
	},
	{"a refused reservation is not open", "the id of a refused take is unknown", testRefusedReservation, true},
	{
		"all or nothing",
		"a take over the largest number of buckets, with several limits each, is granted in all of them or in none",
		testAllOrNothing, true,
	},
	{"64 buckets", "a take over 64 buckets is one step: if one of them is full it is refused, and nothing is spent in the others", testMostBuckets, true},
	{"oversized", "a take that can never fit is refused and spends nothing", testOversized, true},
	{
		"an amount of 0", "nothing passes a limit of 0, of any kind, for however long it waits; what is used stays used",
		testZeroAmount, true,
	},
	{
		"every limit must pass",
		"of limits per minute, hour, day, week and month the strictest decides, and the refusal names it", testTiers,
		false,
	},
}

// unchanged returns a function that checks that the buckets' use has not changed.
func (e *env) unchanged(buckets ...*bucket) func(what string) {
	e.Helper()
	look := func() (all [][]store.LimitUsage) {
		for _, b := range buckets {
			all = append(all, b.peek().States)
		}
		return all
	}
	before := look()
	return func(what string) {
		e.Helper()
		if after := look(); !reflect.DeepEqual(before, after) {
			e.Errorf("%s: used before %+v, after %+v", what, before, after)
		}
	}
}

func testRefusalCostsNothing(e *env) {
	requests, tokens := rolling(10, time.Minute), leaky(100, time.Minute, 0)
	tokens.Unit = "tokens"
	day := calendar(50, drawgate.Day, "UTC")
	b := e.bucket("k", requests, tokens, day)
	e.allowed("first", b.take(1, 95, 1))
	same := e.unchanged(b)
	for range 100 {
		e.refused("too many tokens", b.take(1, 6, 1), 600*time.Millisecond)
		e.refused("a reservation of too many", b.hold("id", time.Minute, 1, 6, 1), 600*time.Millisecond)
	}
	same("after 200 refusals")
	e.advance(600*time.Millisecond - tick)
	for range 100 {
		e.refused("polling does not prolong the wait", b.take(1, 6, 1), tick)
	}
	e.advance(tick)
	e.allowed("on time", b.take(1, 6, 1))
	b.wantUsed("after two takes", 2, 100, 2)
}

// req: D1, E1
func testRefusalManyBuckets(e *env) {
	perIP, global := e.bucket("ip", leaky(10, time.Hour, 5)), e.bucket("global", rolling(3, time.Hour), slots(2))
	e.allowed("fill", global.take(3, 0))
	same := e.unchanged(perIP, global)
	for i := range 20 {
		both := []store.BucketCost{perIP.cost(1), global.cost(1)}
		if i%2 == 1 {
			both[0], both[1] = both[1], both[0]
		}
		d := e.take(store.Take{Buckets: both})
		e.refused("global is full", d, -1)
		if r := refusing(d); r.Bucket != 1-i%2 {
			e.Errorf("refused by bucket %d, want %d", r.Bucket, 1-i%2)
		}
		e.refused("global is full: reservation", e.take(store.Take{ID: fmt.Sprint(i), Hold: time.Hour, Buckets: both}),
			-1)
	}
	same("after 40 refusals")
	if n := perIP.drain(); n != 5 {
		e.Errorf("the other bucket grants %d, want 5", n)
	}
}

func testRefusedReservation(e *env) {
	b, c := e.bucket("k", rolling(1, time.Hour)), e.bucket("other", rolling(1, time.Hour))
	e.allowed("fill", b.take(1))
	e.refused("reservation", e.take(store.Take{
		ID: "id", Hold: time.Hour,
		Buckets: []store.BucketCost{c.cost(1), b.cost(1)},
	}), -1)
	for _, x := range []*bucket{b, c} {
		if x.settle("id", 0) || x.cancel("id") || !x.renew("id").Gone {
			e.Error("a refused reservation is open")
		}
		if st := x.peek(); st.Open != 0 {
			e.Errorf("%d reservations open, want 0", st.Open)
		}
	}
	b.wantUsed("refusing bucket", 1)
	c.wantUsed("other bucket", 0)
}

func testAllOrNothing(e *env) {
	var buckets []*bucket
	for i := range store.MaxBuckets {
		// Bucket i has room for i+1 units; bucket 0 decides.
		buckets = append(buckets, e.bucket(fmt.Sprint("k", i), rolling(int64(i+1), time.Hour),
			leaky(100, 1000*time.Hour, 0), e.month(100)))
	}
	costs := func(n int64) (cs []store.BucketCost) {
		for i := range buckets {
			cs = append(cs, buckets[(i+3)%len(buckets)].cost(n, 2*n, 3*n))
		}
		return cs
	}
	d := e.take(store.Take{ID: "first", Hold: time.Hour, Buckets: costs(1)})
	e.allowed("one of each", d)
	if d.Buckets() != store.MaxBuckets {
		e.Fatalf("%d buckets in the decision", d.Buckets())
	}
	for i := range buckets {
		if got := d.Granted(i); got[0] != 1 || got[1] != 2 || got[2] != 3 {
			e.Errorf("bucket %d: granted %v", i, got)
		}
		buckets[i].wantUsed(fmt.Sprint("bucket ", i), 1, 2, 3)
	}
	same := e.unchanged(buckets...)
	d = e.take(store.Take{ID: "id", Hold: time.Hour, Buckets: costs(1)})
	e.refused("bucket 0 is full", d, -1)
	if r := refusing(d); r.Bucket != len(buckets)-3 {
		e.Errorf("refused by bucket %d of the take, want %d", r.Bucket, len(buckets)-3)
	}
	same("after a refusal")
	e.allowed("the others", e.take(store.Take{Buckets: []store.BucketCost{buckets[7].cost(7), buckets[1].cost(1)}}))
	buckets[7].wantUsed("bucket 7", 8, 2, 3)
}

// req: A3, D1
func testMostBuckets(e *env) {
	const n = 64
	costs := func(buckets []*bucket) (list []store.BucketCost) {
		for _, b := range buckets {
			list = append(list, b.cost(1))
		}
		return list
	}
	for _, full := range []int{0, n / 2, n - 1} {
		var buckets []*bucket
		for i := range n {
			buckets = append(buckets, e.bucket(fmt.Sprint(full, " ", i), rolling(2, time.Hour)))
		}
		e.allowed("one of each", e.take(store.Take{Buckets: costs(buckets)}))
		e.allowed("the last one of one bucket", buckets[full].take(1))
		same := e.unchanged(buckets...)
		for _, t := range []store.Take{{}, {ID: "id", Hold: time.Hour}} {
			t.Buckets = costs(buckets)
			d := e.take(t)
			e.refused(fmt.Sprint("bucket ", full, " is full"), d, -1)
			if r := refusing(d); r.Bucket != full || d.Buckets() != n {
				e.Errorf("refused by bucket %d of %d, want %d of %d", r.Bucket, d.Buckets(), full, n)
			}
		}
		same("after a refusal")
		rest := append(append([]*bucket{}, buckets[:full]...), buckets[full+1:]...)
		e.allowed("the others", e.take(store.Take{Buckets: costs(rest)}))
		for i, b := range buckets {
			b.wantUsed(fmt.Sprint("bucket ", i), 2)
		}
	}
}

func testOversized(e *env) {
	for i, l := range e.fourKinds(10) {
		b := e.bucket(fmt.Sprint("k", i), l)
		for _, n := range []int64{11, 1000, store.MaxAmount} {
			e.refused(fmt.Sprint(l.Name, " ", n), b.hold("id", time.Hour, n), -1)
		}
		kept := l
		kept.ReservedByPriority = map[int]drawgate.Share{1: {Units: 3}}
		e.refused(l.Name+", for its priority", b.with(kept).hold("id", time.Hour, 8), -1)
		e.allowed(l.Name, b.hold("id", time.Hour, 4))
		e.refused(l.Name, b.hold("id2", time.Hour, store.MaxAmount), -1)
		b.wantUsed(l.Name, 4)
	}
}

func testZeroAmount(e *env) {
	for i, l := range e.fourKinds(10) {
		b := e.bucket(fmt.Sprint("k", i), l)
		e.allowed(l.Name, b.hold("a", time.Hour, 4))
		l.Amount, l.Burst = 0, 0
		for name, none := range map[string]*bucket{"used": b.with(l), "unused": e.bucket(fmt.Sprint("new", i), l)} {
			what := l.Name + ", " + name
			for n := range int64(3) {
				e.refused(what, none.hold("b", time.Hour, n+1), drawgate.Never)
			}
			e.refused(what+", a lease", none.lease("b", time.Hour, 1), drawgate.Never)
			e.refused(what+", at the highest priority", e.take(store.Take{
				ID: "b", Hold: time.Hour,
				Priority: store.MaxPriority, Buckets: none.costs(1),
			}), drawgate.Never)
			e.allowed(what+", no unit", none.take(0))
			st := none.peek(1)
			if r := results(st.Verdict)[0]; st.Allowed || r.Remaining != 0 || st.States[0].Max != 0 {
				e.Errorf("%s: allowed %v, %+v, %+v, want nothing remaining of at most 0", what, st.Allowed, r,
					st.States[0])
			}
		}
		b.wantUsed(l.Name, 4)
		e.allowed(l.Name+", the amount it had", b.hold("c", time.Hour, 6))
		e.refused(l.Name+", full", b.hold("d", time.Hour, 1), -1)
	}
}

// req: D1, D5, A6
func testTiers(e *env) {
	tiers := func(window time.Duration, n int64) drawgate.Limit {
		l := rolling(n, window)
		l.Name = window.String()
		return l
	}
	day := 24 * time.Hour
	b := e.bucket("k", tiers(time.Minute, 20), tiers(time.Hour, 50), tiers(day, 90), tiers(7*day, 120),
		tiers(30*day, 140))
	steps := []struct {
		wait  time.Duration
		got   int64
		limit time.Duration
	}{
		{0, 20, time.Minute},
		{time.Minute, 20, time.Minute},
		{time.Minute, 10, time.Hour},
		{time.Hour, 20, time.Minute},
		{time.Minute, 20, day},
		{time.Minute, 0, day},
		{day, 20, time.Minute},
		{time.Minute, 10, 7 * day},
		{7 * day, 20, 30 * day},
	}
	for i, s := range steps {
		e.advance(s.wait)
		if n := b.drain(); n != s.got {
			e.Fatalf("step %d: got %d, want %d", i, n, s.got)
		}
		d := b.take(1, 1, 1, 1, 1)
		if name := b.plan.Policy().Limits[refusing(d).Limit].Name; name != s.limit.String() {
			e.Errorf("step %d: refused by %s, want %v", i, name, s.limit)
		}
	}
}
