package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

// The marks of panels: from which value on something needs attention.
var (
	full   = []mark{{value: 0.8, color: "orange"}, {value: 1, color: "red"}}
	some   = []mark{{value: 0.05, color: "orange"}, {value: 0.2, color: "red"}} // of all calls
	alarm  = []mark{{value: 1, color: "red"}}
	waiter = []mark{{value: 1, color: "orange"}}
)

// usage shows what is used of the limits that a selector chooses. Servers with the same store
// report the same buckets, so the largest value is shown, not the sum.
func usage(selector string) panel {
	return panel{
		title: "Usage against limits", unit: units.PercentUnit, marks: full,
		about: "What part of each limit is used, of the buckets that are watched. It is more than 100 % if a holder used more than its estimate.",
		queries: one(`max by (policy, limit, identifier) (rate_limit_current_usage{`+selector+`} / rate_limit_max_allowed{`+selector+`})`,
			"{{policy}} {{limit}} {{identifier}}"),
	}
}

// available shows what is left of them.
func available(selector string) panel {
	return panel{
		title: "Units available per bucket", unit: units.Short,
		about: "What is left of each limit of the buckets that are watched.",
		queries: one(`min by (policy, limit, identifier) (clamp_min(rate_limit_max_allowed{`+selector+`} - rate_limit_current_usage{`+selector+`}, 0))`,
			"{{policy}} {{limit}} {{identifier}}"),
	}
}

// limits is the dashboard of every server.
var limits = board{
	title: "Drawgate: limits", uid: "drawgate-limits",
	about: "What the limits of Drawgate admit and refuse, who waits, and how the store does. Which buckets are watched, and what each metric means, is in docs/metrics.md of Drawgate.",
	by:    "policy", label: "Policy", from: "drawgate_decisions_total",
	rows: []row{
		{"Now", []panel{
			{
				title: "Decisions per second", kind: number, unit: units.RequestsPerSecond,
				about:   "Takes that were decided, of all policies.",
				queries: one(`sum(rate(rate_limit_check_duration_seconds_count{instance=~"$instance"}[$__rate_interval]))`, ""),
			},
			{
				title: "Refused", kind: number, unit: units.PercentUnit, marks: some,
				about:   "What part of all takes is refused, or not decided because the store failed.",
				queries: one(`sum(rate(rate_limit_rejections_total{instance=~"$instance"}[$__rate_interval])) / sum(rate(rate_limit_check_duration_seconds_count{instance=~"$instance"}[$__rate_interval]))`, ""),
			},
			{
				title: "Waiting callers", kind: number, unit: units.Short, marks: waiter,
				about:   "Takes that wait for their units, in all servers.",
				queries: one(`sum(drawgate_queue_length{instance=~"$instance"})`, ""),
			},
			{
				title: "Fullest limit", kind: number, unit: units.PercentUnit, marks: full,
				about:   "How much is used of the limit that is used most, of the buckets that are watched.",
				queries: one(`max(rate_limit_current_usage{instance=~"$instance",policy=~"$policy"} / rate_limit_max_allowed{instance=~"$instance",policy=~"$policy"})`, ""),
			},
			{
				title: "Servers without the store", kind: number, unit: units.Short, marks: alarm,
				about:   "Servers whose store is unavailable: the breaker is open, and each limit's fallback decides.",
				queries: one(`sum(drawgate_store_breaker_state{instance=~"$instance",state="open"})`, ""),
			},
			{
				title: "Open reservations", kind: number, unit: units.Short,
				about:   "Reservations that are neither settled nor over.",
				queries: one(`sum(drawgate_open_reservations{instance=~"$instance"})`, ""),
			},
		}},
		{"Limits", []panel{
			usage(`instance=~"$instance",policy=~"$policy"`),
			available(`instance=~"$instance",policy=~"$policy"`),
			{
				title: "Units left of each policy's tightest limit", unit: units.Short,
				about: "If the policy's buckets are watched: the least of all of them. Otherwise: as of the last decision, whichever key that was for.",
				queries: one(`min by (scope) (rate_limit_tokens_remaining{instance=~"$instance",scope=~"$policy"})`,
					"{{scope}}"),
			},
			{
				title: "Buckets that approach a limit", kind: bars, unit: units.Short,
				about:   "How many buckets reached 80, 95 or 100 % of a limit. This counts the keys of policies with many keys as well.",
				queries: one(`sum by (policy, limit, milestone) (increase(drawgate_limit_milestones_total{instance=~"$instance",policy=~"$policy",milestone!="50"}[$__rate_interval]))`, "{{policy}} {{limit}} {{milestone}} %"),
			},
			{
				title: "Refusals by limit", unit: units.RequestsPerSecond,
				about:   "Takes that each limit refused. If two limits refuse one take it counts for both.",
				queries: one(`sum by (policy, limit) (rate(rate_limit_exceeded_total{instance=~"$instance",policy=~"$policy"}[$__rate_interval]))`, "{{policy}} {{limit}}"),
			},
			{
				title: "Time until a limit resets", unit: units.Seconds,
				about:   "Until a calendar window ends; for any other limit, until nothing counts any more if nothing is taken.",
				queries: one(`max by (policy, limit, identifier) (rate_limit_window_reset_seconds{instance=~"$instance",policy=~"$policy"})`, "{{policy}} {{limit}} {{identifier}}"),
			},
		}},
		{"Decisions", []panel{
			{
				title: "Hits by type", unit: units.RequestsPerSecond,
				about:   "Takes that each policy refused.",
				queries: one(`sum by (type) (rate(rate_limit_hits_total{instance=~"$instance",type=~"$policy"}[$__rate_interval]))`, "{{type}}"),
			},
			{
				title: "Refusals by reason", unit: units.RequestsPerSecond,
				about:   "distributed_exhausted: what all servers share is used up. local_exhausted: this server decided alone. backend_error: the store is unavailable. paused: a bucket is paused.",
				queries: one(`sum by (reason) (rate(rate_limit_rejections_total{instance=~"$instance"}[$__rate_interval]))`, "{{reason}}"),
			},
			{
				title: "Who is refused most", unit: units.RequestsPerSecond,
				about:   "The ten keys, as hashes, that are refused most. Keys beyond the first 20 of each policy are together in other.",
				queries: one(`topk(10, sum by (type, identifier) (rate(rate_limit_hits_total{instance=~"$instance",type=~"$policy"}[$__rate_interval])) > 0)`, "{{type}} {{identifier}}"),
			},
			{
				title: "Decisions by outcome", kind: bars, unit: units.RequestsPerSecond,
				about:   "Takes by outcome. A take of several buckets counts for the policy of each.",
				queries: one(`sum by (outcome) (rate(drawgate_decisions_total{instance=~"$instance",policy=~"$policy"}[$__rate_interval]))`, "{{outcome}}"),
			},
			{
				title: "Time to decide", unit: units.Seconds,
				about: "Including the store, without the wait in the queue.",
				queries: []question{
					{`histogram_quantile(0.5, sum by (le) (rate(rate_limit_check_duration_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, "half within"},
					{`histogram_quantile(0.99, sum by (le) (rate(rate_limit_check_duration_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, "99 % within"},
				},
			},
			{
				title: "What shadows would decide differently", unit: units.RequestsPerSecond,
				about:   "Requests that a policy in shadow would have refused or allowed, against what is enforced.",
				queries: one(`sum by (policy, direction) (rate(rate_limit_shadow_divergence_total{instance=~"$instance",policy=~"$policy"}[$__rate_interval]))`, "{{policy}} {{direction}}"),
			},
		}},
		{"Queue", []panel{
			{
				title: "Average wait", unit: units.Seconds,
				about:   "How long takes waited that did wait, however that ended.",
				queries: one(`sum by (type) (rate(rate_limit_wait_duration_seconds_sum{instance=~"$instance",type=~"$policy"}[$__rate_interval])) / (sum by (type) (rate(rate_limit_wait_duration_seconds_count{instance=~"$instance",type=~"$policy"}[$__rate_interval])) > 0)`, "{{type}}"),
			},
			{
				title: "Waiting callers", unit: units.Short,
				about:   "Takes that wait for their units, by server.",
				queries: one(`sum by (instance) (drawgate_queue_length{instance=~"$instance"})`, "{{instance}}"),
			},
			{
				title: "Longest wait so far", unit: units.Seconds,
				about: "How long the caller that has waited longest has been waiting, by server.",
				queries: one(`max by (instance) (drawgate_queue_oldest_seconds{instance=~"$instance"})`,
					"{{instance}}"),
			},
			{
				title: "Queue depth", unit: units.Short,
				about:   "Tasks that wait for a worker in queues of Celery or asynq. Empty unless Prometheus scrapes drawgate queue metrics.",
				queries: one(`max by (kind, queue) (drawgate_task_queue_depth)`, "{{queue}}"),
			},
		}},
		{"Store and fallback", []panel{
			{
				title: "Store latency", unit: units.Seconds,
				about: "99 % of the calls of each kind were answered, or given up, within this time. A take that does not wait is decided by the fallback after the time-out.",
				queries: []question{
					{`histogram_quantile(0.99, sum by (le, op) (rate(drawgate_store_duration_seconds_bucket{instance=~"$instance"}[$__rate_interval]))) >= 0`, "{{op}}"},
					{`min(drawgate_store_timeout_seconds{instance=~"$instance"})`, "time-out"},
				},
			},
			{
				title: "Store errors", unit: units.RequestsPerSecond,
				about:   "Calls that the store did not answer, by call and kind of fault.",
				queries: one(`sum by (op, class) (rate(drawgate_store_errors_total{instance=~"$instance"}[$__rate_interval])) > 0`, "{{op}} {{class}}"),
			},
			{
				title: "Breaker of the store", kind: timeline,
				about:  "Closed: the store decides. Open: the store is unavailable, and each limit's fallback decides.",
				states: []mark{{0, "green", "closed"}, {1, "red", "open"}},
				queries: one(`max by (instance) (drawgate_store_breaker_state{instance=~"$instance",state="open"})`,
					"{{instance}}"),
			},
			{
				title: "Fallback", unit: units.RequestsPerSecond,
				about:   "Decisions that servers made by themselves because the store was unavailable.",
				queries: one(`sum by (policy, outcome) (rate(drawgate_fallback_decisions_total{instance=~"$instance",policy=~"$policy"}[$__rate_interval])) > 0`, "{{policy}} {{outcome}}"),
			},
			{
				title: "Buckets that the store must be told about", unit: units.Short,
				about: "Buckets in which something was admitted during an outage. It is charged to the store when that is back.",
				queries: one(`sum by (instance) (drawgate_fallback_owed_buckets{instance=~"$instance"})`,
					"{{instance}}"),
			},
			{
				title: "Probes and losses of the store", kind: bars, unit: units.Short,
				about: "Probes of an unavailable store: failure, it is still unavailable; success, it decides again. lost its data: each server that had used the store counts each loss.",
				queries: []question{
					{
						`sum by (result) (increase(drawgate_store_probes_total{instance=~"$instance"}[$__rate_interval]))`,
						"{{result}}",
					},
					{
						`sum(increase(drawgate_store_losses_total{instance=~"$instance"}[$__rate_interval]))`,
						"lost its data",
					},
				},
			},
		}},
		{"Reservations and configuration", []panel{
			{
				title: "How reservations end", unit: units.RequestsPerSecond,
				about:   "gone: too late, the hold had ended. error: the store did not answer. charged, refunded and paused are no ends, but are counted here too.",
				queries: one(`sum by (result) (rate(drawgate_settlements_total{instance=~"$instance"}[$__rate_interval]))`, "{{result}}"),
			},
			{
				title: "Open reservations of watched buckets", unit: units.Short,
				about:   "Of all servers.",
				queries: one(`max by (policy, identifier) (drawgate_bucket_open_reservations{instance=~"$instance",policy=~"$policy"})`, "{{policy}} {{identifier}}"),
			},
			{
				title: "Changes of the configuration", kind: bars, unit: units.Short,
				about:   "failure: the file has a mistake, and the old configuration is still in force.",
				queries: one(`sum by (result) (increase(drawgate_config_reloads_total{instance=~"$instance"}[$__rate_interval]))`, "{{result}}"),
			},
		}},
	},
}
