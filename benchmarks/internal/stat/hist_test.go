package stat

import (
	"math"
	"testing"
	"time"
)

func TestQuantileIsWithinTheStatedError(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{0, 1, 63, 64, 65, 127, 128, 1000, 123456, time.Second, time.Hour} {
		var h Hist
		h.Add(d)
		want := float64(d) / 1e3
		if got := h.Quantile(0.99); math.Abs(got-want) > want*0.016 {
			t.Errorf("the quantile of %d ns alone: got %v us, want %v us within 1.6 %%", d, got, want)
		}
	}
}

func TestQuantilesAreInOrder(t *testing.T) {
	t.Parallel()
	var a, b Hist
	for i := range 1000 {
		h := &a
		if i%2 == 0 {
			h = &b
		}
		h.Add(time.Duration(i) * time.Microsecond)
	}
	a.Merge(&b)
	p50, p99 := a.Quantile(0.5), a.Quantile(0.99)
	if math.Abs(p50-500) > 10 || math.Abs(p99-990) > 20 || a.Max != 999*time.Microsecond {
		t.Errorf("of 0..999 us: got p50 %v, p99 %v, max %v", p50, p99, a.Max)
	}
}

func TestAHistogramIsMadeAgainOfItsParts(t *testing.T) {
	t.Parallel()
	var a, b Hist
	for i := range 1000 {
		a.Add(time.Duration(i*i) * time.Microsecond)
	}
	for d, n := range a.All() {
		b.AddN(d, n)
	}
	for _, q := range []float64{0, .1, .5, .99, 1} {
		if got, want := b.Quantile(q), a.Quantile(q); got != want {
			t.Errorf("quantile %v: got %v us, want %v us", q, got, want)
		}
	}
}
