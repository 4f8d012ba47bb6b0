package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// heldPlan is a policy of which everything is held in another way.
func heldPlan(tb testing.TB) *store.Plan {
	tb.Helper()
	return compile(tb, "p",
		drawgate.Limit{Name: "slots", Unit: "slots", Kind: drawgate.Concurrency, Amount: 400},
		drawgate.Limit{
			Name: "out", Unit: "out", Kind: drawgate.Rolling, Window: time.Minute, Amount: 5000,
			Charge: drawgate.ChargeEnd,
		},
		drawgate.Limit{
			Name: "spent", Unit: "spent", Kind: drawgate.Bucket, Window: time.Minute, Amount: 6000,
			Charge: drawgate.ChargeEnd,
		},
		drawgate.Limit{
			Name: "day", Unit: "out", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 20_000,
			Charge: drawgate.ChargeEnd,
		},
		drawgate.Limit{Name: "rpm", Kind: drawgate.Rolling, Window: time.Minute, Amount: 3000},
	)
}

// results compares what two decisions by one plan say of its limits.
var results = cmp.Options{
	cmp.AllowUnexported(drawgate.LimitResult{}),
	cmp.Comparer(func(a, b *record.Spec) bool { return a == b }),
}

// TestManyReservations: hundreds of them are opened, settled, renewed and end in no order. Every
// answer is that of the engine, which looks at each.
// req: C3, D1
func TestManyReservations(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	conn := client(t, redistest.Start(t))
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			clock, d := newClock(), rand.New(rand.NewPCG(seed, 7))
			kept := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: prefix()}, clock.now)
			same, plan := model.NewRecords(clock.now, false), heldPlan(t)
			var open []string
			most := 0
			for step := range 700 {
				grow := 2 // of 10 steps that many settle
				if step > 400 {
					grow = 8
				}
				if step%50 == 0 {
					clock.advance(time.Duration(d.IntN(15)) * time.Second)
				}
				if d.IntN(10) < grow && len(open) > 0 {
					i := d.IntN(len(open))
					st := store.Settlement{
						Op: store.OpSettle, ID: open[i],
						Buckets: takeOf(plan, "k", 1, d.Int64N(9), d.Int64N(9), 2, 1).Buckets, Hold: time.Minute,
					}
					if st.Op = []store.Op{
						store.OpSettle, store.OpCancel,
						store.OpRenew,
					}[d.IntN(3)]; st.Op != store.OpRenew {
						open = slices.Delete(open, i, i+1)
					}
					if got, want := settle(t, kept, st), settle(t, same, st); !cmp.Equal(got, want) {
						t.Fatalf("step %d: %v: %+v, want %+v", step, st.Op, got, want)
					}
				} else {
					ask := takeOf(plan, "k", d.Int64N(3), d.Int64N(60), d.Int64N(2)*d.Int64N(60), d.Int64N(2),
						d.Int64N(2))
					if d.IntN(9) > 0 {
						ask = held(ask, fmt.Sprint(step), time.Duration(1+d.IntN(150))*time.Second)
					} else {
						ask.Buckets[0].N[0] = 0
					}
					got, want := take(t, kept, ask), take(t, same, ask)
					if diff := cmp.Diff(answerOf(&want), answerOf(&got), results); diff != "" {
						t.Fatalf("step %d: take %v (- engine, + store):\n%s", step, ask, diff)
					}
					if ask.ID != "" && got.Allowed {
						open = append(open, ask.ID)
					}
				}
				got, want := peek(t, kept, takeOf(plan, "k", 400, 1, 1, 1, 1).Buckets[0]),
					peek(t, same, takeOf(plan, "k", 400, 1, 1, 1, 1).Buckets[0])
				if diff := cmp.Diff(answerOf(&want.Verdict), answerOf(&got.Verdict), results); diff != "" ||
					got.Open != want.Open || !slices.Equal(got.States, want.States) {
					t.Fatalf("step %d: %d open, want %d; %v, want %v (- engine, + store):\n%s", step, got.Open,
						want.Open, got.States, want.States, diff)
				}
				most = max(most, got.Open)
			}
			if most < 129 {
				t.Errorf("at most %d were open: the script does not test much", most)
			}
		})
	}
}

// TestNothingIsLeftOfReservations once they are closed: neither their lists nor their fields.
func TestNothingIsLeftOfReservations(t *testing.T) {
	t.Parallel()
	conn, clock, keys := client(t, redistest.Start(t)), newClock(), prefix()
	st, plan := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: keys}, clock.now), heldPlan(t)
	for i := range 200 {
		if d := take(t, st, held(takeOf(plan, "k", 1, 1, int64(i%2), 1, 1), fmt.Sprint(i), time.Hour)); !d.Allowed {
			t.Fatal(d.Fail)
		}
	}
	for i := range 200 {
		id := fmt.Sprint((i * 77) % 200)
		if i == 150 {
			clock.advance(time.Hour) // the rest ends
		}
		settle(t, st, store.Settlement{Op: store.OpCancel, ID: id, Buckets: takeOf(plan, "k").Buckets})
	}
	take(t, st, takeOf(plan, "k", 0, 1))
	names, err := conn.Do(t.Context(), conn.B().Hkeys().Key(redisstore.KeyOf(keys,
		store.Key{Policy: "p", Name: "k"})).Build()).AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if !strings.HasPrefix(n, "e") && n != "h" && n != "g" {
			t.Errorf("field %q is left", n)
		}
	}
}

// TestSlotOfAClosedReservation: the reservation that gets the number of a closed one does not get
// its slot as well. So who wants the slot later waits for the one that has it.
func TestSlotOfAClosedReservation(t *testing.T) {
	t.Parallel()
	st := redisstore.NewWithClock(client(t, redistest.Start(t)), &redisstore.Options{Prefix: prefix()}, newClock().now)
	plan := compile(t, "p", drawgate.Limit{Name: "slot", Unit: "slots", Kind: drawgate.Concurrency, Amount: 1},
		drawgate.Limit{Name: "others", Unit: "others", Kind: drawgate.Concurrency, Amount: 9})
	open := func(id string, hold time.Duration, slots, others int64) store.Verdict {
		return take(t, st, held(takeOf(plan, "k", slots, others), id, hold))
	}
	open("closed", time.Minute, 1, 0)
	open("without a slot", 2*time.Minute, 0, 1)
	settle(t, st, store.Settlement{Op: store.OpCancel, ID: "closed", Buckets: takeOf(plan, "k").Buckets})
	if d := open("with the slot", time.Hour, 1, 0); !d.Allowed {
		t.Fatal("refused a free slot")
	}
	if d := open("next", time.Minute, 1, 0); d.Allowed || d.RetryAfter != time.Hour {
		t.Errorf("allowed: %v, retry after %v; want to wait an hour", d.Allowed, d.RetryAfter)
	}
}

// TestPartsAreReadTogether: an answer that needs hundreds of parts of a bucket reads them with a
// few commands.
func TestPartsAreReadTogether(t *testing.T) {
	t.Parallel()
	const many = 200
	conn, clock := client(t, redistest.Start(t)), newClock()
	s := redisstore.NewWithClock(conn, nil, clock.now)
	plan := compile(t, "p", drawgate.Limit{Name: "slots", Kind: drawgate.Concurrency, Amount: many},
		drawgate.Limit{
			Name: "units", Kind: drawgate.Rolling, Window: time.Hour, Amount: many,
			Precision: drawgate.Exact,
		})
	for i := range many {
		clock.advance(time.Millisecond)
		take(t, s, held(takeOf(plan, "k", 1, 1), fmt.Sprint(i), time.Minute))
	}
	calls := regexp.MustCompile(`cmdstat_hm?get:calls=(\d+)`)
	for _, c := range []struct {
		what string
		wait time.Duration
		n    []int64
	}{
		{"what is held, and the entries", 0, []int64{1, many}},
		{"holds that have ended", 2 * time.Minute, []int64{1, 0}},
	} {
		clock.advance(c.wait)
		if err := conn.Do(t.Context(), conn.B().ConfigResetstat().Build()).Error(); err != nil {
			t.Fatal(err)
		}
		peek(t, s, takeOf(plan, "k", c.n...).Buckets[0])
		stats, err := conn.Do(t.Context(), conn.B().Info().Section("commandstats").Build()).ToString()
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, m := range calls.FindAllStringSubmatch(stats, -1) {
			n, _ := strconv.Atoi(m[1])
			sum += n
		}
		t.Logf("%s: %d commands", c.what, sum)
		if sum == 0 || sum > 10 {
			t.Errorf("%s: %d commands read the parts, want a few:\n%s", c.what, sum, stats)
		}
	}
}
