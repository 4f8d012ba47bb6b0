package drawgate_test

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
)

// simulatedLine is a limit that processes wait for, and what of it is used in spite of everything.
type simulatedLine struct {
	name    string
	limits  []drawgate.Limit // the first one is the tighter one
	most    int64            // units of a take, at most
	work    time.Duration    // how long a holder works, on average; 0: takes are plain
	callers int              // of a process, on average
	rate    float64          // units a second that can be served
	used    float64          // at least
}

// simulatedLines returns limits for so many processes. A message takes 51 ms on average, at most
// 200 ms, and a question is answered after two. What is used of a limit depends on whether units
// that came free can wait until the question for them arrives.
func simulatedLines(procs int) []simulatedLine {
	slots := min(int64(procs)*4/5, 200)
	return []simulatedLine{
		// Its burst is what comes free in a second: a question that is late loses nothing.
		{"bucket", []drawgate.Limit{drawgate.BucketLimit("b", 6000, time.Minute, 100)}, 1, 0, 2, 100, 0.98},
		// A unit comes free in 100 ms if there is none. The question for it takes 102 ms on
		// average, there and back: it is put that much earlier, and a little more. That makes it
		// 64 % instead of 52: who is second in line does not know early enough when the first one
		// was granted.
		{"burst of one", []drawgate.Limit{drawgate.BucketLimit("b", 600, time.Minute, 1)}, 1, 0, 1, 5, 0.57},
		// Units that are granted late come free late, window after window.
		{"rolling", []drawgate.Limit{drawgate.RollingLimit("r", 1000, 10*time.Second)}, 1, 0, 2, 100, 0.98},
		{
			"two limits", []drawgate.Limit{
				drawgate.RollingLimit("r", 1000, 10*time.Second), drawgate.BucketLimit("b", 6600, time.Minute, 100),
			}, 5, 0, 2, 100, 0.98,
		},
		// A slot lies idle for two messages: its next holder is told, and asks. With 8 s of work
		// that is 1.3 %. The rest goes to announcements that are lost, and to tickets of those who
		// died. Were only the first in line told, 94 to 96 % would be used, and 91 % by 1,000
		// processes.
		{
			"slots",
			[]drawgate.Limit{drawgate.ConcurrencyLimit("s", slots)},
			1, 8 * time.Second, 2, float64(slots) / 8,
			float64(needs.Rounds(95, 97, 97)) / 100,
		},
	}
}

// TestSimulatedProcesses: many processes wait for one limit that all of them together ask too much
// of, while demand moves, processes come, die and stand still, and messages take 1 to 200 ms or are
// lost. Never over, what can be used is used, nobody waits for long, those with the same demand get
// about the same, and the store is not asked too often.
//
// req: C5, E1
func TestSimulatedProcesses(t *testing.T) {
	t.Parallel()
	if !testing.Short() {
		needs.NoRace(t) // much of it is arithmetic; the quick proof is short enough
	}
	procs := needs.Rounds(20, 50, 1000)
	lasts := time.Duration(needs.Rounds(30, 60, 600)) * time.Second
	for _, c := range simulatedLines(procs) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			procs := procs
			lasts := lasts
			if c.rate < 10 {
				procs = min(procs, 50) // others would not be served at all
			}
			if c.used < 0.9 { // how much is used is by chance: 3 % of deviation within a minute
				lasts = max(lasts, 5*time.Minute)
			}
			synctest.Test(t, func(t *testing.T) {
				w := &lineWorld{
					t: t, limits: c.limits, most: c.most, work: c.work, callers: c.callers, lost: 0.001, deaf: 0.01,
				}
				w.run(procs, lasts, 10*time.Second/time.Duration(procs))
				synctest.Wait() // messages may be on their way still
				w.neverOver()
				w.isUsed(lasts, c.used)
				w.isFair()
				w.isServed(c.patience(procs))
				// Six for a grant, and each process asks twice a second if there is no ticket for
				// it: then it asks when the 64 in front may have passed.
				w.isAsked(6*float64(len(w.grants)) + 2*float64(procs)*lasts.Seconds())
			})
		})
	}
}

// patience returns how long a take may wait. All others may be in front of it, and as many come to
// stand there whose messages were quicker. Its process may stand still for 3 s, and wait for an
// answer for 2 s, some times; who died holds it up for 5 s. All units of a window may be used at
// once.
func (c *simulatedLine) patience(procs int) time.Duration {
	turn := float64(procs*c.callers) * float64(1+c.most) / 2 / c.rate
	most := time.Duration(2*turn*float64(time.Second)) + 15*time.Second
	if c.limits[0].Kind == drawgate.Rolling {
		most += c.limits[0].Window
	}
	return most
}

// isUsed checks how much of the first limit was used.
func (w *lineWorld) isUsed(lasts time.Duration, least float64) {
	w.t.Helper()
	used, gap := w.used(lasts), int64(0)
	for i := range w.grants[1:] {
		gap = max(gap, w.grants[i+1].at-w.grants[i].at)
	}
	w.t.Logf("%.2f %% used, %d grants, the longest time between two %d ms", 100*used, len(w.grants), gap/1000)
	if used < least {
		w.t.Errorf("%.2f %% used, want %.0f %%", 100*used, 100*least)
	}
}

// isFair checks that steady processes got about the same.
func (w *lineWorld) isFair() {
	w.t.Helper()
	least, sum, n := int64(math.MaxInt64), int64(0), int64(0)
	for _, p := range w.procs {
		if p.steady {
			least, sum, n = min(least, p.served), sum+p.served, n+1
		}
	}
	mean := float64(sum) / float64(n)
	w.t.Logf("%.1f units for a steady process, %d for the one that got least", mean, least)
	if float64(least+w.most) < mean/2 { // one take more or less is by chance, of few
		w.t.Errorf("one of the steady processes was served %d, the mean is %.1f", least, mean)
	}
}

// isServed checks how long a take waited at most, in any process that lives.
func (w *lineWorld) isServed(most time.Duration) {
	w.t.Helper()
	longest := time.Duration(0)
	for _, p := range w.procs {
		longest = max(longest, p.longest)
	}
	w.t.Logf("nobody waited longer than %v, at most %v", longest, most)
	if longest > most {
		w.t.Errorf("one waited for %v, want at most %v", longest, most)
	}
}

// isAsked checks how often the store was called.
func (w *lineWorld) isAsked(most float64) {
	w.t.Helper()
	n := float64(len(w.grants))
	w.t.Logf("%.1f calls of the store for a grant, at most %.1f", float64(w.calls)/n, most/n)
	if float64(w.calls) > most {
		w.t.Errorf("%d calls of the store, want at most %.0f", w.calls, most)
	}
}

// used returns which part of the first limit was used; of slots from the third second on, because
// before that the first callers come.
func (w *lineWorld) used(lasts time.Duration) float64 {
	l, sum, end := &w.limits[0], int64(0), w.began.Add(lasts).UnixMicro()
	start := w.began.UnixMicro()
	if l.Kind == drawgate.Concurrency {
		start += 2_000_000
	}
	for _, g := range w.grants {
		switch {
		case g.at >= end:
		case l.Kind == drawgate.Concurrency:
			sum += g.n[0] * max(0, min(g.end, end)-max(g.at, start))
		default:
			sum += g.n[0]
		}
	}
	if l.Kind == drawgate.Concurrency {
		return float64(sum) / float64(l.Amount*(end-start))
	}
	return float64(sum) / (float64(l.Burst) + float64(l.Amount)*lasts.Seconds()/l.Window.Seconds())
}

// neverOver checks what was granted by the instants of the store.
func (w *lineWorld) neverOver() {
	w.t.Helper()
	slices.SortFunc(w.grants, func(a, b unitGrant) int { return int(a.at - b.at) })
	for j := range w.limits {
		if over := w.over(j); over > 0 {
			w.t.Errorf("limit %s is over by %d", w.limits[j].Name, over)
		}
	}
}

// over returns by how many units limit j was exceeded at the worst instant.
func (w *lineWorld) over(j int) (most int64) {
	l := &w.limits[j]
	window, first, level, at := l.Window.Microseconds(), 0, int64(0), int64(0)
	for i, g := range w.grants {
		switch l.Kind {
		case drawgate.Rolling:
			for level += g.n[j]; w.grants[first].at+window <= g.at; first++ {
				level -= w.grants[first].n[j]
			}
			most = max(most, level-l.Amount)
		case drawgate.Bucket: // the level in parts of a unit, of which a window has so many µs
			level = max(0, level-(g.at-at)*l.Amount) + g.n[j]*window
			at = g.at
			most = max(most, (level-l.Burst*window+window-1)/window)
		case drawgate.Concurrency:
			most = max(most, w.held(j, i)-l.Amount)
		}
	}
	return most
}

// held returns how many units of limit j are held after grant i.
func (w *lineWorld) held(j, i int) (sum int64) {
	now := w.grants[i].at
	for _, g := range slices.Backward(w.grants[:i+1]) {
		if g.at+holds*w.work.Microseconds() < now {
			break // its hold is over
		}
		if now < g.end {
			sum += g.n[j]
		}
	}
	return sum
}
