package guard_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// truth is the exact record of what was admitted of one bucket, by anybody: each admission is
// entered regardless of the limits, and must then turn out to be within them.
type truth struct {
	plan      *store.Plan
	rec       record.Record
	unbounded []record.Spec
	over      func(limit int) int64 // how many units too many may be admitted
}

func newTruth(plan *store.Plan) *truth {
	tr := &truth{
		plan: plan, unbounded: slices.Clone(store.Internal.Specs(plan, true)),
		over: func(int) int64 { return 0 },
	}
	for i := range tr.unbounded {
		for p := range tr.unbounded[i].Effective {
			tr.unbounded[i].Effective[p] = 1 << 40
			if tr.unbounded[i].Kind == record.Bucket {
				tr.unbounded[i].Effective[p] = 1 << 62 / tr.unbounded[i].Scale
			}
		}
	}
	return tr
}

// admit enters an admission, and returns an error if it exceeds a limit.
func (tr *truth) admit(id string, hold time.Duration, n store.Amounts, now time.Time) error {
	asks := []record.Ask{{Rec: &tr.rec, Specs: tr.unbounded, N: record.Amounts(n)}}
	record.Decide(asks, &record.Take{ID: id, Hold: hold.Microseconds(), Priority: 9}, now.UnixMicro())
	for i := range tr.unbounded {
		most := store.Internal.Specs(tr.plan, true)[i].Effective[9] + tr.over(i)
		if u := tr.rec.Usage(&tr.unbounded[i], 9); n[i] > 0 && u.Used > most {
			return fmt.Errorf("limit %d has used %d of %d", i, u.Used, most)
		}
	}
	return nil
}

func (tr *truth) settle(id string, cancel bool, n store.Amounts, now time.Time) {
	record.Settle([]record.Ask{{Rec: &tr.rec, Specs: tr.unbounded, N: record.Amounts(n)}}, id, 0, cancel,
		now.UnixMicro())
}

func (tr *truth) renew(id string, hold time.Duration, now time.Time) {
	record.Renew([]record.Ask{{Rec: &tr.rec, Specs: tr.unbounded}}, id, 0, hold.Microseconds(), now.UnixMicro())
}

// kinds is the number of kinds of limits to draw from; buckets come last.
const kinds = 7

// someLimits draws limits of the first so many kinds.
func someLimits(t *rapid.T, kinds int, fallbacks ...drawgate.Fallback) drawgate.Policy {
	p := drawgate.Policy{Name: "p"}
	for i := range rapid.IntRange(1, 3).Draw(t, "limits") {
		n := rapid.Int64Range(1, 12).Draw(t, "amount")
		l := []drawgate.Limit{
			rolling(n, time.Minute), rolling(n, 10*time.Second), daily(n),
			{Kind: drawgate.Calendar, Amount: n, Every: drawgate.Minute},
			slots(n),
			leaky(n, time.Minute, 0), leaky(3*n, time.Minute, n),
		}[rapid.IntRange(0, kinds-1).Draw(t, "kind")]
		l.Name = fmt.Sprint("l", i)
		l.Fallback = rapid.SampledFrom(fallbacks).Draw(t, "fallback")
		if l.Kind != drawgate.Concurrency {
			l.Charge = rapid.SampledFrom([]drawgate.Charge{drawgate.ChargeStart, drawgate.ChargeEnd}).Draw(t, "charge")
		}
		p.Limits = append(p.Limits, l)
	}
	return p
}

// world is some processes on one store, each of which can be cut off.
type world struct {
	t      *rapid.T
	tb     testing.TB // of the bubble
	plan   *store.Plan
	truth  map[string]*truth
	guards []*guard.Store
	stores []*faulty
	open   map[string]opened
	id     int
	log    strings.Builder
	err    error
}

type opened struct {
	guard  int
	key    string
	n      store.Amounts
	unsure bool // a renewal was not answered: only the store knows when the hold ends
}

func (w *world) run(steps int) {
	for range steps {
		g := rapid.IntRange(0, len(w.guards)-1).Draw(w.t, "process")
		switch rapid.SampledFrom([]string{
			"take", "take", "take", "hold", "hold", "settle", "settle", "renew", "sleep",
			"sleep", "mood",
		}).Draw(w.t, "step") {
		case "take":
			w.take(g, 0)
		case "hold":
			w.take(g, rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second, time.Hour}).Draw(w.t, "hold"))
		case "settle":
			w.settle()
		case "renew":
			w.renew()
		case "sleep":
			time.Sleep(rapid.SampledFrom([]time.Duration{
				time.Millisecond, 300 * time.Millisecond, 2 * time.Second,
				20 * time.Second, 2 * time.Minute,
			}).Draw(w.t, "sleep"))
		case "mood":
			m := rapid.SampledFrom([]mood{well, well, refuses, stalls, mute, slow}).Draw(w.t, "mood")
			w.stores[g].set(m)
			fmt.Fprintf(&w.log, "%v: process %d: mood %d\n", clock(), g, m)
		}
		if w.err != nil {
			return
		}
	}
}

func (w *world) close() {
	for i, g := range w.guards {
		w.stores[i].set(well)
		_ = g.Close()
	}
}

func clock() string { return time.Now().UTC().Format("15:04:05.000") }

func (w *world) amounts() (n store.Amounts) {
	specs := store.Internal.Specs(w.plan, true)
	for i := range specs {
		n[i] = min(rapid.Int64Range(0, 4).Draw(w.t, "n"), specs[i].Effective[9])
	}
	return n
}

func (w *world) take(g int, hold time.Duration) {
	key, n := rapid.SampledFrom([]string{"a", "b"}).Draw(w.t, "key"), w.amounts()
	for i, s := range store.Internal.Specs(w.plan, true) {
		if hold == 0 && s.Kind == record.Concurrency {
			n[i] = 0
		}
	}
	tk := store.Take{
		Buckets: []store.BucketCost{{Key: store.Key{Policy: "p", Name: key}, Plan: w.plan, N: n}},
		Hold:    hold,
	}
	if hold > 0 {
		if n == (store.Amounts{}) {
			return
		}
		w.id++
		tk.ID = fmt.Sprint("id", w.id)
	}
	var out [1]store.Verdict
	if err := w.guards[g].Take(w.tb.Context(), []store.Take{tk}, out[:]); err != nil || out[0].Fail != nil {
		w.fail(fmt.Errorf("take: %w, %w", err, out[0].Fail))
		return
	}
	fmt.Fprintf(&w.log, "%v: process %d: take %v of %s, hold %v: allowed %v, fallback %v\n", clock(), g, n, key, hold,
		out[0].Allowed, out[0].Fallback)
	if !out[0].Allowed {
		if out[0].RetryAfter <= 0 || out[0].Reason == store.Passed {
			w.fail(fmt.Errorf("refused with retry-after %v, reason %v", out[0].RetryAfter, out[0].Reason))
		}
		return
	}
	if tk.ID != "" {
		w.open[tk.ID] = opened{guard: g, key: key, n: n}
	}
	if err := w.truth[key].admit(tk.ID, hold, n, out[0].At()); err != nil {
		w.fail(err)
	}
}

func (w *world) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *world) pick() (string, opened, bool) {
	if len(w.open) == 0 {
		return "", opened{}, false
	}
	ids := make([]string, 0, len(w.open))
	for id := range w.open {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	id := rapid.SampledFrom(ids).Draw(w.t, "id")
	return id, w.open[id], true
}

func (w *world) send(id string, o opened, st store.Settlement) store.Outcome {
	st.ID, st.Buckets = id, []store.BucketCost{{
		Key: store.Key{Policy: "p", Name: o.key}, Plan: w.plan,
		N: st.Buckets[0].N,
	}}
	var out [1]store.Outcome
	if err := w.guards[o.guard].Settle(w.tb.Context(), []store.Settlement{st}, out[:]); err != nil {
		out[0].Err = err
	}
	fmt.Fprintf(&w.log, "%v: process %d: %v %s with %v: %+v\n", clock(), o.guard, st.Op, id, st.Buckets[0].N, out[0])
	return out[0]
}

func (w *world) settle() {
	id, o, ok := w.pick()
	if !ok {
		return
	}
	if tr := w.truth[o.key]; o.unsure {
		if tr.rec.Advance(tr.unbounded, time.Now().UnixMicro()); tr.rec.Open[id] == nil {
			delete(w.open, id) // its holder had to stop, and cannot say what it used
			return
		}
	}
	st := store.Settlement{Op: store.OpSettle, Buckets: make([]store.BucketCost, 1)}
	if rapid.Bool().Draw(w.t, "cancel") {
		st.Op = store.OpCancel
	}
	for i := range o.n {
		if st.Buckets[0].N[i] = store.KeepEstimate; o.n[i] > 0 && rapid.Bool().Draw(w.t, "named") {
			// no more than the estimate: that would be debt
			st.Buckets[0].N[i] = rapid.Int64Range(0, o.n[i]).Draw(w.t, "used")
		}
	}
	if out := w.send(id, o, st); out.Err == nil {
		delete(w.open, id)
		if !out.Gone {
			w.truth[o.key].settle(id, st.Op == store.OpCancel, st.Buckets[0].N, time.Now())
		}
	}
}

func (w *world) renew() {
	id, o, ok := w.pick()
	if !ok {
		return
	}
	st := store.Settlement{Op: store.OpRenew, Hold: 30 * time.Second, Buckets: make([]store.BucketCost, 1)}
	switch out := w.send(id, o, st); {
	case out.Err != nil:
		o.unsure = true
		w.open[id] = o
	case !out.Gone:
		w.truth[o.key].renew(id, time.Until(out.End), time.Now())
	}
}

// play runs a random history of so many processes and reports errors.
func play(t *testing.T, rt *rapid.T, instances, kinds int, fallbacks ...drawgate.Fallback) {
	t.Helper()
	const steps = 120
	p := someLimits(rt, kinds, fallbacks...)
	lines, err := guard.Bound([]drawgate.Policy{p}, instances)
	if err != nil {
		rt.Fatal(err)
	}
	plan, err := p.Compile()
	if err != nil {
		rt.Fatal(err)
	}
	w := &world{t: rt, plan: plan.Plan, truth: map[string]*truth{}, open: map[string]opened{}}
	for _, key := range []string{"a", "b"} {
		w.truth[key] = newTruth(plan.Plan)
		w.truth[key].over = func(i int) int64 { return lines[i].Partly }
	}
	var stopped any // rapid ends a history with a panic, which must not happen inside the bubble
	synctest.Test(t, func(t *testing.T) {
		w.tb = t
		defer w.close()
		defer func() { stopped = recover() }()
		inner, start := memstore.New(nil), drawgate.StartClosed
		if instances > 1 {
			start = drawgate.StartFull
		}
		for range instances {
			f := &faulty{Store: inner}
			w.stores = append(w.stores, f)
			w.guards = append(w.guards, guard.New(f, guard.Steady(&guard.Options{Instances: instances, Start: start})))
		}
		// windows begin anywhere
		time.Sleep(time.Duration(rapid.Int64Range(0, 90_000).Draw(rt, "start")) * time.Millisecond)
		w.run(steps)
	})
	if stopped != nil {
		panic(stopped)
	}
	if w.err != nil {
		rt.Fatalf("%v\nlimits %+v\n%s", w.err, p.Limits, w.log.String())
	}
}

// TestNeverOverWithOneInstance plays random histories of one process, whose store fails in every
// way, loses answers, and comes back. What the process is admitted, by store and guard together,
// never exceeds the limit.
//
// req: A10, A12, E7
func TestNeverOverWithOneInstance(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		play(t, rt, 1, kinds, drawgate.FallbackShare, drawgate.FallbackShare, drawgate.FallbackClosed)
	})
}

// TestWithinTheBoundWithThreeInstances plays the same with three processes, each of which may be
// cut off at any time. What they are admitted together never exceeds the limit by more than
// [guard.Bound] says.
func TestWithinTheBoundWithThreeInstances(t *testing.T) {
	t.Parallel()
	const noBucket = kinds - 2 // if only some are cut off for long, a bucket's bound grows with time
	rapid.Check(t, func(rt *rapid.T) { play(t, rt, 3, noBucket, drawgate.FallbackShare, drawgate.FallbackClosed) })
}
