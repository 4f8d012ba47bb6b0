package taskqueue_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/celerytest"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/taskqueue"
)

// patience is how long to wait for something that must happen.
const patience = 5 * time.Minute

// quick is how workers are asked: until they answer what they must, a test asks again.
var quick = taskqueue.Inspect{Wait: 2 * time.Second}

func open(t *testing.T, url string) *taskqueue.Broker {
	t.Helper()
	b, err := taskqueue.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// TestCeleryOnRedis: depths by priority, and what the workers do.
//
// req: B6
func TestCeleryOnRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	testCelery(t, s.URL()+"/3", func(q *taskqueue.Queue) {
		if want := map[int]int64{0: 2, 9: 3}; !reflect.DeepEqual(q.Priorities, want) {
			t.Errorf("priorities %v, want %v", q.Priorities, want)
		}
	})
	b := open(t, s.URL()+"/3")
	w, err := b.Workers(t.Context(), taskqueue.Inspect{Wait: patience})
	if err != nil || len(w.Workers) != 0 || w.Silent != 0 {
		t.Errorf("without workers: %+v, %v", w, err)
	}
	if left := keys(t, s, 3, "*drawgate*"); len(left) != 0 {
		t.Errorf("it left %q behind", left)
	}
	s.Stop()
	testHangs(t, s.URL(), b)
	s.Kill9()
	testAway(t, s.URL())
}

// do sends a command to a Redis.
func do(t *testing.T, s *redistest.Server, db int, command ...string) rueidis.RedisResult {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr}, SelectDB: db,
		ForceSingleClient: true, DisableCache: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.Do(t.Context(), c.B().Arbitrary(command...).Build())
}

func keys(t *testing.T, s *redistest.Server, db int, pattern string) []string {
	t.Helper()
	list, err := do(t, s, db, "KEYS", pattern).AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestAsynq: package asynqlimit checks the same with asynq itself.
//
// req: B6
func TestAsynq(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.URL())
	kind := func() taskqueue.Kind {
		k, err := b.Kind(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	if got := kind(); got != taskqueue.Celery {
		t.Errorf("an empty Redis is of %q", got)
	}
	for _, c := range []string{
		"SADD asynq:queues low default", "RPUSH asynq:{default}:pending 1 2 3", "RPUSH asynq:{default}:active 4 5",
		"ZADD asynq:{default}:scheduled 1 6", "ZADD asynq:{default}:retry 1 7 2 8 3 9 4 10",
	} {
		if err := do(t, s, 0, strings.Fields(c)...).Error(); err != nil {
			t.Fatal(err)
		}
	}
	if got := kind(); got != taskqueue.Asynq {
		t.Errorf("the Redis of asynq is of %q", got)
	}
	names, err := b.AsynqQueues(t.Context())
	if err != nil || !reflect.DeepEqual(names, []string{"default", "low"}) {
		t.Fatalf("queues %q, %v", names, err)
	}
	got, err := b.Queues(t.Context(), taskqueue.Asynq, "default", "low", "none")
	want := []taskqueue.Queue{
		{Name: "default", Depth: 7, States: &taskqueue.AsynqStates{Pending: 3, Active: 2, Scheduled: 1, Retry: 4}},
		{Name: "low", States: &taskqueue.AsynqStates{}},
		{Name: "none", Missing: true, States: &taskqueue.AsynqStates{}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("queues %+v, %v", got, err)
	}
	if err := do(t, s, 0, "SADD", "_kombu.binding.celery.pidbox", "x").Error(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Kind(t.Context()); !errors.Is(err, taskqueue.ErrKind) {
		t.Errorf("a Redis of both: %v", err)
	}
	if err := do(t, s, 0, "SET", "celery", "x").Error(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Queues(t.Context(), taskqueue.Celery, "celery"); !errors.Is(err, taskqueue.ErrBroker) ||
		!strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("a key of another type: %v", err)
	}
}

// TestErrorsShowNoPassword: wrong URLs, and a broker that refuses.
//
// req: B6
func TestErrorsShowNoPassword(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--requirepass", "right")
	for url, want := range map[string]error{
		"redis://:hunter2@" + s.Addr:                         taskqueue.ErrBroker,
		"redis://:hunter2@" + s.Addr + "/x":                  taskqueue.ErrURL,
		"redis://:hunter2/#@" + s.Addr:                       taskqueue.ErrURL,
		"amqp://guest:hunter2@host:port":                     taskqueue.ErrURL,
		"sentinel://:hunter2@" + s.Addr:                      taskqueue.ErrURL,
		"hunter2":                                            taskqueue.ErrURL,
		"amqp://" + s.Addr + "//;amqp://a:hunter2@" + s.Addr: taskqueue.ErrURL,
		"": taskqueue.ErrURL,
	} {
		if _, err := taskqueue.Open(t.Context(), url); !errors.Is(err, want) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want %v", url, err, want)
		}
	}
	open(t, "redis://:right@"+s.Addr)
}

// TestTLS: certificates are checked, unless Celery's parameter says otherwise.
func TestTLS(t *testing.T) {
	t.Parallel()
	s, web := redistest.Start(t), httptest.NewTLSServer(nil) // only its certificate is used
	defer web.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: web.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			plain, err := net.Dial("tcp", s.Addr)
			if err != nil {
				_ = c.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(plain, c)
				_ = plain.Close()
			}()
			go func() {
				_, _ = io.Copy(c, plain)
				_ = c.Close()
			}()
		}
	}()
	url := "rediss://" + l.Addr().String()
	for _, unchecked := range []string{"", "?ssl_cert_reqs=CERT_REQUIRED"} {
		if _, err := taskqueue.Open(t.Context(), url+unchecked); !errors.Is(err, taskqueue.ErrBroker) ||
			!strings.Contains(err.Error(), "certificate") {
			t.Errorf("%q: %v", unchecked, err)
		}
	}
	for _, unchecked := range []string{"?ssl_cert_reqs=CERT_NONE", "/1?ssl_cert_reqs=none"} {
		if _, err := open(t, url+unchecked).Queues(t.Context(), taskqueue.Celery, "celery"); err != nil {
			t.Errorf("%q: %v", unchecked, err)
		}
	}
}

// TestCeleryOnRabbitMQ: the same on RabbitMQ, by messages that are ready.
//
// req: B6
func TestCeleryOnRabbitMQ(t *testing.T) {
	t.Parallel()
	s := celerytest.StartRabbit(t)
	b := open(t, s.URL())
	w, err := b.Workers(t.Context(), taskqueue.Inspect{Wait: patience})
	if err != nil || len(w.Workers) != 0 {
		t.Errorf("before the first worker: %+v, %v", w, err)
	}
	testCelery(t, s.URL(), func(q *taskqueue.Queue) {
		if q.Consumers == nil || *q.Consumers != 0 {
			t.Errorf("consumers %v, want 0", q.Consumers)
		}
	})
	// it ends at once
	if w, err = b.Workers(t.Context(), taskqueue.Inspect{Wait: 30 * time.Second}); err != nil || len(w.Workers) != 0 {
		t.Errorf("after the last worker: %+v, %v", w, err)
	}
	for url, text := range map[string]string{
		"amqp://guest:hunter2@" + s.Addr:       "refused",
		"amqp://guest:guest@" + s.Addr + "/no": "refused",
	} {
		if _, err := taskqueue.Open(t.Context(), url); !errors.Is(err, taskqueue.ErrBroker) ||
			!strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := b.Queues(t.Context(), taskqueue.Asynq, "default"); err == nil {
		t.Error("asynq on RabbitMQ: no error")
	}
	s.Stop()
	testHangs(t, s.URL(), b)
	s.Kill9()
	testAway(t, s.URL())
}

// testCelery lets a worker run a task, fetch others, and leave others in a queue that it does not
// read. When it returns the worker has ended.
func testCelery(t *testing.T, url string, check func(q *taskqueue.Queue)) {
	t.Helper()
	app := celerytest.New(t, url)
	worker := app.Worker("one@test", "celery,mail")
	release, eta := filepath.Join(t.TempDir(), "release"), time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	app.Run(fmt.Sprintf(`
for i in range(3):
    block.apply_async([%[1]q], {"note": "secret"}, task_id=f"now-{i}")
block.apply_async([%[1]q], task_id="later", eta=%[2]q, queue="mail")
for i in range(2):
    block.apply_async([%[1]q], queue="unread", priority=0)
for i in range(3):
    block.apply_async([%[1]q], queue="unread", priority=9)
`, release, eta.Format(time.RFC3339)))
	b := open(t, url)
	queues, err := b.Queues(t.Context(), taskqueue.Celery, "unread", "celery", "none")
	if err != nil {
		t.Fatal(err)
	}
	unread := &queues[0]
	if unread.Name != "unread" || unread.Depth != 5 || unread.Missing || queues[1].Missing || !queues[2].Missing {
		t.Errorf("queues %+v", queues)
	}
	check(unread)
	w := workers(t, b, quick, func(w *taskqueue.Workers) bool {
		return len(w.Workers) == 1 && len(w.Workers[0].Active) == 1 && len(w.Workers[0].Reserved) == 2 &&
			len(w.Workers[0].Scheduled) == 1
	})
	one := &w.Workers[0]
	if one.Name != "one@test" || !reflect.DeepEqual(one.Queues, []string{"celery", "mail"}) || one.Error != "" ||
		w.Silent != 0 {
		t.Errorf("worker %+v, silent %d", one, w.Silent)
	}
	if a := &one.Active[0]; a.ID != "now-0" || a.Name != "block" || a.Queue != "celery" || a.Started == nil ||
		a.Started.After(time.Now()) || a.Args != nil || a.Kwargs != nil {
		t.Errorf("active %+v", a)
	}
	for _, w := range workers(t, b, taskqueue.Inspect{Wait: quick.Wait, Args: true},
		func(w *taskqueue.Workers) bool { return len(w.Workers) == 1 && len(w.Workers[0].Active) == 1 }).Workers {
		if got := string(w.Active[0].Kwargs); got != `{"note": "secret"}` {
			t.Errorf("arguments %s", got)
		}
	}
	if s := &one.Scheduled[0]; s.ID != "later" || s.Queue != "mail" || s.ETA == nil || !s.ETA.Equal(eta) {
		t.Errorf("scheduled %+v, want at %v", s, eta)
	}
	worker.Stop()
	silent := 0
	if strings.HasPrefix(url, "redis") { // RabbitMQ does not say how many are connected
		silent = 1
	}
	if w, err = b.Workers(t.Context(), taskqueue.Inspect{Wait: 100 * time.Millisecond}); err != nil ||
		len(w.Workers) != 0 || w.Silent != silent {
		t.Errorf("a worker that hangs: %+v, %v", w, err)
	}
	worker.Kill9()
	workers(t, b, quick, func(w *taskqueue.Workers) bool { return len(w.Workers) == 0 && w.Silent == 0 })
}

// workers asks until the answer is as wanted.
func workers(t *testing.T, b *taskqueue.Broker, o taskqueue.Inspect,
	want func(w *taskqueue.Workers) bool,
) taskqueue.Workers {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		w, err := b.Workers(t.Context(), o)
		switch {
		case err == nil && want(&w):
			return w
		case time.Now().After(end):
			t.Fatalf("the workers answer %+v, %v", w, err)
		}
	}
}

// testHangs checks that nothing waits for a broker that does not answer.
func testHangs(t *testing.T, url string, b *taskqueue.Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := b.Queues(ctx, taskqueue.Celery, "celery"); !errors.Is(err, taskqueue.ErrBroker) ||
		!strings.Contains(err.Error(), "did not answer in time") {
		t.Errorf("queues of a broker that hangs: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := b.Workers(ctx, taskqueue.Inspect{}); !errors.Is(err, taskqueue.ErrBroker) ||
		strings.Contains(err.Error(), "refused") {
		t.Errorf("workers of a broker that hangs: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := taskqueue.Open(ctx, url); !errors.Is(err, taskqueue.ErrBroker) ||
		!strings.Contains(err.Error(), "did not answer in time") {
		t.Errorf("a broker that hangs: %v", err)
	}
}

func testAway(t *testing.T, url string) {
	t.Helper()
	if _, err := taskqueue.Open(t.Context(), url); !errors.Is(err, taskqueue.ErrBroker) ||
		!strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("a broker that is away: %v", err)
	}
}

// TestAnotherServer: what answers is no broker of the URL's kind, and the message says so, without
// the password.
func TestAnotherServer(t *testing.T) {
	t.Parallel()
	web, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = web.Close() })
	go func() {
		for {
			c, err := web.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.ReadFull(c, make([]byte, 8))
				_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
				_, _ = io.Copy(io.Discard, c) // until the client has closed it
				_ = c.Close()
			}()
		}
	}()
	for scheme, want := range map[string]string{
		"redis": "does not answer as Redis does",
		"amqp":  "does not answer as RabbitMQ does",
	} {
		_, err := taskqueue.Open(t.Context(), scheme+"://u:hunter2@"+web.Addr().String())
		if !errors.Is(err, taskqueue.ErrBroker) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", scheme, err)
		}
	}
}
