package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
)

// cell is one system in one case.
type cell struct{ section, kase, name string }

type results struct {
	headers []string
	order   []cell // as first met
	values  map[cell]map[string][]float64
	notes   map[cell]string
}

// line is a benchmark result of section A.
var line = regexp.MustCompile(`^BenchmarkA/limiter=([^/]+)/case=(\S+?)(?:-(\d+))?\s+\d+\s+(.*)$`)

// read adds a result file: JSON lines, or the text of Go benchmarks.
func (r *results) read(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var header []string // of text
	for l := range strings.Lines(string(b)) {
		l = strings.TrimSpace(l)
		switch m := line.FindStringSubmatch(l); {
		case m != nil:
			r.benchmark(cell{"A", m[2], m[1]}, m[3], strings.Fields(m[4]))
		case strings.HasPrefix(l, "{"):
			if err := r.json(path, l); err != nil {
				return err
			}
		case l != "" && !strings.HasPrefix(l, "#"):
			header = append(header, l)
		}
	}
	if len(header) > 0 {
		r.headers = append(r.headers, fmt.Sprintf("%s: %s", filepath.Base(path), strings.Join(header, ", ")))
	}
	return nil
}

func (r *results) benchmark(c cell, procs string, fields []string) {
	if procs == "" {
		procs = "1"
	}
	for i := 0; i+1 < len(fields); i += 2 {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err == nil {
			r.add(c, fields[i+1]+" cpu="+procs, v)
		}
	}
}

func (r *results) json(path, l string) error {
	var row stat.Row
	if err := json.Unmarshal([]byte(l), &row); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if row.Section == "" { // the header
		r.headers = append(r.headers, fmt.Sprintf("%s: %s", filepath.Base(path), strings.ReplaceAll(strings.Trim(l, "{}"), `"`, " ")))
		return nil
	}
	c := cell{row.Section, row.Case, row.Name}
	for m, v := range row.M {
		r.add(c, m, v)
	}
	if row.Note != "" {
		r.notes[c] = row.Note
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
