// Command smallburst shows how much of a bucket with a burst of one unit is used while callers
// always wait: on this machine's real clock, beside the limiters of one process that make callers
// wait. All that it names run at the same time.
//
//	go run ./cmd/smallburst -redis localhost:6379 -for 20s
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	uber "go.uber.org/ratelimit"
	xrate "golang.org/x/time/rate"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/redisstore"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

var (
	redisAt = flag.String("redis", "", "address of a Redis server; empty: without")
	length  = flag.Duration("for", 20*time.Second, "length of a run")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "smallburst:", err)
		os.Exit(1)
	}
}

// wait lets a caller pass when its turn has come, or returns an error when ctx ends.
type wait func(context.Context) error

func run() error {
	dir, err := os.MkdirTemp(".", "smallburst")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	fmt.Printf("%-10s %7s %8s %8s %9s %7s\n", "limiter", "rate/s", "waiters", "started", "of", "used")
	for _, waiters := range []int{1, 10} {
		for _, rate := range []int64{40, 100, 300} {
			if err := cell(dir, rate, waiters); err != nil {
				return err
			}
		}
	}
	return nil
}

// cell runs all limiters at one rate.
func cell(dir string, rate int64, waiters int) error {
	stores := map[string]drawgate.Store{"memory": memstore.New(nil)}
	sqlite, err := sqlitestore.Open(filepath.Join(dir, fmt.Sprintf("%d-%d.db", rate, waiters)), nil)
	if err != nil {
		return err
	}
	stores["sqlite"] = sqlite
	if *redisAt != "" {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{*redisAt}, DisableCache: true})
		if err != nil {
			return err
		}
		defer c.Close()
		stores["redis"] = redisstore.New(c, &redisstore.Options{Prefix: fmt.Sprint("smallburst",
			time.Now().UnixNano())})
	}
	waits := map[string]wait{}
	for name, s := range stores {
		l, err := drawgate.New(s, drawgate.Rate("rate", rate, time.Second, 1), nil)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		defer func() { _ = l.Close() }()
		waits[name] = func(ctx context.Context) error { _, err := l.Wait(ctx, "k"); return err }
	}
	x, u := xrate.NewLimiter(xrate.Limit(rate), 1), uber.New(int(rate), uber.WithoutSlack)
	waits["x/time"] = x.Wait
	waits["uber"] = func(ctx context.Context) error { u.Take(); return ctx.Err() }

	var group sync.WaitGroup
	started := map[string]*atomic.Int64{}
	ctx, cancel := context.WithTimeout(context.Background(), *length)
	defer cancel()
	for name, w := range waits {
		n := &atomic.Int64{}
		started[name] = n
		for range waiters {
			group.Go(func() {
				for w(ctx) == nil {
					n.Add(1)
				}
			})
		}
	}
	group.Wait()
	most := rate*int64(*length/time.Millisecond)/1000 + 1
	for _, name := range []string{"memory", "redis", "sqlite", "x/time", "uber"} {
		if n := started[name]; n != nil {
			fmt.Printf("%-10s %7d %8d %8d %9d %6.2f%%\n", name, rate, waiters, n.Load(), most,
				100*float64(n.Load())/float64(most))
		}
	}
	return nil
}
