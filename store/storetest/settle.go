package storetest

import (
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

var settleCases = []testCase{
	{
		"settle corrects where the take counted", "a settlement changes the amount, never the time", testSettleKeepsTime,
		false,
	},
	{
		"a late settle credits nothing",
		"units whose window has ended when they are settled are not credited to the next one", testLateSettle, false,
	},
	{
		"a late settle after a long gap", "not even after many windows, and others' units stay", testVeryLateSettle,
		false,
	},
	{
		"settle on a bucket", "a settlement gives back at most what has not drained since the take", testSettleBucket,
		false,
	},
	{
		"settle does not mint", "a holder that returns everything late never lets others exceed burst and rate",
		testSettleMint, false,
	},
	{
		"settle of nothing reserved", "what was used of a limit of which nothing was reserved counts from the settlement on",
		testSettleUnreserved, false,
	},
	{"settle joined entries", "a settlement finds its units among others in the same entry", testSettleJoined, false},
}

func testSettleKeepsTime(e *env) {
	b := e.bucket("k", rolling(10, time.Minute))
	e.allowed("reserve", b.hold("id", time.Hour, 8))
	e.advance(30 * time.Second)
	e.allowed("plain", b.take(2))
	if !b.settle("id", 5) {
		e.Error("settle: gone")
	}
	b.wantUsed("settled", 7)
	e.refused("4 of 10", b.take(4), 30*time.Second)
	e.advance(30*time.Second - tick)
	b.wantUsed("before the take's window is over", 7)
	e.advance(tick)
	b.wantUsed("after it", 2)
}

func testLateSettle(e *env) {
	b := e.bucket("k", rolling(10, time.Minute), calendar(10, drawgate.Minute, "UTC"))
	e.until(nextEdge(e.now(), drawgate.Minute, "UTC", 1))
	e.allowed("reserve to be cancelled", b.hold("less", time.Hour, 3, 3))
	e.allowed("reserve to be exceeded", b.hold("more", time.Hour, 3, 3))
	e.allowed("reserve to be left", b.hold("end", 70*time.Second, 4, 4))
	e.advance(time.Minute)
	b.wantUsed("the next window", 0, 0)
	e.allowed("taken in the next window", b.take(6, 6))
	if !b.cancel("less") || !b.settle("more", 9, 9) {
		e.Error("gone, and the hold is not over")
	}
	b.wantUsed("settled late", 6, 6)
	e.advance(10 * time.Second)
	b.wantUsed("ended late", 6, 6)
	e.refused("full", b.take(5, 5), -1)
}

func testVeryLateSettle(e *env) {
	for i, l := range []drawgate.Limit{
		rolling(10, time.Minute), joined(10, time.Minute, 100),
		calendar(10, drawgate.Minute, "UTC"), leaky(10, time.Minute, 0),
	} {
		b := e.bucket(fmt.Sprint("k", i), l)
		e.allowed("reserve", b.hold("id", 24*time.Hour, 10))
		e.advance(time.Hour)
		e.until(nextEdge(e.now(), drawgate.Minute, "UTC", 1))
		e.allowed("others", b.take(10))
		if !b.cancel("id") {
			e.Error("gone, and the hold is not over")
		}
		b.wantUsed(l.Name, 10)
		e.refused(l.Name, b.take(1), -1)
	}
}

func testSettleBucket(e *env) {
	b := e.bucket("k", leaky(60, time.Minute, 60)) // one per second
	e.allowed("reserve", b.hold("a", time.Hour, 60))
	e.advance(30 * time.Second)
	b.wantUsed("half of it drained", 30)
	e.allowed("others", b.take(30))
	b.wantUsed("full", 60)
	if !b.cancel("a") {
		e.Error("gone")
	}
	b.wantUsed("30 of the 60 had drained, 30 come back", 30)

	e.advance(time.Hour)
	e.allowed("reserve", b.hold("b", time.Hour, 40))
	e.advance(10 * time.Second)
	if !b.settle("b", 35) {
		e.Error("gone")
	}
	b.wantUsed("5 come back: 30 have not drained", 25)

	e.advance(time.Hour)
	e.allowed("reserve", b.hold("c", 3*time.Hour, 40))
	e.advance(time.Hour)
	if !b.settle("c", 45) {
		e.Error("gone")
	}
	b.wantUsed("more than the estimate counts, however late", 5)
}

// req: C1
func testSettleMint(e *env) {
	const burst, rate = 20, 2 // per second
	b := e.bucket("k", leaky(rate, time.Second, burst))
	start, spent := e.now(), int64(0)
	for round := range 30 {
		id := fmt.Sprint(round)
		if d := b.hold(id, time.Hour, int64(round%burst+1)); ok(e, d) {
			e.advance(time.Duration(round%7) * 900 * time.Millisecond)
			spent += b.drain() // somebody else, greedy
			if !b.cancel(id) {
				e.Fatal("gone")
			}
		}
		spent += b.drain()
		if most := burst + int64(e.now().Sub(start)/(time.Second/rate)); spent > most {
			e.Fatalf("round %d: %d spent, at most %d", round, spent, most)
		}
		e.advance(1700 * time.Millisecond)
	}
	if most := burst + int64(e.now().Sub(start)/(time.Second/rate)); spent < most/2 {
		e.Errorf("only %d of %d spent", spent, most)
	}
}

func testSettleJoined(e *env) {
	b := e.bucket("k", joined(20, 100*time.Second, 100))
	for i := range 10 {
		e.allowed("reserve", b.hold(fmt.Sprint(i), time.Hour, 2))
		e.advance(90 * time.Millisecond)
	}
	for i := range 10 {
		if !b.settle(fmt.Sprint(i), int64(i%2)) {
			e.Errorf("reservation %d is gone", i)
		}
	}
	b.wantUsed("every other was used by half", 5)
	e.advance(100 * time.Second)
	b.wantUsed("a window later", 0)
}

func chargeEnd(l drawgate.Limit) drawgate.Limit {
	l.Charge = drawgate.ChargeEnd
	return l
}

var chargeEndCases = []testCase{
	{"charge at the end", "held units do not age; they count from their settlement", testChargeEnd, false},
	{
		"charge at the end by unit",
		"output tokens and money are charged at the end, requests and input tokens at the start", testChargeUnits,
		false,
	},
	{
		"a hold that ends is charged then", "units of a hold that ends without settlement count from its end",
		testChargeEndOver, false,
	},
	{
		"held units fill every window", "held units count in the calendar window that is open, whichever that is",
		testChargeEndCalendar, false,
	},
	{"a plain take is charged at once", "without a hold, units count from the decision", testChargeEndPlain, false},
}

func testChargeEnd(e *env) {
	for i, c := range []struct {
		limit drawgate.Limit
		wait  time.Duration // for the 40 units used
	}{
		{rolling(100, time.Minute), time.Minute},
		{joined(100, time.Minute, 100), time.Minute},
		{leaky(100, time.Minute, 0), 24 * time.Second},
	} {
		b := e.bucket(fmt.Sprint("k", i), chargeEnd(c.limit))
		e.allowed("reserve", b.hold("id", time.Hour, 100))
		e.advance(10 * time.Minute)
		st := b.peek(1)
		if st.States[0].Used != 100 || st.States[0].Held != 100 || st.Allowed {
			e.Errorf("limit %d: in flight: %+v", i, st.States[0])
		}
		if !b.settle("id", 40) {
			e.Error("settle: gone")
		}
		st = b.peek(100)
		if st.States[0].Used != 40 || st.States[0].Held != 0 || st.RetryAfter != c.wait {
			e.Errorf("limit %d: settled: %+v, retry-after %v; want 40 used, %v", i, st.States[0], st.RetryAfter, c.wait)
		}
		e.allowed("the rest", b.take(60))
	}
}

func testChargeUnits(e *env) {
	unit := func(u string) drawgate.Limit {
		l := rolling(100, time.Minute)
		l.Name, l.Unit = u, u
		return l
	}
	b := e.bucket("k", unit("requests"), unit("input_tokens"), unit("output_tokens"), unit("usd_micros"))
	e.allowed("reserve", b.hold("id", time.Hour, 50, 50, 50, 50))
	st := b.peek()
	for i, held := range []int64{0, 0, 50, 50} {
		if s := st.States[i]; s.Used != 50 || s.Held != held {
			e.Errorf("limit %d: %+v, want 50 used, %d held", i, s, held)
		}
	}
	e.advance(time.Minute)
	b.wantUsed("a window later", 0, 0, 50, 50)
}

func testChargeEndOver(e *env) {
	for i, l := range []drawgate.Limit{rolling(100, time.Minute), leaky(100, time.Minute, 0)} {
		b := e.bucket(fmt.Sprint("k", i), chargeEnd(l))
		e.allowed("reserve", b.hold("id", 90*time.Second, 100))
		e.refused("full", b.take(100), 150*time.Second)
		e.advance(100 * time.Second) // nobody looks at the instant of the end
		want := int64(100)
		if l.Kind == drawgate.Bucket {
			want = 84 // 10 s of draining
		}
		b.wantUsed(l.Name, want)
		if b.settle("id", 0) {
			e.Error("a hold that is over was settled")
		}
		b.wantUsed(l.Name, want)
		e.advance(50*time.Second - tick)
		e.refused("early", b.take(100), tick)
		e.advance(tick)
		e.allowed("on time", b.take(100))
	}
}

func testChargeEndCalendar(e *env) {
	b := e.bucket("k", chargeEnd(calendar(10, drawgate.Hour, "UTC")))
	edge := nextEdge(e.now(), drawgate.Hour, "UTC", 1)
	e.until(edge.Add(-time.Minute))
	e.allowed("reserve", b.hold("a", time.Hour, 4))
	e.allowed("reserve", b.hold("b", 90*time.Second, 4))
	b.wantUsed("this window", 8)
	e.until(edge)
	b.wantUsed("the next window", 8)
	e.refused("3 of 10", b.take(3), time.Hour)
	if !b.settle("a", 1) {
		e.Error("settle: gone")
	}
	b.wantUsed("settled: entered in this window", 5)
	e.until(edge.Add(time.Hour - tick))
	b.wantUsed("ended: entered in this window", 5)
	e.advance(tick)
	b.wantUsed("the window after", 0)
}

func testChargeEndPlain(e *env) {
	b := e.bucket("k", chargeEnd(rolling(10, time.Minute)))
	e.allowed("all", b.take(10))
	if s := b.peek().States[0]; s.Used != 10 || s.Held != 0 {
		e.Errorf("%+v, want 10 used, none held", s)
	}
	e.refused("full", b.take(1), time.Minute)
}

var leaseCases = []testCase{
	{
		"a lease in part", "a lease gets what is available, at least one of each unit that it asks for, or is refused",
		testLeasePart, true,
	},
	{
		"a lease does not age", "leased units do not age while the lease is open, and count from its settlement",
		testLeaseAge, false,
	},
	{
		"a lease that ends", "units of a lease that ends without settlement count in full from its end", testLeaseEnd,
		false,
	},
	{
		"a lease over a calendar edge", "leased units count in the next window as well, as long as the lease is open",
		testLeaseEdge, false,
	},
	{
		"a lease is replayed", "the same lease again gets the same answer, although less is available now",
		testLeaseReplay, true,
	},
}

func testLeasePart(e *env) {
	tokens := leaky(1000, 24*time.Hour, 0)
	tokens.Unit = "tokens"
	b := e.bucket("k", rolling(10, time.Hour), tokens)
	e.allowed("plain", b.take(4, 100))
	d := b.lease("a", time.Hour, 8, 500)
	e.allowed("a lease of what is there", d)
	if got := d.Granted(0); got[0] != 6 || got[1] != 500 {
		e.Errorf("granted %v, want 6 and 500", got)
	}
	e.refused("nothing is left of one", b.lease("b", time.Hour, 1, 1), -1)
	d = b.lease("b", time.Hour, 0, 700)
	e.allowed("the other one alone", d)
	if got := d.Granted(0); got[0] != 0 || got[1] != 400 {
		e.Errorf("granted %v, want 0 and 400", got)
	}
	b.wantUsed("leased", 10, 1000)
	if !b.settle("a", 1, 50) || !b.cancel("b") {
		e.Error("a lease is gone")
	}
	b.wantUsed("returned", 5, 150)
}

func testLeaseAge(e *env) {
	for i, l := range []drawgate.Limit{
		rolling(10, time.Minute), joined(10, time.Minute, 100),
		leaky(10, time.Minute, 0),
	} {
		b := e.bucket(fmt.Sprint("k", i), l)
		e.allowed("lease", b.lease("id", time.Hour, 10))
		e.advance(30 * time.Minute)
		if s := b.peek().States[0]; s.Used != 10 || s.Held != 10 {
			e.Errorf("%s: open: %+v, want 10 held", l.Name, s)
		}
		e.refused("full", b.take(1), -1)
		if !b.settle("id", 9) {
			e.Error("gone")
		}
		b.wantUsed("settled", 9)
		e.allowed("one was returned", b.take(1))
		e.advance(time.Minute - tick)
		e.refused("they count from the settlement on", b.take(10), tick)
		e.advance(tick)
		e.allowed("a window after the settlement", b.take(10))
	}
}

func testLeaseEnd(e *env) {
	for i, l := range []drawgate.Limit{rolling(10, time.Minute), leaky(10, time.Minute, 0)} {
		b := e.bucket(fmt.Sprint("k", i), l)
		e.allowed("lease", b.lease("id", 5*time.Minute, 10))
		e.refused("full", b.take(10), 6*time.Minute)
		e.advance(6*time.Minute - tick)
		e.refused("early", b.take(10), tick)
		e.advance(tick)
		e.allowed("on time", b.take(10))
		if b.settle("id", 0) {
			e.Error("a lease that is over was settled")
		}
		b.wantUsed(l.Name, 10)
	}
}

func testLeaseEdge(e *env) {
	b := e.bucket("k", calendar(10, drawgate.Hour, "UTC"))
	edge := nextEdge(e.now(), drawgate.Hour, "UTC", 1)
	e.until(edge.Add(-time.Second))
	e.allowed("lease", b.lease("id", time.Minute, 6))
	e.until(edge)
	b.wantUsed("after the edge", 6)
	e.allowed("the rest", b.take(4))
	e.refused("full", b.take(1), time.Hour)
	if !b.settle("id", 2) {
		e.Error("gone")
	}
	b.wantUsed("settled in the window then open", 6)
}

func testLeaseReplay(e *env) {
	b := e.bucket("k", rolling(10, time.Hour))
	e.allowed("plain", b.take(3))
	first := b.lease("id", time.Hour, 9)
	e.allowed("lease", first)
	d := b.lease("id", time.Hour, 9)
	e.allowed("again", d)
	if !d.Replayed || d.Granted(0) != first.Granted(0) || d.Granted(0)[0] != 7 {
		e.Errorf("replayed %v, granted %v; want true, %v", d.Replayed, d.Granted(0), first.Granted(0))
	}
	b.wantUsed("leased once", 10)
}

var chargeCases = []testCase{
	{"charge", "a charge counts units whatever the limits say, as debt if they do not fit", testCharge, false},
	{
		"charge with its instant",
		"a charge counts in the calendar window of its instant, if that is still open, and now in the other limits",
		testChargeInstant, false,
	},
	{"charge of a bucket that is unused", "a charge makes the bucket", testChargeAbsent, true},
}

func testCharge(e *env) {
	b := e.bucket("k", rolling(10, time.Minute), leaky(10, time.Minute, 0), calendar(10, drawgate.Hour, "UTC"),
		slots(2))
	e.until(nextEdge(e.now(), drawgate.Hour, "UTC", 1))
	e.allowed("take", b.hold("id", time.Hour, 8, 8, 8, 1))
	b.charge(e.now(), 7, 5, 4, 9)
	st := b.peek()
	for i, want := range []int64{15, 13, 12, 1} { // slots are not charged
		if s := st.States[i]; s.Used != want || s.Debt != max(0, want-10) {
			e.Errorf("limit %d: %+v, want %d used", i, s, want)
		}
	}
	e.refused("in debt", b.take(1, 0, 0, 0), time.Minute)
	e.refused("in debt", b.take(0, 1, 0, 0), 24*time.Second)
	e.refused("in debt", b.take(0, 0, 1, 0), time.Hour)
}

func testChargeInstant(e *env) {
	b := e.bucket("k", rolling(100, time.Minute), calendar(100, drawgate.Hour, "UTC"), leaky(100, 100*time.Second, 0))
	edge := nextEdge(e.now(), drawgate.Hour, "UTC", 1)
	e.until(edge.Add(time.Second))
	b.charge(edge.Add(-tick), 1, 1, 1)
	b.wantUsed("of the window before: over", 1, 0, 1)
	b.charge(edge, 2, 2, 2)
	b.wantUsed("of the open window", 3, 2, 3)
	e.advance(10 * time.Minute)
	b.charge(edge.Add(time.Minute), 4, 4, 4)
	b.wantUsed("of the open window, a while ago", 4, 6, 4)
	b.charge(e.now().Add(time.Hour), 8, 8, 8)
	b.wantUsed("of the future: now", 12, 14, 12)
	e.refused("rolling counts from now", b.take(100, 0, 0), time.Minute)
}

func testChargeAbsent(e *env) {
	b := e.bucket("k", rolling(10, time.Hour))
	b.charge(e.now(), 3)
	b.wantUsed("charged", 3)
	b.charge(e.now(), 0)
	b.wantUsed("charged nothing", 3)
}

func testSettleUnreserved(e *env) {
	limit := func(name string, l drawgate.Limit) drawgate.Limit {
		l.Name, l.Unit = name, name
		return l
	}
	b := e.bucket("k", rolling(10, time.Hour), limit("r", rolling(100, time.Hour)),
		limit("b", leaky(100, time.Hour, 0)),
		limit("c", calendar(100, drawgate.Month, "UTC")), slots(5))
	e.allowed("hold", b.hold("a", time.Minute, 1))
	e.allowed("hold", b.hold("b", time.Minute, 1))
	e.allowed("hold", b.hold("c", time.Minute, 1))
	if !b.settle("a", 1, 30, 40, 120, 3) {
		e.Error("settle: gone")
	}
	b.wantUsed("settled: more than the limit is debt", 3, 30, 40, 120, 0)
	if !b.settle("b", 1, 0, store.KeepEstimate, store.KeepEstimate, store.KeepEstimate) ||
		!b.cancel("c") {
		e.Error("settle, cancel: gone")
	}
	b.wantUsed("nothing, the estimate, and a cancellation add nothing", 2, 30, 40, 120, 0)
	if b.settle("a", 1, 30, 40, 120, 0) {
		e.Error("settled twice")
	}
	b.wantUsed("settled twice", 2, 30, 40, 120, 0)
	e.advance(time.Hour + time.Minute)
	b.wantUsed("an hour later", 0, 0, 0, 120, 0)
}
