//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// quota is the policy that the environment variables of the multi-tier quota define.
func quota(t *testing.T, environ ...string) drawgate.Policy {
	t.Helper()
	c, err := config.FromEnv(environ)
	if err != nil {
		t.Fatal(err)
	}
	p, ok := c.Policy(config.MultiTier)
	if !ok {
		t.Fatal("no policy")
	}
	return p
}

// tasks is the batch's own log of when each task was granted. Every decision is checked against it.
type tasks []time.Time

// within counts the tasks of the last window.
func (ts tasks) within(window time.Duration, now time.Time) int64 {
	i, _ := slices.BinarySearchFunc(ts, now.Add(-window), func(at, edge time.Time) int {
		if at.After(edge) {
			return 1
		}
		return -1 // one that is as old as the window has left it
	})
	return int64(len(ts) - i)
}

// refusing names the limits that have no room for n more.
func (ts tasks) refusing(p drawgate.Policy, n int64, now time.Time) (names []string) {
	for _, l := range p.Limits {
		if ts.within(l.Window, now)+n > l.Amount {
			names = append(names, l.Name)
		}
	}
	return names
}

// In a month of tasks, 100,000 in the long form, with restarts in between, the answers, the file
// and the tasks' own log agree exactly. Each refusal names the periods that refused, and each of
// the five periods refuses at some time.
//
// req: D1, D2, D5, D11
func TestBatchOfTasks(t *testing.T) {
	needs.NoRace(t)
	t.Parallel()
	scale := needs.Rounds(30, 5, 1)
	total, restart := 100_000/scale, 4_999/scale
	per := func(period string, n int) string { return fmt.Sprintf("RATE_LIMIT_PER_%s=%d", period, n/scale) }
	policy := quota(t, "RATE_LIMIT_PER_MINUTE=20", per("HOUR", 600), per("DAY", 4000), per("WEEK", 25000),
		per("MONTH", 95000))
	path := filepath.Join(t.TempDir(), "counts.db")
	synctest.Test(t, func(t *testing.T) {
		b := batch{t: t, policy: policy, path: path, refusals: map[string]int{}, random: rand.New(rand.NewPCG(1, 2))}
		b.open()
		begin, next := time.Now(), restart
		for len(b.log) < total {
			b.step(min(1+b.random.Int64N(20), int64(total-len(b.log))))
			if len(b.log) >= next {
				b.close()
				b.open()
				next += restart
			}
		}
		b.compare(begin)
		b.close()
		t.Logf("%d tasks in %v; refusals %v", len(b.log), time.Since(begin), b.refusals)
		for _, l := range policy.Limits {
			if b.refusals[l.Name] == 0 {
				t.Errorf("limit %q never refused, want it to refuse at some time", l.Name)
			}
		}
	})
}

type batch struct {
	t        *testing.T
	policy   drawgate.Policy
	path     string
	store    *sqlitestore.Store
	lim      *drawgate.Limiter
	random   *rand.Rand
	log      tasks
	takes    []string // "ID N" of each take that was allowed
	refusals map[string]int
}

func (b *batch) open() {
	b.t.Helper()
	var err error
	if b.store, err = sqlitestore.Open(b.path, &sqlitestore.Options{Synchronous: sqlitestore.Normal}); err != nil {
		b.t.Fatal(err)
	}
	// In the bubble time stands still while the disk is busy, so a deadline can pass only while
	// nothing else runs.
	if b.lim, err = drawgate.New(b.store, b.policy, &drawgate.Options{StoreTimeout: -1}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *batch) close() {
	b.t.Helper()
	if err := b.store.Close(); err != nil {
		b.t.Fatal(err)
	}
}

// step asks for n tasks until they are granted. After a refusal it asks again exactly when the
// refusal said, which must then succeed.
func (b *batch) step(n int64) {
	b.t.Helper()
	if b.random.IntN(4) == 0 {
		time.Sleep(time.Duration(b.random.Int64N(int64(10 * time.Second))))
	}
	id := strconv.Itoa(len(b.takes))
	for attempt := 0; ; attempt++ {
		d, _, err := b.lim.Take(b.t.Context(), drawgate.Request{
			Buckets: []drawgate.Ask{b.lim.Ask("batch", drawgate.Cost{N: n})},
			Labels:  []drawgate.Label{{Name: "id", Value: id}},
		})
		if err != nil {
			b.t.Fatal(err)
		}
		var names []string
		for r := range d.Limits() {
			if r.Refused() {
				names = append(names, r.Limit.Name)
				b.refusals[r.Limit.Name]++
			}
		}
		if diff := cmp.Diff(b.log.refusing(b.policy, n, d.At()), names); diff != "" || d.Allowed != (names == nil) {
			b.t.Fatalf("after %d tasks, %d more: allowed %v, refused by (-log +answer)\n%s", len(b.log), n, d.Allowed,
				diff)
		}
		if d.Allowed {
			for range n {
				b.log = append(b.log, d.At())
			}
			b.takes = append(b.takes, fmt.Sprintf("%s %d", id, n))
			return
		}
		if attempt > 0 {
			b.t.Fatalf("after %d tasks: refused again after its retry-after: %v", len(b.log), d.Err())
		}
		b.wait(d.RetryAfter)
	}
}

// wait waits for d. In the quick form no store is open during a long wait: an open one looks every
// minute for what it can delete, which takes most of the test's time.
func (b *batch) wait(d time.Duration) {
	b.t.Helper()
	if !testing.Short() || d < time.Hour {
		time.Sleep(d)
		return
	}
	b.close()
	time.Sleep(d)
	b.open()
}

// compare compares the file with the log: the current counters, and the history.
func (b *batch) compare(begin time.Time) {
	b.t.Helper()
	st, err := b.lim.Status(b.t.Context(), "batch")
	if err != nil {
		b.t.Fatal(err)
	}
	for i, l := range b.policy.Limits {
		if got, want := st.States[i].Used, b.log.within(l.Window, st.At()); got != want {
			b.t.Errorf("limit %q counts %d, the log %d", l.Name, got, want)
		}
	}
	if diff := cmp.Diff(b.takes, history(b.t, b.store, begin)); diff != "" {
		b.t.Errorf("the history is not the log (-log +history):\n%s", diff)
	}
}

// history returns "ID N" of each take in a store's history.
func history(t *testing.T, s store.Journal, begin time.Time) (takes []string) {
	t.Helper()
	err := s.Read(t.Context(), store.EventQuery{From: begin, To: begin.AddDate(0, 2, 0)}, func(e store.Event) bool {
		if e.Op == "take" {
			takes = append(takes, fmt.Sprintf("%s %d", e.Labels[0].Value, e.Units[0].N))
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return takes
}

// With real processes on one file, eight at a time, some of them killed while they hold, the
// answers, the file and the tasks' own log agree exactly. The limit of the hour refuses. With
// DRAWGATE_LONG=1 they run for more than a minute, so that the limit of the minute refuses first
// and becomes free again.
//
// req: C1, D1, D2, D4, D5, D11
func TestBatchOfProcesses(t *testing.T) {
	t.Parallel()
	const workers, perMinute = 8, 20
	perHour := needs.Rounds(15, 35, 35)
	// the limits that refuse, and how often the last of them has to
	minute, refuse, refusals := "", []string{"hour"}, needs.Rounds(1, 2, 2)*workers
	if needs.Long() {
		minute, refuse, refusals = strconv.Itoa(perMinute), []string{"hour", "minute"}, 5*workers
	}
	b := newBench(t, "RATE_LIMIT_PER_MINUTE="+minute, "RATE_LIMIT_PER_HOUR="+strconv.Itoa(perHour),
		"RATE_LIMIT_STORAGE_PATH=counts.db")
	begin := time.Now()
	tally := tally{refusals: map[string]int{}}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := 0; tally.refusedBy("hour") < refusals && tally.refusedBy("error") == 0; i++ {
				tally.add(b.task(fmt.Sprintf("%d-%d", w, i), i%3 == 2))
			}
		})
	}
	wg.Wait()
	t.Logf("%d granted in %v; refused by %v", len(tally.granted), time.Since(begin), tally.refusals)
	if got := len(tally.granted); got != perHour {
		t.Errorf("got %d granted tasks, want %d", got, perHour)
	}
	if got := slices.Sorted(maps.Keys(tally.refusals)); !slices.Equal(got, refuse) {
		t.Errorf("refusals name %v, want %v", tally.refusals, refuse)
	}
	slices.Sort(tally.granted)
	log, err := os.ReadFile(filepath.Join(b.dir, "tasks.log"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tally.granted, slices.Sorted(slices.Values(strings.Fields(string(log))))); diff != "" {
		t.Errorf("the tasks that ran are not those that were granted (-granted +ran):\n%s", diff)
	}
	for _, l := range b.status().Limits {
		if l.Name == "hour" && l.Used != int64(perHour) {
			t.Errorf("the file counts %d, want %d", l.Used, perHour)
		}
	}
	b.checkHistory(begin, tally.granted)
}

func (b bench) checkHistory(begin time.Time, granted []string) {
	b.t.Helper()
	s, err := sqlitestore.Open(filepath.Join(b.dir, "drawgate", "counts.db"), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var want []string
	for _, id := range granted {
		want = append(want, id+" 1")
	}
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(history(b.t, s, begin)))); diff != "" {
		b.t.Errorf("the history is not what was granted (-granted +history):\n%s", diff)
	}
}

// tally counts the answers.
type tally struct {
	mu       sync.Mutex
	granted  []string
	refusals map[string]int // by the limit that each named
}

func (y *tally) add(id, refusedBy string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if refusedBy != "" {
		y.refusals[refusedBy]++
		return
	}
	y.granted = append(y.granted, id)
}

func (y *tally) refusedBy(limit string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.refusals[limit]
}

// task runs one task in its own process. The task was granted if its command ran. kill means that
// the process is killed while the command runs.
func (b bench) task(id string, kill bool) (string, string) {
	script := "echo " + id + " >>tasks.log; echo ready"
	if kill {
		script += "; exec sleep 600"
	}
	cmd := b.command("run", "--json", "--label", "id="+id, "--", "sh", "-c", script)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Error(err)
		return id, "error"
	}
	ready := make([]byte, len("ready\n"))
	if n, _ := out.Read(ready); n > 0 && kill {
		_ = cmd.Process.Kill() // it has not ended by itself
	}
	_ = cmd.Wait() // the exit code says it
	switch code := cmd.ProcessState.ExitCode(); {
	case code == 0 && !kill, code == -1 && kill:
		return id, ""
	case code != exitRefused:
		b.t.Errorf("task %s ended with %d: %s", id, code, errOut.String())
		return id, "error"
	}
	var a api.Answer
	if err := json.Unmarshal([]byte(errOut.String()), &a); err != nil || a.RefusedBy == nil {
		b.t.Errorf("task %s was refused without a reason: %v in %s", id, err, errOut.String())
		return id, "error"
	}
	return id, a.RefusedBy.Limit
}
