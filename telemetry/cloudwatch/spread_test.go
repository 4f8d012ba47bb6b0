package cloudwatch

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// However many values a spread has, and however few may be returned, their number and their sum are
// exact, and values that are returned unjoined differ from the real ones by an eighth at most.
//
// req: A15
func TestSpread(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.OneOf(
			rapid.Float64Range(0, 1e6), rapid.Float64Range(0, 0.01),
			rapid.Map(rapid.IntRange(0, 15), func(i int) float64 { return float64(i) }),
		), 1, 400).Draw(t, "values")
		var s, part spread
		for i, v := range list {
			if i%2 == 0 {
				s.add(v)
			} else {
				part.add(v)
			}
		}
		s.merge(&part)
		slices.Sort(list)
		most := rapid.IntRange(2, 300).Draw(t, "most")
		values, counts := s.values(most)
		n, sum, want := 0.0, 0.0, 0.0
		for i := range values {
			n, sum = n+counts[i], sum+values[i]*counts[i]
		}
		for _, v := range list {
			want += v
		}
		if len(values) > most || !slices.IsSorted(values) || n != float64(len(list)) ||
			math.Abs(sum-want) > 1e-9*(1+want) {
			t.Fatalf("%d values of at most %d, %v in all with the sum %v, want %d with %v", len(values), most, n, sum,
				len(list), want)
		}
		got := s.samples(1000)
		for i, v := range list {
			if v >= 1.0/(1<<-lowest) && v < 1<<highest && math.Abs(got[i]-v) > v/8 {
				t.Fatalf("value %d is %v, want about %v", i, got[i], v)
			}
		}
		if got := s.samples(most); len(got) != min(most, len(list)) || !slices.IsSorted(got) {
			t.Fatalf("%d samples of at most %d: %v", len(got), most, got)
		}
	})
}

// Small whole numbers, such as attempts, are exact.
//
// req: A15
func TestSpreadOfSmallNumbers(t *testing.T) {
	t.Parallel()
	var s spread
	for v := range 16 {
		for range v + 1 {
			s.add(float64(v))
		}
	}
	values, counts := s.values(100)
	for v := range 16 {
		if len(values) != 16 || values[v] != float64(v) || counts[v] != float64(v+1) {
			t.Fatalf("got %v, %v", values, counts)
		}
	}
}

// Values beyond the last bound are in no bin of values within it.
//
// req: A15
func TestSpreadAtItsBounds(t *testing.T) {
	t.Parallel()
	for _, list := range [][]float64{
		{122880, 153600.5}, // the highest bound is 131072
		{math.Nextafter(131072, 0), 131072},
		{math.Nextafter(1.0/1024, 0), 1.0 / 1024},
	} {
		var s spread
		for _, v := range list {
			s.add(v)
		}
		if values, _ := s.values(100); !slices.Equal(values, list) {
			t.Errorf("got %v, want %v", values, list)
		}
	}
}

// A level keeps its least and greatest value, and the sum of as many values as fit.
func TestLevel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Float64Range(0, 1e12), 1, 150).Draw(t, "values")
		var l, part level
		sum := 0.0
		for i, v := range list {
			sum += v
			if i%2 == 0 {
				l.add(v)
			} else {
				part.add(v)
			}
		}
		l.merge(&part)
		got := l.samples(100)
		if slices.Min(got) != slices.Min(list) || slices.Max(got) != slices.Max(list) ||
			len(got) != min(100, len(list)) {
			t.Fatalf("got %v of %v", got, list)
		}
		all := 0.0
		for _, v := range got {
			all += v
		}
		if len(list) <= 100 && math.Abs(all-sum) > 1e-9*(1+sum) {
			t.Fatalf("the sum is %v, want %v", all, sum)
		}
	})
}
