package record_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// TestModelOfRuns is TestModel for buckets that are asked for again and again, with little or much
// in between: a run is no different.
// req: D1, D5
func TestModelOfRuns(t *testing.T) {
	t.Parallel()
	runs, takes := 0, 0
	for seed := range uint64(scale(1500)) {
		w := busy(t, newDice(seed))
		for range 150 {
			if w.busyStep(); w.err != "" {
				t.Fatalf("seed %d: %s", seed, w.story())
			}
			takes++
		}
		runs += w.runs
	}
	if runs < takes/5 {
		t.Errorf("%d of %d takes went on with a run: the test shows too little", runs, takes)
	}
}

// busy is a policy of one to six limits whose amounts leave room for runs.
func busy(t testing.TB, c chooser) *twin {
	t.Helper()
	var ss []record.Spec
	for j := range c.pick("limits", 1, record.MaxLimits) {
		l := families[[]string{"bucket", "rolling joined", "rolling joined", "calendar"}[c.pick("kind", 0, 3)]](c)
		l.Name = fmt.Sprintf("l%d", j)
		l.Amount += c.pick("room", 0, 500)
		if l.Precision = 0; l.Kind == drawgate.Bucket {
			l.Burst, l.Margin = l.Amount, 0
		}
		ss = append(ss, spec(t, l))
	}
	return newTwin(c, ss)
}

// busyStep carries out one random step, most often a small take soon after the last.
func (w *twin) busyStep() {
	if w.c.pick("other", 0, 24) == 0 {
		w.step()
		return
	}
	switch w.c.pick("pass", 0, 39) {
	case 0:
		w.now += w.c.pick("dt", 0, w.span)
	case 1:
		w.now -= w.c.pick("dt", 0, 500)
	default:
		w.now += w.c.pick("dt", 0, 500)
	}
	var n record.Amounts
	for j := range w.specs[0] {
		n[j] = w.c.pick("n", 0, 2)
	}
	if w.c.pick("big", 0, 99) == 0 {
		n = w.cost(0)
	}
	w.plain(n)
}

// inRun returns a bucket in the middle of a run: of its limits 20, 40 and 60 units of 100 are used.
func inRun(t *testing.T) *bucket {
	t.Helper()
	b := newBucket(t,
		drawgate.Limit{Kind: drawgate.Rolling, Window: dur(mnt), Amount: 100, Margin: dur(sec)},
		drawgate.Limit{Kind: drawgate.Bucket, Window: dur(hour), Amount: 100},
		drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 100})
	for range 20 {
		b.now += 10
		if one(b, 1, 2, 3) == 0 {
			t.Fatal("refused")
		}
	}
	if b.rec.Limits[0].Used == 20 {
		t.Fatal("there is no run")
	}
	return b
}

// version returns the bucket as a version of the program counts it that has other limits.
func (b *bucket) version(f func(specs []record.Spec) []record.Spec) *bucket {
	return &bucket{rec: b.rec, specs: f(slices.Clone(b.specs)), now: b.now}
}

// TestRunEnds is about each way in which a run ends: what was counted in it counts.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	same := func(specs []record.Spec) []record.Spec { return specs }
	for name, f := range map[string]func(b *bucket) *bucket{
		"nothing": func(b *bucket) *bucket { return b },
		"another take": func(b *bucket) *bucket {
			b.rec.FlushRun()
			b.hold("a", sec, 0, 0,
				1)
			b.cancel("a")
			return b
		},
		"much later":    func(b *bucket) *bucket { b.now += 10 * sec; return b },
		"other limits":  func(b *bucket) *bucket { return b.version(same) },
		"a refusal":     func(b *bucket) *bucket { one(b, 101, 0, 0); return b },
		"a huge take":   func(b *bucket) *bucket { one(b, 0, math.MaxInt64, 0); return b },
		"a huge number": func(b *bucket) *bucket { one(b, 0, 1<<62/b.specs[1].Scale*4+1, 0); return b },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := f(inRun(t))
			if left := one(b, 1, 2, 3); left != 79 {
				t.Errorf("%d are left of the first limit, want 79", left)
			}
			b.rec.FlushRun()
			b.rec.FlushRun() // changes nothing more
			for i, want := range []int64{21, 42, 63} {
				if u := b.used(i); u.Used != want {
					t.Errorf("limit %d: %d are used, want %d", i, u.Used, want)
				}
			}
		})
	}
}

// TestRunOfVersions: versions of a program that count otherwise neither go on with each other's
// runs nor change what they do not know.
func TestRunOfVersions(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, b *bucket, want ...int64) {
		t.Helper()
		b.rec.FlushRun()
		for i, w := range want {
			if u := b.used(i); u.Used != w {
				t.Errorf("limit %d: %d are used, want %d", i, u.Used, w)
			}
		}
	}
	for name, f := range map[string]func(t *testing.T, b *bucket){
		"another order": func(t *testing.T, b *bucket) {
			o := b.version(func(specs []record.Spec) []record.Spec { slices.Reverse(specs); return specs })
			if left := one(o, 3, 2, 1); left != 37 {
				t.Errorf("%d are left of the third limit, want 37", left)
			}
			check(t, b, 21, 42, 63)
		},
		"a smaller amount": func(t *testing.T, b *bucket) {
			o := b.version(func(specs []record.Spec) []record.Spec {
				specs[0].Effective = [record.Priorities]int64{21}
				return specs
			})
			one(o, 1, 1, 1)
			if one(o, 1, 1, 1) != 0 || one(b, 1, 1, 1) != 78 {
				t.Error("a version goes by the amount of another one")
			}
			check(t, b, 22, 42, 62)
		},
		"fewer limits": func(t *testing.T, b *bucket) {
			b.rec.FlushRun()
			b.charge(b.now, 0, 5, 7)
			o := b.version(func(specs []record.Spec) []record.Spec { return specs[:1] })
			for range 3 {
				one(o, 1)
			}
			check(t, b, 23, 45, 67)
		},
		"a longer margin": func(t *testing.T, b *bucket) {
			o := b.version(func(specs []record.Spec) []record.Spec { specs[0].Margin = 30 * sec; return specs })
			for _, v := range []*bucket{o, o, o, b, b, b} {
				b.now += 10
				v.now = b.now
				one(v, 1, 0, 0)
			}
			b.now += 80 * sec // what the others took may have arrived 30 s after they took it
			check(t, b, 6)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, inRun(t))
		})
	}
}

// TestRunStopsAtEdges: at the instant at which a window or an entry ends, or is too old to be
// joined, a take is decided the long way.
func TestRunStopsAtEdges(t *testing.T) {
	t.Parallel()
	t.Run("margin before a calendar window's end", func(t *testing.T) {
		t.Parallel()
		b := newBucket(t, drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Minute, Amount: 10, Margin: dur(sec)})
		for _, at := range []int64{1, 2, mnt - sec - 1, mnt - sec} {
			b.now = epoch + at
			one(b, 1)
		}
		b.now = epoch + mnt + 1
		if left := one(b, 1); left != 8 { // the take a second before the edge may have arrived behind it
			t.Errorf("%d are left of the next window, want 8", left)
		}
	})
	t.Run("an entry's first and last", func(t *testing.T) {
		t.Parallel()
		// joined for less than 600 ms
		b := newBucket(t, drawgate.Limit{Kind: drawgate.Rolling, Window: dur(mnt), Amount: 10, Precision: 100})
		for _, at := range []int64{0, 1, 2, 600_000 - 1, 600_000} {
			b.now = epoch + at
			one(b, 1)
		}
		b.now = epoch + mnt + 600_000 - 1
		b.rec.FlushRun()
		if u := b.used(0); u.Used != 1 {
			t.Errorf("%d are used, want 1: the others are one entry, which is over", u.Used)
		}
	})
	t.Run("the oldest entry", func(t *testing.T) {
		t.Parallel()
		b := newBucket(t, drawgate.Limit{Kind: drawgate.Rolling, Window: dur(mnt), Amount: 10, Precision: 100})
		for _, at := range []int64{0, mnt - 20, mnt - 10, mnt - 1} {
			b.now = epoch + at
			one(b, 1)
		}
		b.now = epoch + mnt
		if left := one(b, 1); left != 6 { // three in the entry, and this one
			t.Errorf("%d are left, want 6", left)
		}
	})
	t.Run("a pause", func(t *testing.T) {
		t.Parallel()
		b := newBucket(t, drawgate.Limit{Kind: drawgate.Bucket, Window: dur(sec), Amount: 1e9, Burst: 1e9})
		one(b, 1e9)
		b.now += 1 << 54
		if left := one(b, 1); left != 1e9-1 {
			t.Errorf("%d are left of what was unused for centuries", left)
		}
	})
}

// TestRunSaturates where all counts do: a bucket's burst may be one part more.
func TestRunSaturates(t *testing.T) {
	t.Parallel()
	s := record.Spec{ID: 1, Kind: record.Bucket, Window: 1 << 20, Rate: 1, Scale: 1 << 20, Drain: 1}
	for i := range s.Effective {
		s.Effective[i] = 1 << 33
	}
	b := &bucket{rec: &record.Record{}, specs: []record.Spec{s}, now: epoch}
	b.take(record.Take{}, 1)
	b.now += 1 << 20
	one(b, 0)
	one(b, 1<<33)
	b.rec.FlushRun()
	if u := b.rec.Limits[0].Used; u != 1<<53-1 {
		t.Errorf("%d parts are used", u)
	}
}

// TestNoRunWhereChangesAreKept: a store that keeps entries one by one is told of each.
func TestNoRunWhereChangesAreKept(t *testing.T) {
	t.Parallel()
	b := newBucket(t, drawgate.Limit{Kind: drawgate.Rolling, Window: dur(mnt), Amount: 100})
	b.rec.Changes = &record.Changes{}
	for i := range int64(20) {
		b.now += 10
		one(b, 1)
		if st := &b.rec.Limits[0]; st.Used != i+1 || st.Log == nil || len(st.Log.Dirty) != 1 {
			t.Fatalf("after %d takes: %+v", i+1, st)
		}
		b.rec.Limits[0].Log.Dirty = nil
	}
}

// one takes by the short way, and returns what is left of the first limit, or 0 if it is refused.
func one(b *bucket, n ...int64) int64 {
	asks := []record.Ask{{Rec: b.rec, Specs: b.specs, N: amounts(n...)}}
	if v := decide(asks, &record.Take{}, b.now, true); !v.Allowed {
		return 0
	}
	return asks[0].Out[0].Remaining
}
