package ledger_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// These are cases that the simulation found, or finds only seldom.

func newLedger() *ledger.Ledger {
	return ledger.New(ledger.Options{Instances: one, Start: drawgate.StartFull, MaxEntries: 10, MaxHeld: 100})
}

// slot is a take of one slot for a second.
func slot(p *store.Plan, id string, g store.Grant) *store.Take {
	return &store.Take{ID: id, Grant: g, Hold: time.Second, Buckets: bucket(p, 0, 1)}
}

func at(us int64) ledger.Now { return ledger.Now{Own: us + 1, Store: 1_000*second + us} }

// TestARenewalInTheLastInstantKeepsTheSlot: the store renewed a reservation just before the hold
// ended, and its answer arrives after that.
func TestARenewalInTheLastInstantKeepsTheSlot(t *testing.T) {
	t.Parallel()
	l, m, p := newLedger(), newModel(), plan(1, 1)
	var r ledger.Request
	r.Init(slot(p, "a", 1))
	l.Begin(at(0), &r)
	d := m.take(slot(p, "a", 1), at(0).Store)
	l.Answered(at(0), &r, &d)
	st := store.Settlement{Op: store.OpRenew, ID: "a", Grant: 1, Hold: time.Minute, Buckets: bucket(p, 0, 0)}
	o := m.settle(&st, at(second-1).Store)
	l.Settled(at(second+1), at(second).Store, &st, &o)
	var other ledger.Request
	other.Init(slot(p, "b", 2))
	if d := l.Decide(at(2*second), &other); d.Allowed {
		t.Error("a second slot of one is given here")
	}
}

// TestACancellationOnItsWayDoesNotEndWhatIsGivenAgain: while a cancellation may still arrive, its
// grant is neither asked for nor given here.
func TestACancellationOnItsWayDoesNotEndWhatIsGivenAgain(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		l, p := newLedger(), plan(1, 1)
		var r ledger.Request
		r.Init(slot(p, "a", 1))
		l.Begin(at(0), &r)
		l.Unanswered(at(0), &r)
		l.Abandon(at(0), &r)
		d := l.Next(at(0))
		if d == nil || len(d.Settlements) != 1 || d.Settlements[0].Op != store.OpCancel || d.Settlements[0].Grant != 1 {
			t.Fatalf("%+v is to be delivered, want a cancellation", d)
		}
		if answered {
			l.Delivered(at(1), d, []store.Outcome{{}}, &ledger.Report{})
		} else {
			l.Failed(at(1), d)
		}
		for _, c := range []struct {
			us   int64
			free bool
		}{{second, false}, {store.SendLife.Microseconds() + 2, true}} {
			var again ledger.Request
			again.Init(slot(p, "a", 1))
			if blocked := l.Begin(at(c.us), &again); blocked == c.free {
				t.Errorf("answered %v: after %d µs the store may be asked: %v, want %v", answered, c.us, !blocked,
					c.free)
			}
			if d := l.Decide(at(c.us), &again); d.Allowed != c.free {
				t.Errorf("answered %v: after %d µs it is given here: %v, want %v", answered, c.us, d.Allowed, c.free)
			}
		}
	}
}

// TestUnitsThatTheStoreIsAskedForCount: local decisions cannot use them meanwhile.
func TestUnitsThatTheStoreIsAskedForCount(t *testing.T) {
	t.Parallel()
	l, p := newLedger(), plan(1, 1)
	asked, here := &store.Take{Buckets: bucket(p, 1, 0)}, &store.Take{Buckets: bucket(p, 1, 0)}
	var r, q ledger.Request
	r.Init(asked)
	q.Init(here)
	l.Begin(at(0), &r)
	if d := l.Decide(at(1), &q); d.Allowed {
		t.Error("the one unit is given twice")
	}
	l.Abandon(at(2), &r)
	q = ledger.Request{}
	q.Init(here)
	if d := l.Decide(at(3), &q); !d.Allowed {
		t.Error("the unit that the store did not give is refused")
	}
}

// TestAnotherNumberOfInstances: what was used of a bucket limit stays used when the number of
// instances changes, and drains no faster than the slower of the two rates.
func TestAnotherNumberOfInstances(t *testing.T) {
	t.Parallel()
	pl, err := drawgate.Policy{Name: "p", Fallback: drawgate.FallbackShare, Limits: []drawgate.Limit{
		{Name: "b", Kind: drawgate.Bucket, Amount: 60, Window: time.Minute},
	}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	n, mayShare := 1, true
	count := func() (int, bool) { return n, mayShare }
	l := ledger.New(ledger.Options{Instances: count, MaxEntries: 10, MaxHeld: 10, Start: drawgate.StartFull})
	take := func(us, units int64) bool {
		var r ledger.Request
		r.Init(&store.Take{Buckets: bucket(pl.Plan, units, 0)})
		d := l.Decide(at(us), &r)
		return d.Allowed
	}
	for i, c := range []struct {
		us, units int64
		n         int
		mayShare  bool
		want      bool
	}{
		{0, 60, 1, true, true},
		{20 * second, 1, 3, true, false}, // 20 of 60 drained, or 7 of them: 20 may be used in all
		{60 * second, 20, 3, true, false},
		{200 * second, 20, 3, false, false}, // unused, but this process may not admit its share
		{200 * second, 20, 3, true, true},
		{230 * second, 50, 1, true, true}, // 10 are left of 20
		{230 * second, 1, 1, true, false},
		{231 * second, 1, 1, true, true},
	} {
		if n, mayShare = c.n, c.mayShare; take(c.us, c.units) != c.want {
			t.Errorf("step %d: %d units after %d s with %d instances: allowed %v, want %v", i, c.units, c.us/second,
				c.n, !c.want, c.want)
		}
	}
}

// TestARenewalThatComesTooLateIsReplayed: a reservation was given and renewed here, and the store's
// own hold ends before it receives the renewal.
func TestARenewalThatComesTooLateIsReplayed(t *testing.T) {
	t.Parallel()
	l, m, p := newLedger(), newModel(), plan(1, 1)
	var r ledger.Request
	r.Init(slot(p, "a", 1))
	if d := l.Decide(at(0), &r); !d.Allowed {
		t.Fatal("refused")
	}
	renew := store.Settlement{Op: store.OpRenew, ID: "a", Grant: 1, Hold: time.Minute, Buckets: bucket(p, 0, 0)}
	if o, mine := l.Settle(at(1), &renew); !mine || o.Gone {
		t.Fatalf("%+v, mine %v", o, mine)
	}
	deliver := func(sent, arrives int64) {
		t.Helper()
		d := l.Next(at(sent))
		if d == nil {
			t.Fatalf("nothing is delivered after %d µs", sent)
		}
		out, got := make([]store.Outcome, len(d.Settlements)), make([]store.Verdict, len(d.Takes))
		for i := range out {
			out[i] = m.settle(&d.Settlements[i], at(arrives).Store)
		}
		l.Delivered(at(arrives), d, out, &ledger.Report{})
		for i := range got {
			got[i] = m.take(&d.Takes[i], at(arrives).Store)
		}
		l.Replayed(at(arrives), d, got, &ledger.Report{})
	}
	deliver(2, 3)                   // the reservation, for the second of its hold
	deliver(4, 2*second)            // its renewal, when that is over
	deliver(2*second+1, 2*second+2) // the reservation again
	deliver(2*second+3, 2*second+4) // and its renewal
	if _, slots := m.used(at(30 * second).Store); slots != 1 {
		t.Errorf("%d slots are held in the store, want the one that is promised for a minute", slots)
	}
}

// TestARenewalIsDeliveredOnce: a store whose clock is a little behind what this process thinks
// answers with an end that is a little earlier than what was asked for.
func TestARenewalIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	l, m, p := newLedger(), newModel(), plan(1, 1)
	const behind = 1000 // µs
	var r ledger.Request
	r.Init(slot(p, "a", 1))
	if d := l.Decide(at(0), &r); !d.Allowed {
		t.Fatal("refused")
	}
	renew := store.Settlement{Op: store.OpRenew, ID: "a", Grant: 1, Hold: time.Minute, Buckets: bucket(p, 0, 0)}
	if o, mine := l.Settle(at(1), &renew); !mine || o.Gone {
		t.Fatalf("%+v, mine %v", o, mine)
	}
	renewals := 0
	for us := int64(2); us < 20; us += 2 {
		d := l.Next(at(us))
		if d == nil {
			break
		}
		renewals += len(d.Settlements)
		out, got := make([]store.Outcome, len(d.Settlements)), make([]store.Verdict, len(d.Takes))
		for i := range out {
			out[i] = m.settle(&d.Settlements[i], at(us-behind).Store)
		}
		l.Delivered(at(us+1), d, out, &ledger.Report{})
		for i := range got {
			got[i] = m.take(&d.Takes[i], at(us-behind).Store)
		}
		l.Replayed(at(us+1), d, got, &ledger.Report{})
	}
	if renewals != 1 {
		t.Errorf("the renewal was delivered %d times", renewals)
	}
}

// TestASlotWhoseIDACrashedProcessHasOpen: a process crashed with an open reservation, and another
// was given one with the same ID during an outage. The store holds a slot for each of them, and
// knows the second one's settlement.
//
// req: A10
func TestASlotWhoseIDACrashedProcessHasOpen(t *testing.T) {
	t.Parallel()
	l, m, p := newLedger(), newModel(), plan(10, 1)
	crashed := slot(p, "a", 1)
	crashed.Hold = 20 * time.Second
	if d := m.take(crashed, at(0).Store); !d.Allowed {
		t.Fatal("refused")
	}
	given := &store.Take{ID: "a", Grant: 2, Hold: time.Hour, Buckets: bucket(p, 3, 1)}
	var r ledger.Request
	r.Init(given)
	if d := l.Decide(at(1), &r); !d.Allowed {
		t.Fatal("refused here")
	}
	us := int64(2)
	deliver := func() {
		t.Helper()
		for wait := l.Wait(at(us)); wait >= 0; wait = l.Wait(at(us)) {
			us += wait
			d := l.Next(at(us))
			if d == nil {
				continue
			}
			out, got := make([]store.Outcome, len(d.Settlements)), make([]store.Verdict, len(d.Takes))
			for i := range out {
				out[i] = m.settle(&d.Settlements[i], at(us).Store)
			}
			l.Delivered(at(us), d, out, &ledger.Report{})
			for i := range got {
				got[i] = m.take(&d.Takes[i], at(us).Store)
			}
			l.Replayed(at(us), d, got, &ledger.Report{})
		}
	}
	deliver()
	if us >= 20*second {
		t.Errorf("the bucket was decided here for %d s", us/second)
	}
	if units, slots := m.used(at(us).Store); units != 3 || slots != 2 {
		t.Errorf("%d units and %d slots are used while both are open, want 3 and 2", units, slots)
	}
	us = 30 * second
	if _, slots := m.used(at(us).Store); slots != 1 {
		t.Errorf("%d slots are held when the first one is over, want that of the second", slots)
	}
	again := l.SentTakes([]store.Take{*given})
	if d := m.take(&again[0], at(us).Store); !d.Allowed || !d.Replayed {
		t.Errorf("its take is answered %+v when it is sent again", d)
	}
	renew := store.Settlement{Op: store.OpRenew, ID: "a", Grant: 2, Hold: 2 * time.Hour, Buckets: bucket(p, 0, 0)}
	if _, mine := l.Settle(at(us), &renew); mine {
		t.Error("it is renewed here, although the store has it")
	}
	if o := m.settle(&l.SentSettlements([]store.Settlement{renew})[0], at(us).Store); o.Gone {
		t.Error("its renewal is gone")
	}
	if _, mine := l.Settle(at(us), &store.Settlement{
		Op: store.OpSettle, ID: "a", Grant: 2,
		Buckets: bucket(p, 1, 1),
	}); !mine {
		t.Error("its settlement is not kept")
	}
	deliver()
	if units, slots := m.used(at(us).Store); units != 1 || slots != 0 {
		t.Errorf("%d units and %d slots are used after the settlement with 1 unit, want 1 and 0", units, slots)
	}
}

// TestARepetitionThatMayComeLateIsCancelled: a take that the store granted was sent again and not
// answered, so it was answered here. If that message arrives after the settlement it opens the
// grant again, and nobody uses it.
func TestARepetitionThatMayComeLateIsCancelled(t *testing.T) {
	t.Parallel()
	l, m, p := newLedger(), newModel(), plan(1, 1)
	var r, again ledger.Request
	r.Init(slot(p, "a", 1))
	l.Begin(at(0), &r)
	d := m.take(slot(p, "a", 1), at(0).Store)
	l.Answered(at(0), &r, &d)
	again.Init(slot(p, "a", 1))
	l.Begin(at(1), &again)
	l.Unanswered(at(2), &again)
	if d := l.Decide(at(3), &again); !d.Allowed {
		t.Fatalf("the repetition is refused: %+v", d)
	}
	st := store.Settlement{Op: store.OpSettle, ID: "a", Grant: 1, Buckets: bucket(p, 0, 1)}
	if _, mine := l.Settle(at(4), &st); mine {
		t.Fatal("the store is not told of the settlement")
	}
	o := m.settle(&st, at(4).Store)
	l.Settled(at(4), at(4).Store, &st, &o)
	if d := l.Next(at(5)); d != nil {
		t.Errorf("%+v is delivered while the message may still come", d)
	}
	late := l.Next(at(2 + store.SendLife.Microseconds()))
	if late == nil || len(late.Settlements) != 1 || late.Settlements[0].Op != store.OpCancel ||
		late.Settlements[0].Grant != 1 {
		t.Errorf("%+v is delivered then, want a cancellation", late)
	}
}

// TestAnEndKeptHereFreesItsSlotHere: the store cannot be told that a reservation has ended, and its
// slot is free here at once.
func TestAnEndKeptHereFreesItsSlotHere(t *testing.T) {
	t.Parallel()
	for _, op := range []store.Op{store.OpSettle, store.OpCancel} {
		l, m, p := newLedger(), newModel(), plan(1, 1)
		var r, next ledger.Request
		r.Init(slot(p, "a", 1))
		l.Begin(at(0), &r)
		d := m.take(slot(p, "a", 1), at(0).Store)
		l.Answered(at(0), &r, &d)
		st := store.Settlement{Op: op, ID: "a", Grant: 1, Buckets: bucket(p, 0, 1)}
		if _, kept := l.Keep(at(1), &st); !kept {
			t.Fatalf("%v is not kept", op)
		}
		next.Init(slot(p, "b", 2))
		if d := l.Decide(at(2), &next); !d.Allowed {
			t.Errorf("after %v the slot is refused: %+v", op, d)
		}
	}
}

// TestATakeOfNothingIsAdmittedHere: a limit that is closed without the store refuses units, and
// nothing else.
func TestATakeOfNothingIsAdmittedHere(t *testing.T) {
	t.Parallel()
	p, err := drawgate.Policy{Name: "p", Fallback: drawgate.FallbackClosed, Limits: []drawgate.Limit{
		{Name: "r", Kind: drawgate.Rolling, Amount: 60, Window: time.Minute},
	}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger()
	for n := range int64(2) {
		var r ledger.Request
		r.Init(&store.Take{Buckets: bucket(p.Plan, n, 0)})
		if d := l.Decide(at(0), &r); d.Allowed != (n == 0) || d.Fail != nil {
			t.Errorf("%d units: allowed %v, %v", n, d.Allowed, d.Fail)
		}
	}
}

// TestARenewedHoldWithoutAnEntryCounts: there was no room for the entry of a bucket whose slot the
// store gave and renewed. Until the renewed hold is over, nobody else gets the slot here.
func TestARenewedHoldWithoutAnEntryCounts(t *testing.T) {
	t.Parallel()
	p := plan(1, 1)
	l := ledger.New(ledger.Options{Instances: one, Start: drawgate.StartFull, MaxEntries: 1, MaxHeld: 100})
	slotOf := func(key, id string, g store.Grant) *store.Take {
		tk := slot(p, id, g)
		tk.Buckets[0].Key.Name = key
		return tk
	}
	var m *modelStore
	for i, tk := range []*store.Take{slotOf("has the entry", "first", 1), slotOf("k", "a", 2)} {
		var r ledger.Request
		m = newModel()
		r.Init(tk)
		l.Begin(at(int64(i)), &r)
		d := m.take(tk, at(int64(i)).Store)
		l.Answered(at(int64(i)), &r, &d)
	}
	st := store.Settlement{Op: store.OpRenew, ID: "a", Grant: 2, Hold: time.Minute, Buckets: bucket(p, 0, 0)}
	o := m.settle(&st, at(second/2).Store)
	l.Settled(at(second/2), at(second/2).Store, &st, &o)
	for _, us := range []int64{30 * second, 61 * second} {
		want := us > 60*second
		var r ledger.Request
		r.Init(slotOf("k", "b", 3))
		if d := l.Decide(at(us), &r); d.Allowed != want {
			t.Errorf("after %d s the slot is given: %v, want %v", us/second, d.Allowed, want)
		}
	}
}

// TestWhatTheStoreSaysIsUnusedIsGivenHere: a process that starts assumes no use by others where the
// store has said that there is none.
func TestWhatTheStoreSaysIsUnusedIsGivenHere(t *testing.T) {
	t.Parallel()
	p := plan(3, 1)
	l := ledger.New(ledger.Options{Instances: one, MaxEntries: 10, MaxHeld: 10})
	first := &store.Take{Buckets: bucket(p, 1, 0)}
	var r, rest ledger.Request
	r.Init(first)
	l.Begin(at(0), &r)
	asks := []record.Ask{{Rec: &record.Record{}, Specs: store.Internal.Specs(p, false), N: record.Amounts{1}}}
	v := record.Decide(asks, &record.Take{}, at(0).Store)
	d := store.Internal.Verdict(&v, asks)
	l.Answered(at(0), &r, &d)
	rest.Init(&store.Take{Buckets: bucket(p, 2, 0)})
	if d := l.Decide(at(1), &rest); !d.Allowed {
		t.Errorf("the other two of three units are refused: %+v", d)
	}
}

// TestAChargeThatOneBucketCannotTakeStaysPending: the store cannot take a charge for now, and gets
// it again later.
func TestAChargeThatOneBucketCannotTakeStaysPending(t *testing.T) {
	t.Parallel()
	l, p := newLedger(), plan(1, 1)
	var r ledger.Request
	r.Init(&store.Take{Buckets: bucket(p, 1, 0)})
	if d := l.Decide(at(0), &r); !d.Allowed {
		t.Fatal("refused")
	}
	d := l.Next(at(1))
	if d == nil || len(d.Takes) != 1 {
		t.Fatalf("%+v is to be delivered, want a late charge", d)
	}
	charge := d.Takes[0]
	fault := &store.Error{Store: "test", Op: "take", Fault: store.FaultBucket}
	var rep ledger.Report
	l.Replayed(at(2), d, []store.Verdict{{Fail: fault}}, &rep)
	if !errors.Is(rep.Fault, fault) || len(rep.Refused) != 0 {
		t.Errorf("%+v is reported, want a fault", rep)
	}
	if d := l.Next(at(2 * second)); d == nil || len(d.Takes) != 1 || d.Takes[0].Grant != charge.Grant {
		t.Errorf("%+v is delivered later, want %+v again", d, charge)
	}
}

// TestDebtOfAHoldThatJustEnded: the end of a reservation reaches the store in the very instant in
// which its hold is over there. What was used beyond the grant is charged.
func TestDebtOfAHoldThatJustEnded(t *testing.T) {
	t.Parallel()
	l, m, p := newLedger(), newModel(), plan(10, 1)
	tk := &store.Take{ID: "a", Grant: 1, Hold: time.Second, Buckets: bucket(p, 1, 0)}
	var r ledger.Request
	r.Init(tk)
	l.Begin(at(0), &r)
	d := m.take(tk, at(0).Store)
	l.Answered(at(0), &r, &d)
	if _, kept := l.Keep(at(1), &store.Settlement{
		Op: store.OpSettle, ID: "a", Grant: 1,
		Buckets: bucket(p, 5, 0),
	}); !kept {
		t.Fatal("the settlement is not kept")
	}
	l.Delivered(at(second), l.Next(at(2)), []store.Outcome{{Gone: true}}, &ledger.Report{})
	next := l.Next(at(second))
	if next == nil || len(next.Takes) != 1 || next.Takes[0].Buckets[0].N[0] != 4 {
		t.Errorf("%+v is delivered, want a late charge of 4", next)
	}
}

// TestWhatIsOverMakesRoom: with as many reservations as there is room for, those whose hold is over
// leave, so that new ones can be settled without the store, too.
func TestWhatIsOverMakesRoom(t *testing.T) {
	t.Parallel()
	const room = 10
	m, p := newModel(), plan(100, 100)
	l := ledger.New(ledger.Options{Instances: one, Start: drawgate.StartFull, MaxEntries: 10, MaxHeld: room})
	give := func(id string, now int64) {
		tk := &store.Take{ID: id, Grant: 1, Hold: time.Second, Buckets: bucket(p, 1, 0)}
		var r ledger.Request
		r.Init(tk)
		l.Begin(at(now), &r)
		d := m.take(tk, at(now).Store)
		l.Answered(at(now), &r, &d)
	}
	settle := func(id string, now int64) bool {
		_, kept := l.Keep(at(now), &store.Settlement{Op: store.OpSettle, ID: id, Grant: 1, Buckets: bucket(p, 1, 0)})
		return kept
	}
	for i := range room {
		give(fmt.Sprint(i), 0)
	}
	give("too many", 1)
	if settle("too many", 2) {
		t.Error("one more than there is room for was kept")
	}
	give("later", 2*second)
	if !settle("later", 2*second) {
		t.Error("there is no room, though all others are over")
	}
}

// TestHugeTakesUnderWay: what the store is asked for counts, also if the sum of it is more than any
// number.
func TestHugeTakesUnderWay(t *testing.T) {
	t.Parallel()
	p := plan(10, 10)
	l := ledger.New(ledger.Options{Instances: one, Start: drawgate.StartFull, MaxEntries: 10, MaxHeld: 10})
	for _, n := range []int64{10, math.MaxInt64, math.MaxInt64} {
		var r ledger.Request
		r.Init(&store.Take{Buckets: bucket(p, n, 0)})
		l.Begin(at(0), &r)
	}
	var r ledger.Request
	r.Init(&store.Take{Buckets: bucket(p, 2, 0)})
	l.Begin(at(1), &r)
	if d := l.Decide(at(2), &r); d.Allowed {
		t.Error("2 of 10 were admitted while the store is asked for 10 and more")
	}
}

// pauseOf is a pause of the bucket until an instant, unpauseOf the end of one.
func pauseOf(p *store.Plan, until int64) *store.Settlement {
	return &store.Settlement{Op: store.OpPause, At: time.UnixMicro(at(until).Store), Buckets: bucket(p, 0, 0)}
}

func unpauseOf(p *store.Plan, until int64) *store.Settlement {
	st := pauseOf(p, until)
	st.Op = store.OpUnpause
	return st
}

// deliver has the store carry out what is pending. Without an answer it is pending again.
func deliver(t *testing.T, l *ledger.Ledger, m *modelStore, us int64, answered bool) {
	t.Helper()
	for range 3 {
		d := l.Next(at(us))
		if d == nil {
			return
		}
		out := make([]store.Outcome, len(d.Settlements))
		for i := range out {
			out[i] = m.settle(&d.Settlements[i], at(us).Store)
		}
		if !answered {
			l.Failed(at(us), d)
			return
		}
		l.Delivered(at(us), d, out, &ledger.Report{})
	}
	t.Fatal("there is no end of what is to be delivered")
}

// wantPause checks until when the bucket is paused at the store and here; 0 means not at all.
func wantPause(t *testing.T, l *ledger.Ledger, m *modelStore, p *store.Plan, us, until int64) {
	t.Helper()
	want := int64(0)
	if until > 0 {
		want = at(until).Store
	}
	if m.paused != want {
		t.Errorf("the store has a pause until %d, want %d", m.paused, want)
	}
	st := l.Describe(at(us), &bucket(p, 0, 0)[0], 0)
	if st.Pause.Until.IsZero() != (want == 0) || want > 0 && st.Pause.Until.UnixMicro() != want {
		t.Errorf("here the bucket is paused until %v, want %v", st.Pause.Until, time.UnixMicro(want))
	}
}

// TestAPauseAfterAnUnpauseStays: whatever the unpause ends, and whichever of the two pauses lasts
// longer, the store gets them in the order in which they were made.
func TestAPauseAfterAnUnpauseStays(t *testing.T) {
	t.Parallel()
	for _, delivered := range []bool{false, true} { // before the unpause, without an answer
		for _, again := range []int64{30 * second, 60 * second, 90 * second} {
			for _, back := range []bool{false, true} { // the store is back, but does not have the unpause yet
				l, m, p := newLedger(), newModel(), plan(1, 1)
				keep := func(us int64, st *store.Settlement) {
					t.Helper()
					if o, kept := l.Keep(at(us), st); !kept || o.Kept {
						t.Fatalf("%v: kept %v, %+v", st.Op, kept, o)
					}
				}
				keep(0, pauseOf(p, 60*second))
				if delivered {
					deliver(t, l, m, 1, false)
				}
				keep(2, unpauseOf(p, 60*second))
				if st := pauseOf(p, again); !back {
					keep(3, st)
				} else if o, mine := l.Settle(at(3), st); !mine {
					t.Errorf("the store is asked for a pause before it has the unpause")
				} else if o.End.UnixMicro() != at(again).Store {
					t.Errorf("paused until %v", o.End)
				}
				deliver(t, l, m, 4, true)
				wantPause(t, l, m, p, 5, again)
			}
		}
	}
}

// TestAShorterPauseWhileAnUnpauseHasNoAnswer: the store's answer to the pause shows that the longer
// one is over there.
func TestAShorterPauseWhileAnUnpauseHasNoAnswer(t *testing.T) {
	t.Parallel()
	for _, answers := range []string{"pause", "refusal"} {
		l, m, p := newLedger(), newModel(), plan(1, 1)
		settle := func(us int64, st *store.Settlement) store.Outcome {
			return m.settle(st, at(us).Store)
		}
		o := settle(0, pauseOf(p, 60*second))
		l.Settled(at(1), at(0).Store, pauseOf(p, 60*second), &o)
		settle(2, unpauseOf(p, 60*second)) // its answer is lost
		o = settle(3, pauseOf(p, 30*second))
		if answers == "pause" {
			l.Settled(at(4), at(3).Store, pauseOf(p, 30*second), &o)
		} else {
			take(t, l, m, slot(p, "a", 1), 4)
		}
		wantPause(t, l, m, p, 5, 30*second)
		l.Keep(at(5), unpauseOf(p, 60*second))
		deliver(t, l, m, 6, true)
		wantPause(t, l, m, p, 7, 30*second)
	}
}

// TestALateAnswerDoesNotShortenAPause: an answer of before this process learned of a longer pause
// says nothing about that one.
func TestALateAnswerDoesNotShortenAPause(t *testing.T) {
	t.Parallel()
	l, m, p := newLedger(), newModel(), plan(1, 1)
	short := m.settle(pauseOf(p, 30*second), at(0).Store)
	long := m.settle(pauseOf(p, 60*second), at(1).Store)
	l.Settled(at(2), at(1).Store, pauseOf(p, 60*second), &long)
	l.Settled(at(3), at(0).Store, pauseOf(p, 30*second), &short)
	wantPause(t, l, m, p, 4, 60*second)
}

// take has the store decide a take.
func take(t *testing.T, l *ledger.Ledger, m *modelStore, tk *store.Take, us int64) store.Verdict {
	t.Helper()
	var r ledger.Request
	r.Init(tk)
	l.Begin(at(us), &r)
	d := m.take(tk, at(us).Store)
	l.Answered(at(us), &r, &d)
	return d
}
