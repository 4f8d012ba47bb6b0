package storetest

import (
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

var historyCases = []testCase{
	{
		"histories", "each bucket's history says what a call wrote, and has a list only if the caller knew another mark",
		testHistoryOfTakes, false,
	},
	{
		"instants of writes", "increase with each write; what writes nothing moves none", testInstantsOfWrites,
		false,
	},
	{
		"histories of refusals",
		"say as much as those of takes, and nothing is written",
		testHistoryOfRefusals, false,
	},
	{
		"reset forgives",
		"a reset is a write that begins an epoch, and the history says when it was",
		testResetForgives, false,
	},
	{
		"conditions of recoveries",
		"nothing is recovered if the bucket has another mark than was known",
		testUnmet, false,
	},
	{
		"recovered once",
		"a charge of what was lost counts once per grant, however often it is sent",
		testRecoveredOnce, false,
	},
	{
		"parts that are lost",
		"those that are over, or that a reset forgave, are not charged; those booked ahead count from then",
		testLostParts, false,
	},
	{
		"reopened",
		"a lost reservation is opened again over the limit and in a pause, until the same end, once",
		testReopened, false,
	},
	{
		"reopened and over",
		"a charge under the grant of a reservation that was opened again counts instead of it, if that is not over",
		testReopenedOver, false,
	},
	{
		"gone per bucket",
		"a settlement says of each bucket whether it has the reservation",
		testGonePerBucket, false,
	},
	{
		"resumed",
		"the history says when a pause was set and ended, and what is late does not set one again",
		testResumed, false,
	},
}

// keepsHistory reports whether the store keeps histories.
func keepsHistory(e *env) bool {
	e.Helper()
	s, implemented := optional[store.Historian](e)
	if implemented && !s.KeepsHistory() {
		e.Log("the store keeps no histories now: there was nothing to check")
	}
	return implemented && s.KeepsHistory()
}

// history returns the bucket's history, to one who knows nothing.
func (b *bucket) history() store.History {
	b.e.Helper()
	return b.toldTo(store.Known{})
}

func (b *bucket) toldTo(known store.Known) store.History {
	b.e.Helper()
	out := make([]store.State, 1)
	if err := b.e.s.(store.Historian).PeekKnown(b.e.ctx(), b.costs(), 0, []store.Known{known}, out); err != nil {
		b.e.Fatal(err)
	}
	return one(b.e, out[0].Histories, out[0].Fail)
}

// one returns the only history.
func one(e *env, hs []store.History, err error) store.History {
	e.Helper()
	if err != nil || len(hs) != 1 {
		e.Fatalf("%d histories, %v; want one", len(hs), err)
	}
	return hs[0]
}

// takeKnown takes, and says what is known.
func (b *bucket) takeKnown(known store.Known, n ...int64) (store.Verdict, store.History) {
	b.e.Helper()
	d := b.e.take(store.Take{Buckets: b.costs(n...), Known: []store.Known{known}})
	return d, one(b.e, d.Histories, d.Fail)
}

// asks returns what [bucket.granted] asks for, for an hour.
func (b *bucket) asks(id string, grant store.Grant, n ...int64) store.Take {
	return store.Take{ID: id, Grant: grant, Hold: time.Hour, Buckets: b.costs(n...)}
}

// recover charges what was lost.
func (b *bucket) recover(known store.Known, grant store.Grant, parts ...store.Lost) store.History {
	b.e.Helper()
	o := b.e.settle(store.Settlement{
		Op: store.OpCharge, At: b.e.now(), Buckets: b.costs(),
		Known: []store.Known{known}, Recovery: &store.Recovery{Grant: grant, Parts: parts},
	})
	return one(b.e, o.Histories, o.Err)
}

// reopen opens a lost reservation again.
func (b *bucket) reopen(known store.Known, t store.Take, end time.Time) (store.Verdict, store.History) {
	b.e.Helper()
	t.Known, t.Recovery = []store.Known{known}, &store.Recovery{End: end.UnixMicro()}
	d := b.e.take(t)
	return d, one(b.e, d.Histories, d.Fail)
}

func testHistoryOfTakes(e *env) {
	if !keepsHistory(e) {
		return
	}
	for name, limits := range map[string][]drawgate.Limit{
		"bucket": {leaky(100, time.Hour, 0)}, "two": {rolling(100, time.Hour), calendar(100, drawgate.Month, "UTC")},
		"slots": {rolling(100, time.Hour), slots(5)},
	} {
		b := e.bucket(name, limits...)
		none := b.history()
		if none.Mark != store.NoRecord || len(none.Epochs) > 0 || none.Last != 0 || none.Wrote {
			e.Errorf("%s: unused: %+v", name, none)
		}
		if again := b.toldTo(none.Known); again.Listed || again.Known != none.Known {
			e.Errorf("%s: unused, and known: %+v", name, again)
		}
		d, first := b.takeKnown(none.Known, 1)
		if !d.Allowed || !first.Wrote || !first.Listed || len(first.Epochs) != 1 || first.Last != d.Now ||
			first.Mark != first.Epochs[0].Mark || first.Mark == none.Mark {
			e.Errorf("%s: the first take: %v, %+v", name, d.Allowed, first)
		}
		d, next := b.takeKnown(first.Known, 1)
		if !next.Wrote || next.Listed || next.Known != first.Known || next.Last != d.Now {
			e.Errorf("%s: the next take: %+v", name, next)
		}
		if d, other := b.takeKnown(store.Known{}, 1); !other.Wrote || !other.Listed || other.Known != first.Known ||
			len(other.Epochs) != 1 || !d.Allowed {
			e.Errorf("%s: a take of one who knows nothing: %+v", name, other)
		}
		if d := b.take(1); d.Histories != nil {
			e.Errorf("%s: histories without a question: %+v", name, d.Histories)
		}
	}
}

func testInstantsOfWrites(e *env) {
	if !keepsHistory(e) {
		return
	}
	b := e.bucket("k", rolling(1000, time.Hour), slots(10))
	var known store.Known
	last := int64(0)
	wrote := func(what string, h store.History) {
		e.Helper()
		if !h.Wrote || h.Last <= last {
			e.Errorf("%s at %d, after %d: %+v", what, h.Last, last, h)
		}
		last, known = h.Last, h.Known
		e.advance(tick)
	}
	settle := func(st store.Settlement) store.History {
		e.Helper()
		if st.Known = []store.Known{known}; st.Buckets == nil {
			st.Buckets = b.costs()
		}
		o := e.settle(st)
		return one(e, o.Histories, o.Err)
	}
	for range 3 {
		_, h := b.takeKnown(known, 1)
		wrote("a take", h)
		t := b.asks("id", 1, 1, 1)
		t.Known = []store.Known{known}
		d := e.take(t)
		wrote("a reservation", one(e, d.Histories, d.Fail))
		d = e.take(t)
		if h := one(e, d.Histories, d.Fail); !d.Replayed || h.Last < last || h.Wrote != (h.Last > last) {
			e.Errorf("a replay: %+v", h)
		}
		wrote("a renewal", settle(store.Settlement{Op: store.OpRenew, ID: "id", Grant: t.Grant, Hold: 2 * time.Hour}))
		wrote("a charge", settle(store.Settlement{Op: store.OpCharge, At: e.now(), Buckets: b.costs(1)}))
		wrote("a cancellation", settle(store.Settlement{Op: store.OpCancel, ID: "id", Grant: t.Grant}))
		if h := b.history(); h.Last != last || h.Wrote {
			e.Errorf("a look: %+v, want %d", h, last)
		}
	}
}

func testHistoryOfRefusals(e *env) {
	if !keepsHistory(e) {
		return
	}
	for name, limit := range map[string]drawgate.Limit{
		"bucket": leaky(2, time.Hour, 0), "rolling": rolling(2, time.Hour),
	} {
		b := e.bucket(name, limit)
		_, first := b.takeKnown(store.Known{}, 2)
		d, h := b.takeKnown(first.Known, 1)
		if d.Allowed || h.Wrote || h.Listed || h.Known != first.Known || h.Last != first.Last {
			e.Errorf("%s: refused: %+v", name, h)
		}
		d, h = b.takeKnown(store.Known{}, 1)
		if d.Allowed || h.Wrote || !h.Listed || h.Known != first.Known || h.Last != first.Last || len(h.Epochs) != 1 {
			e.Errorf("%s: refused, to one who knows nothing: %+v", name, h)
		}
	}
}

func testResetForgives(e *env) {
	s, resets := e.s.(store.Resetter)
	if !keepsHistory(e) || !resets {
		return
	}
	b := e.bucket("k", rolling(10, time.Hour), slots(2))
	e.allowed("take", b.hold("id", time.Hour, 3, 1))
	before := b.history()
	e.advance(time.Second)
	if err := s.Reset(e.ctx(), []store.Key{b.key}); err != nil {
		e.Fatal(err)
	}
	b.wantUsed("reset", 0, 0)
	h := b.history()
	if h.Reset <= before.Last || h.Last != h.Reset || len(h.Epochs) != 2 || h.Epochs[0] != before.Epochs[0] ||
		h.Epochs[1].Start != before.Last || h.Epochs[1].Mark == before.Mark || h.Epochs[1].Until <= h.Last {
		e.Errorf("before: %+v\nafter:  %+v", before, h)
	}
	if h := b.recover(before.Known, 1, lost(e, 1, 0, time.Hour)); !h.Unmet {
		e.Errorf("what was judged before the reset was recovered: %+v", h)
	}
	e.advance(time.Second)
	if err := s.Reset(e.ctx(), []store.Key{b.key}); err != nil {
		e.Fatal(err)
	}
	if again := b.history(); again.Reset <= h.Reset || len(again.Epochs) != 3 {
		e.Errorf("reset again: %+v", again)
	}
}

// lost returns n units of the first limit that counted, or will, from an instant on, for so long
// from now.
func lost(e *env, n int64, from, left time.Duration) store.Lost {
	e.Helper()
	now := e.now()
	return store.Lost{N: store.Amounts{n}, From: now.Add(from).UnixMicro(), Until: now.Add(left).UnixMicro()}
}

func testUnmet(e *env) {
	if !keepsHistory(e) {
		return
	}
	b := e.bucket("k", rolling(10, time.Hour), slots(5))
	none := b.history().Known
	_, first := b.takeKnown(none, 1)
	wrong := first.Known
	wrong.Mark.Clock--
	for what, known := range map[string]store.Known{"nothing": {}, "no record": none, "another mark": wrong} {
		h := b.recover(known, 5, lost(e, 3, 0, time.Hour))
		if !h.Unmet || !h.Listed || h.Wrote || h.Known != first.Known {
			e.Errorf("%s is known, a charge: %+v", what, h)
		}
		d, h := b.reopen(known, b.asks("id", 1, 1, 1), e.now().Add(time.Hour))
		if d.Allowed || !h.Unmet || !h.Listed || h.Wrote || h.Known != first.Known {
			e.Errorf("%s is known, a reopening: %+v", what, h)
		}
	}
	b.wantUsed("nothing was recovered", 1, 0)
	if h := b.recover(first.Known, 5, lost(e, 3, 0, time.Hour)); h.Unmet || !h.Wrote {
		e.Errorf("the mark is known: %+v", h)
	}
	b.wantUsed("recovered", 4, 0)
	other := e.bucket("other", rolling(10, time.Hour))
	known := other.history().Known
	if h := other.recover(known, 5, lost(e, 3, 0, time.Hour)); h.Unmet || !h.Wrote || len(h.Epochs) != 1 {
		e.Errorf("there is no record, as is known: %+v", h)
	}
	other.wantUsed("recovered", 3)
}

func testRecoveredOnce(e *env) {
	if !keepsHistory(e) {
		return
	}
	b := e.bucket("k", rolling(10, time.Hour), leaky(20, 20*time.Hour, 0), calendar(100, drawgate.Month, "UTC"))
	_, first := b.takeKnown(store.Known{}, 1, 1, 1)
	part := lost(e, 12, -time.Minute, time.Hour)
	part.N = store.Amounts{12, 3, 5}
	for i := range 3 {
		h := b.recover(first.Known, 7, part)
		if h.Unmet || h.Wrote != (i == 0) {
			e.Errorf("sending %d: %+v", i, h)
		}
		b.wantUsed("recovered", 13, 4, 6)
		e.advance(time.Second)
	}
	if h := b.recover(first.Known, 8, part); !h.Wrote {
		e.Errorf("under another grant: %+v", h)
	}
	b.wantUsed("recovered under another grant", 25, 7, 11)
}

func testLostParts(e *env) {
	if !keepsHistory(e) {
		return
	}
	b := e.bucket("k", rolling(100, time.Hour))
	_, first := b.takeKnown(store.Known{}, 1)
	if h := b.recover(first.Known, 7, lost(e, 5, -time.Hour, 0)); h.Wrote || h.Unmet {
		e.Errorf("what is over: %+v", h)
	}
	b.wantUsed("what is over was charged", 1)
	b.recover(first.Known, 7, lost(e, 5, -time.Hour, 0), lost(e, 7, -time.Minute, time.Second))
	b.wantUsed("one part is over", 8)
	e.advance(time.Minute)
	b.recover(first.Known, 8, lost(e, 20, time.Minute, 2*time.Hour))
	e.advance(time.Hour)
	b.wantUsed("what was booked ahead", 20)
	e.advance(2 * time.Minute)
	b.wantUsed("what was booked ahead, later", 0)
	s, resets := e.s.(store.Resetter)
	if !resets {
		return
	}
	e.allowed("take", b.take(1))
	e.advance(time.Second)
	if err := s.Reset(e.ctx(), []store.Key{b.key}); err != nil {
		e.Fatal(err)
	}
	if h := b.recover(b.history().Known, 9, lost(e, 5, -time.Second, time.Hour)); h.Wrote || h.Unmet {
		e.Errorf("what a reset forgave: %+v", h)
	}
	b.wantUsed("what a reset forgave was charged", 0)
}

func testReopened(e *env) {
	if !keepsHistory(e) {
		return
	}
	b := e.bucket("k", rolling(3, time.Hour), slots(1))
	_, first := b.takeKnown(store.Known{}, 3)
	e.allowed("another one has the slot", b.hold("other", time.Hour, 0, 1))
	e.settle(store.Settlement{Op: store.OpPause, Hold: time.Hour, Buckets: b.costs()})
	end := e.now().Add(time.Minute)
	t := b.asks("id", 9, 2, 1)
	d, h := b.reopen(first.Known, t, end)
	if !d.Allowed || d.Replayed || !d.HoldEnd().Equal(end) || !h.Wrote || h.Unmet {
		e.Errorf("opened again: %+v, %+v", d, h)
	}
	b.wantUsed("opened again", 5, 2)
	d, h = b.reopen(first.Known, t, end)
	if !d.Allowed || !d.Replayed || !d.HoldEnd().Equal(end) || h.Wrote || h.Unmet {
		e.Errorf("once more: %+v, %+v", d, h)
	}
	b.wantUsed("once more", 5, 2)
	if !b.end(store.OpSettle, "id", 9, 1, 1) {
		e.Error("it is gone")
	}
	b.wantUsed("settled", 4, 1)
	d, h = b.reopen(first.Known, t, end)
	if !d.Allowed || !d.Replayed || h.Wrote || h.Unmet {
		e.Errorf("after the settlement: %+v, %+v", d, h)
	}
	b.wantUsed("after the settlement", 4, 1)
}

func testReopenedOver(e *env) {
	if !keepsHistory(e) {
		return
	}
	b := e.bucket("k", rolling(10, time.Hour), slots(5))
	_, first := b.takeKnown(store.Known{}, 1)
	t := b.asks("id", 9, 2, 1)
	b.reopen(first.Known, t, e.now().Add(time.Minute))
	b.wantUsed("opened again", 3, 1)
	if h := b.recover(first.Known, t.Grant, lost(e, 4, 0, time.Hour)); !h.Wrote {
		e.Errorf("a charge while it is open: %+v", h)
	}
	b.wantUsed("charged while it is open", 5, 0)
	b.recover(first.Known, t.Grant, lost(e, 4, 0, time.Hour))
	b.wantUsed("charged again", 5, 0)

	t = b.asks("second", 99, 2, 1)
	b.reopen(first.Known, t, e.now().Add(time.Minute))
	e.advance(2 * time.Minute) // nobody has noticed that it is over
	if h := b.recover(first.Known, t.Grant, lost(e, 4, 0, time.Hour)); h.Unmet {
		e.Errorf("a charge when it is over: %+v", h)
	}
	b.wantUsed("charged when it is over", 7, 0)

	t = b.asks("third", 100, 2, 1)
	b.reopen(first.Known, t, e.now().Add(time.Minute))
	if h := b.recover(first.Known, t.Grant, lost(e, 0, 0, time.Minute)); !h.Wrote {
		e.Errorf("a charge of nothing: %+v", h)
	}
	b.wantUsed("cancelled by a charge of nothing", 7, 0)
	b.reopen(first.Known, t, e.now().Add(time.Minute))
	b.wantUsed("opened again too late", 7, 0)
}

func testGonePerBucket(e *env) {
	if !keepsHistory(e) {
		return
	}
	a, b := e.bucket("a", rolling(10, time.Hour)), e.bucket("b", rolling(10, time.Hour))
	t := a.asks("id", 9, 2)
	t.Buckets = append(t.Buckets, b.costs(3)...)
	t.Known = make([]store.Known, 2)
	d := e.take(t)
	if !d.Allowed || len(d.Histories) != 2 || !d.Histories[0].Wrote || !d.Histories[1].Wrote {
		e.Fatalf("a take of two: %+v", d)
	}
	known := []store.Known{d.Histories[0].Known, d.Histories[1].Known}
	if o := e.settle(store.Settlement{Op: store.OpCancel, ID: "id", Grant: t.Grant, Buckets: b.costs()}); o.Gone {
		e.Fatal("it is gone")
	}
	for _, op := range []store.Op{store.OpRenew, store.OpSettle, store.OpSettle} {
		o := e.settle(store.Settlement{
			Op: op, ID: "id", Grant: t.Grant, Buckets: t.Buckets, Known: known, Hold: time.Hour,
		})
		if o.Err != nil || len(o.Histories) != 2 || o.Histories[0].Gone != o.Gone || !o.Histories[1].Gone ||
			o.Histories[0].Wrote == o.Gone || o.Histories[1].Wrote {
			e.Errorf("%v: %+v", op, o)
		}
	}
}

func testResumed(e *env) {
	if !keepsHistory(e) {
		return
	}
	b := e.bucket("k", rolling(10, time.Hour))
	pause := func(st store.Settlement) store.Outcome {
		e.Helper()
		st.Buckets, st.Known = b.costs(), []store.Known{b.history().Known}
		o := e.settle(st)
		if o.Err != nil {
			e.Error(o.Err)
		}
		e.advance(time.Second)
		return o
	}
	set := e.now()
	end := pause(store.Settlement{Op: store.OpPause, Hold: time.Hour}).End
	if h := b.history(); h.Paused < set.UnixMicro() || h.Paused > h.Last || h.Resumed != 0 {
		e.Errorf("paused at %d: %+v", set.UnixMicro(), h)
	}
	pause(store.Settlement{Op: store.OpUnpause, At: end})
	h := b.history()
	if h.Paused != 0 || h.Resumed <= set.UnixMicro() {
		e.Errorf("resumed: %+v", h)
	}
	pause(store.Settlement{Op: store.OpPause, At: end, Recovery: &store.Recovery{End: set.UnixMicro()}})
	if st := b.peek(); !st.Pause.Until.IsZero() {
		e.Errorf("a pause that was ended was set again, until %v", st.Pause.Until)
	}
	pause(store.Settlement{Op: store.OpPause, At: end, Recovery: &store.Recovery{End: h.Resumed + 1}})
	if again := b.history(); again.Paused != h.Resumed+1 || !b.peek().Pause.Until.Equal(end) {
		e.Errorf("a pause that was lost was not set again: %+v", again)
	}
	pause(store.Settlement{Op: store.OpUnpause, At: end, Recovery: &store.Recovery{End: h.Resumed + 2}})
	pause(store.Settlement{Op: store.OpUnpause, At: end, Recovery: &store.Recovery{End: h.Resumed + 3}})
	if again := b.history(); again.Resumed != h.Resumed+3 {
		e.Errorf("an end that was lost, of a pause that was, too: %+v", again)
	}
}
