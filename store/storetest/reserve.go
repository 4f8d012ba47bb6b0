package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

var reserveCases = []testCase{
	{"settle with less", "what was not used is given back, in every bucket and limit", testSettleLess, true},
	{
		"settle with more",
		"what was used beyond the estimate is debt: it is visible, and must age before anything is granted",
		testSettleMore, false,
	},
	{"settle in part", "units that a settlement does not mention stay as estimated", testSettleUnnamed, true},
	{"cancel", "a cancelled reservation leaves nothing behind", testCancel, true},
	{
		"settle once", "a second settlement or cancellation of an id finds it gone, and credits nothing", testSettleOnce,
		true,
	},
	{"unknown id", "an id that was never taken is gone, and charges and credits nothing", testUnknownID, true},
	{
		"hold ends", "a hold that ends without settlement counts as used; a later settlement finds it gone", testHoldEnds,
		false,
	},
	{
		"ended hold",
		"a store that remembers holds that have ended gives back, once, what was not used; nothing else sees them",
		testEndedHold, false,
	},
	{
		"renew", "a renewed hold ends that long from now, but never earlier than before; one that has ended is gone",
		testRenew, false,
	},
	{
		"hold outlasts its holder",
		"what a holder is told lies before the end that the store keeps: nobody gets its slot before, whatever their clock says", testHoldOutlasts, false,
	},
	{"id replay", "a take with an id that is open gets its answer again and is not charged again", testReplay, false},
	{
		"id partly open",
		"if the id of a take is open in only some of its buckets, it belongs to another take: nothing is granted",
		testPartlyOpen, false,
	},
	{"id reuse", "a take with an id that is open with different content fails, and nothing is taken", testReuse, true},
	{"id again", "an id that is no longer open can be used again", testIDAgain, false},
	{
		"too many open",
		"a bucket with the maximum number of reservations says so, takes nothing, and takes again once one is settled",
		testTooManyOpen, false,
	},
	{"many open", "hundreds of open reservations of a bucket are each settled separately", testManyOpen, false},
}

func (e *env) twoBuckets() (a, b *bucket) {
	tokens := leaky(1000, 1000*time.Hour, 0)
	tokens.Unit = "tokens"
	return e.bucket("a", rolling(10, time.Hour), tokens), e.bucket("b", e.month(10), slots(3))
}

func settlement(op store.Op, id string, buckets ...store.BucketCost) store.Settlement {
	return store.Settlement{Op: op, ID: id, Buckets: buckets}
}

func testSettleLess(e *env) {
	a, b := e.twoBuckets()
	e.allowed("before", e.take(store.Take{
		ID: "other", Hold: time.Hour,
		Buckets: []store.BucketCost{a.cost(1, 10), b.cost(1, 1)},
	}))
	d := e.take(store.Take{ID: "id", Hold: time.Hour, Buckets: []store.BucketCost{a.cost(5, 400), b.cost(5, 1)}})
	e.allowed("reserve", d)
	a.wantUsed("reserved", 6, 410)
	b.wantUsed("reserved", 6, 2)
	if e.settle(settlement(store.OpSettle, "id", a.cost(2, 100), b.cost(0, 1))).Gone {
		e.Error("settle: gone")
	}
	a.wantUsed("settled", 3, 110)
	b.wantUsed("settled", 1, 1)
	if st := a.peek(); st.Open != 1 {
		e.Errorf("%d reservations open, want 1", st.Open)
	}
	e.allowed("the room is there again", a.take(7, 890))
}

// req: A4
func testSettleMore(e *env) {
	for i, c := range []struct {
		limit drawgate.Limit
		wait  time.Duration
	}{
		{rolling(10, time.Minute), time.Minute},
		{leaky(10, time.Minute, 0), 96 * time.Second},
		{calendar(10, drawgate.Hour, "UTC"), -1},
	} {
		b := e.bucket(fmt.Sprint("k", i), c.limit)
		e.allowed("reserve", b.hold("id", time.Hour, 5))
		if !b.settle("id", 25) {
			e.Error("settle: gone")
		}
		st := b.peek(1)
		if s := st.States[0]; s.Used != 25 || s.Debt != 15 || s.Max != 10 || results(st.Verdict)[0].Remaining != 0 {
			e.Errorf("limit %d: %+v, remaining %d; want 25 used, debt 15, nothing remaining", i, s,
				results(st.Verdict)[0].Remaining)
		}
		d := b.take(1)
		e.refused("in debt", d, c.wait)
		e.advance(d.RetryAfter - tick)
		e.refused("still in debt", b.take(1), tick)
		e.advance(tick)
		e.allowed("waited off", b.take(1))
		if s := b.peek().States[0]; s.Debt != 0 {
			e.Errorf("limit %d: debt %d at the end", i, s.Debt)
		}
	}
}

func testSettleUnnamed(e *env) {
	a, _ := e.twoBuckets()
	e.allowed("reserve", a.hold("id", time.Hour, 4, 300))
	if !a.settle("id", store.KeepEstimate, 120) {
		e.Error("settle: gone")
	}
	a.wantUsed("settled", 4, 120)
	e.allowed("reserve", a.hold("id", time.Hour, 4, 300))
	if !a.settle("id", store.KeepEstimate, store.KeepEstimate) {
		e.Error("settle: gone")
	}
	a.wantUsed("settled", 8, 420)
}

// req: D5
func testCancel(e *env) {
	a, b := e.twoBuckets()
	same := e.unchanged(a, b)
	for i := range 20 {
		id := fmt.Sprint(i)
		e.allowed("reserve", e.take(store.Take{
			ID: id, Hold: time.Hour,
			Buckets: []store.BucketCost{b.cost(10, 3), a.cost(10, 1)},
		}))
		if e.settle(settlement(store.OpCancel, id, b.cost(), a.cost())).Gone {
			e.Error("cancel: gone")
		}
	}
	same("after 20 cancelled reservations")
	if st := b.peek(); st.Open != 0 {
		e.Errorf("%d reservations open", st.Open)
	}
}

func testSettleOnce(e *env) {
	for i, l := range e.fourKinds(10) {
		b := e.bucket(fmt.Sprint("k", i), l)
		e.allowed("reserve", b.hold("other", time.Hour, 5))
		e.allowed("reserve", b.hold("id", time.Hour, 4))
		if !b.settle("id", 1) {
			e.Errorf("%s: settle: gone", l.Name)
		}
		same := e.unchanged(b)
		for range 3 {
			if b.settle("id", 0) || b.settle("id", 9) || b.cancel("id") || !b.renew("id").Gone {
				e.Errorf("%s: settled twice", l.Name)
			}
		}
		same(l.Name)
	}
}

func testUnknownID(e *env) {
	a, b := e.twoBuckets()
	e.allowed("take", a.take(3, 30))
	same := e.unchanged(a, b)
	for _, op := range []store.Op{store.OpSettle, store.OpCancel, store.OpRenew} {
		s := settlement(op, "unknown", a.cost(1, 1), b.cost(1, 1))
		s.Hold = time.Hour
		if out := e.settle(s); !out.Gone {
			e.Errorf("%v of an unknown id: %+v, want gone", op, out)
		}
	}
	same("after settling an unknown id")
}

func testHoldEnds(e *env) {
	b := e.bucket("k", rolling(10, time.Hour), calendar(10, drawgate.Month, "UTC"), slots(4))
	e.allowed("reserve", b.hold("id", 10*time.Second, 4, 4, 4))
	e.advance(10*time.Second - tick)
	b.wantUsed("open", 4, 4, 4)
	if st := b.peek(); st.Open != 1 {
		e.Errorf("%d open, want 1", st.Open)
	}
	e.advance(tick)
	b.wantUsed("over", 4, 4, 0)
	if st := b.peek(); st.Open != 0 {
		e.Errorf("%d open after the hold's end", st.Open)
	}
	if b.settle("id", 0, 0, 0) || b.cancel("id") {
		e.Error("a hold that is over was settled")
	}
	b.wantUsed("settled too late", 4, 4, 0)
	e.advance(time.Hour - 10*time.Second)
	b.wantUsed("one window after the take, not after the end", 0, 4, 0)
}

// req: A12
func testEndedHold(e *env) {
	tokens := leaky(5000, 1000*time.Hour, 0)
	tokens.Unit = "tokens"
	a, b := e.bucket("a", rolling(100, time.Hour), tokens), e.bucket("b", e.month(100), slots(3))
	reserve := func(id string, g store.Grant) {
		e.Helper()
		d := e.take(store.Take{
			ID: id, Grant: g, Hold: 10 * time.Second, Buckets: []store.BucketCost{a.cost(3, 400), b.cost(3, 1)},
		})
		e.allowed("reserve "+id, d)
	}
	end := func(op store.Op, id string, g store.Grant, ended bool, used int64) store.Outcome {
		e.Helper()
		s := settlement(op, id, a.cost(used, used), b.cost(used, 1))
		s.Grant, s.Ended = g, ended
		out := e.settle(s)
		if !out.Gone {
			e.Errorf("%v of %q, whose hold is over: not gone", op, id)
		}
		return out
	}
	reserve("id", 1)
	e.advance(10 * time.Second)
	if end(store.OpSettle, "id", 1, false, 2).Corrected != nil ||
		end(store.OpCancel, "id", 2, true, 0).Corrected != nil {
		e.Error("a settlement as any other corrected it, or one of another grant")
	}
	a.wantUsed("ended", 3, 400)
	b.wantUsed("ended", 3, 0)
	out := end(store.OpSettle, "id", 1, true, 2)
	if out.Corrected == nil { // it remembers none
		a.wantUsed("ended", 3, 400)
		return
	}
	if !out.Corrected[0] || !out.Corrected[1] {
		e.Errorf("corrected in %v", out.Corrected)
	}
	a.wantUsed("corrected", 2, 2)
	b.wantUsed("corrected", 2, 0)
	if end(store.OpCancel, "id", 1, true, 0).Corrected != nil {
		e.Error("corrected twice")
	}
	reserve("id", 3)
	reserve("other", 4)
	e.advance(10 * time.Second)
	reserve("id", 5)
	a.wantUsed("ended again", 2+9, 2+1200)
	end(store.OpSettle, "other", 4, true, 500)
	a.wantUsed("more is charged by others", 2+9, 2+1200)
	end(store.OpCancel, "id", 3, true, 0)
	a.wantUsed("cancelled", 2+6, 2+800)
	b.wantUsed("cancelled", 2+6, 1)
	if st := a.peek(); st.Open != 1 {
		e.Errorf("%d open, want 1", st.Open)
	}
}

func testRenew(e *env) {
	b, c := e.bucket("k", slots(1)), e.bucket("other", slots(1))
	both := func() []store.BucketCost { return []store.BucketCost{b.cost(1), c.cost(1)} }
	e.allowed("reserve", e.take(store.Take{ID: "id", Hold: 10 * time.Second, Buckets: both()}))
	renew := func(d time.Duration) store.Outcome {
		e.Helper()
		s := settlement(store.OpRenew, "id", both()...)
		s.Hold = d
		return e.settle(s)
	}
	e.advance(6 * time.Second)
	if out := renew(10 * time.Second); out.Gone || !out.End.Equal(e.now().Add(10*time.Second)) {
		e.Errorf("renew: %+v, want an end in 10 s", out)
	}
	e.advance(6 * time.Second)
	if out := renew(time.Second); out.Gone || !out.End.Equal(e.now().Add(4*time.Second)) {
		e.Errorf("renew for less: %+v, want the end in 4 s as it was", out)
	}
	e.advance(4*time.Second - tick)
	e.refused("held", b.hold("next", time.Second, 1), tick)
	e.refused("held", c.hold("next", time.Second, 1), tick)
	e.advance(tick)
	if out := renew(time.Minute); !out.Gone {
		e.Errorf("renew of a hold that is over: %+v, want gone", out)
	}
	e.allowed("free", b.hold("next", time.Second, 1))
	e.allowed("free", c.hold("next", time.Second, 1))
}

// testHoldOutlasts looks at the slot of a holder, by both clocks, shortly before the instant until
// which the holder may rely on it: that is HoldEnd - At after it was asked for, and the length of
// the hold after a renewal.
func testHoldOutlasts(e *env) {
	behind, right := e.s, e.s
	if e.h.Apart != nil {
		behind, right = e.h.Apart(e.T, e.s)
	}
	clients := []*env{{T: e.T, h: e.h, s: behind}, {T: e.T, h: e.h, s: right}}
	for i, holder := range clients {
		for n := range 2 {
			holdOutlasts(holder, clients[1-i], fmt.Sprintf("client %d, %d buckets", i, n+1), n+1)
		}
	}
}

func holdOutlasts(e, other *env, what string, n int) {
	const hold = 3 * time.Second
	ask := store.Take{ID: "id", Hold: hold}
	for i := range n {
		ask.Buckets = append(ask.Buckets, e.bucket(fmt.Sprint(what, i), slots(1)).cost(1))
	}
	held := func(when string) {
		e.Helper()
		for _, client := range []*env{e, other} {
			for i := range n {
				if client.take(store.Take{ID: "next", Hold: time.Second, Buckets: ask.Buckets[i : i+1]}).Allowed {
					e.Fatalf("%s: %s: its slot in bucket %d was given to somebody else", what, when, i)
				}
			}
		}
	}
	d := e.take(ask)
	e.allowed("reserve", d)
	if left := d.HoldEnd().Sub(d.At()); left != hold {
		e.Errorf("%s: its holder is told %v, want %v", what, left, hold)
	}
	e.advance(hold - tick)
	held("after the take")
	renew := settlement(store.OpRenew, "id", ask.Buckets...)
	renew.Hold = hold
	if e.settle(renew).Gone {
		e.Fatalf("%s: gone while its holder may rely on it", what)
	}
	e.advance(hold - tick)
	held("after a renewal")
	if e.settle(renew).Gone {
		e.Fatalf("%s: gone when it was renewed", what)
	}
	for _, client := range []*env{e, other} { // a take that is sent again may be answered by another process
		d := client.take(ask)
		if !d.Replayed {
			e.Fatalf("%s: it is not open any more", what)
		}
		e.advance(max(0, min(time.Second, d.HoldEnd().Sub(d.At()))-tick))
		held("after a replay")
	}
	d = other.take(ask)
	e.advance(max(0, d.HoldEnd().Sub(d.At())-tick))
	held("shortly before the end that the other client was told")
}

// req: A12
func testReplay(e *env) {
	a, b := e.twoBuckets()
	ask := store.Take{ID: "id", Hold: 10 * time.Second, Buckets: []store.BucketCost{a.cost(6, 300), b.cost(6, 2)}}
	first := e.take(ask)
	e.allowed("first", first)
	if first.Replayed {
		e.Error("the first answer is marked as a replay")
	}
	e.advance(time.Second)
	same := e.unchanged(a, b)
	for range 5 { // twice would not fit
		d := e.take(ask)
		e.allowed("again", d)
		if !d.Replayed || !d.HoldEnd().Equal(first.HoldEnd()) || d.Granted(0) != first.Granted(0) ||
			d.Granted(1) != first.Granted(1) {
			e.Errorf("replayed %v, hold ends %v, granted %v and %v; want true, %v, %v and %v", d.Replayed, d.HoldEnd(),
				d.Granted(0), d.Granted(1),
				first.HoldEnd(), first.Granted(0), first.Granted(1))
		}
	}
	same("after five replays")
	if e.settle(settlement(store.OpSettle, "id", a.cost(1, 10), b.cost(1, 1))).Gone {
		e.Error("settle: gone")
	}
	a.wantUsed("settled", 1, 10)
	b.wantUsed("settled", 1, 0)
}

func testPartlyOpen(e *env) {
	for what, end := range map[string]func(a, b *bucket){
		"cancelled in one": func(a, b *bucket) {
			if e.settle(settlement(store.OpCancel, "id", a.cost(0, 0))).Gone {
				e.Error("cancel in one bucket: gone")
			}
		},
	} {
		a, b := e.twoBuckets()
		ask := store.Take{ID: "id", Hold: 10 * time.Second, Buckets: []store.BucketCost{a.cost(1, 1), b.cost(1, 1)}}
		e.allowed("first", e.take(ask))
		end(a, b)
		same := e.unchanged(a, b)
		if d := e.take(ask); d.Allowed || !errors.Is(d.Fail, store.ErrIDReused) {
			e.Errorf("%s: allowed %v, error %v; want %v", what, d.Allowed, d.Fail, store.ErrIDReused)
		}
		same(what)
	}
}

func testReuse(e *env) {
	a, b := e.twoBuckets()
	e.allowed("first", a.hold("id", time.Hour, 2, 30))
	same := e.unchanged(a, b)
	for what, t := range map[string]store.Take{
		"other amount":      {ID: "id", Hold: time.Hour, Buckets: a.costs(3, 30)},
		"other limit":       {ID: "id", Hold: time.Hour, Buckets: a.costs(30, 2)},
		"other hold":        {ID: "id", Hold: time.Hour + time.Second, Buckets: a.costs(2, 30)},
		"a lease":           {ID: "id", Hold: time.Hour, Buckets: a.costs(2, 30), Lease: true},
		"more buckets":      {ID: "id", Hold: time.Hour, Buckets: []store.BucketCost{a.cost(2, 30), b.cost(1, 1)}},
		"more buckets, too": {ID: "id", Hold: time.Hour, Buckets: []store.BucketCost{b.cost(1, 1), a.cost(2, 30)}},
	} {
		if d := e.take(t); !errors.Is(d.Fail, store.ErrIDReused) || d.Allowed {
			e.Errorf("%s: allowed %v, error %v; want %v", what, d.Allowed, d.Fail, store.ErrIDReused)
		}
	}
	same("after the id was used for something else")
	if st := b.peek(); st.Open != 0 {
		e.Errorf("%d open in the other bucket", st.Open)
	}
	if !a.cancel("id") {
		e.Error("the reservation is gone")
	}
}

func testIDAgain(e *env) {
	b := e.bucket("k", rolling(10, time.Hour))
	for i, end := range []func(){
		func() { b.settle("id", 1) },
		func() { b.cancel("id") },
		func() { e.advance(time.Minute) },
	} {
		e.allowed("take", b.hold("id", time.Minute, int64(i+1)))
		end()
	}
	d := b.hold("id", time.Minute, 1)
	e.allowed("take", d)
	if d.Replayed {
		e.Error("an id that was over is replayed")
	}
	b.wantUsed("settled 1, cancelled, let 3 end, took 1", 5)
}

func testManyOpen(e *env) {
	tokens := rolling(1_000_000, time.Hour)
	tokens.Name, tokens.Charge = "tokens", drawgate.ChargeEnd
	b := e.bucket("k", rolling(10_000, time.Hour), tokens, slots(300))
	for i := range 300 {
		e.allowed("reserve", b.hold(fmt.Sprint(i), time.Minute+time.Duration(i)*time.Second, 1, 100, 1))
	}
	b.wantUsed("all open", 300, 30_000, 300)
	for i := 0; i < 300; i += 3 {
		if !b.settle(fmt.Sprint(i), 1, int64(i), 1) || !b.cancel(fmt.Sprint(i+1)) {
			e.Fatalf("reservation %d is gone", i)
		}
	}
	// 0+3+...+297 were settled; 2, 5, ... are open.
	b.wantUsed("a third open", 200, 14_850+10_000, 100)
	e.advance(time.Minute + 150*time.Second)
	if st := b.peek(); st.Open != 50 || st.States[1].Held != 5000 || st.States[2].Used != 50 {
		e.Errorf("%d open, %d held, %d slots; want 50, 5000, 50", st.Open, st.States[1].Held, st.States[2].Used)
	}
	b.wantUsed("some ended", 200, 24_850, 50)
}

func testTooManyOpen(e *env) {
	room := e.h.Room
	if room == 0 {
		room = store.MaxOpen
	}
	b, other := e.bucket("k", calendar(store.MaxAmount, drawgate.Month, "UTC")),
		e.bucket("other", rolling(10, time.Hour))
	open := 0
	// smaller batches near the end: a store may refuse all of one that has no room
	for many := 500; many > 0 && open <= store.MaxOpen; {
		batch, out := make([]store.Take, many), make([]store.Verdict, many)
		for i := range batch {
			batch[i] = store.Take{
				ID: fmt.Sprint(open + i), Hold: time.Hour + time.Duration(open+i)*time.Second,
				Buckets: b.costs(1),
			}
		}
		if err := e.s.Take(e.ctx(), batch, out); err != nil {
			e.Fatal(err)
		}
		before := open
		for i := range out {
			if !errors.Is(out[i].Fail, store.ErrTooManyOpen) {
				e.allowed("reserve", out[i])
				open++
			}
		}
		if open-before < many {
			many /= 2
		}
	}
	if open < room || open > store.MaxOpen {
		e.Errorf("%d were opened, want %d to %d", open, room, store.MaxOpen)
	}
	full := store.Take{ID: "one more", Hold: time.Hour, Buckets: []store.BucketCost{other.cost(1), b.cost(1)}}
	if d := e.take(full); d.Allowed || !errors.Is(d.Fail, store.ErrTooManyOpen) {
		e.Errorf("one more: allowed %v, error %v; want %v", d.Allowed, d.Fail, store.ErrTooManyOpen)
	}
	other.wantUsed("nothing was taken", 0)
	if st := b.peek(); st.Open != open || st.States[0].Used != int64(open) {
		e.Errorf("%d open, %d used; want %d", st.Open, st.States[0].Used, open)
	}
	e.allowed("a plain take", b.take(1))
	if d := b.hold("0", time.Hour, 1); !d.Replayed {
		e.Errorf("an open one again: %+v", d)
	}
	again := []store.Take{
		{ID: "yet another", Hold: time.Hour, Buckets: b.costs(1)},
		{ID: "1", Hold: time.Hour + time.Second, Buckets: b.costs(1)},
	}
	out := make([]store.Verdict, len(again))
	if err := e.s.Take(e.ctx(), again, out); err != nil || !errors.Is(out[0].Fail, store.ErrTooManyOpen) ||
		!out[1].Replayed {
		e.Errorf("yet another, and an open one again: %v, %v, replayed %t, %v", err, out[0].Fail, out[1].Replayed,
			out[1].Fail)
	}
	for _, id := range []string{"17", "18", "19"} {
		if !b.settle(id, 1) {
			e.Error("gone")
		}
	}
	e.allowed("some were settled", e.take(full))
}
