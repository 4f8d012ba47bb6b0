// Command postgresbench is section I: Drawgate's store in PostgreSQL, what people write by hand,
// and rate-limiter-flexible, on the same server. It measures takes a second, latency, CPU and
// commits.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
)

var (
	reps     = flag.Int("reps", 5, "rounds; each has every contestant in every cell, but for the cell idle")
	dur      = flag.Duration("dur", 5*time.Second, "length of a cell")
	idle     = flag.Duration("idle", 20*time.Second, "length of the cell idle, which is in the first round only")
	only     = flag.String("only", ".", "regexp of cell/contestant")
	out      = flag.String("out", "results/postgres/speed.jsonl", "file of raw results; it must not exist")
	bin      = flag.String("bin", "/usr/lib/postgresql/15/bin", "folder with initdb and postgres")
	dir      = flag.String("dir", "", "where the database goes: a real disk, not a tmpfs; empty: the folder of temporary files")
	nodejs   = flag.String("nodejs", "../.tools/node/bin/node", "Node.js")
	flexible = flag.String("flexible", ".bin/rate-limiter-flexible", "folder in which rate-limiter-flexible is installed")
	maxOther = flag.Float64("max-other", 0.5, "cores that other processes may use; the kernel's disk threads count as others")
	profile  = flag.String("cpuprofile", "", "file for a CPU profile of the callers in Go; -only should name one cell")
	show     = flag.Bool("show", false, "print the tables of a file of raw results, and measure nothing")

	call    = flag.String("call", "", "be a process of callers, of this kind: the benchmark starts itself so")
	callers = flag.Int("callers", 1, "callers, with -call")
	keys    = flag.Int("keys", 1, "keys that they take from, with -call")
	conns   = flag.Int("conns", 1, "connections, with -call, but for Drawgate's own number")
	st      = flag.String("store", "", "URL of the database, with -call")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "postgresbench:", err)
		os.Exit(1)
	}
}

// bench is a run.
type bench struct {
	only *regexp.Regexp
	out  *stat.Out
	db   *database
}

func run() (err error) {
	switch {
	case *call != "":
		return serveCalls()
	case *show:
		return showTables(flag.Arg(0))
	}
	forgetSettings()
	b := &bench{}
	if b.only, err = regexp.Compile(*only); err != nil {
		return err
	}
	server, err := sysx.StartPostgres(*bin, *dir)
	if err != nil {
		return err
	}
	defer server.Stop()
	ctx := context.Background()
	if b.db, err = connect(ctx, server); err != nil {
		return err
	}
	defer b.db.close()
	version, settings, err := b.db.about(ctx)
	if err != nil {
		return err
	}
	if b.out, err = stat.NewOut(*out, func(h *stat.Header) {
		h.Redis, h.Postgres, h.Settings = "", version, settings
	}); err != nil {
		return err
	}
	for rep := 1; rep <= *reps; rep++ {
		if err := b.round(ctx, rep); err != nil {
			return err
		}
	}
	return nil
}

// forgetSettings removes the user's settings for clients of PostgreSQL, here and in the processes
// of the callers.
func forgetSettings() {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "PG") {
			_ = os.Unsetenv(name) // the name is right
		}
	}
}

// round measures every contestant in every cell once. Each round begins with another contestant.
func (b *bench) round(ctx context.Context, rep int) error {
	for _, c := range cells {
		for i := range contestants {
			who := contestants[(i+rep)%len(contestants)]
			if c.idle && rep > 1 || !c.who.MatchString(who.name) || !b.only.MatchString(c.name+"/"+who.name) {
				continue
			}
			if err := b.measure(ctx, c, who, rep); err != nil {
				return fmt.Errorf("%s, %s: %w", c.name, who.name, err)
			}
		}
	}
	return nil
}
