package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/taskqueue"
	"github.com/drawgate/drawgate/taskqueue/asynqlimit"
)

// patience is how long to wait for something that must happen.
const patience = 5 * time.Minute

// await waits until ok is true.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not happen: " + what)
		}
	}
}

func memory(t *testing.T) drawgate.Store {
	t.Helper()
	store := memstore.New(nil)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// limiter returns a limiter of one limit, in memory.
func limiter(t *testing.T, limit drawgate.Limit) *drawgate.Limiter {
	t.Helper()
	lim, err := drawgate.New(memory(t), drawgate.Policy{Name: "tasks", Limits: []drawgate.Limit{limit}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// one lets each task take one request.
func one(lim *drawgate.Limiter) asynqlimit.Asks {
	return func(context.Context, *asynq.Task) (drawgate.Request, error) {
		return drawgate.Request{Buckets: []drawgate.Ask{{Limiter: lim, Key: "k"}}}, nil
	}
}

// unused is the address for a client that nobody uses.
const unused = "127.0.0.1:1"

func connect(t *testing.T, addr string) redis.UniversalClient {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func limitOf(t *testing.T, c redis.UniversalClient, asks asynqlimit.Asks, o *asynqlimit.Options) *asynqlimit.Limit {
	t.Helper()
	l, err := asynqlimit.New(c, asks, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestWaitsFiveMinutes: a task waits up to five minutes for its units, holds them while it runs,
// and gives them back at its end.
//
// req: B5, B7
func TestWaitsFiveMinutes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		busy, waits time.Duration // of the task in front, and of this one
		again       bool
	}{{4 * time.Minute, 4 * time.Minute, false}, {6 * time.Minute, 5 * time.Minute, true}} {
		synctest.Test(t, func(t *testing.T) {
			l := limitOf(t, connect(t, unused), one(limiter(t, drawgate.ConcurrencyLimit("slots", 1))), nil)
			front := l.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				time.Sleep(c.busy) // much longer than the hold, which is renewed
				return ctx.Err()
			}))
			done := make(chan error, 1)
			go func() { done <- front.ProcessTask(t.Context(), asynq.NewTask("front", nil)) }()
			synctest.Wait()
			start, ran := time.Now(), false
			err := l.Middleware(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				ran = true
				return nil
			})).ProcessTask(t.Context(), asynq.NewTask("next", nil))
			again, ok := errors.AsType[*asynqlimit.RequeuedError](err)
			if waited := time.Since(start).Round(time.Second); waited != c.waits || ok != c.again || ran == c.again {
				t.Errorf("busy for %v: waited %v, ran=%v, %v", c.busy, waited, ran, err)
			}
			if ok && (again.Count != 1 || again.Max != 3 || l.IsFailure(err) ||
				l.RetryDelay(7, err, nil) != time.Minute) {
				t.Errorf("queued again as %+v, after %v", again, l.RetryDelay(7, err, nil))
			}
			if err := <-done; err != nil {
				t.Errorf("the task in front: %v", err)
			}
		})
	}
}

// TestPriority: of the tasks that wait in a process, the one with the highest priority is next.
//
// req: B6
func TestPriority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := limiter(t, drawgate.ConcurrencyLimit("slots", 1))
		front, err := lim.Reserve(t.Context(), "k", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		l := limitOf(t, connect(t, unused), func(_ context.Context, task *asynq.Task) (drawgate.Request, error) {
			r := drawgate.Request{Buckets: []drawgate.Ask{{Limiter: lim, Key: "k"}}}
			if task.Type() == "high" {
				r.Priority = 9
			}
			return r, nil
		}, nil)
		var order []string
		var wg sync.WaitGroup
		for _, name := range []string{"low", "high"} {
			wg.Go(func() {
				if err := l.Middleware(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
					order = append(order, task.Type()) // one at a time: there is one slot
					return nil
				})).ProcessTask(t.Context(), asynq.NewTask(name, nil)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if err := front.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if got := strings.Join(order, " "); got != "high low" {
			t.Errorf("they ran in the order %s", got)
		}
	})
}

// TestLostHoldEndsHandler: a handler must not go on without its units.
//
// req: B5
func TestLostHoldEndsHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := limiter(t, drawgate.ConcurrencyLimit("slots", 1))
		var reported error
		l := limitOf(t, connect(t, unused), one(lim), &asynqlimit.Options{Report: func(err error) { reported = err }})
		err := l.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			if err := lim.Reset(ctx, "k"); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})).ProcessTask(t.Context(), asynq.NewTask("x", nil))
		if !errors.Is(err, asynqlimit.ErrHoldLost) || !errors.Is(reported, asynqlimit.ErrHoldLost) ||
			!l.IsFailure(err) {
			t.Errorf("got %v, reported %v", err, reported)
		}
	})
}

// TestMistakesAreArchived: no retry helps a task that asks for more than there can be.
func TestMistakesAreArchived(t *testing.T) {
	t.Parallel()
	lim := limiter(t, drawgate.ConcurrencyLimit("slots", 1))
	for name, asks := range map[string]asynqlimit.Asks{
		"too much": func(context.Context, *asynq.Task) (drawgate.Request, error) {
			return drawgate.Request{Buckets: []drawgate.Ask{{
				Limiter: lim, Key: "k",
				Costs: []drawgate.Cost{{Unit: drawgate.UnitRequests, N: 2}},
			}}}, nil
		},
		"no bucket": func(context.Context, *asynq.Task) (drawgate.Request, error) { return drawgate.Request{}, nil },
		"no limiter": func(context.Context, *asynq.Task) (drawgate.Request, error) {
			return drawgate.Request{Buckets: []drawgate.Ask{{}}}, nil
		},
	} {
		l := limitOf(t, connect(t, unused), asks, nil)
		if err := l.Middleware(nil).ProcessTask(t.Context(), asynq.NewTask("x", nil)); !errors.Is(err,
			asynq.SkipRetry) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, o := range []asynqlimit.Options{
		{Wait: -1},
		{Hold: time.Millisecond},
		{Multiplier: 0.5},
		{MaxAttempts: -1},
		{RetryDelay: -1},
	} {
		if _, err := asynqlimit.New(connect(t, unused), one(lim), &o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
	if _, err := asynqlimit.New(nil, one(lim), nil); err == nil {
		t.Error("no client: no error")
	}
}

// TestBackoff: the delay after a failure grows by the multiplier.
//
// req: B5, B8
func TestBackoff(t *testing.T) {
	t.Parallel()
	lim, failed := limiter(t, drawgate.ConcurrencyLimit("slots", 1)), errors.New("failed")
	for _, c := range []struct {
		multiplier float64
		n          int
		want       time.Duration
	}{
		{0, 0, time.Second},
		{0, 1, 2 * time.Second},
		{0, 2, 4 * time.Second},
		{1.5, 2, 2250 * time.Millisecond},
		{1, 20, time.Second},
		{0, 5000, time.Hour},
	} {
		l := limitOf(t, connect(t, unused), one(lim), &asynqlimit.Options{Multiplier: c.multiplier})
		if got := l.RetryDelay(c.n, failed, nil); got != c.want {
			t.Errorf("multiplier %v, retry %d: %v, want %v", c.multiplier, c.n, got, c.want)
		}
		if !l.IsFailure(failed) || l.IsFailure(nil) {
			t.Error("what is a failure is wrong")
		}
	}
}

// bench is a server of asynq that runs a task again only when the test says so.
type bench struct {
	t      *testing.T
	redis  *redistest.Server
	client redis.UniversalClient
	tasks  *asynq.Inspector
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s := redistest.Start(t)
	c := connect(t, s.Addr)
	return &bench{t, s, c, asynq.NewInspectorFromRedisClient(c)}
}

func (b *bench) serve(l *asynqlimit.Limit, handler asynq.HandlerFunc) {
	b.t.Helper()
	srv := asynq.NewServerFromRedisClient(b.client, asynq.Config{
		Concurrency: 2, RetryDelayFunc: l.RetryDelay, IsFailure: l.IsFailure, LogLevel: asynq.FatalLevel,
		TaskCheckInterval: 5 * time.Millisecond, DelayedTaskCheckInterval: time.Hour,
	})
	if err := srv.Start(l.Middleware(handler)); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(srv.Shutdown)
}

// send sends a task to the queue default; its id is its type.
func (b *bench) send(id string, opts ...asynq.Option) {
	b.t.Helper()
	if _, err := asynq.NewClientFromRedisClient(b.client).Enqueue(asynq.NewTask(id, nil),
		append(opts, asynq.TaskID(id))...); err != nil {
		b.t.Fatal(err)
	}
}

// state waits until a task is in a state, with a text in its last error.
func (b *bench) state(id string, state asynq.TaskState, text string) (info *asynq.TaskInfo) {
	b.t.Helper()
	await(b.t, fmt.Sprintf("%s is %v: %s", id, state, text), func() bool {
		var err error
		info, err = b.tasks.GetTaskInfo("default", id)
		return err == nil && info.State == state && strings.Contains(info.LastErr, text)
	})
	return info
}

func (b *bench) gone(id string) {
	b.t.Helper()
	await(b.t, id+" has ended", func() bool {
		_, err := b.tasks.GetTaskInfo("default", id)
		return errors.Is(err, asynq.ErrTaskNotFound)
	})
}

func (b *bench) run(id string) {
	b.t.Helper()
	if err := b.tasks.RunTask("default", id); err != nil {
		b.t.Fatal(err)
	}
}

// next checks when a task will run again that was queued again after a time. asynq rounds down to
// seconds.
func next(t *testing.T, info *asynq.TaskInfo, before time.Time, delay time.Duration) {
	t.Helper()
	if from, to := before.Add(delay-time.Second), time.Now().Add(delay); info.NextProcessAt.Before(from) ||
		info.NextProcessAt.After(to) {
		t.Errorf("it runs again at %v, want between %v and %v", info.NextProcessAt, from, to)
	}
}

// TestQueuedAgainThreeTimes: a task that gets no units is queued again after a minute, three times,
// without counting as a failure; then it is given up. It can be run by hand afterwards.
//
// req: B5, B8
func TestQueuedAgainThreeTimes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lim := limiter(t, drawgate.Limit{Name: "rph", Kind: drawgate.Rolling, Window: time.Hour, Amount: 1})
	if d, err := lim.Allow(t.Context(), "k"); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	var ran atomic.Int64
	b.serve(limitOf(t, b.client, one(lim), nil), func(context.Context, *asynq.Task) error {
		ran.Add(1)
		return nil
	})
	before := time.Now()
	b.send("t", asynq.MaxRetry(1)) // asynq's own count does not matter
	for i := range 3 {
		info := b.state("t", asynq.TaskStateRetry, fmt.Sprintf("time %d of 3", i+1))
		if info.Retried != 0 {
			t.Errorf("it counts as %d failures", info.Retried)
		}
		next(t, info, before, time.Minute)
		before = time.Now()
		if i == 2 {
			b.depth(1, taskqueue.AsynqStates{Retry: 1})
		}
		b.run("t")
	}
	info := b.state("t", asynq.TaskStateArchived, "given up after being queued again 3 times")
	if q, err := b.tasks.GetQueueInfo("default"); err != nil || info.Retried != 0 || ran.Load() != 0 || q.Failed != 1 {
		t.Errorf("retried %d, ran %d, queue %+v, %v", info.Retried, ran.Load(), q, err)
	}
	if err := lim.Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	b.run("t")
	b.gone("t")
	if ran.Load() != 1 {
		t.Errorf("it ran %d times", ran.Load())
	}
}

// depth checks what package taskqueue reads of asynq.
func (b *bench) depth(depth int64, states taskqueue.AsynqStates) {
	b.t.Helper()
	broker, err := taskqueue.Open(b.t.Context(), b.redis.URL())
	if err != nil {
		b.t.Fatal(err)
	}
	defer broker.Close()
	kind, err := broker.Kind(b.t.Context())
	if err != nil || kind != taskqueue.Asynq {
		b.t.Errorf("kind %q, %v", kind, err)
	}
	names, err := broker.AsynqQueues(b.t.Context())
	if err != nil || len(names) != 1 || names[0] != "default" {
		b.t.Errorf("queues %q, %v", names, err)
	}
	got, err := broker.Queues(b.t.Context(), kind, "default")
	if err != nil || got[0].Missing || got[0].Depth != depth || *got[0].States != states {
		b.t.Errorf("queue %+v, %v, want depth %d and %+v", got, err, depth, states)
	}
}

// TestFailuresBackOff: a task that fails runs again as often as asynq's MaxRetry says, after delays
// that grow.
//
// req: B5
func TestFailuresBackOff(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lim := limiter(t, drawgate.ConcurrencyLimit("slots", 1))
	b.serve(limitOf(t, b.client, one(lim), nil), func(context.Context,
		*asynq.Task,
	) error {
		return errors.New("no such file")
	})
	before := time.Now()
	b.send("f", asynq.MaxRetry(3))
	for i, delay := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		var info *asynq.TaskInfo
		await(t, "it failed", func() bool {
			info = b.state("f", asynq.TaskStateRetry, "no such file")
			return info.Retried == i+1
		})
		next(t, info, before, delay)
		before = time.Now()
		b.run("f")
	}
	b.state("f", asynq.TaskStateArchived, "no such file")
	if st, err := lim.Status(t.Context(), "k"); err != nil || st.Open != 0 {
		t.Errorf("%d units are held, %v", st.Open, err)
	}
}

// TestLastAttemptWaitsOn: asynq would archive a task on its last attempt, so that does not return
// to the queue.
//
// req: B5
func TestLastAttemptWaitsOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lim := limiter(t, drawgate.ConcurrencyLimit("slots", 1))
	front, err := lim.Reserve(t.Context(), "k", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	var ran atomic.Bool
	asks := func(ctx context.Context, task *asynq.Task) (drawgate.Request, error) {
		asked.Add(1)
		return one(lim)(ctx, task)
	}
	l := limitOf(t, b.client, asks, &asynqlimit.Options{
		Wait: time.Millisecond, RetryDelay: time.Millisecond,
		MaxAttempts: math.MaxInt32,
	})
	b.serve(l, func(context.Context, *asynq.Task) error {
		ran.Store(true)
		return nil
	})
	b.send("last", asynq.MaxRetry(0))
	await(t, "it asks again", func() bool { return asked.Load() >= 3 })
	b.depth(0, taskqueue.AsynqStates{Active: 1})
	if err := front.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.gone("last")
	if !ran.Load() {
		t.Error("it did not run")
	}
}

// TestOutageCountsNothing: while nothing can be decided, a task is queued again as often as needed.
//
// req: B5
func TestOutageCountsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lim := limiter(t, drawgate.ConcurrencyLimit("slots", 1))
	_ = lim.Close()
	b.serve(limitOf(t, b.client, one(lim), nil), nil)
	b.send("x", asynq.MaxRetry(1))
	for range 5 {
		if info := b.state("x", asynq.TaskStateRetry, "nothing was decided"); info.Retried != 0 {
			t.Errorf("it counts as %d failures", info.Retried)
		}
		b.run("x")
	}
}

// TestGuard: a task is sent only if its queue is not deeper than 50 and a unit is left.
//
// req: B6, B8
func TestGuard(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lim := limiter(t, drawgate.Limit{Name: "rph", Kind: drawgate.Rolling, Window: time.Hour, Amount: 53})
	g := asynqlimit.NewGuard(b.client, lim, 0)
	send := func(opts ...asynq.Option) error {
		_, err := g.Enqueue(t.Context(), "mail", asynq.NewTask("x", nil), opts...)
		return err
	}
	if err := send(asynq.ProcessIn(time.Hour)); err != nil { // it is not in the way
		t.Fatal(err)
	}
	for i := range 51 {
		if err := send(); err != nil {
			t.Fatalf("task %d: %v", i+1, err)
		}
	}
	deep, ok := errors.AsType[*asynqlimit.TooDeepError](send())
	if !ok || deep.Depth != 51 || deep.Max != 50 || deep.Queue != "mail" {
		t.Errorf("a queue that is too deep: %+v", deep)
	} else if want := `asynqlimit: queue "mail" has 51 tasks that wait, and at most 50 may: send the task later`; deep.Error() != want {
		t.Errorf("%v, want %s", deep, want)
	}
	if n, err := b.tasks.DeleteAllPendingTasks("mail"); n != 51 || err != nil {
		t.Fatal(n, err)
	}
	if err := send(); err != nil { // the refusal has spent nothing
		t.Error(err)
	}
	if err := send(); !errors.Is(err, drawgate.ErrLimited) {
		t.Errorf("no unit is left: %v", err)
	}
	if q, err := b.tasks.GetQueueInfo("mail"); err != nil || q.Pending != 1 || q.Scheduled != 1 {
		t.Errorf("the queue is %+v, %v", q, err)
	}
	few := append(make([]asynq.Option, 0, 2), asynq.MaxRetry(1))
	if _, err := asynqlimit.NewGuard(b.client, nil, 0).Enqueue(t.Context(), "mail", asynq.NewTask("x", nil),
		few...); err != nil || few[:2][1] != nil {
		t.Errorf("the caller's options have become %v, %v", few[:2], err)
	}
	b.redis.Kill9()
	if err := send(); err == nil {
		t.Error("without Redis: no error")
	}
}
