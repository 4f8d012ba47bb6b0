package redisstore_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// lineProcesses is how many processes wait in the long form.
const lineProcesses = 8

// lineServed is a waiter that was served. Instants are in µs: when it began to wait on the
// machine's clock, from when its units count on the server's, and when it knew on the machine's.
type lineServed struct{ proc, waiter, began, at, started int64 }

// lineTrial is a run of processes whose callers wait for one bucket, or for several.
type lineTrial struct {
	t     *testing.T
	spec  lineSpec
	procs []*lineProc
	slow  atomic.Int64 // µs, how long the servers let a ping wait at most
}

// lineProc is one of the processes.
type lineProc struct {
	*child
	mu     sync.Mutex
	waits  int          // guarded by mu: how many have begun
	served []lineServed // guarded by mu
	took   []grant      // guarded by mu: by those who do not wait
	late   int64        // guarded by mu: µs, by how much it was woken too late at most
	errors int          // guarded by mu
	asked  [3]int64     // guarded by mu: by those who do not wait, refused, failed
}

// start starts one more process. Those who start later stand behind.
func (f *lineTrial) start() *lineProc {
	f.t.Helper()
	p, number := &lineProc{}, int64(len(f.procs))
	p.child = startChild(f.t, os.Args[0], envLines, f.spec, func(word string, n []int64) { p.line(number, word, n) })
	f.procs = append(f.procs, p)
	return p
}

// line reads a line of the process.
func (p *lineProc) line(number int64, word string, n []int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case word == "waits":
		p.waits++
	case word == "served" && len(n) == 4:
		p.served = append(p.served, lineServed{number, n[0], n[1], n[2], n[3]})
	case word == "took" && len(n) == 2:
		p.took = append(p.took, grant{1, n[0], n[1]})
	case word == "late":
		p.late = max(p.late, n[0])
	case word == "error":
		p.errors++
	case word == "end" && len(n) == 3:
		p.asked = [3]int64(n)
	}
}

// count returns how many have begun to wait, and how many were served.
func (p *lineProc) count() (waits, served int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waits, len(p.served)
}

// lineUp starts processes one after the other, each when all of the one before wait.
func (f *lineTrial) lineUp(processes int) {
	f.t.Helper()
	for range processes {
		p := f.start()
		until(f.t, "all of a process wait", func() bool { n, _ := p.count(); return n == f.spec.Waiters })
	}
}

// all waits until everybody of some processes is served.
func (f *lineTrial) all(of []*lineProc) {
	f.t.Helper()
	until(f.t, "everybody is served", func() bool {
		return !slices.ContainsFunc(of, func(p *lineProc) bool { _, n := p.count(); return n < f.spec.Waiters })
	})
}

// stall is for how many µs a process or a server may stand still, and a place is kept for certain:
// a ticket may live for 200 ms, and be renewed after 100.
const stall = 50_000

// watch pings the servers until it is stopped.
func (f *lineTrial) watch(s *redisstore.Store) (stop func()) {
	ended := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond):
			}
			from := nowMicro()
			_ = s.Ping(context.Background())
			f.slow.Store(max(f.slow.Load(), nowMicro()-from))
		}
	})
	return func() { close(ended); all.Wait() }
}

// judge checks that some processes' waiters were served in the order of their arrival, and returns
// when the first one was.
func (f *lineTrial) judge(of []*lineProc) (first int64) {
	f.t.Helper()
	var all []lineServed
	late := f.slow.Load()
	for _, p := range of {
		p.mu.Lock()
		all, late = append(all, p.served...), max(late, p.late)
		if p.errors > 0 {
			f.t.Errorf("%d waiters were given an error", p.errors)
		}
		p.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b lineServed) int { return cmp.Compare(a.at, b.at) })
	inOrder := slices.IsSortedFunc(all, func(a, b lineServed) int {
		return cmp.Or(cmp.Compare(a.proc, b.proc), cmp.Compare(a.waiter, b.waiter))
	})
	var names []string
	for i := range all {
		names = append(names, all[i].name())
	}
	if !inOrder {
		text := fmt.Sprintf("served in the order %v; the machine let a process, or a call, wait for %d µs", names, late)
		if late < stall {
			f.t.Error(text)
		}
		f.t.Log(text)
	}
	return all[0].at
}

// lineKind is what is waited for.
type lineKind struct {
	name string
	keys int // of the buckets of a take
	spec lineSpec
	// block lets nobody have any units until free is called
	block func(t *testing.T, s store.Store, lim *drawgate.Limiter, keys []string) (free func())
}

// lineKinds are a slot that is reserved, and units that come one after the other.
var lineKinds = []lineKind{
	{"a slot", 1, slotSpec, blockSlot},
	{"a rate", 1, lineSpec{Policy: ratePolicy}, blockRate},
	{"slots of two buckets", 2, slotSpec, blockSlot}, // which are on two shards of a cluster, or on one
}

var slotSpec = lineSpec{
	Policy: drawgate.Policy{Name: "slots", Limits: []drawgate.Limit{drawgate.ConcurrencyLimit("l", 1)}},
	Hold:   5 * time.Second, Work: 5 * time.Millisecond,
}

// ratePolicy lets so many pass a second, one after the other.
var ratePolicy = drawgate.Policy{
	Name: "rate", Limits: []drawgate.Limit{drawgate.BucketLimit("l", lineRate, time.Second, 1)},
}

const lineRate = 40

func blockSlot(t *testing.T, _ store.Store, lim *drawgate.Limiter, keys []string) (free func()) {
	t.Helper()
	r := drawgate.Request{Hold: drawgate.Hold{For: time.Hour}}
	for _, key := range keys {
		r.Buckets = append(r.Buckets, drawgate.Ask{Key: key})
	}
	d, held, err := lim.Take(t.Context(), r)
	if err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	return func() {
		if err := held.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// blockRate makes a debt, and free forgives it.
func blockRate(t *testing.T, s store.Store, _ *drawgate.Limiter, keys []string) (free func()) {
	t.Helper()
	plan := compile(t, ratePolicy.Name, ratePolicy.Limits...)
	debt := func(op store.Op) {
		for _, key := range keys {
			settle(t, s, store.Settlement{
				Op: op, At: time.UnixMicro(nowMicro()), Buckets: takeOf(plan, key, lineRate*3600).Buckets,
			})
		}
	}
	debt(store.OpCharge)
	return func() { debt(store.OpRefund) }
}

// unhurried returns a limiter that waits for its store however busy the machine is.
func unhurried(t *testing.T, s store.Store, p drawgate.Policy) *drawgate.Limiter {
	t.Helper()
	lim, err := drawgate.New(s, p, &drawgate.Options{StoreTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	return lim
}

// lineFaults are what happens to the process in front.
var lineFaults = []struct {
	name    string
	happens func(p *lineProc)
	ends    func(p *lineProc) // nil: it has ended
}{
	{"is killed", func(p *lineProc) { p.kill() }, nil},
	{"stands still", func(p *lineProc) { p.hang() }, func(p *lineProc) { p.resume() }},
}

// TestFrontOfLineFails kills the process in front of a line of several processes, or makes it stand
// still. All others are served, in the order of their arrival unless the machine stalls, and those
// of a process that goes on, too. DRAWGATE_LONG makes it 8 processes of 8 waiters, three times;
// then nobody is delayed by more than 6 s.
//
// req: C5, A10
func TestFrontOfLineFails(t *testing.T) { //nolint:tparallel // in long each of them keeps the machine busy
	t.Parallel()
	for _, on := range topologies {
		if on.name == "sentinel" {
			continue // it is one server
		}
		url := on.start(t)
		s := openURL(t, url, nil)
		for k, kind := range lineKinds {
			for i, fault := range lineFaults {
				if !long && (kind.keys > 1 || k != i) {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, it %s", on.name, kind.name, fault.name), func(t *testing.T) {
					if !long {
						t.Parallel()
					}
					var delays []time.Duration
					for range needs.Rounds(1, 1, 3) {
						f := &lineTrial{t: t, spec: kind.spec}
						f.spec.URL = url
						delays = append(delays, f.fails(s, &kind, i))
					}
					slices.Sort(delays)
					t.Logf("others were delayed by %v", delays)
					if long && delays[len(delays)-1] > 6*time.Second {
						t.Error("that is more than 6 s")
					}
				})
			}
		}
	}
}

// lineKeys counts the keys of lines: each run has its own.
var lineKeys atomic.Int64

// fails lets the process in front fail once. It returns by how much the others were delayed.
func (f *lineTrial) fails(s *redisstore.Store, kind *lineKind, fault int) time.Duration {
	f.t.Helper()
	processes := 3
	f.spec.Waiters = 2
	if long {
		processes, f.spec.Waiters = lineProcesses, 8
	}
	for range kind.keys {
		f.spec.Keys = append(f.spec.Keys, fmt.Sprint("k", lineKeys.Add(1)))
	}
	lim := unhurried(f.t, s, f.spec.Policy)
	free := kind.block(f.t, s, lim, f.spec.Keys)
	f.lineUp(processes)
	if long {
		time.Sleep(rand.N(2400 * time.Millisecond)) // any instant between two questions of the one in front
	}
	front, others := f.procs[0], f.procs[1:]
	defer f.watch(s)()
	lineFaults[fault].happens(front)
	since := nowMicro()
	free()
	f.all(others)
	if ends := lineFaults[fault].ends; ends != nil {
		ends(front)
		f.all(f.procs)
	}
	for _, p := range f.procs {
		p.end()
	}
	return time.Duration(f.judge(others)-since) * time.Microsecond
}
