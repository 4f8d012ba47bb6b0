package telemetry

import (
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
)

// Bounds of the series of calls to upstreams.
const (
	maxUpstreams = 100
	maxModels    = 100 // of each upstream
	maxUnits     = 16
	maxTeams     = 100
	maxTeamUses  = 1000 // of models of upstreams by teams
)

// callBuckets reach from an answer of a cache to one that a model thought about for long.
var callBuckets = []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// ratioBuckets are finest where an estimate is good: around 1.
var ratioBuckets = []float64{0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5, 2, 4}

// meanings are what a refusal by an upstream can mean, as labels; the last one stands for all that
// do not say.
var meanings = [...]string{
	llm.PerMinute.String(), llm.PerDay.String(), llm.Spend.String(), llm.Credit.String(), llm.NotOffered.String(),
	"unknown",
}

// circuitStates are the states of a circuit, the worst one last.
var circuitStates = [...]string{outbound.CircuitClosed, outbound.CircuitHalfOpen, outbound.CircuitOpen}

// gatewayResults are how a gateway answers calls that a quota counts.
var gatewayResults = [...]string{
	"answered", "cache_hit", "cache_stale", "other_model", "error", "refused", "cut",
	"left", other,
}

// calls counts the calls to upstreams.
type calls struct {
	upstreams *names
	units     *names
	teams     *names
	teamUses  *names

	mu     sync.Mutex
	models map[string]*names // guarded by mu: by the upstream's label
	zero   map[rareOf]bool   // guarded by mu: those whose series of what happens rarely exist

	ended, tokens, used, ofTeam, incidents, transitions, holds, answers, wrongKeys *prometheus.CounterVec
	queued, answered, lasted, estimates                                            *prometheus.HistogramVec
}

// rareOf is an upstream, or one of its models, by their labels.
type rareOf struct {
	upstream, model string
	ofModel         bool
}

func newCalls() *calls {
	c := &calls{
		upstreams: newNames(maxUpstreams), units: newNames(maxUnits), teams: newNames(maxTeams),
		teamUses: newNames(maxTeamUses),
		models:   map[string]*names{}, zero: map[rareOf]bool{},
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help},
			append([]string{"upstream"}, labels...))
	}
	seconds := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(histogram(name, help, buckets), []string{"upstream", "model"})
	}
	c.ended = counter("drawgate_upstream_calls_total",
		"Calls to an upstream, each attempt by itself, by outcome: `succeeded` (the upstream answered, if "+
			"only that the call is wrong), `failed` (a time-out, a lost connection, an overload or a 5xx), "+
			"`refused` (for the quota), `gave_up` (the caller left, or nothing could be sent in time), "+
			"`not_granted` (by the limits here), `turned_away` (the circuit was open).", "model", "outcome", "status")
	c.tokens = counter("drawgate_upstream_tokens_total",
		"Tokens that the upstream said were used: `input`, of which `cache_read` and `cache_write`; "+
			"`output`, of which `reasoning`.", "model", "kind")
	c.used = counter("drawgate_upstream_used_units_total",
		"Units that calls were settled with, in each unit that the upstream or the prices know. "+
			"`usd_micros` is the money spent, in millionths of a dollar.", "model", "unit")
	c.ofTeam = counter("drawgate_team_used_units_total",
		"What `drawgate_upstream_used_units_total` counts, by the team of the gateway's key. Calls of keys "+
			"without a team are left out.", "team", "model", "unit")
	c.incidents = counter("drawgate_incidents_total",
		"Calls that the upstream refused for its quota although they were granted here: its limits are "+
			"lower than the configured ones, or somebody else uses the same account.", "model", "meaning")
	c.transitions = counter("drawgate_upstream_circuit_transitions_total",
		"How many times a circuit became `open`, or `closed` again. `scope` is `connections`, `model`, or "+
			"`caller` (of a single key or team).", "model", "scope", "state")
	c.holds = counter("drawgate_upstream_hold_failures_total",
		"Holds that could not be renewed, settled or given back. Their units count as used.", "model")
	c.answers = counter("drawgate_gateway_answers_total",
		"Calls to the gateway that a quota counts, each once, by how they were answered: `answered`; "+
			"`cache_hit`; `cache_stale` (an answer that is too old, because the quota is exhausted); "+
			"`other_model` (one of `fallbacks` answered); `error` (of the provider); `refused` (by the "+
			"gateway); `cut` (the provider's answer broke off); `left` (the caller did not wait). `model` is "+
			"the one that was asked for.", "model", "result")
	c.wrongKeys = counter("drawgate_gateway_wrong_keys_total",
		"Calls to the gateway that were refused for their virtual key: it is missing or unknown, a token "+
			"that is not valid, has expired, is disabled, or may not be used from the caller's address.")
	c.queued = seconds("drawgate_upstream_queue_seconds",
		"How long calls waited until they were granted, or were not; those that did not wait are included.",
		queueBuckets)
	c.answered = seconds("drawgate_upstream_answer_seconds",
		"Time from sending a call until its answer begins.", callBuckets)
	c.lasted = seconds("drawgate_upstream_call_seconds",
		"How long granted calls lasted, without the queue, to the end of the answer.", callBuckets)
	c.estimates = prometheus.NewHistogramVec(histogram("drawgate_upstream_estimate_ratio",
		"How good estimates are: what an answered call used, divided by what was held for it. Above 1 too "+
			"little was held.", ratioBuckets),
		[]string{"upstream", "model", "unit"})
	return c
}

func (c *calls) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		c.ended, c.tokens, c.used, c.ofTeam, c.incidents, c.transitions, c.holds, c.answers, c.wrongKeys,
		c.queued, c.answered, c.lasted, c.estimates,
	}
}

// Outbound returns an observer that reports calls to m: for [outbound.Options] and the options of a
// gateway.
//
// A model is named by the Series of its call. Where that is empty, it is named by the first models
// of an upstream of which a call was granted, and all others are "other": no caller can make up
// labels.
func (m *Metrics) Outbound() *outbound.Observer {
	return &outbound.Observer{
		Granted: m.toUpstreams.granted, Called: m.toUpstreams.called,
		Circuit: m.toUpstreams.circuit,
	}
}

// GatewayAnswered counts a call to a gateway by how it was answered: for the gateway's options.
func (m *Metrics) GatewayAnswered(upstream, model, result string) {
	if !slices.Contains(gatewayResults[:], result) {
		result = other
	}
	u := m.toUpstreams.upstream(upstream)
	m.toUpstreams.answers.WithLabelValues(u, m.toUpstreams.ofUpstream(u).get(model, true), result).Inc()
}

// GatewayWrongKey counts a call to a gateway that was refused for its key: for the gateway's
// options.
func (m *Metrics) GatewayWrongKey(upstream string) {
	m.toUpstreams.wrongKeys.WithLabelValues(m.toUpstreams.upstream(upstream)).Inc()
}

// DeclareCalls names an upstream of a configuration and its models, as in [outbound.Call]'s Series.
// The series of what happens rarely then start at zero before any call is made, so that alerts see
// the first incident. Call it at the start and after each change of the configuration.
func (m *Metrics) DeclareCalls(upstream string, models ...string) {
	u := m.toUpstreams.upstream(upstream)
	m.toUpstreams.wrongKeys.WithLabelValues(u)
	for _, model := range models {
		m.toUpstreams.rare(u, m.toUpstreams.ofUpstream(u).get(model, true))
	}
}

// upstream returns the label of an upstream. What can only happen rarely there starts at zero.
func (c *calls) upstream(name string) string {
	u := c.upstreams.get(name, true)
	if c.first(rareOf{upstream: u}) {
		for _, state := range []string{outbound.CircuitClosed, outbound.CircuitOpen} {
			c.transitions.WithLabelValues(u, "", scopeConnections, state)
		}
	}
	return u
}

// first reports whether it is called for the first time with its argument. Each look at a vector
// takes ten times as long.
func (c *calls) first(of rareOf) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zero[of] {
		return false
	}
	c.zero[of] = true
	return true
}

// ofUpstream returns the models of an upstream, by its label.
func (c *calls) ofUpstream(upstream string) *names {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.models[upstream]
	if n == nil {
		n = newNames(maxModels)
		c.models[upstream] = n
	}
	return n
}

// labels returns the labels of a call's upstream and model.
func (c *calls) labels(e *outbound.Event) (upstream, model string) {
	upstream = c.upstream(e.Upstream)
	of := c.ofUpstream(upstream)
	if e.Series != "" {
		return upstream, of.get(e.Series, true)
	}
	return upstream, of.get(e.Model, !e.Granted.IsZero())
}

// granted makes the series of what happens rarely, where nobody has declared the model.
func (c *calls) granted(e *outbound.Event) { c.rare(c.labels(e)) }

// rare makes the series of what happens rarely, so that rates show the first event.
func (c *calls) rare(upstream, model string) {
	if !c.first(rareOf{upstream, model, true}) {
		return
	}
	for _, meaning := range meanings {
		c.incidents.WithLabelValues(upstream, model, meaning)
	}
	c.holds.WithLabelValues(upstream, model)
	for _, scope := range []string{scopeModel, scopeCaller} {
		for _, state := range []string{outbound.CircuitClosed, outbound.CircuitOpen} {
			c.transitions.WithLabelValues(upstream, model, scope, state)
		}
	}
}

// called counts the end of a call.
func (c *calls) called(e *outbound.Event) {
	upstream, model := c.labels(e)
	if e.Outcome == outbound.HoldFailed {
		c.holds.WithLabelValues(upstream, model).Inc()
		return
	}
	c.ended.WithLabelValues(upstream, model, e.Outcome.String(), statusClass(e.Status)).Inc()
	if e.Outcome != outbound.TurnedAway {
		c.queued.WithLabelValues(upstream, model).Observe(e.Queued.Seconds())
	}
	if e.Outcome == outbound.Refused {
		c.incidents.WithLabelValues(upstream, model, meaningOf(e.Refusal.Meaning)).Inc()
	}
	if !e.Granted.IsZero() {
		c.ofGranted(e, upstream, model)
	}
}

// ofGranted counts what a call took, and what it used.
func (c *calls) ofGranted(e *outbound.Event, upstream, model string) {
	c.lasted.WithLabelValues(upstream, model).Observe((e.Took - e.Queued).Seconds())
	if !e.Answered.IsZero() && !e.Sent.IsZero() {
		c.answered.WithLabelValues(upstream, model).Observe(e.Answered.Sub(e.Sent).Seconds())
	}
	for _, spent := range e.Spent() {
		c.used.WithLabelValues(upstream, model, c.unit(spent)).Add(float64(max(0, spent.N)))
	}
	c.usedByTeam(e, upstream, model)
	if e.Outcome == outbound.Succeeded {
		c.estimated(e, upstream, model)
	}
	for _, t := range []struct {
		kind  string
		n     int64
		known bool
	}{
		{"input", e.Usage.Input, e.Usage.InputKnown},
		{"cache_read", e.Usage.CacheRead, e.Usage.CacheRead > 0},
		{"cache_write", e.Usage.CacheWrite, e.Usage.CacheWrite > 0},
		{"output", e.Usage.Output, e.Usage.OutputKnown},
		{"reasoning", e.Usage.Reasoning, e.Usage.Reasoning > 0},
	} {
		if t.known {
			c.tokens.WithLabelValues(upstream, model, t.kind).Add(float64(max(0, t.n)))
		}
	}
}

// estimated compares what a call used with what was held for it, except requests, which need no
// estimate.
func (c *calls) estimated(e *outbound.Event, upstream, model string) {
	for _, used := range e.Used {
		i := slices.IndexFunc(e.Estimate, func(held drawgate.Cost) bool { return held.Unit == used.Unit && held.N > 0 })
		if i >= 0 && used.Unit != drawgate.UnitRequests && used.Unit != "" {
			c.estimates.WithLabelValues(upstream, model,
				c.unit(used)).Observe(float64(used.N) / float64(e.Estimate[i].N))
		}
	}
}

// usedByTeam counts what the team of a key used. Beyond maxTeamUses, who used what is not told.
func (c *calls) usedByTeam(e *outbound.Event, upstream, model string) {
	i := slices.IndexFunc(e.Labels, func(l drawgate.Label) bool { return l.Name == "team" })
	if i < 0 {
		return
	}
	team := c.teams.get(e.Labels[i].Value, true)
	if c.teamUses.get(upstream+"\x00"+team+"\x00"+model, true) == other {
		team, model = other, other
	}
	for _, spent := range e.Spent() {
		c.ofTeam.WithLabelValues(upstream, team, model, c.unit(spent)).Add(float64(max(0, spent.N)))
	}
}

func (c *calls) unit(cost drawgate.Cost) string {
	if cost.Unit == "" {
		return drawgate.UnitRequests
	}
	return c.units.get(cost.Unit, true)
}

// The scopes of circuits, as labels.
const (
	scopeConnections = "connections"
	scopeModel       = "model"
	scopeCaller      = "caller"
)

func (c *calls) circuit(upstream string, k *outbound.Circuit) {
	u := c.upstream(upstream)
	switch {
	case k.Model == "":
		c.transitions.WithLabelValues(u, "", scopeConnections, k.State).Inc()
	case k.Caller == "":
		c.transitions.WithLabelValues(u, c.ofUpstream(u).get(k.Series, true), scopeModel, k.State).Inc()
	default:
		c.transitions.WithLabelValues(u, c.ofUpstream(u).get(k.Series, true), scopeCaller, k.State).Inc()
	}
}

// statusClass names the class of an HTTP status, such as "4xx", or "none".
func statusClass(status int) string {
	if status < 100 || status > 599 {
		return "none"
	}
	return strconv.Itoa(status/100) + "xx"
}

func meaningOf(m llm.Meaning) string {
	if name := m.String(); slices.Contains(meanings[:], name) {
		return name
	}
	return meanings[len(meanings)-1]
}

// WatchOutbound shows the circuits of upstreams, and their calls under way. states is called when
// metrics are read: it must be quick. Clients that have the same name are shown together, with the
// worst state of their circuits.
func (m *Metrics) WatchOutbound(states func() []outbound.State) {
	for _, s := range states() {
		m.toUpstreams.upstream(s.Upstream)
	}
	m.upstreams.Store(&states)
}

// underWay exports what clients do when metrics are read.
type underWay struct {
	m                                  *Metrics
	state, callers, calls, wait, until *prometheus.Desc
}

func newUnderWay(m *Metrics) *underWay {
	return &underWay{
		m: m,
		state: usageDesc("drawgate_upstream_circuit_state",
			"1 for the state of the circuit of a model in this process, or, where `model` is empty, of the "+
				"connections to the upstream: `closed` (calls are made), `open` (calls failed, and none is made), "+
				"`half-open` (one call at a time tries). `model` is as the configuration names it; if that stands "+
				"for several models, the worst of their states.", "upstream", "model", "state"),
		callers: usageDesc("drawgate_upstream_caller_circuits",
			"Circuits of single callers, such as keys and teams, that are not closed in this process. "+
				"`drawgate status --upstreams` says whose they are.", "upstream", "model"),
		calls: usageDesc("drawgate_upstream_calls_under_way",
			"Calls of this process that hold units.", "upstream"),
		wait: usageDesc("drawgate_upstream_calls_waiting",
			"Calls of this process that are not granted yet.", "upstream"),
		until: usageDesc("drawgate_upstream_circuit_retry_seconds",
			"While the circuit of a model or of the connections is open: seconds until a call may try, the "+
				"longest of them; otherwise 0.", "upstream"),
	}
}

// Describe implements [prometheus.Collector].
func (u *underWay) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{u.state, u.callers, u.calls, u.wait, u.until} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (u *underWay) Collect(ch chan<- prometheus.Metric) {
	states := u.m.upstreams.Load()
	if states == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for name, s := range u.m.toUpstreams.together((*states)()) {
		shared, callers := u.m.toUpstreams.circuits(name, s.Circuits)
		for model, now := range shared {
			for _, state := range circuitStates {
				v := 0.0
				if state == now {
					v = 1
				}
				gauge(u.state, v, name, model, state)
			}
			if model != "" {
				gauge(u.callers, float64(callers[model]), name, model)
			}
		}
		gauge(u.calls, float64(s.UnderWay), name)
		gauge(u.wait, float64(s.Waiting), name)
		gauge(u.until, s.RetryAfter.Seconds(), name)
	}
}

// together adds up the states of clients by the label of their upstream.
func (c *calls) together(states []outbound.State) map[string]outbound.State {
	sum := map[string]outbound.State{}
	for _, s := range states {
		name := c.upstreams.get(s.Upstream, true)
		t := sum[name]
		t.UnderWay, t.Waiting, t.RetryAfter = t.UnderWay+s.UnderWay, t.Waiting+s.Waiting,
			max(t.RetryAfter, s.RetryAfter)
		t.Circuits = append(t.Circuits, s.Circuits...)
		sum[name] = t
	}
	return sum
}

// circuits returns the worst state of the circuits that concern everybody, by model, and how many
// of single callers are not closed. The models are those that have a label; "" is the connections.
func (c *calls) circuits(upstream string, list []outbound.Circuit) (shared map[string]string, callers map[string]int) {
	of := c.ofUpstream(upstream)
	shared, callers = map[string]string{"": outbound.CircuitClosed}, map[string]int{}
	for _, model := range of.list() {
		shared[model] = outbound.CircuitClosed
	}
	for i := range list {
		model := ""
		if k := &list[i]; k.Model != "" {
			model = of.get(k.Series, true)
		}
		switch k := &list[i]; {
		case k.Caller != "":
			callers[model]++
			if _, ok := shared[model]; !ok {
				shared[model] = outbound.CircuitClosed
			}
		case slices.Index(circuitStates[:], k.State) > slices.Index(circuitStates[:], shared[model]):
			shared[model] = k.State
		}
	}
	return shared, callers
}
