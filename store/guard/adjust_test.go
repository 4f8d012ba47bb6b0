package guard_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// An adjustment whose answer is lost, or that finds the store away, is an error and is not kept:
// made again, it counts nothing twice. The store's answers are right before and after.
func TestAdjustIsNotKept(t *testing.T) {
	t.Parallel()
	for _, m := range []mood{mute, refuses, stalls} {
		for _, want := range []int64{8, 2} {
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{Store: memstore.New(nil)}
				g := guard.New(f, nil)
				t.Cleanup(func() { _ = g.Close() })
				l, err := drawgate.New(g, drawgate.Policy{
					Name:   "p",
					Limits: []drawgate.Limit{drawgate.RollingLimit("a", 10, time.Hour)},
				}, nil)
				if err != nil {
					t.Fatal(err)
				}
				for range 5 {
					if _, err := l.Allow(t.Context(), "k"); err != nil {
						t.Fatal(err)
					}
				}
				f.only = func(op string, _ bool) mood {
					if op == "charge" || op == "refund" {
						return m
					}
					return well
				}
				if out, err := l.Ask("k").Adjust(t.Context(), "", want, "seen"); !errors.Is(err,
					store.ErrStoreUnavailable) {
					t.Errorf("mood %d: %+v, %v", m, out, err)
				}
				f.mu.Lock()
				f.only = nil
				f.mu.Unlock()
				time.Sleep(time.Minute) // the guard delivers what it has kept
				if out, err := l.Ask("k").Adjust(t.Context(), "", want, "seen"); err != nil || out.Used != want {
					t.Errorf("again: %+v, %v", out, err)
				}
				time.Sleep(time.Minute)
				st, err := l.Status(t.Context(), "k")
				if err != nil || st.Fallback || st.States[0].Used != want {
					t.Errorf("%d used, fallback %v, %v; want %d", st.States[0].Used, st.Fallback, err, want)
				}
			})
		}
	}
}
