package record_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Lengths in µs, and an instant to start from: Thursday 2026-10-01 00:00 UTC.
const (
	sec   = int64(1e6)
	mnt   = 60 * sec
	hour  = 60 * mnt
	day   = 24 * hour
	epoch = 1_790_812_800 * sec
)

// scale cuts a number of random steps, which is for the long form.
func scale(n int) int { return max(1, needs.Rounds(n/25, n/3, n)) }

// dice is a seeded source of choices.
type dice struct{ *rand.Rand }

func newDice(seed uint64) dice { return dice{rand.New(rand.NewPCG(seed, 0x6472617767617465))} }

// upTo returns a number from 0 to n, small ones more often.
func (d dice) upTo(n int64) int64 {
	if n > 8 && d.IntN(2) == 0 {
		n /= 1 << d.IntN(8)
	}
	return d.Int64N(n + 1)
}

// between returns a number from a to b.
func (d dice) between(a, b int64) int64 { return a + d.Int64N(b-a+1) }

// one reports true once in n times.
func (d dice) one(n int) bool { return d.IntN(n) == 0 }

// spec compiles a limit that is valid.
func spec(t testing.TB, l drawgate.Limit) record.Spec {
	t.Helper()
	if l.Name == "" {
		l.Name = "l"
	}
	plan, err := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{l}}.Compile()
	if err != nil {
		t.Fatalf("limit %+v: %v", l, err)
	}
	return store.Internal.Specs(plan.Plan, false)[0]
}

// bucket is one record with its limits, and a clock.
type bucket struct {
	rec   *record.Record
	specs []record.Spec
	now   int64
}

func newBucket(t testing.TB, limits ...drawgate.Limit) *bucket {
	t.Helper()
	b := &bucket{rec: &record.Record{}, now: epoch}
	for i, l := range limits {
		if l.Name == "" {
			l.Name = fmt.Sprint("l", i)
		}
		b.specs = append(b.specs, spec(t, l))
	}
	return b
}

func amounts(n ...int64) (a record.Amounts) {
	copy(a[:], n)
	return a
}

// take decides one take, and returns the answers per limit beside the verdict.
func (b *bucket) take(t record.Take, n ...int64) (record.Verdict, [record.MaxLimits]record.Result) {
	asks := []record.Ask{{Rec: b.rec, Specs: b.specs, N: amounts(n...)}}
	v := record.Decide(asks, &t, b.now)
	return v, asks[0].Out
}

// allow reports whether a plain take is granted.
func (b *bucket) allow(n ...int64) bool {
	v, _ := b.take(record.Take{}, n...)
	return v.Allowed
}

// hold takes with a reservation and reports whether that was granted.
func (b *bucket) hold(id string, d int64, n ...int64) bool {
	v, _ := b.take(record.Take{ID: id, Hold: d}, n...)
	return v.Allowed
}

// settle ends a reservation and reports whether it was open.
func (b *bucket) settle(id string, n ...int64) bool {
	settled, _ := record.Settle([]record.Ask{{Rec: b.rec, Specs: b.specs, N: amounts(n...)}}, id, 0, false, b.now)
	return settled
}

func (b *bucket) cancel(id string) bool {
	settled, _ := record.Settle([]record.Ask{{Rec: b.rec, Specs: b.specs}}, id, 0, true, b.now)
	return settled
}

func (b *bucket) charge(at int64, n ...int64) {
	record.Charge([]record.Ask{{Rec: b.rec, Specs: b.specs, N: amounts(n...)}}, at, b.now)
}

// peek says what a take of n would get.
func (b *bucket) peek(n ...int64) (record.Verdict, [record.MaxLimits]record.Result) {
	a := record.Ask{Rec: b.rec, Specs: b.specs, N: amounts(n...)}
	v := record.Peek(&a, 0, b.now)
	return v, a.Out
}

// used returns what limit i has used.
func (b *bucket) used(i int) record.Usage {
	b.rec.Advance(b.specs, b.now)
	return b.rec.Usage(&b.specs[i], 0)
}

func dur(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
