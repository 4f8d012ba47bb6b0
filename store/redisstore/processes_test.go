package redisstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// envWorker makes this test binary a worker of TestProcesses: what it has to do.
const envWorker = "DRAWGATE_TEST_WORKER"

func TestMain(m *testing.M) {
	if spec := os.Getenv(envWorker); spec != "" {
		var w worker
		if err := json.Unmarshal([]byte(spec), &w); err != nil {
			panic(err)
		}
		w.work(os.Stdout)
		return
	}
	if url := os.Getenv(envSpread); url != "" {
		takeSpread(url)
		return
	}
	os.Exit(m.Run())
}

// worker is one process that takes for a while.
type worker struct {
	URL, Prefix string
	Callers     int
	For         time.Duration
	Shape       string
	Single      bool // each take is a call of its own
}

// window is that of all limits. They differ in what they admit in it.
const window = time.Second

// shape is which buckets the takes of a test are about.
type shape struct {
	names  []string // of the policies of the buckets of a take
	amount []int64  // of their limits
	keys   []int    // of how many keys one is chosen; the first ones more often
}

var shapes = map[string]shape{
	"one hot key":   {[]string{"hot"}, []int64{1000}, []int{1}},
	"10,000 keys":   {[]string{"key"}, []int64{20}, []int{10_000}},
	"three buckets": {[]string{"ip", "user", "all"}, []int64{40, 60, 1000}, []int{100, 30, 1}},
}

func (s shape) plans() (plans []*store.Plan) {
	for i, name := range s.names {
		p, err := drawgate.Policy{Name: name, Limits: []drawgate.Limit{{
			Name: "r", Kind: drawgate.Rolling, Window: window, Amount: s.amount[i],
		}}}.Compile()
		if err != nil {
			panic(err)
		}
		plans = append(plans, p.Plan)
	}
	return plans
}

// admission is a take that was allowed. Instants are in µs, Sent and Got on the machine's clock,
// which all processes share, and At on the server's.
type admission struct {
	Keys          []int
	Sent, Got, At int64
}

func (w *worker) work(out io.Writer) {
	s, err := redisstore.Open(w.URL, &redisstore.Options{Prefix: w.Prefix, NoBatches: w.Single})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	of := shapes[w.Shape]
	plans := of.plans()
	var all []admission
	var mu sync.Mutex
	var wg sync.WaitGroup
	end := time.Now().Add(w.For)
	for range w.Callers {
		wg.Go(func() {
			var mine []admission
			for time.Now().Before(end) {
				a := admission{Keys: make([]int, len(plans))}
				t := store.Take{Buckets: make([]store.BucketCost, len(plans))}
				for i, p := range plans {
					a.Keys[i] = int(float64(of.keys[i]) * rand.Float64() * rand.Float64() * rand.Float64())
					b := takeOf(p, fmt.Sprint("k", a.Keys[i]), 1)
					t.Buckets[i] = b.Buckets[0]
				}
				var d [1]store.Verdict
				a.Sent = time.Now().UnixMicro()
				if err := s.Take(context.Background(), []store.Take{t}, d[:]); err != nil || d[0].Fail != nil {
					panic(fmt.Sprint(err, d[0].Fail))
				}
				if a.Got, a.At = time.Now().UnixMicro(), d[0].At().UnixMicro(); d[0].Allowed {
					mine = append(mine, a)
				}
			}
			mu.Lock()
			all = append(all, mine...)
			mu.Unlock()
		})
	}
	wg.Wait()
	buf := bufio.NewWriter(out)
	defer buf.Flush()
	if err := json.NewEncoder(buf).Encode(all); err != nil {
		panic(err)
	}
}

// TestProcesses lets processes take from the same buckets as fast as they can, on each kind of
// store. In no window of any limit is more admitted than it allows: by the server's instants, and
// by the processes' own logs on the machine's clock. DRAWGATE_LONG makes it 8 processes of 64
// goroutines for a minute; then a hot key's limit has to be used as well.
//
// req: C1, C12, E1, E10
func TestProcesses(t *testing.T) { //nolint:tparallel // each of them keeps the machine busy
	t.Parallel()
	w := worker{Callers: 8, For: 1500 * time.Millisecond}
	if long {
		w = worker{Callers: 64, For: time.Minute}
	}
	for _, on := range topologies {
		if on.name == "sentinel" && !long { // then it is one server
			continue
		}
		url := on.start(t)
		for name := range shapes {
			for _, single := range []bool{false, true} {
				if single && !long {
					continue
				}
				w := w
				w.URL, w.Prefix, w.Shape, w.Single = url, prefix(), name, single
				t.Run(fmt.Sprintf("%s, %s, single %t", on.name, name, single), func(t *testing.T) {
					log := w.eight(t)
					most := shapes[name].check(t, log)
					t.Logf("8 processes × %d goroutines, %v: %d takes were allowed; in a window %s",
						w.Callers, w.For, len(log), most)
				})
			}
		}
	}
}

// eight runs eight processes, and returns what they were allowed.
func (w *worker) eight(t *testing.T) []admission {
	t.Helper()
	spec, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	const processes = 8
	results := make(chan []admission, processes)
	for range processes {
		go func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), envWorker+"="+string(spec))
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			var got []admission
			if err == nil {
				err = json.Unmarshal(out, &got)
			}
			if err != nil {
				t.Errorf("a process failed: %v", err)
			}
			results <- got
		}()
	}
	var log []admission
	for range processes {
		log = append(log, <-results...)
	}
	return log
}

// check looks at each window of each bucket. It returns the most that one of them has.
func (s shape) check(t *testing.T, log []admission) string {
	t.Helper()
	text := ""
	for i, name := range s.names {
		of := map[int][]admission{}
		for _, a := range log {
			of[a.Keys[i]] = append(of[a.Keys[i]], a)
		}
		var most int64
		for key, list := range of {
			n := max(byServer(list), byMachine(list))
			most = max(most, n)
			if n > s.amount[i] {
				t.Errorf("%s %d: %d takes were allowed in a window, want at most %d", name, key, n, s.amount[i])
			}
			if long && s.keys[i] == 1 && len(s.names) == 1 {
				s.used(t, list, s.amount[i])
			}
		}
		text += fmt.Sprintf("at most %d of %d by %s, ", most, s.amount[i], name)
	}
	return text[:max(0, len(text)-2)]
}

// byServer returns the most that was allowed in a window by the server's instants.
func byServer(list []admission) (most int64) {
	slices.SortFunc(list, func(a, b admission) int { return int(a.At - b.At) })
	first := 0
	for i, a := range list {
		for list[first].At <= a.At-window.Microseconds() {
			first++
		}
		most = max(most, int64(i-first+1))
	}
	return most
}

// byMachine returns the most that was certainly allowed in a window by the machine's clock: asked
// and answered within it.
func byMachine(list []admission) (most int64) {
	slices.SortFunc(list, func(a, b admission) int { return int(a.Sent - b.Sent) })
	for i, a := range list {
		n, end := int64(0), a.Sent+window.Microseconds()
		for _, b := range list[i:] {
			if b.Sent >= end {
				break
			}
			if b.Got < end {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// used checks that callers who always want more get what a limit allows. Takes that were joined
// expire up to a 128th of a window later.
func (s shape) used(t *testing.T, list []admission, amount int64) {
	t.Helper()
	slices.SortFunc(list, func(a, b admission) int { return int(a.At - b.At) })
	took := float64(list[len(list)-1].At - list[0].At)
	windows := took / (float64(window.Microseconds()) * (1 + 1./128))
	share := float64(len(list)) / (float64(amount) * windows)
	t.Logf("%.2f %% of what the limit allows was used", 100*share)
	if share < 0.99 {
		t.Errorf("%.4f of what the limit allows was used, want 0.99", share)
	}
}
