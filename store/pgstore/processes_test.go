package pgstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore"
)

// shape is which buckets the takes of a test are about.
type shape struct {
	name   string
	window time.Duration // of all limits
	names  []string      // of the policies of the buckets of a take
	amount []int64       // of their limits
	keys   []int         // of how many keys one is chosen; the first ones more often
	full   string        // the limit that the callers certainly use up
}

// The short form counts: no window ends within the test.
var shortShapes = []shape{
	{"one hot key", time.Hour, []string{"hot"}, []int64{200}, []int{1}, "hot"},
	{"10,000 keys", time.Hour, []string{"key"}, []int64{3}, []int{10_000}, ""},
	{"three buckets", time.Hour, []string{"ip", "user", "all"}, []int64{20, 40, 200}, []int{100, 30, 1}, ""},
}

var longShapes = []shape{
	{"one hot key", time.Second, []string{"hot"}, []int64{1000}, []int{1}, "hot"},
	{"10,000 keys", time.Second, []string{"key"}, []int64{20}, []int{10_000}, "key"},
	{
		"three buckets", 10 * time.Second,
		[]string{"ip", "user", "all"},
		[]int64{1000, 1500, 5000},
		[]int{100, 30, 1},
		"all",
	},
}

func (s *shape) plans() (plans []*store.Plan) {
	for i, name := range s.names {
		p, err := drawgate.Policy{Name: name, Limits: []drawgate.Limit{
			drawgate.RollingLimit("r", s.amount[i], s.window),
		}}.Compile()
		if err != nil {
			panic(err)
		}
		plans = append(plans, p.Plan)
	}
	return plans
}

// taker is a child that takes with many goroutines.
type taker struct {
	URL     string
	Shape   shapeText
	Callers int
	Takes   int64         // how many, in the short form
	For     time.Duration // in the long form
}

// shapeText is a shape as JSON has it.
type shapeText struct {
	Long  bool
	Index int
}

func (s shapeText) shape() *shape {
	if s.Long {
		return &longShapes[s.Index]
	}
	return &shortShapes[s.Index]
}

// attempt is a take that was answered. Instants are in µs: Sent and Got on the machine's clock,
// which all processes share, and At on the server's.
type attempt struct {
	Keys          []int
	Allowed       bool
	Sent, Got, At int64
}

// done is what a taker did. Of the long form, Attempts has only what was allowed.
type done struct {
	Attempts []attempt
	Takes    int
	Median   time.Duration
	P999     time.Duration
	Longest  time.Duration
	Failed   int
	Error    string // of one of these
}

func (w *taker) work(listen func()) {
	s, err := pgstore.Open(w.URL, nil)
	if err != nil {
		panic(err)
	}
	defer s.Close()
	if err := s.Ping(context.Background()); err != nil {
		panic(err)
	}
	tell("ready")
	listen()
	of := w.Shape.shape()
	plans := of.plans()
	var all done
	var lasted []time.Duration
	var mu sync.Mutex
	var wg sync.WaitGroup
	var made atomic.Int64
	end := time.Now().Add(w.For)
	more := func(n int) bool {
		if w.For == 0 {
			return made.Add(1) <= w.Takes
		}
		return n == 0 || time.Now().Before(end)
	}
	for range w.Callers {
		wg.Go(func() {
			var choose []*rand.Zipf
			source := rand.New(rand.NewPCG(rand.Uint64(), 0))
			for _, n := range of.keys {
				choose = append(choose, rand.NewZipf(source, 1.2, 4, uint64(n-1)))
			}
			var mine []attempt
			var took []time.Duration
			for n := 0; more(n); n++ {
				a, err := of.take(s, plans, choose)
				took = append(took, time.Duration(a.Got-a.Sent)*time.Microsecond)
				if err != nil {
					mu.Lock()
					all.Failed, all.Error = all.Failed+1, err.Error()
					mu.Unlock()
				} else if a.Allowed || w.For == 0 {
					mine = append(mine, a)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all.Attempts, lasted = append(all.Attempts, mine...), append(lasted, took...)
		})
	}
	wg.Wait()
	slices.Sort(lasted)
	all.Takes, all.Longest = len(lasted), lasted[len(lasted)-1]
	all.Median, all.P999 = lasted[len(lasted)/2], lasted[len(lasted)*999/1000]
	text, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	tell(string(text))
}

// take makes one take.
func (s *shape) take(of store.Store, plans []*store.Plan, choose []*rand.Zipf) (a attempt, err error) {
	var t store.Take
	for i, p := range plans {
		a.Keys = append(a.Keys, int(choose[i].Uint64()))
		t.Buckets = append(t.Buckets, takeOf(p, fmt.Sprint("k", a.Keys[i])).Buckets...)
	}
	var v [1]store.Verdict
	a.Sent = time.Now().UnixMicro()
	err = errors.Join(of.Take(context.Background(), []store.Take{t}, v[:]), v[0].Fail)
	a.Got, a.At, a.Allowed = time.Now().UnixMicro(), v[0].At().UnixMicro(), v[0].Allowed
	return a, err
}

// run runs processes, and returns what each of them did.
func (w *taker) run(t *testing.T, processes int) (all []done) {
	t.Helper()
	var children []*child
	for range processes {
		children = append(children, startChild(t, job{Takes: w}))
	}
	for _, c := range children {
		c.expect("ready")
	}
	for _, c := range children {
		c.proceed()
	}
	for _, c := range children {
		var d done
		if err := json.Unmarshal([]byte(c.hears()), &d); err != nil {
			t.Fatal(err)
		}
		if d.Failed > 0 {
			t.Errorf("%d takes of a process failed: %s", d.Failed, d.Error)
		}
		all = append(all, d)
	}
	return all
}

// TestProcessesShareLimits lets three processes of 64 goroutines ask for more than there is, in
// windows that do not end: by the processes' own counts exactly what each limit has is granted, and
// nothing is refused before.
//
// req: C1, C12, E1
func TestProcessesShareLimits(t *testing.T) {
	needs.NoRace(t) // the others are for goroutines
	t.Parallel()
	for i := range shortShapes {
		s := &shortShapes[i]
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := taker{URL: pgtest.Shared(t).Schema(t), Shape: shapeText{false, i}, Callers: 64, Takes: 150}
			var all []attempt
			for _, d := range w.run(t, 3) {
				all = append(all, d.Attempts...)
			}
			if len(all) != 3*150 {
				t.Fatalf("%d takes were answered, want %d", len(all), 3*150)
			}
			s.counts(t, all)
			s.isUsed(t, open(t, w.URL, nil), all)
		})
	}
}

// granted returns how many units each bucket gave.
func (s *shape) granted(all []attempt) []map[int]int64 {
	n := make([]map[int]int64, len(s.names))
	for i := range n {
		n[i] = map[int]int64{}
	}
	for _, a := range all {
		for i, k := range a.Keys {
			if a.Allowed {
				n[i][k]++
			}
		}
	}
	return n
}

// counts checks that no bucket gave too much, and that each take was granted unless one had nothing
// left.
func (s *shape) counts(t *testing.T, all []attempt) {
	t.Helper()
	n := s.granted(all)
	for i, name := range s.names {
		for k, units := range n[i] {
			if units > s.amount[i] {
				t.Errorf("%s %d: %d takes were granted, want at most %d", name, k, units, s.amount[i])
			}
		}
		if name == s.full && n[i][0] != s.amount[i] {
			t.Errorf("%s: %d takes were granted, want %d", name, n[i][0], s.amount[i])
		}
	}
	for _, a := range all {
		full := false
		for i, k := range a.Keys {
			full = full || n[i][k] >= s.amount[i]
		}
		if !a.Allowed && !full {
			t.Errorf("a take of keys %v was refused, and none of them is used up", a.Keys)
		}
	}
}

// isUsed checks that the first buckets have what was granted.
func (s *shape) isUsed(t *testing.T, of store.Store, all []attempt) {
	t.Helper()
	n, plans := s.granted(all), s.plans()
	for i := range s.names {
		for k := range min(20, s.keys[i]) {
			if got := used(t, of, plans[i], fmt.Sprint("k", k)); got != n[i][k] {
				t.Errorf("%s %d: %d units are used, and %d were granted", s.names[i], k, got, n[i][k])
			}
		}
	}
}

// TestNeverOver lets processes take as fast as they can from limits whose windows are short: no
// window has more than its limit allows, by the server's instants and by the processes' own logs on
// the machine's clock, and a limit of which callers always want more is used up. In the long form
// there are eight processes, for a minute each.
//
// req: C1, C12, E1, E10
func TestNeverOver(t *testing.T) {
	needs.NoRace(t) // the others are for goroutines
	if !needs.Long() {
		t.Parallel()
	}
	server := pgtest.Start(t)
	processes, w := 3, taker{Callers: 64, For: 300 * time.Millisecond}
	if needs.Long() {
		processes, w.For = 8, time.Minute
	}
	for i := range longShapes {
		s := &longShapes[i]
		if !needs.Long() && i > 0 {
			break
		}
		w.URL, w.Shape = server.Schema(t), shapeText{true, i}
		var list []attempt
		takes, longest, median, p999 := 0, time.Duration(0), time.Duration(0), time.Duration(0)
		for _, d := range w.run(t, processes) {
			list = append(list, d.Attempts...)
			takes, longest = takes+d.Takes, max(longest, d.Longest)
			median, p999 = max(median, d.Median), max(p999, d.P999)
		}
		t.Logf("| %s | %d × %d | %v | %d | %d | %s | %v | %v | %v |", s.name, processes, w.Callers, w.For,
			takes, len(list), s.check(t, list), median.Round(10*time.Microsecond), p999.Round(time.Millisecond),
			longest.Round(time.Millisecond))
	}
}

// check looks at each window of each bucket. It returns the most that one of them has.
func (s *shape) check(t *testing.T, all []attempt) (text string) {
	t.Helper()
	for i, name := range s.names {
		of := map[int][]attempt{}
		for _, a := range all {
			of[a.Keys[i]] = append(of[a.Keys[i]], a)
		}
		var server, machine int64
		for key, list := range of {
			a, b := s.byServer(list), s.byMachine(list)
			server, machine = max(server, a), max(machine, b)
			if max(a, b) > s.amount[i] {
				t.Errorf("%s %d: %d takes were granted in a window, want at most %d", name, key, max(a, b), s.amount[i])
			}
		}
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s %d (%d by the machine's clock) of %d", name, server, machine, s.amount[i])
		if needs.Long() && name == s.full {
			text += fmt.Sprintf(", %.2f %% used", 100*s.share(t, of[0], s.amount[i]))
		}
	}
	return text
}

// byServer returns the most that was granted in a window by the server's instants.
func (s *shape) byServer(list []attempt) (most int64) {
	slices.SortFunc(list, func(a, b attempt) int { return int(a.At - b.At) })
	first := 0
	for i, a := range list {
		for list[first].At <= a.At-s.window.Microseconds() {
			first++
		}
		most = max(most, int64(i-first+1))
	}
	return most
}

// byMachine returns the most that was certainly granted in a window by the machine's clock: asked
// for and answered within it.
func (s *shape) byMachine(list []attempt) (most int64) {
	slices.SortFunc(list, func(a, b attempt) int { return int(a.Sent - b.Sent) })
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

// share returns how much of a limit was used in whole windows from the first take on. Takes that
// were joined expire up to a 128th of a window later.
func (s *shape) share(t *testing.T, list []attempt, amount int64) float64 {
	t.Helper()
	slices.SortFunc(list, func(a, b attempt) int { return int(a.At - b.At) })
	whole := max(1, (list[len(list)-1].At-list[0].At)/s.window.Microseconds())
	taken := 0
	for _, a := range list {
		if a.At < list[0].At+whole*s.window.Microseconds() {
			taken++
		}
	}
	share := float64(taken) / float64(amount*whole)
	if share < 0.99 {
		t.Errorf("%.4f of the limit was used, want 0.99", share)
	}
	return share
}
