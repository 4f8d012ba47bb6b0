package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
)

// TestLine: a target is reached or missed by the median of the rounds, each compared with the
// proxy's of the same round.
func TestLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		gateway []float64
		want    string
	}{
		{[]float64{80, 160, 74}, "0.800 (0.740, 0.800)"},
		{[]float64{74, 148, 90}, "0.740 (0.740, 0.900)"},
	} {
		b := &bench{}
		for i, base := range []float64{100, 200, 100} {
			b.rows = append(b.rows, stat.Row{Name: proxy, Case: "rps-64", M: map[string]float64{"ops_s": base}},
				stat.Row{Name: gateway, Case: "rps-64", M: map[string]float64{"ops_s": c.gateway[i]}})
		}
		got := b.line(targets[0])
		if !strings.Contains(got, c.want) || strings.Contains(got, "reached") != (c.want[:3] == "0.8") {
			t.Errorf("%v: got %q, want %s", c.gateway, got, c.want)
		}
	}
}

// TestCollections: what the runtime prints about a collection is read; other lines are not.
func TestCollections(t *testing.T) {
	t.Parallel()
	p := &sysx.Process{}
	_, _ = p.Write([]byte("level=INFO msg=listening\n" +
		"gc 1 @0.014s 4%: 0.02+0.9+0.01 ms clock, 0.05+0.2/0.6/0+0.02 ms cpu, 3->4->1 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 2 P\n" +
		"gc 2 @1.2s 0%: 0.05+11+0.02 ms clock, 0.1+0.4/2.2/0.3+0.05 ms cpu, 110->118->61 MB, 120 MB goal, 2 MB stacks, 0 MB globals, 2 P\n"))
	if got, want := collections(p), []float64{1, 61}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
