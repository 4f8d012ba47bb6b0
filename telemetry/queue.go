package telemetry

import "github.com/prometheus/client_golang/prometheus"

// queue shows who waits, when metrics are read.
type queue struct {
	m           *Metrics
	length, age *prometheus.Desc
}

func newQueue(m *Metrics) *queue {
	return &queue{
		m:      m,
		length: prometheus.NewDesc("drawgate_queue_length", "Callers that wait in this process.", nil, nil),
		age:    prometheus.NewDesc("drawgate_queue_oldest_seconds", "How long the one who waits longest has.", nil, nil),
	}
}

// Describe implements [prometheus.Collector].
func (q *queue) Describe(ch chan<- *prometheus.Desc) { ch <- q.length; ch <- q.age }

// Collect implements [prometheus.Collector].
func (q *queue) Collect(ch chan<- prometheus.Metric) {
	if q.m.opts.Waiting == nil {
		return
	}
	n, oldest := q.m.opts.Waiting()
	ch <- prometheus.MustNewConstMetric(q.length, prometheus.GaugeValue, float64(n))
	ch <- prometheus.MustNewConstMetric(q.age, prometheus.GaugeValue, oldest.Seconds())
}
