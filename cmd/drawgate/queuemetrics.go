package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/taskqueue"
	"github.com/drawgate/drawgate/telemetry"
)

// defaultQueueMetrics is where queue metrics listens by default.
const defaultQueueMetrics = "127.0.0.1:7882"

func (a *app) queueMetricsCmd() *cobra.Command {
	var f queueFlags
	var listen string
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Serve the depth of task queues to Prometheus",
		Long: `Serve the depth of queues of Celery or asynq to Prometheus, at /metrics, until SIGTERM: drawgate_task_queue_depth for each queue, and
drawgate_task_queue_broker_up, which is 0 while the broker cannot be read. Nothing is changed. The broker is read when the metrics are read, at most once a second.

With --queue, workers of Celery are not asked. Without it these are the queues from which workers fetch, as queue status shows them; a queue that was seen once
is reported for as long as the command runs. Who can reach the address sees the queues' names and depths, and nothing else.

Exit codes:
  0   it was told to end
  64  the command line is wrong
  69  the port is in use`,
		Example: `  drawgate queue metrics --broker redis://127.0.0.1:6379/0 --queue celery --queue mail
  curl http://` + defaultQueueMetrics + `/metrics`,
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			return a.queueMetrics(cmd.Context(), &f, listen)
		}),
	}
	f.define(cmd)
	cmd.Flags().StringVar(&listen, "listen", defaultQueueMetrics, "address for Prometheus; port 0 chooses one")
	return cmd
}

func (a *app) queueMetrics(ctx context.Context, f *queueFlags, listen string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := a.logger()
	f.depths = true
	c := &queueCollector{ctx: ctx, flags: f, log: log}
	st, err := f.read(ctx)
	if err != nil && !errors.Is(err, taskqueue.ErrBroker) { // a broker that cannot be reached may come back
		return err
	}
	c.keep(st, err)
	if err == nil && len(f.queues) > 0 {
		for i := range st.Queues {
			if q := &st.Queues[i]; q.Missing {
				log.Warn("there is no such queue, so it is left out until it exists", "queue", q.Name)
			}
		}
	}
	reg := prometheus.NewRegistry()
	if err := reg.Register(c); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", telemetry.Handler(reg))
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return listenError("--listen", listen, err)
	}
	log.Info("metrics of task queues at http://" + ln.Addr().String() + "/metrics")
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		<-ctx.Done()
		_ = s.Close() // a scrape that is cut off is no loss
	})
	defer stop()
	if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// queueCollector reads the depths of task queues when metrics are read.
type queueCollector struct {
	ctx   context.Context //nolint:containedctx // collectors have none; it ends with the command
	log   *slog.Logger
	flags *queueFlags // guarded by mu once the server listens

	mu    sync.Mutex
	state *queueState // guarded by mu: as last read, nil if the broker could not be read
	next  time.Time   // guarded by mu: before that, nothing is read again
	down  bool        // guarded by mu: that it cannot be read was logged
}

var (
	queueDepthDesc = prometheus.NewDesc("drawgate_task_queue_depth",
		"Tasks that wait for a worker. Tasks that workers of Celery have fetched do not count.", []string{"kind", "queue"}, nil)
	queueUpDesc = prometheus.NewDesc("drawgate_task_queue_broker_up",
		"1 if the broker could be read, otherwise 0.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *queueCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- queueDepthDesc
	ch <- queueUpDesc
}

// Collect implements prometheus.Collector. While the broker cannot be read there is no depth,
// because an old one would look like a fact.
func (c *queueCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().After(c.next) {
		c.keep(c.flags.read(c.ctx))
	}
	if c.state == nil {
		ch <- prometheus.MustNewConstMetric(queueUpDesc, prometheus.GaugeValue, 0)
		return
	}
	ch <- prometheus.MustNewConstMetric(queueUpDesc, prometheus.GaugeValue, 1)
	for i := range c.state.Queues {
		if q := &c.state.Queues[i]; !q.Missing {
			name := strings.ToValidUTF8(q.Name, "\uFFFD")
			ch <- prometheus.MustNewConstMetric(queueDepthDesc, prometheus.GaugeValue, float64(q.Depth),
				string(c.state.Kind), name)
		}
	}
}

// keep remembers what was read. The caller holds mu, or is the only one.
func (c *queueCollector) keep(st *queueState, err error) {
	c.next = time.Now().Add(time.Second)
	switch {
	case err != nil && !c.down:
		c.log.Error("the task queues cannot be read", "error", err)
	case err == nil && c.down:
		c.log.Info("the task queues can be read again")
	}
	c.down = err != nil
	if c.state = st; c.down {
		c.state = nil
		return
	}
	c.flags.seen = st.known(c.flags.seen...)
}
