package record_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/calendar"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/record"
)

// chooser is what a script is drawn from: rapid's draws, which shrink, or dice, which are fast.
type chooser interface {
	pick(label string, a, b int64) int64 // a to b
}

// grant is a use of an id.
type grant struct {
	id     string
	number uint64
}

type drawn struct{ t *rapid.T }

func (d drawn) pick(label string, a, b int64) int64 { return rapid.Int64Range(a, b).Draw(d.t, label) }

func (d dice) pick(_ string, a, b int64) int64 { return d.between(a, b) }

// twin carries out the same script on records and on the model, and compares every answer.
type twin struct {
	c       chooser
	recs    []*record.Record
	ledgers []*model.Ledger
	specs   [][]record.Spec
	now     int64
	span    int64 // the length of the longest window
	ids     []grant
	next    int
	runs    int // takes that went on with a run
	log     []string
	err     string
}

func newTwin(c chooser, specs ...[]record.Spec) *twin {
	w := &twin{c: c, specs: specs, now: epoch, span: mnt}
	for range specs {
		w.recs = append(w.recs, &record.Record{})
		w.ledgers = append(w.ledgers, &model.Ledger{})
	}
	for _, s := range specs[0] {
		w.span = max(w.span, s.Window)
	}
	return w
}

func (w *twin) note(format string, a ...any) {
	if len(w.log) > 400 {
		w.log = append(w.log[:0], w.log[200:]...)
	}
	w.log = append(w.log, fmt.Sprintf("%d: ", w.now-epoch)+fmt.Sprintf(format, a...))
}

func (w *twin) fail(format string, a ...any) {
	if w.err == "" {
		w.err = fmt.Sprintf(format, a...)
	}
}

// story is the end of the script, for a failure's message.
func (w *twin) story() string {
	return w.err + "\n" + strings.Join(w.log[max(0, len(w.log)-40):], "\n")
}

func (w *twin) asks(n []record.Amounts) ([]record.Ask, []model.Ask) {
	for _, r := range w.recs {
		r.FlushRun()
	}
	return w.asksAsIs(n)
}

// asksAsIs is asks for record.One.
func (w *twin) asksAsIs(n []record.Amounts) ([]record.Ask, []model.Ask) {
	ra, ma := make([]record.Ask, len(n)), make([]model.Ask, len(n))
	for i := range n {
		ra[i] = record.Ask{Rec: w.recs[i], Specs: w.specs[i], N: n[i]}
		ma[i] = model.Ask{Ledger: w.ledgers[i], Specs: w.specs[i], N: n[i]}
	}
	return ra, ma
}

// pass lets time pass: often to just before, at or after an instant that matters, sometimes back.
func (w *twin) pass() {
	switch w.c.pick("pass", 0, 9) {
	case 0, 1, 2:
	case 3:
		w.now += w.c.pick("dt", 0, 3)
	case 4:
		w.now += w.c.pick("dt", 0, w.span/500)
	case 5:
		w.now += w.c.pick("dt", 0, w.span/20)
	case 6:
		w.now += w.c.pick("dt", 0, w.span)
	case 7:
		if end := w.recs[0].NextEnd(); end != 0 {
			w.now = max(w.now, end+w.c.pick("around", -1, 1))
		}
	case 8:
		v := w.peek()
		if v.RetryAfter > 0 && v.RetryAfter < 10*w.span {
			w.now = max(w.now, v.Now+v.RetryAfter+w.c.pick("around", -1, 1))
		}
	case 9:
		if w.c.pick("back", 0, 9) == 0 {
			w.now -= w.c.pick("dt", 0, w.span/4)
		}
	}
}

// cost draws what to ask of bucket i.
func (w *twin) cost(i int) (a record.Amounts) {
	for j := range w.specs[i] {
		a[j] = w.c.pick("n", 0, max(1, w.specs[i][j].Effective[9]/3))
		if w.c.pick("big", 0, 15) == 0 {
			a[j] = w.c.pick("n", 0, w.specs[i][j].Effective[9]+1)
		}
	}
	return a
}

func (w *twin) costs() (n []record.Amounts) {
	for i := range w.specs {
		n = append(n, w.cost(i))
	}
	return n
}

func (w *twin) peek() record.Verdict {
	ra, ma := w.asks([]record.Amounts{w.cost(0)})
	prio := int8(w.c.pick("priority", 0, 9))
	w.note("peek %v priority %d", ra[0].N, prio)
	rv, mv := record.Peek(&ra[0], prio, w.now), model.Peek(&ma[0], prio, w.now)
	w.compare("peek", rv, mv, ra, ma)
	return rv
}

func (w *twin) take() {
	ra, ma := w.asks(w.costs())
	t := record.Take{Priority: int8(w.c.pick("priority", 0, 9))}
	if kind := w.c.pick("kind", 0, 9); kind < 6 {
		t.Hold = w.c.pick("hold", 1, []int64{3, w.span / 100, w.span / 3, 2 * w.span}[w.c.pick("long", 0, 3)])
		t.Lease = kind < 2
		w.next++
		t.ID, t.Grant = fmt.Sprint("id", w.next), uint64(w.next)
		if len(w.ids) > 0 && w.c.pick("again", 0, 9) < 3 {
			g := w.id()
			t.ID, t.Grant = g.id, g.number
			if w.c.pick("other", 0, 3) == 0 {
				t.Grant = uint64(w.next)
			}
		}
		if w.c.pick("bounded", 0, 3) == 0 {
			t.NotAfter = w.now + w.c.pick("not after", -3, 3)
		}
		for _, a := range ra {
			t.Fingerprint = t.Fingerprint*31 + uint64(a.N[0]) // a print that often repeats
		}
	}
	if w.c.pick("ahead", 0, 3) == 0 {
		t.Ahead = w.c.pick("ahead", 1, []int64{10, w.span / 100, w.span}[w.c.pick("far", 0, 2)])
	}
	w.note("take %+v %v", t, ra[0].N)
	rv, mv := record.Decide(ra, &t, w.now), model.Decide(ma, &t, w.now)
	w.compare("take", rv, mv, ra, ma)
	if rv.Allowed && !rv.Replayed && t.ID != "" {
		w.ids = append(w.ids, grant{t.ID, t.Grant})
		if len(w.ids) > 20 {
			w.ids = w.ids[1:]
		}
	}
}

// plain is take for a plain one of the first bucket, by the short way if that is possible.
func (w *twin) plain(n record.Amounts) { w.plainAs(n, int8(w.c.pick("priority", 0, 1)*9)) }

func (w *twin) plainAs(n record.Amounts, prio int8) (v record.Verdict, out [record.MaxLimits]record.Result) {
	ra, ma := w.asksAsIs([]record.Amounts{n})
	w.note("plain take %v, priority %d", n, prio)
	used := func() (u record.Amounts) {
		for i := range w.recs[0].Limits {
			u[i] = w.recs[0].Limits[i].Used
		}
		return u
	}
	was := used()
	t := record.Take{Priority: prio}
	v = decide(ra, &t, w.now, true)
	if v.Allowed && n != (record.Amounts{}) && used() == was {
		w.runs++
	}
	w.compare("plain take", v, model.Decide(ma, &t, w.now), ra, ma)
	return v, ra[0].Out
}

// decide is record.Decide, by the short way if that is wanted and possible.
func decide(asks []record.Ask, t *record.Take, now int64, short bool) record.Verdict {
	if a := &asks[0]; short && *t == (record.Take{Priority: t.Priority}) {
		if at, after, ok := record.DecidePlain(a.Rec, a.Specs, &a.N, t.Priority, now, a.Out[:]); ok {
			a.Granted = a.N
			return record.Verdict{Now: at, Allowed: after == 0, RetryAfter: after, EarliestRetry: after}
		}
	}
	for i := range asks {
		asks[i].Rec.FlushRun()
	}
	return record.Decide(asks, t, now)
}

func (w *twin) id() grant { return w.ids[w.c.pick("id", 0, int64(len(w.ids)-1))] }

func (w *twin) settle() {
	if len(w.ids) == 0 {
		return
	}
	id, n := w.id(), w.costs()
	for i := range n {
		for j := range w.specs[i] {
			if w.c.pick("keep", 0, 3) == 0 {
				n[i][j] = record.KeepEstimate
			}
		}
	}
	ra, ma := w.asks(n)
	cancel := w.c.pick("cancel", 0, 3) == 0
	w.note("settle %v %v cancel %v", id, n[0], cancel)
	got, _ := record.Settle(ra, id.id, id.number, cancel, w.now)
	if want := model.Settle(ma, id.id, id.number, cancel, w.now); got != want {
		w.fail("settle %v: settled %v, want %v", id, got, want)
	}
}

func (w *twin) renew() {
	if len(w.ids) == 0 {
		return
	}
	id, d := w.id(), w.c.pick("hold", 1, w.span)
	ra, ma := w.asks(make([]record.Amounts, len(w.specs)))
	w.note("renew %v %d", id, d)
	got, end, _ := record.Renew(ra, id.id, id.number, d, w.now)
	if want, wend := model.Renew(ma, id.id, id.number, d, w.now); got != want || end != wend {
		w.fail("renew %v: %v until %d, want %v until %d", id, got, end, want, wend)
	}
}

func (w *twin) charge() {
	ra, ma := w.asks(w.costs())
	at := w.now - w.c.pick("ago", 0, 1)*w.c.pick("ago", 0, w.span)
	w.note("charge %v at %d", ra[0].N, at-epoch)
	record.Charge(ra, at, w.now)
	model.Charge(ma, at, w.now)
}

func (w *twin) refund() {
	ra, ma := w.asks(w.costs())
	at := w.c.pick("seen", 0, 1) * (w.now - w.c.pick("ago", 0, 1)*w.c.pick("ago", 0, w.span))
	w.note("refund %v at %d", ra[0].N, at)
	record.Refund(ra, at, w.now)
	model.Refund(ma, at, w.now)
	for i := range ra {
		if ra[i].Granted != ma[i].Granted {
			w.fail("refund: bucket %d: got %v back, want %v", i, ra[i].Granted, ma[i].Granted)
		}
	}
}

func (w *twin) pause() {
	ra, ma := w.asks(make([]record.Amounts, len(w.specs)))
	until := w.now + w.c.pick("pause", -3, w.span/20)
	w.note("pause until %d", until-epoch)
	end, kept := record.PauseUntil(ra, until, "why", w.now)
	if want, stays := model.PauseUntil(ma, until, "why", w.now); end != want || kept != stays {
		w.fail("pause: until %d, want %d", end-epoch, want-epoch)
	}
}

// compare compares two verdicts with their answers.
func (w *twin) compare(what string, rv, mv record.Verdict, ra []record.Ask, ma []model.Ask) {
	if rv.Now != mv.Now || rv.Allowed != mv.Allowed || rv.Replayed != mv.Replayed || rv.Reused != mv.Reused ||
		rv.Other != mv.Other || rv.Late != mv.Late ||
		rv.Paused != mv.Paused || max(rv.Start, rv.Now) != max(mv.Start, mv.Now) || rv.End != mv.End ||
		rv.RetryAfter != mv.RetryAfter {
		w.fail("%s: got %+v, want %+v; per limit %v, want %v", what, rv, mv, ra[0].Out[:len(ra[0].Specs)],
			ma[0].Out[:len(ra[0].Specs)])
		return
	}
	if rv.EarliestRetry > mv.EarliestRetry || rv.EarliestRetry > rv.RetryAfter {
		w.fail("%s: earliest %d, really %d, retry after %d", what, rv.EarliestRetry, mv.EarliestRetry, rv.RetryAfter)
	}
	if rv.Reused || rv.Other || rv.Late {
		return
	}
	for i := range ra {
		if rv.Allowed && ra[i].Granted != ma[i].Granted {
			w.fail("%s: bucket %d: got %v units, want %v", what, i, ra[i].Granted, ma[i].Granted)
		}
		for j := range ra[i].Specs {
			if got, want := ra[i].Out[j], ma[i].Out[j]; got != want {
				w.fail("%s: bucket %d, limit %d: got %+v, want %+v (now %d)", what, i, j, got, want, rv.Now)
			}
		}
	}
}

// step carries out one random step.
func (w *twin) step() {
	w.pass()
	switch w.c.pick("op", 0, 11) {
	case 0, 1, 2:
		w.plain(w.cost(0))
	case 3, 4, 5, 6:
		w.take()
	case 7, 8:
		w.settle()
	case 9:
		w.renew()
	case 10:
		switch w.c.pick("charge", 0, 3) {
		case 0:
			w.charge()
		case 1:
			w.refund()
		case 2:
			w.pause()
		}
	case 11:
		w.peek()
	}
}

// family is limits of one kind with everything that can be said of them drawn.
type family func(c chooser) drawgate.Limit

func drawAmounts(c chooser, l *drawgate.Limit) {
	l.Amount = []int64{c.pick("amount", 1, 12), c.pick("amount", 1, 1000)}[c.pick("large", 0, 1)]
	if c.pick("headroom", 0, 3) == 0 {
		l.Headroom = drawgate.Share{Percent: float64(c.pick("per cent", 1, 40))}
		if l.Amount == 1 {
			l.Headroom = drawgate.Share{}
		}
	}
	if c.pick("keep", 0, 2) == 0 {
		l.ReservedByPriority = map[int]drawgate.Share{int(c.pick("keep for", 1,
			9)): {Percent: float64(c.pick("per cent", 1, 60))}}
	}
}

func drawCharge(c chooser, l *drawgate.Limit, most int64) {
	l.Charge = drawgate.Charge(c.pick("charge", 1, 2))
	if c.pick("margin", 0, 1) == 0 {
		l.Margin = dur(c.pick("margin", 0, most))
	}
}

var families = map[string]family{
	"bucket": func(c chooser) drawgate.Limit {
		l := drawgate.Limit{Kind: drawgate.Bucket, Window: dur([]int64{
			sec, mnt, 7 * sec,
			hour,
		}[c.pick("window", 0, 3)])}
		drawAmounts(c, &l)
		l.Burst = l.Amount + c.pick("burst", 0, 50)
		drawCharge(c, &l, 0)
		if l.Headroom.Percent == 0 && l.Burst > 3 && l.Window < dur(hour) {
			l.Margin = dur(c.pick("margin", 0, l.Window.Microseconds()/l.Amount/2))
		}
		return l
	},
	"rolling exact": func(c chooser) drawgate.Limit {
		l := drawgate.Limit{
			Kind: drawgate.Rolling, Window: dur([]int64{1000, sec, mnt}[c.pick("window", 0, 2)]),
			Precision: drawgate.Exact,
		}
		drawAmounts(c, &l)
		drawCharge(c, &l, l.Window.Microseconds()/2)
		return l
	},
	"rolling joined": func(c chooser) drawgate.Limit {
		l := drawgate.Limit{Kind: drawgate.Rolling, Window: dur([]int64{sec, mnt}[c.pick("window", 0, 1)])}
		l.Precision = []int{0, 100, 1000, 10_000}[c.pick("precision", 0, 3)]
		drawAmounts(c, &l)
		drawCharge(c, &l, l.Window.Microseconds()/2)
		return l
	},
	"calendar": func(c chooser) drawgate.Limit {
		l := drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Every(c.pick("every", 1, int64(calendar.End)-1))}
		l.Zone = []string{"", "America/New_York", "Australia/Lord_Howe", "America/St_Johns"}[c.pick("zone", 0, 3)]
		if l.Every == drawgate.Month {
			l.Anchor = int(c.pick("anchor", 0, 31))
		}
		drawAmounts(c, &l)
		drawCharge(c, &l, 30*sec)
		return l
	},
	"concurrency": func(c chooser) drawgate.Limit {
		l := drawgate.Limit{Kind: drawgate.Concurrency}
		drawAmounts(c, &l)
		return l
	},
}

// spanOf is how far a script of a family reaches with one step.
func spanOf(l drawgate.Limit) int64 {
	if l.Kind == drawgate.Calendar {
		return calendar.Unit(l.Every).Length()
	}
	return max(l.Window.Microseconds(), 1000)
}

// TestModel compares record with the model, step by step, on random scripts: every answer is the
// same.
// req: A4, A5, A6, D1, D3, D11, E10
func TestModel(t *testing.T) {
	t.Parallel()
	for name, f := range families {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(scale(600)) {
				d := newDice(seed)
				l := f(d)
				w := newTwin(d, []record.Spec{spec(t, l)})
				w.span = spanOf(l)
				for range 120 {
					if w.step(); w.err != "" {
						t.Fatalf("seed %d: %+v: %s", seed, l, w.story())
					}
				}
			}
		})
	}
}

// TestModelPolicies is TestModel for takes over two buckets with several limits each.
// req: D1, D5
func TestModelPolicies(t *testing.T) {
	t.Parallel()
	for seed := range uint64(scale(600)) {
		w := policies(t, newDice(seed))
		for range 80 {
			if w.step(); w.err != "" {
				t.Fatalf("seed %d: %s", seed, w.story())
			}
		}
	}
}

func policies(t testing.TB, c chooser) *twin {
	t.Helper()
	names := []string{"bucket", "rolling exact", "rolling joined", "calendar", "concurrency"}
	var specs [][]record.Spec
	for i := range 2 {
		var ss []record.Spec
		for j := range c.pick("limits", 1, 4) {
			l := families[names[c.pick("kind", 0, 4)]](c)
			l.Name = fmt.Sprintf("l%d%d", i, j)
			ss = append(ss, spec(t, l))
		}
		specs = append(specs, ss)
	}
	return newTwin(c, specs...)
}

// TestModelShrinking is TestModel by rapid, which finds fewer mistakes per second, but the smallest
// script for each.
func TestModelShrinking(t *testing.T) {
	t.Parallel()
	for name, f := range families {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				c := drawn{rt}
				l := f(c)
				w := newTwin(c, []record.Spec{spec(t, l)})
				w.span = spanOf(l)
				rt.Repeat(map[string]func(*rapid.T){
					"take":   func(r *rapid.T) { w.c = drawn{r}; w.pass(); w.take() },
					"plain":  func(r *rapid.T) { w.c = drawn{r}; w.pass(); w.plain(w.cost(0)) },
					"settle": func(r *rapid.T) { w.c = drawn{r}; w.pass(); w.settle() },
					"renew":  func(r *rapid.T) { w.c = drawn{r}; w.pass(); w.renew() },
					"charge": func(r *rapid.T) { w.c = drawn{r}; w.pass(); w.charge() },
					"refund": func(r *rapid.T) { w.c = drawn{r}; w.pass(); w.refund() },
					"": func(r *rapid.T) {
						if w.err != "" {
							r.Fatalf("%+v: %s", l, w.story())
						}
					},
				})
			})
		})
	}
}
