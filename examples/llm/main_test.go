package main

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/memstore"
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
				if used, err := ask(t.Context(), lim, "1234567890"); used != 1000 || err != nil {
					t.Errorf("used %d, %v", used, err)
				}
			})
		}
		wg.Wait()
		if d := time.Since(start); d < time.Second || d > 2*time.Second {
			t.Errorf("8 calls at 5 a second took %v", d)
		}
		st, err := lim.Status(t.Context(), "project-a", drawgate.Cost{Unit: "tokens", N: 1})
		if err != nil || st.Open != 0 || st.States[2].Used != 0 {
			t.Errorf("%d open, %d slots used, %v", st.Open, st.States[2].Used, err)
		}
	})
}
