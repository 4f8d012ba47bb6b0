package telemetry

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Our histogram exports the same as the library's own, in both kinds of buckets.
func TestDurationsExportWhatPrometheusExports(t *testing.T) {
	t.Parallel()
	b := newBins(fineBuckets)
	theirs := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "h", Buckets: fineBuckets,
		NativeHistogramBucketFactor: 1.1,
	})
	ours := newDurations(b)
	observe := func(d time.Duration) {
		ours.observe(d)
		theirs.Observe(d.Seconds())
	}
	observe(0)
	for _, bound := range fineBuckets { // on the bounds, and beside them
		d := time.Duration(bound * 1e9)
		for _, off := range []time.Duration{-1, 0, 1} {
			observe(d + off)
		}
	}
	for range 10_000 {
		observe(time.Duration(rand.Int64N(1 << rand.IntN(46))))
	}
	var want dto.Metric
	if err := theirs.Write(&want); err != nil {
		t.Fatal(err)
	}
	sum := tally{n: make([]uint64, len(b.upper))}
	h := b.show(ours.tally(&sum))
	w := want.GetHistogram()
	if h.GetSampleCount() != w.GetSampleCount() || !near(h.GetSampleSum(), w.GetSampleSum()) ||
		h.GetZeroCount() != w.GetZeroCount() ||
		h.GetZeroThreshold() != w.GetZeroThreshold() || h.GetSchema() != w.GetSchema() ||
		h.GetCreatedTimestamp() == nil {
		t.Errorf("%v\nwant\n%v", h, w)
	}
	for i, bucket := range w.GetBucket() {
		if got := h.GetBucket()[i]; got.GetCumulativeCount() != bucket.GetCumulativeCount() ||
			got.GetUpperBound() != bucket.GetUpperBound() {
			t.Errorf("classic bucket %v, want %v", got, bucket)
		}
	}
	if got, want := natives(h), natives(w); !slices.Equal(got, want) {
		t.Errorf("native buckets, and their counts:\n%v, want\n%v", got, want)
	}
	if again := b.show(&sum); again.GetSampleCount() != h.GetSampleCount() ||
		!slices.Equal(natives(again), natives(h)) {
		t.Errorf("the sum of one histogram: got %v, want the same histogram", again)
	}
}

func near(a, b float64) bool { return a-b < 1e-6*b && b-a < 1e-6*b }

// natives returns the native buckets that are not empty, each with its count.
func natives(h *dto.Histogram) (all [][2]int64) {
	at, i, n := int64(0), 0, int64(0)
	for _, span := range h.GetPositiveSpan() {
		at += int64(span.GetOffset())
		for range span.GetLength() {
			if n += h.GetPositiveDelta()[i]; n > 0 {
				all = append(all, [2]int64{at, n})
			}
			i++
			at++
		}
	}
	return all
}

// Very long durations count in the last bucket. A histogram without observations is empty.
func TestLongDurationsCountInTheLastBucket(t *testing.T) {
	t.Parallel()
	b := newBins(fineBuckets)
	d := newDurations(b)
	sum := tally{n: make([]uint64, len(b.upper))}
	if h := b.show(d.tally(&sum)); h.GetSampleCount() != 0 || len(h.GetPositiveSpan()) != 0 ||
		len(h.GetBucket()) != len(fineBuckets) {
		t.Errorf("nothing observed: got %v, want an empty histogram", h)
	}
	d.observe(-time.Second)
	d.observe(1<<63 - 1)
	h := b.show(d.tally(&sum))
	if got := natives(h); h.GetSampleCount() != 2 || h.GetZeroCount() != 1 || len(got) != 1 ||
		got[0] != [2]int64{highest, 1} {
		t.Errorf("got %v, want one zero and one observation in the last bucket", h)
	}
}
