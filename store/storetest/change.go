package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

var changeCases = []testCase{
	{
		"a changed amount", "what is used stays used when amount, headroom, shares, charge, margin or precision change",
		testChangedAmount, true,
	},
	{"a lowered amount", "use beyond a lowered limit must age before anything is granted", testLoweredAmount, false},
	{"a changed burst", "what is used of a bucket stays used when its burst changes", testChangedBurst, false},
	{
		"a changed rate", "while callers with two rates alternate, a bucket never lets more pass than the higher one",
		testAlternatingRates, false,
	},
	{
		"a raised rate",
		"a higher rate drains from when it is first seen, not before; a lower one never drains more than was allowed",
		testRaisedRate, false,
	},
	{
		"a rate that was seen", "a lowered rate that only refused callers have seen is in force until the rate is raised",
		testSeenRate, false,
	},
	{"a rate that was looked at", "a peek with another rate changes nothing", testPeekedRate, false},
	{
		"another identity", "a limit of another name, unit, kind, window, calendar, zone or anchor starts unused",
		testIdentity, true,
	},
	{"versions side by side", "two versions of a policy never touch each other's limits", testVersions, false},
	{
		"a reservation outlives its version",
		"a settlement by another version of the policy corrects the limits that both know, and counts its own; the rest stands",
		testSettleByOther, true,
	},
	{
		"a margin outlives its version",
		"units whose end or settlement another version records still count with the margin with which they were held",
		testMarginByOther, false,
	},
	{"limits in another order", "the order of limits in a policy does not matter", testOrder, true},
}

func testChangedAmount(e *env) {
	for i, l := range e.fourKinds(10) {
		b := e.bucket(fmt.Sprint("k", i), l)
		e.allowed(l.Name, b.hold("a", time.Hour, 10))
		more := l
		more.Amount = 25
		wide := b.with(more)
		wide.wantUsed(l.Name, 10)
		if l.Kind == drawgate.Bucket {
			continue // its rate changes as well
		}
		e.allowed(l.Name, wide.hold("b", time.Hour, 15))
		e.refused(l.Name, wide.hold("c", time.Hour, 1), -1)
		e.refused(l.Name, b.hold("c", time.Hour, 1), -1)
		more.Amount = 40
		more.Headroom = drawgate.Share{Units: 5}
		more.ReservedByPriority = map[int]drawgate.Share{4: {Units: 5}}
		if l.Kind == drawgate.Rolling {
			more.Precision = 200
		}
		narrow := b.with(more)
		narrow.wantUsed(l.Name, 25)
		e.allowed(l.Name, narrow.hold("c", time.Hour, 5))
		e.refused(l.Name, narrow.hold("d", time.Hour, 1), -1)
		if l.Kind == drawgate.Concurrency {
			continue
		}
		more.Margin = time.Second
		more.Charge = drawgate.ChargeEnd
		other := b.with(more)
		other.wantUsed(l.Name, 30)
		e.refused(l.Name, other.hold("d", time.Hour, 1), -1)
	}
}

func testLoweredAmount(e *env) {
	b := e.bucket("k", rolling(10, time.Minute))
	e.allowed("five", b.take(5))
	e.advance(10 * time.Second)
	e.allowed("five more", b.take(5))
	low := b.with(rolling(4, time.Minute))
	st := low.peek(1)
	if s := st.States[0]; s.Used != 10 || s.Debt != 6 || s.Max != 4 || results(st.Verdict)[0].Remaining != 0 {
		e.Errorf("%+v, want 10 used, debt 6 beyond 4, nothing remaining", s)
	}
	e.refused("low", low.take(1), time.Minute)
	e.advance(time.Minute - tick)
	e.refused("low, early", low.take(1), tick)
	e.advance(tick)
	e.allowed("low, on time", low.take(4))
}

// req: B2
func testChangedBurst(e *env) {
	b := e.bucket("k", leaky(10, time.Minute, 10))
	e.allowed("all", b.take(10))
	wide := b.with(leaky(10, time.Minute, 15))
	e.allowed("a wider burst", wide.take(5))
	e.refused("used up", wide.take(1), 6*time.Second)
	narrow := b.with(leaky(10, time.Minute, 5))
	e.refused("a narrower burst", narrow.take(1), 66*time.Second)
	e.advance(66*time.Second - tick)
	e.refused("early", narrow.take(1), tick)
	e.advance(tick)
	e.allowed("on time", narrow.take(1))
}

func testAlternatingRates(e *env) {
	versions := []*bucket{e.bucket("k", leaky(7, 10*time.Second, 5))}
	for _, amount := range []int64{13, 10} {
		versions = append(versions, versions[0].with(leaky(amount, 10*time.Second, 5)))
	}
	start, spent := e.now(), int64(0)
	for i := range 400 {
		v := versions[i%2*(1+i/40%2)]
		if d := v.take(int64(i%3 + 1)); ok(e, d) {
			spent += int64(i%3 + 1)
		}
		rate := 13.0
		if most := 5 + rate*e.now().Sub(start).Seconds()/10; float64(spent) > most {
			e.Fatalf("step %d: %d spent, at most %v", i, spent, most)
		}
		e.advance(time.Duration(i%5) * 333 * time.Millisecond)
	}
	if least := 7 * e.now().Sub(start).Seconds() / 10 * 0.9; float64(spent) < least {
		e.Errorf("%d spent, at least %v were allowed at any rate", spent, least)
	}
}

func testRaisedRate(e *env) {
	slow, fast := leaky(6, time.Minute, 60), leaky(60, time.Minute, 60)
	b := e.bucket("raised", slow)
	e.allowed("all", b.take(60))
	e.advance(20 * time.Second)
	raised := b.with(fast)
	used := raised.used() // a change of rate may round up
	if used < 58 || used > 59 {
		e.Errorf("%d used after 20 s at 6 per minute, want 58, or 59 by rounding", used)
	}
	e.refused("no more than that is there", raised.take(3), -1)
	e.allowed("seen", raised.take(1)) // a store need not remember a peek or a refusal
	e.advance(10 * time.Second)
	raised.wantUsed("10 s at the higher rate", used+1-10)

	b = e.bucket("lowered", fast)
	e.allowed("all", b.take(60))
	e.advance(20 * time.Second)
	lowered := b.with(slow)
	// It is unknown when the rate was lowered: both results are right.
	if used = lowered.used(); used < 40 || used > 59 {
		e.Errorf("%d used after 20 s at 6 or 60 per minute, want 40 to 58, or 59 by rounding", used)
	}
	e.allowed("seen", lowered.take(1))
	e.advance(10 * time.Second)
	lowered.wantUsed("10 s at the lower rate", used+1-1)
}

// req: A5, E10
func testSeenRate(e *env) {
	slow, fast, extra := leaky(6, time.Minute, 60), leaky(60, time.Minute, 60), rolling(1000, 24*time.Hour)
	ways := map[string]func(b *bucket){
		"a refused take":        func(b *bucket) { e.refused("slow", b.take(60), -1) },
		"a refused reservation": func(b *bucket) { e.refused("slow", b.hold("other", time.Hour, 60), -1) },
		"a replayed take": func(b *bucket) {
			// refused if anything has drained: then it does not fit again
			if d := b.hold("id", time.Hour, 60); d.Fail != nil {
				e.Errorf("replayed: %v", d.Fail)
			}
		},
		"an id that is used again": func(b *bucket) {
			if d := b.hold("id", time.Hour, 59); !errors.Is(d.Fail, store.ErrIDReused) {
				e.Errorf("reused: %v", d.Fail)
			}
		},
		"a settlement of what is gone":   func(b *bucket) { b.settle("nobody", 1) },
		"a cancellation of what is gone": func(b *bucket) { b.cancel("nobody") },
		"a renewal of what is gone":      func(b *bucket) { b.renew("nobody") },
		"a refused take of two": func(b *bucket) {
			other := b.e.of("other", b.plan)
			e.refused("slow", e.take(store.Take{Buckets: []store.BucketCost{b.cost(60), other.cost(1)}}), -1)
		},
	}
	for what, see := range ways {
		for _, more := range [][]drawgate.Limit{nil, {extra}} {
			if strings.HasSuffix(what, "gone") && more == nil {
				continue // a memory store may have nothing to keep it in
			}
			b := e.bucket(fmt.Sprint(what, len(more)), append([]drawgate.Limit{fast}, more...)...)
			lowered := b.with(append([]drawgate.Limit{slow}, more...)...)
			if what == "a replayed take" || what == "an id that is used again" {
				e.allowed("all", b.hold("id", time.Hour, 60))
			} else {
				e.allowed("all", b.take(60))
			}
			see(lowered)
			e.advance(10 * time.Second)
			see(lowered)
			e.advance(20 * time.Second)
			raised := b
			if e.h.Second != nil { // by another process, which knows only what was stored
				second := *e
				second.s = e.h.Second(e.T, e.s)
				raised = &bucket{e: &second, key: b.key, plan: b.plan}
			}
			// The first caller with the higher rate may be refused too.
			e.refused(what+": fast", raised.take(60), -1)
			least := int64(57) // 30 s at 6 per minute
			if u := raised.used(); u < least || u > least+1 {
				e.Errorf("%s: %d used after 30 s at 6 per minute, want %d, or one more by rounding", what, u, least)
			}
			e.advance(10 * time.Second)
			if u := b.used(); u < least-10 || u > least-9 {
				e.Errorf("%s: %d used 10 s later at 60 per minute, want %d, or one more by rounding", what, u, least-10)
			}
		}
	}
}

// req: E10
func testPeekedRate(e *env) {
	slow, fast := leaky(6, time.Minute, 60), leaky(60, time.Minute, 60)
	b := e.bucket("k", fast)
	lowered := b.with(slow)
	e.allowed("all", b.take(60))
	for range 20 {
		lowered.peek(1)
		e.advance(time.Second)
	}
	lowered.peek(60)
	b.wantUsed("20 s at 60 per minute, the only rate that was asked by", 40)
}

func testIdentity(e *env) {
	base := rolling(5, time.Hour)
	day, month := calendar(5, drawgate.Month, "UTC"), calendar(5, drawgate.Month, "UTC")
	day.Every = drawgate.Week
	month.Anchor = 31
	others := map[string][2]drawgate.Limit{
		"window":   {base, rolling(5, 2*time.Hour)},
		"kind":     {base, leaky(5, time.Hour, 0)},
		"every":    {calendar(5, drawgate.Month, "UTC"), day},
		"zone":     {calendar(5, drawgate.Month, "UTC"), calendar(5, drawgate.Month, "Asia/Tokyo")},
		"anchor":   {calendar(5, drawgate.Month, "UTC"), month},
		"name":     {base, base},
		"unit":     {base, base},
		"bucket":   {leaky(5, time.Hour, 0), leaky(5, 2*time.Hour, 0)},
		"no slots": {slots(5), base},
	}
	for what, pair := range others {
		for i := range pair {
			pair[i].Name = "x"
		}
		switch what {
		case "name":
			pair[1].Name = "y"
		case "unit":
			pair[1].Unit = "tokens"
		}
		b := e.bucket(what, pair[0])
		e.allowed(what, b.hold("a", time.Hour, 5))
		other := b.with(pair[1])
		other.wantUsed(what+": another limit", 0)
		e.allowed(what+": another limit", other.hold("b", time.Hour, 5))
		e.refused(what+": the first one", b.hold("c", time.Hour, 1), -1)
		e.refused(what+": the other one", other.hold("c", time.Hour, 1), -1)
	}
	// Another spelling of the same settings is the same limit.
	b := e.bucket("same", calendar(5, drawgate.Month, ""))
	e.allowed("no zone", b.take(5))
	utc := calendar(5, drawgate.Month, "UTC")
	utc.Anchor, utc.Unit = 1, "requests"
	b.with(utc).wantUsed("UTC", 5)
}

func testVersions(e *env) {
	shared := rolling(10, time.Minute)
	old, current := leaky(5, time.Minute, 0), calendar(7, drawgate.Hour, "UTC")
	e.until(nextEdge(e.now(), drawgate.Hour, "UTC", 1))
	v1 := e.bucket("k", shared, old)
	v2 := v1.with(current, shared)
	e.allowed("v1", v1.take(3, 5))
	e.allowed("v2", v2.take(7, 3))
	for range 10 { // alternating, as in a rolling deployment
		e.refused("v1: its own limit", v1.take(1, 1), 12*time.Second)
		e.refused("v2: its own limit", v2.take(1, 1), time.Hour)
		v1.wantUsed("v1", 6, 5)
		v2.wantUsed("v2", 7, 6)
	}
	e.advance(time.Minute)
	v1.wantUsed("v1, a minute later", 0, 0)
	v2.wantUsed("v2, a minute later", 7, 0)
	e.advance(time.Hour)
	v2.wantUsed("v2, an hour later", 0, 0)
	e.allowed("v2", v2.take(7, 1))
	v1.wantUsed("v1", 1, 0)
}

func testSettleByOther(e *env) {
	tokens := rolling(100, time.Hour)
	tokens.Name, tokens.Unit = "tokens", "tokens"
	v1 := e.bucket("k", rolling(10, time.Hour), tokens, slots(2))
	v2 := v1.with(e.month(10), tokens)
	e.allowed("v1", v1.hold("a", time.Hour, 4, 40, 1))
	e.allowed("v1", v1.hold("b", time.Hour, 4, 40, 1))
	if !v2.settle("a", 3, 10) {
		e.Error("settle by the other version: gone")
	}
	v1.wantUsed("settled", 8, 50, 1)
	v2.wantUsed("settled: of its own limit nothing was reserved", 3, 50)
	if !v2.cancel("b") {
		e.Error("cancel by the other version: gone")
	}
	v1.wantUsed("cancelled: everything is given back", 4, 10, 0)
	e.allowed("v2", v2.hold("c", time.Hour, 2, 20))
	if !v1.settle("c", 0, 5, 0) {
		e.Error("settle by the first version: gone")
	}
	v2.wantUsed("settled by the first version", 5, 15)
}

func testMarginByOther(e *env) {
	roll, hour := rolling(10, time.Minute), calendar(10, drawgate.Hour, "UTC")
	roll.Margin, hour.Margin = 10*time.Second, 10*time.Second
	v1 := e.bucket("k", roll, hour)
	v2 := v1.with(leaky(5, time.Hour, 0))
	edge := nextEdge(e.now(), drawgate.Hour, "UTC", 1)

	e.until(edge.Add(-12 * time.Second))
	e.allowed("a lease that ends before the edge", v1.lease("a", 7*time.Second, 3, 3))
	e.allowed("a lease that is settled", v1.lease("b", time.Hour, 2, 2))
	e.advance(7*time.Second + time.Millisecond)
	e.allowed("the other version finds the first one ended", v2.take(1))
	if !v2.settle("b", store.KeepEstimate) {
		e.Error("gone")
	}
	v1.wantUsed("both ended", 5, 5)
	e.until(edge)
	v1.wantUsed("what may arrive after the edge counts there too", 5, 5)
	e.until(edge.Add(time.Minute + 5*time.Second - tick))
	v1.wantUsed("a window after the end, and the margin", 5, 5)
	e.advance(tick)
	v1.wantUsed("the first one left", 2, 5)
	e.advance(time.Millisecond)
	v1.wantUsed("the second one left", 0, 5)

	e.until(edge.Add(30 * time.Minute))
	e.allowed("a lease that ends in the next window, shortly before the one after",
		v1.lease("c", 90*time.Minute-5*time.Second, 3, 3))
	e.until(edge.Add(2*time.Hour - time.Second))
	e.allowed("the other version finds it ended", v2.take(1))
	e.until(edge.Add(2*time.Hour + 30*time.Second))
	v1.wantUsed("it counts in both", 3, 3)
	e.until(edge.Add(3 * time.Hour))
	v1.wantUsed("and in no other", 0, 0)
}

func testOrder(e *env) {
	x, y, z := rolling(10, time.Hour), leaky(20, 24*time.Hour, 0), e.month(30)
	b := e.bucket("k", x, y, z)
	e.allowed("x y z", b.take(1, 2, 3))
	turned := b.with(z, x, y)
	turned.wantUsed("z x y", 3, 1, 2)
	e.allowed("z x y", turned.take(3, 1, 2))
	b.wantUsed("x y z", 2, 4, 6)
	e.allowed("reserve", b.hold("id", time.Hour, 1, 1, 1))
	if !turned.settle("id", 10, 20, 0) {
		e.Error("gone")
	}
	b.wantUsed("settled", 22, 4, 16)
}
