package record

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Seconds and milliseconds of the store's clock.
const (
	ms  = int64(1000)
	sec = 1000 * ms
)

// kept returns a spec of slots of which those of priority 7 and more may use all, others low.
func kept(id uint64, low, all int64) Spec {
	s := Spec{ID: id, Kind: Concurrency}
	for p := range s.Effective {
		if s.Effective[p] = low; p >= 7 {
			s.Effective[p] = all
		}
	}
	return s
}

// lineOf is a bucket with a line.
type lineOf struct {
	rec   Record
	line  Line
	specs []Spec
	last  uint64
}

// try asks for n units of each limit. number 0: the take does not wait.
func (b *lineOf) try(now int64, number uint64, priority int8, n ...int64) Verdict {
	t := &Take{Priority: priority, Hold: 3600 * sec}
	if number != 0 {
		t.Place = &Place{Number: number}
		for i := range b.line.Tickets {
			if b.line.Tickets[i].Number == number {
				t.Place.Arrival = b.line.Tickets[i].Arrival
			}
		}
	}
	return b.ask(now, t, n...)
}

func (b *lineOf) ask(now int64, t *Take, n ...int64) Verdict {
	if b.last++; t.ID == "" {
		t.ID, t.Grant = string(rune('a'+b.last)), b.last
	}
	a := []Ask{{Rec: &b.rec, Line: &b.line, Specs: b.specs}}
	copy(a[0].N[:], n)
	return Decide(a, t, now)
}

func (b *lineOf) free(now int64) {
	for id, o := range b.rec.Open {
		Settle([]Ask{{Rec: &b.rec, Specs: b.specs}}, id, o.Grant, true, now)
		return
	}
}

func (b *lineOf) numbers() (all []uint64) {
	for i := range b.line.Tickets {
		all = append(all, b.line.Tickets[i].Number)
	}
	return all
}

func (b *lineOf) want(t *testing.T, v Verdict, allowed, queued bool, line ...uint64) {
	t.Helper()
	if v.Allowed != allowed || v.Queued != queued {
		t.Errorf("allowed %v, queued %v; want %v, %v", v.Allowed, v.Queued, allowed, queued)
	}
	if v.Allowed != (v.RetryAfter == 0) {
		t.Errorf("allowed %v, to be tried again in %d µs", v.Allowed, v.RetryAfter)
	}
	if got := b.numbers(); !slices.Equal(got, line) {
		t.Errorf("in the line %v, want %v", got, line)
	}
}

// TestLineServesInOrder: who came first is served first, and whoever does not wait stands behind.
//
// req: C5
func TestLineServesInOrder(t *testing.T) {
	t.Parallel()
	b := &lineOf{specs: []Spec{kept(1, 1, 1)}}
	b.want(t, b.try(sec, 0, 0, 1), true, false)
	b.want(t, b.try(sec, 1, 0, 1), false, false, 1)
	b.want(t, b.try(sec+ms, 2, 0, 1), false, false, 1, 2)
	b.free(sec + 2*ms)
	b.want(t, b.try(sec+3*ms, 0, 0, 1), false, true, 1, 2)
	b.want(t, b.try(sec+3*ms, 2, 0, 1), false, true, 1, 2)
	b.want(t, b.try(sec+3*ms, 0, 5, 1), true, false, 1, 2) // a higher priority comes before both
	b.free(sec + 4*ms)
	b.want(t, b.ask(sec+4*ms, &Take{Barge: true, Hold: sec}, 1), true, false, 1, 2)
	b.free(sec + 4*ms)
	b.want(t, b.try(sec+5*ms, 1, 0, 1), true, false, 2)
	b.free(sec + 6*ms)
	b.want(t, b.try(sec+7*ms, 2, 0, 1), true, false)
}

// TestLineCountsTheTimeWaited: who has waited in its process since before others came is before
// them, although it asks for the first time.
func TestLineCountsTheTimeWaited(t *testing.T) {
	t.Parallel()
	b := &lineOf{specs: []Spec{kept(1, 1, 1)}}
	b.try(10*sec, 0, 0, 1)
	b.want(t, b.try(10*sec, 1, 0, 1), false, false, 1)
	v := b.ask(11*sec, &Take{Hold: sec, Place: &Place{Number: 2, Waited: 3 * sec}}, 1)
	b.want(t, v, false, false, 2, 1)
	if v.Arrival != 8*sec {
		t.Errorf("it arrived at %d, want 3 s before it asked", v.Arrival)
	}
}

// TestGrantLeavesTheNextTicket of the taker's process.
func TestGrantLeavesTheNextTicket(t *testing.T) {
	t.Parallel()
	b := &lineOf{specs: []Spec{kept(1, 1, 1)}}
	b.try(10*sec, 0, 0, 1)
	b.try(10*sec, 1, 0, 1)
	b.try(12*sec, 3, 0, 1)
	b.free(12 * sec)
	next := []Next{{Number: 2, Waited: sec, N: Amounts{1}}}
	v := b.ask(12*sec, &Take{Hold: sec, Place: &Place{Number: 1, Arrival: 10 * sec, Next: next}}, 1)
	b.want(t, v, true, false, 2, 3)
	b.free(12 * sec)
	b.want(t, b.try(12*sec, 3, 0, 1), false, true, 2, 3)
	b.want(t, b.try(12*sec+nextLife, 3, 0, 1), true, false) // it never asked
}

// TestLargeTakeGathersItsUnits although small ones would fit before.
func TestLargeTakeGathersItsUnits(t *testing.T) {
	t.Parallel()
	b := &lineOf{specs: []Spec{kept(1, 2, 2)}}
	b.try(sec, 0, 0, 2)
	b.want(t, b.try(sec, 1, 0, 2), false, false, 1)
	b.want(t, b.try(sec, 2, 0, 1), false, false, 1, 2)
	b.free(sec)
	b.try(sec, 3, 9, 1) // of a higher priority
	b.want(t, b.try(sec, 2, 0, 1), false, true, 1, 2)
	b.want(t, b.try(sec, 1, 0, 2), false, false, 1, 2)
	b.free(sec)
	b.want(t, b.try(sec, 2, 0, 1), false, true, 1, 2)
	b.want(t, b.try(sec, 1, 0, 2), true, false, 2)
}

// TestKeptShareIsNotBlocked by an older ticket that may not use it, and what passes it is bounded
// by the share.
func TestKeptShareIsNotBlocked(t *testing.T) {
	t.Parallel()
	b := &lineOf{specs: []Spec{kept(1, 2, 3)}}
	b.try(sec, 0, 0, 1)
	b.try(sec, 0, 0, 1)
	b.want(t, b.try(sec, 1, 0, 1), false, false, 1)
	const later = 200 * sec // the ticket has aged: it is before all priorities
	b.line.Tickets[0].End = 2 * later
	b.want(t, b.try(later, 2, 7, 1), true, false, 1)
	b.free(later)
	b.free(later) // one of low priority, or the one that passed: two are free for the old ticket in any case
	v := b.try(later, 3, 7, 1)
	b.want(t, v, false, true, 1, 3)
	b.want(t, b.try(later, 1, 0, 1), true, false, 3)
}

// TestTicketThatCanNeverFitClaimsNothing: the amount was lowered.
func TestTicketThatCanNeverFitClaimsNothing(t *testing.T) {
	t.Parallel()
	b := &lineOf{specs: []Spec{kept(1, 3, 3)}}
	b.try(sec, 0, 0, 3)
	b.want(t, b.try(sec, 1, 0, 3), false, false, 1)
	b.free(sec)
	b.specs = []Spec{kept(1, 2, 2)}
	b.want(t, b.try(sec, 0, 0, 1), true, false, 1)
	v := b.try(sec, 2, 0, 3)
	b.want(t, v, false, false, 1)
	if v.RetryAfter != Never {
		t.Error("a take that can never fit is to be tried again")
	}
}

// TestTicketsClaimInTheOrderOfLimits: a take claims units in the first limit that refuses it and in
// those before, the longest window first; a pause comes before all.
func TestTicketsClaimInTheOrderOfLimits(t *testing.T) {
	t.Parallel()
	minute, hour := Spec{ID: 1, Kind: Rolling, Window: 60 * sec}, Spec{ID: 2, Kind: Rolling, Window: 3600 * sec}
	for p := range minute.Effective {
		minute.Effective[p], hour.Effective[p] = 2, 4
	}
	claims := func(b *lineOf) []Claim { return b.line.Tickets[0].Claims }
	b := &lineOf{specs: []Spec{minute, hour}}
	b.try(sec, 0, 0, 2, 2)
	b.want(t, b.try(sec, 1, 0, 1, 1), false, false, 1)
	if diff := cmp.Diff([]Claim{{2, 1}, {1, 1}}, claims(b)); diff != "" {
		t.Errorf("the minute refuses, and the hour before it does not (-want +got):\n%s", diff)
	}
	b.try(62*sec, 0, 0, 2, 2)
	b.line.Tickets = nil
	b.want(t, b.try(63*sec, 2, 0, 1, 1), false, false, 2)
	if diff := cmp.Diff([]Claim{{2, 1}}, claims(b)); diff != "" {
		t.Errorf("the hour refuses (-want +got):\n%s", diff)
	}
	b.want(t, b.ask(124*sec, &Take{}, 1, 0), true, false) // the ticket is over anyway
	b.try(124*sec, 2, 0, 1, 1)
	b.want(t, b.ask(124*sec+ms, &Take{}, 1, 0), true, false, 2) // others may use the minute meanwhile
	b.rec.Pause = &Pause{Until: 300 * sec}
	b.want(t, b.try(125*sec, 2, 0, 1, 1), false, false)
}

// TestNoTicketWithoutHope: a take that cannot pass in time leaves none.
func TestNoTicketWithoutHope(t *testing.T) {
	t.Parallel()
	s := Spec{ID: 1, Kind: Rolling, Window: 60 * sec}
	for p := range s.Effective {
		s.Effective[p] = 1
	}
	b := &lineOf{specs: []Spec{s}}
	b.ask(sec, &Take{}, 1)
	v := b.ask(2*sec, &Take{Place: &Place{Number: 1, Patience: 58 * sec}}, 1)
	b.want(t, v, false, false)
	if v.Arrival != 2*sec {
		t.Errorf("it arrived at %d", v.Arrival)
	}
	b.want(t, b.ask(2*sec, &Take{Place: &Place{Number: 1, Patience: 60 * sec}}, 1), false, false, 1)
}

// TestTicketsLive for twice the wait that the refusal named, within bounds, and are not written
// anew before half of that.
func TestTicketsLive(t *testing.T) {
	t.Parallel()
	s := Spec{ID: 1, Kind: Rolling, Window: sec}
	for p := range s.Effective {
		s.Effective[p] = 1
	}
	b := &lineOf{specs: []Spec{s}}
	b.ask(10*sec, &Take{}, 1)
	at := func(now int64) int64 {
		b.ask(now, &Take{Place: &Place{Number: 1, Arrival: 10 * sec}}, 1)
		return b.line.Tickets[0].End
	}
	if end := at(10 * sec); end != 12*sec {
		t.Errorf("it ends at %d, want twice the second until it fits", end)
	}
	b.line.Changed = false
	if end := at(10*sec + 900*ms); end != 12*sec || b.line.Changed {
		t.Errorf("it ends at %d, and was written anew: %v", end, b.line.Changed)
	}
	b.specs[0].Window, b.rec.Limits[0].Window = 60*sec, 60*sec
	if end := at(10*sec + 950*ms); end != 10*sec+950*ms+MostLife {
		t.Errorf("it ends at %d, want the longest life", end)
	}
}

// TestAtMostSoManyTickets: an earlier one displaces the last.
func TestAtMostSoManyTickets(t *testing.T) {
	t.Parallel()
	b := &lineOf{specs: []Spec{kept(1, 1, 1)}}
	b.try(sec, 0, 0, 1)
	for i := range uint64(MaxTickets + 50) {
		if v := b.try(sec+int64(i), 1+i, 0, 1); v.Allowed || v.Arrival != sec+int64(i) {
			t.Fatalf("allowed %v, arrived at %d", v.Allowed, v.Arrival)
		}
	}
	if n := len(b.line.Tickets); n != MaxTickets || b.line.Tickets[n-1].Number != MaxTickets {
		t.Errorf("%d tickets, the last is that of %d", n, b.line.Tickets[n-1].Number)
	}
	b.try(sec+ms, 200, 3, 1)
	all := b.numbers()
	if n := len(all); n != MaxTickets || all[0] != 200 || all[n-1] != MaxTickets-1 {
		t.Errorf("%d tickets: %v", n, all)
	}
}

// TestKeptUnitsComeBackEarly: what passed a ticket, and was given back before its hold was over, is
// kept again, as far as it was given back. What passed beside a ticket that needs nearly all of the
// limit is not, while that is the first one.
//
// req: C5, D12
func TestKeptUnitsComeBackEarly(t *testing.T) {
	t.Parallel()
	rolling := kept(1, 8, 10)
	rolling.Kind, rolling.Window, rolling.ChargeEnd = Rolling, 60*sec, true
	for _, of := range []struct {
		name       string
		spec       Spec
		need, used int64 // of the ticket; by who passed it
		again      int64 // are kept then
	}{
		{"slots", kept(1, 8, 10), 1, 2, 2},
		{"slots, and a large ticket", kept(1, 8, 10), 7, 0, 0},
		{"a rolling limit", rolling, 1, 0, 2},
		{"a part of a rolling limit", rolling, 1, 1, 1},
	} {
		now := 1000 * sec
		b := &lineOf{specs: []Spec{of.spec}}
		b.try(now, 0, 0, 8)
		b.want(t, b.ask(now, &Take{Hold: sec, Place: &Place{Number: 1, Waited: 600 * sec}}, of.need), false, false, 1)
		pass := func(n int64) Verdict {
			return b.ask(now, &Take{ID: "high", Grant: 7, Priority: 7, Hold: 60 * sec, Place: &Place{Number: 2}}, n)
		}
		if v := pass(2); !v.Allowed {
			t.Fatalf("%s: %+v", of.name, v)
		}
		now += 10 * ms
		if v := b.ask(now, &Take{Priority: 7, Hold: sec}, 1); v.Allowed {
			t.Errorf("%s: more than is kept passed", of.name)
		}
		asks := []Ask{{Rec: &b.rec, Line: &b.line, Specs: b.specs, N: Amounts{of.used}}}
		if settled, _ := Settle(asks, "high", 7, of.used == 0, now); !settled {
			t.Fatalf("%s: it is not open", of.name)
		}
		for n := int64(2); n > 0; n-- {
			if v := pass(n); v.Allowed != (n <= of.again) {
				t.Errorf("%s: %d of it pass again: %v, queued %v; want %d", of.name, n, v.Allowed, v.Queued, of.again)
			} else if v.Allowed {
				break
			}
		}
	}
}

// TestQueuedIsNotForEver: a take for which there is room, but not beside others, is to be tried
// soon.
func TestQueuedIsNotForEver(t *testing.T) {
	t.Parallel()
	s := Spec{ID: 1, Kind: Rolling, Window: 60 * sec}
	for p := range s.Effective {
		s.Effective[p] = 4
	}
	for _, spec := range []Spec{s, kept(1, 4, 4)} {
		b := &lineOf{specs: []Spec{spec}}
		b.try(sec, 0, 0, 1)
		b.rec = Record{Last: sec, Limits: []State{newState(&spec, sec)}}
		b.line.Tickets = []Ticket{{Number: 1, Arrival: 1, End: 2 * sec, Claims: []Claim{{1, 4}}}}
		v := b.try(sec, 2, 0, 1)
		b.want(t, v, false, true, 1, 2)
		if v.RetryAfter > 61*sec {
			t.Errorf("it is to be tried in %d µs", v.RetryAfter)
		}
	}
}

// TestLeasesAreGrantedBesideTickets.
func TestLeasesAreGrantedBesideTickets(t *testing.T) {
	t.Parallel()
	s := Spec{ID: 1, Kind: Rolling, Window: 60 * sec}
	for p := range s.Effective {
		s.Effective[p] = 10
	}
	b := &lineOf{specs: []Spec{s}}
	b.ask(sec, &Take{}, 6)
	b.want(t, b.ask(sec, &Take{Place: &Place{Number: 1}}, 7), false, false, 1)
	v := b.ask(sec, &Take{Hold: sec, Lease: true}, 10)
	b.want(t, v, false, true, 1)
	b.line.Tickets[0].Claims[0].N = 1
	a := []Ask{{Rec: &b.rec, Line: &b.line, Specs: b.specs, N: Amounts{10}}}
	if v = Decide(a, &Take{ID: "lease", Grant: 9, Hold: sec, Lease: true}, sec); !v.Allowed || a[0].Granted[0] != 3 {
		t.Errorf("allowed %v, granted %d, want the 3 that nobody waits for", v.Allowed, a[0].Granted[0])
	}
}

// TestLineIsReadAsWritten, and other bytes are no line.
func TestLineIsReadAsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &Line{}
		for range rapid.IntRange(0, 4).Draw(t, "tickets") {
			x := Ticket{
				Number: rapid.Uint64().Draw(t, "number"), Arrival: rapid.Int64Range(1, maxTime/2).Draw(t, "arrival"),
				Priority: int8(rapid.IntRange(0, 9).Draw(t, "priority")),
			}
			x.End = x.Arrival + rapid.Int64Range(0, MostLife).Draw(t, "life")
			for range rapid.IntRange(1, 3).Draw(t, "claims") {
				n := rapid.Int64Range(1, maxUsed).Draw(t, "n")
				x.Claims = append(x.Claims, Claim{rapid.Uint64().Draw(t, "limit"), n})
			}
			l.Tickets = append(l.Tickets, x)
		}
		if len(l.Tickets) > 0 && rapid.Bool().Draw(t, "passed") {
			l.Passed = []Passed{{Limit: 1, First: 2, Sum: 3, Units: []Freed{{4, 5}}}}
		}
		b := l.Append(nil)
		if diff := cmp.Diff(l, DecodeLine(b)); diff != "" {
			t.Fatal(diff)
		}
		if len(b) > 0 {
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "other"))
			DecodeLine(b)
			DecodeLine(b[:rapid.IntRange(0, len(b)-1).Draw(t, "length")])
		}
	})
}

// FuzzLine reads any bytes.
func FuzzLine(f *testing.F) {
	l := Line{Tickets: []Ticket{{1, 2, 3, 4, []Claim{{5, 6}}}}, Passed: []Passed{{1, 2, 3, []Freed{{4, 5}}}}}
	f.Add(l.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		l := DecodeLine(b)
		if diff := cmp.Diff(l, DecodeLine(l.Append(nil))); diff != "" && len(l.Tickets) > 0 {
			t.Error(diff)
		}
	})
}

// TestLineNeverAdmitsMore: with tickets a limit is kept as without them, and whoever is first, and
// alone asks, is granted as soon as it fits.
//
// req: A1, C5
func TestLineNeverAdmitsMore(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := &lineOf{specs: []Spec{kept(1, 3, 5), kept(2, 4, 4)}}
		now := sec
		for range 200 {
			now += r.Int64N(200 * ms)
			if r.IntN(3) == 0 {
				b.free(now)
				continue
			}
			n := []int64{r.Int64N(4), r.Int64N(4)}
			priority := int8(r.IntN(10))
			fits := true
			for j := range b.specs {
				if n[j] > 0 {
					st := b.rec.state(&b.specs[j], j)
					fits = fits && (st == nil && n[j] <= b.specs[j].Effective[priority] ||
						st != nil && st.excess(&b.specs[j], now, n[j], priority) == 0)
				}
			}
			v := b.try(now, r.Uint64N(6), priority, n...)
			if v.Allowed && !fits {
				t.Fatalf("seed %d: admitted over the limit", seed)
			}
			if fits && !v.Allowed && !v.Queued {
				t.Fatalf("seed %d: refused by %+v", seed, v)
			}
			if v.Queued && len(b.line.Tickets) == 0 {
				t.Fatalf("seed %d: refused for others, and there are none", seed)
			}
		}
	}
}
