package redisstore_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
)

// leaseTrial is a run of processes that decide by leases, and what happened to them.
type leaseTrial struct {
	t       *testing.T
	server  *redistest.Server
	spec    leaseSpec
	procs   []*leaseProc // those that run, but for the ones that were killed
	ended   []*leaseProc
	outages []span // when the server was not there, in µs of the machine's clock
	began   int64
	stops   int
}

// leaseProc is one of the processes.
type leaseProc struct {
	*child
	mu    sync.Mutex
	took  map[leaseBucket][]grant // guarded by mu
	state leaseState              // guarded by mu
	late  []int64                 // guarded by mu: µs, by how much it was woken too late
	wrong int64                   // guarded by mu: an instant that cannot be
	over  bool                    // guarded by mu: it ended by itself
}

// leaseBucket is one of the buckets that processes take from.
type leaseBucket struct {
	kind int
	key  int64
}

// leaseState is what a process has done so far.
type leaseState struct{ asked, fallback, failed, local, through, calls, keys int64 }

func (s leaseState) plus(o leaseState) leaseState {
	return leaseState{
		s.asked + o.asked, s.fallback + o.fallback, s.failed + o.failed, s.local + o.local, s.through + o.through,
		s.calls + o.calls, s.keys + o.keys,
	}
}

// kept is for a server that is killed, and started again with all that it has acknowledged: it
// hands each write to the system before it answers.
var kept = []string{"--appendonly", "yes", "--appendfsync", "no"}

// start starts one more process.
func (f *leaseTrial) start(program string, ahead time.Duration) {
	f.t.Helper()
	spec := f.spec
	spec.URL, spec.Shift = f.server.URL(), ahead
	p := &leaseProc{took: map[leaseBucket][]grant{}}
	p.child = startChild(f.t, program, envLeases, spec, p.line)
	f.procs = append(f.procs, p)
}

// startAll starts the processes, and waits until all decide and one of them has leases.
func (f *leaseTrial) startAll() {
	f.t.Helper()
	f.began = nowMicro()
	for len(f.procs) < f.spec.Processes {
		f.start(os.Args[0], 0)
	}
	f.more()
	f.leased()
}

// leased waits until a process decides by itself.
func (f *leaseTrial) leased() {
	f.t.Helper()
	until(f.t, "a process has leases", func() bool {
		return slices.ContainsFunc(f.procs, func(p *leaseProc) bool { return p.did().local > 0 })
	})
}

// line reads a line of the process.
func (p *leaseProc) line(word string, n []int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case word == "took" && len(n) == 5:
		g := grant{n[2], n[3], n[4]}
		if off := g.got - nowMicro(); off > 1e6 || g.got < g.sent {
			p.wrong = g.got
		}
		for _, b := range bucketsOf(int(n[0]), n[1]) {
			p.took[b] = append(p.took[b], g)
		}
	case word == "state" && len(n) == 7:
		p.state = leaseState{n[0], n[1], n[2], n[3], n[4], n[5], n[6]}
	case word == "late" && len(n) == 1:
		p.late = append(p.late, n[0])
	case word == "end":
		p.over = true
	}
}

func bucketsOf(kind int, key int64) []leaseBucket {
	if kind == ofPair {
		return []leaseBucket{{ofHot, 0}, {ofMinute, key}}
	}
	return []leaseBucket{{kind, key}}
}

func (p *leaseProc) did() leaseState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// more waits until the store, or leases, have decided some takes more in each process.
func (f *leaseTrial) more() {
	const takes = 50
	f.t.Helper()
	for _, p := range f.procs {
		decided := func() int64 { s := p.did(); return s.asked - s.fallback - s.failed }
		from := decided()
		until(f.t, "takes go on", func() bool { return decided() >= from+takes })
	}
}

// kill kills a process with all that it holds, and starts another one.
func (f *leaseTrial) kill(i int) {
	f.t.Helper()
	p := f.procs[i]
	p.kill()
	f.procs = slices.Delete(f.procs, i, i+1)
	f.ended = append(f.ended, p)
	f.start(os.Args[0], 0)
}

// hang makes a process stand still with all that it holds.
func (f *leaseTrial) hang(i int) *leaseProc {
	f.t.Helper()
	f.stops++
	f.procs[i].hang()
	return f.procs[i]
}

// without notes that the server was away between two instants.
func (f *leaseTrial) without(leave, back func()) {
	f.t.Helper()
	from := nowMicro()
	leave()
	back()
	f.outages = append(f.outages, span{from, nowMicro()})
}

// ends ends all processes.
func (f *leaseTrial) ends() {
	f.t.Helper()
	for _, p := range f.procs {
		_ = p.stdin.Close()
	}
	for _, p := range f.procs {
		if p.end(); !p.over {
			f.t.Error("a process ended before it should")
		}
	}
	for _, p := range slices.Concat(f.procs, f.ended) {
		if p.wrong != 0 {
			f.t.Errorf("a process gives the instant %d: its clock is not the machine's", p.wrong)
		}
	}
}

// grants returns what was admitted, of each bucket by all processes.
func (f *leaseTrial) grants() map[leaseBucket][]grant {
	all := map[leaseBucket][]grant{}
	for _, p := range slices.Concat(f.procs, f.ended) {
		for b, list := range p.took {
			all[b] = append(all[b], list...)
		}
	}
	return all
}

// neverOver looks at each window of each bucket. minutes says that the server's clock is the
// machine's: then it looks at those of a calendar, too.
func (f *leaseTrial) neverOver(all map[leaseBucket][]grant, minutes bool) {
	f.t.Helper()
	allowed := f.spec.amounts()
	var most [ofMinute + 1]float64
	for b, list := range all {
		if b.kind == ofMinute && !minutes {
			continue
		}
		n := f.mostOf(b.kind, list)
		if most[b.kind] = max(most[b.kind], n); n > float64(allowed[b.kind]) {
			f.t.Errorf("%s %d: %.2f units were admitted in a window, want at most %d", kindName(b.kind), b.key, n,
				allowed[b.kind])
		}
	}
	for kind, n := range most {
		f.t.Logf("%s: at most %.1f of %d in a window", kindName(kind), n, allowed[kind])
	}
	f.t.Logf("%d keys were used", len(all)-2)
}

// mostOf returns the most that a bucket admitted in a window, or at once beside its rate.
func (f *leaseTrial) mostOf(kind int, list []grant) (most float64) {
	switch kind {
	case ofHot:
		return float64(mostIn(list, f.spec.Window.Microseconds()))
	case ofRate:
		return mostBeside(list, float64(rateASecond*f.spec.Scale)/1e6)
	}
	for _, n := range byMinute(list) {
		most = max(most, float64(n))
	}
	return most
}

func kindName(kind int) string { return [...]string{"hot", "rate", "minute"}[kind] }

// work logs what the processes did.
func (f *leaseTrial) work() {
	var sum leaseState
	for _, p := range slices.Concat(f.procs, f.ended) {
		sum = sum.plus(p.did())
	}
	f.t.Logf("%d takes: %d decided by leases, %d without the store, %d failed; %d calls of the store for leased "+
		"policies, %d of them for single takes; %d processes were killed, %d stood still, the server was away %d times", sum.asked,
		sum.local, sum.fallback, sum.failed, sum.calls, sum.through, len(f.ended), f.stops, len(f.outages))
}

// calm returns the spans between what happened to the server. Processes need some time to use it
// again.
func (f *leaseTrial) calm(end int64) (all []span) {
	const again = 2_000_000
	from := f.began + again
	for _, s := range f.outages {
		all = append(all, span{from, s.from})
		from = s.to + again
	}
	return append(all, span{from, end})
}

// leaseCosts is the most that processes held which were killed or stood still, of a limit of so
// much: two leases each, and a lease is at most a 64th of a limit.
func (f *leaseTrial) leaseCosts(amount int64) int64 {
	return int64(len(f.ended)+f.stops) * 2 * (amount / 64)
}

// stalls returns how often a process of this machine stood still for longer than some time, without
// those that were made to, and for how long at most. Each time it may lose what it held.
func (f *leaseTrial) stalls(longer time.Duration) (n int, most time.Duration) {
	for _, p := range slices.Concat(f.procs, f.ended) {
		for _, us := range p.late {
			if late := time.Duration(us) * time.Microsecond; late > longer {
				n, most = n+1, max(most, late)
			}
		}
	}
	return max(0, n-f.stops), most
}

// used returns which part of a limit was admitted in whole windows while the server was there. each
// is what it admits in a window.
func (f *leaseTrial) used(list []grant, window time.Duration, each, end int64) (admitted, allowed int64) {
	for _, s := range f.calm(end) {
		whole := (s.to - s.from) / window.Microseconds()
		admitted += sumIn(list, span{s.from, s.from + whole*window.Microseconds()})
		allowed += whole * each
	}
	return admitted, allowed
}

// wellUsed checks that of what the limits allow nearly all was admitted while the server was there.
// What processes held that were killed, or stood still, counts as used.
func (f *leaseTrial) wellUsed(all map[leaseBucket][]grant, end int64) {
	f.t.Helper()
	amounts, life := f.spec.amounts(), f.spec.Window/100
	for _, longer := range []time.Duration{life / 2, life, 500 * time.Millisecond} {
		n, most := f.stalls(longer)
		f.t.Logf("the machine let a process stand still for over %v %d times, at most %v", longer, n, most)
	}
	admitted, allowed := f.used(all[leaseBucket{ofHot, 0}], f.spec.Window, amounts[ofHot], end)
	f.enough("hot", admitted, allowed, f.leaseCosts(amounts[ofHot]))
	admitted, allowed = f.used(all[leaseBucket{ofRate, 0}], time.Second, rateASecond*f.spec.Scale, end)
	f.enough("rate", admitted, allowed, f.leaseCosts(amounts[ofRate]))
	by := byMinute(all[leaseBucket{ofMinute, 0}])
	for _, m := range slices.Sorted(maps.Keys(by)) {
		if seen := min(end, (m+1)*minute) - max(f.began, m*minute); seen > 20e6 { // there was time to use it up
			f.enough(fmt.Sprint("minute ", m%60), by[m], amounts[ofMinute], f.leaseCosts(amounts[ofMinute]))
		}
	}
}

// enough checks and logs how much of a limit was used.
func (f *leaseTrial) enough(what string, admitted, allowed, held int64) {
	f.t.Helper()
	part, may := float64(admitted)/float64(allowed), float64(held)/float64(allowed)
	f.t.Logf("%s: %d of %d (%.2f %%) was used while the server was there; processes that were killed or stood still "+
		"held at most %d (%.2f %%)", what, admitted, allowed, 100*part, held, 100*may)
	if part+may < 0.98 {
		f.t.Errorf("%s: %.4f was used, and %.4f may have been held, want 0.98", what, part, may)
	}
}

// missing logs how much more than was admitted counts as used at the end: what killed processes,
// and those that stood still, had taken ahead.
func (f *leaseTrial) missing(all map[leaseBucket][]grant) {
	f.t.Helper()
	s := openURL(f.t, f.server.URL(), nil)
	for kind, p := range f.spec.policies() {
		plan := compile(f.t, p.Name, p.Limits...)
		b := store.BucketCost{Key: store.Key{Policy: p.Name, Name: "k0"}, Plan: plan}
		used, now := peek(f.t, s, b).States[0].Used, nowMicro()
		list := all[leaseBucket{kind, 0}]
		switch kind {
		case ofHot:
			f.t.Logf("hot: the store counts %d, the logs %d", used, sumIn(list, span{now - f.spec.Window.Microseconds(), now}))
		case ofMinute:
			f.t.Logf("minute: the store counts %d, the logs %d", used, byMinute(list)[now/minute])
		}
	}
}

// String describes the trial.
func (f *leaseTrial) String() string {
	s := f.spec
	return fmt.Sprintf("%d processes × %d goroutines, each of which pauses %v between takes of %d units; %d skewed "+
		"keys; a rolling window of %v", s.Processes, s.Callers, s.Pause, leaseCost, s.Keys, s.Window)
}
