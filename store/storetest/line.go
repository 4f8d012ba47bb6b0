package storetest

import (
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// The line of those who wait in all processes is kept by stores that implement [store.Liner], and
// by those in front of such a store.
var lineCases = []testCase{
	{
		"line", "who began to wait first is served first; whoever does not wait stands behind all of them, and barge passes", testLine,
		true,
	},
	{"line by priority", "ten seconds of waiting outweigh one step of priority", testLinePriority, true},
	{"line of a process", "a grant leaves the tickets of those behind it in its process", testLineNext, true},
	{"line of large takes", "a take that needs many units gets them although small ones would fit before", testLineLarge, true},
	{"line and kept units", "units kept for a priority are not blocked by tickets that may not use them", testLineKept, true},
	{
		"line and kept units that are used",
		"units kept for a priority come free with what it used, whatever is left of its hold, and not with what others give back",
		testLineKeptUsed, false,
	},
	{
		"line of several limits",
		"a take claims units in the first limit that refuses it, the longest window first, and in those before; others may use the rest, and all of it during a pause",
		testLineLimits, true,
	},
	{"line without hope", "a take that cannot pass in time leaves no ticket", testLinePatience, true},
	{"line and withdrawal", "a ticket that is withdrawn holds nobody up, and nor does one that is over", testLineEnds, false},
	{"line is seen", "a look says who waits, in their order, and does not change it", testLineSeen, true},
	{"line beside holds", "what is held is replayed, renewed and settled whoever waits", testLineHolds, true},
	{"line of two clients", "clients of the same buckets have one line", testLineOfTwo, true},
	{"line has an end", "a line has 128 tickets, and an earlier one displaces the last", testLineFull, true},
}

// lined reports whether the store keeps lines.
func lined(e *env) bool {
	s, implemented := optional[store.Liner](e)
	if !implemented {
		return false
	}
	b := e.bucket("lined", slots(1))
	e.allowed("take", b.hold("id", time.Hour, 1))
	d := b.waits(1, 0, 1)
	if s.KeepsLine() != (d.Arrival != 0) {
		e.Errorf("the store keeps a line: %v; and it says that a waiter came at %d", s.KeepsLine(), d.Arrival)
	}
	if !s.KeepsLine() {
		e.Log("the store behind it keeps no line: there was nothing to check")
	}
	return s.KeepsLine()
}

// waits is a take of a waiter that is here for the first time.
func (b *bucket) waits(number uint64, priority int8, n ...int64) store.Verdict {
	b.e.Helper()
	return b.inLine(&store.Ticket{Number: number}, priority, n...)
}

// inLine is a take of a waiter. What it takes it holds for an hour, under its number.
func (b *bucket) inLine(ticket *store.Ticket, priority int8, n ...int64) store.Verdict {
	b.e.Helper()
	return b.e.take(b.waiter(ticket, priority, n...))
}

func (b *bucket) waiter(ticket *store.Ticket, priority int8, n ...int64) store.Take {
	id := string(rune('A' + ticket.Number))
	return store.Take{
		ID: id, Grant: store.Grant(ticket.Number), Hold: time.Hour, Priority: priority, Buckets: b.costs(n...),
		Ticket: ticket,
	}
}

// leaves gives back what a waiter held.
func (b *bucket) leaves(number uint64) {
	b.e.Helper()
	if !b.end(store.OpCancel, string(rune('A'+number)), store.Grant(number)) {
		b.e.Errorf("%d held nothing", number)
	}
}

// numbers returns who waits.
func (b *bucket) numbers() (all []uint64) {
	b.e.Helper()
	st := b.peek()
	for i := range st.Line {
		all = append(all, st.Line[i].Number)
	}
	return all
}

func (b *bucket) wantLine(when string, want ...uint64) {
	b.e.Helper()
	if got := b.numbers(); !slices.Equal(got, want) {
		b.e.Errorf("%s: %v wait, want %v", when, got, want)
	}
}

// inFront checks that a take was refused because others come before it.
func (e *env) inFront(what string, d store.Verdict) {
	e.Helper()
	if ok(e, d) || d.Reason != store.Queued || d.RetryAfter <= 0 {
		e.Errorf("%s: allowed %v, %v, retry-after %v, want it to stand behind others", what, d.Allowed, d.Reason, d.RetryAfter)
	}
}

// req: C5
func testLine(e *env) {
	if !lined(e) {
		return
	}
	b := e.bucket("k", slots(1))
	e.allowed("take", b.waits(9, 0, 1))
	first := b.waits(1, 0, 1)
	e.refused("the first", first, -1)
	e.refused("the second", b.waits(2, 0, 1), -1)
	b.wantLine("both wait", 1, 2)
	late := b.inLine(&store.Ticket{Number: 3, Waited: time.Minute}, 0, 1)
	e.refused("one that waits in its process since before", late, -1)
	if late.Arrival >= first.Arrival {
		e.Errorf("it arrived at %d, not before %d", late.Arrival, first.Arrival)
	}
	b.wantLine("it is the first", 3, 1, 2)
	b.leaves(9)
	if st := b.peek(1); st.Allowed || st.Reason != store.Queued || st.Barging == nil || !st.Barging.Allowed {
		e.Errorf("described as %+v, and for one that passes as %+v", st.Verdict, st.Barging)
	}
	e.inFront("one that does not wait", b.hold("no", time.Hour, 1))
	e.inFront("the second", b.waits(2, 0, 1))
	e.allowed("the first", b.inLine(&store.Ticket{Number: 3, Arrival: late.Arrival}, 0, 1))
	b.leaves(3)
	e.allowed("one that passes", e.take(store.Take{ID: "barge", Hold: time.Hour, Buckets: b.costs(1), Barge: true}))
	b.cancel("barge")
	e.allowed("one that was allowed elsewhere", e.take(store.Take{ID: "given", Hold: time.Hour, Buckets: b.costs(1), Given: true}))
	b.cancel("given")
	e.allowed("the next", b.waits(1, 0, 1))
	b.leaves(1)
	e.allowed("the last", b.waits(2, 0, 1))
	b.wantLine("all were served")
}

func testLinePriority(e *env) {
	if !lined(e) {
		return
	}
	b := e.bucket("k", slots(1))
	e.allowed("take", b.waits(9, 0, 1))
	e.refused("of low priority", b.inLine(&store.Ticket{Number: 1, Waited: 15 * time.Second}, 0, 1), -1)
	e.refused("higher by one", b.waits(2, 1, 1), -1)
	b.wantLine("15 s outweigh one step", 1, 2)
	e.refused("higher by two", b.waits(3, 2, 1), -1)
	b.wantLine("and not two", 3, 1, 2)
}

func testLineNext(e *env) {
	if !lined(e) {
		return
	}
	b := e.bucket("k", slots(1))
	e.allowed("take", b.waits(9, 0, 1))
	next := []store.Next{{Number: 2, Waited: time.Second, N: store.Amounts{1}}, {Number: 3, N: store.Amounts{1}}}
	d := b.inLine(&store.Ticket{Number: 1, Waited: time.Minute}, 0, 1)
	e.refused("of another process", b.waits(4, 0, 1), -1)
	b.leaves(9)
	e.allowed("the first", b.inLine(&store.Ticket{Number: 1, Arrival: d.Arrival, Next: next}, 0, 1))
	if got := b.numbers(); len(got) != 3 || got[0] != 2 {
		e.Errorf("%v wait, want those behind the first too", got)
	}
	b.leaves(1)
	e.inFront("of another process", b.waits(4, 0, 1))
	e.allowed("the next of the process", b.waits(2, 0, 1))
}

func testLineLarge(e *env) {
	if !lined(e) {
		return
	}
	b := e.bucket("k", slots(10))
	for n := range uint64(10) {
		e.allowed("take", b.waits(20+n, 0, 1))
	}
	e.refused("a large one", b.inLine(&store.Ticket{Number: 1, Waited: time.Second}, 0, 9), -1)
	for n := range uint64(8) {
		b.leaves(20 + n)
		e.inFront("a small one", b.waits(2, 0, 1))
		e.refused("the large one", b.waits(1, 0, 9), -1)
	}
	b.leaves(28)
	e.inFront("a small one", b.waits(2, 0, 1))
	e.allowed("the large one", b.waits(1, 0, 9))
}

func testLineKept(e *env) {
	if !lined(e) {
		return
	}
	l := slots(10)
	l.ReservedByPriority = map[int]drawgate.Share{7: {Units: 2}}
	b := e.bucket("k", l)
	e.allowed("take", b.waits(9, 0, 8))
	e.refused("of low priority", b.inLine(&store.Ticket{Number: 1, Waited: 10 * time.Minute}, 0, 1), -1)
	e.allowed("what is kept", b.waits(2, 7, 2))
	e.refused("more", b.waits(3, 7, 1), -1)
	b.leaves(2)
	e.allowed("what was given back early", b.waits(3, 7, 1))
	b.leaves(9)
	b.leaves(3)
	e.allowed("the old one", b.waits(1, 0, 1))
}

func testLineKeptUsed(e *env) {
	if !lined(e) {
		return
	}
	l := rolling(10, 2*time.Second)
	l.Charge, l.ReservedByPriority = drawgate.ChargeEnd, map[int]drawgate.Share{7: {Units: 2}}
	b := e.bucket("k", l)
	high := func(id string) store.Verdict {
		e.Helper()
		return e.take(store.Take{ID: id, Grant: 1, Hold: time.Hour, Priority: 7, Buckets: b.costs(1)})
	}
	e.allowed("take", b.granted("low", 1, time.Hour, 4))
	e.allowed("take", b.granted("other", 1, time.Hour, 4))
	e.refused("of low priority", b.inLine(&store.Ticket{Number: 1, Waited: 10 * time.Minute}, 0, 6), -1)
	for range 3 {
		e.allowed("what is kept", high("high"))
		e.allowed("what is kept", high("high too"))
		e.refused("more", high("more"), -1)
		for _, id := range []string{"high", "high too"} {
			if !b.end(store.OpSettle, id, 1, 1) {
				e.Errorf("%q is not open", id)
			}
		}
		e.refused("while it counts", high("more"), -1)
		e.advance(2 * time.Second)
		e.refused("of low priority", b.inLine(&store.Ticket{Number: 1, Waited: 10 * time.Minute}, 0, 6), -1)
	}
	e.allowed("what is kept", high("high"))
	e.allowed("what is kept", high("high too"))
	b.end(store.OpCancel, "other", 1)
	e.inFront("what others gave back", high("more"))
}

func testLineLimits(e *env) {
	if !lined(e) {
		return
	}
	short, long := rolling(4, time.Hour), e.month(2)
	short.Name, long.Name = "short", "long"
	b := e.bucket("k", short, long)
	e.allowed("take", b.take(2, 2))
	e.refused("of both", b.waits(1, 0, 1, 1), -1)
	b.wantLine("it waits", 1)
	if st := b.peek(); len(st.Line) == 1 && st.Line[0].N != (store.Amounts{0, 1}) {
		e.Errorf("it waits for %v", st.Line[0].N)
	}
	e.allowed("of the short window", b.take(2, 0))
	long.Amount = 10
	c := e.bucket("other", short, long)
	e.allowed("take", c.take(4, 0))
	e.refused("of both", c.waits(1, 0, 1, 9), -1)
	if st := c.peek(); len(st.Line) != 1 || st.Line[0].N != (store.Amounts{1, 9}) {
		e.Errorf("the short window refuses, and in the line are %+v", st.Line)
	}
	e.allowed("what is left of the long one", c.take(0, 1))
	e.inFront("more", c.take(0, 1))
	e.settle(store.Settlement{Op: store.OpPause, Hold: time.Hour, Buckets: c.costs()})
	if d := c.waits(1, 0, 1, 9); d.Reason != store.Paused {
		e.Errorf("during a pause: %v", d.Reason)
	}
	c.wantLine("nobody claims anything")
}

func testLinePatience(e *env) {
	if !lined(e) {
		return
	}
	b := e.bucket("k", rolling(1, time.Hour))
	e.allowed("take", b.take(1))
	for patience, want := range map[time.Duration]bool{
		0: true, time.Minute: false, 24 * time.Hour: true,
		time.Microsecond: false,
	} {
		d := b.inLine(&store.Ticket{Number: 1, Patience: patience}, 0, 1)
		e.refused("take", d, -1)
		if got := len(b.numbers()) == 1; got != want || got != (d.Standing.Tickets > 0) || d.Arrival == 0 {
			e.Errorf("it waits for %v, and has a ticket: %v, want %v; %+v", patience, got, want, d.Standing)
		}
	}
}

func testLineEnds(e *env) {
	if !lined(e) {
		return
	}
	b := e.bucket("k", slots(1))
	e.allowed("take", b.waits(9, 0, 1))
	e.refused("the first", b.waits(1, 0, 1), -1)
	e.refused("the second", b.waits(2, 0, 1), -1)
	s, _ := optional[store.Liner](e)
	if err := s.Withdraw(e.ctx(), 1, []store.Key{b.key, e.bucket("none", slots(1)).key}); err != nil {
		e.Fatal(err)
	}
	b.wantLine("one has left", 2)
	if err := s.Withdraw(e.ctx(), 1, nil); err != nil {
		e.Fatal(err)
	}
	e.advance(5 * time.Second)
	b.wantLine("no ticket lives longer")
	b.leaves(9)
	e.allowed("another one", b.hold("id", time.Hour, 1))

	// One that asks again in half of the time that it was told stays.
	d := b.waits(3, 0, 1)
	for range 5 {
		e.advance(min(d.RetryAfter, 2500*time.Millisecond))
		d = b.inLine(&store.Ticket{Number: 3, Arrival: d.Arrival}, 0, 1)
		e.refused("the slot is held", d, -1)
		b.wantLine("it asked in time", 3)
	}
}

func testLineSeen(e *env) {
	if !lined(e) {
		return
	}
	b := e.bucket("k", slots(3))
	e.allowed("take", b.waits(9, 0, 3))
	e.refused("the first", b.inLine(&store.Ticket{Number: 1, Waited: time.Minute}, 0, 2), -1)
	d := b.waits(2, 3, 1)
	e.refused("the second", d, -1)
	if s := d.Standing; s.Tickets != 2 || len(s.Before) != 1 || d.Now-s.Oldest < time.Minute.Microseconds() {
		e.Errorf("the second stands at %+v", s)
	}
	now := e.now()
	st := b.peek(1)
	if len(st.Line) != 2 {
		e.Fatalf("%+v wait", st.Line)
	}
	want := []store.Waiter{{Number: 1, N: store.Amounts{2}}, {Number: 2, Priority: 3, N: store.Amounts{1}}}
	for i, w := range st.Line {
		if w.Number != want[i].Number || w.Priority != want[i].Priority || w.N != want[i].N {
			e.Errorf("%+v, want %+v", w, want[i])
		}
	}
	if ago := now.Sub(st.Line[0].Since); ago < time.Minute || ago > 2*time.Minute {
		e.Errorf("the first waits for %v", ago)
	}
	b.leaves(9)
	if st := b.peek(1); st.Allowed != b.peek(2).Allowed {
		e.Errorf("a small one: %+v", st.Verdict)
	} else if st.Allowed || st.Reason != store.Queued || st.RetryAfter <= 0 || st.First.Limits[0].Remaining != 3 {
		e.Errorf("a look says %v, %v, retry-after %v, %d left", st.Allowed, st.Reason, st.RetryAfter, st.First.Limits[0].Remaining)
	}
	b.wantLine("looks change nothing", 1, 2)
	if st := e.bucket("other", slots(1)).peek(); len(st.Line) > 0 {
		e.Errorf("of another bucket: %+v", st.Line)
	}
	e.allowed("the first", b.waits(1, 0, 2))
	if st := b.peek(1); st.Allowed || st.Reason != store.Queued || len(st.Line) != 1 {
		e.Errorf("a look of one that does not wait says %v, %v, and in the line are %+v", st.Allowed, st.Reason, st.Line)
	}
}

func testLineHolds(e *env) {
	if !lined(e) {
		return
	}
	b := e.bucket("k", slots(2))
	e.allowed("take", b.waits(9, 0, 1))
	e.allowed("take", b.waits(8, 0, 1))
	e.refused("a waiter", b.inLine(&store.Ticket{Number: 1, Waited: time.Minute}, 0, 2), -1)
	if d := b.waits(9, 0, 1); !d.Allowed || !d.Replayed {
		e.Errorf("a replay: allowed %v, replayed %v", d.Allowed, d.Replayed)
	}
	renew := store.Settlement{
		Op: store.OpRenew, ID: string(rune('A' + 9)), Grant: 9, Hold: time.Hour,
		Buckets: b.costs(),
	}
	if e.settle(renew).Gone {
		e.Error("the hold is gone")
	}
	b.leaves(9)
	b.wantLine("it still waits", 1)
	e.inFront("another one", b.waits(7, 0, 1))
	b.leaves(8)
	e.allowed("the waiter", b.waits(1, 0, 2))
}

func testLineOfTwo(e *env) {
	if e.h.Second == nil {
		e.Log("the store has no other clients: there was nothing to check")
		return
	}
	if !lined(e) {
		return
	}
	two := *e
	two.s = e.h.Second(e.T, e.s)
	b, o := e.bucket("k", slots(1)), two.bucket("k", slots(1))
	e.allowed("take", b.waits(9, 0, 1))
	e.refused("the first", b.inLine(&store.Ticket{Number: 1, Waited: time.Second}, 0, 1), -1)
	e.refused("one of the other client", o.waits(2, 0, 1), -1)
	o.wantLine("both wait", 1, 2)
	o.leaves(9)
	e.inFront("one of the other client", o.waits(2, 0, 1))
	e.allowed("the first", b.waits(1, 0, 1))
	b.leaves(1)
	e.inFront("one that does not wait", b.hold("no", time.Hour, 1))
	e.allowed("one of the other client", o.waits(2, 0, 1))
}

func testLineFull(e *env) {
	if !lined(e) {
		return
	}
	b := e.bucket("k", slots(1))
	e.allowed("take", b.waits(500, 0, 1))
	const most = 128
	// In one go: a ticket lasts five seconds, in which a slow machine does not make so many calls.
	var takes []store.Take
	for n := range uint64(most + 6) {
		takes = append(takes, b.waiter(&store.Ticket{Number: 1 + n, Waited: time.Duration(200-n) * time.Second}, 0, 1))
	}
	out := make([]store.Verdict, len(takes))
	if err := e.s.Take(e.ctx(), takes, out); err != nil {
		e.Fatal(err)
	}
	for i := range out {
		e.refused("take", out[i], -1)
	}
	all := b.numbers()
	if len(all) != most || all[0] != 1 || all[most-1] != most {
		e.Errorf("%d wait: %v", len(all), all)
	}
	e.refused("an earlier one", b.inLine(&store.Ticket{Number: 400, Waited: time.Hour}, 0, 1), -1)
	if all := b.numbers(); len(all) != most || all[0] != 400 || all[most-1] != most-1 {
		e.Errorf("%d wait: %v", len(all), all)
	}
}
