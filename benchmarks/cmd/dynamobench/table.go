package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
)

// target is what a figure of Drawgate should be: by itself, or divided by that of zae-limiter in
// the same round.
type target struct {
	cell, who, figure, how string
	by                     float64 // the figure is divided by this
	met                    func(v float64) bool
}

func atLeast(least float64) func(float64) bool { return func(v float64) bool { return v >= least } }
func atMost(most float64) func(float64) bool   { return func(v float64) bool { return v <= most } }

func targets() (list []target) {
	for _, kind := range []string{"bucket", "calendar", "rolling", "three"} {
		who := "drawgate-" + kind
		list = append(list,
			target{"c1", who, "ops_s", "at least 1.5 of zae-limiter's", 1, atLeast(1.5)},
			target{"c64", who, "ops_s", "at least zae-limiter's", 1, atLeast(1)},
			target{"c64", who, "p99_us", "at most a quarter of zae-limiter's", 1, atMost(.25)})
		if kind == "bucket" || kind == "calendar" {
			for _, cell := range []string{"c1", "c64"} {
				list = append(list, target{cell, who, "write_units_op", "at most zae-limiter's", 1, atMost(1)})
			}
		}
		for _, s := range situations {
			list = append(list, target{s.name, who, "requests_max", "at most 2", 1, atMost(2)},
				target{s.name, who, "p99_us", "below 50 ms", 1e3, atMost(50)})
		}
	}
	return list
}

// tables prints the medians of all rounds, and holds the targets against them.
func tables(rows []stat.Row) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	writeCells(w, rows)
	writeTrips(w, rows)
	writeTargets(w, rows)
	_ = w.Flush() // a Builder takes everything
	return text.String()
}

func writeCells(w io.Writer, rows []stat.Row) {
	fmt.Fprint(w, "\ncell\tlimiter\ttakes/s (least–most)\tp50 ms\tp99 ms (least–most)\trequests/take\tread units\twrite units\tof indexes\titem bytes\tin the stand-in, ms/take\tCPU of callers, ms/take\tCPU of the stand-in, ms/request\tdelay and CPU, ms/take\terrors\tothers' cores\tto\ttakes/s\tp99\n")
	for _, c := range cells {
		for _, who := range contestants {
			v := func(figure string, by float64) []float64 { return values(rows, c.name, who.name, figure, by) }
			if len(v("ops_s", 1)) == 0 {
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\t%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.0f\t%.1f\t%.2f\t%.1f\t%s\t%.0f\t%.1f\t",
				c.name, who.name, spread(v("ops_s", 1), "%.4g"), median(v("p50_us", 1e3)),
				spread(v("p99_us", 1e3), "%.4g"), median(v("requests_op", 1)), median(v("read_units_op", 1)),
				median(v("write_units_op", 1)), median(v("index_units_op", 1)),
				median(v("item_bytes", 1)), median(v("standin_us_op", 1e3)), median(v("client_us_op", 1e3)),
				median(v("standin_cpu_us_request", 1e3)), spread(v("busy_us_op", 1e3), "%.1f"), sum(v("errors", 1)),
				median(v("other_cores", 1)))
			if base := values(rows, c.name, who.base, "ops_s", 1); len(base) > 0 {
				fmt.Fprintf(w, "%s\t%s\t%s\n", who.base, spread(ratios(v("ops_s", 1), base), "%.2f×"),
					spread(ratios(v("p99_us", 1), values(rows, c.name, who.base, "p99_us", 1)), "%.3f×"))
			} else {
				fmt.Fprint(w, "\t\t\n")
			}
		}
	}
}

func writeTrips(w io.Writer, rows []stat.Row) {
	fmt.Fprintf(w, "\none caller\tlimiter\trequests/take, most\tp50 ms\tp99 ms (least–most)\tmax ms\twithout the stand-in: p50 ms\tp99 ms\tread units\twrite units\tothers' cores\n")
	for _, s := range situations {
		for _, who := range contestants {
			v := func(figure string, by float64) []float64 { return values(rows, s.name, who.name, figure, by) }
			if most := v("requests_max", 1); len(most) > 0 {
				fmt.Fprintf(w, "%s\t%s\t%.0f\t%.1f\t%s\t%.1f\t%.1f\t%s\t%.3f\t%.3f\t%.1f\n", s.name, who.name,
					slices.Max(most), median(v("p50_us", 1e3)), spread(v("p99_us", 1e3), "%.1f"),
					slices.Max(v("max_us", 1e3)), median(v("outside_p50_us", 1e3)),
					spread(v("outside_p99_us", 1e3), "%.1f"), median(v("read_units_op", 1)),
					median(v("write_units_op", 1)), median(v("other_cores", 1)))
			}
		}
	}
}

func writeTargets(w io.Writer, rows []stat.Row) {
	fmt.Fprint(w, "\ntarget\t\t\t\tmeasured\t\n")
	for _, t := range targets() {
		v := values(rows, t.cell, t.who, t.figure, t.by)
		i := slices.IndexFunc(contestants, func(c contestant) bool { return c.name == t.who })
		if base := values(rows, t.cell, contestants[i].base, t.figure, t.by); len(base) > 0 {
			v = ratios(v, base)
		}
		if len(v) == 0 {
			continue
		}
		got := median(v)
		if t.figure == "requests_max" {
			got = slices.Max(v)
		}
		verdict := "missed"
		if t.met(got) {
			verdict = "reached"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.cell, t.who, t.figure, t.how, spread(v, "%.3f"), verdict)
	}
}

// values are the figures of a contestant in a cell, by round.
func values(rows []stat.Row, cell, who, figure string, by float64) (v []float64) {
	for _, r := range rows {
		if got, ok := r.M[figure]; ok && r.Case == cell && r.Name == who {
			v = append(v, got/by)
		}
	}
	return v
}

// ratios compares round by round.
func ratios(mine, base []float64) (v []float64) {
	for i := range min(len(mine), len(base)) {
		v = append(v, mine[i]/base[i])
	}
	return v
}

func spread(v []float64, format string) string {
	if len(v) == 0 {
		return "-"
	}
	if len(v) == 1 {
		return fmt.Sprintf(format, v[0])
	}
	return fmt.Sprintf(format+" ("+format+"–"+format+")", median(v), slices.Min(v), slices.Max(v))
}

func sum(v []float64) (s float64) {
	for _, x := range v {
		s += x
	}
	return s
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v) == 0 {
		return math.NaN()
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// showTables prints the header and the tables of a file of raw results.
func showTables(path string) error {
	f, err := os.Open(path) //nolint:gosec // the caller's
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it is only read
	var rows []stat.Row
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var row stat.Row
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if row.Section == "" {
			fmt.Println(lines.Text()) // the header
			continue
		}
		rows = append(rows, row)
	}
	fmt.Print(tables(rows))
	return lines.Err()
}
