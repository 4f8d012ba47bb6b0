package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store"
)

// How long leases last follows from the shortest window, and small limits have none.
func TestLeaseLife(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits []store.Limit
		want   time.Duration
	}{
		"a long window": {
			[]store.Limit{{Name: "a", Kind: store.Rolling, Amount: 6000, Window: time.Minute}},
			500 * time.Millisecond,
		},
		"too few units": {
			[]store.Limit{{Name: "a", Kind: store.Rolling, Amount: 5999, Window: time.Minute}},
			0,
		},
		"a short window": {
			[]store.Limit{{Name: "a", Kind: store.Rolling, Amount: 5000, Window: time.Second}},
			10 * time.Millisecond,
		},
		"a small burst": {
			[]store.Limit{{Name: "a", Kind: store.Bucket, Amount: 600_000, Window: time.Minute, Burst: 20_000}},
			20 * time.Millisecond,
		},
		"a burst that is back too soon": {
			[]store.Limit{{Name: "a", Kind: store.Bucket, Amount: 600_000, Window: time.Minute, Burst: 5_000}}, 0,
		},
		"the shortest counts": {[]store.Limit{
			{Name: "a", Kind: store.Calendar, Amount: 1_000_000_000, Every: store.Day},
			{Name: "b", Kind: store.Rolling, Amount: 100_000, Window: 10 * time.Second},
		}, 100 * time.Millisecond},
		"nothing passes": {
			[]store.Limit{{Name: "a", Kind: store.Bucket, Amount: 0, Window: time.Minute}},
			0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := store.Policy{Name: "p", Limits: c.limits, Leased: true}.Compile()
			if err != nil {
				t.Fatal(err)
			}
			if got := plan.LeaseLife(0); got != c.want {
				t.Errorf("a lease lasts %v, want %v", got, c.want)
			}
			exact, err := store.Policy{Name: "p", Limits: c.limits}.Compile()
			if err != nil {
				t.Fatal(err)
			}
			if got := exact.LeaseLife(0); got != 0 {
				t.Errorf("a policy that is not leased has leases of %v", got)
			}
		})
	}
}

// What cannot be leased is a mistake of the policy, which says what to do.
func TestNotLeasable(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]store.Limit{
		"concurrency":    {Name: "a", Kind: store.Concurrency, Amount: 10_000},
		"a short window": {Name: "a", Kind: store.Rolling, Amount: 100_000, Window: 999 * time.Millisecond},
		"a short period": {Name: "a", Kind: store.Bucket, Amount: 100_000, Window: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := store.Policy{Name: "p", Limits: []store.Limit{l}}
			if _, err := p.Compile(); err != nil {
				t.Fatal(err)
			}
			p.Leased = true
			if _, err := p.Compile(); err == nil || !strings.Contains(err.Error(), "leave leased out") {
				t.Errorf("the error is %v, and must say what to do", err)
			}
		})
	}
}
