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
var fineBuckets = []float64{1e-6, 1e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5}

// queueBuckets reach from no wait to a wait that is longer than most callers accept.
var queueBuckets = []float64{0.001, 0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800}

// vectors are the metrics with labels.
type vectors struct {
	hits, waits, exceeded, rejections, divergence *prometheus.CounterVec   // asked for by name
	decisions, fallbacks, milestones              *prometheus.CounterVec   // of policies
	failures, settlements, loads, transitions     *prometheus.CounterVec   // of the process
	probes, warnings, deliveries, published       *prometheus.CounterVec   // of the other parts of this package
	undecided                                     *prometheus.CounterVec   // of Envoy's rate limit service
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
	counter(&v.hits, "rate_limit_hits_total", "Takes that a policy refused, by hashed key. Only the first keys have their own series; all others are \"other\".", "type", "identifier")
	counter(&v.waits, "rate_limit_waits_total", "Takes that waited in the queue.", "type")
	histogram(&v.waited, "rate_limit_wait_duration_seconds", "How long takes waited in the queue, however they ended.", waitBuckets, "type")
	counter(&v.exceeded, "rate_limit_exceeded_total", "Takes that a limit refused.", "period", "policy", "limit")
	counter(&v.rejections, "rate_limit_rejections_total", "Refused takes, each counted once.", "reason")
	counter(&v.divergence, "rate_limit_shadow_divergence_total", "Requests that a shadow policy would have decided differently.", "policy", "direction")
	counter(&v.decisions, "drawgate_decisions_total", "Takes by how they ended. A take of several buckets counts for the policy of each; a refusal counts for the policies that refused.", "policy", "outcome")
	counter(&v.fallbacks, "drawgate_fallback_decisions_total", "Decisions that this process made by itself, without the store.", "policy", "outcome")
	counter(&v.milestones, "drawgate_limit_milestones_total", "How many times a bucket reached this percentage of a limit.", "policy", "limit", "milestone")
	fine := newBins(fineBuckets)
	m.deciding = newDurationsBy(fine, "drawgate_decision_duration_seconds", "Time to decide, including the store but not the queue.", "outcome", outcomeNames[:outcomes])
	m.deciding.total = prometheus.NewDesc("rate_limit_check_duration_seconds", "Time to check limits, including the store but not the queue.", nil, nil)
	m.calls = newDurationsBy(fine, "drawgate_store_duration_seconds", "Time of a store call.", "op", ops[:])
	all = append(all, m.deciding, m.calls)
	counter(&v.failures, "drawgate_store_errors_total", "Store calls that were not answered.", "op", "class")
	counter(&v.settlements, "drawgate_settlements_total", "Settlements, renewals, charges, refunds and pauses, by result.", "result")
	counter(&v.transitions, "drawgate_store_breaker_transitions_total", "How many times the store's breaker entered a state.", "state")
	counter(&v.probes, "drawgate_store_probes_total", "Probes of a store that is unavailable.", "result")
	counter(&v.loads, "drawgate_config_reloads_total", "Attempts to change the configuration while running.", "result")
	counter(&v.warnings, "drawgate_warnings_total", "Warnings, by whether they were passed on.", "kind", "result")
	counter(&v.deliveries, "drawgate_webhook_deliveries_total", "Webhook calls, by how they ended.", "result")
	counter(&v.published, "drawgate_sns_messages_total", "Messages to the SNS topic of incidents, by how they ended.", "result")
	counter(&v.undecided, "drawgate_envoy_undecided_total", "Envoy's requests that were answered with an error: its failure_mode_deny decided.", "code")
	v.breaker = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "drawgate_store_breaker_state", Help: "1 for the state of the store's breaker."}, []string{"state"})
	return append(append(all, v.breaker), m.plain()...)
}

// histogram has classic buckets, and native ones for a server that asks for them.
func histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}
}

// plain makes the metrics without labels.
func (m *Metrics) plain() []prometheus.Collector {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m.queued = prometheus.NewHistogram(histogram("drawgate_queue_wait_seconds", "How long takes waited in the queue, not counting those that did not wait.", queueBuckets))
	m.backend = prometheus.NewCounter(prometheus.CounterOpts{Name: "rate_limit_backend_errors_total", Help: "Store calls that failed."})
	m.activations = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rate_limiter_fallback_activated_total", Help: guard.FallbackEvent + ": how many times this process began to decide by itself because the store was unavailable.",
	})
	m.charges = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "drawgate_fallback_charged_buckets_total", Help: "How many times admissions of a bucket during an outage were charged to the store afterwards.",
	})
	m.losses = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "drawgate_store_losses_total", Help: "How many times this process noticed that the store had lost its data, so that what was used before may be granted again.",
	})
	m.loaded = gauge("drawgate_config_last_reload_success_timestamp_seconds", "When the configuration in force was loaded, in Unix seconds.")
	m.lastLoad = gauge("drawgate_config_last_reload_successful", "1 unless the last change of the configuration failed.")
	all := []prometheus.Collector{m.queued, m.backend, m.charges, m.losses, m.activations, m.loaded, m.lastLoad, newUsage(m)}
	all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "drawgate_open_reservations", Help: "Open reservations that this process made or renewed.",
	}, func() float64 { return float64(m.holds.open()) }))
	all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "drawgate_build_info", Help: "1; the labels say which program this is.",
		ConstLabels: prometheus.Labels{"version": cmp.Or(m.opts.Version, "unknown"), "revision": cmp.Or(m.opts.Revision, "unknown"), "goversion": runtime.Version()},
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
	m.loaded.SetToCurrentTime()
	m.lastLoad.Set(1)
	m.showBreaker(closed)
}
