//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/internal/sleep"
	"github.com/drawgate/drawgate/llm/simulator"
)

// tier is what the free tier of one model allows, and what a preset makes of it.
type tier struct {
	model         string
	rpm, tpm, rpd int64
	passes        int64  // requests per minute that the preset lets pass: without its headroom
	daily         int64  // and per day
	limited       bool   // the preset limits tokens too
	wait          string // how callers wait
	tokens        [3]int // of small, medium and large prompts
}

// freeTiers are those of the presets gemini-free and gemini-translation, a hundred times as large.
// Prompts of the last one use up its tokens before its requests.
var freeTiers = []tier{
	{"gemini-2.5-flash", 1000, 25_000_000, 25_000, 800, 20_000, false, "up_to: 2m", [3]int{50, 500, 5000}},
	{"gemini-2.5-pro", 500, 25_000_000, 10_000, 400, 8000, false, "up_to: 2m", [3]int{50, 500, 5000}},
	{
		"gemini-2.0-flash", 500, 25_000_000, 2500, 500, 2400, true, "backoff: [2s, 4s, 8s], up_to: 2m",
		[3]int{10_000, 40_000, 120_000},
	},
}

// smallTiers are tiers for a run of seconds.
var smallTiers = []tier{
	{"gemini-2.5-flash", 20, 1_000_000, 10_000, 16, 8000, false, "up_to: 1m", [3]int{10, 100, 1000}},
	{"gemini-2.0-flash", 40, 40_000, 10_000, 40, 9999, true, "up_to: 1m", [3]int{100, 1000, 2000}},
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
	running   []*daemon

	mu   sync.Mutex
	seen seen // guarded by mu
}

// short and long describe the runs of the tests below.
func (o *overage) short() {
	o.tiers, o.window, o.margin, o.travel, o.gateways, o.callers = smallTiers, 10*time.Second, 5*time.Second,
		100*time.Millisecond, 2, 24
}

func (o *overage) long() {
	o.tiers, o.window, o.margin, o.travel, o.gateways, o.callers, o.rounds = freeTiers, time.Minute, 2*time.Second,
		300*time.Millisecond, 4, 200, 3
}

// TestZeroOverage: gateways that share a quota over Redis never exceed what the provider allows,
// however it counts, and use nearly all of it. Nobody waits much longer than the others. The
// provider is a simulator in a process of its own, which counts by its own rules, and the audit of
// the gateways' ledgers agrees with it. With DRAWGATE_LONG the run is three minutes of a free tier
// a hundred times as large; otherwise it is so short that only safety is judged.
//
// req: C1 C2 C12
func TestZeroOverage(t *testing.T) { //nolint:tparallel // the long runs need the machine for themselves
	overages(t, false, simulator.Rolling)
}

// TestZeroOverageInTrouble: the same while calls fail in every way that the simulator knows,
// gateways are killed, and Redis is stopped. Estimates are upper bounds.
//
// req: C1 C7 C12
func TestZeroOverageInTrouble(t *testing.T) { //nolint:tparallel // the long runs need the machine for themselves
	overages(t, true, simulator.Aligned)
}

// overages runs both kinds of windows one after the other with DRAWGATE_LONG, and otherwise one.
func overages(t *testing.T, trouble bool, brief simulator.Window) {
	t.Helper()
	if !needs.Long() {
		t.Parallel()
		o := &overage{t: t, windows: brief, trouble: trouble}
		o.short()
		o.run()
		return
	}
	for _, windows := range []simulator.Window{simulator.Rolling, simulator.Aligned} {
		t.Run(string(windows), func(t *testing.T) {
			o := &overage{t: t, windows: windows, trouble: trouble}
			o.long()
			o.run()
		})
	}
}

func (o *overage) run() {
	o.t.Helper()
	o.start()
	if o.trouble {
		o.inject()
	}
	began := time.Now()
	load := o.load()
	if o.trouble {
		o.disturb(began)
	}
	o.enough(began)
	load.stop()
	o.end()
	report, calls := o.referee()
	o.judge(&report, calls)
	o.judgeAudit(&report)
	o.judgeSpend()
}

// start starts all processes.
func (o *overage) start() {
	o.t.Helper()
	o.redis = redistest.Start(o.t)
	o.b = newBench(o.t, "UPSTREAM_KEY=sk-upstream-0123456789", "URGENT=urgent-0123456789", "NORMAL=normal-0123456789")
	o.b.write("simulator.json", o.provider())
	o.simulator = o.b.background("simulate", "--config", "simulator.json", "--listen", "127.0.0.1:0")
	o.simulator.public = o.simulator.log.await(o.t, `listening on (http://[^"]+)`)
	o.running = make([]*daemon, o.gateways)
	for i := range o.gateways {
		o.addresses = append(o.addresses, redistest.FreeAddr(o.t))
		o.b.write(fileOf(i), o.configuration(i))
		o.gateway(i)
	}
}

// gateway starts a gateway, at its address.
func (o *overage) gateway(i int) {
	o.t.Helper()
	d := o.b.background("gateway", "--config", fileOf(i), "--listen", o.addresses[i], "--admin", "127.0.0.1:0")
	d.log.await(o.t, `gateway (listening) on http://`)
	o.running[i] = d
}

// fileOf and ledgerOf are where a gateway's configuration is, and what it writes down.
func fileOf(gateway int) string { return fmt.Sprintf("drawgate-%d.yaml", gateway) }

func ledgerOf(gateway int) string { return fmt.Sprintf("ledger-%d", gateway) }

// policyOf is the name of the policy for a model, by the model's place.
func policyOf(model int) string { return fmt.Sprint("p", model) }

// closing are the faults by which the provider says that a quota is closed, the first two for a
// minute at most. Each has a model of its own, because nothing is sent from then on.
var closing = []simulator.FaultKind{
	simulator.FaultTransient, simulator.FaultMinute, simulator.FaultDay,
	simulator.FaultCredit, simulator.FaultSpendCap,
}

// faultRate is how often each of the other faults happens. Where an answer does not say what was
// used, the upper bound stands, which is up to five times the tokens of these prompts.
const faultRate = 0.001

// faults returns all other faults.
func faults(rate float64, model string) (all []simulator.Fault) {
	for _, k := range simulator.FaultKinds() {
		if !slices.Contains(closing, k) {
			f := simulator.Fault{Kind: k, Rate: rate, After: 2, Model: model}
			if k == simulator.FaultLatency {
				f.Delay = 3 * time.Second
			}
			all = append(all, f)
		}
	}
	return all
}

// provider returns the simulator's configuration: the whole limits, without headroom.
func (o *overage) provider() string {
	o.t.Helper()
	c := simulator.Config{Windows: o.windows, Travel: simulator.Duration(o.travel), Seed: 7}
	for _, m := range o.models() {
		c.Quotas = append(c.Quotas, simulator.Quota{
			Provider: simulator.Gemini, Name: m.model,
			Models: []string{m.model}, FreeTier: true, Limits: []simulator.Limit{
				{
					Name: "rpm", Dimension: simulator.Requests, Amount: m.rpm, Window: o.windows, Period: o.window,
					Scope: simulator.Project,
				},
				{
					Name: "tpm", Dimension: simulator.InputTokens, Amount: m.tpm, Window: o.windows, Period: o.window,
					Scope: simulator.Project,
				},
				{
					Name: "rpd", Dimension: simulator.Requests, Amount: m.rpd, Window: simulator.Day,
					Zone:  simulator.Pacific,
					Scope: simulator.Project,
				},
			},
		})
	}
	if o.trouble {
		c.Faults = faults(faultRate, "")
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

// configuration returns that of a gateway. Nothing is admitted while Redis is unavailable: any
// other fallback trades the promise for availability.
func (o *overage) configuration(gateway int) string {
	var policies strings.Builder
	var models, prices []string
	for i, m := range o.models() {
		fmt.Fprintf(&policies,
			"  %s:\n    limits:\n      - {name: rpm, rolling: %v, amount: %d, headroom: %d, margin: %v}\n", policyOf(i),
			o.window, m.rpm, m.rpm-m.passes, o.margin)
		if m.limited {
			fmt.Fprintf(&policies, "      - {name: tpm, unit: input_tokens, rolling: %v, amount: %d, margin: %v}\n",
				o.window, m.tpm, o.margin)
		}
		fmt.Fprintf(&policies,
			"      - {name: rpd, calendar: day, zone: America/Los_Angeles, amount: %d, headroom: %d, margin: %v}\n",
			m.rpd, m.rpd-m.daily, o.margin)
		fmt.Fprintf(&policies, "    wait: {%s}\n    fallback: closed\n", m.wait)
		models = append(models, fmt.Sprintf("{model: %s, policy: %s}", m.model, policyOf(i)))
		prices = append(prices, fmt.Sprintf(`%s: {input: "0.30", output: "2.50"}`, m.model))
	}
	patience := "" // of the gateways with the provider
	if o.trouble {
		patience = "silence: 10s, duration: 20s, breaker: {open: 5s}, "
	}
	return fmt.Sprintf(`store: %s
policies:
%sgateway:
  max_wait: 2m
  ledger: {dir: %s}
  upstreams:
    gemini: {url: %s, api_key_env: UPSTREAM_KEY, owner: project, %smodels: [%s]}
  prices: {models: {%s}}
  keys:
    - {name: normal, secret_env: NORMAL}
    - {name: urgent, team: red, secret_env: URGENT, priority: 5}
`, o.redis.URL(), policies.String(), ledgerOf(gateway), o.simulator.public, patience, strings.Join(models, ", "),
		strings.Join(prices, ", "))
}

// enough waits until the run may end: all of it was counted, or windows have come and gone.
func (o *overage) enough(began time.Time) {
	o.t.Helper()
	if o.rounds > 0 {
		whole := time.Duration(o.rounds) * (o.window + o.margin)
		sleep.For(o.t.Context(), time.Until(began.Add(whole+5*time.Second)))
		return
	}
	var want int64
	for _, m := range o.tiers {
		want += m.rpm + m.rpm/2
	}
	eventually(o.t, fmt.Sprintf("end: %d calls were not served", want), func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.seen.status[http.StatusOK] >= want
	})
}

// disturb kills each gateway with SIGKILL, the first one while it sends most, and stops Redis for
// ten seconds when units come back.
func (o *overage) disturb(began time.Time) {
	o.t.Helper()
	stop := 10 * time.Second
	at := []time.Duration{2 * time.Second, 30 * time.Second, 62 * time.Second, 100 * time.Second, 115 * time.Second}
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
	eventually(o.t, "quotas that are closed", func() bool { // a gateway that is killed before may not have passed it on
		o.mu.Lock()
		defer o.mu.Unlock()
		return !slices.ContainsFunc(o.models()[len(o.tiers):], func(m tier) bool { return !o.seen.closed[m.model] })
	})
	again(0)
	again(1)
	next()
	o.redis.Stop()
	sleep.For(o.t.Context(), stop)
	o.redis.Continue()
	for i := 2; i < o.gateways; i++ {
		again(i)
	}
}

// inject lets every fault happen once at least, to the first calls.
func (o *overage) inject() {
	o.t.Helper()
	all := faults(0, o.tiers[0].model)
	for _, k := range closing {
		all = append(all, simulator.Fault{Kind: k, Model: "closed-by-" + string(k)})
	}
	if r := o.simulator.must(o.simulator.public+"/simulator/faults", all); r.code != http.StatusOK {
		o.t.Fatalf("the simulator takes no faults: %d %s", r.code, r.body)
	}
}
