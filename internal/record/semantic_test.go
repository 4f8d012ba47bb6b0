package record_test

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// TestIdentity: another window, unit, kind, zone or anchor under the same name is another limit.
// Versions of a program that differ in it never touch each other's state, not even with holds that
// end under the other's eyes; versions that differ in anything else share it.
func TestIdentity(t *testing.T) {
	t.Parallel()
	base := drawgate.Limit{Name: "l", Kind: drawgate.Rolling, Window: time.Minute, Amount: 10}
	variant := func(f func(l *drawgate.Limit)) drawgate.Limit {
		l := base
		f(&l)
		return l
	}
	month := drawgate.Limit{Name: "l", Kind: drawgate.Calendar, Every: drawgate.Month, Amount: 10}
	zoned, anchored := month, month
	zoned.Zone, anchored.Anchor = "Europe/Paris", 31
	others := []drawgate.Limit{
		base,
		variant(func(l *drawgate.Limit) { l.Window = time.Hour }),
		variant(func(l *drawgate.Limit) { l.Unit = "tokens" }),
		variant(func(l *drawgate.Limit) { l.Name = "m" }),
		variant(func(l *drawgate.Limit) { l.Kind = drawgate.Bucket }),
		month, zoned, anchored,
	}
	rec := &record.Record{}
	var versions []*bucket
	for i, l := range others {
		v := &bucket{rec: rec, specs: []record.Spec{spec(t, l)}, now: epoch}
		for j, w := range versions {
			if w.specs[0].ID == v.specs[0].ID {
				t.Fatalf("limits %d and %d have the same identity", i, j)
			}
		}
		versions = append(versions, v)
	}
	for i, v := range versions {
		if !v.allow(7) || !v.hold(others[i].Name+string(rune('a'+i)), sec, 3) || v.allow(1) {
			t.Fatalf("limit %d: want 10 of 10 granted and no more", i)
		}
	}
	for i, v := range versions {
		if v.now += sec; v.used(0).Used < 9 {
			t.Errorf("limit %d: used = %d after the others looked, want 10", i, v.used(0).Used)
		}
	}
	same := variant(func(l *drawgate.Limit) {
		l.Amount, l.Headroom, l.Margin, l.Charge, l.Precision = 11, drawgate.Share{Units: 1}, time.Second,
			drawgate.ChargeEnd, drawgate.Exact
	})
	if id := spec(t, same).ID; id != versions[0].specs[0].ID {
		t.Error("amount, headroom, margin, charge or precision is part of the identity")
	}
}

// TestDaysWithDaylightSaving: the day on which the clocks change has one window, of 23 or 25 hours,
// and the limit holds in it once.
// req: A6
func TestDaysWithDaylightSaving(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	for date, hours := range map[time.Time]int64{
		time.Date(2026, 3, 8, 0, 0, 0, 0, zone): 23, time.Date(2026, 11, 1, 0, 0, 0, 0, zone): 25,
		time.Date(2026, 7, 1, 0, 0, 0, 0, zone): 24,
	} {
		b := newBucket(t, drawgate.Limit{
			Kind: drawgate.Calendar, Every: drawgate.Day, Zone: "America/New_York",
			Amount: 25, Headroom: drawgate.Share{Units: 1},
		})
		start := date.UnixMicro()
		if b.now = start - 1; !b.allow(24) || b.allow(1) {
			t.Fatalf("%v: the day before: want 24 of 25 granted", date)
		}
		granted := int64(0)
		for b.now = start; b.now < start+hours*hour; b.now += hour / 4 {
			if b.allow(1) {
				granted++
			}
		}
		b.now = start + hours*hour - 1
		v, out := b.peek(1)
		if granted != 24 || v.RetryAfter != 1 || out[0].ResetAt != start+hours*hour {
			t.Errorf("%v: %d granted in %d hours, retry after %d at the end", date, granted, hours, v.RetryAfter)
		}
		if b.now++; !b.allow(24) {
			t.Errorf("%v: refused after %d hours", date, hours)
		}
	}
}

// TestMarginAcrossAnEdge: a take that may arrive in the next window is charged to both; one that
// cannot is not.
// req: C1
func TestMarginAcrossAnEdge(t *testing.T) {
	t.Parallel()
	b := newBucket(t, drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Minute, Amount: 10, Margin: dur(2 * sec)})
	b.now = epoch + mnt - 2*sec - 1
	if !b.allow(3) {
		t.Fatal("refused")
	}
	if b.now++; !b.allow(7) || b.allow(1) {
		t.Fatal("want 7 more of 10")
	}
	b.now = epoch + mnt
	if _, out := b.peek(1); out[0].Remaining != 3 {
		t.Fatalf("remaining %d in the second window, want 3: 7 may have arrived in it", out[0].Remaining)
	}
	b.allow(3)
	b.now = epoch + 2*mnt - 2*sec // the third window is empty, but what is used up is the second
	if v, _ := b.peek(1); v.RetryAfter != 2*sec {
		t.Fatalf("retry after %d, want 2 s", v.RetryAfter)
	}
}

// TestReplay: the id of an open reservation answers again and charges nothing; with another content
// it is an error; once it is not open it is new.
// req: A12
func TestReplay(t *testing.T) {
	t.Parallel()
	b := newBucket(t, drawgate.Limit{Kind: drawgate.Rolling, Window: dur(mnt), Amount: 10})
	tk := record.Take{ID: "a", Fingerprint: 1, Hold: 10 * sec}
	first, _ := b.take(tk, 6)
	b.now += sec
	again, _ := b.take(tk, 6)
	if !first.Allowed || first.Replayed || !again.Allowed || !again.Replayed || again.End != first.End ||
		b.used(0).Used != 6 {
		t.Fatalf("got %+v, then %+v, used %d", first, again, b.used(0).Used)
	}
	tk.Fingerprint = 2
	if v, _ := b.take(tk, 6); v.Allowed || !v.Reused || b.used(0).Used != 6 {
		t.Fatalf("another content: %+v, used %d", v, b.used(0).Used)
	}
	b.settle("a", 2)
	if v, _ := b.take(tk, 8); !v.Allowed || v.Replayed || b.used(0).Used != 10 {
		t.Fatalf("the id of a settled reservation: %+v, used %d", v, b.used(0).Used)
	}
}

// TestGone: an id that is not open credits nothing, however it came to be so.
func TestGone(t *testing.T) {
	t.Parallel()
	for _, charge := range []drawgate.Charge{drawgate.ChargeStart, drawgate.ChargeEnd} {
		b := newBucket(t, drawgate.Limit{Kind: drawgate.Rolling, Window: dur(mnt), Amount: 10, Charge: charge})
		gone := func(id string) {
			t.Helper()
			used := b.used(0).Used
			asks := []record.Ask{{Rec: b.rec, Specs: b.specs}}
			if renewed, _, _ := record.Renew(asks, id, 0, hour, b.now); renewed || b.settle(id, 0) || b.cancel(id) ||
				b.used(0).Used != used {
				t.Errorf("charge %d: %q: not gone, or used went from %d to %d", charge, id, used, b.used(0).Used)
			}
		}
		gone("never was")
		b.hold("settled", hour, 3)
		b.settle("settled", 3)
		gone("settled")
		b.hold("ended", sec, 4)
		b.now += sec // [start, end): at the end it is over
		gone("ended")
		if got := b.used(0).Used; got != 7 {
			t.Errorf("charge %d: used = %d, want 7: a hold that ended counts as used", charge, got)
		}
		b.hold("renewed", sec, 1)
		b.now += sec - 1
		asks := []record.Ask{{Rec: b.rec, Specs: b.specs}}
		if renewed, end, _ := record.Renew(asks, "renewed", 0, sec, b.now); !renewed || end != b.now+sec {
			t.Errorf("charge %d: renewed %v until +%d", charge, renewed, end-b.now)
		}
		if renewed, end, _ := record.Renew(asks, "renewed", 0, 1, b.now); !renewed || end != b.now+sec {
			t.Errorf("charge %d: a shorter renewal: %v until +%d, want no earlier end", charge, renewed, end-b.now)
		}
	}
}

// TestConcurrencySlotsComeFree at the hold's end, without anybody's help.
// req: D12
func TestConcurrencySlotsComeFree(t *testing.T) {
	t.Parallel()
	b := newBucket(t, drawgate.Limit{Kind: drawgate.Concurrency, Amount: 2})
	if !b.hold("a", sec, 1) || !b.hold("b", 2*sec, 1) || b.hold("c", sec, 1) {
		t.Fatal("want 2 of 2 held")
	}
	if v, _ := b.peek(1); v.RetryAfter != sec || v.EarliestRetry != 0 {
		t.Fatalf("got %+v, want a second, or as soon as one is given back", v)
	}
	if b.now += sec; !b.hold("c", sec, 1) || b.hold("d", sec, 1) {
		t.Fatal("want the slot of the hold that ended, and no other")
	}
	b.settle("b", 1)
	if !b.hold("d", sec, 1) {
		t.Fatal("refused after a slot was given back")
	}
}

// TestDebt: more than was estimated is entered at once, is shown, and is waited off.
func TestDebt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		l    drawgate.Limit
		wait int64 // until 1 fits
	}{
		"rolling, start": {drawgate.Limit{Kind: drawgate.Rolling, Window: dur(mnt), Amount: 10}, mnt - sec},
		"rolling, end": {drawgate.Limit{
			Kind: drawgate.Rolling, Window: dur(mnt), Amount: 10,
			Charge: drawgate.ChargeEnd,
		}, mnt},
		"bucket, end": {drawgate.Limit{
			Kind: drawgate.Bucket, Window: dur(mnt), Amount: 60, Burst: 10,
			Charge: drawgate.ChargeEnd,
		}, 16 * sec},
		"calendar": {drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Minute, Amount: 10}, mnt - sec},
	} {
		b := newBucket(t, c.l)
		b.hold("a", hour, 10)
		b.now += sec
		b.settle("a", 25)
		u := b.used(0)
		v, out := b.peek(1)
		if u.Used != 25 || u.Debt != 15 || out[0].Remaining != 0 || v.Allowed || v.RetryAfter != c.wait {
			t.Errorf("%s: %+v, %+v, remaining %d, want a debt of 15 and a wait of %d", name, u, v, out[0].Remaining,
				c.wait)
		}
	}
}

// TestLeaseShrinks: a lease gets what there is, at least one, and counts until it ends, whatever
// the limit's charge.
func TestLeaseShrinks(t *testing.T) {
	t.Parallel()
	b := newBucket(t, drawgate.Limit{
		Kind: drawgate.Rolling, Window: dur(100 * sec), Amount: 110,
		Precision: drawgate.Exact,
	})
	b.allow(100)
	b.now += 50 * sec
	asks := []record.Ask{{Rec: b.rec, Specs: b.specs, N: amounts(50)}}
	if v := record.Decide(asks, &record.Take{ID: "a", Hold: 200 * sec, Lease: true}, b.now); !v.Allowed ||
		asks[0].Granted[0] != 10 {
		t.Fatalf("got %d of 50 with 10 left: %+v", asks[0].Granted[0], v)
	}
	if v, _ := b.take(record.Take{ID: "b", Hold: sec, Lease: true}, 50); v.Allowed || v.RetryAfter != 50*sec {
		t.Fatalf("nothing left: %+v", v)
	}
	b.now += 190 * sec // the units could be spent only now: had they aged, 110 more would be granted within one window
	if b.allow(101) || !b.allow(100) {
		t.Fatal("an open lease of 10 leaves 100 of 110")
	}
	b.settle("a", 4)
	if got := b.used(0).Used; got != 104 {
		t.Fatalf("used = %d after a settlement of 4, want 104", got)
	}
	if b.now += 99 * sec; b.used(0).Used != 104 {
		t.Fatal("spent units left before one window had passed since the settlement")
	}
}

// TestPriorities: a lower priority sees less, rounded up in favour of the higher ones.
// req: B6, D12
func TestPriorities(t *testing.T) {
	t.Parallel()
	b := newBucket(t, drawgate.Limit{
		Kind: drawgate.Rolling, Window: dur(mnt), Amount: 25,
		ReservedByPriority: map[int]drawgate.Share{7: {Percent: 10}, 3: {Units: 5}},
	})
	for _, c := range []struct {
		priority int8
		most     int64
	}{{0, 17}, {2, 17}, {3, 22}, {6, 22}, {7, 25}, {9, 25}} {
		if got := b.specs[0].Effective[c.priority]; got != c.most {
			t.Errorf("priority %d may use %d, want %d", c.priority, got, c.most)
		}
	}
	b.allow(17)
	if b.allow(1) {
		t.Error("priority 0 was granted what is kept")
	}
	if v, _ := b.take(record.Take{Priority: 3}, 5); !v.Allowed {
		t.Error("priority 3 was refused what is kept for it")
	}
	if v, _ := b.take(record.Take{Priority: 7}, 3); !v.Allowed {
		t.Error("priority 7 was refused what is kept for it")
	}
}
