package record_test

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// admission is one line of the book.
type admission struct {
	id     string
	n      int64 // as now known: the estimate while open, the actual once settled
	at     int64 // the instant at which it counts
	margin int64 // it may arrive this much later
	run    int64 // bucket: the integral of the rate up to at, × Window
	end    int64 // of the hold
	open   bool
	held   bool  // counts at every instant until closed, and then from the closing on
	kept   int64 // the margin with which it was held: whoever does not know the limit closes it with that

	refund int64        // bucket: not an admission, but so many units that were given back
	but    []*admission // what was open then: its units stay
}

// ledger is the list of everything that was admitted by one limit. It knows nothing of the code's
// state: what is used is added up from the list.
type ledger struct {
	kind   record.Kind
	window int64
	rule   func(t int64) (start, end int64)
	list   []*admission // in the order of at; without held ones
	open   []*admission

	base, baseRun int64 // bucket: level × Window when the integral was baseRun, of what is not in the list any more
	rates         []rateFrom
}

// rateFrom is a bucket's rate from an instant on.
type rateFrom struct{ at, rate, run int64 }

// run returns the integral of the rate up to t.
func (b *ledger) run(t int64) int64 {
	i := sort.Search(len(b.rates), func(i int) bool { return b.rates[i].at > t }) - 1
	if i < 0 {
		return 0
	}
	r := b.rates[i]
	return r.run + r.rate*(t-r.at)
}

// setRate changes the rate from t on.
func (b *ledger) setRate(t, rate int64) { b.rates = append(b.rates, rateFrom{t, rate, b.run(t)}) }

// pass ends holds, in the order of their ends, and forgets what can never count again.
func (b *ledger) pass(now, margin int64) {
	slices.SortStableFunc(b.open, func(x, y *admission) int { return int(min(1, max(-1, x.end-y.end))) })
	for len(b.open) > 0 && b.open[0].end <= now {
		b.close(b.open[0], b.open[0].n, b.open[0].end, margin)
	}
	switch b.kind {
	case record.Rolling:
		for len(b.list) > 0 && b.list[0].at+b.list[0].margin+b.window <= now && !b.list[0].open {
			b.list = b.list[1:]
		}
	case record.Calendar:
		start, _ := b.rule(now)
		b.list = slices.DeleteFunc(b.list, func(a *admission) bool { return a.at+a.margin < start && !a.open })
	case record.Bucket:
		for len(b.list) > 0 && !b.list[0].open {
			a := b.list[0]
			b.base = b.after(max(0, b.base-(a.run-b.baseRun)), a)
			b.baseRun = a.run
			b.list = b.list[1:]
		}
	}
}

// after returns a bucket's level × Window after a line of the list.
func (b *ledger) after(level int64, a *admission) int64 {
	if a.refund == 0 {
		return level + a.n*b.window
	}
	stays := int64(0)
	for _, o := range a.but {
		stays += o.n * b.window
	}
	return max(level-a.refund*b.window, min(level, stays))
}

// refund strikes n units out, the latest first, that no open reservation has.
func (b *ledger) refund(n, now int64) {
	switch b.kind {
	case record.Rolling:
		for _, a := range slices.Backward(b.list) {
			if !a.open {
				d := min(n, a.n)
				a.n, n = a.n-d, n-d
			}
		}
	case record.Calendar:
		start, end := b.rule(now)
		sum := int64(0)
		for _, a := range b.list {
			if !a.open && a.at < end && a.at+a.margin >= start {
				sum += a.n
			}
		}
		b.admit(&admission{n: -min(n, sum), at: now})
	case record.Bucket:
		r := &admission{refund: n, at: now}
		for _, a := range b.open {
			if !a.held {
				r.but = append(r.but, a)
			}
		}
		b.admit(r)
	}
}

// admit enters what was admitted.
func (b *ledger) admit(a *admission) {
	if a.open {
		b.open = append(b.open, a)
	}
	if !a.held {
		a.run = b.run(a.at)
		b.list = append(b.list, a)
	}
}

// byStranger, as a margin, is the one that an admission was held with.
const byStranger = -1

// close ends an open admission at an instant, n units having been used.
func (b *ledger) close(a *admission, n, at, margin int64) {
	b.open = slices.DeleteFunc(b.open, func(o *admission) bool { return o == a })
	a.open, a.n = false, n
	if a.held {
		if margin == byStranger {
			margin = a.kept
		}
		a.held, a.at, a.margin = false, at, margin
		if b.kind != record.Concurrency {
			b.admit(a)
		}
	}
}

func (b *ledger) find(id string) *admission {
	for _, a := range b.open {
		if a.id == id {
			return a
		}
	}
	return nil
}

// counts returns what counts at now for a take that may arrive until now+margin; a bucket's level
// is rounded up.
func (b *ledger) counts(now, margin int64) int64 {
	held := int64(0)
	for _, a := range b.open {
		if a.held {
			held += a.n
		}
	}
	switch b.kind {
	case record.Rolling:
		sum := held
		for _, a := range b.list {
			if a.at+a.margin+b.window > now {
				sum += a.n
			}
		}
		return sum
	case record.Calendar:
		most := int64(0)
		for _, t := range []int64{now, now + margin} {
			start, end := b.rule(t)
			sum := held
			for _, a := range b.list {
				if a.at < end && a.at+a.margin >= start {
					sum += a.n
				}
			}
			most = max(most, sum)
		}
		return most
	case record.Bucket:
		level, run := b.base, b.baseRun
		for _, a := range b.list {
			level, run = b.after(max(0, level-(a.run-run)), a), a.run
		}
		level = max(0, level-(b.run(now)-run))
		return held + (level+b.window-1)/b.window
	}
	return held
}

// storm is a random script on one limit whose settings keep changing.
type storm struct {
	d      dice
	limit  drawgate.Limit
	spec   record.Spec
	specs  []record.Spec // spec, where it has not changed since
	rec    *record.Record
	ledger *ledger
	now    int64
	seen   int64 // the latest instant of a call
	fresh  bool  // the settings were changed since the last call
	next   int
	ids    []string // all that ever were, open or not
	log    []string

	takes, granted, changes int
}

func newStorm(t testing.TB, seed uint64, f family) *storm {
	t.Helper()
	s := &storm{d: newDice(seed), rec: &record.Record{}, now: epoch, seen: epoch}
	s.limit = f(s.d)
	s.spec = spec(t, s.limit)
	s.ledger = &ledger{kind: s.spec.Kind, window: s.spec.Window, rule: s.spec.Rule.Window}
	s.ledger.setRate(epoch, s.spec.Rate)
	s.peek()
	return s
}

// span is about how long the limit remembers.
func (s *storm) span() int64 { return spanOf(s.limit) }

// change gives the limit other settings, its identity staying. At most once between two calls:
// nobody can know what was in force in between.
func (s *storm) change(t testing.TB, f family) {
	t.Helper()
	if s.fresh {
		return
	}
	for range 20 { // until the window or zone is the same
		l := f(s.d)
		if s.limit.Kind == drawgate.Calendar {
			l.Every, l.Zone, l.Anchor = s.limit.Every, s.limit.Zone, s.limit.Anchor
			l.Margin = min(l.Margin, dur(30*sec))
		} else if l.Window != s.limit.Window {
			continue
		}
		s.limit = l
		s.spec = spec(t, l)
		s.ledger.setRate(max(s.now, s.seen), s.spec.Rate)
		s.fresh = true
		s.changes++
		s.note("change to %+v", l)
		return
	}
}

func (s *storm) note(format string, a ...any) {
	if len(s.log) > 200 {
		s.log = append(s.log[:0], s.log[150:]...)
	}
	s.log = append(s.log, fmt.Sprintf("%d: ", s.now-epoch)+fmt.Sprintf(format, a...))
}

func (s *storm) pass() {
	w := s.span()
	switch s.d.IntN(12) {
	case 0, 1, 2, 3:
	case 4, 5:
		s.now += s.d.between(0, 2)
	case 6:
		s.now += s.d.between(0, w/1000)
	case 7:
		s.now += s.d.between(0, w/100)
	case 8:
		s.now += s.d.between(0, w/8)
	case 9:
		switch s.d.IntN(8) {
		case 0:
			s.now += s.d.between(0, 3*w)
		case 1:
			s.now -= s.d.between(0, w)
		}
	case 10: // about the end of a hold
		if end := s.rec.NextEnd(); end != 0 && s.d.IntN(3) == 0 {
			s.now = max(s.now, end+s.d.between(-1, 1))
		}
	case 11: // about the instant at which something leaves
		if len(s.ledger.list) > 0 && s.ledger.kind == record.Rolling {
			a := s.ledger.list[s.d.IntN(len(s.ledger.list))]
			s.now = max(s.now, a.at+a.margin+w+s.d.between(-1, 1))
		} else if s.ledger.kind == record.Calendar && s.d.IntN(8) == 0 {
			_, end := s.ledger.rule(s.now)
			s.now = max(s.now, end+s.d.between(-1, 1)-s.d.between(0, 1)*s.limit.Margin.Microseconds())
		}
	}
}

// look is what every call begins with: the book ends the holds that the call will find ended.
func (s *storm) look() (now int64) {
	s.fresh = false
	return s.lookAs(s.holdMargin())
}

func (s *storm) lookAs(margin int64) (now int64) {
	s.seen = max(s.now, s.seen)
	s.ledger.pass(s.seen, margin)
	return s.seen
}

func (s *storm) holdMargin() int64 {
	if s.spec.ChargeEnd {
		return 0
	}
	return s.spec.Margin
}

func (s *storm) ask(n int64) []record.Ask {
	s.rec.FlushRun()
	return s.askAsIs(n)
}

// askAsIs is ask for record.One: it may go on with a run where the limit is still the same.
func (s *storm) askAsIs(n int64) []record.Ask {
	if s.specs == nil || s.specs[0] != s.spec {
		s.specs = []record.Spec{s.spec}
	}
	return []record.Ask{{Rec: s.rec, Specs: s.specs, N: amounts(n)}}
}

// take tries a take, and checks the limit's promise if it was admitted.
func (s *storm) take() string {
	prio := int8(s.d.IntN(10))
	n := 1 + s.d.upTo(max(1, s.spec.Effective[prio]/2))
	t := record.Take{Priority: prio}
	if kind := s.d.IntN(4); kind < 2 && len(s.ledger.open) < 10 || s.spec.Kind == record.Concurrency {
		s.next++
		t.ID, t.Lease = fmt.Sprint(s.next), kind == 1 && s.spec.Kind != record.Concurrency
		t.Hold = 1 + s.d.upTo([]int64{100, s.span() / 50, s.span(), 3 * s.span()}[s.d.IntN(4)])
	}
	now := s.look()
	used := s.ledger.counts(now, s.spec.Margin)
	ask := s.askAsIs(n)
	v := decide(ask, &t, s.now, s.d.one(2))
	s.takes++
	s.note("take %+v %d of %d, used %d: %+v", t, n, s.spec.Effective[prio], used, v)
	switch {
	case v.Now != now:
		return fmt.Sprintf("decided at %d, want %d", v.Now, now)
	case !v.Allowed && (v.RetryAfter <= 0 || v.EarliestRetry > v.RetryAfter):
		return fmt.Sprintf("refused with retry-after %d, earliest %d", v.RetryAfter, v.EarliestRetry)
	case ask[0].Out[0].Remaining < 0:
		return fmt.Sprintf("remaining %d", ask[0].Out[0].Remaining)
	case !v.Allowed:
		return ""
	}
	got := ask[0].Granted[0]
	if got != n && !t.Lease || got < 1 || got > n {
		return fmt.Sprintf("got %d of %d", got, n)
	}
	if used+got > s.spec.Effective[prio] {
		return fmt.Sprintf("admitted %d while %d were used, of %d", got, used, s.spec.Effective[prio])
	}
	s.granted++
	a := &admission{
		id: t.ID, n: got, at: now, margin: s.holdMargin(), kept: s.holdMargin(), end: now + t.Hold,
		open: t.ID != "",
	}
	a.held = a.open && (t.Lease || s.spec.ChargeEnd || s.spec.Kind == record.Concurrency)
	s.ledger.admit(a)
	if a.open {
		if s.ids = append(s.ids, t.ID); len(s.ids) > 40 {
			s.ids = s.ids[1:]
		}
	}
	return ""
}

// settle settles or cancels something that may be open, or long gone; sometimes with more than was
// estimated.
func (s *storm) settle() string {
	if len(s.ids) == 0 {
		return ""
	}
	id := s.ids[s.d.IntN(len(s.ids))]
	if s.d.one(2) { // likely open
		id = s.ids[len(s.ids)-1-s.d.IntN(min(len(s.ids), 4))]
	}
	now := s.look()
	a := s.ledger.find(id)
	n, cancel := record.KeepEstimate, s.d.one(4)
	switch {
	case a == nil || s.d.one(6):
	case s.d.one(6):
		n = a.n + s.d.upTo(a.n) // debt
	default:
		n = s.d.between(0, a.n)
	}
	settled, _ := record.Settle(s.ask(n), id, 0, cancel, s.now)
	s.note("settle %s %d cancel %v", id, n, cancel)
	if settled != (a != nil) {
		return fmt.Sprintf("settle %s: %v, want %v", id, settled, a != nil)
	}
	if a != nil {
		if cancel {
			n = 0
		} else if n == record.KeepEstimate {
			n = a.n
		}
		s.ledger.close(a, n, now, s.holdMargin())
	}
	return ""
}

func (s *storm) renew() string {
	if len(s.ids) == 0 {
		return ""
	}
	id, d := s.ids[s.d.IntN(len(s.ids))], 1+s.d.upTo(s.span())
	now := s.look()
	a := s.ledger.find(id)
	renewed, _, _ := record.Renew(s.ask(0), id, 0, d, s.now)
	s.note("renew %s %d", id, d)
	if renewed != (a != nil) {
		return fmt.Sprintf("renew %s: %v, want %v", id, renewed, a != nil)
	}
	if a != nil {
		a.end = max(a.end, now+d)
	}
	return ""
}

// charge counts units that were used some time ago, whatever the limit says.
func (s *storm) charge() {
	n, at := 1+s.d.upTo(s.spec.Effective[9]/2), s.now-s.d.upTo(s.span())
	now := s.look()
	record.Charge(s.ask(n), at, s.now)
	s.note("charge %d at %d", n, at-epoch)
	if s.ledger.kind != record.Calendar {
		at = now
	}
	if s.ledger.kind != record.Concurrency {
		s.ledger.admit(&admission{n: n, at: min(at, now)})
	}
}

// refund gives units back that nobody may have taken.
func (s *storm) refund() string {
	n := 1 + s.d.upTo(s.spec.Effective[9]/2)
	now := s.look()
	ask := s.ask(n)
	record.Refund(ask, 0, s.now)
	s.note("refund %d: %d", n, ask[0].Granted[0])
	if got := ask[0].Granted[0]; got < 0 || got > n || got > 0 && s.ledger.kind == record.Concurrency {
		return fmt.Sprintf("refund of %d: %d", n, got)
	}
	s.ledger.refund(n, now)
	return ""
}

// stranger is a call by a version of the program that does not have this limit.
func (s *storm) stranger() string {
	other := []record.Spec{{
		ID: 1, Kind: record.Rolling, Window: 1000,
		Effective: [10]int64{5, 5, 5, 5, 5, 5, 5, 5, 5, 5},
	}}
	now := s.lookAs(byStranger) // the limit itself is not looked at
	s.note("stranger")
	s.rec.FlushRun()
	asks := []record.Ask{{Rec: s.rec, Specs: other, N: amounts(1)}}
	if s.d.one(2) && len(s.ids) > 0 {
		id := s.ids[s.d.IntN(len(s.ids))]
		a := s.ledger.find(id)
		settled, _ := record.Settle(asks, id, 0, false, s.now)
		if settled != (a != nil) {
			return fmt.Sprintf("settle %s: %v, want %v", id, settled, a != nil)
		}
		if a != nil {
			s.ledger.close(a, a.n, now, byStranger)
		}
		return ""
	}
	record.Decide(asks, &record.Take{}, s.now)
	return ""
}

func (s *storm) step(t testing.TB, f family) string {
	t.Helper()
	if s.d.one(60) {
		s.change(t, f)
	}
	s.pass()
	if s.fresh && s.d.one(3) {
		return s.stranger()
	}
	switch k := s.d.IntN(40); {
	case k < 26:
		return s.take()
	case k < 34:
		return s.settle()
	case k < 36:
		return s.renew()
	case k < 37:
		if s.d.one(2) {
			return s.refund()
		}
		s.charge()
	case k < 38:
		return s.stranger()
	default:
		s.peek()
	}
	return ""
}

func (s *storm) peek() {
	s.look()
	ask := s.ask(1)
	record.Peek(&ask[0], 0, s.now)
}

// TestNeverOver runs a million random steps per kind with holds, settles early and late, cancels,
// renewals, leases, priorities, margins, charges, refunds, clocks that are set back and settings
// that keep changing. At each admission the plain sum over the list of admissions (less what was
// refunded: the latest ones first, but for open reservations), plus what is admitted, is at most
// what the limit allows at that moment; for a bucket: the level that the list and the integral of
// the rate in force give.
// req: A4, A5, A6, C1, C2, D1, D3, D12, E10
func TestNeverOver(t *testing.T) {
	t.Parallel()
	const each = 4000
	for name, f := range families {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps, takes, granted, changes := scale(1_000_000), 0, 0, 0
			for seed := uint64(0); steps > 0; seed++ {
				s := newStorm(t, seed, f)
				for range min(each, steps) {
					if msg := s.step(t, f); msg != "" {
						t.Fatalf("seed %d: %s\n%s", seed, msg, strings.Join(s.log[max(0, len(s.log)-40):], "\n"))
					}
				}
				steps -= each
				takes, granted, changes = takes+s.takes, granted+s.granted, changes+s.changes
			}
			t.Logf("%d takes, %d granted, %d changes of settings", takes, granted, changes)
			if granted < takes/20 || granted > takes*19/20 {
				t.Errorf("%d of %d takes granted: the script does not test much", granted, takes)
			}
		})
	}
}
