//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/celerytest"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/taskqueue"
)

// askQueues asks until the JSON is as wanted: workers need time to start and to fetch tasks.
func askQueues(t *testing.T, b bench, want func(*queueState) bool, args ...string) *queueState {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; {
		out, code := b.do(append([]string{"queue", "status", "--json"}, args...)...)
		var st queueState
		if err := json.Unmarshal([]byte(out), &st); err == nil && code == exitOK && want(&st) {
			return &st
		} else if time.Now().After(end) {
			t.Fatalf("%d, %v: %s", code, err, out)
		}
	}
}

// wantTables checks a table's lines, one after the other.
func wantTables(t *testing.T, out string, lines ...string) {
	t.Helper()
	if want := regexp.MustCompile(`(?s)^` + strings.Join(lines, `\s*\n`) + `\s*$`); !want.MatchString(out) {
		t.Errorf("got %s\nwant %s", out, want)
	}
}

// TestQueueStatusOfCelery: queues and workers of both brokers, as tables and as JSON, and exit
// codes for scripts.
//
// req: B6, B8
func TestQueueStatusOfCelery(t *testing.T) {
	t.Parallel()
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t, "--requirepass", "hunter2")
		testQueueStatus(t, "redis://:hunter2@"+s.Addr+"/0", "redis://:xxxxx@"+s.Addr+"/0",
			[]string{"QUEUE +DEPTH +BY PRIORITY", "unread +3 +0: 1, 6: 2"}, s.Stop, s.Kill9)
	})
	t.Run("RabbitMQ", func(t *testing.T) {
		t.Parallel()
		s := celerytest.StartRabbit(t)
		testQueueStatus(t, s.URL(), "amqp://guest:xxxxx@"+s.Addr+"//",
			[]string{"QUEUE +DEPTH +CONSUMERS", "unread +3 +0"}, s.Stop, s.Kill9)
	})
}

func testQueueStatus(t *testing.T, url, shown string, unread []string, stop, kill func()) {
	t.Helper()
	app := celerytest.New(t, url)
	app.Worker("one@test", "celery,mail")
	b := newBench(t, "CELERY_BROKER_URL="+url)
	askQueues(t, b, func(st *queueState) bool {
		return len(st.Workers) == 1 && slices.Equal(st.names(), []string{"celery", "mail"})
	})
	app.Run(fmt.Sprintf(`
for i in range(2):
    block.apply_async([%[1]q], {"note": "private"}, task_id=f"now-{i}")
block.apply_async([%[1]q], task_id="later", countdown=3600, queue="mail")
for p in 0, 7, 8:
    block.apply_async([%[1]q], queue="unread", priority=p)
`, filepath.Join(t.TempDir(), "release")))
	fetched := func(st *queueState) bool {
		return len(st.Workers) == 1 && len(st.Workers[0].Active) == 1 && len(st.Workers[0].Reserved) == 1 &&
			len(st.Workers[0].Scheduled) == 1
	}
	st := askQueues(t, b, fetched, "--queue", "unread", "--max-depth", "3")
	if st.Broker != shown || st.Kind != "celery" || len(st.Queues) != 1 || st.Queues[0].Depth != 3 ||
		st.Workers[0].Active[0].Kwargs != nil {
		t.Errorf("got %+v", st)
	}
	st = askQueues(t, b, fetched, "--args")
	if got := string(st.Workers[0].Active[0].Kwargs); got != `{"note":"private"}` {
		t.Errorf("arguments %s", got)
	}
	args := []string{"queue", "status", "--queue", "unread", "--max-depth", "2"}
	onRedis := strings.HasPrefix(url, "redis")
	if onRedis {
		args = append(args, "--wait", "5m") // it ends when the worker has answered
	}
	out, code := b.do(args...)
	if onRedis {
		wantTables(t, out, append(append([]string{regexp.QuoteMeta("broker " + shown + ", celery")}, unread...), "",
			"WORKER +QUEUES +ACTIVE +RESERVED +SCHEDULED", "one@test +celery,mail +1 +1 +1", "",
			"STATE +TASK +ID +WORKER +TIME", `active +block +now-0 +one@test +for \S+`,
			`reserved +block +now-1 +one@test`,
			`scheduled +block +later +one@test +in \S+ \(\S+ \S+\)`)...)
	} else {
		for _, line := range unread {
			if !regexp.MustCompile(line).MatchString(out) {
				t.Errorf("got %s, want %s", out, line)
			}
		}
	}
	if code != exitRefused || strings.Contains(out, "private") {
		t.Errorf("exit code %d, %s", code, out)
	}
	limited := b
	limited.env = append(slices.Clone(b.env), "QUEUE_MAX_DEPTH=2")
	for want, args := range map[int][]string{
		exitRefused: {"--queue", "unread"},
		exitOK:      {"--queue", "unread", "--max-depth", "3"},
		exitUsage:   {"--queue", "unraed", "--max-depth", "3"},
	} {
		if out, code := limited.do(append([]string{"queue", "status", "--wait", "100ms"}, args...)...); code != want {
			t.Errorf("%q: exit code %d, want %d: %s", args, code, want, out)
		}
	}
	for end := time.Now().Add(5 * time.Minute); ; {
		out, code := b.do("__complete", "queue", "status", "--queue", "")
		if code == exitOK && strings.HasPrefix(out, "celery\nmail\n:") {
			break
		} else if time.Now().After(end) {
			t.Fatalf("completion: %d, %s", code, out)
		}
	}
	d := b.queueMetrics()
	d.shows(`drawgate_task_queue_depth{kind="celery",queue="mail"}`, 0) // a queue of the worker
	if got := d.metric(`drawgate_task_queue_broker_up`); got != 1 {
		t.Errorf("broker up: got %v", got)
	}
	stop()
	if out, code := b.do("queue", "status", "--json"); code != exitUnavailable ||
		!strings.Contains(out, "did not answer in time") || strings.Contains(out, "hunter2") {
		t.Errorf("a broker that hangs: %d, %s", code, out)
	}
	kill()
	if out, code := b.do("queue", "status", "--json"); code != exitUnavailable ||
		!strings.Contains(out, "cannot be reached") || strings.Contains(out, "hunter2") {
		t.Errorf("a broker that is away: %d, %s", code, out)
	}
}

// TestQueueStatusOfAsynq: the table and the exit code. What the numbers mean is tested with asynq
// itself, in package asynqlimit.
//
// req: B6
func TestQueueStatusOfAsynq(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, command := range []string{
		"SADD asynq:queues default low", "RPUSH asynq:{default}:pending 1 2 3", "RPUSH asynq:{default}:active 4 5",
		"ZADD asynq:{default}:scheduled 1 6", "ZADD asynq:{default}:retry 1 7 2 8 3 9 4 10",
	} {
		if err := c.Do(t.Context(), c.B().Arbitrary(strings.Fields(command)...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	b := newBench(t, "DRAWGATE_BROKER="+s.URL(), "CELERY_BROKER_URL=redis://127.0.0.1:1")
	out, code := b.do("queue", "status", "--max-depth", "6")
	wantTables(t, out, "broker "+s.URL()+", asynq", "QUEUE +DEPTH +PENDING +RETRY +SCHEDULED +ACTIVE",
		"default +7 +3 +4 +1 +2", "low +0 +0 +0 +0 +0")
	if code != exitRefused {
		t.Errorf("exit code %d", code)
	}
	if _, code = b.do("queue", "status", "--max-depth", "6", "--queue", "low"); code != exitOK {
		t.Errorf("the other queue: exit code %d", code)
	}
}

// queueMetrics starts drawgate queue metrics on a free port, until the test ends.
func (b bench) queueMetrics(args ...string) *daemon {
	b.t.Helper()
	d := b.background(append([]string{"queue", "metrics", "--listen", "127.0.0.1:0"}, args...)...)
	d.admin = d.log.await(b.t, `metrics of task queues at (http://[^"/]+)/metrics`)
	return d
}

// TestQueueMetrics: Prometheus reads the depth of queues, of a real Redis. A queue that becomes
// empty has the depth 0, though Redis forgets it, and no depth is reported while Redis is down.
//
// req: B6, B10
func TestQueueMetrics(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--requirepass", "hunter2")
	do := func(command ...string) {
		t.Helper()
		c, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{s.Addr}, Password: "hunter2",
			DisableCache: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Do(t.Context(), c.B().Arbitrary(command...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	do("RPUSH", "jobs", "1", "2", "3")
	do("RPUSH", "jobs\x06\x166", "4", "5")
	b := newBench(t, "CELERY_BROKER_URL=redis://:hunter2@"+s.Addr+"/0")
	d := b.queueMetrics("--queue", "jobs", "--queue", "jbos")
	const jobs, typo, up = `drawgate_task_queue_depth{kind="celery",queue="jobs"}`,
		`drawgate_task_queue_depth{kind="celery",queue="jbos"}`, `drawgate_task_queue_broker_up`
	if got := d.metric(jobs); got != 5 {
		t.Errorf("got %v, want the tasks of all priorities", got)
	}
	if got := d.metric(typo); got != -1 {
		t.Errorf("a queue that does not exist has the depth %v", got)
	}
	d.log.await(t, `there is no such queue.*(jbos)`)
	do("DEL", "jobs", "jobs\x06\x166")
	eventually(t, "depth 0", func() bool { return d.metric(jobs) == 0 })
	s.Kill9()
	eventually(t, "fault", func() bool { return d.metric(up) == 0 })
	if got := d.metric(jobs); got != -1 {
		t.Errorf("Redis cannot be reached, and the depth is said to be %v", got)
	}
	s.Restart()
	do("RPUSH", "jobs", "1")
	d.shows(jobs, 1)
	if strings.Contains(d.log.String(), "hunter2") {
		t.Errorf("the password was logged: %s", d.log)
	}
	down := newBench(t, "CELERY_BROKER_URL=redis://127.0.0.1:1").queueMetrics()
	if got := down.metric(up); got != 0 {
		t.Errorf("a broker that cannot be reached at the start: got %v", got)
	}
}

// TestQueueThatIsMissing: a queue that no worker uses may exist although it was not asked for, so
// nothing is said about which queues there are.
func TestQueueThatIsMissing(t *testing.T) {
	t.Parallel()
	st := queueState{Queues: []taskqueue.Queue{{Name: "x", Missing: true}}}
	for _, c := range []struct{ name, want string }{
		{"nightly", ""}, {"mial", `; did you mean "mail"?`}, {"nightly", "; the workers use celery, mail"},
	} {
		if strings.HasPrefix(c.want, ";") {
			st.Workers = []taskqueue.Worker{{Queues: []string{"mail", "celery"}}, {Queues: []string{"celery"}}}
		}
		if got := st.suggest(c.name); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
