// Package queuemetrics serves the depth of task queues to Prometheus.
package queuemetrics

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Depth is how many tasks of a queue wait for a worker.
type Depth struct {
	Kind  string // celery or asynq
	Queue string
	Tasks int64
}

// readEvery bounds how often the broker is read, and maxScrapes how many callers are served at
// once.
const (
	readEvery  = time.Second
	maxScrapes = 4
)

// Collector is a prometheus.Collector of the depths of task queues. They are read when metrics are
// collected. It is safe for concurrent use.
type Collector struct {
	ctx  context.Context //nolint:containedctx // collectors have none
	log  *slog.Logger
	read func(context.Context) ([]Depth, error)

	mu     sync.Mutex // one reading at a time
	depths []Depth    // guarded by mu: as last read
	up     bool       // guarded by mu: that was without an error
	down   bool       // guarded by mu: that it cannot be read was logged
	next   time.Time  // guarded by mu: before that, nothing is read again
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a collector of what read returns, until ctx ends. The collector calls read at most
// once a second, and never twice at once.
func New(ctx context.Context, log *slog.Logger, read func(context.Context) ([]Depth, error)) *Collector {
	return &Collector{ctx: ctx, log: log, read: read}
}

// Read reads the depths now. Metrics that are collected within a second show them.
func (c *Collector) Read() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.update()
}

func (c *Collector) update() error {
	depths, err := c.read(c.ctx)
	c.next = time.Now().Add(readEvery)
	switch {
	case err != nil && !c.down:
		c.log.Error("the task queues cannot be read", "error", err)
	case err == nil && c.down:
		c.log.Info("the task queues can be read again")
	}
	c.depths, c.up, c.down = depths, err == nil, err != nil
	return err
}

var (
	depthDesc = prometheus.NewDesc("drawgate_task_queue_depth",
		"Tasks that wait for a worker. `kind` is `celery` or `asynq`. Tasks that workers of Celery have "+
			"fetched do not count; of asynq those count that will be retried. Left out while the broker "+
			"cannot be read, and for a queue that does not exist.", []string{"kind", "queue"}, nil)
	upDesc = prometheus.NewDesc("drawgate_task_queue_broker_up",
		"1 if the broker could be read, otherwise 0.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- depthDesc
	ch <- upDesc
}

// Collect implements prometheus.Collector. While the broker cannot be read there is no depth,
// because an old one would look like a fact.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().After(c.next) {
		_ = c.update() // it is logged
	}
	if !c.up {
		ch <- prometheus.MustNewConstMetric(upDesc, prometheus.GaugeValue, 0)
		return
	}
	ch <- prometheus.MustNewConstMetric(upDesc, prometheus.GaugeValue, 1)
	for _, d := range c.depths {
		name := strings.ToValidUTF8(d.Queue, "\uFFFD")
		ch <- prometheus.MustNewConstMetric(depthDesc, prometheus.GaugeValue, float64(d.Tasks), d.Kind, name)
	}
}

// Handler serves the metrics of c. At most four callers are served at once; others get 503.
func (c *Collector) Handler() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(c) // nothing else is registered
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}
