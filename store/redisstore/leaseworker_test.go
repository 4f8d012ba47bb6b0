package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/lease"
	"github.com/drawgate/drawgate/store/redisstore"
)

// envLeases makes this test binary a process of TestLeasesNeverOver: what it has to do.
const envLeases = "DRAWGATE_TEST_LEASES"

// leaseSpec is what a process of TestLeasesNeverOver does.
type leaseSpec struct {
	URL       string
	Processes int
	Callers   int
	Pause     time.Duration // of a caller between two takes, in the mean
	Timeout   time.Duration // of the guard; 0: its default
	Scale     int64         // of the amounts
	Keys      int           // of the limit of a minute
	Window    time.Duration // of the rolling limit
	Shift     time.Duration // how far the process's clock is ahead of the machine's when it starts
}

// leaseWorker is a process that decides by leases: a store with a guard and leases in front of it,
// as a configuration with "leased: true" has it. Its callers ask again and again. It writes a line
// about each admission as soon as the take is answered.
type leaseWorker struct {
	leaseSpec
	clock  machineClock
	out    out
	leases *lease.Store
	lims   [ofMinute + 1]*drawgate.Limiter
	names  []string

	asked, fallback, failed atomic.Int64
}

// What a take is from.
const (
	ofHot    = iota // a rolling limit of one key
	ofRate          // a bucket limit of one key
	ofMinute        // a calendar limit of one of many keys
	ofPair          // the rolling limit, and that of a minute
)

// Amounts of these limits, in units per Scale. Each is just large enough to be leased.
const (
	hotASecond   = 2500 // by the rolling limit
	rateASecond  = 500
	rateBurst    = 5000
	minuteAmount = 6000
	leaseCost    = 10 // units of a take in the mean: a much larger one would not be decided by leases
)

// amounts returns what the limits allow in a window, the bucket in a burst.
func (s *leaseSpec) amounts() [ofMinute + 1]int64 {
	return [...]int64{
		ofHot: int64(hotASecond * s.Window.Seconds() * float64(s.Scale)), ofRate: rateBurst * s.Scale,
		ofMinute: minuteAmount * s.Scale,
	}
}

// policies are the policies of these limits. Without the store they admit nothing.
func (s *leaseSpec) policies() [ofMinute + 1]drawgate.Policy {
	policy := func(name string, l drawgate.Limit) drawgate.Policy {
		return drawgate.Policy{
			Name: name, Leased: true, Fallback: drawgate.FallbackClosed, Limits: []drawgate.Limit{l},
		}
	}
	n := s.amounts()
	return [...]drawgate.Policy{
		ofHot:    policy("hot", drawgate.RollingLimit("l", n[ofHot], s.Window)),
		ofRate:   policy("rate", drawgate.BucketLimit("l", rateASecond*s.Scale, time.Second, n[ofRate])),
		ofMinute: policy("minute", drawgate.CalendarLimit("l", n[ofMinute], drawgate.Minute, "")),
	}
}

func (w *leaseWorker) work() {
	w.clock = newMachineClock(w.Shift)
	ctx := untilInputEnds()
	s, err := redisstore.Open(w.URL, nil)
	if err != nil {
		panic(err)
	}
	g := guard.New(s, &guard.Options{Instances: w.Processes, Timeout: w.Timeout})
	w.leases = lease.New(g.Full(), nil)
	w.limiters()
	var all sync.WaitGroup
	all.Go(func() { w.report(ctx) })
	all.Go(func() { w.out.watch(ctx) })
	for range w.Callers {
		all.Go(func() { w.call(ctx) })
	}
	all.Wait()
	_ = w.leases.Close()
	w.state()
	w.out.say("end")
}

func (w *leaseWorker) limiters() {
	for i, p := range w.policies() {
		var err error
		if i == 0 {
			w.lims[i], err = drawgate.New(w.leases.Full(), p, nil)
		} else {
			w.lims[i], err = w.lims[0].With(p)
		}
		if err != nil {
			panic(err)
		}
	}
	for i := range w.Keys {
		w.names = append(w.names, fmt.Sprint("k", i))
	}
}

// report writes what the process has done so far, now and then.
func (w *leaseWorker) report(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
			w.state()
		}
	}
}

func (w *leaseWorker) state() {
	s := w.leases.State()
	w.out.say("state", w.asked.Load(), w.fallback.Load(), w.failed.Load(), s.Local, s.Through, s.Calls, s.Keys)
}

// call is one caller. Some keys are asked for much more often than others.
func (w *leaseWorker) call(ctx context.Context) {
	skewed := rand.NewZipf(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), 1.1, 1, uint64(w.Keys-1))
	for ctx.Err() == nil {
		kind, key := ofHot, 0
		switch n := rand.IntN(10); {
		case n < 3:
			kind, key = ofMinute, int(skewed.Uint64())
		case n < 5:
			kind = ofRate
		case n < 6:
			kind, key = ofPair, int(skewed.Uint64())
		}
		w.take(kind, key, 1+rand.Int64N(2*leaseCost-1)) //nolint:contextcheck // what has begun is finished
		time.Sleep(rand.N(2 * w.Pause))
	}
}

// take makes one take.
func (w *leaseWorker) take(kind, key int, n int64) {
	ctx, cost := context.Background(), drawgate.Requests(n)
	var d drawgate.Decision
	var err error
	sent := w.clock.now()
	if kind == ofPair {
		d, _, err = w.lims[ofHot].Take(ctx, drawgate.Request{Buckets: []drawgate.Ask{
			w.lims[ofHot].Ask("k0", cost), w.lims[ofMinute].Ask(w.names[key], cost),
		}})
	} else {
		d, err = w.lims[kind].Allow(ctx, w.names[key], cost)
	}
	got := w.clock.now()
	if err == nil && d.Allowed {
		w.out.say("took", int64(kind), int64(key), n, sent, got)
	}
	w.asked.Add(1)
	switch {
	case err != nil:
		w.failed.Add(1)
	case d.Fallback:
		w.fallback.Add(1)
	}
}
