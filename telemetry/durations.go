package telemetry

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Native buckets have the bounds 2^(k/8), in seconds, which is schema 3 of Prometheus' native
// histograms. They reach from a nanosecond to a day and a half; longer durations count in the last
// one.
const (
	schema  = 3
	lowest  = -30 << schema
	highest = 17 << schema
)

// bins divide durations so that each bin lies within one classic and one native bucket. So an
// observation is one addition, and each bucket is a sum of bins.
type bins struct {
	classic []float64   // upper bounds of the classic buckets, in seconds
	upper   []float64   // of each bin, in seconds
	native  []int       // of each bin: its bucket
	first   []int       // of each native bucket, from lowest on: its first bin
	eighths [8]float64  // upper bounds of the buckets within [0.5, 1)
	shown   *dto.Metric // an empty histogram, as it is exported
}

func newBins(classic []float64) *bins {
	b := &bins{classic: classic, shown: &dto.Metric{}}
	for j := range b.eighths {
		b.eighths[j] = math.Exp2(float64(j)/8 - 1)
	}
	rest := classic
	for k := lowest; k <= highest; k++ {
		b.first = append(b.first, len(b.upper))
		top := math.Ldexp(b.eighths[k&7], k>>schema+1)
		for len(rest) > 0 && rest[0] < top {
			b.upper, b.native, rest = append(b.upper, rest[0]), append(b.native, k), rest[1:]
		}
		if len(rest) > 0 && rest[0] == top {
			rest = rest[1:]
		}
		b.upper, b.native = append(b.upper, top), append(b.native, k)
	}
	b.upper[len(b.upper)-1] = math.Inf(1)
	_ = prometheus.NewHistogram(histogram("empty", "", classic)).Write(b.shown) // it never fails
	return b
}

// find returns the bin of a duration that is positive.
func (b *bins) find(seconds float64) int {
	frac, exp := math.Frexp(seconds)
	j := 0
	for j < len(b.eighths) && b.eighths[j] < frac {
		j++
	}
	i := b.first[min(max(j+(exp-1)<<schema, lowest), highest)-lowest]
	for b.upper[i] < seconds {
		i++
	}
	return i
}

// durations is a histogram that exports the same as one of Prometheus' library, but needs only two
// additions per observation. That matters because every decision makes one, on several processors
// at once (BenchmarkObserver).
type durations struct {
	bins *bins
	none atomic.Uint64 // no time at all
	sum  atomic.Int64  // in ns
	n    []atomic.Uint64
}

func newDurations(b *bins) *durations {
	return &durations{bins: b, n: make([]atomic.Uint64, len(b.upper))}
}

func (d *durations) observe(took time.Duration) {
	if took <= 0 {
		d.none.Add(1)
		return
	}
	d.n[d.bins.find(took.Seconds())].Add(1)
	d.sum.Add(int64(took))
}

// tally is what was observed up to one instant.
type tally struct {
	none uint64
	sum  int64 // in ns
	n    []uint64
}

// tally returns what d has observed, and adds it to sum.
func (d *durations) tally(sum *tally) *tally {
	t := &tally{none: d.none.Load(), sum: d.sum.Load(), n: make([]uint64, len(d.n))}
	for i := range d.n {
		t.n[i] = d.n[i].Load()
		sum.n[i] += t.n[i]
	}
	sum.none, sum.sum = sum.none+t.none, sum.sum+t.sum
	return t
}

// show converts a tally to a histogram.
func (b *bins) show(t *tally) *dto.Histogram {
	empty := b.shown.GetHistogram()
	h := &dto.Histogram{
		CreatedTimestamp: empty.GetCreatedTimestamp(), ZeroThreshold: empty.ZeroThreshold, Schema: empty.Schema,
		ZeroCount: new(t.none), SampleSum: new(time.Duration(t.sum).Seconds()),
	}
	count, i := t.none, 0
	for _, bound := range b.classic {
		for ; b.upper[i] <= bound; i++ {
			count += t.n[i]
		}
		h.Bucket = append(h.Bucket, &dto.Bucket{CumulativeCount: new(count), UpperBound: new(bound)})
	}
	for ; i < len(t.n); i++ {
		count += t.n[i]
	}
	h.SampleCount = new(count)
	b.spans(h, t)
	return h
}

// spans adds the native buckets that are not empty, each as its difference from the previous one.
func (b *bins) spans(h *dto.Histogram, t *tally) {
	next, before := 0, int64(0)
	for i := 0; i < len(t.n); {
		k, n := b.native[i], int64(0)
		for ; i < len(t.n) && b.native[i] == k; i++ {
			n += int64(t.n[i])
		}
		if n == 0 {
			continue
		}
		if len(h.PositiveSpan) == 0 || k != next {
			h.PositiveSpan = append(h.PositiveSpan, &dto.BucketSpan{
				Offset: new(int32(k - next)),
				Length: new(uint32(0)),
			})
		}
		*h.PositiveSpan[len(h.PositiveSpan)-1].Length++
		h.PositiveDelta = append(h.PositiveDelta, n-before)
		next, before = k+1, n
	}
}

// durationsBy is a set of histograms, one per value of a label, and optionally one of their sum.
type durationsBy struct {
	*bins
	desc, total *prometheus.Desc // total may be nil
	label       string
	values      []string // of the label
	all         []*durations
}

func newDurationsBy(b *bins, name, help, label string, values []string) *durationsBy {
	v := &durationsBy{bins: b, desc: prometheus.NewDesc(name, help, []string{label}, nil), label: label, values: values}
	for range values {
		v.all = append(v.all, newDurations(b))
	}
	return v
}

// Describe implements [prometheus.Collector].
func (v *durationsBy) Describe(ch chan<- *prometheus.Desc) {
	ch <- v.desc
	if v.total != nil {
		ch <- v.total
	}
}

// Collect implements [prometheus.Collector].
func (v *durationsBy) Collect(ch chan<- prometheus.Metric) {
	sum := tally{n: make([]uint64, len(v.upper))}
	for i, d := range v.all {
		ch <- &snapshot{v.desc, []*dto.LabelPair{{Name: &v.label, Value: &v.values[i]}}, v.show(d.tally(&sum))}
	}
	if v.total != nil {
		ch <- &snapshot{v.total, nil, v.show(&sum)}
	}
}

// snapshot is a histogram as it was at an instant.
type snapshot struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	h      *dto.Histogram
}

// Desc implements [prometheus.Metric].
func (r *snapshot) Desc() *prometheus.Desc { return r.desc }

// Write implements [prometheus.Metric].
func (r *snapshot) Write(out *dto.Metric) error {
	out.Label, out.Histogram = slices.Clone(r.labels), r.h
	return nil
}
