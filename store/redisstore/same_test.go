package redisstore_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"
	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// answer is a decision as it can be compared.
type answer struct {
	Allowed, Replayed         bool
	Reason                    store.Reason
	RetryAfter, EarliestRetry time.Duration
	Reused, NeedsHold         bool
	At, End                   time.Time
	Delay                     time.Duration
	Arrival                   int64
	Limits                    []store.Answer
	Histories                 []store.History
}

func answerOf(d *store.Verdict) answer {
	a := answer{
		Allowed: d.Allowed, Replayed: d.Replayed, Reason: d.Reason, RetryAfter: d.RetryAfter,
		EarliestRetry: d.EarliestRetry,
		Reused:        errors.Is(d.Fail, store.ErrIDReused), NeedsHold: errors.Is(d.Fail, store.ErrNeedsReserve),
		At:    d.At(),
		Delay: d.Delay(), Arrival: d.Arrival,
		End: d.HoldEnd(), Limits: append([]store.Answer{d.First}, d.Rest...), Histories: d.Histories,
	}
	return a
}

// someLimits draws limits. Their identities are few, so that versions of a policy meet in one
// bucket; everything else differs.
func someLimits(t *rapid.T, large bool) []drawgate.Limit {
	amount := rapid.SampledFrom([]int64{1, 2, 3, 7, 10, 100})
	if large {
		amount = rapid.SampledFrom([]int64{10, 999_999_937, 1_000_000_000_000})
	}
	margins := rapid.SampledFrom([]time.Duration{0, 0, time.Microsecond, 2 * time.Second})
	charge := rapid.SampledFrom([]drawgate.Charge{drawgate.ChargeStart, drawgate.ChargeStart, drawgate.ChargeEnd})
	var ls []drawgate.Limit
	for _, name := range rapid.Permutation([]string{"b", "b7", "r", "r5", "m", "d", "n"}).Draw(t,
		"order")[:rapid.IntRange(1, 5).Draw(t, "limits")] {
		l := drawgate.Limit{
			Name: name, Amount: amount.Draw(t, "amount"), Charge: charge.Draw(t, "charge"),
			Margin: margins.Draw(t, "margin"),
		}
		if rapid.Bool().Draw(t, "keeps") {
			l.ReservedByPriority = map[int]drawgate.Share{rapid.IntRange(1, 9).Draw(t, "for"): {Percent: 30}}
		}
		switch name {
		case "b", "b7":
			l.Kind, l.Window, l.Burst, l.Margin = drawgate.Bucket, 10*time.Second,
				rapid.SampledFrom([]int64{0, 1, 5, 40}).Draw(t, "burst"), 0
			if name == "b7" {
				l.Window = 7 * time.Second
			}
			if large {
				l.Burst = 0
				if name == "b7" {
					l.Amount, l.Burst = rapid.SampledFrom([]int64{11, 999_983}).Draw(t, "odd"), 1_286_000_000
				}
			}
		case "r", "r5":
			l.Kind, l.Window = drawgate.Rolling, 10*time.Second
			l.Precision = rapid.SampledFrom([]int{0, 0, drawgate.Exact, 100, 1000}).Draw(t, "precision")
			if name == "r5" {
				l.Window = 5 * time.Second
			}
		case "m":
			l.Kind, l.Every = drawgate.Calendar, drawgate.Minute
		case "d":
			l.Kind, l.Every, l.Zone = drawgate.Calendar, drawgate.Day, "Europe/Berlin"
		case "n":
			l.Kind, l.Margin = drawgate.Concurrency, 0
		}
		ls = append(ls, l)
	}
	return ls
}

// script is one random history.
type script struct {
	*rapid.T
	store store.Store
	model *model.Records
	turns *turns // with the version before; nil: there is none
	clock *fakeClock
	plans [][]*store.Plan // per policy its versions
	takes []store.Take    // that were held
	done  []string        // what was done, for the failure message
	large bool
	few   bool            // the store removes expired entries one by one
	apart bool            // the buckets are in several slots of a cluster
	end   *drawgate.Limit // what limits have alike; see alike

	waits    bool                    // takes have tickets
	arrivals map[uint64]int64        // as answered, by the waiter's number
	ends     map[store.Key]time.Time // of pauses
}

func (s *script) buckets() []store.BucketCost {
	n := 1
	if rapid.IntRange(0, 3).Draw(s.T, "several") == 0 {
		n = rapid.IntRange(2, 3).Draw(s.T, "buckets")
	}
	var bs []store.BucketCost
	for range n {
		bs = append(bs, s.bucket())
	}
	slices.SortFunc(bs, func(a, b store.BucketCost) int { return cmpKey(a.Key, b.Key) })
	return slices.CompactFunc(bs, func(a, b store.BucketCost) bool { return a.Key == b.Key })
}

func cmpKey(a, b store.Key) int {
	return slices.Compare([]string{a.Policy, a.Name}, []string{b.Policy, b.Name})
}

func (s *script) bucket() store.BucketCost {
	versions := rapid.SampledFrom(s.plans).Draw(s.T, "policy")
	plan := versions[0]
	if rapid.IntRange(0, 4).Draw(s.T, "other version") == 0 {
		plan = rapid.SampledFrom(versions).Draw(s.T, "version")
	}
	b := store.BucketCost{Key: store.Key{
		Policy: plan.Name(),
		Name:   rapid.SampledFrom([]string{"a", "a", "a", "b:%"}).Draw(s.T, "name"),
	}, Plan: plan}
	s.amounts(&b, 0)
	return b
}

func (s *script) amounts(b *store.BucketCost, least int64) {
	b.N = store.Amounts{}
	for j, l := range b.Plan.Policy().Limits {
		most := int64(4)
		if s.large {
			most = l.Amount
		}
		b.N[j] = rapid.OneOf(rapid.Int64Range(least, 2), rapid.Int64Range(least, most)).Draw(s.T, "n")
	}
}

func (s *script) priority() int8 { return rapid.SampledFrom([]int8{0, 0, 5, 9}).Draw(s.T, "priority") }

func (s *script) same(what string, got, want any) {
	s.done = append(s.done, what)
	if diff := cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		s.Fatalf("%s (-engine +Redis):\n%s\nhistory:\n%v", what, diff, join(s.done))
	}
}

func join(lines []string) (text string) {
	for _, l := range lines {
		text += l + "\n"
	}
	return text
}

func (s *script) take() { s.takeThis(s.someTake()) }

// someTake draws a take.
func (s *script) someTake() store.Take {
	t := store.Take{Buckets: s.buckets(), Priority: s.priority()}
	if rapid.IntRange(0, 2).Draw(s.T, "held") > 0 {
		n := rapid.IntRange(1, 12).Draw(s.T, "id")
		t.ID, t.Grant = fmt.Sprint("id", n), store.Grant(n)
		t.Hold = rapid.SampledFrom([]time.Duration{
			time.Microsecond, time.Second, 3 * time.Second, 20 * time.Second,
			time.Hour, 50 * time.Hour,
		}).Draw(s.T, "hold")
		t.Lease = rapid.IntRange(0, 3).Draw(s.T, "lease") == 0
		s.takes = append(s.takes, t)
	}
	if s.waits {
		s.wantsToWait(&t)
	}
	return t
}

func (s *script) again() {
	if len(s.takes) > 0 {
		s.takeThis(rapid.SampledFrom(s.takes).Draw(s.T, "which"))
	}
}

// next returns the model for the next call. If the version before makes it, that knows no lines.
func (s *script) next() (m *model.Records, before bool) {
	if s.turns == nil || !s.turns.draw() {
		return s.model, false
	}
	return s.model.PastLines(), true
}

func (s *script) takeThis(t store.Take) *store.Verdict {
	want, got := make([]store.Verdict, 1), make([]store.Verdict, 1)
	m, before := s.next()
	var over []store.Key
	if before {
		t.Ticket, t.Barge = nil, false
		over = s.entriesOver(t.Buckets)
	}
	if err := m.Take(s.Context(), []store.Take{t}, want); err != nil {
		s.Fatal(err)
	}
	if s.apart && len(t.Buckets) > 1 && !want[0].Allowed && want[0].Fail == nil && s.isOpen(&t) {
		return &got[0] // a replay that is refused: slots before the one that refuses would count their units anew
	}
	if err := s.store.Take(s.Context(), []store.Take{t}, got); err != nil {
		s.Fatal(err)
	}
	if f := got[0].Fail; f != nil && !errors.Is(f, store.ErrIDReused) && !errors.Is(f, store.ErrNeedsReserve) {
		s.Fatalf("take: %v\nhistory:\n%v", got[0].Fail, join(s.done))
	}
	s.dropLines(over)
	what := fmt.Sprintf("%d take before=%v id=%q hold=%v lease=%v priority=%d", s.clock.now(), before, t.ID, t.Hold,
		t.Lease, t.Priority)
	for _, b := range t.Buckets {
		what += fmt.Sprintf(" %s/%s%v", b.Key.Policy, b.Key.Name, b.N)
	}
	a, b := answerOf(&got[0]), answerOf(&want[0])
	if s.few {
		a.leftLess(&b, &t)
	}
	s.same(what+waiter(&t)+fmt.Sprintf(" -> %v", want[0].Allowed), a, b)
	s.arrived(&t, &want[0])
	if s.waits {
		s.sameLines(t.Buckets)
	}
	return &want[0]
}

// isOpen reports whether a take is open.
func (s *script) isOpen(t *store.Take) bool {
	for k, r := range s.model.All {
		if k == t.Buckets[0].Key {
			return r.Open[t.ID] != nil
		}
	}
	return false
}

// leftLess accepts that less is left of a rolling limit than of the engine's, if the limit is not
// one that made the take wait.
func (a *answer) leftLess(want *answer, t *store.Take) {
	for b := range min(len(a.Limits), len(want.Limits)) {
		for i, limit := range t.Buckets[b].Plan.Policy().Limits {
			l, w := &a.Limits[b].Limits[i], &want.Limits[b].Limits[i]
			if waits := w.RetryAfter > 0 && w.RetryAfter < drawgate.Never; !waits && limit.Kind == drawgate.Rolling {
				l.Remaining = max(l.Remaining, w.Remaining)
			}
		}
	}
}

// settlement draws a settlement.
func (s *script) settlement() store.Settlement {
	st := store.Settlement{Op: rapid.SampledFrom([]store.Op{
		store.OpSettle, store.OpSettle, store.OpCancel, store.OpRenew, store.OpCharge, store.OpRefund,
	}).Draw(s.T, "op")}
	if st.Op == store.OpCharge || st.Op == store.OpRefund || len(s.takes) == 0 {
		if st.Op != store.OpRefund {
			st.Op = store.OpCharge
		}
		st.Buckets = s.buckets()
		st.At = time.UnixMicro(s.clock.now() - rapid.SampledFrom([]int64{0, 0, 1e6, 60e6, 86400e6, -5e6}).Draw(s.T,
			"ago"))
	} else {
		t := rapid.SampledFrom(s.takes).Draw(s.T, "of")
		st.ID, st.Grant, st.Buckets = t.ID, t.Grant, slices.Clone(t.Buckets)
		st.Ended = st.Op != store.OpRenew && rapid.Bool().Draw(s.T, "ended")
		st.Hold = rapid.SampledFrom([]time.Duration{0, time.Second, 30 * time.Second}).Draw(s.T, "for")
		for i := range st.Buckets {
			if rapid.IntRange(0, 5).Draw(s.T, "by another version") == 0 {
				st.Buckets[i].Plan = rapid.SampledFrom(s.plans[st.Buckets[i].Key.Policy[0]-'p']).Draw(s.T, "version")
			}
			s.amounts(&st.Buckets[i], store.KeepEstimate)
		}
	}
	return st
}

func (s *script) settle() { s.settleThis(s.settlement()) }

func (s *script) settleThis(st store.Settlement) store.Outcome {
	want, got := make([]store.Outcome, 1), make([]store.Outcome, 1)
	m, before := s.next()
	if before && st.Op == store.OpSettle {
		s.onlyReserved(&st)
	}
	st.Ended = st.Ended && s.turns == nil // the version before does not remember
	var over []store.Key
	if before {
		over = s.entriesOver(st.Buckets)
	}
	batch := []store.Settlement{st}
	if err := errors.Join(m.Settle(s.Context(), batch, want),
		s.store.Settle(s.Context(), batch, got)); err != nil {
		s.Fatal(err)
	}
	if got[0].Err != nil {
		s.Fatalf("%v: %v\nhistory:\n%v", st.Op, got[0].Err, join(s.done))
	}
	s.dropLines(over)
	if s.apart && st.Op == store.OpRenew {
		got[0].End = want[0].End // the earliest of all slots; the engine says the latest, if they differ
	}
	s.same(fmt.Sprintf("%d %v id=%q hold=%v at=%v -> gone=%v", s.clock.now(), st.Op, st.ID, st.Hold, st.At.UnixMicro(),
		want[0].Gone), got[0], want[0])
	return got[0]
}

// onlyReserved leaves out of a settlement what it says of limits of which nothing is reserved: the
// version before does not count that.
func (s *script) onlyReserved(st *store.Settlement) {
	for i := range st.Buckets {
		b := &st.Buckets[i]
		reserved := map[uint64]bool{}
		for k, r := range s.model.All {
			if o := r.Open[st.ID]; k == b.Key && o != nil {
				for _, p := range o.Parts {
					reserved[p.Limit] = true
				}
			}
		}
		for j, spec := range store.Internal.Specs(b.Plan, false) {
			if !reserved[spec.ID] {
				b.N[j] = store.KeepEstimate
			}
		}
	}
}

func (s *script) peek() {
	b, priority := s.bucket(), s.priority()
	want, got := make([]store.State, 1), make([]store.State, 1)
	bs := []store.BucketCost{b}
	m, _ := s.next()
	if err := errors.Join(m.Peek(s.Context(), bs, priority, want),
		s.store.Peek(s.Context(), bs, priority, got)); err != nil {
		s.Fatal(err)
	}
	if got[0].Fail != nil {
		s.Fatalf("peek: %v\nhistory:\n%v", got[0].Fail, join(s.done))
	}
	type status struct {
		A      answer
		States []store.LimitUsage
		Open   int
	}
	s.same(fmt.Sprintf("%d peek %s/%s%v priority=%d", s.clock.now(), b.Key.Policy, b.Key.Name, b.N, priority),
		status{answerOf(&got[0].Verdict), got[0].States, got[0].Open},
		status{answerOf(&want[0].Verdict), want[0].States, want[0].Open})
}

func (s *script) wait() {
	waits := []int64{
		0, 1, 39062, 78125, 500_000, 999_999, 1e6, 2e6, 3e6, 5e6, 7e6, 10e6, 30e6, 60e6, 3600e6, 5 * 3600e6, 86400e6,
		3 * 86400e6, -1, -4e6,
	}
	if s.few || s.apart { // what a refusal has removed is kept, with its instant: the engine forgets that
		waits = waits[:len(waits)-2]
	}
	s.clock.us.Add(rapid.SampledFrom(waits).Draw(s.T, "wait"))
}

// live checks that every bucket lives for as long as something in it is used or held.
func (s *script) live(c rueidis.Client, prefix string) {
	if s.Failed() {
		return
	}
	for k, r := range s.model.All {
		until := r.Until()
		if r.Held() {
			until = 0
			for _, o := range r.Open {
				until = max(until, o.End)
			}
		}
		ms, err := c.Do(s.Context(), c.B().Pttl().Key(redisstore.KeyOf(prefix, k)).Build()).AsInt64()
		const late = 20_000 // ms since it was set: less than the least slack
		// No instant is later than 2^53 µs, which is in 2255: what would be needed for longer is
		// not.
		if need := min((until-s.clock.now())/1000, 6e12); err != nil || ms < need-late {
			s.Fatalf("%v lives for %d ms, %v; needed for %d ms", k, ms, err, need)
		}
	}
}

// req: B1, C3, E5, E10
func TestSameAsEngine(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	sameAsEngine(t, redistest.Start(t).URL(), false, false)
}

// TestSameOnCluster: takes and settlements of buckets in several slots have the same answers. The
// clock does not go back: each slot knows only by itself that it did. There is one version of each
// policy, without a margin.
//
// req: B1, C3, E5
func TestSameOnCluster(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	sameAsEngine(t, redistest.StartCluster(t, false).URL(), false, false)
}

// TestSameWithExpiredEntries: however many expired entries are not removed yet, takes are granted
// and refused as if there were none, and wait as long.
//
// req: B1, E7
func TestSameWithExpiredEntries(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	sameAsEngine(t, redistest.Start(t).URL(), true, false)
}

// TestSameInBatches: a request that goes in a batch gets the answer of a call of its own.
//
// req: B1, C3, E5, E10
func TestSameInBatches(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	sameAsEngine(t, redistest.Start(t).URL(), false, true)
}

// TestSameInBatchesWithExpiredEntries is both.
//
// req: B1, E7
func TestSameInBatchesWithExpiredEntries(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	sameAsEngine(t, redistest.Start(t).URL(), true, true)
}

// alike makes limits end holds like those of all versions of the script. A call that removes
// expired entries also writes down that a hold has ended, though it is refused, and the model does
// not: so it would matter which version was there first.
func (s *script) alike(ls []drawgate.Limit) {
	if s.end == nil {
		s.end = &drawgate.Limit{
			Margin: rapid.SampledFrom([]time.Duration{0, time.Microsecond, 2 * time.Second}).Draw(s.T,
				"margin of all"),
			Charge: rapid.SampledFrom([]drawgate.Charge{drawgate.ChargeStart, drawgate.ChargeEnd}).Draw(s.T,
				"charge of all"),
			Precision: rapid.SampledFrom([]int{0, drawgate.Exact, 100, 1000}).Draw(s.T, "precision of all"),
		}
	}
	for i := range ls {
		switch l := &ls[i]; l.Kind {
		case drawgate.Rolling:
			l.Margin, l.Charge, l.Precision = s.end.Margin, s.end.Charge, s.end.Precision
		case drawgate.Calendar:
			l.Margin, l.Charge = s.end.Margin, s.end.Charge
		}
	}
}

func sameAsEngine(t *testing.T, url string, few, batches bool) {
	t.Helper()
	conn := clientOf(t, url)
	rapid.Check(t, func(t *rapid.T) {
		clock, keys := newClock(), prefix()
		st := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: keys}, clock.now)
		if few {
			st.RemoveAtMost(1)
		}
		if batches {
			st.AlwaysInBatches()
		}
		s := &script{T: t, store: st, clock: clock, model: model.NewRecords(clock.now, false).InLine(), few: few}
		s.apart = conn.Mode() == rueidis.ClientModeCluster
		s.waits = !s.apart && rapid.Bool().Draw(t, "waits")
		s.large = rapid.IntRange(0, 3).Draw(t, "large") == 0
		for _, name := range []string{"p", "q"} {
			var versions []*store.Plan
			most := 3
			if s.apart { // a lease leaves the margin and the rate by which it was taken, until nothing is held
				most = 1
			}
			for range rapid.IntRange(1, most).Draw(t, "versions") {
				limits := someLimits(t, s.large)
				for i := range limits {
					if s.apart { // each slot repeats its answer within its own margin, and not all within the least
						limits[i].Margin = 0
					}
				}
				if few {
					s.alike(limits)
				}
				plan, err := drawgate.Policy{Name: name, Limits: limits}.Compile()
				if err != nil {
					t.Skip(err)
				}
				versions = append(versions, plan.Plan)
			}
			s.plans = append(s.plans, versions)
		}
		defer s.live(conn, keys)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2, 3:
				s.take()
			case 4:
				s.again()
			case 5, 6:
				s.settle()
			case 7:
				s.peek()
			case 8:
				if s.waits {
					s.withdraw()
				}
				s.wait()
			default:
				s.wait()
			}
		}
	})
}
