// Command litellmbench puts the gateway beside LiteLLM's proxy: the same limits, callers and
// upstream, and how many calls the upstream saw. README.md of this module says how to install
// LiteLLM.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
)

var (
	only = flag.String("only", ".", "regexp of cell/contestant")
	dur  = flag.Duration("dur", 185*time.Second,
		"length of a cell with limits; for those that no run reaches it is -far")
	far     = flag.Duration("far", 20*time.Second, "length of a cell with limits that no run reaches")
	callers = flag.Int("callers", 50, "callers, each with its next call after its last answer")
	out     = flag.String("out", "results/gateway/litellm.jsonl", "file of raw results; it must not exist")
	bin     = flag.String("bin", ".bin", "folder of drawgate")
	dir     = flag.String("dir", "", "folder in which LiteLLM is installed, with venv/bin/litellm")
	show    = flag.Bool("show", false,
		"print the table of the files of raw results that are named, and measure nothing")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "litellmbench:", err)
		os.Exit(1)
	}
}

func run() error {
	if *show {
		return table(flag.Args())
	}
	re, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	o, err := stat.NewOut(*out)
	if err != nil {
		return err
	}
	for _, c := range cells {
		for _, who := range contestants {
			if who.tokensOnly && c.limits.tpm == farTokens || !re.MatchString(c.name+"/"+who.name) {
				continue
			}
			if err := measure(o, c, who); err != nil {
				return fmt.Errorf("%s, %s: %w", c.name, who.name, err)
			}
		}
	}
	return nil
}

// limits are those of a minute.
type limits struct{ rpm, tpm int64 }

// What no run reaches.
const farRequests, farTokens = 100_000_000, 2_000_000_000

func (l limits) far() bool { return l.rpm == farRequests && l.tpm == farTokens }

// cell is one experiment.
type cell struct {
	name     string
	limits   limits
	replicas int
	callers  int // 0: as many as -callers says
}

var cells = []cell{
	{"rpm-1", limits{60, farTokens}, 1, 0},
	{"rpm-2", limits{60, farTokens}, 2, 0},
	{"tpm-1", limits{farRequests, 63_000}, 1, 0},
	{"tpm-2", limits{farRequests, 63_000}, 2, 0},
	{"far-1-caller", limits{farRequests, farTokens}, 1, 1},
	{"far", limits{farRequests, farTokens}, 1, 0},
}

func measure(o *stat.Out, c cell, who contestant) error {
	s, err := setUp(c, who)
	if err != nil {
		return err
	}
	defer s.stop()
	d, n := *dur, c.callers
	if c.limits.far() {
		d = *far
	}
	if n == 0 {
		n = *callers
	}
	meter := sysx.Start(s.pids()...)
	r := load(s.addrs(), who.path, n, d)
	u := meter.Stop()
	m, err := s.referee(c.limits, d)
	if err != nil {
		return err
	}
	r.metrics(m)
	var proxies time.Duration
	for _, t := range u.Procs[1:] {
		proxies += t
	}
	m["proxy_cpu_ms_request"] = float64(proxies.Microseconds()) / 1e3 / max(1, m["requests"])
	m["proxy_cores"] = proxies.Seconds() / r.wall.Seconds()
	m["redis_cpu_ms_request"] = float64(u.Procs[0].Microseconds()) / 1e3 / max(1, m["requests"])
	m["other_cores"], m["seconds"] = u.Other, d.Seconds()
	return o.Put(stat.Row{Section: "litellm", Name: who.name, Case: c.name, Rep: 1, M: m, Note: r.note()})
}
