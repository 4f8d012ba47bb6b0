package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// Refunds are the exception to the promise that an operator may allow: docs/semantics.md, The
// promise, 1 (e).
var refundCases = []testCase{
	{"refund", "units that were taken without an id come back, at most those that are used, and the outcome says how many", testRefund, true},
	{
		"a refund leaves what is held",
		"units of open reservations stay, whether they count already or not; their settlements give them back once",
		testRefundHeld, false,
	},
	{
		"a refund comes off the newest", "in a rolling limit the units come back that would count longest",
		testRefundNewest, false,
	},
	{
		"a refund and the window that is over",
		"nothing is given back in a window that has ended, nor in one that was charged ahead", testRefundOver, false,
	},
	{
		"a refund of what was seen",
		"nothing is given back in a calendar window that was opened after the instant that a refund names, nor SendLife after it", testRefundSeen, false,
	},
	{
		"a charge of what was seen",
		"a charge with Once counts nothing SendLife after the instant that it names, and fails with ErrTooLate",
		testChargeSeen, false,
	},
	{
		"a refund of a bucket", "what drained is not given back, and a part of a unit counts as one in the outcome",
		testRefundBucket, false,
	},
	{"a refund of debt", "units that were charged beyond a limit come back too", testRefundDebt, true},
	{"a refund of nothing", "slots, unused limits and unused buckets stay as they are", testRefundNothing, true},
	{
		"refunds bound what is exceeded",
		"a limit is exceeded by no more than the sum of the refunds, however wrong they are", testRefundBound, false,
	},
}

// refund returns what was given back per limit.
func (b *bucket) refund(n ...int64) store.Amounts {
	b.e.Helper()
	out := b.e.settle(store.Settlement{Op: store.OpRefund, Buckets: b.costs(n...)})
	if out.Gone || !out.End.IsZero() {
		b.e.Errorf("refund: %+v", out)
	}
	if out.Back == nil {
		return store.Amounts{}
	}
	if len(out.Back) != 1 || out.Back[0] == (store.Amounts{}) {
		b.e.Fatalf("refund in one bucket: %v given back", out.Back)
	}
	return out.Back[0]
}

// wantBack checks what a refund gave back per limit.
func (e *env) wantBack(what string, got store.Amounts, want ...int64) {
	e.Helper()
	if !slices.Equal(got[:len(want)], want) {
		e.Errorf("%s: %v given back, want %v", what, got[:len(want)], want)
	}
}

func testRefund(e *env) {
	tokens := rolling(100, time.Hour)
	tokens.Name, tokens.Unit = "tokens", "tokens"
	b, c := e.bucket("k", rolling(10, time.Hour), tokens, e.month(10)), e.bucket("other", rolling(10, time.Hour))
	e.allowed("take", b.take(5, 60, 5))
	e.allowed("take", c.take(4))
	e.wantBack("tokens only", b.refund(store.KeepEstimate, 20, 0), 0, 20, 0)
	b.wantUsed("20 of 60 tokens given back", 5, 40, 5)
	e.wantBack("more than is used", b.refund(9, 1, 9), 5, 1, 5)
	b.wantUsed("not below nothing", 0, 39, 0)
	e.wantBack("again", b.refund(1, 0, 1), 0, 0, 0)
	e.allowed("the room is there again", b.take(10, 61, 10))
	c.wantUsed("another bucket", 4)
	out := e.settle(store.Settlement{Op: store.OpRefund, Buckets: []store.BucketCost{c.cost(1), b.cost(0, 1)}})
	if len(out.Back) != 2 || out.Back[0] != (store.Amounts{1}) || out.Back[1] != (store.Amounts{0, 1}) {
		e.Errorf("in two buckets: %v given back", out.Back)
	}
	c.wantUsed("two buckets", 3)
	b.wantUsed("two buckets", 10, 99, 10)
}

func testRefundHeld(e *env) {
	for i, l := range []drawgate.Limit{
		rolling(10, time.Hour), joined(10, time.Hour, 100), leaky(10, 10*time.Hour, 0),
		calendar(10, drawgate.Month, "UTC"),
	} {
		for end, charge := range []drawgate.Charge{drawgate.ChargeStart, drawgate.ChargeEnd} {
			l.Charge = charge
			what := l.Name + [...]string{", charged at the start", ", charged at the end"}[end]
			b := e.bucket(fmt.Sprint("k", i, end), l)
			e.allowed(what, b.take(1))
			e.allowed(what, b.hold("a", time.Hour, 3))
			e.allowed(what, b.lease("b", time.Hour, 2))
			e.allowed(what, b.take(1))
			e.wantBack(what, b.refund(10), 2)
			b.wantUsed(what+": what is held stays", 5)
			if st := b.peek(); st.Open != 2 {
				e.Errorf("%s: %d open after a refund, want 2", what, st.Open)
			}
			if !b.settle("a", 1) || !b.cancel("b") {
				e.Errorf("%s: gone after a refund", what)
			}
			b.wantUsed(what+": settled", 1)
			e.wantBack(what+": settled units may be refunded", b.refund(10), 1)
			b.wantUsed(what+": nothing is left", 0)
		}
	}
	b := e.bucket("old", rolling(10, time.Minute))
	e.allowed("reserve", b.hold("a", time.Hour, 5))
	e.advance(time.Minute)
	e.allowed("in the next window", b.take(5))
	e.wantBack("what is reserved does not count any more", b.refund(5), 5)
}

func testRefundNewest(e *env) {
	b := e.bucket("k", rolling(10, time.Minute))
	for range 3 {
		e.allowed("take", b.take(3))
		e.advance(10 * time.Second)
	}
	e.wantBack("of two entries", b.refund(4), 4)
	b.wantUsed("refunded", 5)
	e.refused("the first entry is the one to wait for", b.take(8), 30*time.Second)
	e.refused("the second, too", b.take(10), 40*time.Second)
	e.advance(30*time.Second - tick)
	b.wantUsed("before the first entry leaves", 5)
	e.advance(tick)
	b.wantUsed("the first entry left", 2)
	e.advance(10 * time.Second)
	b.wantUsed("the second entry left", 0)
	e.allowed("all", b.take(10))

	c := e.bucket("joined", joined(10, 100*time.Second, 100))
	e.allowed("take", c.take(2))
	e.advance(500 * time.Millisecond)
	e.allowed("the same entry", c.hold("id", time.Hour, 4))
	e.wantBack("but for what is reserved in it", c.refund(9), 2)
	e.advance(400 * time.Millisecond)
	e.allowed("the same entry", c.take(1))
	c.wantUsed("joined after the refund", 5)
	if !c.cancel("id") {
		e.Error("gone")
	}
	c.wantUsed("cancelled", 1)
}

func testRefundOver(e *env) {
	day := calendar(10, drawgate.Day, "UTC")
	day.Name, day.Margin = "day", 2*time.Second
	b := e.bucket("k", calendar(10, drawgate.Hour, "UTC"), day, rolling(10, time.Minute))
	midnight := nextEdge(e.now(), drawgate.Day, "UTC", 1)
	e.until(midnight.Add(-time.Minute))
	e.allowed("take", b.take(5, 5, 5))
	e.until(midnight.Add(-time.Second))
	e.allowed("a take that may arrive in the next day", b.take(4, 4, 4))
	e.wantBack("in the hour and the day that end", b.refund(1, 1, 1), 1, 1, 1)
	b.wantUsed("refunded", 8, 8, 8)
	e.until(midnight)
	b.wantUsed("what was charged ahead stays", 0, 4, 3)
	e.wantBack("the hour and the minute are over", b.refund(9, 2, 9), 0, 2, 3)
	b.wantUsed("refunded", 0, 2, 0)
	e.allowed("the next window", b.take(10, 8, 10))
	e.until(midnight.Add(24 * time.Hour))
	e.wantBack("all are over", b.refund(9, 9, 9), 0, 0, 0)
	e.allowed("all", b.take(10, 10, 10))
}

func testRefundSeen(e *env) {
	back := func(b *bucket, seen time.Time) store.Amounts {
		out := e.settle(store.Settlement{Op: store.OpRefund, At: seen, Buckets: b.costs(1, 1, 1, 1)})
		if out.Back == nil {
			return store.Amounts{}
		}
		return out.Back[0]
	}
	month := e.month(10)
	month.Name = "month"
	b := e.bucket("k", calendar(10, drawgate.Hour, "UTC"), month, rolling(10, time.Hour), leaky(10, 24*time.Hour, 0))
	edge := nextEdge(e.now(), drawgate.Hour, "UTC", 1)
	e.until(edge.Add(-time.Second))
	e.allowed("take", b.take(5, 5, 5, 5))
	seen := e.now()
	e.wantBack("at once", back(b, seen), 1, 1, 1, 1)
	e.until(edge)
	e.allowed("in the next hour", b.take(4, 4, 4, 4))
	e.wantBack("in the hour that was not seen", back(b, seen), 0, 1, 1, 1)
	e.advance(seen.Add(store.SendLife + tick).Sub(e.now()))
	e.wantBack("too late", back(b, seen), 0, 0, 0, 0)
	e.wantBack("seen again", back(b, e.now()), 1, 1, 1, 1)
	e.wantBack("by a clock that is ahead", back(b, e.now().Add(time.Second)), 1, 1, 1, 1)
}

func testChargeSeen(e *env) {
	b := e.bucket("k", calendar(10, drawgate.Day, "UTC"), rolling(10, time.Hour), leaky(10, 24*time.Hour, 0))
	seen := e.now()
	charge := func(of *bucket, once bool) error {
		s := []store.Settlement{{Op: store.OpCharge, Once: once, At: seen, Buckets: of.costs(1, 1, 1)}}
		var out [1]store.Outcome
		if err := e.s.Settle(e.ctx(), s, out[:]); err != nil {
			e.Fatal(err)
		}
		return out[0].Err
	}
	wants := func(what string, err, want error, used ...int64) {
		e.Helper()
		if !errors.Is(err, want) {
			e.Errorf("%s: %v, want %v", what, err, want)
		}
		b.wantUsed(what, used...)
	}
	e.advance(store.SendLife)
	wants("in time", charge(b, true), nil, 1, 1, 1)
	e.advance(tick)
	wants("too late", charge(b, true), store.ErrTooLate, 1, 1, 1)
	wants("late, and kept by its sender", charge(b, false), nil, 2, 2, 2)
	other := e.bucket("unused", calendar(10, drawgate.Day, "UTC"), rolling(10, time.Hour), leaky(10, 24*time.Hour, 0))
	wants("too late for an unused bucket", charge(other, true), store.ErrTooLate, 2, 2, 2)
	other.wantUsed("too late", 0, 0, 0)
}

func testRefundBucket(e *env) {
	b := e.bucket("k", leaky(10, 10*time.Second, 0))
	e.allowed("take", b.take(10))
	e.advance(4*time.Second + 500*time.Millisecond)
	b.wantUsed("four and a half drained", 6)
	e.wantBack("three", b.refund(3), 3)
	b.wantUsed("two and a half", 3)
	e.refused("8 of 10", b.take(8), 500*time.Millisecond)
	e.wantBack("no more than is there", b.refund(9), 3)
	b.wantUsed("nothing", 0)
	e.advance(time.Hour)
	e.allowed("no more than the burst", b.take(10))
	e.refused("full", b.take(1), time.Second)
}

func testRefundDebt(e *env) {
	b := e.bucket("k", rolling(10, time.Hour), leaky(10, 24*time.Hour, 0), e.month(10))
	b.charge(e.now(), 25, 25, 25)
	e.wantBack("debt", b.refund(20, 20, 20), 20, 20, 20)
	b.wantUsed("the rest", 5, 5, 5)
	e.allowed("the room", b.take(5, 5, 5))
}

func testRefundNothing(e *env) {
	b := e.bucket("k", slots(3), rolling(10, time.Hour), leaky(10, time.Hour, 0), e.month(10))
	e.wantBack("an unused bucket", b.refund(1, 1, 1, 1), 0, 0, 0, 0)
	if s, implemented := e.s.(store.Lister); implemented {
		err := s.List(e.ctx(), "t", "p", func(k store.Key) bool {
			e.Errorf("a refund made the bucket %+v", k)
			return true
		})
		if err != nil {
			e.Fatal(err)
		}
	}
	e.allowed("slots", b.hold("id", time.Hour, 3))
	same := e.unchanged(b)
	e.wantBack("slots are not given back", b.refund(3, 1, 1, 1), 0, 0, 0, 0)
	same("after a refund of slots")
	e.refused("no slot is free", b.hold("next", time.Hour, 1), -1)
}

func testRefundBound(e *env) {
	for i, l := range []drawgate.Limit{
		rolling(20, time.Minute), joined(20, time.Minute, 100),
		leaky(20, time.Minute, 0),
	} {
		b := e.bucket(fmt.Sprint("k", i), l)
		b.drain()
		start, spent, refunded := e.now(), int64(20), int64(0)
		for round := range 20 {
			if d := b.hold(fmt.Sprint(round), time.Hour, 2); ok(e, d) {
				spent += 2
				refunded += b.refund(int64(round % 4))[0]
				if !b.cancel(fmt.Sprint(round)) {
					e.Fatal("gone")
				}
				spent -= 2
			}
			refunded += b.refund(int64(round % 3))[0]
			spent += b.drain()
			e.advance(time.Second)
		}
		most := 20 + refunded
		if l.Kind == drawgate.Bucket {
			most += int64(e.now().Sub(start) / (3 * time.Second))
		}
		if spent > most {
			e.Errorf("%s: %d spent within the window, at most %d: %d refunded", l.Name, spent, most, refunded)
		}
	}
}
