package storetest

import (
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

var kindCases = []testCase{
	{"absent is unused", "an unused bucket grants all of its limit, and a peek does not create it", testAbsent, true},
	{
		"exactly the amount", "each kind of limit grants its amount, unit by unit, and not one more", testExactAmount,
		true,
	},
	{"several units", "n units are granted in one piece or not at all", testSeveralUnits, true},
	{"cost 0", "a take of nothing passes, even at the limit, and spends nothing", testCostZero, true},
	{"bucket drains", "a bucket's units come back at its rate, to the microsecond", testBucketDrains, false},
	{
		"bucket after half a minute", "a partial refill is proportional: half a minute brings half a minute's units",
		testBucketHalf, false,
	},
	{"bucket fractions", "however often a bucket is asked, no fraction of a unit is lost", testBucketFractions, false},
	{
		"bucket odd rates", "rates that do not divide the period lose nothing over a thousand units", testBucketOddRates,
		false,
	},
	{"bucket burst", "after any rest a bucket grants its burst and no more", testBucketBurst, false},
	{
		"rolling is half-open", "a unit counts in [t, t+window): until a microsecond before its end, and not at it",
		testRollingHalfOpen, false,
	},
	{
		"rolling leaves one by one", "each take of an exact limit leaves one window after it was made",
		testRollingOneByOne, false,
	},
	{
		"rolling joined",
		"takes near each other may leave together with the last of them: late by less than window/precision, never early", testRollingJoined, false,
	},
	{
		"concurrency", "slots are taken by holds, and come free when these are settled, cancelled or over",
		testConcurrency, false,
	},
	{
		"huge numbers",
		"amounts up to the largest are counted exactly, and debt beyond 2^53 stays there instead of overflowing",
		testHuge, false,
	},
	{
		"never over, never idle", "a greedy caller gets what the limit allows in every window, and all of it", testGreedy,
		false,
	},
}

func testAbsent(e *env) {
	for i, l := range e.fourKinds(10) {
		b := e.bucket(fmt.Sprint("k", i), l)
		for range 2 {
			st := b.peek(10)
			r := results(st.Verdict)[0]
			if !st.Allowed || st.Open != 0 || st.States[0].Used != 0 || st.States[0].Held != 0 ||
				st.States[0].Debt != 0 || st.States[0].Max != 10 ||
				r.Remaining != 10 || r.RetryAfter != 0 {
				e.Errorf("%s: absent bucket: %+v, %+v", l.Name, st.States[0], r)
			}
		}
		e.allowed(l.Name, b.hold("all", time.Hour, 10))
	}
}

// req: A1, A2, A7, A8, C2
func testExactAmount(e *env) {
	for i, l := range e.fourKinds(7) {
		b := e.bucket(fmt.Sprint("k", i), l)
		for n := range 7 {
			d := b.hold(fmt.Sprint("id", n), time.Hour, 1)
			e.allowed(fmt.Sprint(l.Name, " ", n), d)
			if r := results(d)[0]; d.Granted(0)[0] != 1 || r.Remaining != int64(6-n) {
				e.Errorf("%s: after take %d: granted %v, %+v", l.Name, n, d.Granted(0), r)
			}
		}
		e.refused(l.Name, b.hold("one more", time.Hour, 1), -1)
		b.wantUsed(l.Name, 7)
	}
}

// req: A1
func testSeveralUnits(e *env) {
	for i, l := range e.fourKinds(5000) {
		b := e.bucket(fmt.Sprint("k", i), l)
		e.allowed(l.Name, b.hold("a", time.Hour, 3750))
		e.refused(l.Name, b.hold("b", time.Hour, 1251), -1)
		b.wantUsed(l.Name, 3750)
		e.allowed(l.Name, b.hold("c", time.Hour, 1250))
		e.refused(l.Name, b.hold("d", time.Hour, 1), -1)
		b.wantUsed(l.Name, 5000)
	}
}

func testCostZero(e *env) {
	for i, l := range e.fourKinds(2) {
		b := e.bucket(fmt.Sprint("k", i), l)
		e.allowed(l.Name, b.hold("nothing", time.Hour, 0))
		if d := b.peek(2); !d.Allowed {
			e.Errorf("%s: a take of nothing spent something", l.Name)
		}
		e.allowed(l.Name, b.hold("all", time.Hour, 2))
		e.allowed(l.Name, b.hold("again nothing", time.Hour, 0))
		b.wantUsed(l.Name, 2)
	}
}

// req: A4, B1, B2, E10
func testBucketDrains(e *env) {
	b := e.bucket("k", leaky(10, time.Minute, 5))
	if n := b.drain(); n != 5 {
		e.Fatalf("burst: got %d, want 5", n)
	}
	e.refused("empty", b.take(1), 6*time.Second)
	e.refused("two", b.take(2), 12*time.Second)
	e.advance(6*time.Second - tick)
	e.refused("a microsecond early", b.take(1), tick)
	e.advance(tick)
	e.allowed("on time", b.take(1))
	e.refused("once only", b.take(1), 6*time.Second)
	e.advance(time.Hour)
	if n := b.drain(); n != 5 {
		e.Errorf("after a rest: got %d, want 5", n)
	}
}

// req: A4, A5
func testBucketHalf(e *env) {
	requests, tokens := leaky(5, time.Minute, 0), leaky(250_000, time.Minute, 0)
	tokens.Name, tokens.Unit = "tpm", "tokens"
	b := e.bucket("k", requests, tokens)
	e.allowed("all", b.take(5, 250_000))
	e.advance(30 * time.Second)
	e.refused("three requests", b.take(3, 0), 6*time.Second)
	e.refused("a token too many", b.take(0, 125_001), 240*tick)
	e.allowed("half", b.take(2, 125_000))
	e.advance(6 * time.Second)
	e.allowed("the fraction was carried", b.take(1, 25_000))
	e.advance(time.Minute)
	e.refused("a minute brings a minute's units, once", b.take(0, 250_001), -1)
	e.allowed("a whole minute", b.take(5, 250_000))
}

// req: A5, B1
func testBucketFractions(e *env) {
	b := e.bucket("k", leaky(10, time.Minute, 1))
	e.allowed("first", b.take(1))
	for step, want := time.Duration(0), 6*time.Second; step < want; {
		next := min(7*time.Millisecond+tick, want-step)
		e.advance(next)
		if step += next; step < want {
			e.refused("polling", b.take(1), want-step)
		}
	}
	e.allowed("after 6 s of polling", b.take(1))
}

func testBucketOddRates(e *env) {
	b := e.bucket("k", leaky(7, time.Second, 7)) // one unit per 142,857 µs and a seventh
	e.allowed("all", b.take(7))
	start, got := e.now(), int64(0)
	for got < 1000 {
		d := b.take(1)
		if !ok(e, d) {
			e.refused("between two units", d, -1)
			e.advance(d.RetryAfter)
			continue
		}
		got++
		// Unit k is available k/7 s after the start, rounded up to the microsecond.
		if at, want := d.At().Sub(start).Microseconds(), (got*1_000_000+6)/7; at != want {
			e.Fatalf("unit %d after %d µs, want %d", got, at, want)
		}
	}
}

// req: B2
func testBucketBurst(e *env) {
	for _, c := range []struct{ amount, burst int64 }{{10, 3}, {10, 10}, {10, 40}} {
		b := e.bucket(fmt.Sprint("k", c.burst), leaky(c.amount, time.Minute, c.burst))
		for _, rest := range []time.Duration{0, time.Hour, 400 * 24 * time.Hour} {
			e.advance(rest)
			if n := b.drain(); n != c.burst {
				e.Errorf("burst %d: got %d after %v", c.burst, n, rest)
			}
		}
	}
}

// req: C3
func testRollingHalfOpen(e *env) {
	for _, l := range []drawgate.Limit{rolling(10, time.Minute), joined(10, time.Minute, 100)} {
		b := e.bucket(l.Name, l)
		e.allowed("all", b.take(10))
		e.refused("full", b.take(1), time.Minute)
		e.advance(time.Minute - tick)
		e.refused("a microsecond early", b.take(10), tick)
		e.advance(tick)
		e.allowed("on time", b.take(10))
	}
}

func testRollingOneByOne(e *env) {
	b := e.bucket("k", rolling(3, time.Minute))
	for i := range 3 {
		e.allowed(fmt.Sprint("take ", i), b.take(1))
		e.advance(time.Millisecond)
	}
	e.refused("full: wait for one", b.take(1), time.Minute-3*time.Millisecond)
	e.refused("full: wait for two", b.take(2), time.Minute-2*time.Millisecond)
	e.refused("full: wait for all", b.take(3), time.Minute-1*time.Millisecond)
	e.advance(time.Minute - 3*time.Millisecond)
	e.allowed("the first has left", b.take(1))
	e.refused("the second has not", b.take(1), time.Millisecond)
}

func testRollingJoined(e *env) {
	b := e.bucket("k", joined(3, 100*time.Second, 100)) // takes within 1 s of an entry's first may join it
	e.allowed("first", b.take(1))
	e.advance(time.Second - tick)
	e.allowed("second, near it", b.take(1))
	e.advance(tick)
	e.allowed("third, far enough", b.take(1))
	d := b.take(1)
	e.refused("full", d, -1)
	if d.RetryAfter < 99*time.Second || d.RetryAfter >= 100*time.Second {
		e.Errorf("retry-after %v, want 99 s and less than a second more", d.RetryAfter)
	}
	e.advance(99*time.Second - tick)
	e.refused("none leaves early", b.take(1), -1)
	e.advance(time.Second)
	e.allowed("the first two have left", b.take(2))
	e.refused("the third has not", b.take(1), tick)
	e.advance(tick)
	e.allowed("and now it has", b.take(1))
}

// req: D5
func testConcurrency(e *env) {
	b := e.bucket("k", slots(3))
	e.allowed("a", b.hold("a", 10*time.Second, 1))
	e.allowed("b", b.hold("b", 20*time.Second, 1))
	e.allowed("c", b.hold("c", 30*time.Second, 1))
	d := b.hold("d", time.Second, 1)
	e.refused("full: until the first hold ends", d, 10*time.Second)
	if d.EarliestRetry != 0 {
		e.Errorf("earliest %v, want 0: every holder may give back now", d.EarliestRetry)
	}
	e.refused("two: until the second hold ends", b.hold("d", time.Second, 2), 20*time.Second)
	if !b.settle("b", 1) {
		e.Error("settle: gone")
	}
	e.allowed("settled: a slot is free, whatever was used", b.hold("d", 40*time.Second, 1))
	if !b.cancel("d") {
		e.Error("cancel: gone")
	}
	e.allowed("cancelled", b.hold("e", 40*time.Second, 1))
	e.advance(10*time.Second - tick)
	e.refused("a microsecond before the hold ends", b.hold("f", time.Second, 1), tick)
	e.advance(tick)
	e.allowed("the holder is gone, its slot free", b.hold("f", 40*time.Second, 1))
	b.wantUsed("at the end", 3)
}

func testHuge(e *env) {
	const most = store.MaxAmount
	for i, l := range []drawgate.Limit{
		leaky(most, time.Second, 0), leaky(most, time.Millisecond, 0), leaky(3, 366*24*time.Hour, 280),
		rolling(most, 366*24*time.Hour), joined(most, time.Second, 100),
		calendar(most, drawgate.Month, "UTC"), slots(most),
	} {
		b := e.bucket(fmt.Sprint("k", i), l)
		whole := b.peek().States[0].Max
		e.allowed(l.Name, b.hold("all but one", time.Hour, whole-1))
		e.refused(l.Name, b.hold("two", time.Hour, 2), -1)
		e.allowed(l.Name, b.hold("one", time.Hour, 1))
		e.refused(l.Name, b.hold("one more", time.Hour, 1), -1)
		b.wantUsed(l.Name, whole)
		if l.Kind == drawgate.Concurrency {
			continue
		}
		batch, out := make([]store.Settlement, 1000), make([]store.Outcome, 1000)
		for k := range batch {
			batch[k] = settlement(store.OpCharge, "", b.cost(most))
			batch[k].At = e.now()
		}
		for range 10 { // 10^16
			if err := e.s.Settle(e.ctx(), batch, out); err != nil {
				e.Fatal(err)
			}
		}
		st := b.peek(1)
		if s := st.States[0]; s.Used < whole || s.Used > 1<<53 || s.Debt < 0 || st.Allowed || st.RetryAfter <= 0 ||
			results(st.Verdict)[0].Remaining != 0 {
			e.Errorf("%s: after charges of 10^16: %+v, allowed %v, retry-after %v", l.Name, s, st.Allowed,
				st.RetryAfter)
		}
		e.advance(tick)
		e.refused(l.Name+" in debt", b.take(whole), -1)
	}
}

// req: C1, E10
func testGreedy(e *env) {
	const amount, windows = 20, 4
	window := 97 * time.Second
	for _, l := range []drawgate.Limit{
		rolling(amount, window), joined(amount, window, 100), leaky(amount, window, 5),
		calendar(amount, drawgate.Minute, "UTC"),
	} {
		b := e.bucket(l.Name, l)
		every := window
		if l.Kind == drawgate.Calendar {
			every = time.Minute
			e.until(e.now().Truncate(time.Minute).Add(time.Minute))
		}
		start, admitted := e.now(), []time.Time{}
		for e.now().Sub(start) < windows*every {
			if d := b.take(1); ok(e, d) {
				admitted = append(admitted, d.At())
			} else {
				e.refused(l.Name, d, -1)
				e.advance(min(d.RetryAfter, every/11)) // often too early
			}
		}
		if most := mostIn(l, admitted, every); most > amount && l.Kind != drawgate.Bucket {
			e.Errorf("%s: %d units in one window, at most %d", l.Name, most, amount)
		}
		want := windows * amount
		if l.Kind == drawgate.Bucket {
			want += 5 - 1 // the unit due at the very end is not taken
		}
		if len(admitted) < want || len(admitted) > want+1 {
			e.Errorf("%s: %d units in %d windows, want %d", l.Name, len(admitted), windows, want)
		}
	}
}

// mostIn returns the largest number of takes in one window: a calendar window, or any half-open
// one.
func mostIn(l drawgate.Limit, at []time.Time, window time.Duration) (most int) {
	for i := range at {
		n := 0
		for _, t := range at[i:] {
			if l.Kind == drawgate.Calendar && t.Truncate(window).Equal(at[i].Truncate(window)) ||
				l.Kind != drawgate.Calendar && t.Sub(at[i]) < window {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
