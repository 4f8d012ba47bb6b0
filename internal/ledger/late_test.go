package ledger_test

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/store"
)

// given has l admit a take without the store, which was asked before and did not answer (unsure).
func given(t *testing.T, l *ledger.Ledger, tk *store.Take, us int64, unsure bool) {
	t.Helper()
	var r ledger.Request
	r.Init(tk)
	if unsure {
		l.Begin(at(us), &r)
		l.Unanswered(at(us), &r)
	}
	if d := l.Decide(at(us), &r); !d.Allowed {
		t.Fatalf("%+v", d)
	}
}

func settled(t *testing.T, l *ledger.Ledger, tk *store.Take, us int64, n store.Amounts) {
	t.Helper()
	st := store.Settlement{Op: store.OpSettle, ID: tk.ID, Grant: tk.Grant, Buckets: bucket(tk.Buckets[0].Plan, 0, 0)}
	st.Buckets[0].N = n
	if o, mine := l.Settle(at(us), &st); !mine || o.Gone {
		t.Fatalf("%+v, %v", o, mine)
	}
}

func reservation(p *store.Plan, id string, g store.Grant, hold time.Duration) *store.Take {
	return &store.Take{ID: id, Grant: g, Hold: hold, Buckets: bucket(p, 3, 1)}
}

// TestALateChargeHoldsNoSlot: what a reservation used is charged after its end, when it has no slot
// any more. Others of its bucket still have theirs.
func TestALateChargeHoldsNoSlot(t *testing.T) {
	t.Parallel()
	for _, why := range []string{"it was settled", "its hold ended", "the store refuses it"} {
		l, p := newLedger(), plan(100, 10)
		first, second := reservation(p, "a", 1, 10*time.Second), reservation(p, "b", 2, time.Hour)
		given(t, l, second, 0, false)
		given(t, l, first, 1, false)
		us := int64(2)
		switch why {
		case "it was settled":
			settled(t, l, first, us, store.Amounts{2, store.KeepEstimate})
		case "its hold ended":
			us = 20 * time.Second.Microseconds()
		}
		for range 5 {
			d := l.Next(at(us))
			if d == nil {
				break
			}
			out := make([]store.Verdict, len(d.Takes))
			for i := range d.Takes {
				tk := &d.Takes[i]
				out[i] = m1(&ledger.Delivery{Takes: d.Takes[i:]})
				switch {
				case tk.Grant == first.Grant:
					out[i] = store.Verdict{} // too many are open
				case tk.Grant != second.Grant && tk.Buckets[0].N[1] != 0:
					t.Errorf("%s: a late charge of %v: it takes a slot", why, tk.Buckets[0].N)
				}
			}
			l.Delivered(at(us), d, make([]store.Outcome, len(d.Settlements)), &ledger.Report{})
			l.Replayed(at(us), d, out, &ledger.Report{})
		}
	}
}

// cancelled delivers everything for a while, refusing late charges as well as a certain take, and
// returns how often each id was cancelled.
func cancelled(t *testing.T, l *ledger.Ledger, from, until int64, answer func(tk *store.Take) store.Verdict,
) (cancels map[string]int, charged int64) {
	t.Helper()
	cancels = map[string]int{}
	for us := from; us < until; us += 100 * ms {
		for d := l.Next(at(us)); d != nil; d = l.Next(at(us)) {
			outcomes, out := make([]store.Outcome, len(d.Settlements)), make([]store.Verdict, len(d.Takes))
			for i := range d.Settlements {
				switch st := &d.Settlements[i]; st.Op {
				case store.OpCancel:
					cancels[st.ID]++
				case store.OpCharge:
					charged += st.Buckets[0].N[0]
				default:
				}
			}
			for i := range d.Takes {
				out[i] = answer(&d.Takes[i])
			}
			l.Delivered(at(us), d, outcomes, &ledger.Report{})
			l.Replayed(at(us), d, out, &ledger.Report{})
		}
	}
	return cancels, charged
}

// TestARefusalAfterALostAnswer: the store did not answer a take, which it may yet carry out, and
// refused it when it came again. So it is charged without an id, and cancelled.
func TestARefusalAfterALostAnswer(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		l, p := newLedger(), plan(100, 10)
		if late {
			given(t, l, &store.Take{Buckets: bucket(p, 3, 0)}, 0, false)
		} else {
			given(t, l, reservation(p, "a", 1, time.Hour), 0, false)
		}
		d := l.Next(at(1))
		if d == nil || len(d.Takes) != 1 {
			t.Fatalf("%+v is delivered", d)
		}
		id := d.Takes[0].ID
		l.Failed(at(2), d)
		cancels, charged := cancelled(t, l, 3, 10*second, func(*store.Take) store.Verdict { return store.Verdict{} })
		if charged != 3 || cancels[id] == 0 {
			t.Errorf("late charge %v: %d are charged, and it is cancelled %d times, want 3, and once or more", late,
				charged, cancels[id])
		}
	}
}

// TestAPartUnderAnotherID: the store has a part of a reservation, by the id that it has there
// because its own one was taken. It takes another one, and the part is cancelled.
func TestAPartUnderAnotherID(t *testing.T) {
	t.Parallel()
	l, p := newLedger(), plan(100, 10)
	tk, name := reservation(p, "a", 1, time.Hour), ""
	given(t, l, tk, 0, false)
	for us := int64(1); name == ""; us += 100 * ms {
		d := l.Next(at(us))
		if d == nil {
			continue
		}
		if d.Takes[0].ID != "a" {
			name = d.Takes[0].ID
			l.Failed(at(us), d)
			break
		}
		l.Replayed(at(us), d, []store.Verdict{{Fail: store.ErrIDOpen}}, &ledger.Report{})
	}
	third := ""
	cancels, _ := cancelled(t, l, 20*second, 40*second, func(tk *store.Take) store.Verdict {
		if third = tk.ID; third == name {
			return store.Verdict{Fail: store.ErrIDOpen}
		}
		return m1(&ledger.Delivery{Takes: []store.Take{*tk}})
	})
	if cancels[name] == 0 || third == name || third == "a" {
		t.Errorf("cancelled were %v, want %q; it has the id %q", cancels, name, third)
	}
	st := store.Settlement{Op: store.OpSettle, ID: "a", Grant: 1, Buckets: bucket(p, 3, 1)}
	if sent := l.SentSettlements([]store.Settlement{st}); sent[0].ID != third {
		t.Errorf("it is settled as %q, want %q", sent[0].ID, third)
	}
}

// TestAPartAfterARenewal: a reservation that was renewed here is open at the store only in a part
// of its buckets. It takes another id there, and the part is cancelled.
func TestAPartAfterARenewal(t *testing.T) {
	t.Parallel()
	l, p := newLedger(), plan(100, 10)
	tk := reservation(p, "a", 1, time.Hour)
	given(t, l, tk, 0, false)
	st := store.Settlement{Op: store.OpRenew, ID: "a", Grant: 1, Hold: 2 * time.Hour, Buckets: bucket(p, 0, 0)}
	if _, mine := l.Settle(at(1), &st); !mine {
		t.Fatal("it is not renewed here")
	}
	d := l.Next(at(2))
	v := m1(d)
	l.Replayed(at(2), d, []store.Verdict{v}, &ledger.Report{})
	d = l.Next(at(3))
	if d == nil || len(d.Settlements) != 1 || d.Settlements[0].Op != store.OpRenew {
		t.Fatalf("%+v is delivered, want a renewal", d)
	}
	l.Delivered(at(3), d, []store.Outcome{{Gone: true}}, &ledger.Report{})
	cancels, _ := cancelled(t, l, 4, 20*second, func(tk *store.Take) store.Verdict {
		if tk.ID == "a" {
			return store.Verdict{Fail: store.ErrIDOpen}
		}
		return m1(&ledger.Delivery{Takes: []store.Take{*tk}})
	})
	if cancels["a"] == 0 {
		t.Errorf("cancelled were %v, want a", cancels)
	}
}

// m1 is the answer of an empty store to the first take of a delivery.
func m1(d *ledger.Delivery) store.Verdict { return newModel().take(&d.Takes[0], at(2).Store) }

// TestACancellationOfAPartStays, although the take of which it is a part is asked for again: that
// has another id by now.
func TestACancellationOfAPartStays(t *testing.T) {
	t.Parallel()
	l, p := newLedger(), plan(100, 10)
	tk := reservation(p, "a", 1, time.Hour)
	given(t, l, tk, 0, true)
	cancels := 0
	for us := int64(1); us < 20*second; us += 100 * ms {
		for d := l.Next(at(us)); d != nil; d = l.Next(at(us)) {
			for i := range d.Settlements {
				if st := &d.Settlements[i]; st.Op == store.OpCancel && st.ID == "a" {
					cancels++
				}
			}
			out := make([]store.Verdict, len(d.Takes))
			for i := range d.Takes {
				if out[i].Fail = store.ErrIDOpen; d.Takes[i].ID != "a" {
					out[i] = m1(&ledger.Delivery{Takes: d.Takes[i:]})
				}
			}
			l.Delivered(at(us), d, make([]store.Outcome, len(d.Settlements)), &ledger.Report{})
			l.Replayed(at(us), d, out, &ledger.Report{})
			var r ledger.Request
			r.Init(tk)
			l.Begin(at(us), &r)
			l.Decide(at(us), &r)
		}
	}
	if cancels == 0 {
		t.Error("it was not cancelled")
	}
}

// TestALateChargeThatIsSentLate is settled although it was given long before.
func TestALateChargeThatIsSentLate(t *testing.T) {
	t.Parallel()
	l, p := newLedger(), plan(100, 10)
	given(t, l, &store.Take{Buckets: bucket(p, 3, 0)}, 0, false)
	d := l.Next(at(1))
	l.Failed(at(2), d)
	us := 2 * time.Hour.Microseconds()
	d = l.Next(at(us))
	if d == nil || len(d.Takes) != 1 {
		t.Fatalf("%+v is delivered", d)
	}
	id := d.Takes[0].ID
	l.Replayed(at(us), d, []store.Verdict{m1(d)}, &ledger.Report{})
	us += 10 * second
	if d = l.Next(at(us)); d == nil || len(d.Settlements) != 1 || d.Settlements[0].ID != id {
		t.Errorf("%+v is delivered, want the end of %q", d, id)
	}
}

// TestALateChargeWhereTooManyAreOpen needs no place among them: it is charged without an id.
func TestALateChargeWhereTooManyAreOpen(t *testing.T) {
	t.Parallel()
	l, p := newLedger(), plan(100, 10)
	given(t, l, &store.Take{Buckets: bucket(p, 3, 0)}, 0, false)
	_, charged := cancelled(t, l, 1, second, func(*store.Take) store.Verdict {
		return store.Verdict{Fail: store.ErrTooManyOpen}
	})
	if charged != 3 {
		t.Errorf("%d are charged, want 3", charged)
	}
}

// TestLateChargesThatAreNeverAnswered do not become more and more, and nothing of them is lost.
func TestLateChargesThatAreNeverAnswered(t *testing.T) {
	t.Parallel()
	for _, fault := range []bool{false, true} {
		l, p := newLedger(), plan(1_000_000, 10)
		const takes = 200 // in less than a window
		us, sent := int64(0), map[string]int64{}
		for ; us < takes*2*second; us += 2 * second {
			given(t, l, &store.Take{Buckets: bucket(p, 3, 0)}, us, false)
			d := l.Next(at(us))
			if d == nil {
				t.Fatal("nothing is delivered")
			}
			out := make([]store.Verdict, len(d.Takes))
			for i := range d.Takes {
				out[i].Fail = &store.Error{Store: "test", Op: "take", Fault: store.FaultBucket}
			}
			if fault {
				l.Replayed(at(us+1), d, out, &ledger.Report{})
			} else {
				l.Failed(at(us+1), d)
			}
			if len(d.Takes) > 16 {
				t.Fatalf("%d late charges are delivered", len(d.Takes))
			}
		}
		m := newModel()
		for end := us + 10*second; us < end; us += second {
			for d := l.Next(at(us)); d != nil; d = l.Next(at(us)) {
				outcomes, out := make([]store.Outcome, len(d.Settlements)), make([]store.Verdict, len(d.Takes))
				for i := range d.Settlements {
					outcomes[i] = m.settle(&d.Settlements[i], at(us).Store)
				}
				for i := range d.Takes {
					sent[d.Takes[i].ID] = d.Takes[i].Buckets[0].N[0]
					out[i] = m.take(&d.Takes[i], at(us).Store)
				}
				l.Delivered(at(us), d, outcomes, &ledger.Report{})
				l.Replayed(at(us), d, out, &ledger.Report{})
			}
		}
		n := int64(0)
		for _, k := range sent {
			n += k
		}
		if n != 3*takes || len(m.open) > 0 || l.Pending() > 0 {
			t.Errorf("%d are charged, want %d; %d stay open, %d buckets pending", n, 3*takes, len(m.open), l.Pending())
		}
	}
}
