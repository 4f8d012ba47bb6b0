package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/telemetry"
	"github.com/drawgate/drawgate/telemetry/promtest"
)

// site is an engine whose store can fail, with everything of this package, and with its metrics on
// a port.
type site struct {
	*engine.Engine
	web   *httptest.Server
	t     *testing.T
	store *fallible
	m     *telemetry.Metrics
	w     *telemetry.Warner
	reg   *prometheus.Registry
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, store: &fallible{Store: memstore.New(nil)}, reg: prometheus.NewRegistry()}
	var g *guard.Store
	var err error
	s.m, err = telemetry.NewMetrics(s.reg, &telemetry.Options{
		Store: s.store, Version: "1.2.3", Revision: "abc", Guard: func() guard.State { return g.State() },
		StoreTimeout: time.Second,
		Lines: func() []drawgate.Line { // the store keeps no line of all processes
			return append(s.Lines(), drawgate.Line{Key: drawgate.Key{Policy: "tasks"}, Tickets: 1, Oldest: time.Second})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	down := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(down.Close)
	h, err := telemetry.NewWebhook(down.URL, secret, &telemetry.WebhookOptions{Metrics: s.m})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	s.w = telemetry.NewWarner(&telemetry.WarnerOptions{Metrics: s.m, Every: time.Second}, h.Warn)
	t.Cleanup(func() { _ = s.w.Close() })
	g = guard.New(s.store, &guard.Options{
		Instances: 2, Start: drawgate.StartFull,
		Observer: telemetry.JoinGuards(s.m.Guard(), s.w.Guard()),
	})
	t.Cleanup(func() { _ = g.Close() })
	tasks := tiers("tasks", 20)
	tasks.Limits = append(tasks.Limits, drawgate.Limit{
		Name: "rpm-month", Kind: drawgate.Calendar,
		Every: drawgate.Month, Amount: 1_000_000,
	})
	slow := drawgate.Rate("rate", 20, time.Second, 1)
	slow.Fallback = drawgate.FallbackClosed
	s.Engine, err = engine.New(g.Full(), engine.Config{Policies: []engine.Policy{
		{Policy: tasks},
		{Policy: slow},
		{Policy: rolling("per-ip", "rpm", 3, time.Minute)},
		{Policy: rolling("candidate", "rpm", 5, time.Minute), Shadow: true},
		{Policy: drawgate.Policy{Name: "slots", Limits: []drawgate.Limit{{
			Name: "at-once", Kind: drawgate.Concurrency,
			Amount: 1000,
		}}}},
		{Policy: rolling("lenient", "rpm", 1_000_000, time.Minute), Shadow: true},
	}}, &engine.Options{Observer: telemetry.Join(s.m.Observer(), s.w.Observer()), Diverged: func(d *engine.Divergence) {
		s.m.Diverged(d)
		s.w.Diverged(d)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	s.m.Declare(s.Config().Policies...)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", telemetry.Handler(s.reg))
	s.web = httptest.NewServer(mux)
	t.Cleanup(s.web.Close)
	return s
}

// take asks, and accepts every answer.
func (s *site) take(ctx context.Context, r engine.Request) *drawgate.Reservation {
	res, err := s.Take(ctx, &r)
	if err != nil && !errors.Is(err, drawgate.ErrStoreUnavailable) && !errors.Is(err, drawgate.ErrDeadline) &&
		ctx.Err() == nil {
		s.t.Error(err)
	}
	return res.Reservation
}

// load drives the site until stop is closed: it makes every condition that a metric shows happen
// again and again.
func (s *site) load(stop <-chan struct{}) *sync.WaitGroup {
	var wg sync.WaitGroup
	worker := func(pause time.Duration, f func(i int)) {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(pause):
					f(i)
				}
			}
		})
	}
	ctx := s.t.Context()
	for range 4 {
		worker(5*time.Millisecond, func(i int) {
			s.take(ctx, engine.Request{Asks: []engine.Ask{
				{Policy: "tasks", Key: "default"},
				{Policy: "candidate", Key: "default"},
				{Policy: "per-ip", Key: fmt.Sprintf("192.0.2.%d", i%50)},
			}})
			s.take(ctx, engine.Request{Asks: []engine.Ask{
				{Policy: "tasks", Key: "default"},
				{Policy: "lenient", Key: "default"},
			}})
		})
	}
	for range 8 {
		worker(5*time.Millisecond, func(int) {
			s.take(ctx, engine.Request{Asks: []engine.Ask{{
				Policy: "rate",
				Key:    "all",
			}}, Wait: true})
		})
	}
	worker(10*time.Millisecond, func(i int) {
		r := s.take(ctx, engine.Request{Asks: []engine.Ask{{Policy: "slots", Key: "all"}}, Hold: time.Minute})
		if r != nil && i%4 > 0 {
			for _, f := range []func(context.Context) error{
				func(ctx context.Context) error { return r.Settle(ctx) }, r.Cancel,
				func(ctx context.Context) error { return r.Renew(ctx, time.Minute) },
			}[i%4-1:][:1] {
				_ = f(ctx)
			}
		}
	})
	worker(300*time.Millisecond, func(int) { s.m.EnvoyUndecided("Unavailable") })
	worker(300*time.Millisecond, func(int) { s.m.ForwardAuthUndecided("token") })
	worker(300*time.Millisecond, func(i int) { s.m.RestartPending(i%2 == 0) })
	worker(300*time.Millisecond, func(int) { s.m.Guard().Lost(&guard.Lost{}) })
	worker(300*time.Millisecond, func(int) {
		b := store.BucketCost{N: store.Amounts{1}}
		s.m.Guard().Recovered(&guard.Recovered{Buckets: []store.BucketCost{b}, Reservations: 1, NotDone: 1})
	})
	worker(300*time.Millisecond, func(i int) { s.m.Batched(1+i%50, time.Duration(1+i%5)*time.Millisecond) })
	worker(300*time.Millisecond, func(int) { s.m.Published("delivered") })
	worker(300*time.Millisecond, func(i int) { s.m.Reloaded([]error{nil, errors.New("a broken file")}[i%2]) })
	worker(20*time.Millisecond, reportCalls(s.m))
	worker(700*time.Millisecond, func(i int) { s.store.down.Store(i%2 == 1) })
	return &wg
}

// Prometheus scrapes a process under load. Every documented metric has data once its condition was
// made to happen, and so has every query of the document.
//
// req: B9 C11 D7 E8 E9
func TestPrometheusFindsEveryDocumentedMetric(t *testing.T) {
	t.Parallel()
	p := scraped(t, nil)
	for name, row := range documented(t) {
		if strings.TrimSpace(row[1]) == "histogram" {
			p.Eventually("rate(" + name + "_bucket[1m]) > 0")
			name += "_sum"
		}
		p.Eventually("max_over_time(" + name + "[1m]) > 0")
	}
	for _, q := range queries(t) {
		p.Eventually("count_over_time((" + q + ")[1m:200ms])")
	}
}

// Prometheus gets native histograms if it asks for them.
func TestPrometheusScrapesNativeHistograms(t *testing.T) {
	t.Parallel()
	p := scraped(t, &promtest.Options{Args: []string{"--enable-feature=native-histograms"}})
	for name, row := range documented(t) {
		if strings.TrimSpace(row[1]) == "histogram" {
			p.Eventually("histogram_quantile(0.99, sum(rate(" + name + "[1m]))) > 0")
		}
	}
}

// scraped starts a site under load, and a Prometheus that scrapes it.
func scraped(t *testing.T, opts *promtest.Options) *promtest.Server {
	t.Helper()
	s := newSite(t)
	p := promtest.Start(t, strings.TrimPrefix(s.web.URL, "http://"), opts)
	stop := make(chan struct{})
	wg := s.load(stop)
	t.Cleanup(func() {
		close(stop)
		wg.Wait()
	})
	return p
}

var query = regexp.MustCompile("(?m)^\\| [^|`]+ \\| `([^`]+)` \\|$")

// queries returns those of the document.
func queries(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range query.FindAllStringSubmatch(string(text), -1) {
		all = append(all, f[1])
	}
	if len(all) < 10 {
		t.Fatalf("got %d queries in the document, want more", len(all))
	}
	return all
}

// promtool finds no fault with the metrics.
func TestPromtoolFindsNoFault(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.take(t.Context(), engine.Request{Asks: []engine.Ask{{Policy: "tasks", Key: "default"}}})
	all, err := s.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range all {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), needs.Program(t, "promtool"), "check", "metrics")
	cmd.Stdin = strings.NewReader(text.String())
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
