package cloudwatch

import "math"

// A spread has eight bins per power of two, from lowest to highest, one for what is below them and
// one for what is above. Whole numbers up to 15 each have a bin of their own.
const (
	steps   = 3   // 2^3 bins per power of two
	lowest  = -10 // of latencies: 2^-10 ms is a microsecond
	highest = 17  // two minutes
	bins    = (highest-lowest)<<steps + 2
)

// spread is a distribution of values that are not negative. A bin knows the sum of its values, so
// the average is exact, and so is each value that is alone in its bin.
type spread struct {
	n   int64
	of  [bins]uint32
	sum [bins]float64
}

// binOf returns the bin of a value. The first bin has everything below the lowest bound, and the
// last one everything from the highest on.
func binOf(v float64) int {
	const (
		mantissa = 52
		zero     = (1023 + lowest) << steps // the exponent's bias is 1023
	)
	if v < 1.0/(1<<-lowest) {
		return 0
	}
	return min(int(math.Float64bits(v)>>(mantissa-steps))-zero+1, bins-1)
}

func (s *spread) add(v float64) {
	i := binOf(v)
	s.n++
	s.of[i]++
	s.sum[i] += v
}

// merge adds what another spread has.
func (s *spread) merge(o *spread) {
	if o.n == 0 {
		return
	}
	s.n += o.n
	for i := range o.of {
		s.of[i] += o.of[i]
		s.sum[i] += o.sum[i]
	}
}

// values returns at most that many values in rising order, and how often each occurred. Their sums
// are exact. Neighbours are joined if there are too many.
func (s *spread) values(most int) (values, counts []float64) {
	for i := range s.of {
		if n := float64(s.of[i]); n > 0 {
			values, counts = append(values, s.sum[i]/n), append(counts, n)
		}
	}
	for len(values) > most {
		half := 0
		for i := 0; i < len(values); i, half = i+2, half+1 {
			v, n := values[i], counts[i]
			if i+1 < len(values) {
				n = counts[i] + counts[i+1]
				v = (values[i]*counts[i] + values[i+1]*counts[i+1]) / n
			}
			values[half], counts[half] = v, n
		}
		values, counts = values[:half], counts[:half]
	}
	return values, counts
}

// samples returns the values one by one, in rising order. If there are more than most, it returns
// that many at equal distances: percentiles and the average stay about what they are.
func (s *spread) samples(most int) []float64 {
	values, counts := s.values(bins)
	n := int(min(s.n, int64(most)))
	list := make([]float64, 0, n)
	i, passed := 0, counts[0]
	for k := range n {
		rank := (float64(k) + 0.5) * float64(s.n) / float64(n)
		for rank > passed && i < len(counts)-1 {
			i++
			passed += counts[i]
		}
		list = append(list, values[i])
	}
	return list
}

// level describes values without their distribution.
type level struct {
	n             int64
	sum, min, max float64
}

func (l *level) add(v float64) {
	if l.n == 0 || v < l.min {
		l.min = v
	}
	if l.n == 0 || v > l.max {
		l.max = v
	}
	l.n++
	l.sum += v
}

func (l *level) merge(o *level) {
	if o.n == 0 {
		return
	}
	if l.n == 0 || o.min < l.min {
		l.min = o.min
	}
	if l.n == 0 || o.max > l.max {
		l.max = o.max
	}
	l.n += o.n
	l.sum += o.sum
}

// samples returns at most that many values, at least three, with the same least and greatest value,
// and the same average unless there were more.
func (l *level) samples(most int) []float64 {
	switch l.n {
	case 1:
		return []float64{l.sum}
	case 2:
		return []float64{l.min, l.max}
	}
	list := make([]float64, min(l.n, int64(most)))
	list[0] = l.min
	between := min(max((l.sum-l.min-l.max)/float64(l.n-2), l.min), l.max) // a sum is not exact
	for i := 1; i < len(list)-1; i++ {
		list[i] = between
	}
	list[len(list)-1] = l.max
	return list
}
