package storetest

import (
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

var answerCases = []testCase{
	{
		"results per limit",
		"a decision says for each limit what was granted, what remains, when it would pass and when it is unused again",
		testResults, false,
	},
	{
		"retry-after is exact",
		"a take refused with a wait is refused until a microsecond before that wait is over, and passes then",
		testRetryAfterExact, false,
	},
	{
		"retry-after with holds",
		"held units count as ending at the end of their hold; earliest says what an early return could bring",
		testRetryAfterHolds, false,
	},
	{
		"retry-after with leases",
		"retry-after also allows for a margin or another entry that makes leased units count for longer",
		testRetryAfterLeases, false,
	},
	{"reset instant", "a limit is unused at its reset instant, and used until then", testResetAt, false},
	{"peek", "a peek spends nothing and answers what a take would get", testPeek, false},
	{"peek of many", "a peek describes each bucket separately, in order", testPeekMany, true},
	{"instants in decisions", "decisions carry the store's time, which never runs backwards", testInstants, false},
}

// req: A6, B3, D5
func testResults(e *env) {
	tokens := leaky(60, time.Minute, 30)
	tokens.Unit = "tokens"
	b := e.bucket("k", rolling(10, time.Minute), tokens, calendar(4, drawgate.Day, "UTC"), slots(5))
	e.until(nextEdge(e.now(), drawgate.Day, "UTC", 1))
	start := e.now()
	midnight := start.Add(24 * time.Hour)
	d := b.hold("a", 20*time.Second, 3, 25, 1, 2)
	e.allowed("first", d)
	e.advance(5 * time.Second)
	d = b.hold("b", time.Second, 8, 15, 4, 4)
	e.refused("all four", d, midnight.Sub(e.now()))
	at := e.now()
	if !d.At().Equal(at) {
		e.Errorf("decided at %v, want %v", d.At(), at)
	}
	want := []struct {
		remaining int64
		wait      time.Duration
		reset     time.Time
	}{
		{7, 55 * time.Second, start.Add(time.Minute)},
		{10, 5 * time.Second, start.Add(25 * time.Second)},
		{3, midnight.Sub(at), midnight},
		{3, 15 * time.Second, start.Add(20 * time.Second)},
	}
	for i, r := range results(d) {
		w := want[i]
		if r.Remaining != w.remaining || r.RetryAfter != w.wait || !r.ResetAt.Equal(w.reset) || r.Limit != i {
			e.Errorf("limit %d: %+v; want remaining %d, retry-after %v, reset %v", i, r, w.remaining, w.wait, w.reset)
		}
	}
	d = b.hold("c", time.Second, 8, 1, 1, 1)
	e.refused("one of four", d, 55*time.Second)
	for i, r := range results(d) {
		if (r.RetryAfter > 0) != (i == 0) {
			e.Errorf("limit %d refuses for %v", i, r.RetryAfter)
		}
	}
}

// req: A2
func testRetryAfterExact(e *env) {
	for i, l := range []drawgate.Limit{
		rolling(10, time.Minute), joined(10, time.Minute, 100), leaky(10, 7*time.Second, 10),
		calendar(10, drawgate.Hour, "UTC"), leaky(10, time.Minute, 4),
	} {
		b := e.bucket(fmt.Sprint("k", i), l)
		for _, n := range []int64{1, 2, 1} { // at different instants
			e.allowed(l.Name, b.take(n))
			e.advance(777 * time.Millisecond)
		}
		for _, n := range []int64{9, 3, 4, 8, 1, 10, 2} {
			n = min(n, b.peek().States[0].Max)
			d := b.take(n)
			if ok(e, d) {
				continue
			}
			e.refused(l.Name, d, -1)
			if d.EarliestRetry != d.RetryAfter {
				e.Errorf("%s: earliest %v, want %v: nothing is held", l.Name, d.EarliestRetry, d.RetryAfter)
			}
			e.advance(d.RetryAfter - tick)
			e.refused(fmt.Sprintf("%s: %d units a microsecond early", l.Name, n), b.take(n), tick)
			e.advance(tick)
			e.allowed(fmt.Sprintf("%s: %d units on time", l.Name, n), b.take(n))
		}
	}
}

func testRetryAfterHolds(e *env) {
	end := func(l drawgate.Limit) drawgate.Limit { l.Charge = drawgate.ChargeEnd; return l }
	for i, c := range []struct {
		limit          drawgate.Limit
		wait, earliest time.Duration
	}{
		// 4 units are taken, 6 held for 30 s. A take of 5 fits when the 6 are gone. They count from
		// the end of their hold.
		{end(rolling(10, time.Minute)), 90 * time.Second, 0},
		{end(leaky(10, 10*time.Second, 0)), 31 * time.Second, 0},
		{rolling(10, time.Minute), time.Minute, 0},
		{leaky(10, 10*time.Second, 0), 5 * time.Second, 0},
	} {
		b := e.bucket(fmt.Sprint("k", i), c.limit)
		e.allowed("plain", b.take(4))
		e.allowed("held", b.hold("id", 30*time.Second, 6))
		d := b.take(5)
		e.refused(c.limit.Name, d, c.wait)
		if d.EarliestRetry != c.earliest {
			e.Errorf("limit %d: earliest %v, want %v", i, d.EarliestRetry, c.earliest)
		}
		if d := b.take(8); ok(e, d) || d.EarliestRetry == 0 {
			e.Errorf("limit %d: a take of 8 is to wait for plain units: earliest %v", i, d.EarliestRetry)
		}
		e.advance(c.wait - tick)
		e.refused("a microsecond early", b.take(5), tick)
		e.advance(tick)
		e.allowed("on time", b.take(5))
	}
}

func testRetryAfterLeases(e *env) {
	r := rolling(10, time.Minute)
	r.Margin = 2 * time.Second
	b := e.bucket("rolling", r)
	e.allowed("plain", b.take(4))
	e.allowed("lease", b.lease("id", 30*time.Second, 6))
	e.refused("until the lease's end, margin and window", b.take(5), 92*time.Second)
	e.advance(92*time.Second - tick)
	e.refused("a microsecond early", b.take(5), tick)
	e.advance(tick)
	e.allowed("on time", b.take(5))

	c := calendar(10, drawgate.Hour, "UTC")
	c.Margin = 2 * time.Second
	b = e.bucket("calendar", c)
	edge := nextEdge(e.now().Add(time.Minute), drawgate.Hour, "UTC", 1)
	e.until(edge.Add(-time.Minute))
	e.allowed("lease that ends in the margin of the edge", b.lease("id", 59*time.Second, 6))
	e.refused("it counts in both windows", b.take(5), time.Hour+time.Minute)
	e.until(edge)
	e.refused("still", b.take(5), time.Hour)
	e.allowed("what is left", b.take(4))
	e.until(edge.Add(time.Hour))
	e.allowed("and in no other", b.take(10))

	// Units of a lease may join the previous entry, and keep it in the window for longer.
	b = e.bucket("joined", joined(10, 100*time.Second, 100))
	e.allowed("plain", b.take(5))
	e.allowed("lease", b.lease("id", 500*time.Millisecond, 5))
	d := b.take(1)
	e.refused("full", d, -1)
	e.advance(d.RetryAfter - tick)
	e.refused("a microsecond early", b.take(1), tick)
	e.advance(tick)
	e.allowed("on time", b.take(1))
}

func testResetAt(e *env) {
	for i, l := range []drawgate.Limit{
		rolling(10, time.Minute), joined(10, time.Minute, 100),
		leaky(10, time.Minute, 7), calendar(10, drawgate.Hour, "UTC"),
	} {
		b := e.bucket(fmt.Sprint("k", i), l)
		if l.Kind != drawgate.Calendar {
			if st := b.peek(); !results(st.Verdict)[0].ResetAt.Equal(st.At()) {
				e.Errorf("%s: unused, reset at %v, want now, %v", l.Name, results(st.Verdict)[0].ResetAt, st.At())
			}
		}
		e.allowed(l.Name, b.take(1))
		e.advance(time.Second)
		d := b.take(3)
		e.allowed(l.Name, d)
		e.advance(results(d)[0].ResetAt.Sub(d.At()) - tick)
		b.wantUsed(l.Name+": a microsecond before the reset", max(1, b.used()))
		e.advance(tick)
		b.wantUsed(l.Name+": at the reset", 0)
	}
}

// req: B3, C9
func testPeek(e *env) {
	for i, l := range []drawgate.Limit{
		rolling(10, time.Minute), joined(10, time.Minute, 100),
		leaky(10, time.Minute, 0), calendar(10, drawgate.Hour, "UTC"), slots(10),
	} {
		b := e.bucket(fmt.Sprint("k", i), l)
		for step := range 40 {
			n := int64(step*7%10 + 1)
			st := b.peek(n)
			for range 3 {
				if again := b.peek(n); fmt.Sprint(again) != fmt.Sprint(st) {
					e.Fatalf("%s: two peeks differ: %+v, %+v", l.Name, st, again)
				}
			}
			d := b.hold(fmt.Sprint(step), 5*time.Second, n)
			if ok(e, d) != st.Allowed || d.RetryAfter != st.RetryAfter || d.Reason != st.Reason ||
				!d.At().Equal(st.At()) {
				e.Fatalf("%s, step %d: peek says %+v, the take %+v", l.Name, step, st.Verdict, d)
			}
			if !d.Allowed && fmt.Sprint(results(d)) != fmt.Sprint(results(st.Verdict)) {
				e.Fatalf("%s, step %d: peek says %+v, the take %+v", l.Name, step, results(st.Verdict), results(d))
			}
			if d.Allowed {
				was, is := results(st.Verdict)[0], results(d)[0]
				if is.Remaining != was.Remaining-n {
					e.Fatalf("%s, step %d: %d remain of %d after %d", l.Name, step, is.Remaining, was.Remaining, n)
				}
			}
			e.advance(1100 * time.Millisecond)
		}
	}
}

func testPeekMany(e *env) {
	plan := e.plan(rolling(10, time.Hour))
	var asks []store.BucketCost
	for i := range 20 {
		b := e.of(fmt.Sprint("k", i), plan)
		if i > 0 && i%11 > 0 {
			e.allowed("take", b.take(int64(i%11)))
		}
		asks = append(asks, b.cost(5))
	}
	asks = append(asks, asks[3]) // the same bucket again
	out := make([]store.State, len(asks))
	if err := e.s.Peek(e.ctx(), asks, 0, out); err != nil {
		e.Fatal(err)
	}
	for i := range out {
		used := int64(i % 11)
		if i == 20 {
			used = 3
		}
		if out[i].States[0].Used != used || out[i].Allowed != (used <= 5) {
			e.Errorf("bucket %d: used %d, allowed %v; want %d, %v", i, out[i].States[0].Used, out[i].Allowed, used,
				used <= 5)
		}
	}
}

func testInstants(e *env) {
	b := e.bucket("k", rolling(5, time.Minute))
	last := e.now()
	for i := range 50 {
		d := b.hold(fmt.Sprint(i), 3*time.Second, 1)
		if d.At().Before(last) {
			e.Fatalf("the clock ran back from %v to %v", last, d.At())
		}
		if end := d.HoldEnd(); d.Allowed && !end.Equal(d.At().Add(3*time.Second)) || !d.Allowed && !end.IsZero() {
			e.Errorf("allowed %v at %v: hold ends at %v", d.Allowed, d.At(), end)
		}
		last = d.At()
		e.advance(time.Duration(i) * 313 * time.Millisecond)
		if got := e.now().Sub(last); got != time.Duration(i)*313*time.Millisecond {
			e.Fatalf("the clock moved by %v, want %v", got, time.Duration(i)*313*time.Millisecond)
		}
	}
	if d := b.take(1); !d.HoldEnd().IsZero() {
		e.Errorf("a plain take has a hold until %v", d.HoldEnd())
	}
}

var shareCases = []testCase{
	{"headroom", "headroom, in units or as a percentage, is never granted to anyone", testHeadroom, true},
	{
		"priorities", "takes of a lower priority leave what is kept for higher ones; a take of that priority gets it",
		testPriorities, true,
	},
	{"priority waits", "a refused take of low priority waits until its own share has room", testPriorityWait, false},
}

// req: A6, C2
func testHeadroom(e *env) {
	for i, c := range []struct {
		limit drawgate.Limit
		share drawgate.Share
		want  int64
	}{
		{e.month(25), drawgate.Share{Units: 1}, 24},
		{rolling(10, time.Hour), drawgate.Share{Percent: 20}, 8},
		{rolling(5, time.Hour), drawgate.Share{Percent: 20}, 4},
		{rolling(250, time.Hour), drawgate.Share{Percent: 20}, 200},
		{rolling(7, time.Hour), drawgate.Share{Percent: 20}, 5}, // 1.4 kept, rounded up
		{leaky(10, time.Hour, 5), drawgate.Share{Units: 2}, 3},
		{slots(5), drawgate.Share{Units: 1}, 4},
	} {
		c.limit.Headroom = c.share
		b := e.bucket(fmt.Sprint("k", i), c.limit)
		if st := b.peekAt(store.MaxPriority); st.States[0].Max != c.want {
			e.Errorf("limit %d: at most %d, want %d", i, st.States[0].Max, c.want)
		}
		e.allowed(fmt.Sprint("limit ", i), b.hold("a", time.Hour, c.want))
		e.refused(fmt.Sprint("limit ", i), b.hold("b", time.Hour, 1), -1)
		e.refused(fmt.Sprint("limit ", i, ", highest priority"),
			e.take(store.Take{ID: "b", Hold: time.Hour, Priority: store.MaxPriority, Buckets: b.costs(1)}), -1)
	}
}

// req: B6
func testPriorities(e *env) {
	for i, l := range e.fourKinds(20) {
		l.Headroom = drawgate.Share{Units: 5}
		// of 15: 2 for 7 and above, 4 more for 3 and above
		l.ReservedByPriority = map[int]drawgate.Share{7: {Percent: 10}, 3: {Units: 4}}
		b := e.bucket(fmt.Sprint("k", i), l)
		n := 0
		for _, step := range []struct {
			priority int8
			want     int64
		}{{0, 9}, {2, 0}, {3, 4}, {6, 0}, {0, 0}, {7, 1}, {9, 1}, {7, 0}} {
			got := int64(0)
			most := step.want
			if step.priority == 7 {
				most = min(most, 1) // leave one for priority 9
			}
			for range most + 1 {
				if step.priority == 7 && got == most && most > 0 {
					break
				}
				n++
				d := e.take(store.Take{
					ID: fmt.Sprint(n), Hold: time.Hour, Priority: step.priority,
					Buckets: b.costs(1),
				})
				if ok(e, d) {
					got++
				}
			}
			if got != step.want {
				e.Errorf("%s: priority %d got %d, want %d", l.Name, step.priority, got, step.want)
			}
			if r := results(b.peekAt(step.priority).Verdict)[0]; r.Remaining != 0 && step.priority != 7 {
				e.Errorf("%s: priority %d: %d remain", l.Name, step.priority, r.Remaining)
			}
		}
		b.wantUsed(l.Name, 15)
	}
}

func testPriorityWait(e *env) {
	l := leaky(10, 10*time.Second, 0)
	l.ReservedByPriority = map[int]drawgate.Share{5: {Units: 4}}
	b := e.bucket("k", l)
	e.allowed("high", b.takeAt(5, 10))
	e.refused("high", b.takeAt(5, 1), time.Second)
	e.refused("low", b.takeAt(4, 1), 5*time.Second)
	e.advance(5*time.Second - tick)
	e.refused("low, early", b.takeAt(4, 1), tick)
	e.advance(tick)
	e.allowed("low, on time", b.takeAt(4, 1))
	e.allowed("high may go on", b.takeAt(5, 4))
}

func testRealTime(e *env) {
	e.h.Advance = func(_ store.Store, d time.Duration) { time.Sleep(d) }
	start := time.Now()
	r, l := e.bucket("rolling", rolling(2, time.Second)), e.bucket("bucket", leaky(2, time.Second, 0))
	h := e.bucket("held", slots(1))
	e.allowed("rolling", r.take(2))
	e.allowed("bucket", l.take(2))
	e.allowed("slot", h.hold("id", time.Second, 1))
	for _, b := range []*bucket{r, l, h} {
		if d := b.hold("next", time.Second, 1); time.Since(start) < 400*time.Millisecond && d.Allowed {
			e.Errorf("allowed after %v", time.Since(start))
		}
	}
	e.advance(1100*time.Millisecond + tick)
	for _, b := range []*bucket{r, l, h} {
		e.allowed("after a second", b.hold("later", time.Second, 1))
	}
}
