package deploy_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/rueidis"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/telemetry/promtest"
)

// observed is a server with limits that are soon used up, and a gateway to upstreams that fail each
// in their own way, because their callers ask for that.
const observed = `
store: redis://%[1]s
store_timeout: 400ms
instances: 2
policies:
  budget: {limits: [{name: units, calendar: month, amount: 100}]}
  busy: {limits: [{name: rps, rolling: 1s, amount: 1_000_000}]}
  slots: {limits: [{name: slots, concurrency: 1}]}
  strict: {shadow: true, limits: [{name: rpd, rolling: 24h, amount: 1}]}
  quota: {limits: [{name: rpm, rolling: 1m, amount: 1_000_000}, {name: tpm, unit: tokens, rolling: 1m, amount: 1_000_000_000}]}
  narrow: {limits: [{name: rpd, rolling: 24h, amount: 1}]}
  single: {limits: [{name: at-once, concurrency: 1}], wait: {up_to: 10m}}
server: {listen: %[2]s, admin: %[3]s, grpc: %[4]s}
gateway:
  listen: %[5]s
  max_wait: 10m
  upstreams:
    good: {profile: openai, url: %[6]s, models: [{model: "*", policy: quota, cache: {ttl: 1h}}]}
    narrow: {profile: openai, url: %[6]s, models: [{model: "*", policy: narrow}]}
    single: {profile: openai, url: %[6]s, hold: 3s, models: [{model: "*", policy: single}]}
    broken: {profile: openai, url: %[6]s, breaker: {failures: 2, open: 1s}, models: [{model: "*", policy: quota}]}
    half: {profile: openai, url: %[6]s, breaker: {failures: 2, open: 1s}, models: [{model: "*", policy: quota}]}
    refusing: {profile: openai, url: %[6]s, models: [{model: "*", policy: quota}]}
  keys: [{name: somebody, sha256: "%[7]x"}, {name: another, sha256: "%[8]x"}]
  prices: {models: {gpt-4o: {input: "2.50", output: "10"}}}
`

// The keys of the gateway's callers.
const (
	virtualKey = "a virtual key"
	anotherKey = "another virtual key"
)

// watched is a server whose metrics Prometheus reads.
type watched struct {
	*testbed
	ctx     context.Context //nolint:containedctx // of the load
	redis   *redistest.Server
	line    *redistest.Proxy // to Redis
	config  string
	gateway string // address
	admin   string // address
	queues  string // address of the metrics of task queues
	wg      sync.WaitGroup
}

// newWatched starts the server.
func newWatched(t *testing.T) *watched {
	t.Helper()
	provider, err := simulator.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	upstream := httptest.NewServer(provider)
	t.Cleanup(upstream.Close)
	s := &testbed{
		t: t, dir: t.TempDir(), gate: redistest.FreeAddr(t), rpc: redistest.FreeAddr(t),
		swap: strings.NewReplacer(),
	}
	w := &watched{testbed: s, redis: redistest.Start(t), gateway: redistest.FreeAddr(t), admin: redistest.FreeAddr(t)}
	w.line = redistest.NewProxy(t, w.redis.Addr)
	w.config = fmt.Sprintf(observed, w.line.Addr, s.gate, w.admin, s.rpc, w.gateway, upstream.URL,
		sha256.Sum256([]byte(virtualKey)), sha256.Sum256([]byte(anotherKey)))
	s.write("drawgate.yaml", w.config)
	s.startGate()
	w.watchQueue()
	var stop context.CancelFunc
	w.ctx, stop = context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		w.wg.Wait()
	})
	return w
}

// watchQueue sends two tasks to a queue of Celery that has no worker, and reports its depth.
func (w *watched) watchQueue() {
	w.t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{w.redis.Addr}, DisableCache: true})
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	if err := c.Do(w.t.Context(), c.B().Rpush().Key("jobs").Element("1", "2").Build()).Error(); err != nil {
		w.t.Fatal(err)
	}
	w.queues = redistest.FreeAddr(w.t)
	w.start(binary(w.t), "queue", "metrics", "--broker", w.redis.URL(), "--queue", "jobs", "--listen", w.queues)
	w.await("http://"+w.queues+"/metrics", http.StatusOK)
}

// post sends JSON until the load ends, and decodes the answer unless into is nil.
func (w *watched) post(url string, header http.Header, body, into any) {
	text, err := json.Marshal(body)
	if err != nil {
		w.t.Error(err)
		return
	}
	r, err := http.NewRequestWithContext(w.ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		w.t.Error(err)
		return
	}
	r.Header = header
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		if w.ctx.Err() == nil {
			w.t.Errorf("%s: %v", url, err)
		}
		return
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err == nil && into != nil {
		err = json.Unmarshal(got, into)
	}
	if err != nil && w.ctx.Err() == nil {
		w.t.Errorf("%s: %v\n%s", url, err, got)
	}
}

// take takes, and returns the answer.
func (w *watched) take(take api.Take) (a api.Answer) {
	w.post("http://"+w.gate+"/v1/take", http.Header{}, take, &a)
	return a
}

// one takes one request from a policy, or from several.
func take(policies ...string) (t api.Take) {
	for _, p := range policies {
		t.Buckets = append(t.Buckets, api.Bucket{Policy: p, Key: "all"})
	}
	return t
}

// call calls an upstream through the gateway, with directives for the simulator, however it is
// answered. wait is the longest wait in the queue.
func (w *watched) call(upstream, directives, wait string) {
	w.callAs(virtualKey, upstream, directives, wait)
}

// callAs is call with a key.
func (w *watched) callAs(key, upstream, directives, wait string) {
	w.post("http://"+w.gateway+"/"+upstream+"/v1/chat/completions",
		http.Header{"Authorization": {"Bearer " + key}, "Drawgate-Timeout": {wait}}, map[string]any{
			"model": "gpt-4o", "max_tokens": 20,
			"messages": []map[string]string{{"role": "user", "content": "Hello!\nsimulate: " + directives}},
		}, nil)
}

// again does something again and again until the load ends.
func (w *watched) again(do func(i int)) {
	w.wg.Go(func() {
		for i := 0; w.ctx.Err() == nil; i++ {
			do(i)
			select {
			case <-w.ctx.Done():
			case <-time.After(20 * time.Millisecond): // so that other processes have a turn
			}
		}
	})
}

// load makes happen, again and again, what does not need a fault.
func (w *watched) load() {
	conn, err := grpc.NewClient(w.rpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	w.again(func(int) { w.take(take("busy", "strict")) })
	w.again(func(int) { w.take(take("busy", "budget")) })
	w.again(func(int) {
		held := take("busy")
		held.HoldMS = 60_000
		w.post("http://"+w.gate+"/v1/settle", http.Header{}, api.SettleRequest{Reservation: w.take(held).Reservation},
			nil)
	})
	w.again(func(i int) { w.call("good", fmt.Sprint("output=", i%20+1, " thoughts=", i/20%1000), "1m") })
	w.again(func(int) { w.call("good", "output=1", "1m") }) // from the cache
	w.again(func(int) { w.call("narrow", "output=1", "0") })
	for _, key := range []string{virtualKey, anotherKey} { // the failures of one key open no circuit but its own
		w.again(func(int) { w.callAs(key, "broken", "fault=500", "0") })
	}
	w.again(func(int) { w.call("half", "fault=500", "0") })
	w.again(func(int) { w.callAs(anotherKey, "half", "output=1", "0") })
	w.again(func(int) { w.callAs("a wrong key", "good", "output=1", "0") })
	w.again(func(int) { w.call("refusing", "fault=minute", "0") })
	for range 2 { // one waits for the other
		w.again(func(int) { w.call("single", "delay=1m", "10m") })
	}
	w.again(func(int) { w.post("http://"+w.gate+"/auth", http.Header{}, nil, nil) }) // describes no request
	w.again(func(int) {                                                              // without a domain
		_, _ = ratelimit.NewRateLimitServiceClient(conn).ShouldRateLimit(w.ctx, &ratelimit.RateLimitRequest{})
	})
}

// somebodyWaits holds the only slot while another take waits for it, until Prometheus has seen
// both.
func (w *watched) somebodyWaits(p *promtest.Server) {
	w.t.Helper()
	slot := take("slots")
	slot.HoldMS = 600_000
	first := w.take(slot)
	if !first.Allowed {
		w.t.Fatalf("the only slot: %+v", first)
	}
	slot.WaitMS = 600_000
	w.wg.Go(func() { w.take(slot) })
	p.Eventually(`drawgate_queue_length > 0 and drawgate_queue_oldest_seconds > 0`)
	p.Eventually(`drawgate_bucket_open_reservations{policy="slots"} > 0`)
	w.post("http://"+w.gate+"/v1/settle", http.Header{}, api.SettleRequest{
		Reservation: first.Reservation,
		Cancel:      true,
	}, nil)
}

// Prometheus scrapes a real server under load, while its callers use up limits, its upstreams fail
// and refuse, and its store is slow, is killed and comes back. Every alert is raised, every query
// of every panel has had a value above zero, and promtool gets one too.
//
// How long a condition must last before an alert fires is tested by promtool, whose time is its
// own.
//
// req: A13, B10, C11
func TestEveryAlertAndPanelHasData(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	rules, err := filepath.Abs(alertFile)
	if err != nil {
		t.Fatal(err)
	}
	p := promtest.Start(t, w.admin, &promtest.Options{
		Rules: []string{rules}, More: []string{w.queues, redistest.FreeAddr(t)}, // the last one is down
	})
	raised := func(names ...string) {
		t.Helper()
		for _, name := range names {
			p.Eventually(fmt.Sprintf(`last_over_time(ALERTS{alertname=%q}[1h])`, name))
		}
	}
	w.load()
	w.somebodyWaits(p)
	p.Eventually(`drawgate_task_queue_depth > 0`)
	raised("DrawgateDown", "DrawgateLimitNearlyUsed", "DrawgateKeyNearLimit", "DrawgateForwardAuthUndecided",
		"DrawgateEnvoyUndecided", "DrawgateCircuitOpen", "DrawgateCallerCircuitOpen", "DrawgateIncident",
		"DrawgateGatewayRefuses")
	w.write("drawgate.yaml", "policies: a mistake\n")
	raised("DrawgateConfigRejected")
	w.write("drawgate.yaml", w.config+"warn_every: 1h\n")
	raised("DrawgateRestartPending")
	w.write("drawgate.yaml", w.config)
	w.line.Delay.Store(int64(250 * time.Millisecond))
	raised("DrawgateStoreSlow")
	w.line.Delay.Store(0)
	p.Eventually(`drawgate_upstream_calls_under_way{upstream="single"} > 0`)
	w.redis.Kill9()
	raised("DrawgateStoreUnavailable", "DrawgateFallbackActive", "DrawgateStoreErrors", "DrawgateHoldFailures")
	p.Eventually(`drawgate_fallback_owed_buckets > 0`)
	w.redis.Restart() // it is empty: its data is lost
	raised("DrawgateStoreLostData")
	p.Eventually(`drawgate_store_probes_total{result="success"} > 0`)
	for _, a := range alerts(t) {
		raised(a.Alert)
	}
	byTool := 0
	for where, query := range dashboardQueries(t) {
		ever := "max_over_time((" + query + ")[1h:1s]) > 0"
		if p.Eventually(ever) == nil {
			t.Errorf("%s has no data", where)
		}
		// it asks the same server the same, and takes a quarter of a second to start
		if byTool++; byTool > 3 && !needs.Long() {
			continue
		}
		if out := promtool(t, "query", "instant", p.URL, ever); !strings.Contains(out, "=>") {
			t.Errorf("%s: promtool query instant prints %q", where, out)
		}
	}
}
