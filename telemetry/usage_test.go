package telemetry_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/telemetry"
)

// The usage of a bucket is that of when metrics are read, not of when the bucket was last used.
//
// req: D7 C11
func TestUsageIsReadWithTheMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &telemetry.Options{Watch: []telemetry.Watched{{
			Policy: "tiers", Key: "default",
			Name: "all tasks",
		}}})
		l := r.limiter(drawgate.Policy{Name: "tiers", Limits: []drawgate.Limit{
			{Name: "rpm", Kind: drawgate.Rolling, Window: time.Minute, Amount: 20, Headroom: drawgate.Share{Units: 2}},
			{Name: "rpw", Kind: drawgate.Calendar, Every: drawgate.Week, Amount: 2000},
		}})
		allow(t, l, "default", 5)
		minute := []string{"period", "minute", "policy", "tiers", "limit", "rpm", "identifier", "all tasks"}
		week := []string{"period", "week", "policy", "tiers", "limit", "rpw", "identifier", "all tasks"}
		r.want(5, "rate_limit_current_usage", minute...)
		r.want(5, "rate_limit_current_usage", week...)
		r.want(18, "rate_limit_max_allowed", minute...)
		r.want(2000, "rate_limit_max_allowed", week...)
		r.want(13, "rate_limit_tokens_remaining", "scope", "tiers")
		r.want(60, "rate_limit_window_reset_seconds", minute...)
		left, _ := r.value("rate_limit_window_reset_seconds", week...)
		time.Sleep(61 * time.Second)
		r.want(0, "rate_limit_current_usage", minute...)
		r.want(5, "rate_limit_current_usage", week...)
		r.want(1995, "rate_limit_tokens_remaining", "scope", "tiers") // of the week: nothing of the minute is used
		r.want(0, "rate_limit_window_reset_seconds", minute...)
		r.want(left-61, "rate_limit_window_reset_seconds", week...)
	})
}

// The bucket of a policy with one key is watched without being named, until a second key is seen.
func TestPolicyWithOneKeyIsWatchedByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := telemetry.NewHasher(nil)
		r := newRig(t, &telemetry.Options{Hasher: h})
		l := r.limiter(rolling("global", "rps", 10, time.Second))
		allow(t, l, "only", 3)
		id := h.Key(drawgate.Key{Policy: "global", Name: "only"})
		labels := []string{"period", "second", "policy", "global", "limit", "rps", "identifier", id}
		r.want(3, "rate_limit_current_usage", labels...)
		r.want(0, "drawgate_bucket_open_reservations", "policy", "global", "identifier", id)
		allow(t, l, "another", 1)
		time.Sleep(1500 * time.Millisecond)
		r.none("rate_limit_current_usage", labels...)
		r.want(9, "rate_limit_tokens_remaining", "scope", "global") // as last seen
	})
}

// However often metrics are read, the store is asked at most once a second, in one call.
func TestStoreIsReadOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		for i := range telemetry.MaxWatched + 5 {
			allow(t, r.limiter(rolling(fmt.Sprintf("p%03d", i), "rpm", 10, time.Minute)), "k", 1)
		}
		for range 3 {
			if n := len(r.family("rate_limit_current_usage").GetMetric()); n != telemetry.MaxWatched {
				t.Fatalf("got %d buckets", n)
			}
		}
		if n := r.store.peeks.Load(); n != 1 {
			t.Errorf("got %d calls of the store", n)
		}
		if n := len(r.family("rate_limit_tokens_remaining").GetMetric()); n != telemetry.MaxWatched+5 {
			t.Errorf("%d policies have something left", n)
		}
	})
}

// While the store is unavailable no usage is shown, rather than an old one.
func TestUnavailableStoreShowsNoUsage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		allow(t, r.limiter(rolling("p", "rpm", 10, time.Minute)), "k", 1)
		r.store.down.Store(true)
		if f := r.family("rate_limit_current_usage"); f != nil {
			t.Errorf("got %v, want no usage", f)
		}
		r.want(1, "drawgate_usage_read_errors_total")
		r.want(9, "rate_limit_tokens_remaining", "scope", "p")
		r.store.down.Store(false)
		time.Sleep(time.Second)
		if n := len(r.family("rate_limit_current_usage").GetMetric()); n != 1 {
			t.Errorf("got %d series", n)
		}
	})
}

// Two watched buckets that would have the same labels are shown once. A bucket of an unknown policy
// is not shown.
func TestWatchedBucketsDoNotClash(t *testing.T) {
	t.Parallel()
	plans := map[string]*store.Plan{}
	r := newRig(t, &telemetry.Options{
		Plan: func(k drawgate.Key) *store.Plan { return plans[k.Policy] },
		Watch: []telemetry.Watched{
			{Policy: "p", Key: "a", Name: "x"},
			{Policy: "p", Key: "b", Name: "x"},
			{Policy: "q", Key: "a"},
			{Policy: "p", Tenant: "t", Key: "a"},
		},
	})
	l := r.limiter(rolling("p", "rpm", 10, time.Minute))
	plans["p"] = l.Plan().Plan
	if n := len(r.family("rate_limit_current_usage").GetMetric()); n != 2 {
		t.Errorf("got %d series", n)
	}
}

// Period names the windows of limits.
func TestPeriodNamesWindows(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct {
		limit drawgate.Limit
		want  string
	}{
		{drawgate.Limit{Kind: drawgate.Rolling, Window: time.Second}, "second"},
		{drawgate.Limit{Kind: drawgate.Bucket, Window: time.Minute}, "minute"},
		{drawgate.Limit{Kind: drawgate.Rolling, Window: time.Hour}, "hour"},
		{drawgate.Limit{Kind: drawgate.Rolling, Window: day}, "day"},
		{drawgate.Limit{Kind: drawgate.Rolling, Window: 7 * day}, "week"},
		{drawgate.Limit{Kind: drawgate.Rolling, Window: 30 * day}, "month"},
		{drawgate.Limit{Kind: drawgate.Rolling, Window: 31 * day}, "744h"},
		{drawgate.Limit{Kind: drawgate.Rolling, Window: 90 * time.Second}, "90s"},
		{drawgate.Limit{Kind: drawgate.Rolling, Window: 90 * time.Minute}, "90m"},
		{drawgate.Limit{Kind: drawgate.Rolling, Window: 1500 * time.Millisecond}, "1500ms"},
		{drawgate.Limit{Kind: drawgate.Rolling, Window: 1500 * time.Microsecond}, "1500us"},
		{drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Month, Anchor: 3}, "month"},
		{drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Day}, "day"},
		{drawgate.Limit{Kind: drawgate.Concurrency}, "open"},
	} {
		if got := telemetry.Period(&c.limit); got != c.want {
			t.Errorf("%v %v is %q, want %q", c.limit.Kind, c.limit.Window, got, c.want)
		}
	}
}
