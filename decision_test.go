package drawgate_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
)

// numbered returns n rolling limits, each of its own unit: the i-th allows 10·(i+1) per i+1
// minutes.
func numbered(name string, n int) drawgate.Policy {
	p := drawgate.Policy{Name: name}
	for i := range n {
		p.Limits = append(p.Limits, of(fmt.Sprint("u", i), rolling(int64(10*(i+1)), time.Duration(i+1)*time.Minute)))
	}
	return p
}

// TestAccessors describe decisions over one, three and five limits, which are kept in different
// places, and over several buckets. req: A6, D1, C7
func TestAccessors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ first, second int }{
		{1, 0},
		{3, 0},
		{4, 0},
		{5, 0},
		{6, 0},
		{1, 1},
		{3, 5},
		{5, 3},
		{6, 6},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := local(t, numbered("a", c.first))
			ask := []drawgate.Ask{a.Ask("k")}
			counts := []int{c.first}
			if c.second > 0 {
				ask = append(ask, with(t, a, numbered("b", c.second)).Ask("k"))
				counts = append(counts, c.second)
			}
			// Everywhere i+1 of the i-th unit, and of the very last one all.
			for b := range ask {
				for i := range counts[b] {
					n := int64(i + 1)
					if b == len(ask)-1 && i == counts[b]-1 {
						n = int64(10 * (i + 1))
					}
					ask[b].Costs = append(ask[b].Costs, drawgate.Cost{Unit: fmt.Sprint("u", i), N: n})
				}
			}
			last := drawgate.LimitResult{Bucket: len(ask) - 1, Policy: string("ab"[len(ask)-1])}
			window := time.Duration(counts[last.Bucket]) * time.Minute
			start := time.Now()
			d, _, err := a.Take(t.Context(), drawgate.Request{Buckets: ask})
			if err != nil || !d.Allowed || d.Buckets() != len(ask) || !d.At().Equal(start) || !d.HoldEnd().IsZero() ||
				d.Granted(0) != (store.Amounts{}) {
				t.Fatalf("%v, %v: %d buckets at %v", err, d.Err(), d.Buckets(), d.At())
			}
			time.Sleep(10 * time.Second)
			refused, _, err := a.Take(t.Context(), drawgate.Request{Buckets: ask})
			if err != nil || refused.Allowed {
				t.Fatal(err, "allowed")
			}
			for _, d := range []drawgate.Decision{d, refused} {
				k := 0
				for r := range d.Limits() {
					b, i := 0, k
					if k >= counts[0] {
						b, i = 1, k-counts[0]
					}
					k++
					full, wait := b == last.Bucket && i == counts[b]-1, time.Duration(0)
					left := int64(9 * (i + 1))
					if full {
						left = 0
						if !d.Allowed {
							wait = window - 10*time.Second
						}
					}
					if r.Bucket != b || r.Policy != string("ab"[b]) || r.Limit.Name != fmt.Sprint("u", i) ||
						r.Remaining != left || r.RetryAfter != wait ||
						r.Refused() != (wait > 0) || !r.ResetAt().Equal(start.Add(time.Duration(i+1)*time.Minute)) {
						t.Errorf("%v, bucket %d, limit %d: %+v", c, b, i, r)
					}
				}
				if k != c.first+c.second {
					t.Errorf("%v: %d limits", c, k)
				}
				tight, ok := d.Tightest()
				if !ok || tight.Bucket != last.Bucket || tight.Policy != last.Policy ||
					tight.Limit.Name != fmt.Sprint("u", counts[last.Bucket]-1) || d.Remaining() != 0 {
					t.Errorf("%v: tightest %+v", c, tight)
				}
			}
			if r, ok := d.Refusing(); ok {
				t.Errorf("%v: allowed, and %+v refuses", c, r)
			}
			r, ok := refused.Refusing()
			e, isLimited := errors.AsType[*drawgate.LimitedError](refused.Err())
			if !ok || !isLimited || r.Bucket != last.Bucket || e.Policy != r.Policy || e.Limit != r.Limit.Name ||
				e.RetryAfter != window-10*time.Second || !e.ResetAt.Equal(r.ResetAt()) {
				t.Errorf("%v: %+v, %+v", c, r, e)
			}
			for range refused.Limits() { // may stop
				break
			}
		})
	}
}

// TestEmptyDecision says nothing, and is not allowed.
func TestEmptyDecision(t *testing.T) {
	t.Parallel()
	var d drawgate.Decision
	_, tight := d.Tightest()
	_, refusing := d.Refusing()
	if d.Allowed || tight || refusing || d.Buckets() != 0 || d.Remaining() != 0 ||
		!errors.Is(d.Err(), drawgate.ErrLimited) || !d.HoldEnd().IsZero() {
		t.Errorf("%+v, %v", d, d.Err())
	}
}

// TestBucketDecision: a bucket's divisions are left to whoever looks; they come out right.
func TestBucketDecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.Rate("rate", 7, time.Minute, 5))
		var got []string
		for range 7 {
			d, err := l.Allow(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			r, _ := d.Tightest()
			got = append(got, fmt.Sprint(d.Allowed, r.Remaining, d.RetryAfter, r.RetryAfter, r.ResetAt().Sub(d.At())))
		}
		// A unit comes back in 60/7 s, rounded up to the microsecond.
		want := []string{
			"true 4 0s 0s 8.571429s", "true 3 0s 0s 17.142858s", "true 2 0s 0s 25.714286s", "true 1 0s 0s 34.285715s",
			"true 0 0s 0s 42.857143s",
			"false 0 8.571429s 8.571429s 42.857143s", "false 0 8.571429s 8.571429s 42.857143s",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestNames(t *testing.T) {
	t.Parallel()
	if got := fmt.Sprint(store.Passed, drawgate.Limited, drawgate.Queued, drawgate.Unavailable, drawgate.Paused,
		drawgate.Reason(7)); got != "passed limited queued unavailable paused paused" {
		t.Error(got)
	}
	if got := fmt.Sprint(store.OpSettle, store.OpCancel, store.OpRenew, store.OpCharge, store.OpPause, store.OpUnpause,
		store.Op(0)); got != "settle cancel renew charge pause unpause none" {
		t.Error(got)
	}
}

// TestAllowDoesNotAllocate is a budget. req: E2
func TestAllowDoesNotAllocate(t *testing.T) { // not parallel: AllocsPerRun counts for the whole process
	needs.NoRace(t)
	const much = 1_000_000_000
	day := drawgate.Limit{Name: "day", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: much}
	once := rolling(1, time.Hour)
	once.Name = "once"
	for _, c := range []struct {
		name    string
		policy  drawgate.Policy
		allowed bool
	}{
		{"one bucket", policy(leaky(much, time.Hour, 0)), true},
		{"one bucket, refused", policy(leaky(1, time.Hour, 0)), false},
		{"one rolling", drawgate.PerHour("hour", much), true},
		{"one rolling, refused", drawgate.PerHour("hour", 1), false},
		{"three limits", policy(leaky(much, time.Hour, 0), drawgate.PerHour("hour", much).Limits[0], day), true},
		{"three limits, refused", policy(leaky(much, time.Hour, 0), once, day), false},
	} {
		l := local(t, c.policy)
		take(t, l, "k", 1)
		ctx := t.Context()
		if !c.allowed {
			waitAndLeave(t, l)
		}
		got := testing.AllocsPerRun(1000, func() {
			if d, err := l.Allow(ctx, "k"); err != nil || d.Allowed != c.allowed {
				t.Errorf("%s: allowed %v, %v", c.name, d.Allowed, err)
			}
		})
		if got != 0 {
			t.Errorf("%s: %v allocations, want 0", c.name, got)
		}
	}
}

// A Request stays on its caller's stack: what a take by it allocates is the store's form of it, its
// buckets and the verdict.
func TestTakeAllocatesLittle(t *testing.T) { // not parallel: as above
	needs.NoRace(t)
	l := local(t, policy(leaky(1_000_000_000, time.Hour, 0)))
	buckets, ctx := []drawgate.Ask{{Key: "k"}}, t.Context()
	got := testing.AllocsPerRun(1000, func() {
		if d, _, err := l.Take(ctx, drawgate.Request{Buckets: buckets}); err != nil || !d.Allowed {
			t.Errorf("allowed %v, %v", d.Allowed, err)
		}
	})
	if got > 3 {
		t.Errorf("%v allocations, want at most 3", got)
	}
}

// waitAndLeave waits for the bucket, and gives up: the short way is open again.
func waitAndLeave(t *testing.T, l *drawgate.Limiter) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := l.Wait(ctx, "k")
		wantErr(t, err, context.Canceled)
	})
	for d, _ := l.Allow(ctx, "k"); d.Reason != drawgate.Queued; d, _ = l.Allow(ctx, "k") {
		runtime.Gosched()
	}
	cancel()
	wg.Wait()
}

// TestUnavailableStoreIsNamed: a refusal because the store is unavailable says so, and is not taken
// for a limit that is used up.
func TestUnavailableStoreIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, numbered("p", 1))
		d, err := l.Allow(t.Context(), "k", drawgate.Cost{Unit: "u0", N: 10})
		if err != nil || !d.Allowed {
			t.Fatal(err, d.Err())
		}
		if d, err = l.Allow(t.Context(), "k", drawgate.Cost{Unit: "u0", N: 1}); err != nil || d.Allowed {
			t.Fatal(err, d.Allowed)
		}
		d.Reason = drawgate.Unavailable
		if got := d.Err(); !errors.Is(got, drawgate.ErrLimited) ||
			!strings.Contains(got.Error(), "the store is unavailable") {
			t.Errorf("got %v", got)
		}
	})
	faults := fmt.Sprint(store.FaultTransient, store.FaultConfiguration, store.FaultBucket, store.FaultPermanent,
		store.Fault(9))
	if faults != "transient configuration bucket permanent permanent" {
		t.Errorf("faults %q", faults)
	}
}

// TestResetAfter is how long after the decision nothing of a limit is used, or its window ends.
func TestResetAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // it begins at midnight
		day := drawgate.CalendarLimit("day", 100, drawgate.Day, "")
		l := local(t, policy(rolling(10, time.Minute), day))
		var none drawgate.Decision
		if got := none.ResetAfter(); got != 0 {
			t.Errorf("got %v of no decision, want 0", got)
		}
		one, err := local(t, policy(rolling(10, time.Minute))).Allow(t.Context(), "k")
		if left := []int64{one.Left(0), one.Left(1), one.Left(5), none.Left(0), none.Left(5)}; err != nil ||
			!slices.Equal(left, []int64{9, 0, 0, 0, 0}) {
			t.Errorf("%v is left of one limit, and of none, %v", left, err)
		}
		time.Sleep(time.Hour)
		take(t, l, "k", 4)
		time.Sleep(20 * time.Second)
		st, err := l.Status(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if got := st.ResetAfter(); got != 40*time.Second {
			t.Errorf("got %v of the tightest limit, want 40s", got)
		}
		want := []time.Duration{40 * time.Second, 23*time.Hour - 20*time.Second}
		for r := range st.Limits() {
			if got := r.ResetAfter(); got != want[0] || !r.ResetAt().Equal(st.At().Add(got)) {
				t.Errorf("%s: got %v, want %v", r.Limit.Name, got, want[0])
			}
			want = want[1:]
		}
	})
}

// TestTightestIsByWhatMayBeUsed: headroom, what is kept for higher priorities, and a burst that is
// smaller than the amount make no limit look used up that nobody has used.
func TestTightestIsByWhatMayBeUsed(t *testing.T) {
	t.Parallel()
	used := rolling(10, time.Hour)
	for name, unused := range map[string]drawgate.Limit{
		"headroom": {Kind: drawgate.Rolling, Window: time.Hour, Amount: 100, Headroom: drawgate.Percent(90)},
		"kept": {
			Kind: drawgate.Rolling, Window: time.Hour, Amount: 100,
			ReservedByPriority: map[int]drawgate.Share{5: drawgate.Percent(90)},
		},
		"burst": {Kind: drawgate.Bucket, Window: time.Hour, Amount: 100, Burst: 10},
	} {
		unused.Name, unused.Unit = "unused", "tokens"
		l := local(t, policy(unused, used))
		take(t, l, "k", 5)
		st, err := l.Status(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		tight, ok := st.Tightest()
		if !ok || tight.Limit.Name != used.Name || tight.Part() != 0.5 || st.Remaining() != 5 {
			t.Errorf("%s: got %s with a part of %v, want %s with half of it left", name, tight.Limit.Name, tight.Part(),
				used.Name)
		}
		for r := range st.Limits() {
			if r.Limit.Name == "unused" && r.Part() != 1 {
				t.Errorf("%s: a part of %v is left of a limit that nobody used", name, r.Part())
			}
		}
	}
}
