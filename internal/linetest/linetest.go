// Package linetest lets a throng of callers wait in several processes, each a limiter over a store,
// and judges in which order they were served.
package linetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// Served is a waiter that was granted, in µs.
type Served struct{ Began, Granted, Started int64 }

// Throng are waiters in several processes, each of which waits again once it was served.
type Throng struct {
	Stores  []store.Store // per process
	Policy  drawgate.Policy
	Hold    time.Duration // 0: a plain take
	Waiters []int         // per process
	Polls   bool          // the first process also asks without waiting, all the time
}

// Run lets the throng wait for some time, and returns who was served in the order of the grants.
func (c *Throng) Run(t *testing.T, lasts time.Duration) (all []Served) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for p, n := range c.Waiters {
		lim, err := drawgate.New(c.Stores[p], c.Policy, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lim.Close() }()
		if p == 0 && c.Polls {
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _ = lim.Allow(ctx, "k")
					time.Sleep(time.Millisecond)
				}
			})
		}
		for range n {
			wg.Go(func() {
				time.Sleep(rand.N(time.Second))
				for {
					s, err := c.wait(ctx, lim)
					if err != nil {
						return // its deadline is too near
					}
					mu.Lock()
					all = append(all, s)
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	slices.SortFunc(all, func(a, b Served) int { return int(a.Granted - b.Granted) })
	return all
}

// wait waits once.
func (c *Throng) wait(ctx context.Context, lim *drawgate.Limiter) (s Served, err error) {
	var d drawgate.Decision
	s.Began = time.Now().UnixMicro()
	if c.Hold == 0 {
		d, err = lim.Wait(ctx, "k")
		s.Started = time.Now().UnixMicro()
	} else {
		var r *drawgate.Reservation
		if r, err = lim.Reserve(ctx, "k", time.Minute); err != nil {
			return s, err
		}
		s.Started = time.Now().UnixMicro()
		d = r.Decision
		time.Sleep(c.Hold)
		err = r.Settle(context.WithoutCancel(ctx))
	}
	s.Granted = d.At().Add(d.Delay()).UnixMicro()
	return s, err
}

// Overtaken returns how many were granted after somebody who began to wait over 10 ms later.
func Overtaken(all []Served) (n int) {
	latest := int64(0)
	for _, s := range all {
		if latest > s.Began+10_000 {
			n++
		}
		latest = max(latest, s.Began)
	}
	return n
}
