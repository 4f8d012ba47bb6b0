package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
)

func TestAskSettlesWithWhatWasUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim, err := drawgate.New(memstore.New(nil), quota, nil)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if used, err := ask(t.Context(), lim, model, "1234567890"); used != 1000 || err != nil {
					t.Errorf("used %d, %v", used, err)
				}
			})
		}
		wg.Wait()
		if d := time.Since(start); d < time.Second || d > 2*time.Second {
			t.Errorf("8 calls at 5 a second took %v", d)
		}
		st, err := lim.Status(t.Context(), "project-a", drawgate.Tokens(1))
		if err != nil || st.Open != 0 || st.States[2].Used != 0 {
			t.Errorf("%d open, %d slots used, %v", st.Open, st.States[2].Used, err)
		}
	})
}

func TestAskTellsHowACallFailed(t *testing.T) {
	t.Parallel()
	broken := errors.New("the connection broke")
	for name, c := range map[string]struct {
		err             error
		delivered, used int64
	}{
		"not sent":         {errors.Join(errNotSent, broken), 0, 0},
		"partly delivered": {broken, 700, 700},
		"nobody knows":     {broken, 0, 2000},
	} {
		synctest.Test(t, func(t *testing.T) {
			lim, err := drawgate.New(memstore.New(nil), quota, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			_, err = ask(ctx, lim, func(context.Context, string) (int64, error) {
				cancel() // as if the caller had left meanwhile
				return c.delivered, c.err
			}, "hello")
			if !errors.Is(err, broken) {
				t.Errorf("%s: the model's error is lost: %v", name, err)
			}
			st, err := lim.Status(t.Context(), "project-a")
			if err != nil || st.Open != 0 || st.States[1].Used != c.used {
				t.Errorf("%s: %d open, %d tokens used, want %d; %v", name, st.Open, st.States[1].Used, c.used, err)
			}
		})
	}
}
