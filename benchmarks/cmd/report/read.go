package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
)

// cell is one system in one case.
type cell struct{ section, kase, name string }

// table is one case of a section: what is shown together, and so must be of one run.
type table struct{ section, kase string }

// results are what the raw files say. Each file is one run: of one commit without other changes,
// by one command. Each table comes from one file.
type results struct {
	order  []cell // as first met
	values map[cell]map[string][]float64
	notes  map[cell]string
	source map[table]*file
}

// file is one raw file while it is read.
type file struct {
	path   string
	header stat.Header
	rep    int             // the repetition that the lines of text belong to
	seen   map[string]bool // each measurement of each repetition
}

// line is a benchmark result of section A.
var line = regexp.MustCompile(`^BenchmarkA/limiter=([^/]+)/case=(\S+?)(?:-(\d+))?\s+\d+\s+(.*)$`)

// load reads raw files. It refuses what cannot be shown as one run: a file without a complete
// header, of a tree with changes that no commit has, or of several runs; a table that several files
// have rows for; and, if commit is not empty, a file of another commit.
func load(paths []string, commit string) (*results, error) {
	r := &results{values: map[cell]map[string][]float64{}, notes: map[cell]string{}, source: map[table]*file{}}
	for _, path := range paths {
		f := &file{path: path, seen: map[string]bool{}}
		if err := r.read(f); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if !strings.HasPrefix(f.header.Commit, commit) {
			return nil, fmt.Errorf("%s: measured at commit %s, want %s", path, f.header.Commit, commit)
		}
	}
	return r, nil
}

// read adds a raw file: JSON lines, or the text of Go benchmarks.
func (r *results) read(f *file) error {
	b, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	n := 0
	for l := range strings.Lines(string(b)) {
		n++
		if err := r.line(f, strings.TrimSpace(l)); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return check(f.header)
}

// line adds one line of a raw file.
func (r *results) line(f *file, l string) error {
	if m := line.FindStringSubmatch(l); m != nil {
		return r.benchmark(f, cell{"A", m[2], m[1]}, m[3], strings.Fields(m[4]))
	}
	if strings.HasPrefix(l, "{") {
		return r.json(f, l)
	}
	if rep, ok := strings.CutPrefix(l, "# repetition "); ok {
		var err error
		f.rep, err = strconv.Atoi(rep)
		return err
	}
	if key, value, ok := strings.Cut(l, ": "); ok && !strings.HasPrefix(l, "#") {
		return f.set(key, value)
	}
	return nil
}

// set notes one line of a header in text.
func (f *file) set(key, value string) error {
	h := &f.header
	field, ok := map[string]*string{
		"commit": &h.Commit, "go": &h.Go, "cpu": &h.CPU, "at": &h.At,
		"command": &h.Command,
	}[key]
	if !ok {
		return nil
	}
	if *field != "" {
		return secondRun(key, value)
	}
	*field = value
	return nil
}

func secondRun(key, value string) error {
	return fmt.Errorf("a second run begins (%s: %s); each run needs a file of its own", key, value)
}

// check returns an error if a file with this header cannot be cited.
func check(h stat.Header) error {
	var missing []string
	for _, f := range []struct{ name, value string }{
		{"commit", h.Commit}, {"go", h.Go}, {"cpu", h.CPU}, {"at", h.At}, {"command", h.Command},
	} {
		if f.value == "" {
			missing = append(missing, f.name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the header lacks %s", strings.Join(missing, ", "))
	}
	if strings.HasSuffix(h.Commit, "-dirty") {
		return fmt.Errorf("measured with changes that are in no commit (%s); commit them and measure again", h.Commit)
	}
	return nil
}

func (r *results) benchmark(f *file, c cell, procs string, fields []string) error {
	if procs == "" {
		procs = "1"
	}
	if err := r.begin(f, c, f.rep, " on "+procs+" CPUs"); err != nil {
		return err
	}
	for i := 0; i+1 < len(fields); i += 2 {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err == nil {
			r.add(c, fields[i+1]+" cpu="+procs, v)
		}
	}
	return nil
}

func (r *results) json(f *file, l string) error {
	var row stat.Row
	if err := json.Unmarshal([]byte(l), &row); err != nil {
		return err
	}
	if row.Section == "" {
		var h stat.Header
		if err := json.Unmarshal([]byte(l), &h); err != nil {
			return err
		}
		if f.header != (stat.Header{}) {
			return secondRun("commit", h.Commit)
		}
		f.header = h
		return nil
	}
	c := cell{row.Section, row.Case, row.Name}
	if err := r.begin(f, c, row.Rep, ""); err != nil {
		return err
	}
	for m, v := range row.M {
		r.add(c, m, v)
	}
	if row.Note != "" {
		r.notes[c] = row.Note
	}
	return nil
}

// begin returns an error if a measurement does not belong to the run of its file, or to the one
// file of its table. more tells measurements of one cell and repetition apart.
func (r *results) begin(f *file, c cell, rep int, more string) error {
	if f.header.Commit == "" {
		return errors.New("a measurement stands before the header, which names the commit")
	}
	id := fmt.Sprintf("%s: %s of %s%s, repetition %d", c.section, c.kase, c.name, more, rep)
	if f.seen[id] {
		return fmt.Errorf("%s is here twice: this file holds more than one run", id)
	}
	f.seen[id] = true
	t := table{c.section, c.kase}
	if r.source[t] == nil {
		r.source[t] = f
	}
	if first := r.source[t]; first != f {
		return fmt.Errorf("table %s: %s has rows from %s too; a table is of one run", c.section, c.kase, first.path)
	}
	return nil
}

func (r *results) add(c cell, metric string, v float64) {
	if r.values[c] == nil {
		r.values[c] = map[string][]float64{}
		r.order = append(r.order, c)
	}
	r.values[c][metric] = append(r.values[c][metric], v)
}

// origin names the raw file that a table comes from, its commit and its command, in Markdown.
func (f *file) origin() string {
	return fmt.Sprintf("From [%s](%s), measured at commit %s (%s, %s, %s) by:\n\n    %s\n",
		f.path, f.path, f.header.Commit, f.header.At, f.header.Go, f.header.CPU, f.header.Command)
}

// files are the raw files that a section has rows of.
func (r *results) files(section string) []*file {
	var fs []*file
	for _, c := range r.order {
		if f := r.source[table{c.section, c.kase}]; c.section == section && !slices.Contains(fs, f) {
			fs = append(fs, f)
		}
	}
	return fs
}

// keyedPeers are the systems of section A, apart from ours and the floors, that have a limit per
// key.
func (r *results) keyedPeers() []string {
	var names []string
	for _, c := range r.order {
		if c.section == "A" && c.kase == "1Mkeys" && c.name != ours && !strings.HasPrefix(c.name, "floor-") {
			names = append(names, c.name)
		}
	}
	return names
}
