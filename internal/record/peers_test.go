package record_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// These are the failures of other limiters that are a matter of arithmetic, by their numbers in the
// collection.

// TestPeers02RefusedTakesBurnNothing: a take that one of several limits refuses spends nothing of
// the others, and an oversized one drives nothing negative.
// req: D1, D5
func TestPeers02RefusedTakesBurnNothing(t *testing.T) {
	t.Parallel()
	b := newBucket(t,
		drawgate.Limit{Kind: drawgate.Rolling, Window: dur(mnt), Amount: 5},
		drawgate.Limit{Kind: drawgate.Bucket, Unit: "tokens", Window: dur(mnt), Amount: 100},
		drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 50})
	b.allow(1, 100, 1)
	for range 1000 {
		if b.allow(1, 1, 1) || b.allow(1, 1e12, 1) {
			t.Fatal("tokens granted beyond the limit")
		}
	}
	for i, want := range []int64{1, 100, 1} {
		if got := b.used(i).Used; got != want {
			t.Errorf("limit %d: used = %d after 2000 refusals, want %d", i, got, want)
		}
	}
}

// TestPeers03PollerGetsIn: a client that polls at 1 kHz gets its unit each minute.
// req: A5
func TestPeers03PollerGetsIn(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]drawgate.Limit{
		"bucket":  {Kind: drawgate.Bucket, Window: dur(mnt), Amount: 1},
		"rolling": {Kind: drawgate.Rolling, Window: dur(mnt), Amount: 1},
		"exact":   {Kind: drawgate.Rolling, Window: dur(mnt), Amount: 1, Precision: drawgate.Exact},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, last, granted := newBucket(t, l), epoch-mnt, 0
			d := newDice(1)
			for b.now < epoch+30*mnt {
				if b.allow(1) {
					if gap := b.now - last; gap < mnt || gap > mnt+2000 {
						t.Fatalf("granted %d µs after the one before", gap)
					}
					last = b.now
					granted++
				}
				b.now += d.between(1, 1999)
			}
			if granted < 29 {
				t.Errorf("%d granted in 30 minutes", granted)
			}
		})
	}
}

// TestPeers04NoDoubleAcrossAnEdge: a rolling limit has no edges, and starts anew with nothing.
// req: D3
func TestPeers04NoDoubleAcrossAnEdge(t *testing.T) {
	t.Parallel()
	for _, precision := range []int{0, 100, drawgate.Exact} {
		b := newBucket(t, drawgate.Limit{Kind: drawgate.Rolling, Window: dur(mnt), Amount: 10, Precision: precision})
		b.now += mnt - 1 // just before a minute of the clock ends
		if !b.allow(10) {
			t.Fatal("10 of 10 refused")
		}
		for b.now < epoch+2*mnt-1 {
			if b.allow(1) {
				t.Fatalf("precision %d: an 11th granted after %d µs", precision, b.now-(epoch+mnt-1))
			}
			b.now += 999_983
			b.now = min(b.now, epoch+2*mnt-1)
		}
		if !b.allow(10) { // half-open: [t, t + window)
			t.Fatalf("precision %d: refused exactly one window later", precision)
		}
	}
}

// TestPeers07LateSettleCreditsNoOtherWindow: a settlement after the window of its take gives the
// open one nothing.
// req: A6
func TestPeers07LateSettleCreditsNoOtherWindow(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]drawgate.Limit{
		"calendar":       {Kind: drawgate.Calendar, Every: drawgate.Minute, Amount: 10},
		"rolling":        {Kind: drawgate.Rolling, Window: dur(mnt), Amount: 10},
		"rolling, exact": {Kind: drawgate.Rolling, Window: dur(mnt), Amount: 10, Precision: drawgate.Exact},
		"bucket":         {Kind: drawgate.Bucket, Window: dur(mnt), Amount: 10},
	} {
		for _, cancel := range []bool{false, true} {
			b := newBucket(t, l)
			if !b.hold("a", hour, 10) {
				t.Fatalf("%s: the first take was refused", name)
			}
			b.now += mnt
			if !b.allow(10) {
				t.Fatalf("%s: a new window refused", name)
			}
			if cancel {
				b.cancel("a")
			} else {
				b.settle("a", 0)
			}
			if b.allow(1) {
				t.Errorf("%s: 11 of 10 granted after a late settlement", name)
			}
		}
	}
}

// TestPeers08AlternatingLimits: two versions of a program with different amounts of one limit, in
// turn: neither mints, the refusal of one is not sticky for the other, a refund is not more than
// was taken.
func TestPeers08AlternatingLimits(t *testing.T) {
	t.Parallel()
	for _, kind := range []drawgate.Kind{drawgate.Rolling, drawgate.Bucket} {
		small := drawgate.Limit{Name: "l0", Kind: kind, Window: dur(mnt), Amount: 10}
		large := small
		large.Amount = 100
		specs := [][]record.Spec{{spec(t, small)}, {spec(t, large)}}
		b := newBucket(t, small)
		granted := 0
		for i := range 10_000 {
			b.specs = specs[i%2]
			if b.allow(1) {
				granted++
			}
		}
		if granted != 100 {
			t.Errorf("%v: %d granted at one instant by limits of 10 and 100, want 100", kind, granted)
		}
		b.specs = specs[0]
		// the lower rate of 10 per minute drained; 10,000 changes of the rate in one instant were
		// rounded up by nothing
		b.now += mnt
		if got, want := b.used(0).Used, map[drawgate.Kind]int64{
			drawgate.Rolling: 0,
			drawgate.Bucket:  90,
		}[kind]; got != want {
			t.Errorf("%v: used = %d a minute later, want %d", kind, got, want)
		}
		b.now += hour
		b.hold("a", mnt, 5)
		b.cancel("a")
		b.cancel("a")
		if got := b.used(0).Used; got != 0 {
			t.Errorf("%v: used = %d after a refund, want 0", kind, got)
		}
	}
}

// TestPeers13FractionsSurviveFrequentPolling: polling a slow limit often loses nothing of what
// drains, whatever the rate.
// req: A5, B1
func TestPeers13FractionsSurviveFrequentPolling(t *testing.T) {
	t.Parallel()
	for _, rate := range []int64{1, 3, 7, 997, 60_000_001} {
		b := newBucket(t, drawgate.Limit{Kind: drawgate.Bucket, Window: dur(mnt), Amount: rate})
		b.allow(rate)
		d := newDice(uint64(rate))
		for b.now < epoch+mnt-1 {
			b.now = min(epoch+mnt-1, b.now+d.between(1, 500))
			b.allow(rate)
		}
		if used := b.used(0).Used; used < 1 {
			t.Errorf("rate %d: used = %d just before the minute was over", rate, used)
		}
		if b.now++; b.used(0).Used != 0 || !b.allow(rate) {
			t.Errorf("rate %d: used = %d after exactly a minute of polling", rate, b.used(0).Used)
		}
	}
}

// TestPeers14RetryAfterIsNotTheWholeWindow: it is when the take fits, never 0 on a refusal, and
// rounded up.
func TestPeers14RetryAfterIsNotTheWholeWindow(t *testing.T) {
	t.Parallel()
	b := newBucket(t, drawgate.Limit{Kind: drawgate.Rolling, Window: dur(mnt), Amount: 10, Precision: drawgate.Exact})
	for range 10 {
		b.allow(1)
		b.now += sec
	}
	for n := int64(1); n <= 10; n++ {
		if v, out := b.peek(n); v.RetryAfter != mnt-(11-n)*sec || out[0].ResetAt != epoch+9*sec+mnt {
			t.Errorf("n=%d: retry after %d, reset at +%d", n, v.RetryAfter, out[0].ResetAt-epoch)
		}
	}
	b = newBucket(t, drawgate.Limit{Kind: drawgate.Bucket, Window: dur(sec), Amount: 3})
	b.allow(3)
	if v, _ := b.peek(1); v.RetryAfter != 333_334 {
		t.Errorf("bucket of 3 per second: retry after %d µs, want a third of a second, rounded up", v.RetryAfter)
	}
}

// TestPeers15CostAboveTheLimitNeverFits: no wait will help, and the answer says that, not a time.
func TestPeers15CostAboveTheLimitNeverFits(t *testing.T) {
	t.Parallel()
	for _, l := range []drawgate.Limit{
		{Kind: drawgate.Rolling, Window: dur(mnt), Amount: 10, Headroom: drawgate.Share{Percent: 20}},
		{Kind: drawgate.Bucket, Window: dur(mnt), Amount: 10, Headroom: drawgate.Share{Units: 2}},
		{Kind: drawgate.Calendar, Every: drawgate.Month, Amount: 10, Headroom: drawgate.Share{Units: 2}},
		{Kind: drawgate.Concurrency, Amount: 10, Headroom: drawgate.Share{Units: 2}},
	} {
		b := newBucket(t, l)
		for _, n := range []int64{9, 10, 1e12} {
			for range 2 { // with nothing used, and with something
				v, _ := b.take(record.Take{ID: "x", Hold: 1}, n)
				if v.Allowed || v.RetryAfter != record.Never || v.EarliestRetry != record.Never {
					t.Errorf("%v: n=%d of 8: %+v", l.Kind, n, v)
				}
				if b.specs[0].Fits(n, 0) || !b.specs[0].Fits(8, 0) {
					t.Errorf("%v: Fits is wrong about %d or 8 of 8", l.Kind, n)
				}
				b.hold(fmt.Sprint(n), mnt, 1)
			}
		}
	}
}

// TestPeers17MonthsWeeksAndMinutesTogether: real months and Monday weeks, beside a minute.
// req: D1, D3
func TestPeers17MonthsWeeksAndMinutesTogether(t *testing.T) {
	t.Parallel()
	b := newBucket(t,
		drawgate.Limit{Kind: drawgate.Rolling, Window: dur(mnt), Amount: 20},
		drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Week, Amount: 100},
		drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Month, Amount: 150})
	b.now = time.Date(2026, 2, 26, 12, 0, 0, 0, time.UTC).UnixMicro() // a Thursday
	grant := func(want int64) {
		t.Helper()
		got := int64(0)
		for b.allow(1, 1, 1) {
			got++
		}
		if got != want {
			t.Errorf("%v: %d granted, want %d", time.UnixMicro(b.now).UTC(), got, want)
		}
	}
	for range 5 {
		grant(20)
		b.now += mnt
	}
	grant(0) // the week's 100 are used
	b.now = time.Date(2026, 3, 1, 23, 59, 0, 0, time.UTC).UnixMicro()
	grant(0) // a new month; a Sunday
	b.now = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC).UnixMicro()
	for range 5 {
		grant(20) // Monday
		b.now += mnt
	}
	b.now = time.Date(2026, 3, 30, 0, 0, 0, 0, time.UTC).UnixMicro()
	grant(20)
	b.now += mnt
	grant(20)
	b.now += mnt
	grant(10) // the month's 150
	if _, out := b.peek(0, 0, 1); out[2].ResetAt != time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC).UnixMicro() {
		t.Errorf("the month resets at %v", time.UnixMicro(out[2].ResetAt).UTC())
	}
}

// TestPeers22HostileNumbers: a rate of nothing, costs that overflow, a clock that jumps back.
// req: E10
func TestPeers22HostileNumbers(t *testing.T) {
	t.Parallel()
	for _, l := range []drawgate.Limit{
		{Name: "l", Kind: drawgate.Bucket, Amount: 1},
		{Name: "l", Kind: drawgate.Bucket, Window: time.Minute, Amount: -1},
		{Name: "l", Kind: drawgate.Bucket, Window: time.Nanosecond, Amount: 1},
		{Name: "l", Kind: drawgate.Rolling, Window: 10 * 366 * 24 * time.Hour, Amount: 1},
		{Name: "l", Kind: drawgate.Rolling, Window: time.Minute, Amount: math.MaxInt64},
		{Name: "l", Kind: drawgate.Bucket, Window: 365 * 24 * time.Hour, Amount: 7, Burst: 1e12},
	} {
		if err := l.Check(); err == nil {
			t.Errorf("%+v was accepted", l)
		}
	}
	for name, l := range map[string]drawgate.Limit{
		"rolling":  {Kind: drawgate.Rolling, Window: dur(mnt), Amount: drawgate.MaxAmount},
		"bucket":   {Kind: drawgate.Bucket, Window: dur(sec), Amount: 1e12},
		"calendar": {Kind: drawgate.Calendar, Every: drawgate.Day, Amount: drawgate.MaxAmount},
	} {
		b := newBucket(t, l)
		for range 20_000 { // debts that no counter can hold
			b.charge(b.now, drawgate.MaxAmount)
		}
		if u := b.used(0); u.Used < 9_000*drawgate.MaxAmount && l.Kind != drawgate.Bucket || u.Used < 9e9 ||
			u.Debt <= 0 || u.Used > 1<<53 {
			t.Errorf("%s: %+v after 20,000 charges of 10^12", name, u)
		}
		if b.allow(1) {
			t.Errorf("%s: granted beside all that debt", name)
		}
		if v, _ := b.peek(1); v.RetryAfter <= 0 {
			t.Errorf("%s: retry after %d", name, v.RetryAfter)
		}
		for _, n := range []int64{math.MaxInt64, math.MaxInt64 - 1, 1 << 62} {
			asks := []record.Ask{{Rec: b.rec, Specs: b.specs, N: amounts(n)}}
			for _, short := range []bool{false, true} {
				if v := decide(asks, &record.Take{}, b.now, short); v.Allowed || v.RetryAfter != record.Never {
					t.Errorf("%s: n=%d: %+v", name, n, v)
				}
			}
		}
	}
	// A clock that jumps back decides at the latest instant that was seen: nothing is freed,
	// nothing is lost.
	for name, l := range map[string]drawgate.Limit{
		"rolling":  {Kind: drawgate.Rolling, Window: dur(mnt), Amount: 10},
		"bucket":   {Kind: drawgate.Bucket, Window: dur(mnt), Amount: 10},
		"calendar": {Kind: drawgate.Calendar, Every: drawgate.Minute, Amount: 10},
	} {
		b := newBucket(t, l)
		b.allow(10)
		for _, back := range []int64{1, sec, hour, 365 * day} {
			b.now = epoch - back
			if v, _ := b.take(record.Take{}, 1); v.Allowed || v.Now != epoch {
				t.Errorf("%s: %d µs back: %+v", name, back, v)
			}
		}
		if b.now = epoch + mnt; !b.allow(10) {
			t.Errorf("%s: refused when time has caught up", name)
		}
	}
}
