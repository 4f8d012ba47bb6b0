package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

// calls is the dashboard of a gateway, and of programs that call an upstream by package outbound.
var calls = board{
	title: "Drawgate: calls to upstreams", uid: "drawgate-gateway",
	about: "Calls to upstreams such as LLM providers, by the gateway of Drawgate or by package outbound: what they use, how long they wait and take, and what goes wrong. What each metric means is in docs/metrics.md of Drawgate.",
	by:    "upstream", label: "Upstream", from: "drawgate_upstream_circuit_state",
	rows: []row{
		{"Now", []panel{
			{
				title: "Calls per minute", kind: number, unit: units.RequestsPerMinute,
				about:   "Each attempt by itself.",
				queries: one(`sum(rate(drawgate_upstream_calls_total{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval])) * 60`, ""),
			},
			{
				title: "Failed", kind: number, unit: units.PercentUnit, marks: some,
				about:   "What part of the calls ended with a time-out, a lost connection, an overload or a 5xx.",
				queries: one(`sum(rate(drawgate_upstream_calls_total{instance=~"$instance",upstream=~"$upstream",outcome="failed"}[$__rate_interval])) / sum(rate(drawgate_upstream_calls_total{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval]))`, ""),
			},
			{
				title: "Refused by the gateway", kind: number, unit: units.PercentUnit, marks: some,
				about:   "What part of the calls to the gateway it refused.",
				queries: one(`sum(rate(drawgate_gateway_answers_total{instance=~"$instance",upstream=~"$upstream",result="refused"}[$__rate_interval])) / sum(rate(drawgate_gateway_answers_total{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval]))`, ""),
			},
			{
				title: "Queue depth", kind: number, unit: units.Short, marks: waiter,
				about:   "Calls that are not granted yet.",
				queries: one(`sum(drawgate_upstream_calls_waiting{instance=~"$instance",upstream=~"$upstream"})`, ""),
			},
			{
				title: "Open circuits", kind: number, unit: units.Short, marks: alarm,
				about:   "Circuits of models and connections that are open, and those of single keys and teams that are not closed: calls failed, and none is made for a while. Each server has its own.",
				queries: one(`sum(drawgate_upstream_circuit_state{instance=~"$instance",upstream=~"$upstream",state="open"}) + (sum(drawgate_upstream_caller_circuits{instance=~"$instance",upstream=~"$upstream"}) or vector(0))`, ""),
			},
			{
				title: "Incidents", kind: number, unit: units.Short, marks: alarm,
				about:   "Calls in the shown time that an upstream refused for its quota although they were granted here.",
				queries: one(`round(sum(increase(drawgate_incidents_total{instance=~"$instance",upstream=~"$upstream"}[$__range])))`, ""),
			},
		}},
		{"Quotas", []panel{
			usage(`instance=~"$instance"`),
			available(`instance=~"$instance"`),
			{
				title: "Queue depth", unit: units.Short,
				about:   "Calls that are not granted yet.",
				queries: one(`sum by (upstream) (drawgate_upstream_calls_waiting{instance=~"$instance",upstream=~"$upstream"})`, "{{upstream}}"),
			},
			{
				title: "Tokens per minute", unit: units.Short,
				about:   "Tokens that the upstream said were used. cache_read and cache_write are parts of input, reasoning is a part of output.",
				queries: one(`sum by (model, kind) (rate(drawgate_upstream_tokens_total{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval])) * 60`, "{{model}} {{kind}}"),
			},
			{
				title: "Money spent within an hour", unit: units.Short,
				about:   "By the prices of the configuration, in units of their currency.",
				queries: one(`sum by (upstream, model, unit) (increase(drawgate_upstream_used_units_total{instance=~"$instance",upstream=~"$upstream",unit=~".+_micros"}[1h])) / 1e6`, "{{upstream}} {{model}}"),
			},
			{
				title: "How good estimates are", unit: units.PercentUnit,
				about:   "What part of its estimate a call used, on average. Above 100 % too little was held; far below, much is held that others could use.",
				queries: one(`sum by (upstream, model, unit) (rate(drawgate_upstream_estimate_ratio_sum{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval])) / (sum by (upstream, model, unit) (rate(drawgate_upstream_estimate_ratio_count{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval])) > 0)`, "{{upstream}} {{model}} {{unit}}"),
			},
		}},
		{"Calls", []panel{
			{
				title: "Calls by outcome", kind: bars, unit: units.RequestsPerMinute,
				about:   "succeeded; failed; refused, for the upstream's quota; gave_up, in the queue or later; not_granted, by the limits here; turned_away, because the circuit was open.",
				queries: one(`sum by (outcome) (rate(drawgate_upstream_calls_total{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval])) * 60`, "{{outcome}}"),
			},
			{
				title: "Calls by model", unit: units.RequestsPerMinute,
				about:   "Each attempt by itself.",
				queries: one(`sum by (upstream, model) (rate(drawgate_upstream_calls_total{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval])) * 60`, "{{upstream}} {{model}}"),
			},
			{
				title: "Answers of the gateway", kind: bars, unit: units.RequestsPerMinute,
				about: "Each call to the gateway once. cache_hit and cache_stale are from the cache; other_model, if one of fallbacks answered; cut, if the answer broke off; left, if the caller did not wait; wrong key, if it was refused for its virtual key.",
				queries: []question{
					{`sum by (result) (rate(drawgate_gateway_answers_total{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval])) * 60`, "{{result}}"},
					{`sum(rate(drawgate_gateway_wrong_keys_total{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval])) * 60`, "wrong key"},
				},
			},
			{
				title: "Calls under way", unit: units.Short,
				about:   "Calls that hold units.",
				queries: one(`sum by (upstream) (drawgate_upstream_calls_under_way{instance=~"$instance",upstream=~"$upstream"})`, "{{upstream}}"),
			},
			{
				title: "From the cache", unit: units.PercentUnit,
				about:   "What part of the gateway's answers is from the cache.",
				queries: one(`sum by (upstream) (rate(drawgate_gateway_answers_total{instance=~"$instance",upstream=~"$upstream",result=~"cache_hit|cache_stale"}[$__rate_interval])) / (sum by (upstream) (rate(drawgate_gateway_answers_total{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval])) > 0)`, "{{upstream}}"),
			},
			{
				title: "Failed", unit: units.PercentUnit,
				about:   "What part of the calls failed.",
				queries: one(`sum by (upstream) (rate(drawgate_upstream_calls_total{instance=~"$instance",upstream=~"$upstream",outcome="failed"}[$__rate_interval])) / (sum by (upstream) (rate(drawgate_upstream_calls_total{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval])) > 0)`, "{{upstream}}"),
			},
		}},
		{"Time", []panel{
			{
				title: "Average wait", unit: units.Seconds,
				about:   "How long calls waited until they were granted, or were not. Those that did not wait are included.",
				queries: one(`sum by (upstream, model) (rate(drawgate_upstream_queue_seconds_sum{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval])) / (sum by (upstream, model) (rate(drawgate_upstream_queue_seconds_count{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval])) > 0)`, "{{upstream}} {{model}}"),
			},
			{
				title: "95 % are granted within", unit: units.Seconds,
				about:   "The wait in the queue.",
				queries: one(`histogram_quantile(0.95, sum by (le, upstream, model) (rate(drawgate_upstream_queue_seconds_bucket{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval]))) >= 0`, "{{upstream}} {{model}}"),
			},
			{
				title: "95 % of answers begin and end within", unit: units.Seconds,
				about: "Without the wait in the queue.",
				queries: []question{
					{`histogram_quantile(0.95, sum by (le, upstream, model) (rate(drawgate_upstream_answer_seconds_bucket{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval]))) >= 0`, "{{upstream}} {{model}}: begin"},
					{`histogram_quantile(0.95, sum by (le, upstream, model) (rate(drawgate_upstream_call_seconds_bucket{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval]))) >= 0`, "{{upstream}} {{model}}: end"},
				},
			},
		}},
		{"Faults", []panel{
			{
				title: "Incidents", kind: bars, unit: units.Short,
				about:   "Calls that an upstream refused for its quota although they were granted here, by what the refusal means: drawgate incidents shows the likely cause.",
				queries: one(`sum by (upstream, model, meaning) (increase(drawgate_incidents_total{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval]))`, "{{upstream}} {{model}} {{meaning}}"),
			},
			{
				title: "Circuits", kind: timeline,
				about:   "Of the connections to each upstream, and of each model. Closed: calls are made. Open: calls failed, and none is made. Half-open: one call at a time tries.",
				states:  []mark{{0, "green", "closed"}, {1, "orange", "half-open"}, {2, "red", "open"}},
				queries: one(`max by (instance, upstream, model) (drawgate_upstream_circuit_state{instance=~"$instance",upstream=~"$upstream",state="half-open"}) + 2 * max by (instance, upstream, model) (drawgate_upstream_circuit_state{instance=~"$instance",upstream=~"$upstream",state="open"})`, "{{upstream}} {{model}} {{instance}}"),
			},
			{
				title: "Holds that failed", kind: bars, unit: units.Short,
				about:   "Holds of calls that could not be renewed, settled or given back. What they held counts as used.",
				queries: one(`sum by (upstream, model) (increase(drawgate_upstream_hold_failures_total{instance=~"$instance",upstream=~"$upstream"}[$__rate_interval]))`, "{{upstream}} {{model}}"),
			},
		}},
	},
}
