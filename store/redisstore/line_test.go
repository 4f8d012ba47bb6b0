package redisstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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

// numbers are those of waiters. Some need all 64 bits.
var numbers = rapid.SampledFrom([]uint64{1, 2, 1<<63 + 1, 1<<63 + 2, 1<<64 - 1, 0xff00, 0x00ff})

// wantsToWait gives a take a ticket, or lets it pass those who wait.
func (s *script) wantsToWait(t *store.Take) {
	if !s.few {
		t.Ahead = rapid.SampledFrom([]time.Duration{0, 0, 0, 20 * time.Millisecond, 3 * time.Second}).Draw(s.T, "ahead")
	}
	switch rapid.IntRange(0, 9).Draw(s.T, "ticket") {
	case 7, 8:
		return
	case 9:
		t.Barge = true
		if rapid.Bool().Draw(s.T, "no ticket") {
			return
		}
	}
	waited := rapid.SampledFrom([]time.Duration{0, 0, 1500, time.Second, 20 * time.Second, 100 * time.Second})
	n := numbers.Draw(s.T, "number")
	t.Ticket = &store.Ticket{
		Number: n, Waited: waited.Draw(s.T, "waited"),
		Patience: rapid.SampledFrom([]time.Duration{
			0, 0, 1, 50 * time.Millisecond, time.Second, 10 * time.Second, time.Hour,
		}).Draw(s.T, "patience"),
	}
	if rapid.IntRange(0, 4).Draw(s.T, "arrived") > 0 {
		t.Ticket.Arrival = s.arrivals[n]
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(s.T, "behind") {
		next := numbers.Draw(s.T, "next")
		if next == n {
			continue
		}
		at := rapid.IntRange(0, len(t.Buckets)-1).Draw(s.T, "at")
		b := store.BucketCost{Plan: t.Buckets[at].Plan}
		s.amounts(&b, 0)
		t.Ticket.Next = append(t.Ticket.Next, store.Next{
			Number: next, Arrival: s.arrivals[next] * int64(rapid.IntRange(0, 1).Draw(s.T, "known")),
			Waited: waited.Draw(s.T, "next waited"), Priority: s.priority(), At: at, N: b.N,
		})
	}
}

// arrived keeps what an answer says of a waiter's arrival.
func (s *script) arrived(t *store.Take, d *store.Verdict) {
	if t.Ticket == nil || d.Arrival == 0 {
		return
	}
	if s.arrivals == nil {
		s.arrivals = map[uint64]int64{}
	}
	s.arrivals[t.Ticket.Number] = d.Arrival
}

// waiter describes a take's ticket, for the failure message.
func waiter(t *store.Take) (text string) {
	if t.Ahead > 0 {
		text += fmt.Sprintf(" ahead=%v", t.Ahead)
	}
	if t.Barge {
		text += " barge"
	}
	if k := t.Ticket; k != nil {
		text += fmt.Sprintf(" ticket=%x arrival=%d waited=%v patience=%v", k.Number, k.Arrival, k.Waited, k.Patience)
		if len(k.Next) > 0 {
			text += fmt.Sprintf(" next=%+v", k.Next)
		}
	}
	return text
}

// lines returns the store that keeps lines.
func (s *script) lines() *redisstore.Store {
	if s.turns != nil {
		return s.turns.is.(*knower).Store
	}
	return s.store.(*redisstore.Store)
}

// sameLines compares lines with the model's.
func (s *script) sameLines(buckets []store.BucketCost) {
	for _, b := range buckets {
		got, err := s.lines().Line(s.Context(), b.Key)
		if err != nil {
			s.Fatal(err)
		}
		want := s.model.Line(b.Key)
		// A line that is over goes with its key; the version before keeps it, or drops it.
		for _, l := range []*record.Line{want, got} {
			l.Expire(s.clock.now())
			l.Changed = false
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			s.Fatalf("line of %v (-engine +Redis):\n%s\nhistory:\n%v", b.Key, diff, join(s.done))
		}
	}
}

// pause pauses a bucket, or ends its pause if that is in force. What changes nothing is kept by the
// model, and not by the script.
func (s *script) pause() {
	st := store.Settlement{Op: store.OpPause, Buckets: []store.BucketCost{s.bucket()}, Reason: "calm down"}
	key := st.Buckets[0].Key
	if end := s.ends[key]; end.UnixMicro() > s.clock.now() {
		st.Op, st.At, st.Reason = store.OpUnpause, end, ""
		s.settleThis(st)
		delete(s.ends, key)
		return
	}
	st.Hold = rapid.SampledFrom([]time.Duration{100 * time.Millisecond, time.Second, time.Minute}).Draw(s.T, "pause")
	s.ends[key] = s.settleThis(st).End
}

// withdraw withdraws tickets.
func (s *script) withdraw() {
	n, buckets := numbers.Draw(s.T, "number"), s.buckets()
	var keys []store.Key
	for _, b := range buckets {
		keys = append(keys, b.Key)
	}
	s.done = append(s.done, fmt.Sprintf("%d withdraw %x %v", s.clock.now(), n, keys))
	err := errors.Join(s.model.Withdraw(s.Context(), n, keys),
		s.lines().Withdraw(s.Context(), n, keys))
	if err != nil {
		s.Fatal(err)
	}
	s.sameLines(buckets)
}

// TestSameLines: a store on Redis keeps the lines as package record does, and answers alike, where
// many wait for few units: takes with tickets and without, reservations and leases, of several
// priorities with kept shares, of one bucket and of two, with pauses and withdrawals.
//
// req: B1, C5
func TestSameLines(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	conn, did := client(t, redistest.Start(t)), map[string]int{}
	for _, batches := range []bool{false, true} {
		rapid.Check(t, func(t *rapid.T) { sameLines(t, conn, batches, did) })
	}
	t.Log(did)
}

func sameLines(t *rapid.T, conn rueidis.Client, batches bool, did map[string]int) {
	clock, keys := newClock(), prefix()
	st := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: keys}, clock.now)
	if batches {
		st.AlwaysInBatches()
	}
	s := &script{T: t, store: st, clock: clock, model: model.NewRecords(clock.now, false).InLine(), waits: true}
	s.ends = map[store.Key]time.Time{}
	for _, name := range []string{"p", "q"} {
		plan, err := drawgate.Policy{Name: name, Limits: fewUnits(t)}.Compile()
		if err != nil {
			t.Fatal(err)
		}
		s.plans = append(s.plans, []*store.Plan{plan.Plan})
	}
	for range rapid.IntRange(1, 80).Draw(t, "steps") {
		switch rapid.IntRange(0, 13).Draw(t, "step") {
		case 9:
			s.settle()
		case 10:
			s.again()
		case 11:
			s.withdraw()
		case 12:
			s.pause()
		case 13:
			s.passAndReturn(st, did)
		default:
			tk := s.someTake()
			for i := range tk.Buckets {
				s.amounts(&tk.Buckets[i], 1)
			}
			d := s.takeThis(tk)
			s.count(did, &tk, d)
		}
		clock.advance(rapid.SampledFrom([]time.Duration{
			0, 0, 0, 1000, time.Millisecond, 100 * time.Millisecond, time.Second, 3 * time.Second,
		}).Draw(t, "wait"))
	}
}

// passAndReturn uses a bucket up as far as low priority may, lets one of low priority wait for more
// that came long ago, and some of high priority pass it, which are settled early, renewed or sent
// again.
func (s *script) passAndReturn(st *redisstore.Store, did map[string]int) {
	all := s.bucket()
	for j := range all.Plan.Policy().Limits {
		all.N[j] = all.Plan.Max(j, 0)
	}
	hold := rapid.SampledFrom([]time.Duration{time.Second, time.Hour})
	take := func(id string, b store.BucketCost, priority int8, ticket *store.Ticket) *store.Take {
		return &store.Take{
			ID: id, Buckets: []store.BucketCost{b}, Hold: hold.Draw(s.T, "hold"), Priority: priority, Ticket: ticket,
			Barge: id == "all",
		}
	}
	s.takeThis(*take("all", all, 0, nil))
	some := func() store.BucketCost {
		b := all
		s.amounts(&b, 1)
		return b
	}
	s.takeThis(*take("low", some(), 0, &store.Ticket{Number: numbers.Draw(s.T, "low"), Waited: 1000 * time.Second}))
	var open []*store.Take
	for i := range rapid.IntRange(1, 6).Draw(s.T, "high") {
		b := all
		b.N = store.Amounts{}
		for j := range all.Plan.Policy().Limits {
			b.N[j] = 1
		}
		t := take(fmt.Sprint("high", i), b, 9, nil)
		was := s.model.Line(all.Key)
		if d := s.takeThis(*t); d.Allowed && !d.Replayed && !cmp.Equal(was.Passed, s.model.Line(all.Key).Passed) {
			open = append(open, t)
			did["passed by"]++
		}
		s.clock.advance(rapid.SampledFrom([]time.Duration{0, 1000, time.Second, 6 * time.Second}).Draw(s.T, "then"))
		if len(open) == 0 {
			continue
		}
		k := rapid.IntRange(0, len(open)-1).Draw(s.T, "which")
		switch rapid.IntRange(0, 4).Draw(s.T, "does") {
		case 0:
			s.settleThis(store.Settlement{
				Op: store.OpRenew, ID: open[k].ID, Grant: open[k].Grant, Buckets: open[k].Buckets, Hold: 2 * time.Hour,
			})
			did["renewed"]++
		case 1:
			s.takeThis(*open[k])
			did["sent again"]++
		case 2, 3:
			s.giveBack(st, open[k])
			open = slices.Delete(open, k, k+1)
			did["given back"]++
		}
	}
	s.sameLines([]store.BucketCost{all})
}

// giveBack settles a take. What passed tickets and still counts is the same afterwards.
func (s *script) giveBack(st *redisstore.Store, t *store.Take) {
	op := rapid.SampledFrom([]store.Op{store.OpSettle, store.OpCancel}).Draw(s.T, "op")
	end := store.Settlement{Op: op, ID: t.ID, Grant: t.Grant, Buckets: slices.Clone(t.Buckets)}
	for i := range end.Buckets {
		s.amounts(&end.Buckets[i], store.KeepEstimate)
	}
	s.settleThis(end)
	for _, b := range t.Buckets {
		want := s.model.Line(b.Key)
		got, err := st.Line(s.Context(), b.Key)
		if err != nil {
			s.Fatal(err)
		}
		for _, l := range []*record.Line{want, got} {
			l.Expire(s.clock.now())
		}
		if diff := cmp.Diff(want.Passed, got.Passed, cmpopts.EquateEmpty()); diff != "" {
			s.Fatalf("%v of %q: passed (-want +got):\n%s\nhistory:\n%v", op, t.ID, diff, join(s.done))
		}
	}
}

// fewUnits draws limits of which little is left soon.
func fewUnits(t *rapid.T) (ls []drawgate.Limit) {
	all := []drawgate.Limit{
		{Name: "b", Kind: drawgate.Bucket, Window: 10 * time.Second},
		{Name: "r", Kind: drawgate.Rolling, Window: 5 * time.Second, Precision: drawgate.Exact},
		{Name: "re", Kind: drawgate.Rolling, Window: 20 * time.Second, Charge: drawgate.ChargeEnd},
		{Name: "be", Kind: drawgate.Bucket, Window: 20 * time.Second, Charge: drawgate.ChargeEnd},
		{Name: "r10", Kind: drawgate.Rolling, Window: 10 * time.Second, Margin: time.Second},
		{Name: "m", Kind: drawgate.Calendar, Every: drawgate.Minute},
		{Name: "n", Kind: drawgate.Concurrency},
	}
	order := rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6}).Draw(t, "order")
	for _, i := range order[:rapid.IntRange(1, 3).Draw(t, "limits")] {
		l := all[i]
		l.Amount = rapid.SampledFrom([]int64{2, 4, 6, 10}).Draw(t, "amount")
		if rapid.Bool().Draw(t, "keeps") {
			l.ReservedByPriority = map[int]drawgate.Share{5: {Percent: 30}, 9: {Percent: 20}}
		}
		ls = append(ls, l)
	}
	return ls
}

// count counts what a take's answer shows.
func (s *script) count(did map[string]int, t *store.Take, d *store.Verdict) {
	if d.Reason == store.Queued {
		did["queued"]++
	}
	if d.Allowed && d.Delay() > 0 {
		did["ahead"]++
	}
	if d.Allowed && t.Ticket != nil && len(t.Ticket.Next) > 0 {
		did["next"]++
	}
	for _, b := range t.Buckets {
		l := s.model.Line(b.Key)
		if d.Allowed && len(l.Tickets) > 0 {
			did["granted in line"]++
		}
		if len(l.Passed) > 0 {
			did["passed"]++
		}
		if len(l.Tickets) > 1 {
			did["several"]++
		}
	}
}
