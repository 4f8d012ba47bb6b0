package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/store"
)

// desk is one process at a model store that keeps histories, without a network.
type desk struct {
	t    *testing.T
	l    *ledger.Ledger
	m    *modelStore
	plan *store.Plan
	now  int64
	rep  ledger.Report
	off  bool
	ids  int
}

func newDesk(t *testing.T, limits ...drawgate.Limit) *desk {
	t.Helper()
	if limits == nil {
		limits = []drawgate.Limit{{
			Name: "units", Kind: drawgate.Rolling, Amount: 1000, Window: 10 * time.Minute, Precision: drawgate.Exact,
		}}
	}
	p, err := drawgate.Policy{Name: "p", Limits: append(limits, drawgate.Limit{
		Name: "slots", Kind: drawgate.Concurrency, Amount: 1000,
	})}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, m: newKeeper(), plan: p.Plan, now: 1_000_000 * second}
	d.restart()
	return d
}

func (d *desk) restart() {
	d.l = ledger.New(ledger.Options{
		Instances: func() (int, bool) { return 1, true }, Start: drawgate.StartFull, MaxEntries: 100, MaxHeld: 100,
		Recovers: func() bool { return !d.off },
	})
}

// other returns another process at the same store.
func (d *desk) other() *desk {
	o := &desk{t: d.t, m: d.m, plan: d.plan, now: d.now, ids: 1000}
	o.restart()
	return o
}

func (d *desk) at() ledger.Now { return ledger.Now{Own: d.now - 999_999*second, Store: d.now} }

func (d *desk) pass(by time.Duration) { d.now += by.Microseconds() }

// ask has the store decide a take, once nothing is pending for it.
func (d *desk) ask(t store.Take) store.Verdict {
	d.t.Helper()
	d.now++
	r := new(ledger.Request)
	r.Init(&t)
	if d.l.Begin(d.at(), r) {
		d.deliver()
		if blocked, _ := d.l.Blocked(d.at(), r); blocked {
			d.t.Fatal("something stays pending")
		}
	}
	sent := d.l.SentTakes([]store.Take{t})[0]
	v := d.m.take(&sent, d.now)
	d.l.Answered(d.at(), r, &v)
	return v
}

func (d *desk) take(n int64) {
	d.t.Helper()
	d.ask(store.Take{Buckets: bucket(d.plan, n, 0)})
}

func (d *desk) reserve(n int64, hold time.Duration) store.Take {
	d.t.Helper()
	d.ids++
	t := store.Take{
		ID: fmt.Sprint("id", d.ids), Grant: store.Grant(d.ids), Hold: hold, Buckets: bucket(d.plan, n, 1),
	}
	if v := d.ask(t); !v.Allowed {
		d.t.Fatal("a reservation is refused")
	}
	return t
}

// outage admits units without the store.
func (d *desk) outage(n int64) {
	d.t.Helper()
	d.now++
	r := new(ledger.Request)
	r.Init(&store.Take{Buckets: bucket(d.plan, n, 0)})
	if v := d.l.Decide(d.at(), r); !v.Allowed {
		d.t.Fatal("the fallback refuses")
	}
}

func (d *desk) settle(s store.Settlement) store.Outcome {
	d.t.Helper()
	d.now++
	if o, mine := d.l.Settle(d.at(), &s); mine {
		return o
	}
	sent := d.l.SentSettlements([]store.Settlement{s})[0]
	o := d.m.settle(&sent, d.now)
	d.l.Settled(d.at(), d.now, &s, &o)
	return o
}

func (d *desk) pause(op store.Op, until int64) {
	d.t.Helper()
	d.settle(store.Settlement{Op: op, At: time.UnixMicro(until), Buckets: bucket(d.plan, 0, 0)})
}

// deliver delivers what is pending. The answers of the first lost deliveries are lost.
func (d *desk) deliver(lost ...int) {
	d.t.Helper()
	for range 100 {
		d.now++
		x := d.l.Next(d.at())
		if x == nil {
			if us := d.l.Wait(d.at()); us > 0 {
				d.now += us
				continue
			}
			return
		}
		looks := make([]store.State, len(x.Looks))
		for i := range x.Looks {
			looks[i] = d.m.look(d.now)
		}
		outs, vs := make([]store.Outcome, len(x.Settlements)), make([]store.Verdict, len(x.Takes))
		d.l.Looked(d.at(), x, looks, &d.rep)
		for i := range x.Settlements {
			outs[i] = d.m.settle(&x.Settlements[i], d.now)
		}
		for i := range x.Takes {
			vs[i] = d.m.take(&x.Takes[i], d.now)
		}
		if len(lost) > 0 && lost[0] > 0 && len(outs)+len(vs) > 0 {
			lost[0]--
			d.l.Failed(d.at(), x)
			continue
		}
		d.l.Delivered(d.at(), x, outs, &d.rep)
		d.l.Replayed(d.at(), x, vs, &d.rep)
	}
	d.t.Fatal("the deliveries do not end")
}

// hear lets the process hear of the bucket, and recovers it.
func (d *desk) hear() {
	d.t.Helper()
	d.now++
	st := d.m.look(d.now)
	d.l.Peeked(d.at(), &bucket(d.plan, 0, 0)[0], 0, &st)
	d.deliver()
}

func (d *desk) wantUsed(units, slots int64) {
	d.t.Helper()
	if u, s := d.m.used(d.now); u != units || s != slots {
		d.t.Errorf("the store has %d units and %d slots, want %d and %d", u, s, units, slots)
	}
}

// TestRecoveryGoesFirst: what is lost is recovered before the store is asked about that bucket.
func TestRecoveryGoesFirst(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.take(5)
	d.m.evict()
	d.take(1) // shows the loss
	r := new(ledger.Request)
	r.Init(&store.Take{Buckets: bucket(d.plan, 1, 0)})
	if !d.l.Begin(d.at(), r) {
		t.Error("the store is asked about a bucket of which it has lost something")
	}
	d.l.Abandon(d.at(), r)
	d.deliver()
	d.wantUsed(6, 0)
	if len(d.rep.Recovered) != 1 || d.rep.Recovered[0].N[0] != 5 || d.rep.Reservations != 0 || len(d.rep.Charged) != 0 {
		t.Errorf("%+v", d.rep)
	}
}

// TestOutageLooksFirst: a process that has had no answer looks before it charges, so that each
// charge has a condition; and its grant makes it count once.
func TestOutageLooksFirst(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.outage(5)
	d.outage(2)
	x := d.l.Next(d.at())
	if len(x.Looks) != 1 || len(x.Settlements) != 0 {
		t.Fatalf("%d looks and %d charges, want a look", len(x.Looks), len(x.Settlements))
	}
	d.l.Failed(d.at(), x)
	d.deliver(2)
	d.wantUsed(7, 0)
	if len(d.rep.Charged) != 1 || len(d.rep.Recovered) != 0 {
		t.Errorf("%d charges and %d recoveries are reported", len(d.rep.Charged), len(d.rep.Recovered))
	}
}

// TestSentOutageIsClosed: what is admitted after a charge was sent has a grant of its own.
func TestSentOutageIsClosed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.take(1)
	d.outage(5)
	x := d.l.Next(d.at())
	d.m.settle(&x.Settlements[0], d.now)
	d.l.Failed(d.at(), x)
	d.outage(2)
	d.deliver()
	d.wantUsed(8, 0)
}

// TestCreditsAreNotChargedAgain: what the store gave back is not charged when it is lost.
func TestCreditsAreNotChargedAgain(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.take(5)
	d.take(4)
	d.m.entries[1].n, d.m.entries[0].n = 0, 3 // it gives 6 back
	s := store.Settlement{Op: store.OpRefund, Buckets: bucket(d.plan, 6, 0)}
	sent := d.l.SentSettlements([]store.Settlement{s})[0]
	d.m.dirty = true
	o := store.Outcome{Back: []store.Amounts{{6}}, Histories: []store.History{d.m.history(sent.Known[0], d.now)}}
	d.l.Settled(d.at(), d.now, &s, &o)
	d.m.evict()
	d.hear()
	d.wantUsed(3, 0)
}

// TestOverIsNotChargedAgain: what no longer counts is not charged.
func TestOverIsNotChargedAgain(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.take(5)
	d.pass(8 * time.Minute)
	d.take(3)
	d.pass(3 * time.Minute)
	d.m.evict()
	d.hear()
	d.wantUsed(3, 0)
}

// TestBucketIsChargedAsFarAsItIsFull: of a bucket limit what has drained is not charged.
func TestBucketIsChargedAsFarAsItIsFull(t *testing.T) {
	t.Parallel()
	d := newDesk(t, drawgate.Limit{Name: "units", Kind: drawgate.Bucket, Amount: 60, Window: time.Minute, Burst: 100})
	for range 10 {
		d.take(6)
	}
	d.pass(20 * time.Second)
	d.m.evict()
	d.hear()
	d.wantUsed(40, 0)
}

// TestSettledReservations: a settlement that is lost is sent again for a minute; the units are
// charged again also later.
func TestSettledReservations(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{time.Second, 2 * time.Minute} {
		d := newDesk(t)
		r := d.reserve(5, time.Hour)
		held := len(d.m.hist) - 1
		end := store.Settlement{Op: store.OpSettle, ID: r.ID, Grant: r.Grant, Buckets: bucket(d.plan, 3, 1)}
		if o := d.settle(end); o.Gone {
			t.Fatal("gone")
		}
		d.pass(after)
		d.take(1)
		if after < time.Minute {
			d.m.failover(held)
			d.hear()
			d.wantUsed(4, 0)
		}
		d.m.evict()
		d.hear()
		d.wantUsed(4, 0)
	}
}

// TestCellsAreBounded: however many takes there are, few cells are kept, and what is charged again
// is as much as was lost, or some more.
func TestCellsAreBounded(t *testing.T) {
	t.Parallel()
	d := newDesk(t, drawgate.Limit{Name: "units", Kind: drawgate.Rolling, Amount: 1e9, Window: 10 * time.Minute})
	for range 2000 {
		d.take(1)
		d.pass(200 * time.Millisecond)
	}
	kept := len(d.m.hist) - 1
	for range 20 { // four seconds
		d.take(1)
		d.pass(200 * time.Millisecond)
	}
	d.m.failover(kept)
	d.hear()
	if u, _ := d.m.used(d.now); u < 2020 || u > 2020+40 {
		t.Errorf("%d units count after a loss of 20, want 2020, and few more", u)
	}
	n := 0
	for _, c := range d.rep.Recovered {
		n += int(c.N[0])
	}
	if len(d.rep.Recovered) != 1 || n < 20 || n > 60 {
		t.Errorf("%d charges of %d units", len(d.rep.Recovered), n)
	}
}

// TestPausesComeBack: who set a pause sets it again, until the same instant; others do not.
func TestPausesComeBack(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	o := d.other()
	d.take(1)
	o.take(1)
	until := d.now + 60*second
	d.pause(store.OpPause, until)
	o.now = d.now
	o.hear()
	d.pass(10 * time.Second)
	o.pass(10 * time.Second)
	d.m.evict()
	o.hear()
	if d.m.paused != 0 {
		t.Error("another process sets the pause again")
	}
	d.hear()
	if d.m.paused != until {
		t.Errorf("paused until %d, want %d", d.m.paused, until)
	}
}

// TestEndedPausesStayEnded: a pause that another process has ended is not set again.
func TestEndedPausesStayEnded(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	o := d.other()
	d.take(1)
	o.take(1)
	until := d.now + 60*second
	d.pause(store.OpPause, until)
	o.now = d.now
	o.pause(store.OpUnpause, until)
	d.now = o.now
	d.m.migrate() // another list: so the process compares
	d.hear()
	d.take(1)
	if d.m.paused != 0 {
		t.Fatal("a pause that was ended is set again")
	}
	if d.m.again != 0 {
		t.Error("the store is asked to set it")
	}
}

// TestLostEndOfPause: who ended a pause ends it again.
func TestLostEndOfPause(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.take(1)
	until := d.now + 60*second
	o := d.other()
	o.take(1)
	d.now = o.now
	d.pause(store.OpPause, until)
	paused := len(d.m.hist) - 1
	o.now = d.now
	o.pause(store.OpUnpause, until)
	d.m.failover(paused)
	if d.m.paused != until {
		t.Fatal("the pause is not back")
	}
	o.hear()
	if d.m.paused != 0 {
		t.Error("the pause that was ended is in force")
	}
	d.now = o.now
	d.hear()
	if d.m.paused != 0 {
		t.Error("the pause is set again, though it was ended since")
	}
}

// keep lets the process keep a caller's charge.
func (d *desk) keep(n int64, labels ...store.Label) {
	d.t.Helper()
	d.now++
	st := store.Settlement{
		Op: store.OpCharge, At: store.Internal.Instant(d.now), Buckets: bucket(d.plan, n, 0), Labels: labels,
	}
	if _, kept := d.l.Keep(d.at(), &st); !kept {
		d.t.Fatal("a charge is not kept")
	}
}

// TestCallersChargeCountsOnce: a caller's charge that waited for the store counts once, although
// the answer to it is lost; and again when the store loses it. It has its labels.
func TestCallersChargeCountsOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.take(1)
	d.keep(5)
	d.keep(2)
	because := store.Label{Name: "reason", Value: "late"}
	d.keep(3, because)
	x := d.l.Next(d.at())
	if len(x.Settlements) != 2 || len(x.Settlements[0].Labels) != 0 || !slices.Equal(x.Settlements[1].Labels,
		[]store.Label{because}) || x.Settlements[0].Recovery == nil || x.Settlements[1].Recovery == nil {
		t.Fatalf("%+v", x.Settlements)
	}
	for i := range x.Settlements {
		d.m.settle(&x.Settlements[i], d.now)
	}
	d.l.Failed(d.at(), x)
	d.keep(4) // after the others were sent
	d.deliver(2)
	d.wantUsed(15, 0)
	if len(d.rep.Charged) != 3 {
		t.Errorf("%d charges are reported, want 3", len(d.rep.Charged))
	}
	d.m.evict()
	d.hear()
	d.wantUsed(15, 0)
}

// TestNoRoomForGrants: a charge for whose grant the store has no room goes without it. Units that
// the outage admitted are not missing.
func TestNoRoomForGrants(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.take(1)
	d.m.full = true
	d.outage(5)
	d.keep(2)
	d.deliver()
	d.wantUsed(8, 0)
	if len(d.rep.Refused) > 0 || len(d.rep.Charged) != 1 {
		t.Errorf("%d charges, refused %v", len(d.rep.Charged), d.rep.Refused)
	}
	d.m.full = false
	d.m.evict()
	d.hear()
	d.wantUsed(8, 0)
}

// TestManyCallersCharges: however many charges with labels of their own wait, all are charged, and
// no more are kept than there is room for.
func TestManyCallersCharges(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for range 2 {
		for i := range 100 {
			d.keep(1, store.Label{Name: "i", Value: fmt.Sprint(i)})
		}
		st := store.Settlement{Op: store.OpCharge, Buckets: bucket(d.plan, 1, 0)}
		if _, kept := d.l.Keep(d.at(), &st); kept {
			t.Error("a charge is kept without room")
		}
		d.deliver()
	}
	d.wantUsed(200, 0)
}

// TestPauseOfTheSameHistory: a take that is allowed although the process had set a pause shows that
// it was lost.
func TestPauseOfTheSameHistory(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.take(1)
	until := d.now + 60*second
	d.pause(store.OpPause, until)
	d.m.paused = 0
	d.take(1)
	d.deliver()
	if d.m.paused != until {
		t.Error("the pause is not set again")
	}
}

// TestWithoutRecovery: nothing is known, kept or recovered.
func TestWithoutRecovery(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.off, d.m.keeps = true, false
	d.take(5)
	if known := d.l.KnownOf(bucket(d.plan, 0, 0)); known != nil {
		t.Error(known)
	}
	d.m.evict()
	d.take(1)
	d.outage(2)
	d.deliver()
	d.wantUsed(3, 0)
	if d.l.Recovering() || len(d.rep.Recovered) > 0 || len(d.rep.Charged) != 1 {
		t.Errorf("%+v", d.rep)
	}
}

// TestRecoveryEndsWithHistories: a store that keeps no histories any more gets what an outage
// admitted, without a condition, and nothing else.
func TestRecoveryEndsWithHistories(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.take(5)
	d.outage(2)
	d.m.evict()
	st := d.m.look(d.now)
	d.l.Peeked(d.at(), &bucket(d.plan, 0, 0)[0], 0, &st)
	d.off, d.m.keeps = true, false
	d.deliver()
	d.wantUsed(2, 0)
}

// TestForgiven: what was admitted before a reset is not charged or opened again, also if it was
// lost before.
func TestForgiven(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.take(5)
	d.reserve(3, time.Hour)
	o := d.other()
	d.m.evict()
	o.now = d.now + second
	o.take(1)
	d.now = o.now + second
	d.m.reset(d.now)
	d.hear()
	d.wantUsed(0, 0)
}

// TestLateAnswer: an answer without a list comes after another one had one. What it says to be
// counted is judged by that one.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.take(1)
	tk := store.Take{Buckets: bucket(d.plan, 5, 0)}
	r := new(ledger.Request)
	r.Init(&tk)
	d.l.Begin(d.at(), r)
	sent := d.l.SentTakes([]store.Take{tk})[0]
	v := d.m.take(&sent, d.now)
	d.m.failover(1)
	d.hear()
	if v.Histories[0].Listed {
		t.Fatal("the answer has a list")
	}
	d.l.Answered(d.at(), r, &v)
	d.deliver()
	d.wantUsed(6, 0)
}

// TestRenewalShowsTake: a reservation is there if its renewal is, although what the list says of
// its take is over.
func TestRenewalShowsTake(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r := d.reserve(5, time.Hour)
	d.m.migrate()
	renew := store.Settlement{Op: store.OpRenew, ID: r.ID, Grant: r.Grant, Hold: 2 * time.Hour, Buckets: r.Buckets}
	if o := d.settle(renew); o.Gone {
		t.Fatal("gone")
	}
	d.m.past.epochs = d.m.past.epochs[1:]
	d.m.migrate()
	d.hear()
	if d.rep.Reservations != 0 {
		t.Error("a reservation that is there is opened again")
	}
	d.wantUsed(5, 1)
}

// TestCancelledAfterReopening: a reopening is not answered, and the reservation is cancelled. It
// may be open, so it is ended.
func TestCancelledAfterReopening(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r := d.reserve(5, time.Hour)
	d.m.evict()
	st := d.m.look(d.now)
	d.l.Peeked(d.at(), &bucket(d.plan, 0, 0)[0], 0, &st)
	x := d.l.Next(d.at())
	if len(x.Takes) != 1 {
		t.Fatal("no reopening")
	}
	d.m.take(&x.Takes[0], d.now)
	d.l.Failed(d.at(), x)
	d.wantUsed(5, 1)
	cancel := store.Settlement{Op: store.OpCancel, ID: r.ID, Grant: r.Grant, Buckets: r.Buckets}
	if o, mine := d.l.Settle(d.at(), &cancel); !mine || o.Gone {
		t.Error("the store is asked about a reservation that it has lost")
	}
	d.deliver()
	d.wantUsed(0, 0)
}

// TestCancelledAfterReplay: a replay shows that a reservation was there before, and not since when.
// So it is ended in older data too.
func TestCancelledAfterReplay(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.take(1)
	tk := store.Take{ID: "id", Grant: 1, Hold: time.Hour, Buckets: bucket(d.plan, 5, 1)}
	r := new(ledger.Request)
	r.Init(&tk)
	if v := d.l.Decide(d.at(), r); !v.Allowed {
		t.Fatal("the fallback refuses")
	}
	x := d.l.Next(d.at())
	d.m.take(&x.Takes[0], d.now)
	d.l.Failed(d.at(), x) // its answer is lost
	opened := len(d.m.hist) - 1
	d.other().take(1)
	d.pass(time.Second)
	d.deliver()
	d.settle(store.Settlement{Op: store.OpCancel, ID: "id", Grant: 1, Buckets: tk.Buckets})
	d.deliver()
	d.m.failover(opened)
	d.hear()
	if _, slots := d.m.used(d.now); slots != 0 {
		t.Error("a reservation that was cancelled is open")
	}
}

// TestFirstHoldOnAnOldServer: a reservation was given here after the store had it, so it ends later
// than there. It is given again to a server in the place of that one, and the old one comes back,
// which has only the hold that it promised: it is renewed there.
func TestFirstHoldOnAnOldServer(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.take(1)
	tk := store.Take{ID: "id", Grant: 1, Hold: time.Hour, Buckets: bucket(d.plan, 5, 1)}
	r := new(ledger.Request)
	r.Init(&tk)
	d.l.Begin(d.at(), r)
	sent := d.l.SentTakes([]store.Take{tk})[0]
	d.m.take(&sent, d.now)
	d.l.Unanswered(d.at(), r)
	d.pass(time.Second)
	if v := d.l.Decide(d.at(), r); !v.Allowed {
		t.Fatal("the fallback refuses")
	}
	end := d.now + time.Hour.Microseconds()
	x := d.l.Next(d.at())
	d.l.Replayed(d.at(), x, []store.Verdict{d.m.take(&x.Takes[0], d.now)}, &d.rep)
	d.m.failover(1)
	d.deliver()
	d.m.back(0)
	d.hear()
	if h := d.m.open["id"]; h == nil || h.end < end {
		t.Errorf("the old server has %+v, want a hold until %d", h, end)
	}
	d.wantUsed(6, 1)
}

// TestTakeSentAgainToOlderData: a server that has only the first hold of a reservation that was
// renewed answers its take, which its caller sends again. The renewal is still missing there.
func TestTakeSentAgainToOlderData(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r := d.reserve(5, time.Hour)
	taken := len(d.m.hist) - 1
	o := d.settle(store.Settlement{
		Op: store.OpRenew, ID: r.ID, Grant: r.Grant, Hold: 2 * time.Hour, Buckets: r.Buckets,
	})
	d.m.failover(taken)
	if v := d.ask(r); !v.Replayed {
		t.Fatal("the older data do not have it")
	}
	d.hear()
	if h, end := d.m.open[r.ID], o.End.UnixMicro(); h == nil || h.end < end {
		t.Errorf("the server has %+v, want a hold until %d", h, end)
	}
}

// TestGoneIsOfOneServer: an old primary, on which a renewal was, has a reservation open again that
// was gone on the one in its place.
func TestGoneIsOfOneServer(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r := d.reserve(5, 10*time.Second)
	taken := len(d.m.hist) - 1
	d.settle(store.Settlement{Op: store.OpRenew, ID: r.ID, Grant: r.Grant, Hold: time.Hour, Buckets: r.Buckets})
	d.pass(20 * time.Second)
	d.m.failover(taken)
	o := d.settle(store.Settlement{Op: store.OpCancel, ID: r.ID, Grant: r.Grant, Buckets: r.Buckets})
	if !o.Gone {
		t.Fatal("it is there")
	}
	d.m.back(0)
	d.hear()
	d.wantUsed(0, 0)
}

// TestWithdrawnSettlement: a cancellation is sent for messages that may be late, and finds the
// reservation open, because its settlement was lost. What was used is charged.
func TestWithdrawnSettlement(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	tk := store.Take{ID: "id", Grant: 1, Hold: 20 * time.Second, Buckets: bucket(d.plan, 5, 1)}
	r := new(ledger.Request)
	r.Init(&tk)
	d.l.Begin(d.at(), r)
	d.l.Unanswered(d.at(), r)
	sent := d.l.SentTakes([]store.Take{tk})[0]
	v := d.m.take(&sent, d.now)
	d.l.Answered(d.at(), r, &v)
	opened := len(d.m.hist) - 1
	d.settle(store.Settlement{Op: store.OpSettle, ID: "id", Grant: 1, Buckets: bucket(d.plan, 3, 1)})
	d.m.failover(opened)
	d.deliver()
	d.wantUsed(3, 0)

	// the data from before come back once more, when the hold is over: all that was granted counts
	d.pass(20 * time.Second)
	d.m.failover(opened)
	d.hear()
	d.wantUsed(5, 0)
}

// TestOneDrawsTheMark: of what is lost with a record one thing goes first, because the others would
// name a mark that is not the last one any more.
func TestOneDrawsTheMark(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.take(1)
	for range 5 {
		d.reserve(1, time.Hour)
	}
	d.m.evict()
	d.hear()
	d.wantUsed(6, 5)
	if d.rep.Unmet != 0 || d.rep.Reservations != 5 {
		t.Errorf("%d recoveries were not carried out, and %d reservations recovered", d.rep.Unmet, d.rep.Reservations)
	}
}

// TestHoldThatIsOver: a reservation whose hold is over when its loss is heard of is charged as
// granted.
func TestHoldThatIsOver(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.take(1)
	d.reserve(5, 10*time.Second)
	d.m.evict()
	d.pass(20 * time.Second)
	d.hear()
	d.wantUsed(6, 0)
}

// TestSettledReservationInBucketIsChargedAsFarAsItIsFull: what has drained of a settled reservation
// is not charged.
func TestSettledReservationInBucketIsChargedAsFarAsItIsFull(t *testing.T) {
	t.Parallel()
	d := newDesk(t, drawgate.Limit{Name: "units", Kind: drawgate.Bucket, Amount: 60, Window: time.Minute, Burst: 100})
	r := d.reserve(40, time.Hour)
	end := store.Settlement{Op: store.OpSettle, ID: r.ID, Grant: r.Grant, Buckets: bucket(d.plan, 40, 1)}
	if o := d.settle(end); o.Gone {
		t.Fatal("gone")
	}
	d.pass(30 * time.Second)
	d.m.evict()
	d.hear()
	d.wantUsed(10, 0)
}

// TestServerRenamed: a server that is called something else, and has all of its data, as when it
// gets its first replica, has lost nothing: also not what a connection from before wrote after the
// process heard of the new name.
func TestServerRenamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		take         store.Take
		units, slots int64
	}{
		{"units", store.Take{}, 5, 0},
		{"a reservation", store.Take{ID: "id", Grant: 7, Hold: time.Hour}, 5, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.take(1)
			tk := c.take
			tk.Buckets = bucket(d.plan, c.units, c.slots)
			r := new(ledger.Request)
			r.Init(&tk)
			d.l.Begin(d.at(), r)
			sent := d.l.SentTakes([]store.Take{tk})[0]
			before := d.m.gen
			d.m.rename()
			d.hear()
			d.m.conn = before
			d.now++
			v := d.m.take(&sent, d.now)
			d.m.conn = 0
			if v.Histories[0].Listed || !v.Allowed {
				t.Fatalf("%+v", v)
			}
			d.l.Answered(d.at(), r, &v)
			d.deliver()
			d.wantUsed(1+c.units, c.slots)
			d.take(1)
			d.wantUsed(2+c.units, c.slots)
			if len(d.rep.Recovered) != 0 || d.rep.Reservations != 0 {
				t.Errorf("%d charges and %d reservations are recovered", len(d.rep.Recovered), d.rep.Reservations)
			}
		})
	}
}
