package redisstore_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// grant is an admission of n units, asked for at sent and answered at got, in µs of the machine's
// clock.
type grant struct{ n, sent, got int64 }

func bySent(list []grant) []grant {
	return slices.SortedFunc(slices.Values(list), func(a, b grant) int { return cmp.Compare(a.sent, b.sent) })
}

func byGot(list []grant) []grant {
	return slices.SortedFunc(slices.Values(list), func(a, b grant) int { return cmp.Compare(a.got, b.got) })
}

// mostIn returns the most units that were certainly admitted in a window of so many µs: asked for
// and answered in it.
func mostIn(list []grant, window int64) (most int64) {
	begun, ended, long := bySent(list), byGot(list), overlong(list, window)
	var before, answered int64 // units asked for before the window, and answered before its end
	for _, a := range begun {
		end := a.sent + window
		for len(ended) > 0 && ended[0].got < end {
			answered, ended = answered+ended[0].n, ended[1:]
		}
		n := answered - before
		for _, b := range long { // neither answered before its end nor asked for in it
			if b.sent < a.sent && b.got >= end {
				n += b.n
			}
		}
		most, before = max(most, n), before+a.n
	}
	return most
}

// overlong returns what took as long as a window.
func overlong(list []grant, window int64) (long []grant) {
	for _, a := range list {
		if a.got-a.sent >= window {
			long = append(long, a)
		}
	}
	return long
}

// mostBeside returns the most units that were certainly admitted in some span beyond rate, in units
// a µs: what is under way for the whole of a span is left out.
func mostBeside(list []grant, rate float64) (most float64) {
	begun, before, answered, best := bySent(list), int64(0), int64(0), math.Inf(-1)
	for _, e := range byGot(list) {
		for len(begun) > 0 && begun[0].sent <= e.got {
			best = max(best, rate*float64(begun[0].sent-list[0].sent)-float64(before))
			before, begun = before+begun[0].n, begun[1:]
		}
		answered += e.n
		most = max(most, float64(answered)-rate*float64(e.got-list[0].sent)+best)
	}
	return most
}

const minute = int64(time.Minute / time.Microsecond)

// byMinute returns what was certainly admitted in each minute, by its number.
func byMinute(list []grant) map[int64]int64 {
	of := map[int64]int64{}
	for _, a := range list {
		if a.sent/minute == a.got/minute {
			of[a.sent/minute] += a.n
		}
	}
	return of
}

// sumIn returns the units that were answered in a span.
func sumIn(list []grant, s span) (sum int64) {
	for _, a := range list {
		if s.from <= a.got && a.got < s.to {
			sum += a.n
		}
	}
	return sum
}

// TestLeaseJudge: it sees what is over, and takes nothing for it that may not be.
func TestLeaseJudge(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		list []grant
		want int64
	}{
		"none":                     {nil, 0},
		"in one window":            {[]grant{{2, 0, 1}, {3, 50, 51}, {4, 98, 99}}, 9},
		"at both edges":            {[]grant{{2, 0, 1}, {3, 50, 51}, {4, 100, 101}}, 7},
		"answered after its end":   {[]grant{{2, 0, 1}, {3, 50, 149}}, 3},
		"in a window of their own": {[]grant{{5, 500, 501}, {1, 0, 1}, {2, 600, 601}}, 5},
		"under way all the time":   {[]grant{{7, 0, 1000}, {2, 300, 301}, {3, 310, 311}}, 5},
	} {
		if got := mostIn(c.list, 100); got != c.want {
			t.Errorf("%s: %d, want %d", what, got, c.want)
		}
	}
	for what, c := range map[string]struct {
		list []grant
		want float64
	}{
		"at once":             {[]grant{{2, 0, 0}, {3, 0, 0}}, 5},
		"at the rate":         {[]grant{{5, 0, 0}, {1, 10, 10}, {1, 20, 20}}, 5},
		"faster":              {[]grant{{5, 0, 0}, {1, 10, 10}, {3, 20, 20}}, 7},
		"later":               {[]grant{{1, 0, 0}, {5, 1000, 1000}, {1, 1005, 1005}}, 5.5},
		"it may be earlier":   {[]grant{{5, 0, 0}, {3, 5, 30}}, 5},
		"it is not in order":  {[]grant{{3, 20, 20}, {1, 10, 10}, {5, 0, 0}}, 7},
		"one answer is later": {[]grant{{1, 0, 100}, {5, 50, 50}}, 4},
	} {
		if got := mostBeside(c.list, 0.1); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v beside the rate, want %v", what, got, c.want)
		}
	}
	list := []grant{{1, 0, 1}, {2, minute - 1, minute - 1}, {4, minute - 1, minute}, {8, minute, minute}}
	if got, want := fmt.Sprint(byMinute(list)), "map[0:3 1:8]"; got != want {
		t.Errorf("by the minute %s, want %s", got, want)
	}
	if got := sumIn(list, span{1, minute}); got != 3 {
		t.Errorf("%d in a span, want 3", got)
	}
}
