package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/telemetry"
)

// warned runs f in a bubble with a limiter that a Warner watches. news returns the warnings since
// it was last called.
func warned(t *testing.T, p drawgate.Policy, opts *telemetry.WarnerOptions,
	f func(t *testing.T, l *drawgate.Limiter, w *telemetry.Warner, news func() []string),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		warnings := make(chan string, 10_000)
		w := telemetry.NewWarner(opts, func(w *telemetry.Warning) { warnings <- line(w) })
		defer w.Close()
		l, err := drawgate.New(memstore.New(nil), p, &drawgate.Options{Observer: w.Observer()})
		if err != nil {
			t.Fatal(err)
		}
		f(t, l, w, func() (all []string) {
			synctest.Wait()
			for len(warnings) > 0 {
				all = append(all, <-warnings)
			}
			return all
		})
	})
}

// line returns a warning in short form.
func line(w *telemetry.Warning) string {
	s := string(w.Kind)
	if w.Limit != "" {
		s += " " + w.Limit
	}
	if w.Percent > 0 {
		s += fmt.Sprintf(" %d%%", w.Percent)
	}
	if w.Suppressed > 0 {
		s += fmt.Sprintf(" +%d", w.Suppressed)
	}
	return s
}

func check(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("told %q, want %q", got, want)
	}
}

// The first refusal is reported at once, then at most one per interval, with the number of the
// others. The last ones are reported too.
//
// req: D9
func TestRefusalsAreSampled(t *testing.T) {
	t.Parallel()
	p := rolling("p", "rpd", 1, 24*time.Hour)
	warned(t, p, nil, func(t *testing.T, l *drawgate.Limiter, w *telemetry.Warner, news func() []string) {
		for i := range 100 {
			allow(t, l, fmt.Sprint(i), 1)
		}
		time.Sleep(time.Hour)
		news() // of milestones
		allow(t, l, "1", 1)
		check(t, news(), "limit_exceeded rpd")
		allow(t, l, "2", 500)
		check(t, news())
		time.Sleep(61 * time.Second)
		check(t, news(), "limit_exceeded rpd +500")
		allow(t, l, "3", 10)
		check(t, news(), "limit_exceeded rpd")
		w.Close()
		check(t, news(), "limit_exceeded rpd +9")
	})
}

// Each milestone of a limit is reported once per window.
//
// req: D9 C11
func TestMilestoneIsReportedOncePerWindow(t *testing.T) {
	t.Parallel()
	p := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{{
		Name: "rpd", Kind: drawgate.Calendar, Every: drawgate.Day,
		Amount: 100,
	}}}
	warned(t, p, nil, func(t *testing.T, l *drawgate.Limiter, _ *telemetry.Warner, news func() []string) {
		for range 2 { // days
			allow(t, l, "k", 49)
			check(t, news())
			allow(t, l, "k", 1)
			check(t, news(), "milestone rpd 50%")
			allow(t, l, "k", 29)
			check(t, news())
			allow(t, l, "k", 1)
			check(t, news(), "milestone rpd 80%")
			allow(t, l, "k", 15)
			check(t, news(), "milestone rpd 95%")
			allow(t, l, "k", 5)
			check(t, news(), "milestone rpd 100%")
			time.Sleep(24 * time.Hour)
			check(t, news())
		}
	})
}

// Usage that moves around a milestone is reported again only after it was well below, and at most
// once per window.
//
// req: D9
func TestMilestonesHaveHysteresis(t *testing.T) {
	t.Parallel()
	p := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{{
		Name: "rate", Kind: drawgate.Bucket,
		Window: 100 * time.Second, Amount: 100,
	}}}
	warned(t, p, nil, func(t *testing.T, l *drawgate.Limiter, _ *telemetry.Warner, news func() []string) {
		allow(t, l, "k", 82)
		check(t, news(), "milestone rate 50%", "milestone rate 80%")
		for range 300 { // one unit per second drains, and is taken again
			time.Sleep(3 * time.Second)
			allow(t, l, "k", 3)
		}
		check(t, news())
		time.Sleep(15 * time.Second) // to 67
		allow(t, l, "k", 15)
		check(t, news(), "milestone rate 80%")
		time.Sleep(15 * time.Second)
		allow(t, l, "k", 15) // within the window
		check(t, news())
		time.Sleep(200 * time.Second) // to 0
		allow(t, l, "k", 1)
		allow(t, l, "k", 99)
		check(t, news(), "milestone rate 50%", "milestone rate 80%", "milestone rate 95%", "milestone rate 100%")
	})
}

// At most ten milestones of one limit are reported per interval, whatever the number of keys. All
// are counted.
func TestManyMilestonesAreSampled(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m, err := telemetry.NewMetrics(reg, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, reg: reg}
	p := rolling("p", "rpm", 1, time.Hour)
	warned(t, p, &telemetry.WarnerOptions{Metrics: m}, func(t *testing.T, l *drawgate.Limiter, _ *telemetry.Warner,
		news func() []string,
	) {
		for i := range 1000 {
			allow(t, l, fmt.Sprint(i), 1)
		}
		check(t, news(), slices.Repeat([]string{"milestone rpm 100%"}, 4)...)
		time.Sleep(61 * time.Second)
		check(t, news(), "milestone rpm 100% +996")
		r.want(1000, "drawgate_limit_milestones_total", "policy", "p", "limit", "rpm", "milestone", "100")
		r.want(1000, "drawgate_limit_milestones_total", "policy", "p", "limit", "rpm", "milestone", "50")
		r.want(5, "drawgate_warnings_total", "kind", "milestone", "result", "told")
	})
}

// With a limit of five, three of five takes reach a milestone. With many keys only few of these are
// reported, and more of the higher milestones.
func TestSmallLimitsAreReportedSparingly(t *testing.T) {
	t.Parallel()
	warned(t, rolling("p", "rpm", 5, time.Hour), nil, func(t *testing.T, l *drawgate.Limiter, _ *telemetry.Warner,
		news func() []string,
	) {
		for i := range 1000 {
			for range 5 {
				allow(t, l, fmt.Sprint(i), 1)
			}
		}
		count := map[string]int{}
		for _, line := range news() {
			count[line]++
		}
		if want := (map[string]int{
			"milestone rpm 50%": 1, "milestone rpm 80%": 2,
			"milestone rpm 100%": 4,
		}); !maps.Equal(count, want) {
			t.Errorf("told %v, want %v", count, want)
		}
	})
}

// A flood of keys takes no more memory, and its milestones are still reported.
func TestMarksAreBounded(t *testing.T) {
	t.Parallel()
	p := rolling("p", "rpm", 2, time.Hour)
	warned(t, p, nil, func(t *testing.T, l *drawgate.Limiter, _ *telemetry.Warner, news func() []string) {
		for i := range 40_000 {
			if _, err := l.Allow(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(61 * time.Second)
		news()
		allow(t, l, "newcomer", 2)
		check(t, news(), "milestone rpm 50%", "milestone rpm 100%")
	})
}

// Errors of the store are reported once per interval, with their number and the store's error.
//
// req: E7 A10
func TestStoreErrorsAreReportedOncePerInterval(t *testing.T) {
	t.Parallel()
	warned(t, tiers("p", 1), nil, func(t *testing.T, _ *drawgate.Limiter, w *telemetry.Warner, news func() []string) {
		s := &fallible{Store: memstore.New(nil)}
		s.down.Store(true)
		l, err := drawgate.New(s, tiers("q", 1), &drawgate.Options{Observer: w.Observer()})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second / 2) // apart from what is summed up every full minute
		for range 590 {
			if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, drawgate.ErrStoreUnavailable) {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		check(t, news(), "backend_error", "backend_error +299")
		time.Sleep(time.Hour)
		check(t, news(), "backend_error +289")
	})
}

// A fallback is reported when it begins and when it ends, once each. Outages that follow at once
// are only counted.
//
// req: A10, E7
func TestFallbackIsAnnounced(t *testing.T) {
	t.Parallel()
	warned(t, tiers("p", 1), nil, func(t *testing.T, _ *drawgate.Limiter, w *telemetry.Warner, news func() []string) {
		g := w.Guard()
		outage := func() {
			g.BackendError(&guard.BackendError{Op: "take", Err: errDown})
			g.FallbackActivated(&guard.FallbackActivated{At: time.Now(), Err: errDown})
			g.BackendError(&guard.BackendError{Op: "charge", Err: errDown})
			g.BackendError(&guard.BackendError{Op: "take", Err: errDown})
			time.Sleep(5 * time.Second)
			g.Closed(&guard.Closed{At: time.Now(), Outage: 5 * time.Second, Decided: 17})
			time.Sleep(5 * time.Second)
		}
		outage()
		check(t, news(), "fallback_activated", "fallback_ended")
		outage()
		outage()
		check(t, news())
		time.Sleep(10 * time.Minute)
		check(t, news(), "backend_error +5") // those that were not told of
		outage()
		check(t, news(), "fallback_activated", "fallback_ended")
	})
}

// A refusal by a share says so, and does not say that the whole limit is used, which is unknown.
// The fallback is reported by its name.
//
// req: A10 D9
func TestRefusalByAShareSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		w := telemetry.NewWarner(nil, telemetry.Log(slog.New(slog.NewTextHandler(&out, nil))))
		s := &fallible{Store: memstore.New(nil)}
		s.down.Store(true)
		g := guard.New(s, &guard.Options{Instances: 5, Start: drawgate.StartFull, Observer: w.Guard(), WarnEvery: -1})
		l, err := drawgate.New(g.Full(), tiers("p", 5), &drawgate.Options{Observer: w.Observer()})
		if err != nil {
			t.Fatal(err)
		}
		allow(t, l, "k", 3) // one of them is allowed
		s.down.Store(false)
		if err := errors.Join(g.Close(), w.Close()); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if strings.Contains(text, "5 of 5") || strings.Contains(text, "used=5") ||
			!strings.Contains(text, "this process's share") {
			t.Errorf("one of five was admitted:\n%s", text)
		}
		if n := strings.Count(text, "RateLimiterFallbackActivated"); n != 1 {
			t.Errorf("the fallback is told %d times by its name:\n%s", n, text)
		}
	})
}

// Divergences of a shadow are summed up per interval.
//
// req: E9
func TestDivergencesAreSummedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var warnings []telemetry.Warning
		w := telemetry.NewWarner(nil, func(w *telemetry.Warning) { warnings = append(warnings, *w) })
		for range 5 {
			w.Diverged(&engine.Divergence{Policy: "candidate", Way: engine.WouldRefuse})
		}
		w.Diverged(&engine.Divergence{Policy: "candidate", Way: engine.WouldAllow})
		time.Sleep(61 * time.Second)
		w.Close()
		if len(warnings) != 1 || warnings[0].Kind != telemetry.ShadowDivergence || warnings[0].WouldRefuse != 5 ||
			warnings[0].WouldAllow != 1 {
			t.Errorf("told %+v", warnings)
		}
	})
}

// A slow sink delays no decision: the warnings that it is too slow for are dropped and counted.
func TestSlowSinkDelaysNoDecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		r := newRig(t, nil)
		w := telemetry.NewWarner(&telemetry.WarnerOptions{BackendEvery: 1, Metrics: r.m},
			func(*telemetry.Warning) { <-free })
		failed := w.Guard().BackendError
		start := time.Now()
		for range 1000 {
			failed(&guard.BackendError{Op: "charge", Err: errDown})
			time.Sleep(2 * time.Nanosecond)
		}
		if took := time.Since(start); took > time.Millisecond {
			t.Errorf("it took %v", took)
		}
		synctest.Wait()
		r.want(1000-257, "drawgate_warnings_total", "kind", "backend_error", "result", "dropped")
		close(free)
		w.Close()
	})
}

// The log hides keys, and has everything else.
//
// req: D9
func TestLogHidesKeys(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&out, nil))
	h := telemetry.NewHasher(nil)
	w := telemetry.NewWarner(&telemetry.WarnerOptions{Hasher: h}, telemetry.Log(logger))
	s := &fallible{Store: memstore.New(nil)}
	l, err := drawgate.New(s, tiers("per-user", 2), &drawgate.Options{Observer: w.Observer(), Tenant: "tenant-7"})
	if err != nil {
		t.Fatal(err)
	}
	allow(t, l, "user-maria", 3)
	s.down.Store(true)
	if _, err := l.Allow(t.Context(), "user-maria"); err == nil {
		t.Fatal("the store answered, want an error")
	}
	g := w.Guard()
	g.FallbackActivated(&guard.FallbackActivated{
		At: time.Now(),
		Err: &drawgate.StoreError{
			Store: "test", Op: "take", Err: errors.New("WRONGPASS"),
			Fault: store.FaultConfiguration,
		},
	})
	g.Closed(&guard.Closed{At: time.Now(), Outage: time.Minute, Decided: 17})
	w.Diverged(&engine.Divergence{Policy: "candidate", Way: engine.WouldAllow})
	w.Close()
	if strings.Contains(out.String(), "maria") || strings.Contains(out.String(), "tenant-7") {
		t.Errorf("got a key or tenant in the log, want hashes only: %s", out.String())
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		var e struct {
			Level, Msg, Event, Limit, Identifier, Error string
			Percent                                     int
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Limit != "" && e.Identifier != h.Key(drawgate.Key{Tenant: "tenant-7", Name: "user-maria"}) {
			t.Errorf("got another identifier than the key's hash: %s", line)
		}
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %d", e.Level, e.Event, e.Limit, e.Percent)))
		if e.Msg == "" || e.Event == "backend_error" && !strings.Contains(e.Error, "refused") {
			t.Errorf("got a line without a message, or without the store's error: %s", line)
		}
	}
	check(t, got, "INFO milestone rpm 50", "WARN milestone rpm 100", "WARN limit_exceeded rpm 0",
		"WARN backend_error  0", "WARN fallback_activated  0",
		"INFO fallback_ended  0", "INFO shadow_divergence  0")
}

// TestRefusalOfALargeTakeSaysWhatItAskedFor: a limit that is not used up refuses a take that needs
// more than what is left, and the log says how much.
func TestRefusalOfALargeTakeSaysWhatItAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text string
		w := telemetry.NewWarner(nil, func(w *telemetry.Warning) { text = w.Message() })
		l, err := drawgate.New(memstore.New(nil), rolling("p", "budget", 10, time.Hour),
			&drawgate.Options{Observer: w.Observer()})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int64{4, 8} {
			if _, err := l.Allow(t.Context(), "a", drawgate.Requests(n)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if want := `limit "budget" of policy "p" refused a take of 8 requests: 4 of 10 are used`; text != want {
			t.Errorf("got %s, want %s", text, want)
		}
	})
}

// budgeted is warned for a monthly budget of 1000 in money, whose store the Warner may ask.
func budgeted(t *testing.T, f func(t *testing.T, s *fallible, hold func(n int64) *drawgate.Reservation,
	w *telemetry.Warner, news func() []string),
) {
	t.Helper()
	s := &fallible{Store: memstore.New(nil)}
	synctest.Test(t, func(t *testing.T) {
		warnings := make(chan string, 100)
		w := telemetry.NewWarner(&telemetry.WarnerOptions{Store: s}, func(w *telemetry.Warning) {
			warnings <- fmt.Sprintf("%d%% of %d: %d", w.Percent, w.Most, w.Used)
		})
		defer w.Close()
		p := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{
			drawgate.CalendarLimit("budget", 1000, drawgate.Month, "UTC").Of("usd_micros"),
		}}
		l, err := drawgate.New(s, p, &drawgate.Options{Observer: w.Observer(), StoreTimeout: -1})
		if err != nil {
			t.Fatal(err)
		}
		hold := func(n int64) *drawgate.Reservation {
			r, err := l.Reserve(t.Context(), "k", time.Hour, drawgate.Units("usd_micros", n))
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		f(t, s, hold, w, func() (all []string) {
			time.Sleep(2 * time.Second)
			synctest.Wait()
			for len(warnings) > 0 {
				all = append(all, <-warnings)
			}
			return all
		})
	})
}

// What a call holds of a budget reaches no milestone: only what calls have used does, once in each
// window, and at once when the last of them is settled.
//
// req: D9 C11
func TestMilestonesOfBudgetsCountWhatIsUsed(t *testing.T) {
	t.Parallel()
	budgeted(t, func(t *testing.T, _ *fallible, hold func(n int64) *drawgate.Reservation, _ *telemetry.Warner,
		news func() []string,
	) {
		settle := func(r *drawgate.Reservation, n int64) {
			if err := r.Settle(t.Context(), drawgate.Units("usd_micros", n)); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // months
			large := hold(900)
			check(t, news())
			settle(large, 10)
			check(t, news())
			settle(hold(900), 489) // 499 are used
			check(t, news())
			settle(hold(300), 1)
			check(t, news(), "50% of 1000: 500")
			settle(hold(500), 299) // 799
			check(t, news())
			other := hold(100)
			settle(hold(100), 1)
			check(t, news(), "80% of 1000: 800")
			settle(other, 100)
			check(t, news())
			settle(hold(100), 100)
			check(t, news(), "100% of 1000: 1000")
			time.Sleep(31 * 24 * time.Hour)
			check(t, news())
		}
	})
}

// A call that is never settled is used when its hold has ended, and is reported then; one that
// passes a milestone while the store does not answer is reported when it does, and what was settled
// last before the end of the program is reported at its end.
func TestMilestonesOfBudgetsAreNotMissed(t *testing.T) {
	t.Parallel()
	budgeted(t, func(t *testing.T, s *fallible, hold func(n int64) *drawgate.Reservation, w *telemetry.Warner,
		news func() []string,
	) {
		hold(600)
		check(t, news())
		time.Sleep(time.Hour + 2*time.Minute)
		check(t, news(), "50% of 1000: 600")
		s.blind.Store(true)
		if err := hold(300).Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		check(t, news())
		s.blind.Store(false)
		time.Sleep(time.Minute)
		check(t, news(), "80% of 1000: 900")
		if err := hold(100).Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Close()
		check(t, news(), "100% of 1000: 1000")
	})
}

// The milestones of a prepaid budget are reported again once more was credited.
func TestMilestonesOfPrepaidBudgets(t *testing.T) {
	t.Parallel()
	p := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{
		drawgate.CalendarLimit("credit", 100, drawgate.Total, "").Of("usd_micros"),
	}}
	warned(t, p, nil, func(t *testing.T, l *drawgate.Limiter, _ *telemetry.Warner, news func() []string) {
		take := func(l *drawgate.Limiter, n int64) {
			if _, err := l.Allow(t.Context(), "k", drawgate.Units("usd_micros", n)); err != nil {
				t.Fatal(err)
			}
		}
		take(l, 79)
		check(t, news(), "milestone credit 50%")
		time.Sleep(100 * 24 * time.Hour)
		take(l, 1)
		check(t, news(), "milestone credit 80%")
		p.Limits[0].Amount = 200 // 100 were credited
		more, err := l.With(p)
		if err != nil {
			t.Fatal(err)
		}
		take(more, 1)
		time.Sleep(2 * time.Minute)
		take(more, 1)
		check(t, news())
		take(more, 80)
		check(t, news(), "milestone credit 80%") // 50 % was never ten points away
	})
}

// Warnings of a prepaid budget name no instant at which it comes back.
func TestPrepaidBudgetsHaveNoReset(t *testing.T) {
	t.Parallel()
	p := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{
		drawgate.CalendarLimit("credit", 100, drawgate.Total, "").Of("usd_micros"),
	}}
	synctest.Test(t, func(t *testing.T) {
		warnings := make(chan *telemetry.Warning, 100)
		w := telemetry.NewWarner(nil, func(w *telemetry.Warning) { warnings <- w })
		defer w.Close()
		l, err := drawgate.New(memstore.New(nil), p, &drawgate.Options{Observer: w.Observer()})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int64{90, 20} { // a milestone, and a refusal
			if _, err := l.Allow(t.Context(), "k", drawgate.Units("usd_micros", n)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(warnings) != 2 {
			t.Errorf("got %d warnings, want 2", len(warnings))
		}
		for len(warnings) > 0 {
			if w := <-warnings; w.RetryAfter != 0 || !w.ResetAt.IsZero() {
				t.Errorf("%s: retry after %v, reset at %v", w.Message(), w.RetryAfter, w.ResetAt)
			}
		}
	})
}
