package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
)

// columns are what the table has of each cell: a heading, and what is below it.
var columns = []struct {
	heading string
	value   func(c string, m map[string]float64) string
}{
	{"worst 60 s", ofLimit("_rolling", "%.0f")},
	{"worst minute", ofLimit("_aligned", "%.0f")},
	{"over, 60 s", ofLimit("_over_rolling", "%.0f")},
	{"over, minute", ofLimit("_over_aligned", "%.0f")},
	{"use", ofLimit("_use_pct", "%.1f %%")},
	{"answered", of("answered", "%.0f")},
	{"refused", of("refused", "%.0f")},
	{"wait p50", of("wait_p50_s", "%.2f s")},
	{"p99", of("wait_p99_s", "%.2f s")},
	{"max", of("wait_max_s", "%.2f s")},
	{"own p50", of("own_p50_ms", "%.1f ms")},
	{"p99", of("own_p99_ms", "%.1f ms")},
	{"refusal p50", of("refusal_p50_ms", "%.0f ms")},
	{"CPU/request", of("proxy_cpu_ms_request", "%.2f ms")},
	{"cores", of("proxy_cores", "%.2f")},
}

func of(name, format string) func(string, map[string]float64) string {
	return func(_ string, m map[string]float64) string {
		v, ok := m[name]
		if !ok {
			return "-"
		}
		return fmt.Sprintf(format, v)
	}
}

// ofLimit is a figure of the limit that a cell's name begins with.
func ofLimit(name, format string) func(string, map[string]float64) string {
	return func(c string, m map[string]float64) string { return of(c[:len("rpm")]+name, format)(c, m) }
}

// table prints files of raw results for people.
func table(paths []string) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "cell\tcontestant\t")
	for _, c := range columns {
		fmt.Fprint(w, c.heading+"\t")
	}
	fmt.Fprintln(w)
	for _, path := range paths {
		if err := rows(w, path); err != nil {
			return err
		}
	}
	return w.Flush()
}

func rows(w io.Writer, path string) error {
	f, err := os.Open(path) //nolint:gosec // the caller's
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it is only read
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var row stat.Row
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if row.Section == "" {
			continue // the header
		}
		fmt.Fprintf(w, "%s\t%s\t", row.Case, row.Name)
		for _, c := range columns {
			fmt.Fprint(w, c.value(row.Case, row.M)+"\t")
		}
		fmt.Fprintln(w)
	}
	return lines.Err()
}
