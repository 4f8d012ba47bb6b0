package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawgate/drawgate"
)

// now exports what is looked up when metrics are read: the queue, what the guard has recorded, and
// how long the store has.
type now struct {
	m                             *Metrics
	length, age, buckets, pending *prometheus.Desc
	instances, mayShare, timeout  *prometheus.Desc
	tickets, ticketAge            *prometheus.Desc

	policies *names // of lines
}

func newNow(m *Metrics) *now {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &now{
		m: m, policies: newNames(maxPolicies),
		length: desc("drawgate_queue_length",
			"Callers that are waiting in this process."),
		age: desc("drawgate_queue_oldest_seconds",
			"How long the caller that has waited longest has been waiting."),
		tickets: desc("drawgate_line_length",
			"Tickets in the longest line of a policy's buckets, over all processes: of each those who come to its "+
				"front next, 128 in all. Of buckets for which callers of this process wait.", "policy"),
		ticketAge: desc("drawgate_line_oldest_seconds",
			"How long the one that has waited longest in these lines has been waiting.", "policy"),
		buckets: desc("drawgate_fallback_buckets",
			"Buckets that this process could decide about by itself, because the guard has a record of them."),
		pending: desc("drawgate_fallback_owed_buckets",
			"Buckets with admissions that have not been charged to the store yet."),

		instances: desc("drawgate_instances",
			"The number by which a limit is divided while the store is unavailable, counted or configured; 0: "+
				"unknown."),
		mayShare: desc("drawgate_instance_may_share",
			"1 if this process may admit its share while the store is unavailable. If instances are counted "+
				"it is 0 for a process that was in contact with the store for less than 40 s (DynamoDB: two "+
				"minutes)."),
		timeout: desc("drawgate_store_timeout_seconds",
			"How long the store has for a take that does not wait (`store_timeout`); then the fallback "+
				"decides. Not there for a store in memory."),
	}
}

// Describe implements [prometheus.Collector].
func (n *now) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		n.length, n.age, n.tickets, n.ticketAge, n.buckets, n.pending, n.instances,
		n.mayShare, n.timeout,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (n *now) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if n.m.opts.Lines != nil {
		w := waitingIn(n.m.opts.Lines(), n.policies)
		gauge(n.length, float64(w.callers))
		gauge(n.age, w.longest.Seconds())
		for policy, l := range w.lines {
			gauge(n.tickets, float64(l.tickets), policy)
			gauge(n.ticketAge, l.oldest.Seconds(), policy)
		}
	}
	if n.m.opts.Guard != nil {
		s := n.m.opts.Guard()
		gauge(n.buckets, float64(s.Buckets))
		gauge(n.pending, float64(s.Pending))
		gauge(n.instances, float64(s.Instances))
		may := 0.0
		if s.MayShare && s.Instances > 0 {
			may = 1
		}
		gauge(n.mayShare, may)
	}
	if t := n.m.opts.StoreTimeout; t > 0 {
		gauge(n.timeout, t.Seconds())
	}
}

// whoWaits sums up the lines of this process.
type whoWaits struct {
	callers int
	longest time.Duration
	lines   map[string]lineOf // per label of a policy, of all processes, where the store keeps them
}

// lineOf is the longest line of a policy's buckets, and the longest wait in them.
type lineOf struct {
	tickets int
	oldest  time.Duration
}

func waitingIn(lines []drawgate.Line, policies *names) whoWaits {
	w := whoWaits{lines: map[string]lineOf{}}
	for i := range lines {
		l := &lines[i]
		w.callers += l.Waiting
		w.longest = max(w.longest, l.Longest)
		if l.Tickets > 0 {
			policy := policies.get(l.Key.Policy, true)
			of := w.lines[policy]
			w.lines[policy] = lineOf{max(of.tickets, l.Tickets), max(of.oldest, l.Oldest)}
		}
	}
	return w
}
