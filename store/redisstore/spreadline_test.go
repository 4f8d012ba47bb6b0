package redisstore_test

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
)

// settled carries out a settlement of a take.
func settled(tb testing.TB, s store.Store, op store.Op, t store.Take) {
	tb.Helper()
	st := store.Settlement{Op: op, ID: t.ID, Grant: t.Grant, Buckets: t.Buckets}
	if op == store.OpCharge {
		st.At = time.Now()
	}
	var out [1]store.Outcome
	if err := s.Settle(tb.Context(), []store.Settlement{st}, out[:]); err != nil || out[0].Err != nil {
		tb.Fatal(err, out[0].Err)
	}
}

// opened makes a take one that is held, by a grant of its own.
func opened(t store.Take, id string) store.Take {
	t = held(t, id, time.Minute)
	t.Grant = store.NewGrant()
	return t
}

// TestSpreadTicketTakesNothing: what a refused take waits for comes free while it leaves its
// ticket. That takes nothing; but the take sees it, because nobody tells it later.
//
// req: C5, E10
func TestSpreadTicketTakesNothing(t *testing.T) {
	t.Parallel()
	s := openURL(t, redistest.StartCluster(t, false).URL(), nil)
	for name, limit := range map[string]drawgate.Limit{
		"rolling": {Kind: drawgate.Rolling, Window: time.Minute, Amount: 1},
		"bucket":  {Kind: drawgate.Bucket, Window: time.Minute, Amount: 1},
	} {
		limit.Name = "l"
		plan := compile(t, name, limit)
		other := opened(takeOf(plan, nameOn(plan, 0), 1), name)
		if d := take(t, s, other); !d.Allowed {
			t.Fatal(d)
		}
		stands := 0
		s.OnStep(func(step string, _ int) {
			if step == "stand" {
				stands++
				settled(t, s, store.OpCancel, other)
			}
		})
		ask := waiting(across(plan, 1, 0, 1), 7)
		d := take(t, s, ask)
		if s.OnStep(nil); !d.Allowed || stands != 1 {
			t.Errorf("%s: it stood in line %d times: %+v", name, stands, d)
		}
		if used, held := usedOn(t, s, plan); used != [3]int64{1, 1} || held != [3]int64{} {
			t.Errorf("%s: it has used %v, and holds %v", name, used, held)
		}
		if l := lineOf(t, s, ask); len(l.Tickets) != 0 {
			t.Errorf("%s: the line is %+v", name, l)
		}
	}
}

// TestSpreadTicketForSlots: a hold of slots waits in line, too.
//
// req: C5, E10
func TestSpreadTicketForSlots(t *testing.T) {
	t.Parallel()
	s := openURL(t, redistest.StartCluster(t, false).URL(), nil)
	plan := compile(t, "p", drawgate.Limit{Name: "s", Kind: drawgate.Concurrency, Amount: 1})
	take(t, s, opened(across(plan, 1, 0, 1), "a"))
	ask := waiting(opened(across(plan, 1, 0, 1), "b"), 7)
	if d := take(t, s, ask); d.Allowed || d.Arrival == 0 {
		t.Errorf("%+v", d)
	}
	if l := lineOf(t, s, ask); len(l.Tickets) != 1 || l.Tickets[0].Number != 7 {
		t.Errorf("the line is %+v", l)
	}
}

// TestSpreadTicketOfAnEarlierTry: a take is tried again because one of its buckets was used up
// since it looked. Then another one is, too, and it claims less.
//
// req: C5, E10
func TestSpreadTicketOfAnEarlierTry(t *testing.T) {
	t.Parallel()
	s := openURL(t, redistest.StartCluster(t, false).URL(), nil)
	plan := compile(t, "p", drawgate.Limit{Name: "r", Kind: drawgate.Rolling, Window: time.Minute, Amount: 2})
	ask := waiting(across(plan, 1, 0, 1), 7)
	tries := 0
	s.OnStep(func(step string, g int) {
		if step == "reserve" && g == 1 {
			tries++
			settled(t, s, store.OpCharge, across(plan, 2, 0))
			settled(t, s, store.OpCharge, across(plan, 2, 1))
		}
	})
	d := take(t, s, ask)
	if d.Allowed || d.Arrival == 0 || tries != 1 {
		t.Errorf("%d tries: %+v", tries, d)
	}
	for p, want := range []int{1, 0} {
		if l := lineOf(t, s, across(plan, 1, p)); len(l.Tickets) != want {
			t.Errorf("in slot %d the line is %+v, want %d tickets", p, l, want)
		}
	}
}

// TestSpreadTicketHearsHints: who waits for buckets in several slots is told when units come free.
//
// req: C5, E10
func TestSpreadTicketHearsHints(t *testing.T) {
	t.Parallel()
	url := redistest.StartCluster(t, false).URL()
	s, far := openURL(t, url, nil), openURL(t, url, nil)
	plan := compile(t, "p", drawgate.Limit{Name: "r", Kind: drawgate.Rolling, Window: time.Minute, Amount: 1})
	other := opened(takeOf(plan, nameOn(plan, 0), 1), "a")
	take(t, far, other)
	keys := make(chan store.Key, 1)
	defer s.Watch(keys)()
	take(t, s, waiting(across(plan, 1, 0, 1), 7))
	until(t, "it hears of them", func() bool { // it may not listen yet
		settled(t, far, store.OpCancel, other)
		select {
		case k := <-keys:
			if k != other.Buckets[0].Key {
				t.Errorf("it heard of %v", k)
			}
			return true
		case <-time.After(100 * time.Millisecond):
		}
		other.Grant = store.NewGrant()
		other.Barge = true
		take(t, far, other)
		take(t, s, waiting(across(plan, 1, 0, 1), 7))
		return false
	})
}

// TestSpreadTicketStandsWhileAPartIsUndone: a slot has only a part of what a take reserves there,
// because it was used since the take looked. When the part is given back, the take's ticket lies
// there: others do not take what it waits for.
//
// req: C5, E10
func TestSpreadTicketStandsWhileAPartIsUndone(t *testing.T) {
	t.Parallel()
	s := openURL(t, redistest.StartCluster(t, false).URL(), nil)
	plan := compile(t, "p", drawgate.Limit{Name: "r", Kind: drawgate.Rolling, Window: time.Minute, Amount: 2})
	other := opened(takeOf(plan, nameOn(plan, 0), 1), "a")
	take(t, s, other)
	ask := waiting(across(plan, 2, 0, 1), 7)
	first := take(t, s, ask)
	if l := lineOf(t, s, across(plan, 1, 0)); first.Allowed || len(l.Tickets) != 1 {
		t.Fatalf("%+v, the line is %+v", first, l)
	}
	settled(t, s, store.OpCancel, other)
	ask.Ticket.Arrival = first.Arrival
	undone := 0
	s.OnStep(func(step string, g int) {
		switch {
		case step == "reserve" && g == 0 && undone == 0:
			settled(t, s, store.OpCharge, across(plan, 1, 0))
		case step == store.OpCancel.String():
			undone++
			if l := lineOf(t, s, across(plan, 1, 0)); len(l.Tickets) != 1 || l.Tickets[0].Arrival != first.Arrival {
				t.Errorf("the line is %+v", l)
			}
		}
	})
	if d := take(t, s, ask); d.Allowed || d.RetryAfter < 50*time.Second || undone == 0 {
		t.Errorf("undone %d times: %+v", undone, d)
	}
	if l := lineOf(t, s, across(plan, 1, 0)); len(l.Tickets) != 1 {
		t.Errorf("the line is %+v", l)
	}
}
