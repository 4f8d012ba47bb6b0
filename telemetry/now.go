package telemetry

import "github.com/prometheus/client_golang/prometheus"

// now exports what is looked up when metrics are read: the queue, what the guard has recorded, and
// how long the store has.
type now struct {
	m                             *Metrics
	length, age, buckets, pending *prometheus.Desc
	instances, mayShare, timeout  *prometheus.Desc
}

func newNow(m *Metrics) *now {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	return &now{
		m: m,
		length: desc("drawgate_queue_length",
			"Callers that are waiting in this process."),
		age: desc("drawgate_queue_oldest_seconds",
			"How long the caller that has waited longest has been waiting."),
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
	for _, d := range []*prometheus.Desc{n.length, n.age, n.buckets, n.pending, n.instances, n.mayShare, n.timeout} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (n *now) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	if n.m.opts.Waiting != nil {
		callers, oldest := n.m.opts.Waiting()
		gauge(n.length, float64(callers))
		gauge(n.age, oldest.Seconds())
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
