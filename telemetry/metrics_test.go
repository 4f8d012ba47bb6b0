package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/telemetry"
)

// A refused take is counted once, and once for each limit and key that refuses.
//
// req: B9 D7 E8
func TestRefusalIsCountedForItsLimitAndKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, &telemetry.Options{RawIdentifiers: true})
	minute := r.limiter(tiers("minute", 2))
	o, err := minute.With(rolling("day", "rpd", 1, 24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	both := func() {
		if _, _, err := minute.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{
			minute.Ask("a"),
			o.Ask("b"),
		}}); err != nil {
			t.Fatal(err)
		}
	}
	both()                       // allowed
	both()                       // refused by the day
	allow(t, minute, "a", 2)     // allowed, refused by the minute
	both()                       // refused by both
	allow(t, minute, "other", 1) // allowed
	r.want(3, "rate_limit_rejections_total", "reason", "distributed_exhausted")
	r.want(0, "rate_limit_rejections_total", "reason", "local_exhausted")
	r.want(2, "rate_limit_hits_total", "type", "minute", "identifier", "a")
	r.want(0, "rate_limit_hits_total", "type", "minute", "identifier", "other")
	r.want(2, "rate_limit_hits_total", "type", "day", "identifier", "b")
	r.want(2, "rate_limit_exceeded_total", "period", "minute", "policy", "minute", "limit", "rpm")
	r.want(2, "rate_limit_exceeded_total", "period", "day", "policy", "day", "limit", "rpd")
	r.want(3, "drawgate_decisions_total", "policy", "minute", "outcome", "allowed")
	r.want(2, "drawgate_decisions_total", "policy", "minute", "outcome", "refused")
	r.want(1, "drawgate_decisions_total", "policy", "minute", "outcome", "refused_by_other")
	r.want(1, "drawgate_decisions_total", "policy", "day", "outcome", "allowed")
	r.want(6, "rate_limit_check_duration_seconds")
	r.want(3, "drawgate_decision_duration_seconds", "outcome", "refused")
	r.want(6, "drawgate_store_duration_seconds", "op", "take")
}

// A refusal has one reason: the limit that all processes share is used up, this process's own limit
// is used up, or the store is unavailable. It is counted once.
//
// req: E8 A10
func TestRefusalIsCountedWithItsReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		local  bool
		change func(*drawgate.Taken)
		want   string
	}{
		{"of all", false, func(*drawgate.Taken) {}, "distributed_exhausted"},
		{"store in this process", true, func(*drawgate.Taken) {}, "local_exhausted"},
		{"share used up", false, func(e *drawgate.Taken) { e.Decision.Fallback = true }, "local_exhausted"},
		{"closed", false, func(e *drawgate.Taken) {
			e.Decision.Fallback, e.Decision.Reason = true,
				drawgate.Unavailable
		}, "backend_error"},
		{"paused", false, func(e *drawgate.Taken) { e.Decision.Reason = drawgate.Paused }, "paused"},
		{"queued", false, func(e *drawgate.Taken) { e.Decision.Reason = drawgate.Queued }, "distributed_exhausted"},
		{
			"waited too long", false, func(e *drawgate.Taken) { e.Wait, e.Err = true, drawgate.ErrDeadline },
			"distributed_exhausted",
		},
		{"queue full", false, func(e *drawgate.Taken) {
			e.Decision, e.Err = &drawgate.Decision{},
				drawgate.ErrQueueFull
		}, "distributed_exhausted"},
		{
			"not decided", false, func(e *drawgate.Taken) { e.Decision, e.Err = &drawgate.Decision{}, errDown },
			"backend_error",
		},
		{"gave up", false, func(e *drawgate.Taken) {
			e.Wait, e.Decision, e.Err = true, &drawgate.Decision{},
				&drawgate.GaveUpError{MaySpend: true, Err: drawgate.ErrDeadline}
		}, ""},
		{"gave up on a store that is unavailable", false, func(e *drawgate.Taken) {
			e.Wait, e.Decision, e.Err = true, &drawgate.Decision{},
				&drawgate.GaveUpError{MaySpend: true, Err: drawgate.ErrDeadline, Store: errDown}
		}, "backend_error"},
		{
			"caller left", false, func(e *drawgate.Taken) {
				e.Decision, e.Err = &drawgate.Decision{},
					context.Canceled
			},
			"",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, &telemetry.Options{Local: c.local})
			_, e := decisions(t, 1)
			c.change(e)
			r.m.Observer().Taken(e)
			for _, reason := range []string{"distributed_exhausted", "local_exhausted", "backend_error", "paused"} {
				n := 0.0
				if reason == c.want {
					n = 1
				}
				r.want(n, "rate_limit_rejections_total", "reason", reason)
			}
			if c.want == "backend_error" || c.want == "paused" { // which is no limit's doing
				r.none("rate_limit_exceeded_total", "period", "minute", "policy", "p0", "limit", "rpm")
			}
		})
	}
}

// Errors of the store are counted by their class.
//
// req: E7 E8
func TestStoreErrorsAreCountedByClass(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	l := r.limiter(tiers("p", 5))
	r.store.down.Store(true)
	for range 3 {
		if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, drawgate.ErrStoreUnavailable) {
			t.Fatal(err)
		}
	}
	r.want(3, "rate_limit_backend_errors_total")
	r.want(3, "rate_limit_rejections_total", "reason", "backend_error")
	r.want(3, "drawgate_store_errors_total", "op", "take", "class", "transient")
	r.want(3, "drawgate_decisions_total", "policy", "p", "outcome", "error")
	called := r.m.Observer().Called
	for _, c := range []struct {
		err   error
		class string
		more  float64 // backend errors
	}{
		{context.DeadlineExceeded, "timeout", 1},
		{&drawgate.StoreError{Err: errors.New("NOAUTH"), Fault: store.FaultConfiguration}, "configuration", 1},
		{&drawgate.StoreError{Err: errors.New("a record"), Fault: store.FaultBucket}, "bucket", 1},
		{&drawgate.StoreError{Err: errors.New("damaged"), Fault: store.FaultPermanent}, "permanent", 1},
		{fmt.Errorf("take: %w", context.Canceled), "caller", 0},
		{drawgate.ErrIDReused, "invalid", 0},
		{errors.New("anything"), "transient", 1},
	} {
		before, _ := r.value("rate_limit_backend_errors_total")
		called(&drawgate.StoreCall{Op: "settle", Err: c.err})
		r.want(1, "drawgate_store_errors_total", "op", "settle", "class", c.class)
		r.want(before+c.more, "rate_limit_backend_errors_total")
	}
	called(&drawgate.StoreCall{Op: "brew"})
	r.want(1, "drawgate_store_duration_seconds", "op", "other")
}

// The time of a wait is measured separately from the time to decide.
//
// req: B9
func TestWaitIsMeasuredApartFromDeciding(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		l := r.limiter(drawgate.Rate("rate", 1, time.Second, 1))
		allow(t, l, "k", 1)
		if _, err := l.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		r.want(1, "rate_limit_waits_total", "type", "rate")
		r.want(1, "rate_limit_wait_duration_seconds", "type", "rate")
		r.want(1, "drawgate_queue_wait_seconds")
		h := r.family("rate_limit_wait_duration_seconds").GetMetric()[0].GetHistogram()
		if s := h.GetSampleSum(); s < 1 || s > 1.1 {
			t.Errorf("sum of waits: got %v s", s)
		}
		var bounds []string
		for _, b := range h.GetBucket() {
			bounds = append(bounds, fmt.Sprint(b.GetUpperBound()))
		}
		if got := strings.Join(bounds, " "); got != "0.1 0.5 1 5 10 30 60" {
			t.Errorf("buckets %s", got)
		}
		if s := r.family("rate_limit_check_duration_seconds").GetMetric()[0].GetHistogram().GetSampleSum(); s > 0.1 {
			t.Errorf("deciding took %v s", s)
		}
	})
}

// Of the lines of all processes the longest one of each policy is shown.
//
// req: C5
func TestLinesOfAllProcesses(t *testing.T) {
	t.Parallel()
	lines := []drawgate.Line{
		{
			Key: drawgate.Key{Policy: "a", Name: "1"}, Waiting: 2, Longest: time.Second, Tickets: 5,
			Oldest: 3 * time.Second,
		},
		{
			Key: drawgate.Key{Policy: "a", Name: "2"}, Waiting: 1, Longest: 2 * time.Second, Tickets: 4,
			Oldest: 9 * time.Second,
		},
		{Key: drawgate.Key{Policy: "b", Name: "1"}, Waiting: 1, Tickets: 1, Oldest: time.Second},
		{Key: drawgate.Key{Policy: "c", Name: "1"}, Waiting: 1},
	}
	r := newRig(t, &telemetry.Options{Lines: func() []drawgate.Line { return lines }})
	r.want(5, "drawgate_queue_length")
	r.want(2, "drawgate_queue_oldest_seconds")
	r.want(5, "drawgate_line_length", "policy", "a")
	r.want(9, "drawgate_line_oldest_seconds", "policy", "a")
	r.want(1, "drawgate_line_length", "policy", "b")
	r.want(1, "drawgate_line_oldest_seconds", "policy", "b")
	all, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if n := len(f.GetMetric()); f.GetName() == "drawgate_line_length" && n != 2 {
			t.Errorf("%d policies have a line", n)
		}
	}
}

// The queue is shown as it is when metrics are read.
func TestQueueIsShownAsItIsNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l *drawgate.Limiter
		r := newRig(t, &telemetry.Options{Lines: func() []drawgate.Line { return l.Lines() }})
		l = r.limiter(drawgate.Rate("rate", 1, time.Minute, 1))
		allow(t, l, "k", 1)
		r.want(0, "drawgate_queue_length")
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			wg.Go(func() {
				if _, err := l.Wait(ctx, "k"); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		time.Sleep(3 * time.Second)
		r.want(2, "drawgate_queue_length")
		r.want(3, "drawgate_queue_oldest_seconds")
		cancel()
		wg.Wait()
		r.want(0, "drawgate_queue_length")
		r.want(0, "drawgate_queue_oldest_seconds")
		r.want(2, "drawgate_decisions_total", "policy", "rate", "outcome", "ended")
		r.want(0, "rate_limit_rejections_total", "reason", "distributed_exhausted")
	})
}

// A reservation counts as open until it is settled or its hold ends by itself.
func TestReservationCountsAsOpenUntilItEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		l := r.limiter(tiers("p", 10))
		var held []*drawgate.Reservation
		for range 4 {
			res, err := l.Reserve(t.Context(), "k", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, res)
		}
		r.want(4, "drawgate_open_reservations")
		for _, err := range []error{
			held[0].Settle(t.Context()), held[1].Cancel(t.Context()),
			held[2].Renew(t.Context(), 2*time.Minute),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		r.want(2, "drawgate_open_reservations")
		time.Sleep(61 * time.Second)
		r.want(1, "drawgate_open_reservations")
		if err := held[3].Cancel(t.Context()); !errors.Is(err, drawgate.ErrGone) {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		r.want(0, "drawgate_open_reservations")
		for _, result := range []string{"settled", "cancelled", "renewed", "gone"} {
			r.want(1, "drawgate_settlements_total", "result", result)
		}
		r.want(0, "drawgate_settlements_total", "result", "error")
	})
}

// What a process decides by itself is counted as a decision of the fallback.
//
// req: A10
func TestFallbackDecisionsAreCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	yes, no := decisions(t, 1)
	yes.Decision.Fallback, no.Decision.Fallback = true, true
	r.m.Observer().Taken(yes)
	r.m.Observer().Taken(no)
	r.want(1, "drawgate_fallback_decisions_total", "policy", "p0", "outcome", "allowed")
	r.want(1, "drawgate_fallback_decisions_total", "policy", "p0", "outcome", "refused")
	r.want(1, "drawgate_decisions_total", "policy", "p0", "outcome", "allowed")
}

// With a guard, this process answers from the first failure of the store on, which counts as a
// fallback. The breaker's state shows. Each failed attempt is one backend error, however many
// callers wait for it. What was admitted meanwhile is charged to the store.
//
// req: A10 C11 D10 E7 E8
func TestStoreUnavailableBehindAGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g *guard.Store
		r := newRig(t, &telemetry.Options{Guard: func() guard.State { return g.State() }})
		warnings := make(chan string, 100)
		w := telemetry.NewWarner(nil, func(w *telemetry.Warning) { warnings <- line(w) })
		g = guard.New(r.store, &guard.Options{
			Instances: 1, Start: drawgate.StartFull,
			Observer: telemetry.JoinGuards(r.m.Guard(), w.Guard()),
		})
		defer g.Close()
		share := rolling("share", "rpm", 8, time.Minute)
		share.Fallback = drawgate.FallbackShare
		l, err := drawgate.New(g.Full(), share, &drawgate.Options{Observer: r.m.Observer()})
		if err != nil {
			t.Fatal(err)
		}
		shut := rolling("closed", "rpm", 8, time.Minute)
		shut.Fallback = drawgate.FallbackClosed
		c, err := l.With(shut)
		if err != nil {
			t.Fatal(err)
		}
		allow(t, l, "k", 2)
		r.want(1, "drawgate_store_breaker_state", "state", "closed")
		r.store.down.Store(true)
		allow(t, l, "k", 7) // 6 by this process, one refused
		allow(t, c, "k", 2)
		r.want(6, "drawgate_fallback_decisions_total", "policy", "share", "outcome", "allowed")
		r.want(1, "drawgate_fallback_decisions_total", "policy", "share", "outcome", "refused")
		r.want(1, "rate_limit_rejections_total", "reason", "local_exhausted")
		r.want(2, "rate_limit_rejections_total", "reason", "backend_error")
		r.want(0, "rate_limit_rejections_total", "reason", "distributed_exhausted")
		r.want(1, "drawgate_store_breaker_state", "state", "open")
		r.want(0, "drawgate_store_breaker_state", "state", "closed")
		r.want(1, "drawgate_store_breaker_transitions_total", "state", "open")
		failed := 0.0
		for _, m := range r.family("drawgate_store_errors_total").GetMetric() {
			failed += amount(m)
		}
		r.want(3, "rate_limit_backend_errors_total") // which open the breaker
		if failed != 3 {
			t.Errorf("failed calls: got %v", failed)
		}
		calls, _ := r.value("drawgate_store_duration_seconds", "op", "take")
		allow(t, l, "k", 10)
		r.want(calls, "drawgate_store_duration_seconds", "op", "take") // the store is not asked any more
		r.want(1, "drawgate_fallback_owed_buckets")
		r.want(1, "rate_limiter_fallback_activated_total")
		r.want(1, "drawgate_instances")
		r.want(1, "drawgate_instance_may_share")
		r.store.down.Store(false)
		time.Sleep(3 * time.Second)
		r.want(1, "drawgate_store_breaker_state", "state", "closed")
		r.want(1, "drawgate_store_breaker_transitions_total", "state", "closed")
		r.want(0, "drawgate_fallback_owed_buckets")
		if n, _ := r.value("drawgate_store_probes_total", "result", "success"); n < 1 {
			t.Errorf("successful probes: got %v", n)
		}
		if n, _ := r.value("drawgate_fallback_charged_buckets_total"); n < 1 {
			t.Errorf("charged buckets: got %v", n)
		}
		w.Close()
		close(warnings)
		var all []string
		for s := range warnings {
			all = append(all, s)
		}
		check(t, all[:2], "fallback_activated", "fallback_ended")
	})
}

// Reloads are counted, and the time of the configuration in force is shown.
func TestReloadsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		start, _ := r.value("drawgate_config_last_reload_success_timestamp_seconds")
		time.Sleep(time.Hour)
		r.m.Reloaded(errors.New("a broken file"))
		r.want(0, "drawgate_config_last_reload_successful")
		r.want(start, "drawgate_config_last_reload_success_timestamp_seconds")
		r.m.Reloaded(nil)
		r.want(1, "drawgate_config_last_reload_successful")
		r.want(start+3600, "drawgate_config_last_reload_success_timestamp_seconds")
		r.want(0, "drawgate_config_restart_pending")
		r.m.RestartPending(true)
		r.want(1, "drawgate_config_restart_pending")
		r.m.RestartPending(false)
		r.want(0, "drawgate_config_restart_pending")
		r.want(1, "drawgate_config_reloads_total", "result", "failure")
		r.want(1, "drawgate_config_reloads_total", "result", "success")
	})
}

// Requests of Envoy that were not decided are counted by the code of their error.
func TestUndecidedRequestsOfEnvoyAreCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, code := range []string{"InvalidArgument", "Unavailable", "Unavailable", "DataLoss"} {
		r.m.EnvoyUndecided(code)
	}
	r.want(1, "drawgate_envoy_undecided_total", "code", "InvalidArgument")
	r.want(2, "drawgate_envoy_undecided_total", "code", "Unavailable")
	r.want(1, "drawgate_envoy_undecided_total", "code", "other")
	r.want(0, "drawgate_envoy_undecided_total", "code", "FailedPrecondition")
}

// Requests to /auth that were not decided are counted by their reason.
func TestUndecidedRequestsOfProxiesAreCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, reason := range []string{"token", "untrusted", "untrusted", "a new one"} {
		r.m.ForwardAuthUndecided(reason)
	}
	r.want(1, "drawgate_forward_auth_undecided_total", "reason", "token")
	r.want(2, "drawgate_forward_auth_undecided_total", "reason", "untrusted")
	r.want(1, "drawgate_forward_auth_undecided_total", "reason", "other")
	r.want(0, "drawgate_forward_auth_undecided_total", "reason", "store")
}

// A refusal by a shadow is not counted as a refusal. Divergence is counted in both directions.
//
// req: E9
func TestShadowRefusalIsNotCountedAsARefusal(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	e, err := engine.New(r.store, engine.Config{Policies: []engine.Policy{
		{Policy: tiers("live", 10)}, {Policy: tiers("candidate", 1), Shadow: true},
	}}, &engine.Options{
		Observer: r.m.Observer(), Diverged: r.m.Diverged, ShadowGrace: time.Minute,
		StoreTimeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	r.m.Declare(e.Config().Policies...)
	for range 3 {
		asks := []engine.Ask{{Policy: "live", Key: "k"}, {Policy: "candidate", Key: "k"}}
		res, err := e.Take(t.Context(), &engine.Request{Asks: asks, Hold: time.Minute})
		if err != nil || !res.Decision.Allowed {
			t.Fatalf("the take: got allowed %v, %v, want it allowed", res.Decision.Allowed, err)
		}
	}
	r.want(3, "drawgate_open_reservations")
	r.want(2, "rate_limit_shadow_divergence_total", "policy", "candidate", "direction", "would_refuse")
	r.want(0, "rate_limit_shadow_divergence_total", "policy", "candidate", "direction", "would_allow")
	r.want(0, "rate_limit_rejections_total", "reason", "distributed_exhausted")
	r.want(3, "drawgate_decisions_total", "policy", "live", "outcome", "allowed")
	r.want(0, "drawgate_decisions_total", "policy", "candidate", "outcome", "allowed")
	r.m.Diverged(&engine.Divergence{Policy: "candidate", Way: engine.WouldAllow})
	r.want(1, "rate_limit_shadow_divergence_total", "policy", "candidate", "direction", "would_allow")
}

// The series of declared policies start at zero, so that a rate shows the first refusal.
func TestDeclaredPoliciesStartAtZero(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.m.Declare(engine.Policy{Policy: tiers("p", 1)})
	r.want(0, "rate_limit_exceeded_total", "period", "day", "policy", "p", "limit", "rpd")
	r.want(0, "rate_limit_hits_total", "type", "p", "identifier", "other")
	r.want(0, "drawgate_decisions_total", "policy", "p", "outcome", "refused")
	r.want(0, "drawgate_limit_milestones_total", "policy", "p", "limit", "rpm", "milestone", "80")
}

// Two Metrics cannot share a registry, and too many buckets cannot be watched.
func TestMetricsRejectsMistakes(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if _, err := telemetry.NewMetrics(r.reg, nil); err == nil {
		t.Error("two Metrics on one registry: got no error, want one")
	}
	_, err := telemetry.NewMetrics(prometheus.NewRegistry(),
		&telemetry.Options{Watch: make([]telemetry.Watched, telemetry.MaxWatched+1)})
	if err == nil {
		t.Error("101 watched buckets: got no error, want one")
	}
}
