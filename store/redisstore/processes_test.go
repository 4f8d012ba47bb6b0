package redisstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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
	if spec := os.Getenv(envFaults); spec != "" {
		var w faultWorker
		if err := json.Unmarshal([]byte(spec), &w); err != nil {
			panic(err)
		}
		w.work()
		return
	}
	if spec := os.Getenv(envLeases); spec != "" {
		var w leaseWorker
		if err := json.Unmarshal([]byte(spec), &w); err != nil {
			panic(err)
		}
		w.work()
		return
	}
	if spec := os.Getenv(envLines); spec != "" {
		var w lineWorker
		if err := json.Unmarshal([]byte(spec), &w); err != nil {
			panic(err)
		}
		w.work()
		return
	}
	if url := os.Getenv(envSpread); url != "" {
		takeSpread(url)
		return
	}
	redisstore.BePatient() // but not the processes above
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

// shape is which buckets the takes of a test are about.
type shape struct {
	window time.Duration // of all limits, which differ in what they admit in it
	names  []string      // of the policies of the buckets of a take
	amount []int64       // of their limits
	keys   []int         // of how many keys one is chosen; the first ones more often
	full   string        // the limit that the callers use up; "": which one depends on how fast they are
}

var shapes = map[string]shape{
	"one hot key":   {time.Second, []string{"hot"}, []int64{1000}, []int{1}, "hot"},
	"10,000 keys":   {time.Second, []string{"key"}, []int64{20}, []int{10_000}, ""},
	"three buckets": {time.Second, []string{"ip", "user", "all"}, []int64{40, 60, 1000}, []int{100, 30, 1}, ""},
	// A take over several slots holds its units for some calls before they begin to count: much of
	// a second on a busy machine, and little of ten.
	"three buckets, 10 s": {
		10 * time.Second, []string{"ip", "user", "all"}, []int64{1000, 1500, 5000}, []int{100, 30, 1}, "all",
	},
}

func (s shape) plans() (plans []*store.Plan) {
	for i, name := range s.names {
		p, err := drawgate.Policy{Name: name, Limits: []drawgate.Limit{{
			Name: "r", Kind: drawgate.Rolling, Window: s.window, Amount: s.amount[i],
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

// done is what a worker did.
type done struct {
	Allowed []admission
	Refused []admission // at most maxRefused of those about the keys that are asked for most
	Failed  int         // takes of which the store could not say anything in time: the machine was busy
	Error   string      // of one of these
}

// maxRefused is how many refused takes a worker tells of.
const maxRefused = 5_000

func (w *worker) work(out io.Writer) {
	s, err := redisstore.Open(w.URL, &redisstore.Options{Prefix: w.Prefix, NoBatches: w.Single})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	of := shapes[w.Shape]
	plans := of.plans()
	var all done
	var mu sync.Mutex
	var wg sync.WaitGroup
	end := time.Now().Add(w.For)
	for range w.Callers {
		wg.Go(func() {
			var mine, not []admission
			refusals := 0
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
				if err := errors.Join(s.Take(context.Background(), []store.Take{t}, d[:]), d[0].Fail); err != nil {
					mu.Lock()
					all.Failed, all.Error = all.Failed+1, err.Error()
					mu.Unlock()
					continue
				}
				a.Got, a.At = time.Now().UnixMicro(), d[0].At().UnixMicro()
				switch {
				case d[0].Allowed:
					mine = append(mine, a)
				case slices.Max(a.Keys) == 0:
					if refusals++; len(not) < maxRefused/w.Callers {
						not = append(not, a)
					} else if k := rand.IntN(refusals); k < len(not) { // as likely as any other
						not[k] = a
					}
				}
			}
			mu.Lock()
			all.Allowed, all.Refused = append(all.Allowed, mine...), append(all.Refused, not...)
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
	w := worker{Callers: 8, For: 1200 * time.Millisecond}
	if long {
		w = worker{Callers: 64, For: time.Minute}
	}
	for _, on := range topologies {
		if on.name == "sentinel" && !long { // then it is one server
			continue
		}
		url := on.start(t)
		for name, of := range shapes {
			if of.window > w.For {
				continue // it takes longer to see
			}
			for _, single := range []bool{false, true} {
				if single && !long {
					continue
				}
				w := w
				w.URL, w.Prefix, w.Shape, w.Single = url, prefix(), name, single
				t.Run(fmt.Sprintf("%s, %s, single %t", on.name, name, single), func(t *testing.T) {
					log, refused, known := w.eight(t)
					most := shapes[name].check(t, log)
					// In a cluster other takes may hold what is left until they have reserved in
					// all slots.
					if known && (on.name != "cluster" || len(shapes[name].names) == 1) {
						shapes[name].usedWhenRefused(t, log, refused)
					}
					t.Logf("8 processes × %d goroutines, %v: %d takes were allowed; in a window %s",
						w.Callers, w.For, len(log), most)
				})
			}
		}
	}
}

// eight runs eight processes, and returns what they were allowed and some of what was refused them.
// It reports whether they know of each take what became of it.
func (w *worker) eight(t *testing.T) (log, refused []admission, known bool) {
	t.Helper()
	spec, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	const processes = 8
	results := make(chan done, processes)
	for range processes {
		go func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), envWorker+"="+string(spec))
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			var got done
			if err == nil {
				err = json.Unmarshal(out, &got)
			}
			if err != nil {
				t.Errorf("a process failed: %v", err)
			}
			results <- got
		}()
	}
	known = true
	for range processes {
		d := <-results
		log, refused = append(log, d.Allowed...), append(refused, d.Refused...)
		if d.Failed > 0 {
			known = false
			t.Logf("%d takes of a process failed: %s", d.Failed, d.Error)
		}
	}
	return log, refused, known
}

// usedWhenRefused checks that nothing was left in one of a take's buckets whenever it was refused,
// by the server's instants: of a limit that refuses, everything is used, however slow the callers
// are to ask again. Units are joined, so they expire up to a 128th of a window later.
func (s shape) usedWhenRefused(t *testing.T, log, refused []admission) {
	t.Helper()
	at := make([][]int64, len(s.names)) // of the units of the keys that are asked for most
	for _, a := range log {
		for i, key := range a.Keys {
			if key == 0 {
				at[i] = append(at[i], a.At)
			}
		}
	}
	for i := range at {
		slices.Sort(at[i])
	}
	length := (s.window + s.window/128).Microseconds()
	for _, r := range refused {
		used, usedUp := make([]int64, len(at)), false
		for i := range at {
			first, _ := slices.BinarySearch(at[i], r.At-length)
			end, _ := slices.BinarySearch(at[i], r.At+1)
			used[i] = int64(end - first)
			usedUp = usedUp || used[i] >= s.amount[i]
		}
		if !usedUp {
			t.Errorf("a take was refused when %d of %d units were used", used, s.amount)
		}
	}
	t.Logf("one of its limits was used up in each of the %d refusals that were looked at", len(refused))
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
			n := max(s.byServer(list), s.byMachine(list))
			most = max(most, n)
			if n > s.amount[i] {
				t.Errorf("%s %d: %d takes were allowed in a window, want at most %d", name, key, n, s.amount[i])
			}
			if long && key == 0 { // the one that is asked for most
				s.used(t, name, list, s.amount[i])
			}
		}
		text += fmt.Sprintf("at most %d of %d by %s, ", most, s.amount[i], name)
	}
	return text[:max(0, len(text)-2)]
}

// byServer returns the most that was allowed in a window by the server's instants.
func (s shape) byServer(list []admission) (most int64) {
	slices.SortFunc(list, func(a, b admission) int { return int(a.At - b.At) })
	first := 0
	for i, a := range list {
		for list[first].At <= a.At-s.window.Microseconds() {
			first++
		}
		most = max(most, int64(i-first+1))
	}
	return most
}

// byMachine returns the most that was certainly allowed in a window by the machine's clock: asked
// and answered within it.
func (s shape) byMachine(list []admission) (most int64) {
	slices.SortFunc(list, func(a, b admission) int { return int(a.Sent - b.Sent) })
	for i, a := range list {
		n, end := int64(0), a.Sent+s.window.Microseconds()
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

// used checks that callers who always want more get what a limit allows, in whole windows from the
// first take on. Takes that were joined expire up to a 128th of a window later.
func (s shape) used(t *testing.T, name string, list []admission, amount int64) {
	t.Helper()
	slices.SortFunc(list, func(a, b admission) int { return int(a.At - b.At) })
	length := s.window.Microseconds() + s.window.Microseconds()/128
	whole := (list[len(list)-1].At - list[0].At) / length
	taken, held := int64(0), int64(0)
	for _, a := range list {
		if held += a.Got - a.Sent; a.At < list[0].At+whole*length {
			taken++
		}
	}
	share := float64(taken) / float64(amount*max(whole, 1))
	t.Logf("%.2f %% of what %s allows was used in %d windows; such a take lasted %v in the mean", 100*share, name,
		whole, time.Duration(held/int64(len(list)))*time.Microsecond)
	if name == s.full && share < 0.99 {
		t.Errorf("%.4f of what %s allows was used, want 0.99", share, name)
	}
}
