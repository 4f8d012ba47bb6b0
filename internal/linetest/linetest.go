// Package linetest lets a throng of callers wait in several processes, each a limiter over a store,
// and judges in which order they were served.
package linetest

import (
	"cmp"
	"context"
	"fmt"
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
				time.Sleep(rand.N(time.Second)) //nolint:gosec // any instant
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
	slices.SortFunc(all, func(a, b Served) int { // of those of one instant, nobody comes after another
		return cmp.Or(cmp.Compare(a.Granted, b.Granted), cmp.Compare(a.Began, b.Began))
	})
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

// Passed returns how many were granted over 100 ms after somebody who began to wait over 10 ms
// later: of those who were overtaken, all but the ones who only came later within the same instant,
// in which units came free for both.
func Passed(all []Served) (n int) {
	latest, k := int64(0), 0
	for _, s := range all {
		for ; all[k].Granted+100_000 < s.Granted; k++ {
			latest = max(latest, all[k].Began)
		}
		if latest > s.Began+10_000 {
			n++
		}
	}
	return n
}

// Judge lets throngs wait over real stores for some time, and logs how they were served.
func Judge(t *testing.T, stores []store.Store, lasts time.Duration) {
	t.Helper()
	for _, of := range []struct {
		limit drawgate.Limit
		hold  time.Duration
		rate  float64 // a second
		order func(all []Served) int
		most  float64 // of those who were served may be overtaken by that
		least float64 // of what the limit admits is used
	}{
		{drawgate.BucketLimit("a bucket of one", 300, time.Second, 1), 0, 300, Overtaken, 0.0064, 0.85},
		// All units of a window come free at once. Where requests take long, as on a busy machine,
		// arrivals differ by as much, and with them who is served one window earlier.
		{drawgate.RollingLimit("a rolling window", 100, 2*time.Second), 0, 50, Passed, 0.3, 0.9},
		{drawgate.ConcurrencyLimit("slots", 8), 20 * time.Millisecond, 400, Overtaken, 0.1, 0.5},
	} {
		for _, waiters := range [][]int{{50, 50, 50, 50, 50, 50, 50, 50}, {365, 5, 5, 5, 5, 5, 5, 5}} {
			name := of.limit.Name
			of.limit.Name = "l"
			p := drawgate.Policy{Name: fmt.Sprint(of.limit.Kind, waiters[0]), Limits: []drawgate.Limit{of.limit}}
			c := Throng{
				Stores: stores, Policy: p, Hold: of.hold, Waiters: waiters, Polls: of.hold == 0,
			}
			all := c.Run(t, lasts)
			late, gap := make([]int64, len(all)), int64(0)
			for i, s := range all {
				late[i] = s.Started - s.Granted
				gap = max(gap, s.Granted-all[max(0, i-1)].Granted)
			}
			slices.Sort(late)
			used := float64(len(all)) / of.rate / lasts.Seconds()
			t.Logf("%s, %d and 7 times %d: %d served, %.1f %% used, %d overtaken, %d of them by 100 ms, started %d µs after the grant (p99), nobody for %d ms", name,
				waiters[0], waiters[1], len(all), 100*used, Overtaken(all), Passed(all), late[len(late)*99/100],
				gap/1000)
			if float64(of.order(all)) > of.most*float64(len(all)) || used < of.least {
				t.Errorf("%s: too many overtaken, or too little used", name)
			}
			of.limit.Name = name
		}
	}
}
