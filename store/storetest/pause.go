package storetest

import (
	"time"

	"github.com/drawgate/drawgate"
)

var pauseCases = []testCase{
	{"pause", "a paused bucket refuses every take until the instant, by its reason, and decides as before from then", testPause, false},
	{"the longest pause counts", "a shorter pause, or one that would have ended already, changes nothing", testPauseLongest, false},
	{"a pause of several buckets", "each is paused, and a take of one of them together with another is refused as a whole", testPauseMany, false},
	{"a pause stops takes only", "settlements and renewals go on, answers are repeated; a lease is kept as it is, and not renewed", testPauseOthers, false},
	{"reset ends a pause", "if the store can reset buckets", testPauseReset, false},
}

// pause pauses a bucket and returns when its pause ends.
func (b *bucket) pause(d time.Duration, reason string) time.Time {
	b.e.Helper()
	return b.e.settle(drawgate.Settlement{Op: drawgate.OpPause, Hold: d, Reason: reason, Buckets: b.costs()}).End
}

// wantPause checks what a look at the bucket says of its pause.
func (b *bucket) wantPause(until time.Time, reason string) {
	b.e.Helper()
	if got := b.peek().Pause; !got.Until.Equal(until) || got.Reason != reason {
		b.e.Errorf("paused until %v: %q, want %v: %q", got.Until, got.Reason, until, reason)
	}
}

// wantPaused checks that a take is refused because of a pause, and for how long.
func (e *env) wantPaused(what string, d drawgate.Decision, wait time.Duration) {
	e.Helper()
	if ok(e, d) || d.Reason != drawgate.Paused || d.RetryAfter != wait {
		e.Errorf("%s: allowed %v, reason %v, retry-after %v; want paused for %v", what, d.Allowed, d.Reason, d.RetryAfter, wait)
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
	past := drawgate.Settlement{Op: drawgate.OpPause, At: e.now(), Reason: "late", Buckets: b.costs()}
	if got := e.settle(past).End; !got.IsZero() {
		e.Errorf("a pause that is over: paused until %v, want the zero time", got)
	}
	e.allowed("after a pause that is over", b.take(1))
	until := b.pause(time.Minute, "long")
	if got := b.pause(time.Second, "short"); !got.Equal(until) {
		e.Errorf("a shorter pause: paused until %v, want %v", got, until)
	}
	if got := e.settle(past).End; !got.Equal(until) {
		e.Errorf("a pause that is over: paused until %v, want %v", got, until)
	}
	b.wantPause(until, "long")
	b.wantPause(b.pause(time.Hour, "longer"), "longer")
	e.advance(time.Hour - tick)
	e.wantPaused("the longest", b.take(1), tick)
}

func testPauseMany(e *env) {
	plan := e.plan(rolling(10, time.Hour))
	a, b, c := e.of("a", plan), e.of("b", plan), e.of("c", plan)
	e.settle(drawgate.Settlement{Op: drawgate.OpPause, Hold: time.Minute, Buckets: []drawgate.BucketCost{a.cost(), b.cost()}})
	for _, p := range []*bucket{a, b} {
		e.wantPaused(p.key.Name, p.take(1), time.Minute)
	}
	e.wantPaused("with another", e.take(drawgate.Take{Buckets: []drawgate.BucketCost{b.cost(1), c.cost(1)}}), time.Minute)
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
	s, implemented := e.s.(drawgate.Resetter)
	if !implemented {
		return
	}
	b := e.bucket("k", rolling(10, time.Hour))
	b.pause(time.Hour, "")
	if err := s.Reset(e.ctx(), []drawgate.Key{b.key}); err != nil {
		e.Fatal(err)
	}
	b.wantPause(time.Time{}, "")
	e.allowed("after a reset", b.take(1))
}
