package dynamostore_test

import (
	"context"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/storetest"
)

// TestGuardedStore runs the suite with a guard in front of each store, while the clock moves: a
// guard changes nothing while DynamoDB works, and learns the time from the store's answers.
//
// req: A10
func TestGuardedStore(t *testing.T) {
	needs.NoRace(t) // which sees guard and stores in their own tests
	t.Parallel()
	h := harness(t, awstest.Dynalite(t))
	maps.Copy(h.Without, lengthy())
	storetest.Run(t, storetest.Wrapped(h, func(t *testing.T, s store.Store) store.Store {
		t.Helper()
		g := guard.New(s, &guard.Options{Instances: 1, Timeout: time.Minute})
		t.Cleanup(func() {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
		return g.Full()
	}))
}

// silent is a connection over which nothing goes until a channel is closed.
type silent struct {
	until <-chan struct{}
	next  http.RoundTripper
}

func (s silent) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-s.until:
		return s.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// TestHastyCallersDoNotOpen: that the table does not answer callers who give it next to no time
// does not make the guard decide without it.
//
// req: A6
func TestHastyCallersDoNotOpen(t *testing.T) {
	t.Parallel()
	answers := make(chan struct{})
	s := dynamostore.New(through(empty(t), silent{answers, direct}), "drawgate", nil)
	t.Cleanup(func() { _ = s.Close() })
	g := guard.New(s, &guard.Options{Instances: 1, Timeout: time.Minute})
	t.Cleanup(func() { _ = g.Close() })
	plan := planOf(t, 100)
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if d, err := take(ctx, g, store.Take{Buckets: bucketsOf(plan, 1, "a")}); d.Allowed {
			t.Errorf("a take of 5 ms is allowed: %v", err)
		}
		if err := g.Index(ctx, time.Hour, []store.Key{{Policy: store.OwnPolicies + "test", Name: "a"}}); err == nil {
			t.Error("something was noted")
		}
		cancel()
	}
	if st := g.State(); st.Unavailable {
		t.Errorf("the guard says that the table is unavailable: %v", st.Err)
	}
	close(answers)
	d, err := take(t.Context(), g, store.Take{Buckets: bucketsOf(plan, 1, "a")})
	if err != nil || !d.Allowed || d.Fallback {
		t.Errorf("a take with time: allowed %t, by the guard %t, %v", d.Allowed, d.Fallback, err)
	}
}
