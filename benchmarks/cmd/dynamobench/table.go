package main

import (
	"fmt"
	"io"
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
			v := func(figure string, by float64) []float64 { return stat.Values(rows, c.name, who.name, figure, by) }
			if len(v("ops_s", 1)) == 0 {
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\t%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.0f\t%.1f\t%.2f\t%.1f\t%s\t%.0f\t%.1f\t",
				c.name, who.name, stat.Spread(v("ops_s", 1), "%.4g"), stat.Median(v("p50_us", 1e3)),
				stat.Spread(v("p99_us", 1e3), "%.4g"), stat.Median(v("requests_op", 1)),
				stat.Median(v("read_units_op", 1)),
				stat.Median(v("write_units_op", 1)), stat.Median(v("index_units_op", 1)),
				stat.Median(v("item_bytes", 1)), stat.Median(v("standin_us_op", 1e3)),
				stat.Median(v("client_us_op", 1e3)),
				stat.Median(v("standin_cpu_us_request", 1e3)), stat.Spread(v("busy_us_op", 1e3), "%.1f"),
				stat.Sum(v("errors", 1)),
				stat.Median(v("other_cores", 1)))
			if base := stat.Values(rows, c.name, who.base, "ops_s", 1); len(base) > 0 {
				fmt.Fprintf(w, "%s\t%s\t%s\n", who.base, stat.Spread(stat.Ratios(v("ops_s", 1), base), "%.2f×"),
					stat.Spread(stat.Ratios(v("p99_us", 1), stat.Values(rows, c.name, who.base, "p99_us", 1)), "%.3f×"))
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
			v := func(figure string, by float64) []float64 { return stat.Values(rows, s.name, who.name, figure, by) }
			if most := v("requests_max", 1); len(most) > 0 {
				fmt.Fprintf(w, "%s\t%s\t%.0f\t%.1f\t%s\t%.1f\t%.1f\t%s\t%.3f\t%.3f\t%.1f\n", s.name, who.name,
					slices.Max(most), stat.Median(v("p50_us", 1e3)), stat.Spread(v("p99_us", 1e3), "%.1f"),
					slices.Max(v("max_us", 1e3)), stat.Median(v("outside_p50_us", 1e3)),
					stat.Spread(v("outside_p99_us", 1e3), "%.1f"), stat.Median(v("read_units_op", 1)),
					stat.Median(v("write_units_op", 1)), stat.Median(v("other_cores", 1)))
			}
		}
	}
}

func writeTargets(w io.Writer, rows []stat.Row) {
	fmt.Fprint(w, "\ntarget\t\t\t\tmeasured\t\n")
	for _, t := range targets() {
		v := stat.Values(rows, t.cell, t.who, t.figure, t.by)
		i := slices.IndexFunc(contestants, func(c contestant) bool { return c.name == t.who })
		if base := stat.Values(rows, t.cell, contestants[i].base, t.figure, t.by); len(base) > 0 {
			v = stat.Ratios(v, base)
		}
		if len(v) == 0 {
			continue
		}
		got := stat.Median(v)
		if t.figure == "requests_max" {
			got = slices.Max(v)
		}
		verdict := "missed"
		if t.met(got) {
			verdict = "reached"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.cell, t.who, t.figure, t.how, stat.Spread(v, "%.3f"), verdict)
	}
}

// showTables prints the header and the tables of a file of raw results.
func showTables(path string) error {
	header, rows, err := stat.ReadRows(path)
	if err != nil {
		return err
	}
	fmt.Println(header)
	fmt.Print(tables(rows))
	return nil
}
