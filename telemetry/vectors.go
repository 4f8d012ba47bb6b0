package telemetry

import (
	"cmp"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawgate/drawgate/internal/outbox"
	"github.com/drawgate/drawgate/store/guard"
)

// waitBuckets are the buckets that were asked for in rate_limit_wait_duration_seconds.
var waitBuckets = []float64{0.1, 0.5, 1, 5, 10, 30, 60}

// fineBuckets reach from a decision in memory to a call of a store that times out.
var fineBuckets = []float64{
	1e-6, 1e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25,
	0.5, 1, 2.5,
}

// queueBuckets reach from no wait to a wait that is longer than most callers accept.
var queueBuckets = []float64{0.001, 0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800}

// vectors are the metrics with labels.
type vectors struct {
	hits, waits, exceeded, rejections, divergence *prometheus.CounterVec   // asked for by name
	decisions, fallbacks, milestones              *prometheus.CounterVec   // of policies
	failures, settlements, loads, transitions     *prometheus.CounterVec   // of the process
	probes, warnings, deliveries, published       *prometheus.CounterVec   // of the other parts of this package
	undecided, unanswered                         *prometheus.CounterVec   // of Envoy's rate limit service; of /auth
	waited                                        *prometheus.HistogramVec // durations
	breaker                                       *prometheus.GaugeVec
}

// collectors makes all metrics.
func (m *Metrics) collectors() []prometheus.Collector {
	v := &m.vecs
	var all []prometheus.Collector
	counter := func(vec **prometheus.CounterVec, name, help string, labels ...string) {
		*vec = prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		all = append(all, *vec)
	}
	histogram := func(vec **prometheus.HistogramVec, name, help string, buckets []float64, labels ...string) {
		*vec = prometheus.NewHistogramVec(histogram(name, help, buckets), labels)
		all = append(all, *vec)
	}
	counter(&v.hits, "rate_limit_hits_total",
		"Takes that were refused, counted for each policy that refused. If two policies refuse one take "+
			"it counts for both.", "type", "identifier")
	counter(&v.waits, "rate_limit_waits_total",
		"Takes that waited in the queue, however they ended.", "type")
	histogram(&v.waited, "rate_limit_wait_duration_seconds",
		"How long takes waited in the queue, however they ended. Buckets 0.1, 0.5, 1, 5, 10, 30, 60.",
		waitBuckets, "type")
	counter(&v.exceeded, "rate_limit_exceeded_total",
		"Takes that this limit refused. If two limits refuse one take it counts for both; if it is "+
			"refused because the store is unavailable it counts for none.", "period", "policy", "limit")
	counter(&v.rejections, "rate_limit_rejections_total",
		"Refused takes, each counted once however many limits refused it, and takes that were not decided "+
			"because the store failed.", "reason")
	counter(&v.divergence, "rate_limit_shadow_divergence_total",
		"Requests that a policy in shadow would have decided differently: `would_refuse`, `would_allow`. "+
			"Decisions of shadows are counted nowhere else.", "policy", "direction")
	counter(&v.decisions, "drawgate_decisions_total",
		"Takes by outcome. A take of several buckets counts once for each, so the sum over policies may "+
			"exceed the number of takes (which is `rate_limit_check_duration_seconds_count`). `refused` "+
			"counts for the policies that refused; the others count `refused_by_other`. A take that is "+
			"refused because others are ahead in the queue, or that waits without success, counts for the "+
			"policy of the bucket with the queue.", "policy", "outcome")
	counter(&v.fallbacks, "drawgate_fallback_decisions_total",
		"Decisions that this process made by itself because the store was unavailable.", "policy", "outcome")
	counter(&v.milestones, "drawgate_limit_milestones_total",
		"How many times a bucket reached 50, 80, 95 or 100 per cent of a limit: once per window and "+
			"bucket, as in the warnings. Use it for alerts on limits with many keys.", "policy", "limit", "milestone")
	fine := newBins(fineBuckets)
	m.deciding = newDurationsBy(fine, "drawgate_decision_duration_seconds",
		"As `rate_limit_check_duration_seconds`, by outcome.", "outcome", outcomeNames[:outcomes])
	m.deciding.total = prometheus.NewDesc("rate_limit_check_duration_seconds",
		"Time to decide: includes the store, not the wait in the queue.", nil, nil)
	m.calls = newDurationsBy(fine, "drawgate_store_duration_seconds",
		"Time of a store call as limiters see it, answered or not. While the breaker is open there are no "+
			"calls. A plain take of a store in memory is not counted.", "op", ops[:])
	all = append(all, m.deciding, m.calls)
	counter(&v.failures, "drawgate_store_errors_total",
		"Store calls that were not answered; with a guard, each attempt counts.", "op", "class")
	counter(&v.settlements, "drawgate_settlements_total",
		"Reservations by how they ended: `settled`, `cancelled`, `renewed`, `gone` (too late), `error`. "+
			"Also `charged` and `refunded` (units without a reservation), and `paused` and `unpaused` "+
			"(buckets whose pause began or was ended).", "result")
	counter(&v.transitions, "drawgate_store_breaker_transitions_total",
		"How many times the guard's breaker entered this state.", "state")
	counter(&v.probes, "drawgate_store_probes_total",
		"Probes of an unavailable store: `success` (it is back), `failure`.", "result")
	counter(&v.loads, "drawgate_config_reloads_total",
		"Changes of the configuration while running: `success`, or `failure` (the old one is still in "+
			"force).", "result")
	counter(&v.warnings, "drawgate_warnings_total",
		"Warnings: `told` (passed to the log and the webhook), or `dropped` because the log or the "+
			"webhook was too slow.", "kind", "result")
	counter(&v.deliveries, "drawgate_webhook_deliveries_total",
		"Webhook calls: `delivered`; `retried` (an attempt failed). Lost: `rejected` (an answer that a "+
			"retry cannot change), `gave_up` (after the last attempt) and `dropped` (the queue was full, or "+
			"the process ended).", "result")
	counter(&v.published, "drawgate_sns_messages_total",
		"Messages to the SNS topic of incidents, by the results of webhook calls.", "result")
	counter(&v.undecided, "drawgate_envoy_undecided_total",
		"Requests of Envoy that were answered with an error, by gRPC code: `InvalidArgument` (too many "+
			"descriptors or buckets, no domain), `FailedPrecondition` (a refund where refunds are off), "+
			"`Unavailable` (the store did not decide), `Canceled` (Envoy did not wait), `other`. Envoy's "+
			"`failure_mode_deny` decided about them: with `false` they passed. Each should stay at 0.", "code")
	counter(&v.unanswered, "drawgate_forward_auth_undecided_total",
		"Requests to `/auth` that were not decided: `token` (the proxy sends no access token with the role "+
			"take), `untrusted` (it is not in `server.proxies.trusted`), `undescribed` (it does not describe "+
			"the request, or its own query is wrong), `ambiguous` (programs could read the request "+
			"differently), `rule` (a rule failed, or applies a policy with a concurrency limit), `store` (the "+
			"store did not decide), `ended` (the proxy did not wait, or the server is stopping), `other`. "+
			"Clients cause `ambiguous` and `ended`; the others should stay at 0.", "reason")
	v.breaker = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "drawgate_store_breaker_state",
		Help: "1 for the state of the guard's breaker, 0 for the other: `closed` (the store is asked), `open` " +
			"(this process decides by itself). Without a guard always `closed`.",
	}, []string{"state"})
	return append(append(all, v.breaker), m.plain()...)
}

// histogram has classic buckets, and native ones for a server that asks for them.
func histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		NativeHistogramMinResetDuration: time.Hour,
	}
}

// plain makes the metrics without labels.
func (m *Metrics) plain() []prometheus.Collector {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m.queued = prometheus.NewHistogram(histogram("drawgate_queue_wait_seconds",
		"How long takes waited in the queue, for those that did.", queueBuckets))
	m.backend = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rate_limit_backend_errors_total",
		Help: "Store calls that failed. Mistakes of callers, and calls that they gave up, are not counted.",
	})
	m.activations = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rate_limiter_fallback_activated_total",
		Help: guard.FallbackEvent + ": how many times this process began to decide by itself because the " +
			"store was unavailable.",
	})
	m.charges = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "drawgate_fallback_charged_buckets_total",
		Help: "How many times admissions of a bucket during an outage were charged to the store afterwards.",
	})
	m.losses = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "drawgate_store_losses_total",
		Help: "How many times this process noticed that the store had lost its data, so that what was used " +
			"before may be granted again. On Redis; each process that had used the store counts each loss.",
	})
	m.recoveredUnits = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "drawgate_store_recovered_units_total",
		Help: "Units that Redis had lost of this process, and that it charged again; of each bucket those of the " +
			"limit with most.",
	})
	m.recoveredReservations = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "drawgate_store_recovered_reservations_total",
		Help: "Reservations of this process that Redis had lost, or of which it had lost a renewal or the end, and " +
			"that it has again.",
	})
	m.unmet = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "drawgate_store_recoveries_not_done_total",
		Help: "Recoveries that Redis did not carry out, because something else had happened to the bucket; this " +
			"process then looked again at what was lost.",
	})
	m.batches = prometheus.NewHistogram(histogram("drawgate_store_batch_requests",
		"Redis: requests that went together in one call, because they came while another one was on its way.",
		[]float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}))
	m.batchTime = prometheus.NewHistogram(histogram("drawgate_store_batch_duration_seconds",
		"Redis: time of a call that carries several requests, from sending it to its answer.", fineBuckets))
	m.loaded = gauge("drawgate_config_last_reload_success_timestamp_seconds",
		"When the configuration in force was loaded, in Unix seconds.")
	m.lastLoad = gauge("drawgate_config_last_reload_successful",
		"1 unless the last change of the configuration failed.")
	m.restart = gauge("drawgate_config_restart_pending",
		"1 while the configuration on disk has a change that needs a restart: the log names the settings.")
	all := []prometheus.Collector{
		m.queued, m.backend, m.charges, m.losses, m.recoveredUnits, m.recoveredReservations,
		m.unmet, m.batches, m.batchTime, m.activations, m.loaded, m.lastLoad,
		m.restart,
		newUsage(m),
	}
	all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "drawgate_open_reservations",
		Help: "Open reservations (not settled, hold not over) that this process made or renewed; at most " +
			"100,000 are counted.",
	}, func() float64 { return float64(m.holds.open()) }))
	all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "drawgate_build_info",
		Help: "1; the labels say which program this is.",
		ConstLabels: prometheus.Labels{
			"version": cmp.Or(m.opts.Version, "unknown"), "revision": cmp.Or(m.opts.Revision, "unknown"),
			"goversion": runtime.Version(),
		},
	}, func() float64 { return 1 }))
	all = append(all, m.toUpstreams.collectors()...)
	return append(all, newNow(m), newUnderWay(m))
}

// resolve looks up the series whose labels are known, so that they exist from the start.
func (m *Metrics) resolve() {
	v := &m.vecs
	for i, name := range reasonNames {
		m.reasons[i] = v.rejections.WithLabelValues(name)
	}
	for i, op := range ops {
		for c, name := range classNames {
			m.failures[i][c] = v.failures.WithLabelValues(op, name)
		}
	}
	for i, name := range settlementNames {
		m.settled[i] = v.settlements.WithLabelValues(name)
	}
	for i, name := range resultNames {
		m.loads[i], m.probes[i] = v.loads.WithLabelValues(name), v.probes.WithLabelValues(name)
	}
	for i, name := range stateNames {
		m.breakers[i], m.transitions[i] = v.breaker.WithLabelValues(name), v.transitions.WithLabelValues(name)
	}
	for i, kind := range kinds {
		m.reported[i] = v.warnings.WithLabelValues(string(kind), "told")
		m.lost[i] = v.warnings.WithLabelValues(string(kind), "dropped")
	}
	for _, r := range outbox.Results {
		m.posts[r], m.published[r] = v.deliveries.WithLabelValues(string(r)), v.published.WithLabelValues(string(r))
	}
	for i, code := range undecidedCodes {
		m.undecided[i] = v.undecided.WithLabelValues(code)
	}
	for i, reason := range unansweredReasons {
		m.unanswered[i] = v.unanswered.WithLabelValues(reason)
	}
	m.loaded.SetToCurrentTime()
	m.lastLoad.Set(1)
	m.showBreaker(closed)
}
