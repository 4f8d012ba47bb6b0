package main

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
)

// A target is reached or missed by the median of the rounds, each compared with the other
// contestant in the same round.
func TestTargets(t *testing.T) {
	t.Parallel()
	var rows []stat.Row
	add := func(cell, who, figure string, values ...float64) {
		for i, v := range values {
			rows = append(rows, stat.Row{
				Section: "I", Name: who, Case: cell, Rep: i + 1,
				M: map[string]float64{figure: v},
			})
		}
	}
	add("hot-c64", byCounter, "ops_s", 1000, 2000, 1000)
	add("hot-c64", bucket, "ops_s", 14_000, 34_000, 15_000)
	add("hot-c64", rolling, "ops_s", 14_000, 29_000, 40_000)
	add("hot-c64", leastWork, "ops_s", 20_000, 40_000, 40_000)
	add("one-c1", byTx, "p50_us", 500, 400, 500)
	add("one-c1", bucket, "p50_us", 650, 520, 700)
	add("one-c1", rolling, "p50_us", 660, 530, 500)
	text := tables(rows)
	for target, want := range map[string]string{
		"hot-c64 drawgate-bucket ops_s to counter at least 15×":      "15.00 (14.00–17.00) reached",
		"hot-c64 drawgate-rolling ops_s to counter at least 15×":     "14.50 (14.00–40.00) missed",
		"hot-c64 drawgate-bucket ops_s to floor at least 0.7×":       "0.70 (0.38–0.85) reached",
		"one-c1 drawgate-bucket p50_us to transaction at most 1.3×":  "1.30 (1.30–1.40) reached",
		"one-c1 drawgate-rolling p50_us to transaction at most 1.3×": "1.32 (1.00–1.32) missed",
	} {
		found := false
		for line := range strings.Lines(text) {
			found = found || strings.Join(strings.Fields(line), " ") == target+" "+want
		}
		if !found {
			t.Errorf("no line says %q of %q:\n%s", want, target, text)
		}
	}
	if strings.Contains(text, "10k-c64") {
		t.Errorf("a cell that was not measured is in the tables:\n%s", text)
	}
}
