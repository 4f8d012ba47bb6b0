package drawgate_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// What others get wrong, and callers notice. Line 18 is in TestThousandWaiters.

// TestPeers04NoMinuteHasTwiceTheLimit across the edge of a fixed window, or of one that the first
// take opened. A bucket with a large burst does, by its definition (`drawgate validate` warns of
// it), and calendar limits are fixed windows.
// req: PEERS 4, A1
func TestPeers04NoMinuteHasTwiceTheLimit(t *testing.T) {
	t.Parallel()
	joined := rolling(10, time.Minute)
	joined.Precision = 100
	for name, c := range map[string]struct {
		limit drawgate.Limit
		most  int // in any minute
	}{
		"rolling":         {rolling(10, time.Minute), 10},
		"rolling, joined": {joined, 10},
		"bucket":          {leaky(10, time.Minute, 1), 10},
		"burst 10":        {leaky(10, time.Minute, 10), 19}, // the burst, and then one each six seconds
		"calendar":        {drawgate.Limit{Name: "c", Kind: drawgate.Calendar, Every: drawgate.Minute, Amount: 10}, 19},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
				l := local(t, policy(c.limit))
				take(t, l, "k", 1)
				granted := []time.Time{time.Now()}
				time.Sleep(59 * time.Second)
				for range 5 * 60 * 4 { // all there is, for five minutes
					for d, _ := l.Allow(t.Context(), "k"); d.Allowed; d, _ = l.Allow(t.Context(), "k") {
						granted = append(granted, time.Now())
					}
					time.Sleep(250 * time.Millisecond)
				}
				most, first := 0, 0
				for i, at := range granted {
					for at.Sub(granted[first]) >= time.Minute {
						first++
					}
					most = max(most, i+1-first)
				}
				if most != c.most {
					t.Errorf("%d within a minute, want %d", most, c.most)
				}
			})
		})
	}
}

// TestPeers08RefusalDoesNotStick: what comes back is there at once for whoever was refused before.
// req: PEERS 8
func TestPeers08RefusalDoesNotStick(t *testing.T) {
	t.Parallel()
	comesBack := map[string]func(*testing.T, *drawgate.Limiter, *drawgate.Reservation) error{
		"cancelled": func(t *testing.T, _ *drawgate.Limiter, res *drawgate.Reservation) error {
			t.Helper()
			return res.Cancel(t.Context())
		},
		"settled": func(t *testing.T, _ *drawgate.Limiter, res *drawgate.Reservation) error {
			t.Helper()
			return res.Settle(t.Context(), drawgate.Cost{N: 0})
		},
		"refunded": func(t *testing.T, l *drawgate.Limiter, res *drawgate.Reservation) error {
			t.Helper()
			return errors.Join(res.Settle(t.Context()), l.Ask("k", drawgate.Cost{N: 5}).Refund(t.Context()))
		},
	}
	for _, limit := range []drawgate.Limit{
		rolling(5, time.Hour), leaky(5, time.Hour, 5),
		{Name: "c", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 5},
	} {
		for name, back := range comesBack {
			t.Run(fmt.Sprint(limit.Kind, " ", name), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					refusedThenAllowed(t, local(t, policy(limit)), back)
					refusedThenAllowed(t, over(t, remote(t), policy(limit)), back)
				})
			})
		}
	}
}

// refusedThenAllowed holds all five of k, and asks before and after they come back.
func refusedThenAllowed(t *testing.T, l *drawgate.Limiter, back func(*testing.T, *drawgate.Limiter,
	*drawgate.Reservation) error,
) {
	t.Helper()
	res, err := l.Reserve(t.Context(), "k", time.Minute, drawgate.Cost{N: 5})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed || d.Reason != drawgate.Limited {
			t.Errorf("full: %v, allowed %v, %v", err, d.Allowed, d.Reason)
		}
	}
	if err := back(t, l, res); err != nil {
		t.Error(err)
	}
	if st, err := l.Status(t.Context(), "k"); err != nil || !st.Allowed || st.RetryAfter != 0 {
		t.Errorf("given back: %v, allowed %v, retry after %v", err, st.Allowed, st.RetryAfter)
	}
	take(t, l, "k", 5)
}

// TestRetryAfterIsNeverTheWholeWindow but when this take fits, to the microsecond, for every kind
// (peers 14). req: A6, C7
func TestRetryAfterIsNeverTheWholeWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			limit drawgate.Limit
			wait  time.Duration // after taking 6 at 0 s, 4 at 20 s, for 2 at 30 s
		}{
			{rolling(10, time.Minute), 30 * time.Second},
			// 5 drained of 10: see below
			{leaky(10, time.Minute, 10), time.Second},
			// the minute's end
			{drawgate.Limit{Name: "c", Kind: drawgate.Calendar, Every: drawgate.Minute, Amount: 10}, 30 * time.Second},
			{
				drawgate.Limit{
					Name: "d", Kind: drawgate.Calendar, Every: drawgate.Day, Zone: "Asia/Kolkata",
					Amount: 10,
				},
				18*time.Hour + 29*time.Minute + 30*time.Second,
			},
		} {
			// midnight UTC, 05:30 in India
			time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(24 * time.Hour)))
			l := local(t, policy(c.limit))
			take(t, l, "k", 6)
			time.Sleep(20 * time.Second)
			take(t, l, "k", 4)
			time.Sleep(10 * time.Second)
			n, wait := int64(2), c.wait
			if c.limit.Kind == drawgate.Bucket { // 5 of the 10 have drained by now, 8 do not fit for 18 s
				n, wait = 8, 18*time.Second
			}
			d, err := l.Allow(t.Context(), "k", drawgate.Cost{N: n})
			if err != nil || d.Allowed || d.RetryAfter != wait {
				t.Errorf("%s: %v, allowed %v, retry after %v, want %v", c.limit.Name, err, d.Allowed, d.RetryAfter,
					wait)
				continue
			}
			time.Sleep(d.RetryAfter - time.Microsecond)
			if d, _ := l.Allow(t.Context(), "k", drawgate.Cost{N: n}); d.Allowed || d.RetryAfter != time.Microsecond {
				t.Errorf("%s: fits sooner than it said: %v", c.limit.Name, d.RetryAfter)
			}
			time.Sleep(time.Microsecond)
			take(t, l, "k", n)
		}
	})
}

// TestCostAboveTheBurstIsRefusedAtOnce with an error that says that no wait will help, for every
// kind and every way of asking (peers 15).
func TestCostAboveTheBurstIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for _, limit := range []drawgate.Limit{
			leaky(100, time.Minute, 5), rolling(5, time.Minute),
			{Name: "c", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 5},
			of("requests", slots(5)),
			{Name: "h", Kind: drawgate.Rolling, Window: time.Minute, Amount: 6, Headroom: drawgate.Share{Units: 1}},
			{Name: "m", Kind: drawgate.Bucket, Window: time.Minute, Amount: 60, Burst: 7, Margin: 2 * time.Second},
		} {
			l := local(t, policy(limit))
			six := drawgate.Cost{N: 6}
			_, errAllow := l.Allow(t.Context(), "k", six)
			_, errWait := l.Wait(t.Context(), "k", six)
			_, errReserve := l.Reserve(t.Context(), "k", time.Second, six)
			if limit.Kind == drawgate.Concurrency {
				errAllow, errWait = errReserve, errReserve
			}
			for _, err := range []error{errAllow, errWait, errReserve} {
				wantErr(t, err, drawgate.ErrNeverFits)
				if e, ok := errors.AsType[*drawgate.NeverFitsError](err); !ok || e.N != 6 || e.Max != 5 ||
					e.Limit != limit.Name || e.Policy != "p" {
					t.Errorf("%s: %v", limit.Name, err)
				}
			}
			if _, err := l.Reserve(t.Context(), "k", time.Second, drawgate.Cost{N: 5}); err != nil {
				t.Errorf("%s: 5 fit: %v", limit.Name, err)
			}
		}
		wantTook(t, start, 0, 0)
	})
}

// TestOddInput does no harm: rates below zero, negative and huge costs, costs that overflow when
// they are added, keys of any bytes and of a megabyte (peers 22).
func TestOddInput(t *testing.T) {
	t.Parallel()
	for _, p := range []drawgate.Policy{
		drawgate.PerMinute("minute", -1), drawgate.Rate("rate", -1, time.Minute, 5),
		drawgate.Rate("rate", 5, 0, 5), drawgate.Rate("rate", 5, time.Minute, -1),
	} {
		if _, err := drawgate.New(memory(t), p, nil); err == nil {
			t.Errorf("%+v", p)
		}
	}
	l := local(t, policy(of("tokens", rolling(drawgate.MaxAmount, time.Hour))))
	ctx := t.Context()
	for _, n := range []int64{-1, math.MinInt64, math.MaxInt64, drawgate.MaxAmount + 1} {
		_, err := l.Allow(ctx, "k", tokens(n))
		wantErr(t, err, drawgate.ErrInvalid)
	}
	most := tokens(drawgate.MaxAmount)
	_, err := l.Allow(ctx, "k", most, most, most, most, most, most, most, most, most, most)
	wantErr(t, err, drawgate.ErrInvalid)
	d, err := l.Allow(ctx, "k", most, tokens(0))
	if err != nil || !d.Allowed || d.Remaining() != 0 {
		t.Errorf("%v, %v", err, d.Err())
	}
	for range 100 {
		if d, err := l.Allow(ctx, "k", most); err != nil || d.Allowed {
			t.Error(err, "allowed")
		}
	}
	wantUsed(t, l, "k", drawgate.MaxAmount)
	held, err := l.Reserve(ctx, "held", time.Hour, tokens(1))
	if err == nil {
		err = held.Settle(ctx, most, most) // it was used, and has to count
	}
	wantErr(t, err, nil)
	wantUsed(t, l, "held", drawgate.MaxAmount)

	l = local(t, drawgate.PerHour("hour", 1))
	for _, key := range []string{
		"", "\x00", "\xff\xfe", "{}", "%00", "a:b", "ключ",
		strings.Repeat("x", drawgate.MaxKey),
	} {
		take(t, l, key, 1)
		if d, err := l.Allow(ctx, key); err != nil || d.Allowed {
			t.Errorf("%.20q: %v, allowed %v", key, err, d.Allowed)
		}
	}
	_, err = l.Allow(ctx, strings.Repeat("x", 1<<20))
	if wantErr(t, err, drawgate.ErrInvalid); err != nil && len(err.Error()) > 200 {
		t.Errorf("the text has %d bytes", len(err.Error()))
	}
}

// TestClockBack: a clock that jumps back mints nothing, and costs at most what it jumped (peers
// 22).
func TestClockBack(t *testing.T) {
	t.Parallel()
	for _, limit := range []drawgate.Limit{
		leaky(10, time.Minute, 10), rolling(10, time.Minute),
		{Name: "c", Kind: drawgate.Calendar, Every: drawgate.Minute, Amount: 10},
	} {
		plan, err := policy(limit).Compile()
		if err != nil {
			t.Fatal(err)
		}
		rec := &record.Record{}
		n, _ := plan.Amounts(nil)
		ask := func(now time.Time) store.Verdict {
			t := store.Take{Buckets: []store.BucketCost{{
				Key: drawgate.Key{Policy: "p", Name: "k"}, Plan: plan.Plan,
				N: n,
			}}}
			return store.Internal.Decide(&t, []*record.Record{rec}, true, now.UnixMicro())
		}
		noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		granted := 0
		for _, back := range []time.Duration{0, time.Second, time.Hour, 1000 * 24 * time.Hour} {
			for range 20 {
				if d := ask(noon.Add(-back)); d.Allowed {
					granted++
				} else if d.RetryAfter <= 0 || d.RetryAfter > time.Minute || d.At().Before(noon) {
					t.Errorf("%s, %v back: retry after %v at %v", limit.Name, back, d.RetryAfter, d.At())
				}
			}
		}
		if granted != 10 {
			t.Errorf("%s: %d granted, want 10", limit.Name, granted)
		}
		granted = 0
		for range 20 {
			if d := ask(noon.Add(time.Minute)); d.Allowed {
				granted++
			}
		}
		if granted != 10 {
			t.Errorf("%s: %d granted a minute later, want 10", limit.Name, granted)
		}
	}
}

// TestSlowLimitIsNotStarvedByPolling: no fraction of a unit is lost, however often it is asked for
// (peers 13). req: A5, B1
func TestSlowLimitIsNotStarvedByPolling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.Rate("rate", 5, time.Minute, 5))
		take(t, l, "k", 5)
		start, granted := time.Now(), 0
		for time.Since(start) < 10*time.Minute {
			time.Sleep(33 * time.Millisecond)
			if d, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			} else if d.Allowed {
				granted++
			}
		}
		if granted != 50 {
			t.Errorf("%d in ten minutes, want 50", granted)
		}
	})
}

// TestManyKeys: each has a quota of its own, and what one does is nothing to another (peers 22, in
// small).
func TestManyKeys(t *testing.T) {
	t.Parallel()
	l := local(t, drawgate.PerHour("hour", 2))
	for i := range 20_000 {
		take(t, l, fmt.Sprint(i), 1+int64(i)%2)
	}
	for i := range 20_000 {
		d, err := l.Allow(t.Context(), fmt.Sprint(i))
		if err != nil || d.Allowed != (i%2 == 0) {
			t.Fatalf("key %d: %v, allowed %v", i, err, d.Allowed)
		}
	}
}
