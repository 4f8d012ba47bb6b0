package server_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// noting notes by which ids and grants a store is asked.
type noting struct {
	drawgate.Store
	mu      sync.Mutex
	takes   []store.Take
	settled []store.Settlement
}

func (s *noting) Take(ctx context.Context, takes []store.Take, out []store.Verdict) error {
	s.mu.Lock()
	s.takes = append(s.takes, takes...)
	s.mu.Unlock()
	return s.Store.Take(ctx, takes, out)
}

func (s *noting) Settle(ctx context.Context, list []store.Settlement, out []store.Outcome) error {
	s.mu.Lock()
	s.settled = append(s.settled, list...)
	s.mu.Unlock()
	return s.Store.Settle(ctx, list, out)
}

// A grant goes from the request to the store, and from the answer's token into each settlement.
// Without one each request gets its own.
func TestTakesAndSettlementsNameTheGrant(t *testing.T) {
	t.Parallel()
	store := &noting{Store: memstore.New(nil)}
	f := setup{store: store}.start(t)
	a := f.take(`{"policy":"llm","key":"a","hold_ms":60000,"id":"job","grant":"00000000000000A1"}`)
	f.settle(`{"reservation":"` + a.Reservation + `","renew_ms":60000}`)
	f.settle(`{"reservation":"` + a.Reservation + `","cancel":true}`)
	if a.Grant != "00000000000000a1" || store.takes[0].Grant != 0xa1 || store.takes[0].ID != "job" {
		t.Errorf("answered grant %q, took %+v", a.Grant, store.takes[0])
	}
	for _, s := range store.settled {
		if s.Grant != 0xa1 || s.ID != "job" {
			t.Errorf("%v of %q, %v", s.Op, s.ID, s.Grant)
		}
	}
	var seen []drawgate.Grant
	for range 3 {
		a := f.take(`{"policy":"tiers","hold_ms":60000}`)
		last := store.takes[len(store.takes)-1]
		if last.Grant == 0 || a.Grant != last.Grant.String() || slices.Contains(seen, last.Grant) {
			t.Errorf("grant %v answered as %q, after %v", last.Grant, a.Grant, seen)
		}
		seen = append(seen, last.Grant)
	}
	if a := f.take(`{"policy":"llm","key":"b"}`); a.Grant != "" || store.takes[len(store.takes)-1].Grant != 0 {
		t.Errorf("a plain take has grant %q", a.Grant)
	}
}

// An id is open for one take at a time, and a settlement of an earlier use of it, however late,
// ends no later one.
func TestLateSettlementEndsNoLaterUse(t *testing.T) {
	t.Parallel()
	f := plain(t)
	take := `{"policy":"slots","hold_ms":60000,"id":"job"}`
	first := f.take(take)
	var p api.Problem
	if got := f.do("POST", "/v1/take", take, &p); got != 409 || p.Code != api.CodeIDOpen ||
		!strings.Contains(p.Detail, "settle or cancel that one first, or use another id") {
		t.Errorf("the open id: %d %+v", got, p)
	}
	f.settle(`{"reservation":"` + first.Reservation + `"}`)
	second := f.take(take)
	if second.Replayed || second.Grant == first.Grant {
		t.Fatalf("the id once more: %+v", second)
	}
	for _, rest := range []string{``, `,"cancel":true`, `,"used":{"requests":0}`, `,"renew_ms":1000`} {
		if got := f.settle(`{"reservation":"` + first.Reservation + `"` + rest + `}`).Outcome; got != api.OutcomeGone {
			t.Errorf("the first one with %q: %q", rest, got)
		}
	}
	if a := f.take(`{"policy":"slots","hold_ms":60000}`); a.Allowed {
		t.Error("two hold the only slot")
	}
	if got := f.settle(`{"reservation":"` + second.Reservation + `"}`).Outcome; got != api.OutcomeSettled {
		t.Errorf("the second one: %q", got)
	}
}

// What the server remembers of a reservation is of its grant: a settlement of an earlier use of the
// id does not forget the later one.
func TestMemoryTellsGrantsApart(t *testing.T) {
	t.Parallel()
	if server.SameMark("job", 1, 2) || !server.SameMark("job", 1, 1) {
		t.Error("grants are not told apart")
	}
}

// Who has no token of a take, because its answer never came, cancels it by what was sent. It gives
// back what is open, also what rules chose, and only that.
func TestTakeWithoutAnAnswerIsCancelled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ policy, key, take string }{
		{"slots", api.DefaultKey, `{"policy":"slots","hold_ms":600000,"id":"job","grant":"00000000000000a1"}`},
		{"llm", "u", `{"attributes":{"path":"/model","user":"u"},"costs":{"tokens":500},"hold_ms":600000,"id":"job","grant":"00000000000000a1"}`},
		{"tiers", "b", `{"buckets":[{"policy":"llm","key":"a"},{"policy":"tiers","key":"b"}],"hold_ms":600000,"id":"job","grant":"00000000000000a1"}`},
	} {
		f := setup{config: fuzzed()}.start(t)
		f.take(c.take)
		for i, want := range []string{api.OutcomeCancelled, api.OutcomeGone} {
			if got := f.settle(`{"cancel":true,"take":` + c.take + `}`).Outcome; got != want {
				t.Errorf("%s: cancel %d: %q, want %q", c.take, i, got, want)
			}
		}
		for name, n := range f.used(c.policy, c.key) {
			if n != 0 {
				t.Errorf("%s: %d of limit %q are used", c.take, n, name)
			}
		}
	}
}

// A cancellation that comes before the take does: the take opens nothing at the same server,
// however late it is, and another one looks again when it cannot come any more.
func TestCancellationThatOvertakesItsTake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(nil)
		same, f := setup{store: st}.inBubble(t), setup{store: st}.inBubble(t)
		late := `{"policy":"slots","hold_ms":600000,"id":"late","grant":"00000000000000a2"}`
		if got := same.settle(`{"cancel":true,"take":` + late + `}`).Outcome; got != api.OutcomeGone {
			t.Errorf("got %q", got)
		}
		for range 2 {
			time.Sleep(time.Minute)
			var p api.Problem
			if got := same.do("POST", "/v1/take", late, &p); got != 499 || p.Code != api.CodeCancelled ||
				!strings.Contains(p.Detail, "this grant was cancelled") {
				t.Errorf("a cancelled take: %d %+v", got, p)
			}
			synctest.Wait()
			if got := same.used("slots", api.DefaultKey)["slots"]; got != 0 {
				t.Errorf("%d slots are held", got)
			}
		}
		take := `{"policy":"slots","hold_ms":600000,"id":"job","grant":"00000000000000a1"}`
		if got := same.settle(`{"cancel":true,"take":` + take + `}`).Outcome; got != api.OutcomeGone {
			t.Errorf("got %q", got)
		}
		time.Sleep(store.SendLife / 2)
		f.take(take)
		time.Sleep(store.SendLife)
		if got := f.used("slots", api.DefaultKey)["slots"]; got != 0 {
			t.Errorf("%d slots are held", got)
		}
	})
}
