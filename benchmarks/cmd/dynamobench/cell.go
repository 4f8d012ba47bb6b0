package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
	"github.com/drawgate/drawgate/store/dynamostore"
)

const (
	region    = "us-east-1"
	tableName = "bench"
	patience  = 2 * time.Minute // how long a process may take to answer
)

// cell is one way of calling, for a time. All callers ask for one key.
type cell struct {
	name               string
	processes, callers int           // callers of each process
	warm               time.Duration // before it
	once               bool          // in the first round only
	who                *regexp.Regexp
}

var (
	all   = regexp.MustCompile(`.`)
	cells = []cell{
		{"c1", 1, 1, time.Second, false, all},
		{"c64", 1, 64, time.Second, false, all},
		{"c8x8", 8, 8, time.Second, false, regexp.MustCompile(`^drawgate-(bucket|calendar|rolling|three)$`)},
		// The windows of a minute are full: so the item has its final size.
		{"c1-full", 1, 1, 65 * time.Second, true, regexp.MustCompile(`^drawgate-(rolling|three)$`)},
	}
)

// contestant is a limiter with limits of a kind. Its callers are in processes of their own.
type contestant struct {
	name, kind string
	base       string // what it is compared with
	prepare    func(at *standin, kind string) error
	callers    func(url, kind string, callers int) (*exec.Cmd, error)
}

const (
	theirs      = "zae-limiter"
	theirsThree = "zae-limiter-three"
	again       = "drawgate-bucket-again"
)

var contestants = []contestant{
	{theirs, "bucket", "", prepareTheirs, callTheirs},
	{"drawgate-bucket", "bucket", theirs, prepareOurs, callOurs},
	{"drawgate-calendar", "calendar", theirs, prepareOurs, callOurs},
	{"drawgate-rolling", "rolling", theirs, prepareOurs, callOurs},
	{theirsThree, "three", "", prepareTheirs, callTheirs},
	{"drawgate-three", "three", theirsThree, prepareOurs, callOurs},
	{again, "bucket", "drawgate-bucket", prepareOurs, callOurs},
	{"floor-update", "floor", theirs, prepareOurs, callOurs},
}

func storeURL(endpoint string) string {
	return dynamostore.Location{Table: tableName, Region: region, Endpoint: endpoint}.String()
}

func prepareOurs(at *standin, _ string) error {
	l, err := dynamostore.ParseURL(storeURL(at.url))
	if err != nil {
		return err
	}
	c, err := dynamostore.Client(context.Background(), l)
	if err != nil {
		return err
	}
	_, _, err = dynamostore.CreateTable(context.Background(), c, l.Table, nil)
	return err
}

func callOurs(url, kind string, callers int) (*exec.Cmd, error) {
	self, err := os.Executable()
	return exec.Command(self, "-call", kind, "-callers", strconv.Itoa(callers), "-store", storeURL(url)), err //nolint:gosec,noctx // it ends with this process
}

//go:embed callers.py
var callersPy string

func prepareTheirs(at *standin, kind string) error {
	cmd, err := callTheirs(at.url, kind, 0)
	if err != nil {
		return err
	}
	c, err := sysx.StartChild(cmd)
	if err != nil {
		return err
	}
	defer c.Stop()
	select {
	case <-c.Ended:
	case <-time.After(patience):
		return errors.New("the set-up of zae-limiter does not end")
	}
	if !cmd.ProcessState.Success() {
		return errors.New(c.Complaints())
	}
	return nil
}

func callTheirs(url, kind string, callers int) (*exec.Cmd, error) {
	python, err := filepath.Abs(filepath.Join(*zae, "bin/python"))
	return exec.Command(python, "-I", "-c", callersPy, url, kind, strconv.Itoa(callers)), err //nolint:gosec,noctx // it ends with this process
}

// measure runs a cell on a stand-in of its own.
func (b *bench) measure(c cell, who contestant, rep int) error {
	s, err := startStandin()
	if err != nil {
		return err
	}
	defer s.Stop()
	if err := who.prepare(s, who.kind); err != nil {
		return err
	}
	p, err := startProxy(s.url, func() { time.Sleep(*delay) })
	if err != nil {
		return err
	}
	defer p.close()
	pids, callers := []int{s.PID()}, []*sysx.Child{}
	for range c.processes {
		cmd, err := who.callers(p.url, who.kind, c.callers)
		if err != nil {
			return err
		}
		one, err := sysx.StartChild(cmd)
		if err != nil {
			return err
		}
		defer one.Stop()
		pids, callers = append(pids, one.PID()), append(callers, one)
	}
	for _, one := range callers {
		if line, err := one.Line(patience); err != nil || line != "ready" {
			return errors.Join(err, fmt.Errorf("instead of \"ready\" it says %q", line))
		}
	}
	if _, err := callFor(callers, c.warm); err != nil {
		return err
	}
	var r *result
	g := sysx.Gate{MaxOther: *maxOther, Patience: 5 * time.Second, Tries: 2}
	u := g.Run(func() {
		p.take()
		r, err = callFor(callers, *dur)
	}, pids...)
	if err != nil {
		return err
	}
	m := r.metrics()
	calls, conns := p.take()
	if err := s.costs(m, calls, r.granted); err != nil {
		return err
	}
	var cpu time.Duration
	for _, t := range u.Procs[1:] {
		cpu += t
	}
	m["connections"], m["other_cores"] = float64(conns), u.Other
	m["client_us_op"] = float64(cpu.Microseconds()) / max(1, r.granted)
	m["standin_cpu_us_request"] = float64(u.Procs[0].Microseconds()) / max(1, float64(len(calls)))
	// What a lone take would need on a machine that does nothing else, but for the proxy's own
	// work.
	m["busy_us_op"] = m["client_us_op"] + m["requests_op"]*(m["standin_cpu_us_request"]+float64(delay.Microseconds()))
	return b.put(who.name, c.name, rep, m, strings.Join(append(operations(calls), r.errors...), ", "))
}

// result is what all callers saw.
type result struct {
	seconds, granted, failed float64
	errors                   []string
	hist                     stat.Hist
}

// callFor lets callers call for a time.
func callFor(callers []*sysx.Child, d time.Duration) (*result, error) {
	for _, one := range callers {
		if err := one.Tell(strconv.FormatFloat(d.Seconds(), 'f', -1, 64)); err != nil {
			return nil, err
		}
	}
	r := &result{}
	for _, one := range callers {
		line, err := one.Line(patience)
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
		for text := range got.Errors {
			r.errors = append(r.errors, text)
		}
		for _, us := range got.Micros {
			r.hist.Add(time.Duration(us) * time.Microsecond)
		}
	}
	return r, nil
}

func (r *result) metrics() map[string]float64 {
	return map[string]float64{
		"ops_s": r.granted / r.seconds, "errors": r.failed,
		"p50_us": r.hist.Quantile(.5), "p99_us": r.hist.Quantile(.99), "max_us": float64(r.hist.Max.Microseconds()),
	}
}

// costs adds what requests cost, for each take that was granted: units, and time in the stand-in.
func (s *standin) costs(m map[string]float64, calls []request, granted float64) error {
	t, err := s.table()
	if err != nil {
		return err
	}
	c, err := price(calls, t)
	if err != nil {
		return err
	}
	granted = max(1, granted)
	m["requests_op"] = float64(len(calls)) / granted
	m["read_units_op"], m["write_units_op"], m["index_units_op"] = c.read/granted, c.write/granted, c.index/granted
	m["item_bytes"] = float64(t.largest(calls))
	var took time.Duration
	for _, r := range calls {
		took += r.took
	}
	m["standin_us_op"] = float64(took.Microseconds()) / granted
	return nil
}

// operations are how often each was asked for.
func operations(calls []request) (texts []string) {
	n := map[string]int{}
	for _, r := range calls {
		n[r.op]++
		if !r.ok {
			n[r.op+" refused"]++
		}
	}
	for _, op := range slices.Sorted(maps.Keys(n)) {
		texts = append(texts, fmt.Sprintf("%d %s", n[op], op))
	}
	return texts
}
