package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
)

// target is what a figure of Drawgate should be, divided by that of another contestant in the same
// cell and round.
type target struct {
	cell, who, figure, to, how string
	met                        func(v float64) bool
}

func atLeast(least float64) func(float64) bool { return func(v float64) bool { return v >= least } }
func atMost(most float64) func(float64) bool   { return func(v float64) bool { return v <= most } }

func targets() (list []target) {
	for _, who := range []string{bucket, rolling} {
		list = append(list,
			target{"hot-c64", who, "ops_s", byCounter, "at least 15×", atLeast(15)},
			target{"hot-c64", who, "ops_s", few, "at least 15×", atLeast(15)},
			target{"hot-c64", who, "ops_s", leastWork, "at least 0.7×", atLeast(.7)},
			target{"hot-c8x8", who, "ops_s", byCounter, "at least 2×", atLeast(2)},
			target{"10k-c64", who, "ops_s", byTx, "at least 0.8×", atLeast(.8)},
			target{"one-c1", who, "p50_us", byTx, "at most 1.3×", atMost(1.3)})
	}
	return list
}

// tables prints the medians of all rounds, and holds the targets against them.
func tables(rows []stat.Row) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	writeCells(w, rows)
	writeIdle(w, rows)
	writeTargets(w, rows)
	_ = w.Flush() // a Builder takes everything
	return text.String()
}

func writeCells(w io.Writer, rows []stat.Row) {
	fmt.Fprint(w, "\ncell\tlimiter\ttakes/s (least–most)\tto the counter\tp50 µs\tp99 µs (least–most)\tCPU of the server, µs/take\tCPU of callers, µs/take\tcommits/s\ttakes/commit\tfull scans/take\trow bytes\ttable bytes\tdead rows\terrors\tothers' cores\n")
	for _, c := range cells {
		for _, who := range contestants {
			v := func(figure string) []float64 { return stat.Values(rows, c.name, who.name, figure, 1) }
			if len(v("ops_s")) == 0 {
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.0f\t%s\t%.1f\t%.1f\t%.0f\t%.1f\t%.3f\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\n", c.name, who.name,
				stat.Spread(v("ops_s"), "%.0f"),
				stat.Spread(stat.Ratios(v("ops_s"), stat.Values(rows, c.name, byCounter, "ops_s", 1)), "%.2f"),
				stat.Median(v("p50_us")), stat.Spread(v("p99_us"), "%.0f"), stat.Median(v("server_us_op")),
				stat.Median(v("client_us_op")), stat.Median(v("commits_s")), 1/stat.Median(v("commits_op")),
				stat.Median(v("seq_scans_op")),
				stat.Median(v("row_bytes")), stat.Median(v("table_bytes")), stat.Median(v("dead_rows")),
				stat.Sum(v("errors")),
				stat.Median(v("other_cores")))
		}
	}
}

func writeIdle(w io.Writer, rows []stat.Row) {
	fmt.Fprint(w, "\ncell\tlimiter\tseconds\ttakes/s in the first tenth\tin the last\tlast to first\tdead rows\ttable bytes\n")
	for _, c := range cells {
		for _, who := range contestants {
			v := func(figure string) []float64 { return stat.Values(rows, c.name, who.name, figure, 1) }
			if first, last := v("first_ops_s"), v("last_ops_s"); c.idle && len(first) > 0 {
				fmt.Fprintf(w, "%s\t%s\t%.0f\t%.0f\t%.0f\t%.3f\t%.0f\t%.0f\n", c.name, who.name, stat.Median(v("seconds")),
					stat.Median(first), stat.Median(last), stat.Median(stat.Ratios(last, first)),
					stat.Median(v("dead_rows")),
					stat.Median(v("table_bytes")))
			}
		}
	}
}

func writeTargets(w io.Writer, rows []stat.Row) {
	fmt.Fprint(w, "\ntarget\t\t\t\t\tmeasured\t\n")
	for _, t := range targets() {
		v := stat.Ratios(stat.Values(rows, t.cell, t.who, t.figure, 1), stat.Values(rows, t.cell, t.to, t.figure, 1))
		if len(v) == 0 {
			continue
		}
		verdict := "missed"
		if t.met(stat.Median(v)) {
			verdict = "reached"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\tto %s\t%s\t%s\t%s\n", t.cell, t.who, t.figure, t.to, t.how, stat.Spread(v, "%.2f"), verdict)
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
