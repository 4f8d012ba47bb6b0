package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"
)

// ours is the name of our own rows, in every section.
const ours = "drawgate"

// peerBest stands for the fastest keyed peer of section A in the same case.
const peerBest = "the fastest peer with keys"

// target is one promise about speed: ours is at most (or at least) factor times the base's median,
// in one run.
type target struct {
	section, kase, metric string
	atLeast               bool
	factor                float64
	base, baseCase        string // no base: factor is the value itself; no case: the same one
	who                   string // whose row is held against it; "" means ours
}

var targets = []target{
	{"A", "hot-allow", "allocs/op cpu=1", false, 0, "", "", ""},
	{"A", "hot-allow", "ns/op cpu=2", false, 2, "floor-gcra-atomic", "", ""},
	{"A", "hot-allow", "ns/op cpu=1", false, 2.5, "floor-gcra-atomic", "", ""},
	{"A", "hot-allow", "ns/op cpu=2", false, 1, peerBest, "", ""},
	{"A", "hot-allow", "ns/op cpu=1", false, 1, peerBest, "", ""},
	{"A", "hot-deny", "allocs/op cpu=1", false, 0, "", "", ""},
	{"A", "hot-deny", "ns/op cpu=2", false, 1, peerBest, "", ""},
	{"A", "hot-deny", "ns/op cpu=1", false, 1, peerBest, "", ""},
	{"A", "three-allow", "allocs/op cpu=1", false, 0, "", "", ""},
	{"A", "three-allow", "ns/op cpu=2", false, 1, "xtime-mutexmap", "", ""},
	{"A", "three-allow", "ns/op cpu=1", false, 1, "xtime-mutexmap", "", ""},
	{"A", "three-deny", "ns/op cpu=2", false, 1, "xtime-mutexmap", "", ""},
	{"A", "three-deny", "ns/op cpu=1", false, 1, "xtime-mutexmap", "", ""},
	{"A", "1Mkeys", "allocs/op cpu=1", false, 0, "", "", ""},
	{"A", "1Mkeys", "ns/op cpu=2", false, 1.5, "floor-gcra-sharded-map", "", ""},
	{"A", "1Mkeys", "ns/op cpu=1", false, 1.5, "floor-gcra-sharded-map", "", ""},
	{"A", "1Mkeys", "ns/op cpu=2", false, 1, peerBest, "", ""},
	{"A", "1Mkeys", "ns/op cpu=1", false, 1, peerBest, "", ""},
	{"A", "1Mkeys", "B/key cpu=1", false, 128, "", "", ""},
	{"B", "c1-hot", "ops_s", true, 1, "redis_rate", "", ""},
	{"B", "c64-hot", "ops_s", true, 1, "redis_rate", "", ""},
	{"B", "c1-hot", "redis_us_op", false, 1, "redis_rate", "", ""},
	{"B", "c64-hot", "redis_us_op", false, 1, "redis_rate", "", ""},
	{"B", "c64-10k", "redis_us_op", false, 1, "redis_rate", "", ""},
	{"B", "three-c64-10k", "redis_us_op", false, 2, "redis_rate", "c64-10k", ""},
	{"B", "c64-hot", "ops_s", true, 0.6, "floor-rueidis-batch", "", ""},
	{"B", "c512-hot", "ops_s", true, 0.6, "floor-rueidis-batch", "", ""},
	{"B", "c512-100k", "ops_s", true, 2.5, "redis_rate", "", ""},
	{"B", "three-c512-100k", "ops_s", true, 1.5, "redis_rate", "c512-100k", ""},
	{"C", "c64-hot", "ops_s", true, 0.75, "floor-noop", "", ""},
	{"C", "c64-100k", "ops_s", true, 0.75, "floor-noop", "", ""},
	{"C", "c512-100k", "ops_s", true, 0.75, "floor-noop", "", ""},
	{"C", "c64-hot", "server_us_op", false, 1.5, "floor-noop", "", ""},
	{"C", "c64-100k", "server_us_op", false, 1.5, "floor-noop", "", ""},
	{"C", "c512-100k", "server_us_op", false, 1.5, "floor-noop", "", ""},
	{"C", "open5k-100k", "server_us_op", false, 1.5, "floor-noop", "", ""},
	{"C", "c64-hot", "ops_s", true, 0.9, "drawgate-bare", "", ""},
	{"C", "c64-100k", "ops_s", true, 0.9, "drawgate-bare", "", ""},
	{"C", "c512-100k", "ops_s", true, 0.9, "drawgate-bare", "", ""},
	{"C", "c64-100k", "ops_s", true, 1, "envoy-ratelimit", "", "drawgate-redis"},
	{"C", "c512-100k", "ops_s", true, 1, "envoy-ratelimit", "", "drawgate-redis"},
	{"C", "c64-100k", "server_us_op", false, 0.6, "envoy-ratelimit", "", "drawgate-redis"},
	{"C", "c512-100k", "server_us_op", false, 0.6, "envoy-ratelimit", "", "drawgate-redis"},
	{"C", "open5k-100k", "server_us_op", false, 0.6, "envoy-ratelimit", "", "drawgate-redis"},
	{"C", "open10k-100k", "ops_s", true, 1, "envoy-ratelimit", "", "drawgate-redis"},
	{"C", "open10k-100k", "server_us_op", false, 0.6, "envoy-ratelimit", "", "drawgate-redis"},
	{"C", "c64-hot", "ops_s", true, 0.75, "floor-noop-http", "", "drawgate-http"},
	{"C", "c64-100k", "ops_s", true, 0.75, "floor-noop-http", "", "drawgate-http"},
	{"C", "c512-100k", "ops_s", true, 0.75, "floor-noop-http", "", "drawgate-http"},
	{"C", "c64-hot", "ops_s", true, 0.9, "drawgate-http-bare", "", "drawgate-http"},
	{"C", "c64-100k", "ops_s", true, 0.9, "drawgate-http-bare", "", "drawgate-http"},
	{"C", "c512-100k", "ops_s", true, 0.9, "drawgate-http-bare", "", "drawgate-http"},
	{"D", "c64-1key", "ops_s", true, 0.7, "floor-group-commit", "", ""},
	{"D", "c64-1000keys", "ops_s", true, 0.7, "floor-group-commit", "", ""},
	{"D", "c64-1key", "ops_s", true, 8, "floor-tx-per-take", "", ""},
	{"D", "c64-1000keys", "ops_s", true, 4, "floor-tx-per-take", "", ""},
}

// writeTargets writes a table for each section. What was not measured is named, or left out if only
// is set.
func (r *results) writeTargets(w io.Writer, only bool) error {
	for _, section := range []string{"A", "B", "C", "D"} {
		if err := r.writeSection(w, section, only); err != nil {
			return err
		}
	}
	return nil
}

// writeSection writes the targets of one section. It refuses rows that come from several runs.
func (r *results) writeSection(w io.Writer, section string, only bool) error {
	files := r.files(section)
	if len(files) == 0 && only {
		return nil
	}
	if len(files) == 0 {
		fmt.Fprintf(w, "\n**Targets of section %s**: not measured.\n", section)
		return nil
	}
	if len(files) > 1 {
		return fmt.Errorf("section %s has rows from %s and %s; its targets need one run", section, files[0].path,
			files[1].path)
	}
	fmt.Fprintf(w, "\n**Targets of section %s**\n\n%s\n| case | figure | target | target value | Drawgate | |\n|---|---|---|---|---|---|\n",
		section, files[0].origin())
	for _, t := range targets {
		if t.section == section && (!only || r.measured(t)) {
			r.writeTarget(w, t)
		}
	}
	return nil
}

// measured reports whether both Drawgate and the base of a target were measured.
func (r *results) measured(t target) bool {
	return len(r.values[cell{t.section, t.kase, cmp.Or(t.who, ours)}][t.metric]) > 0 && !math.IsNaN(r.base(t))
}

func (r *results) writeTarget(w io.Writer, t target) {
	want := t.factor * r.base(t)
	got, reached := "–", "not measured"
	if r.measured(t) {
		m := median(r.values[cell{t.section, t.kase, cmp.Or(t.who, ours)}][t.metric])
		got, reached = number(m), "**missed**"
		if (t.atLeast && m >= want) || (!t.atLeast && m <= want) {
			reached = "reached"
		}
	}
	asks := "–" // the base was not measured
	if !math.IsNaN(want) {
		asks = number(want)
	}
	fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", strings.TrimSpace(t.kase+" "+t.who), t.metric, t, asks, got,
		reached)
}

// String is the target in words.
func (t target) String() string {
	s := "at most "
	if t.atLeast {
		s = "at least "
	}
	s += number(t.factor)
	if t.base != "" {
		s += "× " + strings.TrimSpace(t.base+" "+t.baseCase)
	}
	return s
}

// base is the base's median, NaN if there is none.
func (r *results) base(t target) float64 {
	kase := t.baseCase
	if kase == "" {
		kase = t.kase
	}
	names := []string{t.base}
	switch t.base {
	case "":
		return 1
	case peerBest:
		names = r.keyedPeers()
	}
	best := math.NaN()
	for _, n := range names {
		if v := r.values[cell{t.section, kase, n}][t.metric]; len(v) > 0 && !(best <= median(v)) {
			best = median(v)
		}
	}
	return best
}
