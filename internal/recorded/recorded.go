// Package recorded is for tests of stores that read what an earlier version of the program wrote.
//
// Such a test keeps in testdata what [Fill] left in the store. It puts that into a server or a
// file, does the same steps anew with today's program on the same clock, and [Compare] finds no
// difference between the two. The files are named after the version that wrote them. A new one is
// added when what is written changes; none is replaced, as long as that version may be upgraded
// from.
package recorded

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store"
)

// Start is the instant at which the clock of a store stands before Fill.
func Start() time.Time { return time.Date(2026, 3, 28, 22, 58, 3, 0, time.UTC) }

const amount = 100

// plans are those of the buckets, one for what each of them shows.
func plans(t *testing.T) map[string]*store.Plan {
	t.Helper()
	day := 24 * time.Hour
	compiled := map[string]*store.Plan{}
	for name, limits := range map[string][]store.Limit{
		"simple": {{Name: "simple", Kind: store.Bucket, Window: day, Amount: amount}},
		"kinds": {
			{Name: "bucket", Kind: store.Bucket, Window: day, Amount: amount},
			{Name: "rolling", Kind: store.Rolling, Window: time.Hour, Amount: amount, Margin: 2 * time.Second},
			{Name: "exact", Kind: store.Rolling, Window: time.Hour, Amount: amount, Precision: store.Exact},
			{Name: "day", Kind: store.Calendar, Every: store.Day, Zone: "Europe/Berlin", Amount: amount},
			{Name: "end", Kind: store.Rolling, Window: time.Hour, Amount: amount, Charge: store.ChargeEnd},
			{Name: "slots", Kind: store.Concurrency, Amount: 4},
		},
		"paused": {{Name: "paused", Kind: store.Rolling, Window: time.Hour, Amount: amount}},
		"ahead":  {{Name: "ahead", Kind: store.Bucket, Window: time.Hour, Amount: amount}},
	} {
		p, err := store.Policy{Name: name, Limits: limits}.Compile()
		if err != nil {
			t.Fatal(err)
		}
		compiled[name] = p
	}
	return compiled
}

// bucket returns a bucket with n units of each limit, but slots.
func bucket(p *store.Plan, n, slots int64) []store.BucketCost {
	b := store.BucketCost{Key: store.Key{Policy: p.Name(), Name: "k"}, Plan: p}
	limits := p.Policy().Limits
	for i := range limits {
		b.N[i] = n
		if limits[i].Kind == store.Concurrency {
			b.N[i] = slots
		}
	}
	return []store.BucketCost{b}
}

// Fill makes the buckets: used, held, settled, paused and booked. advance moves the store's clock.
func Fill(t *testing.T, s store.Store, advance func(time.Duration)) {
	t.Helper()
	all := plans(t)
	for range 10 {
		advance(31 * time.Second)
		for _, name := range []string{"simple", "kinds", "paused"} {
			take(t, s, store.Take{Buckets: bucket(all[name], 3, 0)})
		}
	}
	take(t, s, store.Take{Buckets: bucket(all["kinds"], 5, 1), ID: "held", Grant: 7, Hold: 2 * time.Hour})
	take(t, s, store.Take{Buckets: bucket(all["kinds"], 7, 2), ID: "settled", Grant: 8, Hold: 2 * time.Hour})
	take(t, s, store.Take{Buckets: bucket(all["simple"], 5, 0), ID: "simple", Grant: 9, Hold: 2 * time.Hour})
	advance(time.Second)
	settle(t, s, store.Settlement{Op: store.OpSettle, ID: "settled", Grant: 8, Buckets: bucket(all["kinds"], 2, 2)})
	settle(t, s, store.Settlement{Op: store.OpRefund, Buckets: bucket(all["paused"], 4, 0)})
	settle(t, s, store.Settlement{
		Op: store.OpPause, Hold: 30 * time.Minute, Reason: "maintenance", Buckets: bucket(all["paused"], 0, 0),
	})
	take(t, s, store.Take{Buckets: bucket(all["ahead"], amount-1, 0)})
	take(t, s, store.Take{Buckets: bucket(all["ahead"], 2, 0), Ahead: 10 * time.Minute})
}

// Compare goes on with both stores, after Fill, and fails the test if they answer differently.
// advance moves the clocks of both.
func Compare(t *testing.T, was, is store.Store, advance func(time.Duration)) {
	t.Helper()
	all := plans(t)
	peek := func(when string) {
		t.Helper()
		for name, p := range all {
			same(t, was, is, when+", "+name, func(s store.Store) any {
				var out [1]store.State
				if err := s.Peek(t.Context(), bucket(p, 1, 0), 0, out[:]); err != nil {
					return err
				}
				st := out[0]
				st.Pause.Until = st.Pause.Until.UTC()
				for i := range st.States {
					st.States[i].Start, st.States[i].End = st.States[i].Start.UTC(), st.States[i].End.UTC()
				}
				return st
			})
		}
	}
	takes := func(when string, takes ...store.Take) {
		t.Helper()
		for _, k := range takes {
			same(t, was, is, fmt.Sprintf("%s, a take of %v", when, k.Buckets[0].N), func(s store.Store) any {
				var out [1]store.Verdict
				if err := s.Take(t.Context(), []store.Take{k}, out[:]); err != nil {
					return err
				}
				return out[0]
			})
		}
	}
	settles := func(when string, st store.Settlement) {
		t.Helper()
		same(t, was, is, fmt.Sprintf("%s, %v %q", when, st.Op, st.ID), func(s store.Store) any {
			var out [1]store.Outcome
			if err := s.Settle(t.Context(), []store.Settlement{st}, out[:]); err != nil {
				return err
			}
			out[0].End = out[0].End.UTC()
			return out[0]
		})
	}
	peek("as it was")
	held := store.Take{Buckets: bucket(all["kinds"], 5, 1), ID: "held", Grant: 7, Hold: 2 * time.Hour}
	takes("sent again", held)
	advance(10 * time.Minute)
	takes("ten minutes later", held, store.Take{Buckets: bucket(all["kinds"], 60, 0)},
		store.Take{Buckets: bucket(all["paused"], 1, 0)}, store.Take{Buckets: bucket(all["simple"], 66, 0)},
		store.Take{Buckets: bucket(all["simple"], 1, 0)}, store.Take{Buckets: bucket(all["ahead"], 1, 0)})
	settles("ten minutes later", store.Settlement{
		Op: store.OpRenew, ID: "simple", Grant: 9, Hold: 3 * time.Hour, Buckets: bucket(all["simple"], 0, 0),
	})
	end := store.Settlement{Op: store.OpSettle, ID: "held", Grant: 7, Buckets: bucket(all["kinds"], 1, 1)}
	settles("ten minutes later", end)
	settles("once more", end)
	peek("ten minutes later")
	advance(55 * time.Minute) // the next day, after the pause and the first window
	peek("an hour later")
	takes("an hour later", store.Take{Buckets: bucket(all["kinds"], 50, 1), ID: "next", Grant: 1, Hold: time.Hour},
		store.Take{Buckets: bucket(all["paused"], 70, 0)})
	advance(4 * time.Hour)
	peek("when all holds have ended")
}

// same asks both stores.
func same(t *testing.T, was, is store.Store, what string, ask func(store.Store) any) {
	t.Helper()
	if a, b := ask(was), ask(is); !reflect.DeepEqual(a, b) {
		t.Errorf("%s:\nby the record of an earlier version %+v\nby today's record                  %+v", what, a, b)
	}
}

func take(t *testing.T, s store.Store, k store.Take) {
	t.Helper()
	var out [1]store.Verdict
	if err := s.Take(t.Context(), []store.Take{k}, out[:]); err != nil || !out[0].Allowed {
		t.Fatalf("%+v: allowed %v, %v, %v", k, out[0].Allowed, out[0].Fail, err)
	}
}

func settle(t *testing.T, s store.Store, st store.Settlement) {
	t.Helper()
	var out [1]store.Outcome
	if err := s.Settle(t.Context(), []store.Settlement{st}, out[:]); err != nil || out[0].Err != nil || out[0].Gone {
		t.Fatalf("%+v: %+v, %v", st, out[0], err)
	}
}
