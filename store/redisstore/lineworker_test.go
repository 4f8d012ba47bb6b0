package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/lease"
	"github.com/drawgate/drawgate/store/redisstore"
)

// envLines makes this test binary a process of the tests of lines: what it has to do.
const envLines = "DRAWGATE_TEST_LINES"

// lineSpec is what a process does whose callers wait.
type lineSpec struct {
	URL     string
	Policy  drawgate.Policy
	Keys    []string      // of the buckets of a take
	Hold    time.Duration // of what is reserved; 0: plain takes
	Work    time.Duration // for how long it is used
	Waiters int           // they begin one after the other
	Again   bool          // who was served waits again, until the process ends
	Pause   time.Duration // before that, in the mean
	Leases  bool          // there are a guard and leases in front of the store
	Askers  int           // further callers, who do not wait
}

// lineWorker is a process whose callers wait. It writes a line when one of them waits, and when it
// was served.
type lineWorker struct {
	lineSpec
	clock machineClock
	out   out
	lim   *drawgate.Limiter

	asked, refused, failed atomic.Int64 // of those who do not wait
}

func (w *lineWorker) work() {
	w.clock = newMachineClock(0)
	ctx := untilInputEnds()
	s := w.open()
	defer func() { _ = s.Close() }()
	var err error
	if w.lim, err = drawgate.New(s, w.Policy, nil); err != nil {
		panic(err)
	}
	var all sync.WaitGroup
	all.Go(func() { w.out.watch(ctx) })
	for range w.Askers {
		all.Go(func() { w.ask(ctx) })
	}
	for i := range w.Waiters {
		all.Go(func() { w.wait(ctx, int64(i)) })
		for ctx.Err() == nil && w.waiting() <= i && !w.Again {
			time.Sleep(time.Millisecond)
		}
		w.out.say("waits", int64(i))
	}
	all.Wait()
	_ = w.lim.Close()
	w.out.say("end", w.asked.Load(), w.refused.Load(), w.failed.Load())
}

func (w *lineWorker) open() store.Store {
	s, err := redisstore.Open(w.URL, nil)
	if err != nil {
		panic(err)
	}
	if !w.Leases {
		return s
	}
	g := guard.New(s, &guard.Options{Instances: lineProcesses, Timeout: time.Second})
	return lease.New(g.Full(), nil).Full()
}

// waiting returns how many wait in this process.
func (w *lineWorker) waiting() (n int) {
	for _, l := range w.lim.Lines() {
		n += l.Waiting
	}
	return n
}

// wait is one caller that waits.
func (w *lineWorker) wait(ctx context.Context, i int64) {
	if w.Again {
		time.Sleep(rand.N(time.Second)) // any instant
	}
	for {
		began := w.clock.now()
		d, err := w.once(ctx)
		if err != nil {
			if ctx.Err() == nil {
				w.out.say("error", i)
			}
			return
		}
		at := d.At().Add(d.Delay()).UnixMicro()
		w.out.say("served", i, began, at, w.clock.now())
		if !w.Again {
			return
		}
		time.Sleep(rand.N(2*w.Pause + 1))
	}
}

// once waits until it is served.
func (w *lineWorker) once(ctx context.Context) (drawgate.Decision, error) {
	r := drawgate.Request{Wait: true, Hold: drawgate.Hold{For: w.Hold}}
	for _, key := range w.Keys {
		r.Buckets = append(r.Buckets, drawgate.Ask{Key: key})
	}
	d, held, err := w.lim.Take(ctx, r)
	if err == nil && held != nil {
		time.Sleep(w.Work)
		err = held.Settle(context.WithoutCancel(ctx))
	}
	return d, err
}

// ask is one caller that does not wait.
func (w *lineWorker) ask(ctx context.Context) {
	for ctx.Err() == nil {
		sent := w.clock.now()
		d, err := w.lim.Allow(context.Background(), w.Keys[0]) //nolint:contextcheck // what has begun is finished
		got := w.clock.now()
		w.asked.Add(1)
		switch {
		case err != nil:
			w.failed.Add(1)
		case d.Allowed:
			w.out.say("took", sent, got)
		default:
			w.refused.Add(1)
		}
		time.Sleep(rand.N(20 * time.Millisecond))
	}
}

// name returns the name of a waiter's process and of itself.
func (s *lineServed) name() string { return fmt.Sprint(s.proc, ".", s.waiter) }
