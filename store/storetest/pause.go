package storetest

import (
	"time"

	"github.com/drawgate/drawgate/store"
)

var pauseCases = []testCase{
	{
		"pause", "a paused bucket refuses every take until the instant, by its reason, and decides as before from then",
		testPause, false,
	},
	{
		"the longest pause counts", "a shorter pause, or one that would have ended already, changes nothing",
		testPauseLongest, false,
	},
	{
		"a pause of several buckets",
		"each is paused, and a take of one of them together with another is refused as a whole", testPauseMany, false,
	},
	{
		"a pause stops takes only",
		"settlements and renewals go on, answers are repeated; a lease is kept as it is, and not renewed",
		testPauseOthers, false,
	},
	{
		"unpause", "ends the pause whose end it names; takes are decided as before, and what was used still counts",
		testUnpause, false,
	},
	{
		"unpause leaves another pause",
		"one that ends at another instant stays, and the answer says until when; a bucket without a pause stays as it is", testUnpauseOther, false,
	},
	{
		"unpause of several buckets",
		"each whose pause ends then; the answer has the latest end of the pauses that are left", testUnpauseMany,
		false,
	},
	{"pauses in one batch", "are made and ended in their order", testPauseOrder, false},
	{
		"pauses of another process", "are in force, and over, in the next take, whatever is remembered",
		testPauseElsewhere, false,
	},
	{"unpause and leases", "a lease is renewed again", testUnpauseLease, false},
	{"reset ends a pause", "if the store can reset buckets", testPauseReset, false},
}

// pause pauses a bucket and returns when its pause ends.
func (b *bucket) pause(d time.Duration, reason string) time.Time {
	b.e.Helper()
	return b.e.settle(store.Settlement{Op: store.OpPause, Hold: d, Reason: reason, Buckets: b.costs()}).End
}

// wantPause checks what a look at the bucket says of its pause.
func (b *bucket) wantPause(until time.Time, reason string) {
	b.e.Helper()
	if got := b.peek().Pause; !got.Until.Equal(until) || got.Reason != reason {
		b.e.Errorf("paused until %v: %q, want %v: %q", got.Until, got.Reason, until, reason)
	}
}

// wantPaused checks that a take is refused because of a pause, and for how long.
func (e *env) wantPaused(what string, d store.Verdict, wait time.Duration) {
	e.Helper()
	if ok(e, d) || d.Reason != store.Paused || d.RetryAfter != wait {
		e.Errorf("%s: allowed %v, reason %v, retry-after %v; want paused for %v", what, d.Allowed, d.Reason,
			d.RetryAfter, wait)
	}
}

func testPause(e *env) {
	b := e.bucket("k", rolling(10, time.Hour))
	e.allowed("before", b.take(3))
	until := e.now().Add(time.Minute)
	if got := b.pause(time.Minute, "the provider said 429"); !got.Equal(until) {
		e.Errorf("paused until %v, want %v", got, until)
	}
	e.advance(20 * time.Second)
	e.wantPaused("paused", b.take(1), 40*time.Second)
	e.wantPaused("paused, of nothing", b.take(0), 40*time.Second)
	b.wantPause(until, "the provider said 429")
	b.wantUsed("a pause spends nothing", 3)
	e.allowed("another key", e.of("other", b.plan).take(1))
	e.advance(40*time.Second - tick)
	e.wantPaused("at the last instant", b.take(1), tick)
	e.advance(tick)
	e.allowed("afterwards", b.take(7))
	b.wantPause(time.Time{}, "")
	e.refused("as before", b.take(1), -1)
}

func testPauseLongest(e *env) {
	b := e.bucket("k", rolling(10, time.Hour))
	past := store.Settlement{Op: store.OpPause, At: e.now(), Reason: "late", Buckets: b.costs()}
	if got := e.settle(past).End; !got.IsZero() {
		e.Errorf("a pause that is over: paused until %v, want the zero time", got)
	}
	e.allowed("after a pause that is over", b.take(1))
	until := b.pause(time.Minute, "long")
	short := store.Settlement{Op: store.OpPause, Hold: time.Second, Reason: "short", Buckets: b.costs()}
	if o := e.settle(short); !o.End.Equal(until) || !o.Kept {
		e.Errorf("a shorter pause: paused until %v, kept %v; want until %v, and kept", o.End, o.Kept, until)
	}
	same := store.Settlement{Op: store.OpPause, At: until, Reason: "same", Buckets: b.costs()}
	if o := e.settle(same); !o.End.Equal(until) || o.Kept {
		e.Errorf("the same pause again: paused until %v, kept %v; want until %v, and not kept", o.End, o.Kept, until)
	}
	if got := e.settle(past).End; !got.Equal(until) {
		e.Errorf("a pause that is over: paused until %v, want %v", got, until)
	}
	b.wantPause(until, "long")
	b.wantPause(b.pause(time.Hour, "longer"), "longer")
	e.advance(time.Hour - tick)
	e.wantPaused("the longest", b.take(1), tick)
}

// unpause ends a bucket's pause that ends at until.
func (b *bucket) unpause(until time.Time) store.Outcome {
	b.e.Helper()
	return b.e.settle(store.Settlement{Op: store.OpUnpause, At: until, Reason: "a mistake", Buckets: b.costs()})
}

// wantLeft checks which pause an OpUnpause left: none if until is the zero time.
func (e *env) wantLeft(what string, o store.Outcome, until time.Time) {
	e.Helper()
	if o.Gone || o.Kept == until.IsZero() || !o.End.Equal(until) {
		e.Errorf("%s: gone %v, kept %v, paused until %v; want until %v", what, o.Gone, o.Kept, o.End, until)
	}
}

func testUnpause(e *env) {
	b := e.bucket("k", rolling(10, time.Hour))
	e.allowed("before", b.take(3))
	until := b.pause(31*24*time.Hour, "a typo")
	e.advance(time.Second)
	e.wantPaused("paused", b.take(1), 31*24*time.Hour-time.Second)
	e.wantLeft("its pause", b.unpause(until), time.Time{})
	b.wantPause(time.Time{}, "")
	b.wantUsed("what was used still counts", 3)
	e.wantLeft("sent again", b.unpause(until), time.Time{})
	e.allowed("the rest", b.take(7))
	e.refused("as before", b.take(1), -1)
	b.wantPause(b.pause(time.Minute, "again"), "again")
	e.wantPaused("paused again", b.take(1), time.Hour-time.Second)
}

func testUnpauseOther(e *env) {
	b := e.bucket("k", rolling(10, time.Hour))
	e.wantLeft("a bucket that nobody used", b.unpause(e.now().Add(time.Minute)), time.Time{})
	first := b.pause(time.Minute, "first")
	second := b.pause(time.Hour, "second")
	for _, other := range []time.Time{first, second.Add(tick), second.Add(-tick), e.now()} {
		e.wantLeft("another pause", b.unpause(other), second)
	}
	b.wantPause(second, "second")
	e.wantPaused("still", b.take(1), time.Hour)
	e.advance(time.Hour)
	e.wantLeft("over", b.unpause(second), time.Time{})
	e.allowed("afterwards", b.take(1))
}

func testUnpauseMany(e *env) {
	plan := e.plan(rolling(10, time.Hour))
	a, b, c := e.of("a", plan), e.of("b", plan), e.of("c", plan)
	minute, hour := a.pause(time.Minute, ""), b.pause(time.Hour, "")
	st := store.Settlement{Op: store.OpUnpause, At: minute, Buckets: []store.BucketCost{a.cost(), b.cost(), c.cost()}}
	e.wantLeft("one of three", e.settle(st), hour)
	e.allowed("a", a.take(1))
	e.wantPaused("b", b.take(1), time.Hour)
	st.At = hour
	e.wantLeft("the other", e.settle(st), time.Time{})
	e.allowed("b", b.take(1))
}

func testPauseOrder(e *env) {
	b := e.bucket("k", rolling(10, time.Hour))
	batch := func(steps ...store.Settlement) {
		e.Helper()
		out := make([]store.Outcome, len(steps))
		for i := range steps {
			steps[i].Buckets = b.costs()
		}
		if err := e.s.Settle(e.ctx(), steps, out); err != nil {
			e.Fatalf("Settle: %v", err)
		}
		for i := range out {
			if out[i].Err != nil {
				e.Errorf("%v: %v", steps[i].Op, out[i].Err)
			}
		}
	}
	long := b.pause(time.Hour, "long")
	short := e.now().Add(time.Minute)
	batch(store.Settlement{Op: store.OpUnpause, At: long},
		store.Settlement{Op: store.OpPause, At: short, Reason: "short"})
	b.wantPause(short, "short")
	batch(store.Settlement{Op: store.OpPause, At: long, Reason: "long"},
		store.Settlement{Op: store.OpUnpause, At: long})
	b.wantPause(time.Time{}, "")
	batch(store.Settlement{Op: store.OpPause, At: long}, store.Settlement{Op: store.OpUnpause, At: long},
		store.Settlement{Op: store.OpPause, At: long, Reason: "again"})
	b.wantPause(long, "again")
}

func testPauseElsewhere(e *env) {
	b := e.bucket("k", rolling(100, time.Hour), slots(5))
	other := b
	if e.h.Second != nil {
		second := *e
		second.s = e.h.Second(e.T, e.s)
		other = &bucket{e: &second, key: b.key, plan: b.plan}
	}
	e.allowed("here", b.take(1))
	e.allowed("there", other.take(1))
	for _, by := range [][2]*bucket{{b, other}, {other, b}, {b, b}, {other, other}} {
		until := by[0].pause(time.Hour, "a typo")
		for _, at := range []*bucket{b, other} {
			e.wantPaused("paused", at.take(1), time.Hour)
			at.wantPause(until, "a typo")
		}
		e.wantLeft("the end", by[1].unpause(until), time.Time{})
		for _, at := range []*bucket{other, b} {
			e.allowed("afterwards", at.take(1))
			e.allowed("afterwards, held", at.hold("id", time.Minute, 1, 1))
			at.cancel("id")
		}
		later := by[1].pause(time.Minute, "later")
		e.wantLeft("the end of the first, late", by[0].unpause(until), later)
		e.wantPaused("paused again", b.take(1), time.Minute)
		e.wantLeft("the end", by[0].unpause(later), time.Time{})
	}
}

func testUnpauseLease(e *env) {
	b := e.bucket("k", rolling(10, time.Hour))
	e.allowed("lease", b.lease("lease", time.Minute, 3))
	until := b.pause(time.Hour, "")
	if o := b.renew("lease"); !o.Kept {
		e.Errorf("a lease of a paused bucket: %+v; want it kept", o)
	}
	b.unpause(until)
	if o := b.renew("lease"); o.Gone || o.Kept || !o.End.Equal(e.now().Add(time.Hour)) {
		e.Errorf("a lease of a bucket that is not paused any more: %+v; want it renewed for an hour", o)
	}
}

func testPauseMany(e *env) {
	plan := e.plan(rolling(10, time.Hour))
	a, b, c := e.of("a", plan), e.of("b", plan), e.of("c", plan)
	e.settle(store.Settlement{Op: store.OpPause, Hold: time.Minute, Buckets: []store.BucketCost{a.cost(), b.cost()}})
	for _, p := range []*bucket{a, b} {
		e.wantPaused(p.key.Name, p.take(1), time.Minute)
	}
	e.wantPaused("with another", e.take(store.Take{Buckets: []store.BucketCost{b.cost(1), c.cost(1)}}), time.Minute)
	c.wantUsed("all or nothing", 0)
}

func testPauseOthers(e *env) {
	b := e.bucket("k", rolling(10, time.Hour))
	e.allowed("hold", b.hold("hold", time.Minute, 2))
	e.allowed("lease", b.lease("lease", time.Minute, 3))
	e.allowed("to be cancelled", b.hold("other", time.Minute, 4))
	ends := e.now().Add(time.Minute)
	b.pause(time.Hour, "")
	if d := b.hold("hold", time.Minute, 2); !d.Allowed || !d.Replayed {
		e.Errorf("a take that is open: allowed %v, replayed %v; want its answer again", d.Allowed, d.Replayed)
	}
	e.wantPaused("a new take", b.hold("new", time.Minute, 1), time.Hour)
	if o := b.renew("hold"); o.Gone || o.Kept || !o.End.Equal(e.now().Add(time.Hour)) {
		e.Errorf("a hold: %+v; want it renewed for an hour", o)
	}
	if o := b.renew("lease"); o.Gone || !o.Kept || !o.End.Equal(ends) {
		e.Errorf("a lease: %+v; want it kept until %v", o, ends)
	}
	if !b.cancel("other") || !b.settle("hold", 1) {
		e.Error("a pause stopped a settlement")
	}
	b.wantUsed("one settled, one leased", 4)
	e.advance(time.Minute)
	if b.settle("lease", 1) {
		e.Error("the lease ended, and can be settled")
	}
}

func testPauseReset(e *env) {
	s, implemented := optional[store.Resetter](e)
	if !implemented {
		return
	}
	b := e.bucket("k", rolling(10, time.Hour))
	b.pause(time.Hour, "")
	if err := s.Reset(e.ctx(), []store.Key{b.key}); err != nil {
		e.Fatal(err)
	}
	b.wantPause(time.Time{}, "")
	e.allowed("after a reset", b.take(1))
}
