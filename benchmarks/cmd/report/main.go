// Command report turns raw files into Markdown tables (median, least–most), and compares them with
// the targets. Without arguments it reads all files of results/. Each table comes from one run; a
// file that is not of one run, at a commit without other changes, is refused.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	metrics = flag.String("m", "", "columns, comma separated (default: those of the section)")
	cases   = flag.String("case", ".", "regexp of cases")
	names   = flag.String("name", ".", "regexp of names")
	verdict = flag.Bool("targets", false, "show the targets instead of the tables")
	partly  = flag.Bool("measured", false, "with -targets: leave out targets and sections that were not measured")
	commit  = flag.String("commit", "", "refuse files that were measured at another commit")
)

// columns are the default columns of each section; those that a table has no values for are left
// out.
var columns = map[string]string{
	"A": "ns/op cpu=1,ns/op cpu=2,allocs/op cpu=1,allocs/op cpu=2,%allowed cpu=1,B/key cpu=1",
	"B": "ops_s,p50_us,p99_us,client_us_op,redis_us_op,allowed_pct",
	"C": "ops_s,p50_us,p99_us,server_us_op,redis_us_op,client_us_op,allowed_pct",
	"D": "ops_s,p50_us,p99_us,cpu_us_op,allowed_pct",
	"E": "admitted,over_pct,max_1s,steady_1s,errors,admitted_in_outage,admitted_1s_after,recovered_after_s",
}

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run() error {
	files := flag.Args()
	if len(files) == 0 {
		var err error
		if files, err = filepath.Glob("results/*.*"); err != nil {
			return err
		}
	}
	res, err := load(files, *commit)
	if err != nil {
		return err
	}
	rc, err := regexp.Compile(*cases)
	if err != nil {
		return err
	}
	rn, err := regexp.Compile(*names)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(os.Stdout)
	if *verdict {
		err = res.writeTargets(w, *partly)
	} else {
		res.writeTables(w, func(c cell) bool { return rc.MatchString(c.kase) && rn.MatchString(c.name) })
	}
	return errors.Join(err, w.Flush())
}

func (r *results) writeTables(w io.Writer, show func(cell) bool) {
	var tables []table // in the order of the files
	rows := map[table][]cell{}
	for _, c := range r.order {
		if !show(c) {
			continue
		}
		t := table{c.section, c.kase}
		if rows[t] == nil {
			tables = append(tables, t)
		}
		rows[t] = append(rows[t], c)
	}
	slices.SortStableFunc(tables, func(a, b table) int { return strings.Compare(a.section, b.section) })
	for _, t := range tables {
		cols := r.columnsOf(t.section, rows[t])
		fmt.Fprintf(w, "\n**%s: %s**\n\n%s\n| name | n | %s | note |\n|---|---|%s---|\n", t.section, t.kase,
			r.source[t].origin(), strings.Join(cols, " | "), strings.Repeat("---|", len(cols)))
		for _, c := range rows[t] {
			reps := 0
			var line strings.Builder
			for _, m := range cols {
				v := r.values[c][m]
				reps = max(reps, len(v))
				fmt.Fprintf(&line, " %s |", spread(v))
			}
			fmt.Fprintf(w, "| %s | %d |%s %s |\n", c.name, reps, line.String(),
				strings.ReplaceAll(r.notes[c], "|", "/"))
		}
	}
}

// columnsOf leaves out the columns that no row of the table has.
func (r *results) columnsOf(section string, rows []cell) []string {
	text := *metrics
	if text == "" {
		text = columns[section]
	}
	return slices.DeleteFunc(strings.Split(text, ","), func(m string) bool {
		return !slices.ContainsFunc(rows, func(c cell) bool { return len(r.values[c][m]) > 0 })
	})
}

// spread is the median with the least and the most.
func spread(v []float64) string {
	if len(v) == 0 {
		return "–"
	}
	lo, hi := number(slices.Min(v)), number(slices.Max(v))
	if lo == hi {
		return lo
	}
	return fmt.Sprintf("%s (%s–%s)", number(median(v)), lo, hi)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	if n == 0 {
		return 0
	}
	return (s[(n-1)/2] + s[n/2]) / 2
}

func number(v float64) string {
	switch a := max(v, -v); {
	case a >= 1e6:
		return strconv.FormatFloat(v/1e6, 'f', 2, 64) + "M"
	case a >= 1e4:
		return strconv.FormatFloat(v/1e3, 'f', 1, 64) + "k"
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
