package record_test

import (
	"slices"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// TestRateRaisedAfterAHoldEnded: a hold ends, later the rate is raised, and only then does anybody
// look. The time between the hold's end and the change must not drain at the new rate.
func TestRateRaisedAfterAHoldEnded(t *testing.T) {
	t.Parallel()
	l := drawgate.Limit{Kind: drawgate.Bucket, Window: dur(mnt), Amount: 1, Burst: 10, Charge: drawgate.ChargeEnd}
	b := newBucket(t, l)
	if !b.hold("a", sec, 10) {
		t.Fatal("the first take was refused")
	}
	b.now += mnt + sec // the hold ended after a second; one unit has drained since
	l.Amount, l.Name = 10, "l0"
	b.specs = []record.Spec{spec(t, l)} // raised just now
	if got := b.used(0).Used; got != 9 {
		t.Fatalf("used = %d of 10 a minute after the hold's end at 1 per minute, want 9", got)
	}
}

// TestHoldEndsWhileNobodyKnowsTheLimit: a hold of a calendar limit ends, days later, while only
// another version of the program is about, which does not have the limit. Its units count in the
// window in which it ended.
func TestHoldEndsWhileNobodyKnowsTheLimit(t *testing.T) {
	t.Parallel()
	b := newBucket(t, drawgate.Limit{
		Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 10,
		Charge: drawgate.ChargeEnd,
	})
	if !b.hold("a", 3*day+hour, 8) {
		t.Fatal("the first take was refused")
	}
	other := newBucket(t, drawgate.Limit{Name: "other", Kind: drawgate.Rolling, Window: dur(sec), Amount: 1})
	other.rec = b.rec
	other.now += 3*day + 2*hour
	other.allow(1)
	b.now += 3*day + 3*hour
	if b.allow(3) {
		t.Fatal("3 granted beside 8 used on the same day, of 10")
	}
	if !b.allow(2) {
		t.Fatal("2 refused beside 8 used on the same day, of 10")
	}
	b.now += day
	if !b.allow(10) {
		t.Fatal("10 of 10 refused on the next day")
	}
}

// TestRetryAfterWhereAHoldWillJoin: the units of a hold that ends will join the newest entry, which
// then leaves later. The wait says so.
func TestRetryAfterWhereAHoldWillJoin(t *testing.T) {
	t.Parallel()
	b := newBucket(t, drawgate.Limit{
		Kind: drawgate.Rolling, Window: dur(100 * sec), Precision: 100, Amount: 10,
		Charge: drawgate.ChargeEnd,
	})
	if !b.allow(5) || !b.hold("a", sec/2, 5) {
		t.Fatal("the first takes were refused")
	}
	v, _ := b.take(record.Take{}, 5)
	if want := 100*sec + sec/2; v.Allowed || v.RetryAfter != want {
		t.Fatalf("got %+v, want a refusal for %d µs", v, want)
	}
	b.now += v.RetryAfter - 1
	if b.allow(5) {
		t.Fatal("granted before retry-after")
	}
	if b.now++; !b.allow(5) {
		t.Fatal("refused at retry-after")
	}
}

// TestResetAtCountsMarginAndNothingElse: a lease of a limit with a margin leaves one window after
// its end and the margin; what was given back entirely is not waited for.
func TestResetAtCountsMarginAndNothingElse(t *testing.T) {
	t.Parallel()
	b := newBucket(t, drawgate.Limit{
		Kind: drawgate.Rolling, Window: dur(mnt), Precision: drawgate.Exact, Amount: 10,
		Margin: dur(2 * sec),
	})
	_, out := b.take(record.Take{ID: "a", Hold: sec, Lease: true}, 5)
	if got, want := out[0].ResetAt, b.now+sec+2*sec+mnt; got != want {
		t.Fatalf("leased: reset at +%d, want +%d", got-b.now, want-b.now)
	}
	b.cancel("a")
	b.hold("b", sec, 5)
	b.cancel("b")
	if _, out = b.peek(1); out[0].ResetAt != b.now || out[0].Remaining != 10 {
		t.Fatalf("all given back: got %+v, want remaining 10, reset now", out[0])
	}
}

// TestNothingIsTakenAfterUnitsWereGivenBack: a plain take of nothing, where the newest units were
// given back entirely, says when the units before them leave.
func TestNothingIsTakenAfterUnitsWereGivenBack(t *testing.T) {
	t.Parallel()
	b := newBucket(t, drawgate.Limit{Kind: drawgate.Rolling, Window: dur(mnt), Precision: drawgate.Exact, Amount: 10})
	b.allow(5)
	b.now += sec
	b.hold("a", sec, 5)
	b.cancel("a")
	var n record.Amounts
	var out [record.MaxLimits]record.Result
	_, after, ok := record.DecidePlain(b.rec, b.specs, &n, 0, b.now, out[:])
	if want := (record.Result{Remaining: 5, ResetAt: epoch + mnt}); after != 0 || !ok || out[0] != want {
		t.Errorf("got %+v, after %d, ok %v, want %+v", out[0], after, ok, want)
	}
}

// TestStrangerDrainsNothing: a bucket's rate is lowered, and the first to look, at a hold's end, is
// a version of the program that does not have the limit: it cannot know the new rate.
func TestStrangerDrainsNothing(t *testing.T) {
	t.Parallel()
	l := drawgate.Limit{
		Name: "l0", Kind: drawgate.Bucket, Window: dur(mnt), Amount: 10, Burst: 10,
		Charge: drawgate.ChargeEnd,
	}
	b := newBucket(t, l)
	if !b.allow(9) || !b.hold("a", mnt/2, 1) {
		t.Fatal("the first takes were refused")
	}
	l.Amount = 1
	lowered := spec(t, l) // from now on
	b.now += mnt / 2
	b.rec.Advance([]record.Spec{{ID: 1, Kind: record.Rolling, Window: 1}}, b.now)
	b.specs[0] = lowered
	if got := b.used(0).Used; got != 10 {
		t.Fatalf("used = %d of 10 half a minute later at 1 per minute, want 10", got)
	}
}

// TestCreditWhereTheNextWindowWasCharged: a take that was charged to two calendar windows is
// corrected in both, whichever is open.
func TestCreditWhereTheNextWindowWasCharged(t *testing.T) {
	t.Parallel()
	for _, wait := range []int64{sec, 3 * sec} { // before and after the edge
		b := newBucket(t, drawgate.Limit{
			Kind: drawgate.Calendar, Every: drawgate.Minute, Amount: 10,
			Margin: dur(2 * sec),
		})
		b.now += mnt - 2*sec
		if !b.hold("a", mnt, 10) || b.allow(1) {
			t.Fatal("want 10 of 10 granted and no more")
		}
		b.now += wait
		if !b.settle("a", 4) {
			t.Fatal("not settled")
		}
		if b.now = epoch + mnt + sec; b.allow(7) || !b.allow(6) {
			t.Fatalf("settled after %d µs: want 6 of 10 left in the second window", wait)
		}
	}
}

// TestHeldUnitsCountWithTheirMargin: a lease that was taken under a margin of 400 ms is closed by a
// version of the policy that has none, when it is settled or when its hold ends. What the holder
// sent in its last moment may arrive 400 ms later, and counts for that long.
func TestHeldUnitsCountWithTheirMargin(t *testing.T) {
	t.Parallel()
	const margin = 400_000
	l := drawgate.Limit{Name: "l0", Kind: drawgate.Rolling, Window: dur(mnt), Amount: 10}
	short := spec(t, l)
	l.Margin = dur(margin)
	for _, settled := range []bool{true, false} {
		b := newBucket(t, l)
		if v, _ := b.take(record.Take{ID: "lease", Hold: sec, Lease: true}, 10); !v.Allowed {
			t.Fatal("the lease was refused")
		}
		b.specs[0] = short
		b.now += sec
		if settled {
			b.now--
			if !b.settle("lease", 10) {
				t.Fatal("not settled")
			}
			b.now++
		}
		end := b.now
		if settled {
			end--
		}
		b.now = end + mnt + margin - 1
		if b.allow(1) {
			t.Errorf("settled %v: allowed while the last of the lease may still arrive", settled)
		}
		b.now++
		if !b.allow(10) {
			t.Errorf("settled %v: refused when it cannot any more", settled)
		}
	}
}

// TestKeptLeaseEndsFirst: the buckets of a lease hold it until different instants, and one of them
// is paused. It ends where its hold is over first.
func TestKeptLeaseEndsFirst(t *testing.T) {
	t.Parallel()
	limit := drawgate.Limit{Kind: drawgate.Bucket, Window: dur(mnt), Amount: 100}
	a, b := newBucket(t, limit), newBucket(t, limit)
	asks := []record.Ask{{Rec: a.rec, Specs: a.specs, N: amounts(5)}, {Rec: b.rec, Specs: b.specs, N: amounts(5)}}
	if v := record.Decide(asks, &record.Take{ID: "x", Hold: mnt, Lease: true}, epoch); !v.Allowed {
		t.Fatal("refused")
	}
	record.Renew(asks[1:], "x", 0, hour, epoch)
	if end, kept := record.KeptLease(asks, "x", 0, epoch); kept {
		t.Errorf("kept until %d although nothing is paused", end-epoch)
	}
	record.PauseUntil(asks[1:], epoch+hour, "test", epoch)
	for range 2 {
		if end, kept := record.KeptLease(asks, "x", 0, epoch); !kept || end != epoch+mnt {
			t.Errorf("kept %v until %d, want a minute", kept, end-epoch)
		}
		slices.Reverse(asks)
	}
	if end, kept := record.KeptLease(asks, "y", 0, epoch); kept || end != 0 {
		t.Errorf("a lease that is not open: kept %v until %d", kept, end)
	}
}

// TestReservationHasThePartsThatItTook, and no others: a part of an unknown limit would have to be
// kept when the hold ends.
func TestReservationHasThePartsThatItTook(t *testing.T) {
	t.Parallel()
	b := newBucket(t, drawgate.Limit{Kind: drawgate.Concurrency, Amount: 5},
		drawgate.Limit{Kind: drawgate.Concurrency, Amount: 5},
		drawgate.Limit{Kind: drawgate.Rolling, Window: dur(mnt), Amount: 100})
	b.hold("x", mnt, 2, 0, 3)
	var got []record.Amounts
	for _, p := range b.rec.Open["x"].Parts {
		got = append(got, amounts(int64(p.Limit), p.N))
	}
	if want := []record.Amounts{amounts(int64(b.specs[0].ID), 2), amounts(int64(b.specs[2].ID), 3)}; !slices.Equal(got,
		want) {
		t.Errorf("parts %v, want %v", got, want)
	}
	if b.rec.MustPersist(b.specs, b.now+hour) {
		t.Error("the end of the hold is a change that others would not make")
	}
}

// TestCompleteRecordMissesNothing: a record that is not put together from parts expects none.
func TestCompleteRecordMissesNothing(t *testing.T) {
	t.Parallel()
	var r record.Record
	if n, err := r.Missing(), r.Complete(); n != 0 || err != nil {
		t.Errorf("%d reservations are missing: %v", n, err)
	}
}
