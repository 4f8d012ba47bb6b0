package asynqlimit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store/redisstore"
	"github.com/drawgate/drawgate/taskqueue/asynqlimit"
)

// orders are for a process that runs tasks: this program, started again.
type orders struct {
	Addr    string
	Limit   drawgate.Limit
	Workers int // of asynq

	Wait, RetryDelay, Hold time.Duration
	MaxAttempts            int
}

const envOrders = "ASYNQLIMIT_TEST_ORDERS"

func TestMain(m *testing.M) {
	if text := os.Getenv(envOrders); text != "" {
		if err := work(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	m.Run()
}

// entry is what a task writes to the log, a list in Redis.
type entry struct {
	ID      string
	Granted time.Time // from which time it counts, by the store's clock
	Started time.Time // by the process's clock
}

const (
	logKey  = "log"
	hangKey = "hangs" // how often a task of the type hang has started
)

// work runs tasks until the process is killed. A task of the type hang does not end the first time.
func work(text string) error {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	store, err := redisstore.Open("redis://"+o.Addr+"/1", nil)
	if err != nil {
		return err
	}
	var granted sync.Map // from a task's id to when it got its units
	lim, err := drawgate.New(store, drawgate.Policy{Name: "tasks", Limits: []drawgate.Limit{o.Limit}},
		&drawgate.Options{Observer: &drawgate.Observer{Taken: func(e *drawgate.Taken) {
			if e.Err == nil && e.Decision.Allowed {
				// A take that waits may be granted a little ahead of time.
				granted.Store(e.Take.Labels[0].Value, e.Decision.At().Add(e.Decision.Delay()))
			}
		}}})
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: o.Addr})
	limit, err := asynqlimit.New(client, func(ctx context.Context, _ *asynq.Task) (drawgate.Request, error) {
		id, _ := asynq.GetTaskID(ctx)
		return drawgate.Request{
			Buckets: []drawgate.Ask{{Limiter: lim, Key: "k"}},
			Labels:  []drawgate.Label{{Name: "task", Value: id}},
		}, nil
	}, &asynqlimit.Options{Wait: o.Wait, RetryDelay: o.RetryDelay, Hold: o.Hold, MaxAttempts: o.MaxAttempts})
	if err != nil {
		return err
	}
	srv := asynq.NewServerFromRedisClient(client, asynq.Config{
		Concurrency: o.Workers, RetryDelayFunc: limit.RetryDelay, IsFailure: limit.IsFailure,
		LogLevel:          asynq.FatalLevel,
		TaskCheckInterval: 10 * time.Millisecond, DelayedTaskCheckInterval: 50 * time.Millisecond,
	})
	return srv.Run(limit.Middleware(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		now := time.Now()
		id, _ := asynq.GetTaskID(ctx)
		at, _ := granted.Load(id)
		line, err := json.Marshal(entry{ID: id, Granted: at.(time.Time), Started: now})
		if err != nil {
			return err
		}
		hangs := task.Type() == "hang" && client.Incr(ctx, hangKey).Val() == 1 // before it may be killed
		if err := client.RPush(ctx, logKey, line).Err(); err != nil {
			return err
		}
		if hangs {
			select {}
		}
		return nil
	})))
}

// start starts a process that runs tasks, and kills it at the test's end.
func start(t *testing.T, o *orders) (kill func()) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envOrders+"="+string(text))
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, redistest.DieWithParent()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it is killed: its exit code says nothing
	})
	t.Cleanup(kill)
	return kill
}

// entries returns the log.
func (b *bench) entries() (all []entry) {
	b.t.Helper()
	list, err := b.client.LRange(b.t.Context(), logKey, 0, -1).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, line := range list {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			b.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// TestFleet: four processes run tasks within one limit. By the log that the tasks write, each runs
// once, and in no window more than the limit were granted; those that waited in vain ran later. The
// long version kills a process: its tasks run again, when asynq notices.
//
// req: B5, E1
func TestFleet(t *testing.T) {
	t.Parallel()
	tasks, limit := 60, drawgate.Limit{
		Name: "rpm", Kind: drawgate.Rolling, Window: time.Second, Amount: 10,
		Precision: drawgate.Exact,
	}
	long := os.Getenv("DRAWGATE_LONG") != ""
	if long {
		tasks, limit.Amount, limit.Window = 500, 50, 6*time.Second // a minute in a tenth of the time
	}
	limit.Margin = limit.Window / 10 // for the time between a grant and the start of the task
	b := newBench(t)
	for i := range tasks {
		b.send(fmt.Sprint(i), asynq.MaxRetry(3))
	}
	o := &orders{
		Addr: b.redis.Addr, Limit: limit, Workers: 4, Wait: limit.Window / 4, RetryDelay: time.Second,
		MaxAttempts: 1000,
	}
	begin, twice := time.Now(), 0 // twice: the most tasks that may have run twice
	kill := start(t, o)
	for range 3 {
		start(t, o)
	}
	if long {
		await(t, "a fifth has run", func() bool { return b.client.LLen(t.Context(), logKey).Val() >= int64(tasks)/5 })
		kill()
		start(t, o)
		twice = o.Workers
	}
	for i := range tasks {
		b.gone(fmt.Sprint(i))
	}
	took := time.Since(begin)
	all, ids := b.entries(), map[string]bool{}
	var late time.Duration
	for _, e := range all {
		ids[e.ID] = true
		late = max(late, e.Started.Sub(e.Granted))
	}
	if len(ids) != tasks || len(all) > tasks+twice {
		t.Errorf("%d entries of %d tasks, want %d", len(all), len(ids), tasks)
	}
	slices.SortFunc(all, func(x, y entry) int { return x.Granted.Compare(y.Granted) })
	n, least := int(limit.Amount), limit.Window+limit.Margin
	for i := n; i < len(all); i++ {
		if span := all[i].Granted.Sub(all[i-n].Granted); span < least {
			t.Errorf("%d tasks were granted within %v", n+1, span)
		}
	}
	// A task that starts late comes closer to the next ones.
	slices.SortFunc(all, func(x, y entry) int { return x.Started.Compare(y.Started) })
	shortest := time.Hour
	for i := n; i < len(all); i++ {
		shortest = min(shortest, all[i].Started.Sub(all[i-n].Started))
	}
	if shortest < least-late {
		t.Errorf("%d tasks started within %v, though none was more than %v late", n+1, shortest, late)
	}
	q, err := b.tasks.GetQueueInfo("default")
	if err != nil || q.Failed > twice || q.Archived != 0 || q.Size != 0 {
		t.Errorf("the queue is %+v, %v", q, err)
	}
	t.Logf("%d tasks, %d in %v, by 4 processes: %v; %d of a killed process ran again, %d of them had started; none started more than %v after its grant; %d started within no less than %v", tasks, n, limit.Window, took, q.Failed, len(all)-tasks, late, n+1, shortest)
}

// TestKilledWorker: a process that is killed loses no task, and its units come free when their hold
// ends.
//
// req: B5
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := &orders{Addr: b.redis.Addr, Limit: drawgate.ConcurrencyLimit("slots", 1), Workers: 1, Hold: 5 * time.Second}
	b.send("hang", asynq.MaxRetry(3))
	kill := start(t, o)
	await(t, "it runs", func() bool { return b.client.LLen(t.Context(), logKey).Val() == 1 })
	kill()
	b.send("after")
	// asynq gives the tasks of a dead process to another a minute after it was last seen. For the
	// test that is long ago. The next process looks for such tasks when it starts.
	if n, err := b.client.ZAddXX(t.Context(), "asynq:{default}:lease",
		redis.Z{Score: 1, Member: "hang"}).Result(); err != nil {
		t.Fatal(n, err)
	}
	start(t, o)
	b.gone("after")
	b.gone("hang")
	all := b.entries()
	if len(all) != 3 || all[0].ID != "hang" {
		t.Fatalf("the log is %+v", all)
	}
	if held := all[1].Granted.Sub(all[0].Granted); held < o.Hold {
		t.Errorf("the slot of a task that had not ended was granted again after %v", held)
	}
}
