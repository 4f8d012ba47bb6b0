package main

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
)

// A target is reached or missed by the median of the rounds, each compared with zae-limiter's of
// the same round; requests of a take by the most of all rounds.
func TestTargets(t *testing.T) {
	t.Parallel()
	var rows []stat.Row
	for i, base := range []float64{10, 20, 10} {
		rows = append(rows, stat.Row{Section: "H", Name: theirs, Case: "c1", M: map[string]float64{"ops_s": base}},
			stat.Row{
				Section: "H", Name: "drawgate-bucket", Case: "c1",
				M: map[string]float64{"ops_s": []float64{14, 32, 15}[i]},
			},
			stat.Row{
				Section: "H", Name: "drawgate-calendar", Case: "c1",
				M: map[string]float64{"ops_s": []float64{14, 29, 40}[i]},
			},
			stat.Row{
				Section: "H", Name: "drawgate-bucket", Case: "trip-new-bucket",
				M: map[string]float64{"requests_max": []float64{2, 3, 2}[i], "max_us": 1},
			})
	}
	text := tables(rows)
	for who, want := range map[string]string{
		"c1               drawgate-bucket    ops_s":        "1.500 (1.400–1.600)  reached",
		"c1               drawgate-calendar  ops_s":        "1.450 (1.400–4.000)  missed",
		"trip-new-bucket  drawgate-bucket    requests_max": "2.000 (2.000–3.000)  missed",
	} {
		found := false
		for line := range strings.Lines(text) {
			found = found || strings.HasPrefix(line, who) && strings.HasSuffix(strings.TrimSpace(line), want)
		}
		if !found {
			t.Errorf("no line begins with %q and ends with %q:\n%s", who, want, text)
		}
	}
}
