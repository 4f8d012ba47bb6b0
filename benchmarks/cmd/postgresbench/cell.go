package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
	"github.com/drawgate/drawgate/benchmarks/lim"
)

const (
	patience = 2 * time.Minute // how long a process may take to answer
	warm     = time.Second     // how long callers run before a cell
	ready    = 50 * time.Millisecond
)

// cell is one way of calling, for a time.
type cell struct {
	name                     string
	processes, callers, keys int  // callers of each process
	idle                     bool // a transaction is open beside it
	who                      *regexp.Regexp
}

var cells = []cell{
	{"hot-c64", 1, 64, 1, false, regexp.MustCompile(`.`)},
	{"hot-c8x8", 8, 8, 1, false, regexp.MustCompile(`^(drawgate-(bucket|rolling)|counter|transaction)$`)},
	{"10k-c64", 1, 64, 10_000, false, notFloors},
	{"one-c1", 1, 1, 1, false, notFloors},
	{"idle", 1, 64, 1, true, regexp.MustCompile(`^(drawgate-rolling|counter)$`)},
}

var notFloors = regexp.MustCompile(`^(drawgate-(bucket|rolling)|counter|transaction|rate-limiter-flexible)$`)

// contestant is a limiter. Its callers are in processes of their own.
type contestant struct {
	name, kind string
	table      string // that has the buckets
	create     string // makes it; empty: the contestant does
	insert     string // adds rows for the keys $1
	conns      int    // connections of a process; 0: one for each caller, or the contestant's own number
	callers    func(who *contestant, url string, c cell) (*exec.Cmd, error)
}

const (
	bucket, rolling = "drawgate-bucket", "drawgate-rolling"
	byCounter, few  = "counter", "counter-10" // with 64 connections, and with 10
	byTx, leastWork = "transaction", "floor"
)

const (
	insertCounters = `INSERT INTO c (key, used, lim) SELECT k, 0, 100000000 FROM unnest($1::text[]) AS k`
	insertFloor    = `INSERT INTO f (key, record) SELECT k, '' FROM unnest($1::text[]) AS k`
)

var contestants = []contestant{
	{byCounter, "counter", "c", counterTable, insertCounters, 0, callGo},
	{bucket, "bucket", "drawgate_bucket", "", "", 0, callGo},
	{rolling, "rolling", "drawgate_bucket", "", "", 0, callGo},
	{leastWork, "floor", "f", floorTable, insertFloor, 0, callGo},
	{byTx, "tx", "c", counterTable, insertCounters, 0, callGo},
	{"drawgate-history", "history", "drawgate_bucket", "", "", 0, callGo},
	{"drawgate-rolling-again", "rolling", "drawgate_bucket", "", "", 0, callGo},
	{"floor-yield", "floor-yield", "f", floorTable, insertFloor, 0, callGo},
	{"rate-limiter-flexible", "", "rlflx", "", "", 0, callNode},
	{few, "counter", "c", counterTable, insertCounters, 10, callGo},
	{"rate-limiter-flexible-10", "", "rlflx", "", "", 10, callNode},
}

func callGo(who *contestant, url string, c cell) (*exec.Cmd, error) {
	self, err := os.Executable()
	return exec.Command(self, "-call", who.kind, "-callers", strconv.Itoa(c.callers), "-keys", strconv.Itoa(c.keys), //nolint:gosec,noctx // it ends with this process
		"-store", url+"&search_path="+schema, "-conns", strconv.Itoa(cmp.Or(who.conns, c.callers)), "-cpuprofile",
		*profile), err
}

//go:embed callers.js
var callersJS string

func callNode(who *contestant, url string, c cell) (*exec.Cmd, error) {
	node, err := filepath.Abs(*nodejs)
	cmd := exec.Command(node, "-e", callersJS, "--", url, schema, strconv.Itoa(c.callers), strconv.Itoa(c.keys), //nolint:gosec,noctx // it ends with this process
		strconv.Itoa(cmp.Or(who.conns, c.callers)))
	// It finds its packages there.
	cmd.Dir = *flexible
	return cmd, err
}

// measure runs a cell with tables of its own.
func (b *bench) measure(ctx context.Context, c cell, who contestant, rep int) error {
	if err := b.prepare(ctx, c, who); err != nil {
		return err
	}
	before, err := b.db.commits(ctx)
	if err != nil {
		return err
	}
	procs, err := start(c, who, b.db.server.URL())
	for _, p := range procs {
		defer p.Stop()
	}
	if err != nil {
		return err
	}
	if err := b.db.analyze(ctx, schema+"."+who.table); err != nil {
		return err
	}
	total := float64(c.keys * c.processes) // of all takes
	w, err := callFor(procs, warm)
	if err != nil {
		return err
	}
	total += w.granted
	length, parts, others := *dur, 1, 0
	if c.idle {
		end, err := b.db.openIdle(ctx)
		if err != nil {
			return err
		}
		defer end() //nolint:errcheck // nothing was written
		length, parts, others = *idle, 10, 1
	}
	var r *result
	u := b.gate(c).Run(func() {
		if r, err = callInParts(procs, length, parts); err == nil {
			total += r.granted
		}
	}, pids(procs)...)
	if err != nil {
		return err
	}
	for _, p := range procs {
		if err := p.Leave(patience); err != nil {
			return err
		}
	}
	if err := b.db.quiet(ctx, others); err != nil {
		return err
	}
	m := r.metrics()
	if err := b.addServer(ctx, m, who, before, total); err != nil {
		return err
	}
	m["server_us_op"] = perOp(u.Server, r.granted)
	m["client_us_op"] = 0
	for _, d := range u.Procs {
		m["client_us_op"] += perOp(d, r.granted)
	}
	m["other_cores"] = u.Other
	return b.out.Put(stat.Row{
		Section: "I", Name: who.name, Case: c.name, Rep: rep, M: m,
		Note: strings.Join(r.errors, ", "),
	})
}

// prepare makes the contestant's tables.
func (b *bench) prepare(ctx context.Context, c cell, who contestant) error {
	if err := b.db.clear(ctx); err != nil {
		return err
	}
	if who.create != "" {
		if _, err := b.db.conn.Exec(ctx, who.create); err != nil {
			return err
		}
		if _, err := b.db.conn.Exec(ctx, who.insert, lim.Keys(c.keys)); err != nil {
			return err
		}
	}
	return b.db.checkpoint(ctx)
}

// start starts the processes, and waits until each has taken once from each key.
func start(c cell, who contestant, url string) (procs []*sysx.Child, err error) {
	for range c.processes {
		cmd, err := who.callers(&who, url, c)
		if err != nil {
			return procs, err
		}
		p, err := sysx.StartChild(cmd)
		if err != nil {
			return procs, err
		}
		procs = append(procs, p)
	}
	for _, p := range procs {
		if line, err := p.Line(patience); err != nil || line != "ready" {
			return procs, errors.Join(err, fmt.Errorf("instead of \"ready\" it says %q", line))
		}
	}
	return procs, nil
}

func pids(procs []*sysx.Child) (all []int) {
	for _, p := range procs {
		all = append(all, p.PID())
	}
	return all
}

// gate waits for a quiet machine. The cell with an idle transaction is not repeated: its tables
// would not be as they were.
func (b *bench) gate(c cell) sysx.Gate {
	g := sysx.Gate{MaxOther: *maxOther, Patience: 5 * time.Second, Tries: 2, Server: b.db.server.PID()}
	if c.idle {
		g.Tries = 1
	}
	return g
}

// addServer adds what the server says of a cell. Its counts are complete only when the clients have
// left, so commits are those of all takes, divided by their number.
func (b *bench) addServer(ctx context.Context, m map[string]float64, who contestant, before int64,
	total float64,
) error {
	after, err := b.db.commits(ctx)
	if err != nil {
		return err
	}
	s, err := b.db.sizes(ctx, schema+"."+who.table)
	if err != nil {
		return err
	}
	m["commits_op"] = float64(after-before) / max(1, total)
	m["commits_s"] = m["commits_op"] * m["ops_s"]
	m["table_bytes"], m["dead_rows"], m["row_bytes"] = float64(s.bytes), float64(s.dead), float64(s.row)
	m["seq_scans_op"] = float64(s.seqScans) / max(1, total)
	return nil
}

func perOp(d time.Duration, ops float64) float64 { return float64(d.Nanoseconds()) / 1e3 / max(1, ops) }

// result is what all callers saw.
type result struct {
	seconds, granted, failed float64
	first, last              float64 // takes a second in the first and the last part
	errors                   []string
	hist                     stat.Hist
}

// callInParts lets callers call for a time, in parts of equal length.
func callInParts(procs []*sysx.Child, d time.Duration, parts int) (*result, error) {
	all := &result{}
	for i := range parts {
		r, err := callFor(procs, d/time.Duration(parts))
		if err != nil {
			return nil, err
		}
		all.last = r.granted / r.seconds
		if i == 0 {
			all.first = all.last
		}
		all.seconds, all.granted, all.failed = all.seconds+r.seconds, all.granted+r.granted, all.failed+r.failed
		all.errors = append(all.errors, r.errors...)
		all.hist.Merge(&r.hist)
	}
	return all, nil
}

// callFor lets callers call for a time. All begin at one instant of the machine's clock.
func callFor(procs []*sysx.Child, d time.Duration) (*result, error) {
	begin := time.Now().Add(ready)
	for _, p := range procs {
		if err := p.Tell(fmt.Sprintf(order, begin.UnixNano(), d.Nanoseconds())); err != nil {
			return nil, err
		}
	}
	r := &result{}
	for _, p := range procs {
		line, err := p.Line(d + patience)
		if err != nil {
			return nil, err
		}
		var got report
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			return nil, fmt.Errorf("%w: %s", err, line)
		}
		r.seconds = max(r.seconds, got.Seconds)
		r.granted += float64(got.Granted)
		r.failed += float64(got.Failed)
		if got.Errors != "" {
			r.errors = append(r.errors, got.Errors)
		}
		for ns, n := range got.Nanos {
			r.hist.AddN(time.Duration(ns), n)
		}
	}
	return r, nil
}

func (r *result) metrics() map[string]float64 {
	return map[string]float64{
		"ops_s": r.granted / r.seconds, "seconds": r.seconds, "first_ops_s": r.first, "last_ops_s": r.last,
		"errors": r.failed,
		"p50_us": r.hist.Quantile(.5), "p99_us": r.hist.Quantile(.99), "max_us": float64(r.hist.Max.Microseconds()),
	}
}
