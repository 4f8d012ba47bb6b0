// Command serverbench is section C: servers, each a process of its own, over gRPC (Envoy's rate
// limit service) and over HTTP.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/drive"
	"github.com/drawgate/drawgate/benchmarks/internal/load"
	"github.com/drawgate/drawgate/benchmarks/internal/stat"
	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
	"github.com/drawgate/drawgate/benchmarks/lim"
)

var (
	only     = flag.String("only", ".", "regexp of server names")
	reps     = flag.Int("reps", 5, "repetitions")
	dur      = flag.Duration("dur", 1500*time.Millisecond, "length of one cell")
	out      = flag.String("out", "results/c-servers.jsonl", "file of raw results; it must not exist")
	bin      = flag.String("bin", ".bin", "folder of the servers' programs")
	maxOther = flag.Float64("max-other", 0.3, "cores that other processes may use")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "serverbench:", err)
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
	for rep := 1; rep <= *reps; rep++ {
		for _, s := range servers {
			if !re.MatchString(s.name) {
				continue
			}
			if err := measure(o, s, rep); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return nil
}

// cell is how a server is asked: by so many callers, each when its last answer is there, or so
// often a second.
type cell struct {
	name    string
	callers int
	keys    int
	rate    float64 // 0: closed
}

var cells = []cell{
	{"c64-hot", 64, 1, 0},
	{"c64-100k", 64, 100_000, 0},
	{"c512-100k", 512, 100_000, 0},
	{"open5k-100k", 512, 100_000, 5000},
	{"open10k-100k", 512, 100_000, 10000},
}

// warm is how long callers run before a cell.
const warm = 500 * time.Millisecond

// asker is a client.
type asker interface {
	Ask(ctx context.Context, req []byte) (bool, error)
	Close()
}

func measure(o *stat.Out, s server, rep int) error {
	r, err := start(s)
	if err != nil {
		return err
	}
	defer r.stop()
	for _, c := range cells {
		var client asker
		if s.http {
			client = load.NewHTTP(r.addr, "/v1/take", c.callers)
		} else if client, err = load.NewGRPC(r.addr, 4); err != nil {
			return err
		}
		row := r.measure(s, c, rep, client)
		client.Close()
		if err := o.Put(row); err != nil {
			return err
		}
	}
	return nil
}

func (r *running) measure(s server, c cell, rep int, client asker) stat.Row {
	reqs := make([][]byte, 0, c.keys)
	for _, k := range lim.Keys(c.keys) {
		if s.http {
			reqs = append(reqs, fmt.Appendf(nil, `{"policy":"bench","key":%q}`, k))
		} else {
			reqs = append(reqs, load.Envoy("bench", "user", k))
		}
	}
	decide := func(ctx context.Context, rnd *lim.Rand) (bool, error) { return client.Ask(ctx, reqs[rnd.N(len(reqs))]) }
	drive.Closed(min(c.callers, 64), warm, decide)
	var res *drive.Result
	var late *stat.Hist
	g := sysx.Gate{MaxOther: *maxOther, Patience: 30 * time.Second, Tries: 3}
	u := g.Run(func() {
		if c.rate > 0 {
			res, late = drive.Open(c.rate, c.callers, *dur, decide)
		} else {
			res = drive.Closed(c.callers, *dur, decide)
		}
	}, r.pids()...)
	m := res.Metrics()
	m["client_us_op"], m["server_us_op"], m["other_cores"] = res.PerOp(u.Own), res.PerOp(u.Procs[0]), u.Other
	if len(u.Procs) > 1 {
		m["redis_us_op"] = res.PerOp(u.Procs[1])
	}
	if late != nil {
		m["late_p99_us"] = late.Quantile(.99)
	}
	return stat.Row{Section: "C", Name: s.name, Case: c.name, Rep: rep, M: m, Note: res.Note()}
}
