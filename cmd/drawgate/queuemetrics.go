package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/taskqueue"
	"github.com/drawgate/drawgate/taskqueue/queuemetrics"
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
	c := queuemetrics.New(ctx, log, f.readDepths)
	// a broker that cannot be reached may come back
	if err := c.Read(); err != nil && !errors.Is(err, taskqueue.ErrBroker) {
		return err
	}
	for _, name := range f.missing {
		log.Warn("there is no such queue, so it is left out until it exists", "queue", name)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", c.Handler())
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return listenError("--listen", listen, "", err)
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

// readDepths reads the depths of the queues, of those that were seen before as well.
func (f *queueFlags) readDepths(ctx context.Context) (depths []queuemetrics.Depth, err error) {
	st, err := f.read(ctx)
	if err != nil {
		return nil, err
	}
	f.seen, f.missing = st.known(f.seen...), nil
	for i := range st.Queues {
		switch q := &st.Queues[i]; {
		case !q.Missing:
			depths = append(depths, queuemetrics.Depth{Kind: string(st.Kind), Queue: q.Name, Tasks: q.Depth})
		case len(f.queues) > 0:
			f.missing = append(f.missing, q.Name)
		}
	}
	return depths, nil
}
