package queue_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/internal/queue"
)

// person is what the model knows of a waiter: it orders people by what the doc says, and not by a
// rank.
type person struct {
	priority int8
	at       int64
	seq      int
	w        *queue.Waiter
}

// before says who is served first: who came earlier, after each priority was granted a lead of Age.
func (p *person) before(o *person) bool {
	lead := time.Duration(int64(p.priority)-int64(o.priority)) * queue.Age
	switch late := time.Duration(p.at - o.at); {
	case late != lead:
		return late < lead
	default:
		return p.seq < o.seq
	}
}

func (p *person) woken() bool {
	select {
	case <-p.w.Turn:
		return true
	default:
		return false
	}
}

// TestLineIsSorted compares a line with a sorted slice: who is in front, who would lead, and who is
// told when. req: B6
func TestLineIsSorted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var (
			line   queue.Line
			places queue.Places
			model  []*person
			now    int64
			seq    int
		)
		newcomer := func(t *rapid.T) *person {
			seq++
			p := &person{priority: int8(rapid.IntRange(0, 9).Draw(t, "priority")), at: now, seq: seq}
			p.w = queue.NewWaiter(places.Next(p.priority, now))
			p.w.Units, p.w.Firm = []int64{0, int64(seq)}, seq%3 == 0
			return p
		}
		t.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) {
				now += rapid.SampledFrom([]int64{1, int64(queue.Age) - 1, int64(queue.Age)}).Draw(t, "d")
			},
			"add": func(t *rapid.T) {
				p := newcomer(t)
				leads := len(model) == 0 || p.before(model[0])
				if got := line.Leads(p.w.Place); got != leads {
					t.Fatalf("leads: %v, want %v", got, leads)
				}
				line.Add(p.w)
				i, _ := slices.BinarySearchFunc(model, p, func(a, b *person) int {
					if a.before(b) {
						return -1
					}
					return 1
				})
				model = slices.Insert(model, i, p)
				if p.woken() {
					t.Fatal("a newcomer is told to try")
				}
			},
			"remove": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip("empty")
				}
				i := rapid.IntRange(0, len(model)-1).Draw(t, "who")
				line.Remove(model[i].w)
				model = slices.Delete(model, i, i+1)
				if len(model) > 0 && model[0].woken() != (i == 0) {
					t.Fatalf("position %d left: the new front was told to try: %v", i, i != 0)
				}
			},
			"wake": func(t *rapid.T) {
				line.Wake()
				line.Wake() // holds one
				if len(model) > 0 && (!model[0].woken() || model[0].woken()) {
					t.Fatal("not told once")
				}
			},
			"": func(t *rapid.T) {
				if line.Len() != len(model) {
					t.Fatalf("%d wait, want %d", line.Len(), len(model))
				}
				if f := line.Front(); f == nil && len(model) > 0 || f != nil && f != model[0].w {
					t.Fatal("somebody else is in front")
				}
				units, firm := int64(0), int64(0)
				for i, p := range model {
					if n, u, f := line.Before(p.w.Place, 1); n != i || u != units || f != firm {
						t.Fatalf("%d waiters with %d units, %d of them firm, are before the one at position %d; want %d and %d", n, u, f, i, units, firm)
					}
					if units += p.w.Units[1]; p.w.Firm {
						firm += p.w.Units[1]
					}
				}
				i, sum := 0, int64(0)
				for w, firm := range line.InOrder(1) {
					if w != model[i].w || firm != sum {
						t.Fatalf("position %d: another waiter, or %d firm units before it, want %d", i, firm, sum)
					}
					if i++; w.Firm {
						sum += w.Units[1]
					}
				}
				i = min(1, len(model))
				for w := range line.Following() {
					if w != model[i].w {
						t.Fatalf("position %d: another waiter follows", i)
					}
					i++
				}
				if i != len(model) {
					t.Fatalf("%d follow, want %d", i-1, len(model)-1)
				}
				for _, p := range model[min(1, len(model)):] {
					if p.woken() {
						t.Fatal("somebody was told who is not in front")
					}
					if line.Leads(p.w.Place) {
						t.Fatal("somebody leads who is not in front")
					}
				}
				if len(model) > 0 && !line.Leads(model[0].w.Place) {
					t.Fatal("who is in front does not lead")
				}
			},
		})
	})
}

// TestNobodyIsOvertakenForEver: a newcomer of the highest priority stands behind who has waited for
// long enough. req: B6
func TestNobodyIsOvertakenForEver(t *testing.T) {
	t.Parallel()
	var line queue.Line
	var places queue.Places
	line.Add(queue.NewWaiter(places.Next(0, 0)))
	for _, c := range []struct {
		priority int8
		after    time.Duration
		leads    bool
	}{
		{0, 0, false},
		{1, queue.Age - 1, true},
		{1, queue.Age, false},
		{9, 9*queue.Age - 1, true},
		{9, 9 * queue.Age, false},
		{9, time.Hour, false},
	} {
		if got := line.Leads(places.Next(c.priority, int64(c.after))); got != c.leads {
			t.Errorf("priority %d after %v leads: %v, want %v", c.priority, c.after, got, c.leads)
		}
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	const ms, s, never = time.Millisecond, time.Second, time.Duration(1<<63 - 1)
	fixed := []time.Duration{2 * s, 4 * s, 8 * s}
	for _, c := range []struct {
		what    string
		r       queue.Refusal
		backoff []time.Duration
		random  float64
		want    time.Duration
	}{
		{"nothing is held: when it fits", queue.Refusal{
			Attempt: 1, RetryAfter: 30 * s, EarliestRetry: 30 * s,
			Spread: s,
		}, nil, 0, 30 * s},
		{
			"and a little later",
			queue.Refusal{Attempt: 7, RetryAfter: 30 * s, EarliestRetry: 30 * s, Spread: s},
			nil,
			0.5, 30*s + 500*ms,
		},
		{"held: soon", queue.Refusal{Attempt: 1, RetryAfter: 30 * s}, nil, 0, 250 * ms},
		{"held: later and later", queue.Refusal{Attempt: 2, RetryAfter: 30 * s}, nil, 0, 500 * ms},
		{"held: not above 5 s", queue.Refusal{Attempt: 6, RetryAfter: 30 * s}, nil, 0, 5 * s},
		{"held: nor after very many attempts", queue.Refusal{Attempt: 1 << 40, RetryAfter: 30 * s}, nil, 0, 5 * s},
		{
			"held: not before it can fit",
			queue.Refusal{Attempt: 1, RetryAfter: 30 * s, EarliestRetry: 9 * s},
			nil, 0,
			9 * s,
		},
		{"held: not after it fits", queue.Refusal{Attempt: 6, RetryAfter: 2 * s, EarliestRetry: s}, nil, 0, 2 * s},
		{"fixed", queue.Refusal{Attempt: 1, RetryAfter: 30 * s, EarliestRetry: 30 * s, Spread: s}, fixed, 0.9, 2 * s},
		{"fixed: the second", queue.Refusal{Attempt: 2, RetryAfter: 30 * s, EarliestRetry: 30 * s}, fixed, 0.9, 4 * s},
		{
			"fixed: the last repeats",
			queue.Refusal{Attempt: 9, RetryAfter: 30 * s, EarliestRetry: 30 * s},
			fixed, 0.9,
			8 * s,
		},
		{"never", queue.Refusal{Attempt: 1, RetryAfter: never, EarliestRetry: never, Spread: s}, nil, 0.9, never},
	} {
		if got := c.r.Delay(c.backoff, c.random); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		window time.Duration
		amount int64
		want   time.Duration
	}{
		{time.Minute, 1, 30 * time.Millisecond},
		{time.Minute, 60, 10 * time.Millisecond},
		{time.Minute, 1_000_000_000_000, 0},
		{24 * time.Hour, 1, time.Second},
		{366 * 24 * time.Hour, 1, time.Second},
		{0, 5, 0},
		{time.Hour, 0, time.Second},
	} {
		if got := queue.Spread(c.window, c.amount); got != c.want {
			t.Errorf("%d per %v: at most %v of jitter, want %v", c.amount, c.window, got, c.want)
		}
	}
}
