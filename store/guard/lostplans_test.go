package guard_test

import (
	"slices"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
)

// TestRecoveryOfChangedPolicy: a policy gets other limits, and the server forgets what was taken
// before and after. What comes back counts in the limit of which it was taken.
//
// req: A10, C12
func TestRecoveryOfChangedPolicy(t *testing.T) {
	t.Parallel()
	limits := func(names ...string) *store.Plan {
		var ls []drawgate.Limit
		for _, n := range names {
			l := rolling(1000, time.Hour)
			l.Name = n
			ls = append(ls, l)
		}
		return compile(t, drawgate.Policy{Name: "p", Limits: ls, Fallback: drawgate.FallbackClosed})
	}
	for _, test := range []struct {
		name          string
		before, after []string
		first, second []int64
		want          []int64 // of a, b, c
	}{
		{"removed", []string{"a", "b"}, []string{"b"}, []int64{10, 20}, []int64{3}, []int64{10, 23, 0}},
		{"inserted", []string{"b"}, []string{"a", "b"}, []int64{20}, []int64{4, 3}, []int64{4, 23, 0}},
		{
			"other order",
			[]string{"a", "b", "c"},
			[]string{"c", "b", "a"},
			[]int64{10, 20, 30},
			[]int64{1, 2, 3},
			[]int64{13, 22, 31},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p := newProcess(t, s.URL(), false)
			all := limits("a", "b", "c")
			recovers := func(sum int64) (got []int64) {
				s.Do("FLUSHALL")
				for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
					got, n := got[:0], int64(0)
					for _, st := range p.state(t, all).States {
						got, n = append(got, st.Used), n+st.Used
					}
					if n >= sum || time.Now().After(end) {
						return got
					}
				}
			}
			sum := func(n []int64) (s int64) {
				for _, n := range n {
					s += n
				}
				return s
			}
			if !take(t, p, limits(test.before...), "k", test.first...).Allowed {
				t.Fatal("a take is refused")
			}
			recovers(sum(test.first))
			if !take(t, p, limits(test.after...), "k", test.second...).Allowed {
				t.Fatal("a take is refused")
			}
			if got := recovers(sum(test.first) + sum(test.second)); !slices.Equal(got, test.want) {
				t.Errorf("used are %v, want %v", got, test.want)
			}
		})
	}
}

// TestRecoveryOfChangedRate: a limit of kind bucket gets another rate, and the server forgets what
// was taken before and after. All of it comes back.
//
// req: A10, C12
func TestRecoveryOfChangedRate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		before, after int64
	}{{"finer", 60, 61}, {"coarser", 61, 60}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p := newProcess(t, s.URL(), false)
			before := policy(t, drawgate.FallbackClosed, leaky(test.before, 10*time.Hour, 10000))
			after := policy(t, drawgate.FallbackClosed, leaky(test.after, 10*time.Hour, 10000))
			if !take(t, p, before, "k", 6000).Allowed || !take(t, p, after, "k", 1).Allowed {
				t.Fatal("a take is refused")
			}
			want := p.state(t, after).States[0].Used
			s.Do("FLUSHALL")
			var got int64
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				if got = p.state(t, after).States[0].Used; got == want {
					break
				}
			}
			if got != want {
				t.Errorf("used are %d, want %d", got, want)
			}
			s.Do("FLUSHALL")
			if !take(t, p, after, "k", 1).Allowed {
				t.Fatal("a take is refused")
			}
			time.Sleep(200 * time.Millisecond)
			if got = p.state(t, after).States[0].Used; got != want+1 {
				t.Errorf("later used are %d, want %d", got, want+1)
			}
		})
	}
}
