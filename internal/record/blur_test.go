package record_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/record"
)

// blurred is a bucket of amount units per minute in a store whose clock may be behind by up to
// blur.
func blurred(amount, blur int64) []record.Spec {
	s := record.Spec{ID: 1, Kind: record.Bucket, Window: 60_000_000, Rate: amount, Blur: blur}
	s.Scale, s.Drain = record.BucketScale(s.Rate, s.Window)
	for p := range s.Effective {
		s.Effective[p] = amount
	}
	return []record.Spec{s}
}

// TestBlurIsNoUse: what a clock may be wrong by is neither use nor debt of a fresh bucket, and
// takes nothing from processes that ask at the same time.
func TestBlurIsNoUse(t *testing.T) {
	t.Parallel()
	for _, amount := range []int64{5, 250_000} {
		for _, takes := range []int64{1, 5} {
			r, now := &record.Record{}, int64(1_800_000_000_000_000)
			for i := range takes {
				now += 30_000
				specs := blurred(amount, 1_010_000-i*10_000)
				asks := []record.Ask{{Rec: r, Specs: specs, N: record.Amounts{amount / takes}}}
				if v := record.Decide(asks, &record.Take{}, now); !v.Allowed {
					t.Errorf("take %d of %d is refused", i+1, takes)
				}
				if u, want := r.Usage(&specs[0], 0), (i+1)*amount/takes; u.Used > want || u.Debt != 0 {
					t.Errorf("after take %d of %d: %d used and %d debt, want %d and none", i+1, takes, u.Used, u.Debt,
						want)
				}
			}
		}
	}
}

// TestNeverOverWithBlur: whatever the clocks of processes say, within what they may be wrong by,
// the units that were used fit the bucket by the true time.
func TestNeverOverWithBlur(t *testing.T) {
	t.Parallel()
	rounds := uint64(40_000)
	switch {
	case testing.Short():
		rounds = 2000
	case needs.Long():
		rounds = 1_000_000
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(seed, 4))
		amount := 1 + r.Int64N(20)
		rec, truth := &record.Record{}, int64(1_800_000_000_000_000)
		type use struct{ at, n int64 }
		var uses []use
		open := map[string]int{}
		for i := range 60 {
			truth += r.Int64N([]int64{1, 200_000, 3_000_000, 30_000_000}[r.IntN(4)])
			blur := r.Int64N([]int64{1, 100_000, 2_000_000, 20_000_000}[r.IntN(4)] + 1)
			now := truth - r.Int64N(blur+1)
			asks := []record.Ask{{Rec: rec, Specs: blurred(amount, blur)}}
			if len(open) > 0 && r.IntN(3) == 0 {
				ids := slices.Sorted(maps.Keys(open))
				id := ids[r.IntN(len(ids))]
				k := open[id]
				asks[0].N[0] = r.Int64N(uses[k].n + 1)
				cancel := r.IntN(3) == 0
				if settled, _ := record.Settle(asks, id, 1, cancel, now); settled && cancel {
					uses[k].n = 0
				} else if settled {
					uses[k].n = asks[0].N[0]
				}
				delete(open, id)
				continue
			}
			if len(open) > 0 && r.IntN(8) == 0 {
				ids := slices.Sorted(maps.Keys(open))
				record.Renew(asks, ids[r.IntN(len(ids))], 1, 60_000_000, now)
				continue
			}
			asks[0].N[0] = 1 + r.Int64N(amount)
			take := record.Take{}
			if r.IntN(2) == 0 {
				take.ID, take.Grant, take.Hold = fmt.Sprint(i), 1, 60_000_000
			}
			if !record.Decide(asks, &take, now).Allowed {
				continue
			}
			if take.ID != "" {
				open[take.ID] = len(uses)
			}
			uses = append(uses, use{truth, asks[0].N[0]})
		}
		level, at := int64(0), truth-1_000_000_000_000
		s := &blurred(amount, 0)[0]
		if !slices.IsSortedFunc(uses, func(a, b use) int { return int(a.at - b.at) }) {
			t.Fatal("the uses are out of order")
		}
		for _, u := range uses {
			level = max(0, level-(u.at-at)*s.Drain) + u.n*s.Scale
			at = u.at
			if level > amount*s.Scale {
				t.Fatalf("seed %d: %d/%d units at once in a bucket of %d: %v", seed, level, s.Scale, amount, uses)
			}
		}
	}
}
