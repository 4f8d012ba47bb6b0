package guard_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// herd is three processes on one store, all of which ask for a bucket limit as fast as they can.
// They do not ask the store again once it has failed, because checking takes time, in which the
// bucket drains.
type herd struct {
	t        *testing.T
	plan     *store.Plan
	stores   []*faulty
	guards   []*guard.Store
	truths   []*truth // each admission is entered into these
	admitted []time.Time
}

func newHerd(t *testing.T, l drawgate.Limit) *herd {
	t.Helper()
	h := &herd{t: t, plan: policy(t, drawgate.FallbackShare, l)}
	inner := memstore.New(nil)
	for range 3 {
		f := &faulty{Store: inner}
		h.stores = append(h.stores, f)
		h.guards = append(h.guards, guarded(t, f, &guard.Options{Instances: 3, Start: drawgate.StartFull, Failures: 1}))
	}
	return h
}

// line returns the bound.
func (h *herd) line() guard.Line {
	h.t.Helper()
	lines, err := guard.Bound([]drawgate.Policy{policyOf(h.plan)}, 3)
	if err != nil {
		h.t.Fatal(err)
	}
	return lines[0]
}

// enter starts a bucket that counts everything admitted from now on, and may be exceeded by over
// units.
func (h *herd) enter(over int64) *truth {
	tr := newTruth(h.plan)
	tr.over = func(int) int64 { return over }
	h.truths = append(h.truths, tr)
	return tr
}

// take lets each process take a unit, and returns how many got one.
func (h *herd) take(guards ...*guard.Store) (n int) {
	h.t.Helper()
	for _, g := range guards {
		d := take(h.t, g, h.plan, "k", 1)
		if !d.Allowed {
			continue
		}
		n++
		h.admitted = append(h.admitted, time.Now())
		for _, tr := range h.truths {
			if err := tr.admit("", 0, store.Amounts{1}, time.Now()); err != nil {
				h.t.Fatalf("%v after the start: %v", time.Since(h.admitted[0]), err)
			}
		}
	}
	return n
}

// rush lets processes take until none of them gets more at this instant.
func (h *herd) rush(guards ...*guard.Store) {
	h.t.Helper()
	for h.take(guards...) > 0 {
	}
}

// ask lets all processes take as much as they can for so long.
func (h *herd) ask(d time.Duration) {
	h.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(d / 1000) {
		h.rush(h.guards...)
	}
}

// most returns the most that was ever used of the limit's bucket.
func (tr *truth) most() int64 { return tr.rec.Usage(&tr.unbounded[0], 9).Used }

// TestABucketLimitCutOff: three processes are cut off. At the start of the outage they are admitted
// what [guard.Bound] says beyond a bucket limit if one of them had all the traffic, and nothing
// beyond it if the load was even. Later they are admitted nothing beyond the limit, even if they
// wait until their shares are full again.
//
// req: E7
func TestABucketLimitCutOff(t *testing.T) {
	t.Parallel()
	for _, l := range bucketLimits() {
		for _, even := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d of %d, even %v", l.Burst, l.Amount, even), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					h := newHerd(t, l)
					line := h.line()
					first := h.enter(line.Extra)
					if even {
						h.rush(h.guards...)
					} else {
						h.rush(h.guards[0])
					}
					for _, s := range h.stores {
						s.set(refuses)
					}
					at := time.Now()
					h.rush(h.guards...)
					if past := time.Since(at); past != 0 {
						t.Fatalf("%v passed while the processes were cut off, want none: the count is of one instant",
							past)
					}
					want := line.Most
					if !even {
						want += line.Extra
					}
					if got := first.most(); got != want {
						t.Errorf("%d units are used when all are cut off, want %d", got, want)
					}
					h.ask(3 * l.Window)
					time.Sleep(6 * l.Window) // one process's share refills at a third of the rate
					later := h.enter(line.After)
					h.rush(h.guards...)
					if got := later.most(); got != 3*line.Share {
						t.Errorf("%d units are used later, want %d", got, 3*line.Share)
					}
					h.ask(3 * l.Window)
				})
			})
		}
	}
}

// bucketLimits returns limits whose rate is less than the burst, more than the burst, and not
// divisible by three.
func bucketLimits() []drawgate.Limit {
	return []drawgate.Limit{leaky(10, time.Second, 24), leaky(60, time.Second, 12), leaky(7, time.Second, 7)}
}

// TestABucketLimitPartlyCutOff: while two of three processes are cut off, no window holds more than
// [guard.Bound] says beyond what a bucket limit admits in it: its burst and its rate.
//
// req: E7
func TestABucketLimitPartlyCutOff(t *testing.T) {
	t.Parallel()
	for _, l := range bucketLimits() {
		t.Run(fmt.Sprintf("%d of %d", l.Burst, l.Amount), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHerd(t, l)
				h.stores[1].set(refuses)
				h.stores[2].set(refuses)
				h.ask(5 * l.Window)
				most, from := 0, 0
				for i, at := range h.admitted {
					for ; at.Sub(h.admitted[from]) >= l.Window; from++ {
					}
					most = max(most, i+1-from)
				}
				line := h.line()
				// each may be about to be admitted one
				if may := int(line.Most + l.Amount + line.Partly); most > may || most < may-3 {
					t.Errorf("%d admitted in %v, want %d or a little less", most, l.Window, may)
				}
			})
		})
	}
}
