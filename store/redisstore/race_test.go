package redisstore_test

import (
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
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// Worker processes of TestProcesses are this test binary again, with these variables set.
const (
	envWorker = "DRAWGATE_TEST_WORKER" // goroutines, milliseconds, zone
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

// dayZone is a zone whose day does not end while a test runs.
func dayZone() string {
	if now := time.Now().UTC(); now.Hour() == 23 {
		return "Asia/Tokyo" // its midnight is at 15:00 UTC
	}
	return "UTC"
}

func dayPlan(zone string) *store.Plan {
	p, err := drawgate.Policy{Name: "shared", Limits: []drawgate.Limit{{
		Name: "d", Kind: drawgate.Calendar,
		Every: drawgate.Day, Zone: zone, Amount: quota,
	}}}.Compile()
	if err != nil {
		panic(err)
	}
	return p.Plan
}

// work takes for a while with several goroutines, and prints how many units it was granted.
func work(spec, url string) {
	var callers, ms int
	var zone string
	if _, err := fmt.Sscan(spec, &callers, &ms, &zone); err != nil {
		panic(err)
	}
	s, err := redisstore.Open(url, nil)
	if err != nil {
		panic(err)
	}
	defer s.Close()
	var granted atomic.Int64
	var wg sync.WaitGroup
	deadline := time.Now().Add(time.Duration(ms) * time.Millisecond)
	for range callers {
		wg.Go(func() {
			plan := dayPlan(zone)
			for time.Now().Before(deadline) {
				var d [1]store.Verdict
				if err := s.Take(context.Background(), []store.Take{takeOf(plan, "k", 1)}, d[:]); err != nil ||
					d[0].Fail != nil {
					panic(fmt.Sprint(err, d[0].Fail))
				}
				if d[0].Allowed {
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	fmt.Println(granted.Load())
}

// TestProcesses lets processes take from one calendar day for longer than it lasts: together they
// get exactly all of it. DRAWGATE_LONG makes it 8 processes of 64 goroutines for 10 s.
//
// req: C1, E1, E10
func TestProcesses(t *testing.T) {
	t.Parallel()
	const processes = 8
	callers, ms := 8, 1500
	if long {
		callers, ms = 64, 10_000
	}
	server, zone := redistest.Start(t), dayZone()
	results := make(chan string, processes)
	for range processes {
		go func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", envWorker, callers, ms, zone),
				envURL+"="+server.URL())
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				out = fmt.Append(nil, "failed: ", err)
			}
			results <- string(out)
		}()
	}
	sum := 0
	for range processes {
		text := <-results
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			t.Fatalf("a process said %q", text)
		}
		sum += n
	}
	s, plan, rest := open(t, server, nil), dayPlan(zone), 0 // what a slow machine left
	for take(t, s, takeOf(plan, "k", 1)).Allowed {
		rest++
	}
	if sum+rest != quota {
		t.Errorf("%d were granted by processes and %d after them, want %d in all", sum, rest, quota)
	}
	t.Logf("%d processes × %d goroutines: %d of %d granted within %d ms, %d left, which were granted afterwards",
		processes, callers, sum, quota, ms, rest)
}

// What the linearizability test does: an operation, and what it answered.
type (
	input struct {
		take   *store.Take
		settle *store.Settlement
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

// TestLinearizable records what many callers of several clients saw, and looks for one order that
// explains it.
//
// req: B1, C12, E10
func TestLinearizable(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	plan := compile(t, "p",
		drawgate.Limit{Name: "r", Kind: drawgate.Rolling, Window: time.Hour, Amount: 30},
		drawgate.Limit{Name: "n", Unit: "slots", Kind: drawgate.Concurrency, Amount: 8},
	)
	var ops []porcupine.Operation
	var mu sync.Mutex
	var ids atomic.Int64
	start := time.Now()
	var wg sync.WaitGroup
	for c := range 3 {
		s := open(t, server, nil)
		for g := range 3 {
			wg.Go(func() {
				mine := []store.Take{}
				for i := range 16 {
					var in input
					switch {
					case i%3 == 2 && len(mine) > 0: // give back, or settle with less or with more, sometimes twice
						tk := mine[0]
						if i%2 == 0 {
							mine = mine[1:]
						}
						in.settle = &store.Settlement{Op: store.OpCancel, ID: tk.ID, Buckets: tk.Buckets}
						if used := [...]int64{0, 1, 3}[(i/3+g)%3]; used > 0 {
							in.settle.Op, in.settle.Buckets = store.OpSettle, takeOf(plan, "k", used, 1).Buckets
						}
					case i%4 == 3:
						tk := takeOf(plan, "k", 1, 0)
						in.take = &tk
					default: // ids that others use as well, with the same content
						tk := held(takeOf(plan, "k", 2, 1), fmt.Sprint("id", ids.Add(1)/2), time.Hour)
						in.take = &tk
					}
					op := porcupine.Operation{ClientId: c*3 + g, Input: in, Call: int64(time.Since(start))}
					var out output
					if in.take != nil {
						d := take(t, s, *in.take)
						out = output{
							allowed: d.Allowed, replayed: d.Replayed, reused: d.Fail != nil,
							at: d.At().UnixMicro(),
						}
						if d.Allowed && in.take.ID != "" {
							out.granted = d.Granted(0)[0]
							mine = append(mine, *in.take)
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
	if res := porcupine.CheckOperationsTimeout(sequential, ops, 5*time.Minute); res != porcupine.Ok {
		for _, op := range ops {
			in := op.Input.(input)
			t.Logf("client %d, %d-%d: %+v %+v -> %+v", op.ClientId, op.Call, op.Return, in.take, in.settle, op.Output)
		}
		t.Fatalf("no order explains the history: %v", res)
	}
}
