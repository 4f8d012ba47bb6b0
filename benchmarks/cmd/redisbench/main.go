// Command redisbench is section B (Redis-backed limiters) and, with -mode acc, stop or kill,
// section E (their accuracy, also around an outage of Redis).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/drawgate/drawgate/benchmarks/internal/drive"
	"github.com/drawgate/drawgate/benchmarks/internal/stat"
	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
	"github.com/drawgate/drawgate/benchmarks/lim"
	"github.com/drawgate/drawgate/benchmarks/peers"
)

var (
	mode     = flag.String("mode", "perf", "perf, acc, stop, kill")
	only     = flag.String("only", ".", "regexp of limiter names")
	cases    = flag.String("cases", ".", "regexp of cells")
	reps     = flag.Int("reps", 5, "repetitions")
	dur      = flag.Duration("dur", 1500*time.Millisecond, "length of one perf cell")
	accDur   = flag.Duration("acc", 10*time.Second, "length of one run in mode acc")
	out      = flag.String("out", "results/b-redis.jsonl", "file of raw results; it must not exist")
	port     = flag.Int("port", 7391, "port for redis-server on loopback")
	pool     = flag.Int("pool", 64, "connections per client")
	maxOther = flag.Float64("max-other", 0.3, "cores that other processes may use")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "redisbench:", err)
		os.Exit(1)
	}
}

func run() error {
	re, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	o, err := stat.NewOut(*out)
	if err != nil {
		return err
	}
	var limiters []lim.Redis
	for _, l := range peers.Redis() {
		if re.MatchString(l.Name) {
			limiters = append(limiters, l)
		}
	}
	logging.Disable() // go-redis would log each failed dial of an outage
	switch *mode {
	case "perf":
		return perf(o, limiters)
	case "acc", "stop", "kill":
		return accuracy(o, limiters)
	}
	return fmt.Errorf("unknown -mode %q", *mode)
}

// env gives each limiter keys of its own.
func env(addr string) lim.RedisEnv {
	return lim.RedisEnv{Addr: addr, PoolSize: *pool, Prefix: fmt.Sprintf("b%d:", time.Now().UnixNano())}
}

type cell struct {
	name    string
	callers int
	keys    int
	three   bool
}

var cells = []cell{
	{"c1-hot", 1, 1, false},
	{"c64-hot", 64, 1, false},
	{"c64-10k", 64, 10_000, false},
	{"c512-hot", 512, 1, false},
	{"c512-100k", 512, 100_000, false},
	{"three-c64-10k", 64, 10_000, true},
	{"three-c512-100k", 512, 100_000, true},
}

// Limits that no run reaches; allowed_pct shows it.
var (
	specAllow  = lim.Spec{Rate: 1_000_000, Period: time.Second, Burst: 1_000_000}
	threeAllow = lim.Three{Minute: 1e12, Hour: 1e12, Day: 1e12}
)

func perf(o *stat.Out, limiters []lim.Redis) error {
	server, err := sysx.StartRedis(*port)
	if err != nil {
		return err
	}
	defer server.Kill()
	admin := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer admin.Close()
	wanted, err := regexp.Compile(*cases)
	if err != nil {
		return err
	}
	for rep := 1; rep <= *reps; rep++ {
		for _, e := range limiters {
			for _, c := range cells {
				if !wanted.MatchString(c.name) {
					continue
				}
				if err := admin.FlushAll(context.Background()).Err(); err != nil {
					return err
				}
				l, err := build(e, c, server.Addr)
				if err != nil {
					return fmt.Errorf("%s: %w", e.Name, err)
				}
				if l == nil {
					continue
				}
				if err := o.Put(measure(e.Name, c, rep, l, server.PID())); err != nil {
					return err
				}
				if err := lim.Close(l); err != nil {
					return fmt.Errorf("%s: %w", e.Name, err)
				}
			}
		}
	}
	return nil
}

func build(e lim.Redis, c cell, addr string) (lim.Limiter, error) {
	switch {
	case !c.three:
		return e.New(env(addr), specAllow)
	case e.NewThree != nil:
		return e.NewThree(env(addr), threeAllow)
	}
	return nil, nil
}

// warm is how long callers run before a cell: connections and scripts exist then.
const warm = 500 * time.Millisecond

// fill uses each key once: what is measured is not that buckets are made.
func fill(callers int, keys []string, l lim.Limiter) {
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for k := i; k < len(keys); k += callers {
				_, _ = l.Allow(context.Background(), keys[k], 1)
			}
		})
	}
	wg.Wait()
}

func measure(name string, c cell, rep int, l lim.Limiter, server int) stat.Row {
	keys := lim.Keys(c.keys)
	decide := func(ctx context.Context, rnd *lim.Rand) (bool, error) { return l.Allow(ctx, keys[rnd.N(len(keys))], 1) }
	fill(c.callers, keys, l)
	drive.Closed(c.callers, warm, decide)
	var r *drive.Result
	g := sysx.Gate{MaxOther: *maxOther, Patience: 30 * time.Second, Tries: 3}
	u := g.Run(func() { r = drive.Closed(c.callers, *dur, decide) }, server)
	m := r.Metrics()
	m["client_us_op"] = r.PerOp(u.Own)
	m["redis_us_op"] = r.PerOp(u.Procs[0])
	m["other_cores"] = u.Other
	return stat.Row{Section: "B", Name: name, Case: c.name, Rep: rep, M: m, Note: r.Note()}
}
