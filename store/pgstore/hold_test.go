package pgstore_test

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore"
)

// TestCleaningAfterAHold: units that count from the end of their hold are not forgotten by cleaning
// before they are unused, whatever the kind of their limit.
func TestCleaningAfterAHold(t *testing.T) {
	t.Parallel()
	const hold, most = time.Hour, 10
	for what, limit := range map[string]drawgate.Limit{
		"bucket":   drawgate.BucketLimit("l", most, time.Hour, most),
		"rolling":  drawgate.RollingLimit("l", most, time.Hour),
		"calendar": drawgate.CalendarLimit("l", most, drawgate.Day, "UTC"),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			limit.Charge = drawgate.ChargeEnd
			clock, o := pgstore.NewClock(), &pgstore.Options{}
			clock.Use(o)
			s := open(t, pgtest.Shared(t).Schema(t), o)
			plan := planOf(t, drawgate.Policy{Name: what, Limits: []drawgate.Limit{limit}})
			take := takeOf(plan, "k")
			take.Buckets[0].N[0], take.ID, take.Hold, take.Grant = most, "a", hold, 1
			mustTake(t, s, take)
			for passed := time.Duration(0); passed < hold+30*time.Minute; passed += 10 * time.Minute {
				clock.Advance(10 * time.Minute)
				if err := s.Sweep(t.Context(), time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			again := takeOf(plan, "k")
			again.Buckets[0].N[0] = most
			if v, err := takeOne(t, s, again); err != nil || v.Allowed {
				t.Errorf("allowed %t, %v, half an hour after the end of a hold of all units", v.Allowed, err)
			}
		})
	}
}

// TestCleaningNotesHolds: the history says of a hold that nobody looked at again that it ended.
func TestCleaningNotesHolds(t *testing.T) {
	t.Parallel()
	clock, o := pgstore.NewClock(), &pgstore.Options{}
	clock.Use(o)
	s, plan := open(t, pgtest.Shared(t).Schema(t), o), hourly(t, many)
	take := takeOf(plan, noise(300)) // a name that does not fit into the row's key
	take.ID, take.Hold, take.Grant, take.Labels = "a", time.Minute, 1, []store.Label{{Name: "team", Value: "x"}}
	mustTake(t, s, take)
	for range 20 {
		clock.Advance(10 * time.Minute)
		if err := s.Sweep(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	var ops []string
	err := s.Read(t.Context(), store.EventQuery{Labels: take.Labels}, func(e store.Event) bool {
		if e.Key != take.Buckets[0].Key || e.ID != "a" || len(e.Units) != 1 || e.Units[0].N != 1 {
			t.Errorf("the event is %+v", e)
		}
		ops = append(ops, e.Op)
		return true
	})
	if err != nil || len(ops) != 2 || ops[1] != "expire" {
		t.Errorf("the history has %v, %v: want a take and its end", ops, err)
	}
}
