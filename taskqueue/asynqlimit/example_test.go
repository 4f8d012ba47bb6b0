package asynqlimit_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/taskqueue/asynqlimit"
)

// These functions are in docs/task-queues.md: TestPage compares them.

// server runs tasks, at most 50 a minute in all processes together.
func server(client redis.UniversalClient, store drawgate.Store, mux *asynq.ServeMux) (*asynq.Server, error) {
	lim, err := drawgate.New(store, drawgate.PerMinute("transcribe", 50), nil)
	if err != nil {
		return nil, err
	}
	limit, err := asynqlimit.New(client, func(ctx context.Context, task *asynq.Task) (drawgate.Request, error) {
		r := drawgate.Request{Buckets: []drawgate.Ask{{Limiter: lim, Key: "all"}}}
		if queue, _ := asynq.GetQueueName(ctx); queue == "critical" {
			r.Priority = 9 // served before the others that wait in this process
		}
		return r, nil
	}, nil)
	if err != nil {
		return nil, err
	}
	mux.Use(limit.Middleware)
	return asynq.NewServerFromRedisClient(client, asynq.Config{
		Queues:         map[string]int{"critical": 6, "default": 1},
		RetryDelayFunc: limit.RetryDelay,
		IsFailure:      limit.IsFailure,
	}), nil
}

// send sends a task, unless more than 50 wait already.
func send(ctx context.Context, guard *asynqlimit.Guard, recording string) error {
	_, err := guard.Enqueue(ctx, "default", asynq.NewTask("transcribe", []byte(recording)), asynq.MaxRetry(3))
	return err
}

// TestPage: the page shows the functions above, and they work.
//
// req: B5, B6
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/task-queues.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"server", "send"} {
		_, code, _ := strings.Cut(string(text), "\nfunc "+name+"(")
		code, _, _ = strings.Cut(code, "\n}\n")
		if code = "func " + name + "(" + code + "\n}\n"; !strings.Contains(string(page), code) {
			t.Errorf("docs/task-queues.md does not show\n%s", code)
		}
	}
	b := newBench(t)
	ran := make(chan string, 1)
	mux := asynq.NewServeMux()
	srv, err := server(b.client, memory(t), mux)
	if err != nil {
		t.Fatal(err)
	}
	mux.HandleFunc("transcribe", func(_ context.Context, task *asynq.Task) error {
		ran <- string(task.Payload())
		return nil
	})
	if err := srv.Start(mux); err != nil {
		t.Fatal(err)
	}
	defer srv.Shutdown()
	if err := send(t.Context(), asynqlimit.NewGuard(b.client, nil, 0), "talk.ogg"); err != nil {
		t.Fatal(err)
	}
	if got := <-ran; got != "talk.ogg" {
		t.Errorf("it ran with %q", got)
	}
}
