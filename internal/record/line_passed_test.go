package record

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// keeps returns a limit of 10 units per minute, or of slots, of which 2 are kept.
func keeps(kind Kind, end bool) Spec {
	s := kept(1, 8, 10)
	if s.Kind = kind; kind != Concurrency {
		s.Window, s.ChargeEnd = 60*sec, end
	}
	if kind == Bucket {
		s.Rate = 10
		s.Scale, s.Drain = BucketScale(s.Rate, s.Window)
	}
	return s
}

// settle settles a reservation, or cancels it if less than nothing was used.
func (b *lineOf) settle(tb testing.TB, now int64, id string, n int64) {
	tb.Helper()
	a := []Ask{{Rec: &b.rec, Line: &b.line, Specs: b.specs, N: Amounts{n}}}
	if ok, _ := Settle(a, id, 7, n < 0, now); !ok {
		tb.Fatalf("%s is not open", id)
	}
}

// crowded returns a bucket, and an instant at which low priority has used up what it may, for an
// hour, and one of low priority waits for so much, and has waited for long.
func many(tb testing.TB, spec Spec, need int64) (b *lineOf, now int64) {
	tb.Helper()
	b, now = &lineOf{specs: []Spec{spec}}, 10_000*sec
	for i := range 8 {
		if v := b.ask(now, &Take{ID: fmt.Sprint("low", i), Grant: 7, Hold: 3600 * sec},
			spec.Effective[0]/8); !v.Allowed {
			tb.Fatal("refused")
		}
	}
	b.stand(now, 1, need)
	return b, now
}

// stand leaves or renews the ticket of one of low priority.
func (b *lineOf) stand(now int64, number uint64, need int64) {
	b.ask(now, &Take{Hold: sec, Place: &Place{Number: number, Waited: 1200 * sec}}, need)
}

// pass asks for n units with high priority, without waiting.
func (b *lineOf) pass(now int64, id string, hold, n int64) bool {
	return b.ask(now, &Take{ID: id, Grant: 7, Priority: 7, Hold: hold}, n).Allowed
}

// noted returns how many units of the limit passed tickets and still count.
func (b *lineOf) noted(now int64) (n int64) {
	for _, p := range b.line.Passed {
		for _, f := range p.Units {
			if f.At > now {
				n += f.N
			}
		}
	}
	return n
}

// TestKeptShareOfShortCalls: those of high priority get their kept share while low priority always
// waits, however long the holds are that they settle after a second.
//
// req: C5, D12
func TestKeptShareOfShortCalls(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		spec Spec
		want int
	}{
		{keeps(Rolling, false), 20},
		{keeps(Rolling, true), 20},
		{keeps(Bucket, false), 20},
		{keeps(Bucket, true), 20},
		{keeps(Concurrency, false), 590},
	} {
		for _, hold := range []int64{2 * sec, 3600 * sec} {
			b, now := &lineOf{specs: []Spec{of.spec}}, 10_000*sec
			mine := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
			number, high, open, lows := uint64(100), 0, "", []string{}
			for ; now < 10_600*sec; now += sec {
				if open != "" {
					b.settle(t, now, open, 1)
					open = ""
				}
				for _, id := range lows {
					b.settle(t, now, id, 1)
				}
				lows = lows[:0]
				for i := range mine { // as many of low priority as can be
					id := fmt.Sprint("low", number)
					v := b.ask(now, &Take{
						ID: id, Grant: 7, Hold: hold,
						Place: &Place{Number: mine[i], Waited: 600 * sec},
					}, 1)
					if v.Allowed {
						number++
						mine[i], lows = number, append(lows, id)
					}
				}
				if id := fmt.Sprint("high", now); b.pass(now, id, hold, 1) {
					high, open = high+1, id
				}
			}
			if high < of.want {
				t.Errorf("%+v, holds of %d s that are settled after one: %d grants of high priority, want %d",
					of.spec.Kind, hold/sec, high, of.want)
			}
		}
	}
}

// TestPassedUnitsUntil: until when what passed a ticket counts, by the kind of the limit, and by
// what becomes of its hold.
//
// req: C5, D12
func TestPassedUnitsUntil(t *testing.T) {
	t.Parallel()
	const at, hold, settled = 10_000 * sec, 3600 * sec, 10_005 * sec
	for _, of := range []struct {
		name  string
		spec  Spec
		used  int64 // -1: cancelled; -2: not settled
		until int64 // 0: not at all
		left  int64 // of 2 units
	}{
		{"slots, settled", keeps(Concurrency, false), 2, 0, 0},
		{"slots, held", keeps(Concurrency, false), -2, at + hold, 2},
		{"charged at the start, settled", keeps(Rolling, false), 2, at + 60*sec, 2},
		{"charged at the start, a part", keeps(Rolling, false), 1, at + 60*sec, 1},
		{"charged at the start, more", keeps(Rolling, false), 5, at + 60*sec, 5},
		{"charged at the start, cancelled", keeps(Rolling, false), -1, 0, 0},
		{"charged at the start, held", keeps(Rolling, false), -2, at + 60*sec, 2},
		{"charged at the end, settled", keeps(Rolling, true), 2, settled + 60*sec, 2},
		{"charged at the end, a part", keeps(Rolling, true), 1, settled + 60*sec, 1},
		{"charged at the end, more", keeps(Rolling, true), 5, settled + 60*sec, 5},
		{"charged at the end, cancelled", keeps(Rolling, true), -1, 0, 0},
		{"charged at the end, held", keeps(Rolling, true), -2, at + hold + 60*sec, 2},
		// Each unit drains in 6 s. At the end: 2 units drain, the others are held.
		{"a bucket charged at the start, settled", keeps(Bucket, false), 2, at + 60*sec, 2},
		{"a bucket charged at the start, a part", keeps(Bucket, false), 1, at + 60*sec, 1},
		{"a bucket charged at the start, more", keeps(Bucket, false), 3, at + 66*sec, 3},
		{"a bucket charged at the end, settled", keeps(Bucket, true), 2, settled + 12*sec, 2},
		{"a bucket charged at the end, held", keeps(Bucket, true), -2, at + hold + 12*sec, 2},
	} {
		b, now := many(t, of.spec, 1)
		if !b.pass(now, "high", hold, 2) {
			t.Fatalf("%s: refused", of.name)
		}
		if of.used >= -1 {
			b.settle(t, settled, "high", of.used)
		}
		if n := b.noted(settled); n != of.left {
			t.Errorf("%s: %d units passed, want %d", of.name, n, of.left)
		}
		if of.until > 0 && (b.noted(of.until-1) == 0 || b.noted(of.until) > 0) {
			t.Errorf("%s: they count until another instant than %d: %+v", of.name, of.until, b.line.Passed)
		}
	}
}

// TestOthersGiveBackNothingThatPassed: what did not pass and is given back, with the same end and
// the same grant, leaves what passed as it is.
//
// req: C5
func TestOthersGiveBackNothingThatPassed(t *testing.T) {
	t.Parallel()
	for _, spec := range []Spec{keeps(Concurrency, false), keeps(Rolling, false), keeps(Rolling, true)} {
		b, now := many(t, spec, 3)
		if !b.pass(now, "high", 3600*sec, 2) {
			t.Fatal("refused")
		}
		for i := range 4 {
			b.settle(t, now+ms, fmt.Sprint("low", i), -1)
			if b.pass(now+ms, "more", 3600*sec, 1) {
				t.Errorf("%d: more than the 2 units that are kept pass the ticket", spec.Kind)
			}
		}
	}
}

// TestManyPassAndSettle: more passed than the record tells apart, each with a hold of its own; each
// that is settled may pass again.
//
// req: C5
func TestManyPassAndSettle(t *testing.T) {
	t.Parallel()
	b, now := many(t, kept(1, 160, 260), 1)
	for i := range int64(100) {
		now += ms
		if !b.pass(now, fmt.Sprint("high", i), 3600*sec+i*sec, 1) {
			t.Fatalf("%d passed", i)
		}
	}
	for i := range int64(300) {
		now += ms
		b.stand(now, 1, 1)
		if b.pass(now, "more", 3600*sec, 1) {
			t.Fatal("more than 100 units passed")
		}
		b.settle(t, now, fmt.Sprint("high", i), 1)
		if !b.pass(now, fmt.Sprint("high", 100+i), 1800*sec+i*17*ms, 1) {
			t.Fatalf("%d were settled, and the next one may not pass", i+1)
		}
		if n := len(b.line.of(1).Units); n > maxPassed {
			t.Fatalf("%d instants are told apart", n)
		}
	}
}

// TestPassedIsForgottenWithItsLine: what passed those who stood in line before nobody did takes
// nothing away from what passes later, whenever it is settled.
//
// req: C5
func TestPassedIsForgottenWithItsLine(t *testing.T) {
	t.Parallel()
	b, now := many(t, kept(1, 8, 12), 1)
	if !b.pass(now, "first", 3600*sec, 2) {
		t.Fatal("refused")
	}
	now += 10 * sec // the ticket is over
	b.stand(now, 2, 1)
	if len(b.line.Passed) > 0 {
		t.Fatalf("still noted: %+v", b.line.Passed)
	}
	if !b.pass(now, "second", 3600*sec, 2) {
		t.Fatal("refused")
	}
	b.settle(t, now+ms, "first", 2)
	if n := b.noted(now + ms); n != 2 {
		t.Errorf("%d units passed who stands there, want 2", n)
	}
}

// TestPassedOfTheVersionBefore, of which it is not known which grants passed: it counts until its
// end.
//
// req: C5, D6
func TestPassedOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	b, now := many(t, keeps(Concurrency, false), 2)
	was := b.line
	was.Passed = []Passed{{Limit: 1, First: 1, Sum: 1, Units: []Freed{{now + 3600*sec, 1}}}}
	b.line = *DecodeLine(was.Append(nil))
	b.settle(t, now, "low0", -1)
	if n := b.noted(now); n != 1 {
		t.Errorf("%d units passed, want 1", n)
	}
	if !b.pass(now, "high", 3600*sec, 1) || b.noted(now) != 2 {
		t.Errorf("it does not pass: %+v", b.line.Passed)
	}
	b.line = *DecodeLine(b.line.Append(nil))
	b.settle(t, now, "high", 1)
	if n := b.noted(now); n != 1 {
		t.Errorf("%d units passed, want 1", n)
	}
}

// TestPassedIsRenewed: what passed a ticket counts for as long as its hold is renewed.
//
// req: C5
func TestPassedIsRenewed(t *testing.T) {
	t.Parallel()
	for _, spec := range []Spec{keeps(Concurrency, false), keeps(Rolling, true)} {
		b, now := many(t, spec, 1)
		if !b.pass(now, "high", 3*sec, 2) {
			t.Fatal("refused")
		}
		for range 100 {
			now += 2 * sec
			b.stand(now, 1, 1)
			Renew([]Ask{{Rec: &b.rec, Line: &b.line, Specs: b.specs}}, "high", 7, 3*sec, now)
			if n := b.noted(now + 3*sec - 1); n != 2 {
				t.Fatalf("%d units count as passed, want 2", n)
			}
		}
		b.settle(t, now, "high", -1)
		if n := b.noted(now); n != 0 {
			t.Errorf("%d units count as passed that were given back", n)
		}
	}
}

// TestPassedIsSentAgain: what passed a ticket and is counted again counts as passed from then on,
// once.
//
// req: C5
func TestPassedIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Rolling, Bucket} {
		b, now := many(t, keeps(kind, false), 1)
		if !b.pass(now, "high", 3600*sec, 2) {
			t.Fatal("refused")
		}
		now += 4 * sec // the ticket is there still
		b.stand(now, 1, 1)
		if !b.pass(now, "high", 3600*sec, 2) {
			t.Fatal("it is open, and was refused")
		}
		if n := b.noted(now); n != 2 {
			t.Errorf("%d: %d units count as passed, want 2: %+v", kind, n, b.line.Passed)
		}
		if until := now + 56*sec; b.noted(until-1) != 2 {
			t.Errorf("%d: they count for too short: %+v", kind, b.line.Passed)
		}
		b.settle(t, now+sec, "high", -1)
		if n := b.noted(now + sec); n != 0 {
			t.Errorf("%d: %d units count as passed that were given back", kind, n)
		}
	}
}

// TestPassedNeverCountsTooLittle: whatever is added and removed, at no instant fewer units are
// noted than are there, and in all as many; and exactly these as long as there are few instants.
func TestPassedNeverCountsTooLittle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, few := &Passed{}, true
		var there []Freed
		count := func(all []Freed, at int64) (n int64) {
			for _, f := range all {
				if f.At > at {
					n += f.N
				}
			}
			return n
		}
		most := rapid.SampledFrom([]int64{10, 100, 1000}).Draw(t, "instants")
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			if len(there) > 0 && rapid.IntRange(0, 2).Draw(t, "removes") == 0 {
				k := rapid.IntRange(0, len(there)-1).Draw(t, "which")
				p.remove(there[k].N, there[k].At)
				there = append(there[:k:k], there[k+1:]...)
			} else {
				f := Freed{rapid.Int64Range(1, most).Draw(t, "until"), rapid.Int64Range(1, 3).Draw(t, "n")}
				p.add(f.N, f.At)
				there = append(there, f)
			}
			instants := map[int64]bool{}
			for _, f := range there {
				instants[f.At] = true
			}
			few = few && len(instants) <= maxPassed
			for at := range most + 1 {
				got, want := count(p.Units, at), count(there, at)
				if got < want || at == 0 && got > want || few && got > want {
					t.Fatalf("%d units count from %d on, want %d: %+v, %+v", got, at, want, p.Units, there)
				}
			}
			if len(p.Units) > maxPassed {
				t.Fatalf("%d instants", len(p.Units))
			}
		}
	})
}

// TestSteadilyPassing: of units that pass one after the other, and count equally long each, little
// more are noted than count, although there are more instants than are told apart.
func TestSteadilyPassing(t *testing.T) {
	t.Parallel()
	l := &Line{Tickets: []Ticket{{Number: 1, End: 1 << 40, Claims: []Claim{{1, 1}}}}}
	most := int64(0)
	for now := range int64(5000) {
		l.Expire(now)
		l.pass(1, 1, now+200, max(1, now))
		n, _ := l.passed(1)
		most = max(most, n)
	}
	if most > 200+2*200/maxPassed {
		t.Errorf("up to %d units are noted, and 200 count", most)
	}
}
