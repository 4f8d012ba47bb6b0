package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/redisstore"
)

// envFaults makes this test binary a process of TestFaults: what it has to do.
const envFaults = "DRAWGATE_TEST_FAULTS"

// faultWorker is a process of TestFaults: a guard in front of a store, and takes at a fixed pace,
// whether or not earlier ones were answered. It writes a line about each take to the standard
// output when it is answered, and before anything else: an admission that was not written has not
// reached anybody. It ends when its standard input does.
type faultWorker struct {
	URL     string
	Via     map[string]string // addresses of servers, and those of the proxies that lead to them
	Every   time.Duration     // between takes
	Timeout time.Duration     // of the guard; 0: its default
	Most    int               // takes under way; 0: any number
	Hoards  bool              // each reservation is kept until its hold ends
	Shift   time.Duration     // how far this process's clock is ahead of the others'
	Window  time.Duration     // of the rolling limits
	Era     time.Duration     // after so long, others of their buckets are used; 0: never

	guard    *guard.Store
	sent     atomic.Int64
	underWay atomic.Int64
	all      sync.WaitGroup
	out      sync.Mutex
}

// The processes of a fault share these limits. Callers want more of each than it allows.
const (
	faultProcesses = 3
	faultAmount    = 24 // of the rolling limits
	faultSlots     = 8  // of the limit of what is held
	faultHold      = 5 * time.Second
	faultWork      = 300 * time.Millisecond // how long a slot is used
	faultKeys      = 6                      // of each rolling limit
	faultSlotKeys  = 2
)

// What a take is from.
const (
	ofShare  = iota // a rolling limit, whose fallback is a share
	ofClosed        // the same, whose fallback is closed
	ofBoth          // a bucket of each
	ofSlots         // a slot, whose fallback is closed
	faultKinds
)

// faultPolicies are the policies of these limits, by what takes are from.
func faultPolicies(window time.Duration) map[int]drawgate.Policy {
	rolling := drawgate.Limit{Name: "r", Kind: drawgate.Rolling, Window: window, Amount: faultAmount}
	slots := drawgate.Limit{Name: "n", Unit: "slots", Kind: drawgate.Concurrency, Amount: faultSlots}
	policy := func(name string, fallback drawgate.Fallback, limit drawgate.Limit) drawgate.Policy {
		return drawgate.Policy{Name: name, Fallback: fallback, Limits: []drawgate.Limit{limit}}
	}
	return map[int]drawgate.Policy{
		ofShare:  policy("share", drawgate.FallbackShare, rolling),
		ofClosed: policy("closed", drawgate.FallbackClosed, rolling),
		ofSlots:  policy("slots", drawgate.FallbackClosed, slots),
	}
}

func faultPlans(window time.Duration) map[int]*store.Plan {
	plans := map[int]*store.Plan{}
	for kind, policy := range faultPolicies(window) {
		p, err := policy.Compile()
		if err != nil {
			panic(err)
		}
		plans[kind] = p.Plan
	}
	return plans
}

// act is a take of a process, and what became of it. Instants are in µs of the machine's clock.
type act struct {
	kind, key         int
	allowed, fallback bool
	failed            bool
	due, sent, got    int64
	id                int64 // of a slot; 0: none
	until             int64 // when the slot was given back
}

func (a *act) line() string {
	return fmt.Sprintln("take", a.kind, a.key, number(a.allowed), number(a.fallback), number(a.failed),
		a.due, a.sent, a.got, a.id)
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (w *faultWorker) say(line string) {
	w.out.Lock()
	defer w.out.Unlock()
	_, _ = io.WriteString(os.Stdout, line) // whoever reads it has ended: so does this process
}

// now returns the time by the clock that all processes share.
func (w *faultWorker) now() int64 { return time.Now().Add(-w.Shift).UnixMicro() }

func (w *faultWorker) work() {
	via := func(addr string) string { return w.Via[addr] }
	s, err := redisstore.Open(w.URL, (&redisstore.Options{}).Via(via))
	if err != nil {
		panic(err)
	}
	w.guard = guard.New(s, &guard.Options{
		Instances: faultProcesses, Timeout: w.Timeout, Observer: &guard.Observer{Recovered: w.recovered},
	})
	quit := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(quit)
	}()
	w.all.Go(func() { w.watch(quit) })
	w.send(quit)
	w.all.Wait()
	_ = w.guard.Close()
	w.say(fmt.Sprintln("end", w.sent.Load()))
}

// recovered says what the servers had lost of this process, and have again.
func (w *faultWorker) recovered(r *guard.Recovered) {
	w.say(fmt.Sprintln("back", r.Units(), r.Reservations))
}

// watch says how much later than it should a process is woken by this machine.
func (w *faultWorker) watch(quit chan struct{}) {
	for {
		due := time.Now().Add(10 * time.Millisecond)
		select {
		case <-quit:
			return
		case <-time.After(time.Until(due)):
			if late := time.Since(due); late > 5*time.Millisecond {
				w.say(fmt.Sprintln("late", w.now(), late.Microseconds()))
			}
		}
	}
}

// send sends the takes that are due, every millisecond or as soon as it can.
func (w *faultWorker) send(quit chan struct{}) {
	plans := faultPlans(w.Window)
	tick := time.NewTicker(min(w.Every, time.Millisecond))
	defer tick.Stop()
	next := time.Now()
	for i := 0; ; {
		select {
		case <-quit:
			return
		case <-tick.C:
		}
		for ; !next.After(time.Now()); next = next.Add(w.Every) {
			if w.Most > 0 && w.underWay.Load() >= int64(w.Most) {
				next = time.Now()
				break
			}
			w.sent.Add(1)
			w.underWay.Add(1)
			n, due := i, next.Add(-w.Shift).UnixMicro()
			w.all.Go(func() { w.one(plans, n, due) })
			i++
		}
	}
}

// one makes take i.
func (w *faultWorker) one(plans map[int]*store.Plan, i int, due int64) {
	a := act{kind: i % faultKinds, key: i / faultKinds % faultKeys, due: due}
	if a.kind == ofSlots {
		a.key %= faultSlotKeys
	} else if w.Era > 0 {
		a.key += int(w.now()/w.Era.Microseconds()) % 1e6 * faultKeys
	}
	var ask store.Take
	name := fmt.Sprint("k", a.key)
	switch a.kind {
	case ofBoth:
		ask = takeOf(plans[ofShare], name, 1)
		ask.Buckets = append(ask.Buckets, takeOf(plans[ofClosed], name, 1).Buckets...)
	case ofSlots:
		a.id = int64(i + 1)
		ask = held(takeOf(plans[ofSlots], name, 1), fmt.Sprint(os.Getpid(), " ", i), faultHold)
		ask.Grant = store.NewGrant()
	default:
		ask = takeOf(plans[a.kind], name, 1)
	}
	var d [1]store.Verdict
	a.sent = w.now()
	err := errors.Join(w.guard.Take(context.Background(), []store.Take{ask}, d[:]), d[0].Fail)
	a.got, a.allowed, a.fallback, a.failed = w.now(), d[0].Allowed, d[0].Fallback, err != nil
	if err != nil {
		w.say("error " + err.Error() + "\n")
	}
	w.say(a.line())
	w.underWay.Add(-1)
	if a.id != 0 && a.allowed && !w.Hoards {
		time.Sleep(faultWork) // what the slot is for
		w.say(fmt.Sprintln("free", a.id, w.now()))
		st := store.Settlement{Op: store.OpSettle, ID: ask.ID, Grant: ask.Grant, Buckets: ask.Buckets}
		var o [1]store.Outcome
		_ = w.guard.Settle(context.Background(), []store.Settlement{st}, o[:])
	}
}
