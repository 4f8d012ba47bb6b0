package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/redisstore"
)

// Worker processes of TestProcesses are this test binary again, with these variables set.
const (
	envWorker = "DRAWGATE_TEST_WORKER" // goroutines, seconds
	envURL    = "DRAWGATE_TEST_URL"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(envWorker); spec != "" {
		work(spec, os.Getenv(envURL))
		return
	}
	os.Exit(m.Run())
}

// quota is what the processes share: a calendar day of 20,000.
const quota = 20_000

func dayPlan() *drawgate.Plan {
	p, err := drawgate.Policy{Name: "shared", Limits: []drawgate.Limit{{Name: "d", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: quota}}}.Compile()
	if err != nil {
		panic(err)
	}
	return p
}

// work takes for a while with several goroutines, and prints how many units it was granted, and from which days.
func work(spec, url string) {
	var callers, ms int
	if _, err := fmt.Sscanf(spec, "%d,%d", &callers, &ms); err != nil {
		panic(err)
	}
	s, err := redisstore.Open(url, nil)
	if err != nil {
		panic(err)
	}
	defer s.Close()
	var mu sync.Mutex
	granted := map[int64]int64{} // by day
	var wg sync.WaitGroup
	deadline := time.Now().Add(time.Duration(ms) * time.Millisecond)
	for range callers {
		wg.Go(func() {
			plan := dayPlan()
			for time.Now().Before(deadline) {
				var d [1]drawgate.Decision
				if err := s.Take(context.Background(), []drawgate.Take{takeOf(plan, "k", 1)}, d[:]); err != nil || d[0].Fail != nil {
					panic(fmt.Sprint(err, d[0].Fail))
				}
				if d[0].Allowed {
					mu.Lock()
					granted[d[0].At().Unix()/86400]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for day, n := range granted {
		fmt.Println("granted", day, n)
	}
}

// TestProcesses lets processes take from one calendar day for longer than it lasts: together they get exactly all of it.
//
// req: C1, E1, E10
func TestProcesses(t *testing.T) {
	t.Parallel()
	callers, ms := 8, 1500
	if long {
		callers, ms = 64, 10_000
	}
	server := redistest.Start(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := map[string]int{}
	for range 8 {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d,%d", envWorker, callers, ms), envURL+"="+server.URL())
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("a worker: %v", err)
			}
			for sc := bufio.NewScanner(strings.NewReader(string(out))); sc.Scan(); {
				if f := strings.Fields(sc.Text()); len(f) == 3 && f[0] == "granted" {
					n, _ := strconv.Atoi(f[2])
					mu.Lock()
					total[f[1]] += n
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	s := open(t, server, nil)
	rest := 0 // what a slow machine left
	for take(t, s, takeOf(dayPlan(), "k", 1)).Allowed {
		rest++
	}
	sum := rest
	for day, n := range total {
		if n > quota {
			t.Errorf("%d were granted on day %s, want at most %d", n, day, quota)
		}
		sum += n
	}
	if len(total) == 1 && sum != quota { // not at midnight
		t.Errorf("%d were granted by processes and %d after them, want %d in all", sum-rest, rest, quota)
	}
}

// What the linearizability test does: an operation, and what it answered.
type (
	input struct {
		take   *drawgate.Take
		settle *drawgate.Settlement
	}
	output struct {
		allowed, replayed, reused, gone bool
		at                              int64 // of a decision; 0 for a settlement
		granted                         int64
	}
)

// history is the sequential model: the engine, at the instant that the server answered.
type history struct {
	m   *model.Records
	now int64
}

func (h history) step(t *testing.T, in input, out output) (bool, history) {
	t.Helper()
	if in.take != nil && out.at < h.now {
		return false, h
	}
	next := history{now: max(h.now, out.at)}
	next.m = h.m.Fork(func() int64 { return next.now })
	if in.take != nil {
		d := take(t, next.m, *in.take)
		got := output{allowed: d.Allowed, replayed: d.Replayed, reused: d.Fail != nil, at: d.At().UnixMicro()}
		if d.Allowed && in.take.ID != "" {
			got.granted = d.Granted(0)[0]
		}
		return got == out, next
	}
	return settle(t, next.m, *in.settle).Gone == out.gone, next
}

// TestLinearizable records what many callers of several clients saw, and looks for one order that explains it.
//
// req: B1, C12, E10
func TestLinearizable(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	plan := compile(t, "p",
		drawgate.Limit{Name: "r", Kind: drawgate.Rolling, Window: time.Hour, Amount: 12},
		drawgate.Limit{Name: "n", Unit: "slots", Kind: drawgate.Concurrency, Amount: 4},
	)
	var ops []porcupine.Operation
	var mu sync.Mutex
	var ids atomic.Int64
	start := time.Now()
	var wg sync.WaitGroup
	for c := range 3 {
		s := open(t, server, nil)
		for g := range 4 {
			wg.Go(func() {
				mine := []drawgate.Take{}
				for i := range 12 {
					var in input
					switch {
					case i%3 == 2 && len(mine) > 0: // give back, sometimes twice
						tk := mine[0]
						if i%2 == 0 {
							mine = mine[1:]
						}
						in.settle = &drawgate.Settlement{Op: drawgate.OpCancel, ID: tk.ID, Buckets: tk.Buckets}
					case i%4 == 3:
						tk := takeOf(plan, "k", 1, 0)
						in.take = &tk
					default: // ids that others use as well, with the same content
						tk := held(takeOf(plan, "k", 2, 1), fmt.Sprint("id", ids.Add(1)/2), time.Hour)
						in.take = &tk
						mine = append(mine, tk)
					}
					op := porcupine.Operation{ClientId: c*4 + g, Input: in, Call: int64(time.Since(start))}
					var out output
					if in.take != nil {
						d := take(t, s, *in.take)
						out = output{allowed: d.Allowed, replayed: d.Replayed, reused: d.Fail != nil, at: d.At().UnixMicro()}
						if d.Allowed && in.take.ID != "" {
							out.granted = d.Granted(0)[0]
						}
					} else {
						out.gone = settle(t, s, *in.settle).Gone
					}
					op.Output, op.Return = out, int64(time.Since(start))
					mu.Lock()
					ops = append(ops, op)
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	sequential := porcupine.Model{
		Init: func() any { return history{m: model.NewRecords(nil, false)} },
		Step: func(state, in, out any) (bool, any) { return state.(history).step(t, in.(input), out.(output)) },
		Equal: func(a, b any) bool {
			x, y := a.(history), b.(history)
			return x.now == y.now && x.m.Equal(y.m)
		},
	}
	if res := porcupine.CheckOperationsTimeout(sequential, ops, 20*time.Second); res != porcupine.Ok {
		for _, op := range ops {
			in := op.Input.(input)
			t.Logf("client %d, %d-%d: %+v %+v -> %+v", op.ClientId, op.Call, op.Return, in.take, in.settle, op.Output)
		}
		t.Fatalf("no order explains the history: %v", res)
	}
}
