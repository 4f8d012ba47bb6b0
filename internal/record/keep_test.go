package record_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// kept is an admission, in the order of the decisions.
type kept struct {
	at, n    int64 // from when it counts
	priority int8
}

// TestKeptUnitsOfTakesGrantedAhead: what is kept for higher priorities is left by a take together
// with all that were granted before it, at the instant from which it counts. A take of a higher
// priority that is granted later, though it counts earlier, may use what is kept. The whole limit
// is never passed.
//
// req: B6, D12
func TestKeptUnitsOfTakesGrantedAhead(t *testing.T) {
	t.Parallel()
	const all, low = 60, 54
	keep := map[int]drawgate.Share{7: {Percent: 10}}
	for _, l := range []drawgate.Limit{
		{Kind: drawgate.Rolling, Window: dur(mnt), Amount: all, ReservedByPriority: keep, Precision: drawgate.Exact},
		{Kind: drawgate.Rolling, Window: dur(mnt), Amount: all, ReservedByPriority: keep},
		{Kind: drawgate.Bucket, Window: dur(mnt), Amount: all, ReservedByPriority: keep},
	} {
		used := inWindow
		if l.Kind == drawgate.Bucket {
			used = func(granted []kept, at int64) int64 { return level(granted, at, all) }
		}
		overtaken := 0
		for seed := range uint64(200) { // fewer may not meet every case
			d, b := newDice(seed), newBucket(t, l)
			var granted []kept
			for range 60 {
				b.now += d.between(0, []int64{sec / 10, 2 * sec, 20 * sec}[d.IntN(3)])
				tk := record.Take{Priority: int8(7 * d.IntN(2)), Ahead: d.between(0, 1) * 30 * sec}
				n := d.between(1, 12)
				v, _ := b.take(tk, n)
				if !v.Allowed {
					continue
				}
				k := kept{max(b.now, v.Start), n, tk.Priority}
				if most := map[int8]int64{0: low, 7: all}[tk.Priority]; used(granted, k.at)+n > most {
					t.Fatalf("seed %d: %d units of priority %d are granted at %d beside %d, at most %d", seed, n,
						tk.Priority, k.at, used(granted, k.at), most)
				}
				granted = append(granted, k)
				for _, o := range granted {
					if u := used(granted, o.at); u > all {
						t.Fatalf("seed %d: %d units of %d count at %d", seed, u, all, o.at)
					} else if o.priority == 0 && u > low && o.at > k.at && tk.Priority == 7 {
						overtaken++
					}
				}
			}
		}
		if overtaken == 0 {
			t.Error("no take was granted what is kept for it while one of a lower priority was granted ahead")
		}
	}
}

// inWindow returns what counts of a rolling limit of a minute.
func inWindow(granted []kept, at int64) (units int64) {
	for _, k := range granted {
		if k.at <= at && at < k.at+mnt {
			units += k.n
		}
	}
	return units
}

// level returns the units in a bucket that drains at rate a minute, rounded up.
func level(granted []kept, at, rate int64) int64 {
	parts := int64(0) // of mnt each
	last := int64(0)
	for _, k := range slices.SortedStableFunc(slices.Values(granted),
		func(a, b kept) int { return cmp.Compare(a.at, b.at) }) {
		if k.at > at {
			break
		}
		parts, last = max(0, parts-rate*min(k.at-last, mnt))+k.n*mnt, k.at
	}
	return record.CeilDiv(max(0, parts-rate*min(at-last, mnt)), mnt)
}
