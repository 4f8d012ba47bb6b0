//go:build unix

package main

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/telemetry"
	"github.com/drawgate/drawgate/telemetry/promtest"
)

const (
	salt       = "a salt of this test's own"
	hookSecret = "a secret of this test's own"
	person     = "alice@example.com" // a key that nobody may read
)

// receiver accepts webhook calls, and keeps those whose signature is as docs/metrics.md says.
type receiver struct {
	t   *testing.T
	url string

	mu     sync.Mutex
	events []telemetry.Event // guarded by mu
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

func (r *receiver) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		r.t.Error(err)
	}
	seconds, digits, _ := strings.Cut(strings.TrimPrefix(req.Header.Get("Drawgate-Signature"), "t="), ",v1=")
	mac := hmac.New(sha256.New, []byte(hookSecret))
	fmt.Fprintf(mac, "%s.%s", seconds, body)
	if want := hex.EncodeToString(mac.Sum(nil)); digits != want {
		r.t.Errorf("the signature is %s, want %s", digits, want)
	}
	if at, err := strconv.ParseInt(seconds, 10, 64); err != nil || time.Since(time.Unix(at, 0)).Abs() > 5*time.Minute {
		r.t.Errorf("it was signed at %q", seconds)
	}
	if strings.Contains(string(body), person) {
		r.t.Errorf("a webhook call contains a key: %s", body)
	}
	var e telemetry.Event
	if err := json.Unmarshal(body, &e); err != nil {
		r.t.Errorf("got a webhook call that cannot be decoded: %v: %s", err, body)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// awaits returns the first event of a kind, once it is there.
func (r *receiver) awaits(kind telemetry.Kind) (e telemetry.Event) {
	r.t.Helper()
	eventually(r.t, "webhook call of "+string(kind), func() bool {
		events := r.all()
		i := slices.IndexFunc(events, func(e telemetry.Event) bool { return e.Kind == kind })
		if i >= 0 {
			e = events[i]
		}
		return i >= 0
	})
	return e
}

// all returns the events that have come.
func (r *receiver) all() []telemetry.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// observed is a configuration with metrics, webhooks and shadows.
const observed = `
store: %[1]s
store_timeout: 3s
instances: 2
policies:
  api: {limits: [{name: rpd, rolling: 24h, amount: 1000}], overrides: [{key: %[2]s, limits: {rpd: 4}}]}
  paid: {limits: [{name: rpd, rolling: 24h, amount: 4}], fallback: closed}
  slots: {limits: [{name: slots, concurrency: 1}]}
telemetry:
  salt_env: SALT
  watch: [{policy: api, key: %[2]s, name: hers}]
  webhook: {url: %[3]q, secret_env: SECRET, kinds: [limit_exceeded, fallback_activated, fallback_ended]}
`

// A server shows what it does in metrics and webhook calls: before, during and after an outage of
// its store.
//
// req: B9, D7, D8, D9, E7, E8, E9
func TestServeReportsInMetricsAndWebCalls(t *testing.T) {
	t.Parallel()
	redis, hook := redistest.Start(t), newReceiver(t)
	b := newBench(t, "SALT="+salt, "SECRET="+hookSecret)
	b.write("drawgate.yaml", fmt.Sprintf(observed, redis.URL(), person, hook.url))
	d := hurried(b, redis)
	version, goVersion, revision := build()
	hash := telemetry.NewHasher([]byte(salt)).Key(drawgate.Key{Name: person})
	const most = `rate_limit_max_allowed{identifier="hers",limit="rpd",period="day",policy="api"}`
	shown(d, map[string]float64{most: 4}) // which is her own, and known before she asks
	for i := range 6 {
		if a := decoded[api.Answer](d, d.public+"/v1/take", take("api", person)); a.Allowed != (i < 4) {
			t.Errorf("take %d: %+v", i, a)
		}
	}
	shown(d, map[string]float64{
		`drawgate_decisions_total{outcome="allowed",policy="api"}`:    4,
		`drawgate_decisions_total{outcome="refused",policy="api"}`:    2,
		`rate_limit_rejections_total{reason="distributed_exhausted"}`: 2,
		`rate_limit_hits_total{identifier="` + hash +
			`",type="api"}`: 2,
		`rate_limit_exceeded_total{limit="rpd",period="day",policy="api"}`:                  2,
		`rate_limit_current_usage{identifier="hers",limit="rpd",period="day",policy="api"}`: 4,
		`drawgate_store_breaker_state{state="closed"}`:                                      1,
		`drawgate_store_timeout_seconds`:                                                    30,
		`drawgate_config_last_reload_successful`:                                            1,
		fmt.Sprintf("drawgate_build_info{goversion=%q,revision=%q,version=%q}", goVersion, cmp.Or(revision, "unknown"),
			version): 1,
	})
	e := hook.awaits(telemetry.LimitExceeded)
	if e.Policy != "api" || e.Limit != "rpd" || e.Identifier != hash {
		t.Errorf("got %+v, want limit rpd of policy api and the hash %s", e, hash)
	}
	d.shows(`drawgate_webhook_deliveries_total{result="delivered"}`, 1)
	d.shows(`drawgate_warnings_total{kind="limit_exceeded",result="told"}`, 1)
	somebodyWaits(t, d)
	storeUnavailable(t, d, redis, hook)
	for _, e := range hook.all() {
		if e.Kind == telemetry.Milestone || e.Kind == telemetry.BackendError {
			t.Errorf("got a webhook call of a kind that is not configured: %+v", e)
		}
	}
	for what, text := range map[string]string{"metrics": d.must(d.admin+"/metrics", nil).body, "log": d.log.String()} {
		if strings.Contains(text, person) {
			t.Errorf("the %s tell a key", what)
		}
	}
}

// hurried starts a server whose store answers late, and sends it a signal to reload meanwhile. The
// server reloads as soon as it listens.
func hurried(b bench, redis *redistest.Server) *daemon {
	b.t.Helper()
	redis.Stop()
	d := b.launch()
	d.log.await(b.t, `(less than one unit)`)
	d.signal(syscall.SIGHUP)
	redis.Continue()
	d.listens()
	d.shows(`drawgate_config_reloads_total{result="success"}`, 1)
	return d
}

// shown waits until series have these values. Shadows and gauges of usage follow later.
func shown(d *daemon, want map[string]float64) {
	d.t.Helper()
	for series, value := range want {
		d.shows(series, value)
		if got := d.metric(series); got != value {
			d.t.Errorf("%s is %v, want %v", series, got, value)
		}
	}
}

// somebodyWaits holds the only slot while another take waits for it.
func somebodyWaits(t *testing.T, d *daemon) {
	t.Helper()
	slot := take("slots", "k")
	slot.HoldMS = 600_000
	first := decoded[api.Answer](d, d.public+"/v1/take", slot)
	slot.WaitMS = 600_000
	answer := d.later(slot)
	d.shows("drawgate_queue_length", 1)
	d.shows("drawgate_queue_oldest_seconds", 0.001)
	if r := d.must(d.public+"/v1/settle", api.SettleRequest{
		Reservation: first.Reservation,
		Cancel:      true,
	}); r.code != http.StatusOK {
		t.Errorf("cancelling: got %d %s, want 200", r.code, r.body)
	}
	if r := <-answer; r.code != http.StatusOK || !strings.Contains(r.body, `"allowed":true`) {
		t.Errorf("who waited: %d %s", r.code, r.body)
	}
	shown(d, map[string]float64{
		"drawgate_queue_length":                                      0,
		`rate_limit_waits_total{type="slots"}`:                       1,
		`rate_limit_wait_duration_seconds_count{type="slots"}`:       1,
		`drawgate_settlements_total{result="cancelled"}`:             1,
		`drawgate_decisions_total{outcome="allowed",policy="slots"}`: 2,
	})
}

// storeUnavailable kills the store, and starts it again.
func storeUnavailable(t *testing.T, d *daemon, redis *redistest.Server, hook *receiver) {
	t.Helper()
	redis.Kill9()
	eventually(t, "open breaker", func() bool {
		if a := decoded[api.Answer](d, d.public+"/v1/take", take("paid", "k")); a.Allowed || !a.Fallback ||
			a.Reason != api.ReasonUnavailable {
			t.Errorf("a policy that is closed without its store: %+v", a)
		}
		return d.metric(`drawgate_store_breaker_state{state="open"}`) == 1
	})
	if a := decoded[api.Answer](d, d.public+"/v1/take", take("api", person)); a.Allowed || !a.Fallback ||
		a.Reason != api.ReasonLimited {
		t.Errorf("a policy of which this process has a share: %+v", a)
	}
	d.shows(`rate_limit_backend_errors_total`, 1)
	d.shows(`rate_limit_rejections_total{reason="backend_error"}`, 1)
	d.shows(`rate_limit_rejections_total{reason="local_exhausted"}`, 1)
	d.shows(`drawgate_fallback_decisions_total{outcome="refused",policy="paid"}`, 1)
	d.shows(`drawgate_store_breaker_transitions_total{state="open"}`, 1)
	d.shows(`drawgate_store_probes_total{result="failure"}`, 1)
	d.shows(`drawgate_fallback_buckets`, 1) // of api: paid needs none
	hook.awaits(telemetry.FallbackActivated)
	h := decoded[api.Health](d, d.public+"/readyz", nil)
	if h.Status != api.StatusDegraded || h.Store.Status != api.StatusUnavailable || len(h.States) != 3 {
		t.Errorf("got %+v, want the status degraded and three policies", h)
	}
	for _, s := range h.States {
		want := api.PolicyHealth{Name: s.Name, Status: api.StatusDegraded, Fallback: "share", Shadow: s.Shadow}
		if s.Name == "paid" {
			want.Status, want.Fallback = api.StatusUnavailable, "closed"
		}
		if !reflect.DeepEqual(s, want) {
			t.Errorf("%+v, want %+v", s, want)
		}
	}
	redis.Restart()
	d.shows(`drawgate_store_breaker_state{state="closed"}`, 1)
	d.shows(`drawgate_store_probes_total{result="success"}`, 1)
	hook.awaits(telemetry.FallbackEnded)
	eventually(t, "health", func() bool {
		return decoded[api.Health](d, d.public+"/readyz",
			nil).Status == api.StatusOK
	})
}

// take takes one request from a policy, and from others that are in shadow, for a key.
func take(policy, key string, shadows ...string) (t api.Take) {
	for _, p := range append(shadows, policy) {
		t.Buckets = append(t.Buckets, api.Bucket{Policy: p, Key: key})
	}
	return t
}

// scraped is a configuration whose shadows diverge in both directions.
const scraped = `
store: "memory:"
policies:
  api: {limits: [{name: rps, rolling: 1s, amount: 5}]}
  strict: {shadow: true, limits: [{name: rpd, rolling: 24h, amount: 1}]}
  lenient: {shadow: true, limits: [{name: rps, rolling: 1s, amount: 1_000_000}]}
telemetry:
  refusals_every: 1s
  webhook: {url: %q, secret_env: SECRET, kinds: [shadow_divergence, milestone], milestones: [95%%]}
`

// Prometheus scrapes a real server under load.
//
// req: B9, C11, E9
func TestPrometheusScrapesServe(t *testing.T) {
	t.Parallel()
	b, hook := newBench(t, "SECRET="+hookSecret), newReceiver(t)
	b.write("drawgate.yaml", fmt.Sprintf(scraped, hook.url))
	d := b.daemon()
	defer load(d, take("api", "all", "strict"), take("api", "all", "lenient"))()
	p := promtest.Start(t, strings.TrimPrefix(d.admin, "http://"), nil)
	for _, q := range []string{
		`rate(drawgate_decisions_total{outcome="allowed",policy="api"}[1m]) > 0`,
		`rate(rate_limit_rejections_total{reason="local_exhausted"}[1m]) > 0`,
		`rate(rate_limit_shadow_divergence_total{direction="would_refuse",policy="strict"}[1m]) > 0`,
		`rate(rate_limit_shadow_divergence_total{direction="would_allow",policy="lenient"}[1m]) > 0`,
		`histogram_quantile(0.99, sum by (le) (rate(rate_limit_check_duration_seconds_bucket[1m]))) > 0`,
		`max_over_time(rate_limit_current_usage{policy="api"}[1m]) > 0`,
		`process_resident_memory_bytes > 0 and go_goroutines > 0`,
	} {
		p.Eventually(q)
	}
	if e := hook.awaits(telemetry.ShadowDivergence); e.WouldRefuse+e.WouldAllow == 0 {
		t.Errorf("got %+v, want some divergence", e)
	}
	if e := hook.awaits(telemetry.Milestone); e.Percent < 95 {
		t.Errorf("got a milestone that is not configured: %+v", e)
	}
}

// load takes these again and again, at once, until stop is called.
func load(d *daemon, takes ...api.Take) (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	for _, take := range takes {
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				case <-time.After(5 * time.Millisecond):
				}
				if r, err := d.ask(d.public+"/v1/take", take); err != nil || r.code != http.StatusOK {
					d.t.Errorf("a take: got %d %s, %v, want 200", r.code, r.body, err)
					return
				}
			}
		})
	}
	return func() {
		close(end)
		wg.Wait()
	}
}
