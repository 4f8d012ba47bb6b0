package redisstore_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// knower is a store that names in each call what it knows of the buckets' histories, as a guard
// does. It keeps the histories to itself.
type knower struct {
	*redisstore.Store
	known map[store.Key]store.Known
}

func (s *knower) of(buckets []store.BucketCost) []store.Known {
	known := make([]store.Known, len(buckets))
	for i := range buckets {
		known[i] = s.known[buckets[i].Key]
	}
	return known
}

func (s *knower) hear(buckets []store.BucketCost, as *[]store.History) {
	for i, a := range *as {
		if a.Listed {
			s.known[buckets[i].Key] = a.Known
		}
	}
	*as = nil
}

func (s *knower) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	batch = slices.Clone(batch)
	for i := range batch {
		batch[i].Known = s.of(batch[i].Buckets)
	}
	err := s.Store.Take(ctx, batch, out)
	for i := range batch {
		s.hear(batch[i].Buckets, &out[i].Histories)
	}
	return err
}

func (s *knower) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	batch = slices.Clone(batch)
	for i := range batch {
		batch[i].Known = s.of(batch[i].Buckets)
	}
	err := s.Store.Settle(ctx, batch, out)
	for i := range batch {
		s.hear(batch[i].Buckets, &out[i].Histories)
	}
	return err
}

// allKinds draws limits of every kind.
func allKinds(t *rapid.T) []drawgate.Limit {
	amount := rapid.SampledFrom([]int64{3, 7, 20, 100})
	ls := []drawgate.Limit{
		{
			Name: "b", Kind: drawgate.Bucket, Window: 10 * time.Minute,
			Burst: rapid.SampledFrom([]int64{0, 5}).Draw(t, "burst"),
		},
		{Name: "r", Kind: drawgate.Rolling, Window: time.Hour},
		{Name: "h", Kind: drawgate.Calendar, Every: drawgate.Hour},
		{Name: "d", Kind: drawgate.Calendar, Every: drawgate.Day, Zone: "Europe/Berlin"},
		{Name: "n", Kind: drawgate.Concurrency},
	}
	for i := range ls {
		l := &ls[i]
		l.Amount = amount.Draw(t, "amount")
		l.Charge = rapid.SampledFrom([]drawgate.Charge{drawgate.ChargeStart, drawgate.ChargeEnd}).Draw(t, "charge")
		if l.Kind == drawgate.Rolling {
			l.Precision = rapid.SampledFrom([]int{0, drawgate.Exact, 100}).Draw(t, "precision")
			l.Margin = rapid.SampledFrom([]time.Duration{0, 2 * time.Second}).Draw(t, "margin")
		}
	}
	return ls
}

// pauseOrEnd pauses buckets, or ends a pause.
func (s *script) pauseOrEnd(ends map[store.Key]time.Time) {
	st := store.Settlement{Op: store.OpPause, Buckets: []store.BucketCost{s.bucket()}, Reason: "calm down"}
	key := st.Buckets[0].Key
	if end, ok := ends[key]; ok && rapid.Bool().Draw(s.T, "end") {
		st.Op, st.At, st.Reason = store.OpUnpause, end, ""
	} else {
		st.At = time.UnixMicro(s.clock.now()).Add(rapid.SampledFrom([]time.Duration{
			time.Second, time.Minute, 30 * time.Minute,
		}).Draw(s.T, "pause"))
	}
	if o := s.settleThis(st); st.Op == store.OpPause {
		ends[key] = o.End
	}
}

// entriesOver returns those of the buckets in which nothing is held and all entries of rolling
// limits are over: the version before may delete them before it writes, with their lines.
func (s *script) entriesOver(buckets []store.BucketCost) (keys []store.Key) {
	if !s.waits {
		return nil
	}
	for k, r := range s.model.All {
		now, rolling, over := max(s.clock.now(), r.Last), false, true
		for i := range r.Limits {
			if st := &r.Limits[i]; st.Kind == record.Rolling {
				rolling = true
				over = over && (st.Entries.Len() == 0 || st.Entries.At(st.Entries.Len()-1).Last+st.Window <= now)
			}
		}
		for _, o := range r.Open {
			over = over && o.End <= now
		}
		if rolling && over && slices.ContainsFunc(buckets, func(b store.BucketCost) bool { return b.Key == k }) {
			keys = append(keys, k)
		}
	}
	return keys
}

// dropLines makes the model drop those of the lines that are gone.
func (s *script) dropLines(keys []store.Key) {
	for _, k := range keys {
		got, err := s.lines().Line(s.Context(), k)
		if err != nil {
			s.Fatal(err)
		}
		if len(got.Tickets) > 0 {
			continue
		}
		for _, x := range s.model.Line(k).Tickets {
			if err := s.model.Withdraw(s.Context(), x.Number, []store.Key{k}); err != nil {
				s.Fatal(err)
			}
		}
	}
}

// TestTwelveHoursBesideTheVersionBefore: for twelve hours, programs of this version and of the one
// before it take turns on the same buckets, with limits of every kind: takes, holds, settlements,
// renewals, charges, refunds, pauses and their ends, and of this version some that wait in line.
// The version before passes those who wait. It keeps their tickets, unless it deletes a bucket's
// expired entries all at once. Otherwise each answer is as if there was one version: none is an
// error, nothing is unknown to one that the other wrote, and nothing is admitted beyond a limit.
//
// req: D6
func TestTwelveHoursBesideTheVersionBefore(t *testing.T) {
	needs.NoRace(t) // one goroutine
	t.Parallel()
	before, err := os.ReadFile("testdata/script-before.lua")
	if err != nil {
		t.Fatal(err)
	}
	conn := client(t, redistest.Start(t))
	did := map[string]int{}
	for range needs.Rounds(1, 1, 20) {
		rapid.Check(t, func(t *rapid.T) {
			for _, what := range twelveHours(t, conn, string(before)) {
				did[what]++
			}
		})
	}
	t.Log(did)
}

// twelveHours is one history of twelve hours. It returns what was done.
func twelveHours(t *rapid.T, conn rueidis.Client, before string) []string {
	clock, keys := newClock(), prefix()
	is := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: keys}, clock.now)
	was := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: keys, NoBatches: true}, clock.now)
	both := &turns{is, t, &knower{is, map[store.Key]store.Known{}}, was.AsBefore(before)}
	s := &script{
		T: t, store: both, turns: both, clock: clock, model: model.NewRecords(clock.now, false).InLine(), waits: true,
	}
	for i, limits := range [][]drawgate.Limit{allKinds(t), allKinds(t)[:1], allKinds(t)[1:2], allKinds(t)[2:]} {
		plan, err := drawgate.Policy{Name: string(rune('p' + i)), Limits: limits}.Compile()
		if err != nil {
			t.Fatal(err)
		}
		s.plans = append(s.plans, []*store.Plan{plan.Plan})
	}
	ends, end := map[store.Key]time.Time{}, clock.now()+(12*time.Hour).Microseconds()
	for clock.now() < end {
		s.takes = s.takes[max(0, len(s.takes)-4):] // others are over, mostly
		switch rapid.IntRange(0, 14).Draw(t, "step") {
		case 0, 1, 2, 3, 4:
			s.take()
		case 5:
			s.again()
		case 6, 7, 8, 9:
			s.settle()
		case 10:
			s.pauseOrEnd(ends)
		case 11:
			s.peek()
		case 12:
			is.SetGeneration(rapid.Uint64Range(0, 3).Draw(t, "generation"))
		case 13:
			s.withdraw()
		default:
			clock.advance(rapid.SampledFrom([]time.Duration{10 * time.Minute, time.Hour}).Draw(t, "break"))
		}
		clock.advance(rapid.SampledFrom([]time.Duration{
			0, 0, 0, time.Microsecond, 100 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second,
			time.Minute, 10 * time.Minute,
		}).Draw(t, "wait"))
	}
	for key := range s.model.All {
		var out [1]store.State
		b := []store.BucketCost{{Key: key, Plan: s.plans[key.Policy[0]-'p'][0]}}
		err := is.PeekKnown(context.Background(), b, 0, make([]store.Known, 1), out[:])
		if err != nil || out[0].Fail != nil {
			t.Fatal(err, out[0].Fail)
		}
	}
	return kindsOf(s.done)
}

// kindsOf returns what each line of a history did, without its amounts.
func kindsOf(done []string) (kinds []string) {
	for _, line := range done {
		words := strings.Fields(line)
		what, result := words[1], words[len(words)-1]
		switch {
		case what == "take" && strings.Contains(line, " ticket="):
			what = "take in line " + result
		case what == "take" && words[2] == "before=true":
			what = "take by the version before " + result
		case what != "peek" && what != "withdraw":
			what += " " + result
		}
		kinds = append(kinds, what)
	}
	return kinds
}
