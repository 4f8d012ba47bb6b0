//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/internal/sleep"
	"github.com/drawgate/drawgate/llm/simulator"
)

// tier is what the free tier of one model allows, and what a preset makes of it.
type tier struct {
	model         string
	rpm, tpm, rpd int64
	tokens        bool   // the preset has a limit of tokens too
	headroom      string // of requests per minute
	daily         string // headroom of requests per day
	wait          string
	words         [3]int // of small, medium and large prompts
}

// freeTiers are those of the presets gemini-free and gemini-translation, a hundred times as large.
// Prompts of the last one use up its tokens before its requests.
var freeTiers = []tier{
	{"gemini-2.5-flash", 1000, 25_000_000, 25_000, false, "20%", "20%", "up_to: 2m", [3]int{50, 500, 5000}},
	{"gemini-2.5-pro", 500, 25_000_000, 10_000, false, "20%", "20%", "up_to: 2m", [3]int{50, 500, 5000}},
	{"gemini-2.0-flash", 500, 25_000_000, 2500, true, "0", "100", "backoff: [2s, 4s, 8s], up_to: 2m", [3]int{10_000, 40_000, 120_000}},
}

// smallTiers are tiers for a run of seconds.
var smallTiers = []tier{
	{"gemini-2.5-flash", 20, 1_000_000, 10_000, false, "20%", "20%", "up_to: 1m", [3]int{10, 100, 1000}},
	{"gemini-2.0-flash", 40, 40_000, 10_000, true, "0", "1", "up_to: 1m", [3]int{100, 1000, 2000}},
}

// sizes are the classes of prompts.
var sizes = [3]string{"small", "medium", "large"}

// overage is a run of gateways on one Redis server in front of a simulator, with callers who want
// more than the provider allows.
type overage struct {
	tiers          []tier
	windows        simulator.Window
	window, margin time.Duration
	travel         time.Duration
	gateways       int
	callers        int
	rounds         int  // windows and their margins that are counted; 0: until enough was served
	trouble        bool // faults, gateways that are killed, Redis stopped

	t         *testing.T
	b         bench
	redis     *redistest.Server
	simulator *daemon
	addresses []string // of the gateways

	mu      sync.Mutex
	running []*daemon // guarded by mu
	seen    seen      // guarded by mu
}

// short and long describe the runs of the tests below.
func (o *overage) short() {
	o.tiers, o.window, o.margin, o.travel, o.gateways, o.callers = smallTiers, 10*time.Second, 5*time.Second, 100*time.Millisecond, 2, 24
}

func (o *overage) long() {
	o.tiers, o.window, o.margin, o.travel, o.gateways, o.callers, o.rounds = freeTiers, time.Minute, 2*time.Second, 300*time.Millisecond, 4, 200, 3
}

// TestZeroOverage: gateways that share a quota over Redis never exceed what the provider allows,
// however it counts, and use nearly all of it. Nobody waits much longer than the others. The
// provider is a simulator in a process of its own, which counts by its own rules. With DRAWGATE_LONG
// the run is three minutes of the free tier a hundred times; otherwise it is so short that only
// safety is judged.
//
// req: C1 C2 C12
func TestZeroOverage(t *testing.T) {
	t.Parallel()
	long := os.Getenv("DRAWGATE_LONG") != ""
	for _, c := range []struct {
		name    string
		windows simulator.Window
		trouble bool
		brief   bool // runs without DRAWGATE_LONG too
	}{
		{"rolling", simulator.Rolling, false, true},
		{"aligned", simulator.Aligned, false, false},
		{"rolling in trouble", simulator.Rolling, true, false},
		{"aligned in trouble", simulator.Aligned, true, true},
	} {
		if !long && !c.brief {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if !long {
				t.Parallel()
			}
			o := &overage{t: t, windows: c.windows, trouble: c.trouble}
			if o.short(); long {
				o.long()
			}
			o.run()
		})
	}
}

func (o *overage) run() {
	o.t.Helper()
	o.start()
	began := time.Now()
	load := o.load(began)
	if o.trouble {
		o.disturb(began)
	}
	o.enough(began)
	load.stop()
	report, calls := o.referee()
	o.judge(&report, calls)
}

// start starts all processes.
func (o *overage) start() {
	o.t.Helper()
	o.redis = redistest.Start(o.t)
	o.b = newBench(o.t, "UPSTREAM_KEY=sk-upstream-0123456789", "URGENT=urgent-0123456789", "NORMAL=normal-0123456789")
	o.b.write("simulator.json", o.provider())
	o.simulator = o.b.background("simulate", "--config", "simulator.json", "--listen", "127.0.0.1:0")
	o.simulator.public = o.simulator.log.await(o.t, `listening on (http://[^"]+)`)
	o.b.write("drawgate.yaml", o.configuration())
	o.running = make([]*daemon, o.gateways)
	for i := range o.gateways {
		o.addresses = append(o.addresses, redistest.FreeAddr(o.t))
		o.gateway(i)
	}
}

// gateway starts a gateway, at its address.
func (o *overage) gateway(i int) {
	o.t.Helper()
	d := o.b.background("gateway", "--config", "drawgate.yaml", "--listen", o.addresses[i], "--admin", "127.0.0.1:0")
	d.log.await(o.t, `gateway (listening) on http://`)
	o.running[i] = d
}

// closing are the faults by which the provider says that a quota is closed. Each has a model of its
// own, because it is to stay unused from then on.
var closing = []simulator.FaultKind{simulator.FaultMinute, simulator.FaultDay, simulator.FaultCredit, simulator.FaultSpendCap}

// rates are the other faults, and how often they happen.
var rates = map[simulator.FaultKind]float64{
	simulator.FaultTransient: 0.003, simulator.FaultOverload: 0.005, simulator.FaultInternal: 0.01, simulator.FaultBadGateway: 0.005,
	simulator.FaultUnavailable: 0.005, simulator.FaultOverloaded: 0.005, simulator.FaultLatency: 0.01, simulator.FaultClose: 0.005,
	simulator.FaultCut: 0.01, simulator.FaultErrorEvent: 0.01, simulator.FaultStall: 0.003, simulator.FaultNoUsage: 0.02,
	simulator.FaultContentType: 0.005, simulator.FaultEndless: 0.002, simulator.FaultGzip: 0.01,
}

// provider returns the simulator's configuration: the whole limits, without headroom.
func (o *overage) provider() string {
	o.t.Helper()
	c := simulator.Config{Windows: o.windows, Travel: simulator.Duration(o.travel), Seed: 7}
	for _, m := range o.models() {
		c.Quotas = append(c.Quotas, simulator.Quota{Provider: simulator.Gemini, Name: m.model, Models: []string{m.model}, FreeTier: true, Limits: []simulator.Limit{
			{Name: "rpm", Dimension: simulator.Requests, Amount: m.rpm, Window: o.windows, Period: o.window, Scope: simulator.Project},
			{Name: "tpm", Dimension: simulator.InputTokens, Amount: m.tpm, Window: o.windows, Period: o.window, Scope: simulator.Project},
			{Name: "rpd", Dimension: simulator.Requests, Amount: m.rpd, Window: simulator.Day, Zone: simulator.Pacific, Scope: simulator.Project},
		}})
	}
	if o.trouble {
		for _, k := range simulator.FaultKinds() {
			if slices.Contains(closing, k) {
				continue
			}
			if rates[k] == 0 {
				o.t.Errorf("the fault %s does not happen in this test: give it a rate", k)
			}
			c.Faults = append(c.Faults, simulator.Fault{Kind: k, Rate: rates[k], After: 2, Delay: 3 * time.Second})
		}
	}
	text, err := json.Marshal(c)
	if err != nil {
		o.t.Fatal(err)
	}
	return string(text)
}

// models returns the tiers, and in a run with trouble one for each of the closing faults.
func (o *overage) models() []tier {
	all := slices.Clone(o.tiers)
	if !o.trouble {
		return all
	}
	for _, k := range closing {
		m := o.tiers[0]
		m.model = "closed-by-" + string(k)
		all = append(all, m)
	}
	return all
}

// configuration returns that of the gateways. Nothing is admitted while Redis is unavailable: any
// other fallback trades the promise for availability.
func (o *overage) configuration() string {
	var policies, models strings.Builder
	for i, m := range o.models() {
		fmt.Fprintf(&policies, "  p%d:\n    limits:\n      - {name: rpm, rolling: %v, amount: %d, headroom: %s, margin: %v}\n", i, o.window, m.rpm, m.headroom, o.margin)
		if m.tokens {
			fmt.Fprintf(&policies, "      - {name: tpm, unit: input_tokens, rolling: %v, amount: %d, margin: %v}\n", o.window, m.tpm, o.margin)
		}
		fmt.Fprintf(&policies, "      - {name: rpd, calendar: day, zone: America/Los_Angeles, amount: %d, headroom: %s, margin: %v}\n", m.rpd, m.daily, o.margin)
		fmt.Fprintf(&policies, "    wait: {%s}\n    fallback: closed\n", m.wait)
		fmt.Fprintf(&models, "        - {model: %s, policy: p%d}\n", m.model, i)
	}
	return fmt.Sprintf(`store: %s
policies:
%sgateway:
  max_wait: 2m
  upstreams:
    gemini:
      url: %s
      api_key_env: UPSTREAM_KEY
      owner: project
      silence: 5s
      duration: 15s
      models:
%s  keys:
    - {name: normal, secret_env: NORMAL}
    - {name: urgent, secret_env: URGENT, priority: 5}
`, o.redis.URL(), policies.String(), o.simulator.public, models.String())
}

// enough waits until the run may end: all of it was counted, or windows have come and gone.
func (o *overage) enough(began time.Time) {
	o.t.Helper()
	if o.rounds > 0 {
		sleep.For(o.t.Context(), time.Until(began.Add(o.length()+5*time.Second)))
		return
	}
	var want int64
	for _, m := range o.tiers {
		want += 2 * m.rpm
	}
	eventually(o.t, fmt.Sprintf("end: %d calls were not served", want), func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.seen.status[http.StatusOK] >= want
	})
}

// length is what is counted of a run.
func (o *overage) length() time.Duration { return time.Duration(o.rounds) * (o.window + o.margin) }

// disturb kills each gateway with SIGKILL, of which two while they send most, and stops Redis for
// ten seconds when units come back. Then the provider says that quotas are closed.
func (o *overage) disturb(began time.Time) {
	o.t.Helper()
	stop := 10 * time.Second
	at := []time.Duration{2 * time.Second, 30 * time.Second, 62 * time.Second, 80 * time.Second, 100 * time.Second, 125 * time.Second}
	if o.rounds == 0 {
		stop, at = time.Second, make([]time.Duration, len(at))
	}
	next := func() {
		sleep.For(o.t.Context(), time.Until(began.Add(at[0])))
		at = at[1:]
	}
	again := func(i int) {
		next()
		o.running[i].kill()
		o.gateway(i)
	}
	again(0)
	again(1)
	next()
	o.redis.Stop()
	sleep.For(o.t.Context(), stop)
	o.redis.Continue()
	for _, k := range closing {
		o.simulator.must(o.simulator.public+"/simulator/faults", simulator.Fault{Kind: k, Model: "closed-by-" + string(k)})
	}
	next()
	for i := 2; i < o.gateways; i++ {
		again(i)
	}
}
