package httplimit_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

func (f *flaky) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	if f.down.Load() {
		return errDown
	}
	return f.Store.Peek(ctx, buckets, priority, out)
}

// The answer to a request that can never pass has the limits, like any other refusal, so that the
// caller knows what it may ask for.
func TestNeverFitsSaysTheLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: memstore.New(nil)}
		t.Cleanup(func() { _ = store.Close() })
		items := rolling(100, time.Hour)
		items.Unit = "items"
		items.Name = "items"
		own, err := drawgate.New(store, policy("own", rolling(10, time.Hour), items), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = own.Close() })
		all := with(t, own, policy("all", items))
		n := int64(70)
		costs := func(*http.Request) []drawgate.Cost { return []drawgate.Cost{{Unit: "items", N: n}} }
		buckets := []httplimit.Bucket{
			{Limiter: own, Key: httplimit.Fixed("a"), Costs: costs},
			{Limiter: all, Key: httplimit.Fixed("b"), Costs: costs, Shared: true},
		}
		m, none := middleware(t, nil, buckets...), middleware(t, &httplimit.Options{Fields: httplimit.NoFields},
			buckets...)
		if _, p := ask(m); p.Problem != nil {
			t.Fatalf("the first request: got %+v, want it to pass", p.Problem)
		}
		n = 101
		h, p := ask(m)
		if p.Problem == nil || p.Problem.Status != http.StatusRequestEntityTooLarge ||
			p.Problem.Code != httplimit.CodeNeverFits {
			t.Fatalf("got %+v", p.Problem)
		}
		for name, want := range map[string]string{
			httplimit.HeaderLimit:     "100", // of the limit that can never grant it
			httplimit.HeaderRemaining: "30",
			// what all share is not told
			httplimit.HeaderRateLimit: `"own/rolling";r=9;t=3600, "own/items";r=30;t=3600`,
			httplimit.HeaderPolicy:    `"own/rolling";q=10;w=3600, "own/items";q=100;qu="items";w=3600`,
			httplimit.HeaderRetry:     "",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if h.Get(httplimit.HeaderReset) == "" {
			t.Error("there is no reset")
		}
		if h, p := ask(none); p.Problem == nil || p.Problem.Status != http.StatusRequestEntityTooLarge || len(h) != 0 {
			t.Errorf("no headers were asked for: %+v, %v", p.Problem, h)
		}
		store.down.Store(true)
		if h, p := ask(m); p.Problem == nil || p.Problem.Status != http.StatusRequestEntityTooLarge || len(h) != 0 {
			t.Errorf("the store cannot say what is left: %+v, %v", p.Problem, h)
		}
	})
}
