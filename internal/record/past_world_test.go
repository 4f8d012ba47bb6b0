package record_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// use is units that were really used at an instant.
type use struct{ at, n int64 }

// aHold is a reservation of a world.
type aHold struct {
	id             string
	grant          uint64
	begun, end     int64
	lease          bool
	n, used        record.Amounts // reserved, really used
	over, finished bool           // its hold has ended; it was settled
}

// world is a record, and beside it a list of what was really used.
type world struct {
	*bucket
	d      dice
	plain  [record.MaxLimits][]use
	holds  []*aHold
	full   []record.Spec // all limits, in the first order
	rates  []use         // of limit 0, from an instant on
	number uint64
	log    []string
}

func (w *world) note(format string, a ...any) {
	w.log = append(w.log, fmt.Sprintf("%d: ", w.now-epoch)+fmt.Sprintf(format, a...))
}

// ends has the holds end that are over.
func (w *world) ends() {
	for _, h := range w.holds {
		if !h.finished && h.end <= w.now {
			h.over = true
		}
	}
}

// really returns the least that limit j must count at now.
func (w *world) really(j int) int64 {
	s := &w.full[j]
	uses := slices.Clone(w.plain[j])
	held := int64(0)
	for _, h := range w.holds {
		late := s.ChargeEnd || h.lease
		switch {
		case h.n[j] == 0:
		case !h.over && !h.finished:
			if late || s.Kind == record.Concurrency {
				held += h.n[j]
			} else {
				uses = append(uses, use{h.begun, h.n[j]})
			}
		case late:
			uses = append(uses, use{h.end, h.used[j]})
		default:
			uses = append(uses, use{h.begun, h.used[j]})
		}
	}
	sum := held
	switch s.Kind {
	case record.Rolling:
		for _, u := range uses {
			if u.at+s.Window > w.now {
				sum += u.n
			}
		}
	case record.Calendar:
		start, _ := s.Rule.Window(w.now)
		for _, u := range uses {
			if u.at >= start {
				sum += u.n
			}
		}
	case record.Bucket:
		slices.SortFunc(uses, func(a, b use) int { return int(a.at - b.at) })
		level, at, rate := 0.0, epoch, w.rates[0].n
		drain := func(to int64) { level = max(0, level-float64(to-at)*float64(rate)/float64(s.Window)); at = to }
		rates := w.rates[1:]
		for i := 0; i <= len(uses); i++ {
			to := w.now
			if i < len(uses) {
				to = uses[i].at
			}
			for len(rates) > 0 && rates[0].at <= to {
				drain(rates[0].at)
				rate, rates = rates[0].n, rates[1:]
			}
			drain(to)
			if i < len(uses) {
				level += float64(uses[i].n)
			}
		}
		sum += int64(level - 1e-3)
	case record.Concurrency:
	}
	return sum
}

// TestAtLeastWhatWasUsed: whatever ends, is settled, corrected, given back or written down, by
// callers with other limits, in another order or with other rates, a record counts at least what
// was really used in the window.
//
// req: A1, A12
func TestAtLeastWhatWasUsed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(scale(10000)) {
		atLeast(t, seed)
	}
}

func aWorld(t *testing.T, d dice) *world {
	t.Helper()
	charge := func() drawgate.Charge {
		if d.one(2) {
			return drawgate.ChargeEnd
		}
		return drawgate.ChargeStart
	}
	margin := func() time.Duration {
		if d.one(2) {
			return 0
		}
		return time.Duration(d.between(0, 2000)) * time.Millisecond
	}
	w := &world{d: d, bucket: newBucket(t,
		drawgate.Limit{Kind: drawgate.Bucket, Window: time.Hour, Amount: 100, Burst: 100, Charge: charge(), Margin: 0},
		drawgate.Limit{
			Kind: drawgate.Rolling, Window: 10 * time.Minute, Amount: 100, Charge: charge(),
			Margin: margin(),
		},
		drawgate.Limit{Kind: drawgate.Rolling, Window: 2 * time.Hour, Amount: 100, Charge: charge(), Margin: margin()},
		drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Hour, Amount: 100, Charge: charge(), Margin: margin()},
		drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 300, Charge: charge(), Margin: margin()},
		drawgate.Limit{Kind: drawgate.Concurrency, Amount: 50},
	)}
	if d.one(4) {
		for i := range w.specs {
			w.specs[i].Blur = d.between(0, 2*sec)
		}
	}
	w.full = slices.Clone(w.specs)
	w.rates = []use{{epoch, w.specs[0].Rate}}
	return w
}

func (w *world) amounts() (n record.Amounts) {
	for i := range w.full {
		if !w.d.one(4) {
			n[i] = w.d.between(1, 10)
		}
	}
	return n
}

// ordered gives amounts in the order of the limits now.
func (w *world) ordered(n record.Amounts) (a record.Amounts) {
	for j := range w.specs {
		for k := range w.full {
			if w.full[k].ID == w.specs[j].ID {
				a[j] = n[k]
			}
		}
	}
	return a
}

// known clears amounts of limits that the caller does not have now.
func (w *world) known(n record.Amounts) (a record.Amounts) {
	for k := range w.full {
		if slices.ContainsFunc(w.specs, func(s record.Spec) bool { return s.ID == w.full[k].ID }) {
			a[k] = n[k]
		}
	}
	return a
}

func (w *world) asks(n record.Amounts) []record.Ask {
	w.rec.FlushRun()
	return []record.Ask{{Rec: w.rec, Specs: w.specs, N: w.ordered(n)}}
}

func atLeast(t *testing.T, seed uint64) {
	t.Helper()
	d := newDice(seed)
	w := aWorld(t, d)
	w.now += d.between(0, 3*hour)
	w.rates[0].at = epoch
	for range d.between(20, 120) {
		w.step(t)
		w.ends()
		if len(w.specs) < len(w.full) {
			continue
		}
		w.rec.FlushRun()
		w.rec.Advance(w.specs, w.now)
		for j := range w.full {
			got, want := w.rec.Usage(&w.full[j], 9).Used, w.really(j)
			if got < want {
				t.Fatalf("seed %d: limit %d (charge at the end: %v): %d count, %d were used\n%v", seed, j, w.full[j].ChargeEnd,
					got, want, w.log)
			}
		}
	}
}

func (w *world) step(t *testing.T) {
	t.Helper()
	d := w.d
	switch d.IntN(4) {
	case 0:
		w.now += d.upTo(30 * mnt)
	case 1:
		w.now += d.upTo(mnt)
	case 2:
		if e := w.rec.NextEnd(); e > 0 && d.one(2) {
			w.now = max(w.now, e+d.between(-1, 1))
		}
	}
	w.ends()
	switch k := d.IntN(24); {
	case k < 4:
		n := w.known(w.amounts())
		n[5] = 0
		a := w.asks(n)
		v := record.Decide(a, &record.Take{Priority: 9}, w.now)
		w.note("take %v: %v", n, v.Allowed)
		if v.Allowed {
			w.use(n)
			if d.one(6) {
				w.note("refund %v", n)
				record.Refund(w.asks(n), 0, w.now)
				for j := range w.full {
					if n[j] > 0 {
						w.plain[j] = w.plain[j][:len(w.plain[j])-1]
					}
				}
			}
		}
	case k < 5:
		n := w.known(w.amounts())
		n[5] = 0
		w.note("charge %v", n)
		record.Charge(w.asks(n), w.now, w.now)
		w.use(n)
	case k < 11:
		n := w.known(w.amounts())
		h := &aHold{begun: w.now, n: n, lease: d.one(5)}
		w.number++
		h.grant, h.id = w.number, fmt.Sprint("id", d.IntN(5))
		var twin *aHold
		if len(w.holds) > 0 && d.one(5) {
			if o := w.newest(w.holds[d.IntN(len(w.holds))]); o.over && !o.finished {
				h.id, h.grant, h.n, h.lease = o.id, o.grant, o.n, o.lease
				twin = o
				if w.known(o.n) != o.n {
					return
				}
			}
		}
		tk := record.Take{ID: h.id, Grant: h.grant, Hold: d.between(1, 5*mnt), Lease: h.lease, Priority: 9}
		if h.lease {
			h.n[5] = 0
		}
		a := w.asks(h.n)
		v := record.Decide(a, &tk, w.now)
		w.note("hold %s/%d %v lease %v for %d: %v", h.id, h.grant, h.n, h.lease, tk.Hold, v.Allowed)
		if !v.Allowed || v.Replayed {
			return
		}
		g := a[0].Granted
		h.n = record.Amounts{}
		for j := range w.specs {
			for k := range w.full {
				if w.full[k].ID == w.specs[j].ID {
					h.n[k] = g[j]
				}
			}
		}
		h.end = w.rec.Open[h.id].End
		for j := range h.n {
			h.used[j] = d.between(0, h.n[j])
		}
		if twin != nil {
			twin.used = record.Amounts{}
		}
		w.holds = append(w.holds, h)
	case k < 14:
		if len(w.holds) == 0 {
			return
		}
		h := w.newest(w.holds[d.IntN(len(w.holds))])
		ok, _ := record.Settle(w.asks(h.used), h.id, h.grant, false, w.now)
		w.note("settle %s/%d %v: %v", h.id, h.grant, h.used, ok)
		if o := w.find(h); ok && o != nil {
			o.finished = true
			o.end = w.now
		}
	case k < 20:
		if len(w.holds) == 0 {
			return
		}
		h := w.newest(w.holds[max(0, len(w.holds)-1-d.IntN(6))])
		used := h.used
		ok := record.Correct(w.asks(used), h.id, h.grant, false, w.now) != nil
		w.note("correct %s/%d of %v to %v: %v", h.id, h.grant, h.n, used, ok)
	case k < 21:
		w.reopenIt(t)
		w.note("reopen")
	case k < 22:
		w.note("other limits")
		w.specs = slices.Clone(w.full)
		if d.one(2) {
			d.Shuffle(len(w.specs), func(i, j int) { w.specs[i], w.specs[j] = w.specs[j], w.specs[i] })
		}
		if d.one(2) {
			w.specs = w.specs[:d.between(1, int64(len(w.specs)))]
		}
	case k < 23:
		w.note("all limits")
		w.specs = slices.Clone(w.full)
	default:
		rate := d.between(20, 400)
		l := drawgate.Limit{Name: "l0", Kind: drawgate.Bucket, Window: time.Hour, Amount: rate, Burst: 100}
		if w.full[0].ChargeEnd {
			l.Charge = drawgate.ChargeEnd
		}
		s := spec(t, l)
		s.Blur = w.full[0].Blur
		w.full[0] = s
		w.specs = slices.Clone(w.full)
		w.rec.FlushRun()
		w.rec.Advance(w.specs, w.now)
		w.rates = append(w.rates, use{w.now, s.Rate})
		w.note("rate %d", rate)
	}
}

// newest returns the last use of a hold's grant.
func (w *world) newest(h *aHold) *aHold {
	for _, o := range w.holds {
		if o.id == h.id && o.grant == h.grant {
			h = o
		}
	}
	return h
}

// find returns what is open of a grant.
func (w *world) find(h *aHold) *aHold {
	for _, o := range w.holds {
		if o.id == h.id && o.grant == h.grant && !o.over && !o.finished {
			return o
		}
	}
	return nil
}

func (w *world) use(n record.Amounts) {
	for j := range w.full {
		if n[j] > 0 {
			w.plain[j] = append(w.plain[j], use{w.now, n[j]})
		}
	}
}

func (b *bucket) reopenIt(t *testing.T) {
	t.Helper()
	b.rec.FlushRun()
	b.reopen(t)
}
