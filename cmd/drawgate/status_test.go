//go:build unix

package main

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// alone is a store that marks every status as this process's own.
type alone struct{ drawgate.Store }

func (a alone) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	err := a.Store.Peek(ctx, buckets, priority, out)
	for i := range out {
		out[i].Fallback = true
	}
	return err
}

// The status says when its numbers are those of a server's own share, not of the whole limit.
func TestStatusSaysWhoseNumbersTheseAre(t *testing.T) {
	t.Parallel()
	policy := drawgate.Policy{Name: "api", Limits: []drawgate.Limit{{
		Name: "rpm", Kind: drawgate.Rolling,
		Window: time.Minute, Amount: 10,
	}}}
	inner := memstore.New(nil)
	t.Cleanup(func() { _ = inner.Close() })
	for _, store := range []drawgate.Store{inner, alone{inner}} {
		e, err := engine.New(store, engine.Config{Policies: []engine.Policy{{Policy: policy}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := server.New(e, store, nil)
		if err != nil {
			t.Fatal(err)
		}
		h := httptest.NewServer(s.AdminHandler())
		t.Cleanup(func() { h.Close(); _, _ = s.Close(), e.Close() })
		out, code := newBench(t).do("status", "--server", h.URL, "--policy", "api", "--key", "k")
		if _, down := store.(alone); code != 0 || strings.Contains(out, "the store cannot be reached: ") != down {
			t.Errorf("store unavailable: %v: got exit code %d and %s", down, code, out)
		}
	}
}
