//go:build unix

package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/telemetry"
)

// gateway starts a drawgate gateway with drawgate.yaml on free ports. It ends as one of
// [bench.daemon] does.
func (b bench) gateway() *daemon {
	b.t.Helper()
	d := b.background("gateway", "--config", "drawgate.yaml", "--listen", "127.0.0.1:0")
	d.public = d.log.await(b.t, `gateway listening on (https?://[^"]+)`)
	d.admin = d.log.await(b.t, `administration at (https?://[^"]+)`)
	return d
}

const (
	virtualKey = "vk-alice-0123456789abcdef"
	prompt     = "the prompt is nobody's business"
)

// variables is a configuration whose quotas, store and breaker come from the environment. The
// upstream broken always fails.
const variables = `
gateway:
  upstreams:
    gemini:
      url: %[1]s
      api_key_env: UPSTREAM_KEY
      owner: project
      models: [{model: "gemini-2.5-flash*", policy: gemini-2.5-flash}, {model: "*", policy: gemini-2.5-pro}]
    broken:
      profile: gemini
      url: %[2]s
      owner: elsewhere
      models: [{model: "*", policy: spare}]
      breaker: {failures: 900, open: 1s}
  keys: [{name: alice, sha256: "%[3]x"}]
policies:
  spare: {limits: [{name: rpm, rolling: 1m, amount: 1000, margin: 2s}]}
telemetry:
  webhook: {url: %[4]q, secret_env: SECRET, kinds: [milestone, circuit_opened]}
`

// world is what the tests of the gateway's process are made of.
type world struct {
	bench
	hook     *receiver
	failures atomic.Int64 // calls that reached the upstream that fails
}

// newWorld makes one, on a Redis server, with further variables.
func newWorld(t *testing.T, redis *redistest.Server, env ...string) *world {
	t.Helper()
	w := &world{hook: newReceiver(t)}
	w.bench = newBench(t, append([]string{
		"GEMINI_FLASH_RPM_LIMIT=1", "GEMINI_FLASH_RPD_LIMIT=50", "GEMINI_PRO_RPM_LIMIT=40", "GEMINI_PRO_RPD_LIMIT=1",
		"RATE_LIMIT_REDIS_URL=" + redis.URL(), "RATE_LIMIT_REDIS_PREFIX=mine", "SECRET=" + hookSecret,
		"UPSTREAM_KEY=sk-upstream-0123456789",
	}, env...)...)
	provider, err := simulator.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	upstream := httptest.NewServer(provider)
	broken := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		w.failures.Add(1)
		rw.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(func() {
		upstream.Close()
		broken.Close()
	})
	w.write("drawgate.yaml", fmt.Sprintf(variables, upstream.URL, broken.URL, sha256.Sum256([]byte(virtualKey)),
		w.hook.url))
	return w
}

// generate calls a model of an upstream of Gemini's kind, without a place in the queue.
func generate(d *daemon, upstream, model string) reply {
	d.t.Helper()
	return d.must(d.public+"/"+upstream+"/v1beta/models/"+model+":generateContent", map[string]any{
		"contents":         []any{map[string]any{"parts": []any{map[string]any{"text": prompt}}}},
		"generationConfig": map[string]any{"maxOutputTokens": 20},
	}, "Content-Type: application/json", "X-Goog-Api-Key: "+virtualKey, "Drawgate-Timeout: 0")
}

// quotaOf returns the status of the quota that counts a model.
func quotaOf(t *testing.T, list []api.Upstream, upstream, model string) (api.Upstream, *api.StatusAnswer) {
	t.Helper()
	for _, u := range list {
		for _, q := range u.Quotas {
			if u.Name == upstream && slices.Contains(q.Models, model) {
				if q.Status == nil {
					t.Fatalf("%s: the status of %s is not known: %+v", upstream, model, q.Error)
				}
				return u, q.Status
			}
		}
	}
	t.Fatalf("there is no %s of %s in %+v", model, upstream, list)
	return api.Upstream{}, nil
}

// limits checks the names of limits, and the most that they admit.
func limits(t *testing.T, st *api.StatusAnswer, names string, most ...int64) {
	t.Helper()
	for i, name := range strings.Fields(names) {
		if l := st.Limits[i]; l.Name != name || l.Most != most[i] {
			t.Errorf("policy %s: limit %s admits %d, want %s with %d", st.Policy, l.Name, l.Most, name, most[i])
		}
	}
}

// Every variable acts on a real gateway: quotas, store, prefix and breaker. Usage shows at the
// address for administrators, on the command line, in metrics and in webhook calls, and no secret
// does.
//
// req: C9 C10 C11
func TestGatewayByItsVariables(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	w := newWorld(t, redis, "CIRCUIT_BREAKER_ENABLED=true", "CIRCUIT_BREAKER_FAILURE_THRESHOLD=2",
		"CIRCUIT_BREAKER_TIMEOUT=86400", "MONITORING_ENABLED=true")
	d := w.gateway()
	refused := map[string]string{}
	for _, model := range []string{"gemini-2.5-flash", "gemini-2.5-pro"} {
		for range 3 {
			if r := generate(d, "gemini", model); r.code == http.StatusTooManyRequests {
				refused[model] = r.body
			} else if r.code != http.StatusOK {
				t.Fatalf("%s: got %d %s", model, r.code, r.body)
			}
		}
	}
	for model, limit := range map[string]string{"gemini-2.5-flash": "rpm", "gemini-2.5-pro": "rpd"} {
		if !strings.Contains(refused[model], limit) {
			t.Errorf("%s: a call was refused with %q, want one that limit %s refuses", model, refused[model], limit)
		}
	}
	for range 4 {
		if r := generate(d, "broken", "gemini-2.0"); r.code != http.StatusServiceUnavailable {
			t.Errorf("the broken upstream: got %d %s", r.code, r.body)
		}
	}
	if n := w.failures.Load(); n != 2 {
		t.Errorf("%d calls reached the upstream that fails, want as many as the threshold", n)
	}
	got := decoded[api.UpstreamsAnswer](d, d.admin+"/v1/upstreams", nil).Upstreams
	flash, st := quotaOf(t, got, "gemini", "gemini-2.5-flash*")
	limits(t, st, "rpm rpd", 1, 50)
	if used := st.Limits[1].Used; used < 1 || st.Key != "project" || flash.Calls.Circuit != api.CircuitClosed {
		t.Errorf("got %d used by %s, %+v", used, st.Key, flash.Calls)
	}
	_, st = quotaOf(t, got, "gemini", "*")
	limits(t, st, "rpm rpd", 40, 1)
	broken, _ := quotaOf(t, got, "broken", "*")
	if c := broken.Calls; c.Circuit != api.CircuitOpen || c.RetryAfterMS < 3_600_000 || c.RetryAfterMS > 86_400_000 ||
		c.UnderWay != 0 {
		t.Errorf("the circuit: got %+v, want it open for a day", c)
	}
	w.commandLine(d)
	w.reports(d)
}

// commandLine checks what drawgate status shows.
func (w *world) commandLine(d *daemon) {
	t := w.t
	t.Helper()
	text, code := w.do("status", "--upstreams", "--server", d.admin)
	for _, part := range []string{
		"upstream gemini (gemini), owner project: circuit closed, 0 calls under way, 0 waiting\n", "MODELS ",
		"upstream broken (gemini), owner elsewhere: circuit open, a call may try in ",
		"gemini-2.5-flash*  gemini-2.5-flash  rpm    requests ",
	} {
		if !strings.Contains(text, part) || code != 0 {
			t.Errorf("status: exit code %d, without %q:\n%s", code, part, text)
		}
	}
	for prefix, counted := range map[string]bool{"mine": true, "theirs": false} {
		here := w.bench
		here.env = append(slices.Clone(here.env), "RATE_LIMIT_REDIS_PREFIX="+prefix)
		text, code := here.do("status", "--upstreams", "--config", "drawgate.yaml", "--json")
		var got api.UpstreamsAnswer
		if err := json.Unmarshal([]byte(text), &got); err != nil || code != 0 {
			t.Fatalf("exit code %d, %v: %s", code, err, text)
		}
		u, st := quotaOf(t, got.Upstreams, "gemini", "gemini-2.5-flash*")
		if used := st.Limits[1].Used > 0; used != counted || u.Calls != nil {
			t.Errorf("prefix %s, from the store: used %v, want %v; calls %+v, which only the gateway knows", prefix,
				used, counted, u.Calls)
		}
	}
	if _, code := w.do("status", "--upstreams", "--policy", "spare"); code != exitUsage {
		t.Errorf("--upstreams with --policy: got exit code %d", code)
	}
}

// reports checks metrics, webhook calls and the log.
func (w *world) reports(d *daemon) {
	t := w.t
	t.Helper()
	shown(d, map[string]float64{
		`drawgate_upstream_calls_total{model="*",outcome="failed",status="5xx",upstream="broken"}`:                 2,
		`drawgate_upstream_calls_total{model="*",outcome="turned_away",status="none",upstream="broken"}`:           2,
		`drawgate_upstream_circuit_state{model="*",state="open",upstream="broken"}`:                                1,
		`drawgate_upstream_circuit_state{model="",state="closed",upstream="gemini"}`:                               1,
		`drawgate_upstream_circuit_transitions_total{model="*",scope="model",state="open",upstream="broken"}`:      1,
		`drawgate_gateway_answers_total{model="*",result="error",upstream="broken"}`:                               2,
		`drawgate_gateway_answers_total{model="*",result="refused",upstream="broken"}`:                             2,
		`drawgate_upstream_calls_under_way{upstream="gemini"}`:                                                     0,
		`rate_limit_max_allowed{identifier="project",limit="rpd",period="day",policy="gemini-2.5-flash"}`:          50,
		`rate_limit_max_allowed{identifier="elsewhere",limit="rpm",period="minute",policy="spare"}`:                1000,
		`drawgate_incidents_total{meaning="minute",model="gemini-2.5-flash*",upstream="gemini"}`:                   0,
		`drawgate_upstream_circuit_transitions_total{model="",scope="connections",state="open",upstream="gemini"}`: 0,
		`drawgate_upstream_hold_failures_total{model="gemini-2.5-flash*",upstream="gemini"}`:                       0,
		`drawgate_warnings_total{kind="circuit_opened",result="told"}`:                                             1,
		`rate_limit_rejections_total{reason="paused"}`:                                                             0,
		`drawgate_upstream_tokens_total{kind="cache_read",model="gemini-2.5-flash*",upstream="gemini"}`:            -1,
		`drawgate_gateway_answers_total{model="gemini-2.5-flash*",result="other_model",upstream="gemini"}`:         -1,
		`drawgate_upstream_calls_total{model="gemini-2.0",outcome="failed",status="5xx",upstream="broken"}`:        -1,
		`drawgate_upstream_calls_total{model="gemini-2.5-flash",outcome="failed",status="5xx",upstream="none"}`:    -1,
	})
	for _, series := range []string{
		`drawgate_upstream_calls_total{model="gemini-2.5-flash*",outcome="succeeded",status="2xx",upstream="gemini"}`,
		`drawgate_upstream_calls_total{model="gemini-2.5-flash*",outcome="not_granted",status="none",upstream="gemini"}`,
		`drawgate_upstream_tokens_total{kind="input",model="gemini-2.5-flash*",upstream="gemini"}`,
		`drawgate_upstream_used_units_total{model="gemini-2.5-flash*",unit="requests",upstream="gemini"}`,
		`drawgate_upstream_queue_seconds_count{model="gemini-2.5-flash*",upstream="gemini"}`,
		`drawgate_upstream_answer_seconds_count{model="gemini-2.5-flash*",upstream="gemini"}`,
		`drawgate_gateway_answers_total{model="gemini-2.5-flash*",result="answered",upstream="gemini"}`,
		`rate_limit_current_usage{identifier="project",limit="rpd",period="day",policy="gemini-2.5-flash"}`,
	} {
		if got := d.metric(series); got < 1 {
			t.Errorf("%s is %v, want at least 1", series, got)
		}
	}
	if e := w.hook.awaits(telemetry.CircuitOpened); e.Upstream != "broken" {
		t.Errorf("got %+v, want the circuit of the broken upstream", e)
	}
	if e := w.hook.awaits(telemetry.Milestone); !strings.HasPrefix(e.Policy, "gemini-2.5-") || e.Percent != 100 {
		t.Errorf("got %+v, want a limit that is used up", e)
	}
	d.log.await(t, `(calls of model ..\*.. to upstream ..broken.. fail: their circuit has opened)`)
	for what, text := range map[string]string{
		"metrics": d.must(d.admin+"/metrics", nil).body, "usage": d.must(d.admin+"/v1/upstreams", nil).body,
		"log": d.log.String(), "webhook calls": fmt.Sprint(w.hook.all()),
	} {
		for _, secret := range []string{virtualKey, "sk-upstream-0123456789", prompt, hookSecret} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s tell %q", what, secret)
			}
		}
	}
}

// Without a breaker every call is made. Without monitoring there are no metrics, but usage and
// warnings.
//
// req: C10
func TestGatewayWithoutBreakerAndMonitoring(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	w := newWorld(t, redis, "CIRCUIT_BREAKER_ENABLED=false", "CIRCUIT_BREAKER_FAILURE_THRESHOLD=2",
		"MONITORING_ENABLED=false")
	d := w.gateway()
	for range 6 {
		generate(d, "broken", "gemini-2.0")
	}
	if n := w.failures.Load(); n != 6 {
		t.Errorf("%d calls reached the upstream, want all 6", n)
	}
	if r := d.must(d.admin+"/metrics", nil); r.code != http.StatusNotFound {
		t.Errorf("metrics: got %d", r.code)
	}
	got := decoded[api.UpstreamsAnswer](d, d.admin+"/v1/upstreams?name=broken", nil).Upstreams
	if u, st := quotaOf(t, got, "broken", "*"); u.Calls.Circuit != api.CircuitClosed || st.Limits[0].Name != "rpm" {
		t.Errorf("got %+v, %+v", u.Calls, st)
	}
	for range 3 {
		generate(d, "gemini", "gemini-2.5-pro")
	}
	w.hook.awaits(telemetry.Milestone)
	// Without the store, what this process knows is shown, and that the store does not answer.
	redis.Kill9()
	t.Cleanup(redis.Restart)
	got = decoded[api.UpstreamsAnswer](d, d.admin+"/v1/upstreams", nil).Upstreams
	if len(got) != 2 || got[1].Calls.Circuit != api.CircuitClosed {
		t.Fatalf("without the store: got %+v", got)
	}
	if _, st := quotaOf(t, got, "gemini", "*"); !st.Take.Fallback || st.Take.Reason != api.ReasonUnavailable ||
		st.Limits[0].Most != 40 {
		t.Errorf("without the store: got %+v, want the numbers of this process", st)
	}
	if text, code := w.do("status", "--upstreams", "--server", d.admin); code != 0 ||
		!strings.Contains(text, "policy spare: the store cannot be reached") {
		t.Errorf("by the server: exit code %d: %s", code, text)
	}
	text, code := w.do("status", "--upstreams", "--config", "drawgate.yaml")
	if code != exitUnavailable || !strings.Contains(text, "upstream broken (gemini), owner elsewhere\n") ||
		strings.Contains(text, "log says") {
		t.Errorf("by the store: exit code %d: %s", code, text)
	}
}
