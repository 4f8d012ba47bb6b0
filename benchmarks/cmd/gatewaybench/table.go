package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
)

// target is what a figure of the gateway should be, compared with the proxy's in the same round.
type target struct {
	cell, figure string
	how          string
	compare      func(gateway, proxy float64) float64
	unit         string
	most         float64 // or least, if it is negative
}

func ratio(a, b float64) float64   { return a / b }
func laterMs(a, b float64) float64 { return (a - b) / 1e3 }
func itself(a, _ float64) float64  { return a }

var targets = []target{
	{"rps-64", "ops_s", "at least 0.75 of the proxy's", ratio, "", -0.75},
	{"rps-64-bare", "ops_s", "at least 0.7 of the proxy's", ratio, "", -0.7},
	{"lone", "p50_us", "at most 1.3 times the proxy's", ratio, "", 1.3},
	{"lone-bare", "p50_us", "at most 1.35 times the proxy's", ratio, "", 1.35},
	{"first-byte", "first_p50_us", "at most 1 ms later", laterMs, " ms", 1},
	{"first-byte-bare", "first_p50_us", "at most 1 ms later", laterMs, " ms", 1},
	{"first-byte-16", "first_p50_us", "", laterMs, " ms", math.Inf(1)},
	{"rps-64", "cpu_us_call", "", ratio, "", math.Inf(1)},
	{"rps-64", "all_cpu_us_call", "", ratio, "", math.Inf(1)},
	{"rps-64-bare", "cpu_us_call", "", ratio, "", math.Inf(1)},
	{"rps-64-bare", "all_cpu_us_call", "", ratio, "", math.Inf(1)},
	{"streams", "cut", "none", itself, "", 0},
	{"streams", "different", "none", itself, "", 0},
	{"held-back", "held_back", "none", itself, "", 0},
	{"memory", "live_mb_growth", "at most 5 % from start to end", itself, " %", 5},
	{"memory", "rss_mb_growth", "at most 5 % from middle to end", itself, " %", 5},
}

// writeTable prints the medians of all cells, and holds the targets against them.
func (b *bench) writeTable() error {
	o, err := stat.NewOut(*summary)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\ncell\tfigure\tdirect\tproxy\tgateway\tgateway to proxy (least, most)\tproxy-again to proxy\ttarget\t")
	for _, t := range targets {
		if found := b.values(gateway, t.cell, t.figure); len(found) > 0 {
			fmt.Fprintln(w, b.line(t))
		}
	}
	for _, r := range b.rows {
		switch r.Case {
		case "streams":
			fmt.Fprintf(w, "streams of %s\t%.0f\tcut short\t%.0f\tdifferent\t%.0f\t\t\t\n", r.Name, r.M["streams"],
				r.M["cut"], r.M["different"])
		case "held-back":
			fmt.Fprintf(w, "events of %s\t%.0f\tstreams\t%.0f\theld back\t%.0f\t\t\t\n", r.Name, r.M["events"],
				r.M["streams"], r.M["held_back"])
		case "memory":
			for _, kind := range []string{"rss", "live"} {
				fmt.Fprintf(w, "memory of %s\t%s, MB\tbefore %.0f\tstart %.0f\tmiddle %.0f\tend %.0f\tafter %.0f\t\t\n",
					r.Name, kind,
					r.M[kind+"_mb_before"], r.M[kind+"_mb_start"], r.M[kind+"_mb_middle"], r.M[kind+"_mb_end"],
					r.M[kind+"_mb_after"])
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return o.Text(text.String())
}

// line is the row of a figure.
func (b *bench) line(t target) string {
	base := b.values(proxy, t.cell, t.figure)
	mine := against(b.values(gateway, t.cell, t.figure), base, t.compare)
	again := against(b.values(proxyAgain, t.cell, t.figure), base, t.compare)
	got := median(mine)
	verdict := ""
	if t.how != "" {
		verdict = t.how + ": missed"
		if t.most >= 0 && got <= t.most || t.most < 0 && got >= -t.most {
			verdict = t.how + ": reached"
		}
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%.3f%s (%.3f, %.3f)\t%s\t%s\t", t.cell, t.figure,
		show(b.values(direct, t.cell, t.figure)), show(base),
		show(b.values(gateway, t.cell, t.figure)), got, t.unit, slices.Min(mine), slices.Max(mine), show(again),
		verdict)
}

// values are the figures of a contestant in a cell, by round.
func (b *bench) values(who, cell, figure string) (v []float64) {
	for _, r := range b.rows {
		if r.Name == who && r.Case == cell {
			v = append(v, r.M[figure])
		}
	}
	return v
}

// against compares round by round.
func against(mine, base []float64, compare func(a, b float64) float64) (v []float64) {
	for i := range min(len(mine), len(base)) {
		v = append(v, compare(mine[i], base[i]))
	}
	return v
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v) == 0 {
		return math.NaN()
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func show(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.4g", median(v))
}
