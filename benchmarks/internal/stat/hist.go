// Package stat holds the latency histogram and the result files.
package stat

import (
	"iter"
	"math"
	"math/bits"
	"time"
)

const (
	perOctave = 64 // error below 1.6 %
	octaves   = 40 // up to hours
)

// Hist is a log-linear histogram of durations. It has one writer.
type Hist struct {
	counts [perOctave * octaves]uint64
	n      uint64
	Max    time.Duration
}

func index(v uint64) int {
	if v < perOctave {
		return int(v)
	}
	e := bits.Len64(v) - bits.Len(perOctave)
	return min(perOctave*e+int(v>>e), perOctave*octaves-1)
}

func value(i int) uint64 {
	if i < 2*perOctave {
		return uint64(i)
	}
	e := i/perOctave - 1
	return uint64(i%perOctave+perOctave) << e
}

// Add counts d, which is not negative.
func (h *Hist) Add(d time.Duration) { h.AddN(d, 1) }

// AddN counts d n times.
func (h *Hist) AddN(d time.Duration, n uint64) {
	h.counts[index(uint64(d))] += n
	h.n += n
	h.Max = max(h.Max, d)
}

// Merge adds all of o.
func (h *Hist) Merge(o *Hist) {
	for i, v := range o.counts {
		h.counts[i] += v
	}
	h.n += o.n
	h.Max = max(h.Max, o.Max)
}

// All yields the durations, within the histogram's precision, and how often each was counted.
func (h *Hist) All() iter.Seq2[time.Duration, uint64] {
	return func(yield func(time.Duration, uint64) bool) {
		for i, n := range h.counts {
			if n > 0 && !yield(time.Duration(value(i)), n) {
				return
			}
		}
	}
}

// Quantile is the q-quantile in microseconds, NaN of nothing.
func (h *Hist) Quantile(q float64) float64 {
	if h.n == 0 {
		return math.NaN()
	}
	rank := uint64(math.Ceil(q * float64(h.n)))
	var seen uint64
	for i, v := range h.counts {
		if seen += v; seen >= rank {
			return float64(value(i)) / 1e3
		}
	}
	return math.NaN()
}
