package record_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// settler is a bucket in which what was taken is corrected afterwards. rate is what is in force at
// t.
type settler interface {
	take(t, rate int64, id string, n int64) bool
	settle(t, rate int64, id string, actual int64)
}

// shipped is the code that ships.
type shipped struct {
	b     *bucket
	specs map[int64]record.Spec // by rate
}

func (r *shipped) at(t, rate int64) { r.b.now, r.b.specs = t, []record.Spec{r.specs[rate]} }

func (r *shipped) take(t, rate int64, id string, n int64) bool {
	r.at(t, rate)
	return r.b.hold(id, 100*hour, n)
}

func (r *shipped) settle(t, rate int64, id string, actual int64) {
	r.at(t, rate)
	r.b.settle(id, actual)
}

// plainLevel is a bucket with another rule of settling: what is given back of est-actual, times the
// window.
type plainLevel struct {
	burst, window int64
	rule          func(p *plainLevel, o openTake, t, rate, actual int64) int64

	level, at, drained, rate int64 // × window
	open                     map[string]openTake
}

type openTake struct{ n, at, drained int64 }

func (p *plainLevel) pass(t, rate int64) {
	out := p.rate * (t - p.at) // every change of the rate is seen: change calls pass
	p.level, p.drained, p.at, p.rate = max(0, p.level-out), p.drained+out, t, rate
}

func (p *plainLevel) take(t, rate int64, id string, n int64) bool {
	p.pass(t, rate)
	if p.level+n*p.window > p.burst*p.window {
		return false
	}
	p.level += n * p.window
	p.open[id] = openTake{n, t, p.drained}
	return true
}

func (p *plainLevel) settle(t, rate int64, id string, actual int64) {
	p.pass(t, rate)
	p.level = max(0, p.level-p.rule(p, p.open[id], t, rate, actual))
}

// The rules. The first one is DESIGN.md's.
func undrained(p *plainLevel, o openTake, _, _, actual int64) int64 {
	return min((o.n-actual)*p.window, max(0, o.n*p.window-(p.drained-o.drained)))
}

func clampAtBurst(p *plainLevel, o openTake, _, _, actual int64) int64 {
	return (o.n - actual) * p.window
}

func rateTimesElapsed(p *plainLevel, o openTake, t, rate, actual int64) int64 {
	return min((o.n-actual)*p.window, max(0, o.n*p.window-rate*(t-o.at)))
}

// history plays one random history on s: takes, settles with less than estimated, a rate that
// changes in between. At each admission it adds up, for every earlier admission, all that was
// admitted since, as now known: at most burst and the integral of the rate in force.
func history(seed uint64, s settler, burst, window int64, rates []int64) (granted int, violated string) {
	d := newDice(seed)
	type line struct {
		t, n, run int64
		id        string
		open      bool
	}
	var ledger []line
	t, run, rate := epoch, int64(0), rates[0]
	pass := func(dt int64) { t, run = t+dt, run+rate*dt }
	for step := range 60 {
		pass(d.between(0, window*burst/rates[len(rates)-1]/[]int64{1, 4, 40}[d.IntN(3)]))
		if d.one(5) { // and some time may pass before anybody looks
			rate = rates[d.IntN(len(rates))]
			if p, ok := s.(*plainLevel); ok {
				p.pass(t, rate)
			}
			pass(d.between(0, window))
		}
		i := d.IntN(len(ledger) + 1)
		if d.one(2) && i < len(ledger) && ledger[i].open {
			b := &ledger[i]
			b.open, b.n = false, d.between(0, b.n)
			s.settle(t, rate, b.id, b.n)
			continue
		}
		n := d.between(1, burst)
		if d.one(2) {
			n = d.between(1, 1+burst/4)
		}
		id := fmt.Sprint(step)
		if !s.take(t, rate, id, n) {
			continue
		}
		granted++
		ledger = append(ledger, line{t, n, run, id, true})
		sum := int64(0)
		for _, b := range slices.Backward(ledger) {
			if sum += b.n; sum*window > burst*window+run-b.run {
				return granted, fmt.Sprintf("%d units in the %d µs until %d, of %d + %d/%d", sum, t-b.t, t-epoch, burst,
					run-b.run, window)
			}
		}
	}
	return granted, ""
}

// TestBucketSettleRule plays 20,000 random histories with rates that change, and checks every
// interval. The rule holds, on paper and in the code; the two obvious ones admit too much, and the
// same check sees it.
// req: A4, A5, C1, E10
func TestBucketSettleRule(t *testing.T) {
	t.Parallel()
	const burst, window = 20, int64(1_000_000)
	rates := []int64{1, 3, 7, 20, 60}
	specs := map[int64]record.Spec{}
	for _, r := range rates {
		specs[r] = spec(t, drawgate.Limit{Kind: drawgate.Bucket, Amount: r, Window: dur(window), Burst: burst})
	}
	rules := map[string]func(p *plainLevel, o openTake, t, rate, actual int64) int64{
		"undrained": undrained, "clamp at burst": clampAtBurst, "rate times elapsed": rateTimesElapsed,
	}
	histories := uint64(scale(20_000))
	for name, rule := range rules {
		violations := 0
		for seed := range histories {
			p := &plainLevel{
				burst: burst, window: window, rule: rule, at: epoch, rate: rates[0],
				open: map[string]openTake{},
			}
			if _, msg := history(seed, p, burst, window, rates); msg != "" {
				violations++
			}
		}
		t.Logf("%s: %d of %d histories violated", name, violations, histories)
		if name == "undrained" && violations > 0 || name != "undrained" && violations < int(histories/200) {
			t.Errorf("%s: %d of %d histories violated", name, violations, histories)
		}
	}
	granted := 0
	for seed := range histories {
		n, msg := history(seed, &shipped{&bucket{rec: &record.Record{}}, specs}, burst, window, rates)
		granted += n
		if msg != "" {
			t.Fatalf("seed %d: %s", seed, msg)
		}
	}
	if granted < 10*int(histories) {
		t.Errorf("only %d granted in %d histories", granted, histories)
	}
}

// heldLevel is a bucket whose takes are charged at the end.
type heldLevel struct {
	plainLevel
	counts  int64 // of what is held: 1, or 0 where that does not count before its settlement
	drains  bool  // what is held drains: only what is left of it is corrected
	present bool  // the present rate is taken for all the time since the last call
	held    int64
}

func (h *heldLevel) changed(t, rate int64) {
	if !h.present {
		h.pass(t, rate)
	}
}

func (h *heldLevel) called(t, rate int64) {
	if h.present {
		h.rate = rate
	}
	h.pass(t, rate)
}

func (h *heldLevel) take(t, rate int64, id string, n int64) bool {
	h.called(t, rate)
	if h.level+(h.counts*h.held+n)*h.window > h.burst*h.window {
		return false
	}
	h.open[id] = openTake{n, t, h.drained}
	if h.drains {
		h.level += n * h.window
	} else {
		h.held += n
	}
	return true
}

func (h *heldLevel) settle(t, rate int64, id string, actual int64) {
	h.called(t, rate)
	o := h.open[id]
	if h.drains {
		h.level = max(0, h.level-undrained(&h.plainLevel, o, t, rate, actual))
		return
	}
	h.held -= o.n
	h.level += actual * h.window
}

// heldHistory plays one random history on s, as history does. What is held counts at every instant,
// and from its settlement on for what was used.
func heldHistory(seed uint64, s settler, burst, window int64, rates []int64) (granted int, violated string) {
	d := newDice(seed)
	type line struct {
		id        string
		n, t, run int64
	}
	var open, ledger []line // book: in the order of the settlements
	t, run, rate := epoch, int64(0), rates[0]
	pass := func(dt int64) { t, run = t+dt, run+rate*dt }
	for step := range 60 {
		pass(d.between(0, window*burst/20/[]int64{1, 4, 40}[d.IntN(3)]))
		if d.one(5) { // and some time may pass before anybody looks
			rate = rates[d.IntN(len(rates))]
			if h, ok := s.(*heldLevel); ok {
				h.changed(t, rate)
			}
			pass(d.between(0, window))
		}
		if len(open) > 0 && d.one(2) {
			i := d.IntN(len(open))
			l := open[i]
			open = slices.Delete(open, i, i+1)
			l.n, l.t, l.run = d.between(0, l.n), t, run
			s.settle(t, rate, l.id, l.n)
			ledger = append(ledger, l)
			continue
		}
		l := line{id: fmt.Sprint(step), n: d.between(1, burst/2)}
		if !s.take(t, rate, l.id, l.n) {
			continue
		}
		granted++
		open = append(open, l)
		sum := int64(0)
		for _, l := range open {
			sum += l.n
		}
		if sum > burst {
			return granted, fmt.Sprintf("%d units held at %d, of %d", sum, t-epoch, burst)
		}
		for _, b := range slices.Backward(ledger) {
			if sum += b.n; sum*window > burst*window+run-b.run {
				return granted, fmt.Sprintf("%d units in the %d µs until %d, of %d + %d/%d", sum, t-b.t, t-epoch, burst,
					run-b.run, window)
			}
		}
	}
	return granted, ""
}

// TestBucketSettleRuleHeld is the other rule: held units (charge at the end) do not drain, and
// count from the settlement on. 20,000 random histories with rates that change, as in
// TestBucketSettleRule: the rule holds, on paper and in the code, and the same check sees three
// that do not.
// req: A4, C1, E10
func TestBucketSettleRuleHeld(t *testing.T) {
	t.Parallel()
	const burst, window = 20, int64(1_000_000)
	rates := []int64{1, 3, 7, 20, 60}
	specs := map[int64]record.Spec{}
	for _, r := range rates {
		specs[r] = spec(t, drawgate.Limit{
			Kind: drawgate.Bucket, Amount: r, Window: dur(window), Burst: burst,
			Charge: drawgate.ChargeEnd,
		})
	}
	histories := uint64(scale(20_000))
	rules := map[string]heldLevel{
		"held": {counts: 1}, "drains while held": {drains: true}, "counts from the settlement only": {},
		"present rate": {counts: 1, present: true},
	}
	for name, rule := range rules {
		violations := 0
		for seed := range histories {
			h := rule
			h.plainLevel = plainLevel{
				burst: burst, window: window, at: epoch, rate: rates[0],
				open: map[string]openTake{},
			}
			if _, msg := heldHistory(seed, &h, burst, window, rates); msg != "" {
				violations++
			}
		}
		t.Logf("%s: %d of %d histories violated", name, violations, histories)
		if name == "held" && violations > 0 || name != "held" && violations < int(histories/200) {
			t.Errorf("%s: %d of %d histories violated", name, violations, histories)
		}
	}
	granted := 0
	for seed := range histories {
		n, msg := heldHistory(seed, &shipped{&bucket{rec: &record.Record{}}, specs}, burst, window, rates)
		granted += n
		if msg != "" {
			t.Fatalf("seed %d: %s", seed, msg)
		}
	}
	if granted < 10*int(histories) {
		t.Errorf("only %d granted in %d histories", granted, histories)
	}
}

// TestBucketHeldArrivals: as TestArrivals, for buckets that are charged at the end.
// req: A4, C1, E10
func TestBucketHeldArrivals(t *testing.T) {
	t.Parallel()
	const window = 1_000_000
	for seed := range uint64(scale(6000)) {
		d := newDice(seed)
		l := drawgate.Limit{
			Kind: drawgate.Bucket, Amount: d.between(1, 30), Window: dur(window),
			Burst: d.between(5, 30), Charge: drawgate.ChargeEnd,
		}
		if msg := arrivals(t, d, l); msg != "" {
			t.Fatalf("seed %d: %+v: %s", seed, l, msg)
		}
	}
}

// arrival is n units as the upstream counts them.
type arrival struct{ t, n int64 }

// arrivals plays a random history on one limit and looks at it as the upstream does: each unit
// arrives at some instant that its charge and margin allow. Leases are spent unit by unit, late or
// not at all. Then it checks every interval against what the limit says without its margin.
func arrivals(t testing.TB, d dice, l drawgate.Limit) string {
	t.Helper()
	b := newBucket(t, l)
	s := &b.specs[0]
	var seen []arrival
	type taken struct {
		id             string
		n, at, end     int64
		lease, settled bool
	}
	var open []*taken
	late := func(at int64) int64 { // what is charged at the end has arrived by then
		if s.ChargeEnd {
			return at
		}
		return at + d.between(0, s.Margin)*d.between(0, 1)
	}
	finish := func(o *taken, at, n int64) { // n units were used by then
		o.settled = true
		switch {
		case o.lease:
			for range n {
				seen = append(seen, arrival{late(d.between(o.at, at)), 1})
			}
		case s.ChargeEnd:
			seen = append(seen, arrival{at, n})
		default:
			seen = append(seen, arrival{late(o.at), n})
		}
	}
	span := spanOf(l)
	for step := range 60 {
		b.now += d.between(0, span/[]int64{2, 10, 100, 1000}[d.IntN(4)])
		for _, o := range open { // a holder that vanished may have used all
			if !o.settled && o.end <= b.now {
				finish(o, o.end, o.n)
			}
		}
		open = slices.DeleteFunc(open, func(o *taken) bool { return o.settled })
		if len(open) > 0 && d.one(2) {
			o := open[d.IntN(len(open))]
			n := d.between(0, o.n)
			if !b.settle(o.id, n) {
				return "an open take was gone"
			}
			finish(o, b.now, n)
			continue
		}
		o := &taken{id: fmt.Sprint(step), n: d.between(1, max(1, s.Effective[0]/2)), at: b.now, lease: d.one(3)}
		hold := d.between(1, span)
		if d.one(3) {
			if b.allow(o.n) {
				seen = append(seen, arrival{late(b.now), o.n})
			}
			continue
		}
		asks := []record.Ask{{Rec: b.rec, Specs: b.specs, N: amounts(o.n)}}
		if v := record.Decide(asks, &record.Take{ID: o.id, Hold: hold, Lease: o.lease}, b.now); v.Allowed {
			o.n, o.end = asks[0].Granted[0], v.End
			open = append(open, o)
		}
	}
	for _, o := range open {
		if !o.settled {
			finish(o, o.end, o.n)
		}
	}
	return overIn(seen, l, s)
}

// overIn checks every interval of what arrived.
func overIn(seen []arrival, l drawgate.Limit, s *record.Spec) string {
	slices.SortStableFunc(seen, func(x, y arrival) int { return int(min(1, max(-1, x.t-y.t))) })
	for i := range seen {
		sum := int64(0)
		_, end := int64(0), seen[i].t+s.Window
		if l.Kind == drawgate.Calendar {
			_, end = s.Rule.Window(seen[i].t)
		}
		for _, a := range seen[i:] {
			most := l.Amount
			if l.Kind == drawgate.Bucket {
				most = l.Burst + l.Amount*(a.t-seen[i].t)/s.Window
			} else if a.t >= end {
				break
			}
			if sum += a.n; sum > most {
				return fmt.Sprintf("%d units arrived in [%d, %d], of %d", sum, seen[i].t-epoch, a.t-epoch, most)
			}
		}
	}
	return ""
}

// TestArrivals looks at the limits as an upstream does that counts units when they arrive: anywhere
// within the margin, leases spent late.
// req: C1, D3, E10
func TestArrivals(t *testing.T) {
	t.Parallel()
	for name, f := range families {
		if name == "concurrency" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(scale(6000)) {
				d := newDice(seed)
				l := f(d)
				if l.Amount > 100 {
					l.Amount, l.Margin, l.Burst = 1+l.Amount%100, 0, 0
				}
				if l.Kind == drawgate.Bucket && l.Burst < l.Amount {
					l.Burst = l.Amount
				}
				if l.Amount < 3 {
					l.Headroom = drawgate.Share{}
				}
				if msg := arrivals(t, d, l); msg != "" {
					t.Fatalf("seed %d: %+v: %s", seed, l, msg)
				}
			}
		})
	}
}
