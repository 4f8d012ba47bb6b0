package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/store"
)

func one() (int, bool) { return 1, true }

// TestOneProcessDecidesAsTheStoreWould: with one process the share is the whole limit. So its
// decisions equal those of a simple model store, for any history of takes, resends, reused IDs,
// settlements, renewals and time.
func TestOneProcessDecidesAsTheStoreWould(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		l := ledger.New(ledger.Options{Instances: one, Start: drawgate.StartFull, MaxEntries: 10, MaxHeld: 1000})
		m, p := newModel(), plan(rapid.Int64Range(1, 12).Draw(rt, "units"), rapid.Int64Range(1, 3).Draw(rt, "slots"))
		now := ledger.Now{Own: 1, Store: 1_000 * second}
		grants := map[string]store.Grant{}
		for range 80 {
			d := rapid.SampledFrom([]int64{0, 1, second, window / 3, window}).Draw(rt, "sleep")
			now.Own, now.Store = now.Own+d, now.Store+d
			id := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(rt, "id")
			switch op := rapid.SampledFrom([]string{
				"take", "take", "again", "settle", "cancel", "renew",
				"old",
			}).Draw(rt, "op"); op {
			case "take", "again":
				tk := store.Take{ID: id, Buckets: bucket(p, rapid.Int64Range(0, 4).Draw(rt, "n"), 0)}
				if id != "" {
					if grants[id] == 0 || op == "take" {
						grants[id]++
					}
					tk.Grant, tk.Hold, tk.Buckets = grants[id], time.Minute, bucket(p, 2, 1)
				}
				var r ledger.Request
				r.Init(&tk)
				got, want := l.Decide(now, &r), m.take(&tk, now.Store)
				if got.Allowed != want.Allowed || got.Replayed != want.Replayed ||
					fmt.Sprint(got.Fail) != fmt.Sprint(want.Fail) {
					rt.Fatalf("take %q grant %d of %v: allowed %v, replayed %v, %v; want %v, %v, %v", id, tk.Grant,
						tk.Buckets[0].N,
						got.Allowed, got.Replayed, got.Fail, want.Allowed, want.Replayed, want.Fail)
				}
			default:
				st := store.Settlement{
					ID: id, Grant: grants[id],
					Buckets: bucket(p, rapid.Int64Range(0, 3).Draw(rt, "used"), 1), Hold: time.Minute,
				}
				if op == "old" && st.Grant > 1 {
					st.Grant--
				}
				st.Op = map[string]store.Op{
					"settle": store.OpSettle, "old": store.OpSettle, "cancel": store.OpCancel,
					"renew": store.OpRenew,
				}[op]
				if id == "" {
					continue
				}
				got, mine := l.Settle(now, &st)
				want := m.settle(&st, now.Store)
				if mine && (got.Gone != want.Gone || !got.End.Equal(want.End)) || !mine && !want.Gone {
					rt.Fatalf("%v %q grant %d: %+v (mine %v), want %+v", st.Op, id, st.Grant, got, mine, want)
				}
			}
			s := l.Describe(now, &bucket(p, 0, 0)[0], 0)
			if units, slots := m.used(now.Store); s.States[0].Used != units || s.States[1].Used != slots {
				rt.Fatalf("%d units and %d slots are used, want %d and %d", s.States[0].Used, s.States[1].Used, units,
					slots)
			}
		}
	})
}
