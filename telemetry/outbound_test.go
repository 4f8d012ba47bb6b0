package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/telemetry"
)

// reportCalls returns a func that reports calls to an upstream: in turn in all their forms, while
// its circuit opens and closes.
func reportCalls(m *telemetry.Metrics) func(i int) {
	o := m.Outbound()
	state := outbound.State{
		Upstream: "llm", Circuit: outbound.CircuitOpen, RetryAfter: time.Minute, UnderWay: 1, Waiting: 1,
		Circuits: []outbound.Circuit{
			{State: outbound.CircuitOpen},
			{Model: "m", Series: "m", Caller: "key a", State: outbound.CircuitOpen},
		},
	}
	m.WatchOutbound(func() []outbound.State { return []outbound.State{state} })
	return func(i int) {
		now := time.Now()
		held := []drawgate.Cost{drawgate.Requests(1), drawgate.Tokens(100), drawgate.Units("usd_micros", 50)}
		e := &outbound.Event{
			Upstream: "llm", Model: "m", Outcome: outbound.Outcome(i % 7), Status: 200, Estimate: held, Used: held,
			Granted: now, Sent: now, Answered: now.Add(time.Second),
			Queued: time.Millisecond, Took: 2 * time.Second, Refusal: llm.Refusal{Meaning: llm.PerMinute},
			Labels: []drawgate.Label{{Name: "team", Value: "search"}},
			Usage: llm.Usage{
				Input: 90, InputKnown: true, Output: 9, OutputKnown: true, CacheRead: 1, CacheWrite: 1,
				Reasoning: 1,
			},
		}
		o.Granted(e)
		o.Called(e)
		for _, k := range state.Circuits {
			k.State = [2]string{outbound.CircuitOpen, outbound.CircuitClosed}[i%2]
			o.Circuit("llm", &k)
		}
		m.GatewayAnswered("llm", "m", [3]string{"answered", "cache_hit", "refused"}[i%3])
		m.GatewayWrongKey("llm")
	}
}

// What a team uses is counted by itself.
//
// req: C11
func TestUsedByTeam(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	report := reportCalls(r.m)
	for i := range 3 {
		report(i)
	}
	r.m.Outbound().Called(&outbound.Event{
		Upstream: "llm", Model: "m", Granted: time.Now(), Sent: time.Now(),
		Estimate: []drawgate.Cost{drawgate.Requests(1)},
	})
	of := func(want float64, unit string) {
		t.Helper()
		r.want(want, "drawgate_team_used_units_total", "upstream", "llm", "team", "search", "model", "m", "unit", unit)
	}
	of(3, "requests")
	of(300, "tokens")
	of(150, "usd_micros")
	r.want(4, "drawgate_upstream_used_units_total", "upstream", "llm", "model", "m", "unit", "requests")
	if n := len(r.family("drawgate_team_used_units_total").GetMetric()); n != 3 {
		t.Errorf("%d series, want none for a call without a team", n)
	}
	for i := range 20_000 { // of teams and models that are as many as their calls
		r.m.Outbound().Called(&outbound.Event{
			Upstream: "llm", Model: fmt.Sprint("model", i%97), Granted: time.Now(), Sent: time.Now(),
			Estimate: []drawgate.Cost{drawgate.Requests(1)},
			Labels:   []drawgate.Label{{Name: "team", Value: fmt.Sprint("team", i%1000)}},
		})
	}
	if n := len(r.family("drawgate_team_used_units_total").GetMetric()); n < 1000 || n > 1010 {
		t.Errorf("%d series, want a thousand and some others", n)
	}
}

// quota is a policy of requests, tokens and money that has room for all calls of a test.
func quota(model string, rpm int64) drawgate.Policy {
	return drawgate.Policy{Name: model, Limits: []drawgate.Limit{
		drawgate.RollingLimit("rpm", rpm, time.Minute),
		drawgate.RollingLimit("tpm", 1_000_000, time.Minute).Of(llm.UnitTokens),
		drawgate.RollingLimit("budget", 1_000_000_000, time.Hour).Of("usd_micros"),
	}}
}

// provider is a client of the simulator that r's metrics watch.
type provider struct {
	*rig
	sim    *simulator.Server
	client *outbound.Client
	rt     http.RoundTripper
}

// newProvider makes one. o may be nil; its Observer is set.
func (r *rig) newProvider(o *outbound.Options, limiters ...*drawgate.Limiter) *provider {
	r.Helper()
	if o == nil {
		o = &outbound.Options{Upstream: "openai"}
	}
	o.Observer = r.m.Outbound()
	p := &provider{rig: r, client: outbound.New(outbound.PerModel("project", limiters...), o)}
	var err error
	if p.sim, err = simulator.New(nil); err != nil {
		r.Fatal(err)
	}
	prices := &llm.Prices{Currency: "usd", Models: map[string]llm.Price{"gpt-4o": {
		Input:     2_000_000,
		CacheRead: 1_000_000, Output: 8_000_000,
	}}}
	p.rt = outbound.NewTransport(p.client, llm.OpenAI(), &outbound.TransportOptions{
		Base:   p.sim.Transport(),
		Prices: prices, Call: func(_ *http.Request, _ *llm.Call, c *outbound.Call) error {
			c.NoWait = true
			return nil
		},
	})
	return p
}

// call makes a call that the simulator answers as its words say, and reads the answer.
func (p *provider) call(words string) error {
	p.Helper()
	body := fmt.Sprintf(`{"model":"gpt-4o","max_tokens":100,"messages":[{"role":"user","content":"Hello!\nsimulate: %s"}]}`, words)
	req, err := http.NewRequestWithContext(p.Context(), http.MethodPost, "http://provider.test/v1/chat/completions",
		strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	resp, err := p.rt.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// Calls are counted by how they ended, with what they used and how long they took.
//
// req: C9 C11
func TestCallsToUpstreamsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		p := r.newProvider(&outbound.Options{Upstream: "openai", Breaker: outbound.Breaker{Failures: 2}},
			r.limiter(quota("gpt-4o", 5)))
		r.m.WatchOutbound(func() []outbound.State { return []outbound.State{p.client.State()} })
		r.want(1, "drawgate_upstream_circuit_state", "upstream", "openai", "model", "", "state", "closed")
		r.want(0, "drawgate_upstream_circuit_transitions_total", "upstream", "openai", "model", "", "scope",
			"connections", "state", "open")
		const up, model = "openai", "gpt-4o"
		ended := func(want float64, outcome, status string) {
			t.Helper()
			r.want(want, "drawgate_upstream_calls_total", "upstream", up, "model", model, "outcome", outcome, "status",
				status)
		}
		for _, words := range []string{"output=7 cache_read=4 delay=2s", "fault=minute"} {
			if err := p.call(words); err != nil {
				t.Fatal(err)
			}
		}
		used := p.sim.Calls()[0]
		ended(1, "succeeded", "2xx")
		ended(1, "refused", "4xx")
		r.want(1, "drawgate_incidents_total", "upstream", up, "model", model, "meaning", "minute")
		r.want(0, "drawgate_incidents_total", "upstream", up, "model", model, "meaning", "day")
		tokens := func(want int64, kind string) {
			t.Helper()
			r.want(float64(want), "drawgate_upstream_tokens_total", "upstream", up, "model", model, "kind", kind)
		}
		tokens(7, "output")
		tokens(4, "cache_read")
		input, _ := r.value("drawgate_upstream_tokens_total", "upstream", up, "model", model, "kind", "input")
		cost := (input-4)*2 + 4*1 + 7*8
		r.want(cost, "drawgate_upstream_used_units_total", "upstream", up, "model", model, "unit", "usd_micros")
		r.want(2, "drawgate_upstream_used_units_total", "upstream", up, "model", model, "unit", "requests")
		if input < 5 || used.Model != model {
			t.Errorf("%v tokens of input for %+v", input, used)
		}
		r.want(1, "drawgate_upstream_estimate_ratio", "upstream", up, "model", model, "unit", "tokens")
		r.want(1, "drawgate_upstream_estimate_ratio", "upstream", up, "model", model, "unit", "usd_micros")
		r.want(2, "drawgate_upstream_call_seconds", "upstream", up, "model", model)
		r.want(2, "drawgate_upstream_answer_seconds", "upstream", up, "model", model)
		if sum := r.family("drawgate_upstream_call_seconds").GetMetric()[0].GetHistogram().GetSampleSum(); sum < 2 ||
			sum > 3 {
			t.Errorf("the calls lasted %v s together, want 2 and a little", sum)
		}

		// The quota is paused, so the next call is not granted. A minute later it has room.
		if err := p.call("output=1"); !errors.Is(err, drawgate.ErrLimited) {
			t.Fatalf("got %v, want a refusal", err)
		}
		ended(1, "not_granted", "none")
		time.Sleep(2 * time.Minute)
		for range 2 {
			if err := p.call("fault=503"); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.call("output=1"); !errors.Is(err, outbound.ErrCircuitOpen) {
			t.Fatalf("got %v, want an open circuit", err)
		}
		ended(2, "failed", "5xx")
		ended(1, "turned_away", "none")
		r.want(1, "drawgate_upstream_circuit_transitions_total", "upstream", up, "model", model, "scope", "model",
			"state", "open")
		r.want(1, "drawgate_upstream_circuit_state", "upstream", up, "model", model, "state", "open")
		r.want(0, "drawgate_upstream_circuit_state", "upstream", up, "model", model, "state", "closed")
		r.want(60, "drawgate_upstream_circuit_retry_seconds", "upstream", up)
		r.want(5, "drawgate_upstream_queue_seconds", "upstream", up, "model", model)
		time.Sleep(time.Minute)
		r.want(1, "drawgate_upstream_circuit_state", "upstream", up, "model", model, "state", "half-open")
		for range 2 {
			if err := p.call("output=1"); err != nil {
				t.Fatal(err)
			}
		}
		r.want(1, "drawgate_upstream_circuit_transitions_total", "upstream", up, "model", model, "scope", "model",
			"state", "closed")
		r.want(0, "drawgate_upstream_circuit_retry_seconds", "upstream", up)
		ended(3, "succeeded", "2xx")
	})
}

// Holds that the store does not let end are counted, and so are calls that run and that wait.
func TestFailedHoldsAndRunningCallsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		l := r.limiter(quota("m", 1))
		defer l.Close()
		c := outbound.New(outbound.PerModel("project", l), &outbound.Options{Upstream: "up", Observer: r.m.Outbound()})
		worst := outbound.State{Upstream: "up", Circuits: []outbound.Circuit{
			{State: outbound.CircuitOpen},
			{Model: "m", Series: "m", Caller: "key a", State: outbound.CircuitOpen},
			{Model: "m", Series: "m", Caller: "key b", State: outbound.CircuitHalfOpen},
		}}
		r.m.WatchOutbound(func() []outbound.State { return []outbound.State{c.State(), worst, c.State()} })
		end := make(chan struct{})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
				defer stop()
				_, _ = outbound.Do(ctx, c, outbound.Call{Model: "m"},
					func(context.Context) (int, []drawgate.Cost, error) {
						<-end
						return 0, nil, nil
					})
			})
		}
		synctest.Wait()
		r.want(2, "drawgate_upstream_calls_under_way", "upstream", "up") // two clients have this name
		r.want(2, "drawgate_upstream_calls_waiting", "upstream", "up")
		r.want(1, "drawgate_upstream_circuit_state", "upstream", "up", "model", "", "state", "open") // of the worst one
		r.want(1, "drawgate_upstream_circuit_state", "upstream", "up", "model", "m", "state", "closed")
		r.want(2, "drawgate_upstream_caller_circuits", "upstream", "up", "model", "m")
		r.want(0, "drawgate_upstream_hold_failures_total", "upstream", "up", "model", "m")
		r.store.down.Store(true)
		close(end)
		wg.Wait()
		r.want(1, "drawgate_upstream_hold_failures_total", "upstream", "up", "model", "m")
		r.want(0, "drawgate_upstream_calls_under_way", "upstream", "up")
	})
}

// However many models callers make up, they get no labels: a model is named by its series, or once
// a call of it was granted; and the number of names is bounded. Nothing that is secret is a label.
//
// req: C11
func TestCallersMakeUpNoLabels(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	o := r.m.Outbound()
	const secret = "sk-secret-0123456789"
	name := func(i int) string { return fmt.Sprintf("made-up-%d-%s", i, secret) }
	for i := range 10_000 {
		name := name(i)
		o.Called(&outbound.Event{
			Upstream: "openai", Model: name, Outcome: outbound.NotGranted, Err: errors.New(secret),
			Reason: secret,
		})
		o.Called(&outbound.Event{
			Upstream: "openai", Model: name, Series: "gpt-*", Outcome: outbound.Refused,
			Reason: secret, Granted: time.Now(),
		})
		r.m.GatewayAnswered("openai", "gpt-*", name)
	}
	r.want(10_000, "drawgate_upstream_calls_total", "upstream", "openai", "model", "other", "outcome", "not_granted",
		"status", "none")
	r.want(10_000, "drawgate_incidents_total", "upstream", "openai", "model", "gpt-*", "meaning", "unknown")
	r.want(10_000, "drawgate_gateway_answers_total", "upstream", "openai", "model", "gpt-*", "result", "other")
	for i := range 10_000 { // of a program whose own names are as many
		e := &outbound.Event{
			Upstream: fmt.Sprint("upstream", i/200), Model: fmt.Sprint("model", i%200), Granted: time.Now(),
			Sent:     time.Now(),
			Estimate: []drawgate.Cost{drawgate.Units(fmt.Sprint("unit", i), 1)},
		}
		o.Granted(e)
		o.Called(e)
		o.Circuit(fmt.Sprint("circuit", i), &outbound.Circuit{
			Model: name(i), Series: "gpt-*", Caller: name(i),
			State: outbound.CircuitOpen,
		})
	}
	if n := len(r.family("drawgate_upstream_calls_total").GetMetric()); n > 2+50*101 {
		t.Errorf("calls have %d series, want 100 models of each of 50 upstreams, and one more", n)
	}
	if n := len(r.family("drawgate_upstream_used_units_total").GetMetric()); n > 50*101 {
		t.Errorf("units have %d series", n)
	}
	if n := len(r.family("drawgate_upstream_circuit_transitions_total").GetMetric()); n > 101*2+50*101*4+2*101 {
		t.Errorf("circuits have %d series", n)
	}
	all, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if strings.Contains(f.String(), secret) || strings.Contains(f.String(), "made-up") {
			t.Errorf("%s shows what a caller made up", f.GetName())
		}
	}
}

// What happens rarely has series at zero for the models of the configuration, before any call, so
// that an alert sees the first incident. A model beyond the bound has none of its own.
//
// req: C11
func TestRareEventsOfDeclaredModelsStartAtZero(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.m.DeclareCalls("openai", "gpt-*", "o3")
	r.want(0, "drawgate_gateway_wrong_keys_total", "upstream", "openai")
	r.m.GatewayWrongKey("openai")
	r.want(1, "drawgate_gateway_wrong_keys_total", "upstream", "openai")
	for _, model := range []string{"gpt-*", "o3"} {
		r.want(0, "drawgate_incidents_total", "upstream", "openai", "model", model, "meaning", "day")
		r.want(0, "drawgate_upstream_hold_failures_total", "upstream", "openai", "model", model)
	}
	for i := range 1000 {
		r.m.DeclareCalls("gemini", fmt.Sprint("model", i))
	}
	if n := len(r.family("drawgate_upstream_hold_failures_total").GetMetric()); n != 2+101 {
		t.Errorf("%d models have series, want 2 of one upstream and 101 of the other", n)
	}
}

// A circuit that opens is reported at once, and one that opens again and again once a minute, with
// how often. The last report says how things are.
//
// req: C11
func TestCircuitsAreReported(t *testing.T) {
	t.Parallel()
	warned(t, rolling("p", "rpm", 1, time.Minute), nil, func(t *testing.T, _ *drawgate.Limiter, w *telemetry.Warner,
		news func() []string,
	) {
		circuit := func(upstream, state string) { w.Outbound().Circuit(upstream, &outbound.Circuit{State: state}) }
		check(t, news())
		circuit("gemini", outbound.CircuitClosed)
		check(t, news())
		circuit("gemini", outbound.CircuitOpen)
		check(t, news(), "circuit_opened")
		circuit("openai", outbound.CircuitOpen)
		check(t, news(), "circuit_opened")
		circuit("gemini", outbound.CircuitClosed)
		check(t, news(), "circuit_closed")
		for range 3 {
			circuit("gemini", outbound.CircuitOpen)
			circuit("gemini", outbound.CircuitClosed)
		}
		check(t, news())
		time.Sleep(2 * time.Minute)
		check(t, news(), "circuit_opened +3", "circuit_closed")
		circuit("gemini", outbound.CircuitOpen)
		circuit("gemini", outbound.CircuitClosed)
		circuit("gemini", outbound.CircuitOpen)
		check(t, news(), "circuit_opened", "circuit_closed")
		time.Sleep(2 * time.Minute)
		check(t, news(), "circuit_opened +1")
		circuit("gemini", outbound.CircuitClosed)
		check(t, news(), "circuit_closed")
	})
}
