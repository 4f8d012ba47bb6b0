package pgstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore"
)

// TestFullBucket fills a bucket with open reservations until its record is as large as it may be.
// Takes of it fail from then on; what gives units back is carried out, and so is what others want
// of other buckets, also in the same transaction.
func TestFullBucket(t *testing.T) {
	needs.NoRace(t) // the others are for goroutines
	t.Parallel()
	hold := make(chan bool)
	s, plan := oneLane(t, hold), hourly(t, many)
	held := func(n int) store.Take {
		take := takeOf(plan, "k")
		take.ID, take.Hold, take.Grant = fmt.Sprint(n, strings.Repeat("x", store.MaxID-8)), time.Hour, 1
		return take
	}
	const batch = 100
	opened := 0
	for full := false; !full && opened < 2*pgstore.MostRecord/store.MaxID; opened += batch {
		takes, out := make([]store.Take, batch), make([]store.Verdict, batch)
		for i := range takes {
			takes[i] = held(opened + i)
		}
		if err := s.Take(t.Context(), takes, out); err != nil {
			t.Fatal(err)
		}
		full = out[0].Fail != nil
		for i := range out {
			if !out[i].Allowed {
				fails(t, out[i].Fail, store.FaultBucket)
			}
		}
	}
	opened -= batch
	for err := error(nil); err == nil; opened++ {
		_, err = takeOne(t, s, held(opened))
	}
	opened--
	if got := used(t, s, plan, "k"); got != int64(opened) {
		t.Errorf("%d units are used, want %d", got, opened)
	}

	for i, err := range together(t, s, hold, []func() error{
		func() error {
			_, err := takeOne(t, s, held(opened))
			fails(t, err, store.FaultBucket)
			return nil
		},
		func() error {
			_, err := takeOne(t, s, held(opened+1))
			fails(t, err, store.FaultBucket)
			return nil
		},
		func() error {
			_, err := takeOne(t, s, takeOf(plan, "other"))
			return err
		},
		func() error {
			var o [1]store.Outcome
			end := store.Settlement{Op: store.OpCancel, ID: held(0).ID, Grant: 1, Buckets: held(0).Buckets}
			return errors.Join(s.Settle(t.Context(), []store.Settlement{end}, o[:]), o[0].Err)
		},
	}) {
		if err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if got := used(t, s, plan, "k"); got != int64(opened-1) {
		t.Errorf("%d units are used after a cancellation, want %d", got, opened-1)
	}
	if got := used(t, s, plan, "other"); got != 1 {
		t.Errorf("%d units of another bucket are used, want 1", got)
	}
	mustTake(t, s, held(opened))
	for n, err := 0, error(nil); err == nil; n++ {
		take := held(0)
		take.ID = fmt.Sprint(n)
		_, err = takeOne(t, s, take)
	}

	// A pause is written though it does not fit any more.
	var o [1]store.Outcome
	pause := store.Settlement{
		Op: store.OpPause, At: time.Now().Add(time.Hour), Reason: strings.Repeat("r", store.MaxReason),
		Buckets: held(0).Buckets,
	}
	if err := errors.Join(s.Settle(t.Context(), []store.Settlement{pause}, o[:]), o[0].Err); err != nil {
		t.Error(err)
	}
}

// TestLargeLabels: reservations with large labels fill a bucket, too.
func TestLargeLabels(t *testing.T) {
	t.Parallel()
	s, plan := open(t, pgtest.Shared(t).Schema(t), nil), hourly(t, many)
	take := takeOf(plan, "k")
	take.Hold, take.Grant = time.Hour, 1
	take.Labels = []store.Label{{Name: "l", Value: strings.Repeat("x", pgstore.MostRecord/3)}}
	for _, take.ID = range []string{"a", "b"} {
		mustTake(t, s, take)
	}
	take.ID = "c"
	_, err := takeOne(t, s, take)
	fails(t, err, store.FaultBucket)
	var o [1]store.Outcome
	end := store.Settlement{Op: store.OpSettle, ID: "a", Grant: 1, Buckets: take.Buckets}
	if err := errors.Join(s.Settle(t.Context(), []store.Settlement{end}, o[:]), o[0].Err); err != nil || o[0].Gone {
		t.Errorf("gone %t, %v", o[0].Gone, err)
	}
	mustTake(t, s, take)
}
