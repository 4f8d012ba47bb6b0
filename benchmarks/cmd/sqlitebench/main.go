// Command sqlitebench is section D: decisions that are durable in a SQLite file (WAL,
// synchronous=FULL) before they are answered.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/drive"
	"github.com/drawgate/drawgate/benchmarks/internal/stat"
	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
	"github.com/drawgate/drawgate/benchmarks/lim"
	"github.com/drawgate/drawgate/benchmarks/peers"
)

var (
	only     = flag.String("only", ".", "regexp of names")
	reps     = flag.Int("reps", 5, "repetitions")
	dur      = flag.Duration("dur", 1500*time.Millisecond, "length of one cell")
	out      = flag.String("out", "results/d-sqlite.jsonl", "file of raw results; it must not exist")
	dir      = flag.String("dir", ".", "where the database files go: a real disk, not a tmpfs")
	maxOther = flag.Float64("max-other", 0.9,
		"cores that other processes may use; the kernel's disk threads count as others")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sqlitebench:", err)
		os.Exit(1)
	}
}

type cell struct {
	name    string
	callers int
	keys    int
}

var cells = []cell{{"c64-1key", 64, 1}, {"c64-1000keys", 64, 1000}}

// specAllow is a limit that no run reaches; allowed_pct shows it.
var specAllow = lim.Spec{Rate: 1_000_000, Period: time.Second, Burst: 1_000_000}

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
		for _, e := range peers.SQLite() {
			if !re.MatchString(e.Name) {
				continue
			}
			for _, c := range cells {
				row, err := measure(e, c)
				if err != nil {
					return fmt.Errorf("%s: %w", e.Name, err)
				}
				row.Rep = rep
				if err := o.Put(row); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// warm is how long callers run before a cell: most rows exist then.
const warm = 500 * time.Millisecond

// measure runs one cell in a fresh file.
func measure(e lim.SQLite, c cell) (row stat.Row, err error) {
	folder, err := os.MkdirTemp(*dir, ".sqlitebench-")
	if err != nil {
		return row, err
	}
	defer os.RemoveAll(folder)
	l, err := e.New(filepath.Join(folder, "bench.db"), specAllow)
	if err != nil {
		return row, err
	}
	keys := lim.Keys(c.keys)
	decide := func(ctx context.Context, rnd *lim.Rand) (bool, error) { return l.Allow(ctx, keys[rnd.N(len(keys))], 1) }
	drive.Closed(c.callers, warm, decide)
	var r *drive.Result
	g := sysx.Gate{MaxOther: *maxOther, Patience: 20 * time.Second, Tries: 3}
	u := g.Run(func() { r = drive.Closed(c.callers, *dur, decide) })
	m := r.Metrics()
	m["cpu_us_op"] = r.PerOp(u.Own)
	m["other_cores"] = u.Other
	return stat.Row{Section: "D", Name: e.Name, Case: c.name, M: m, Note: r.Note()}, lim.Close(l)
}
