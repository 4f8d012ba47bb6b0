package telemetry

import "github.com/prometheus/client_golang/prometheus"

// now shows what is asked for when metrics are read: who waits, and what the guard has recorded.
type now struct {
	m                          *Metrics
	length, age, buckets, owed *prometheus.Desc
}

func newNow(m *Metrics) *now {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	return &now{
		m:       m,
		length:  desc("drawgate_queue_length", "Callers that wait in this process."),
		age:     desc("drawgate_queue_oldest_seconds", "How long the one who waits longest has."),
		buckets: desc("drawgate_fallback_buckets", "Buckets that this process could decide about by itself."),
		owed:    desc("drawgate_fallback_owed_buckets", "Buckets of which the store has yet to be told what they admitted without it."),
	}
}

// Describe implements [prometheus.Collector].
func (n *now) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{n.length, n.age, n.buckets, n.owed} {
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
		gauge(n.owed, float64(s.Owed))
	}
}
