package redisstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/linetest"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
)

func TestTryFair(t *testing.T) {
	for _, of := range []struct {
		limit drawgate.Limit
		hold  time.Duration
		rate  float64
	}{
		{drawgate.BucketLimit("b", 300, time.Second, 1), 0, 300},
		{drawgate.RollingLimit("r", 100, 2*time.Second), 0, 50},
		{drawgate.ConcurrencyLimit("s", 8), 20 * time.Millisecond, 400},
	} {
		for _, waiters := range [][]int{{50, 50, 50, 50, 50, 50, 50, 50}, {365, 5, 5, 5, 5, 5, 5, 5}} {
			server := redistest.Start(t)
			var stores []store.Store
			for range waiters {
				stores = append(stores, open(t, server, nil))
			}
			c := linetest.Throng{Stores: stores, Policy: drawgate.Policy{Name: "p", Limits: []drawgate.Limit{of.limit}}, Hold: of.hold, Waiters: waiters, Polls: of.hold == 0}
			conn := client(t, server)
			scriptCalls(t, conn)
			const lasts = 12 * time.Second
			all := c.Run(t, lasts)
			var late []int64
			for _, s := range all {
				late = append(late, s.Started-s.Granted)
			}
			slices.Sort(late)
			t.Logf("%s %v: %d served, %.1f %%, %d overtaken, %d calls, starts late %d us p99", of.limit.Name, waiters[0], len(all), 100*float64(len(all))/of.rate/lasts.Seconds(), linetest.Overtaken(all), scriptCalls(t, conn), late[len(late)*99/100])
		}
	}
}
