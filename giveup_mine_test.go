package drawgate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// deaf is a store whose answers are lost; what it is asked in the meantime it carries out at the
// end of it, or at once.
type deaf struct {
	drawgate.Store
	until  time.Time
	atOnce bool
}

func (s *deaf) Take(ctx context.Context, takes []store.Take, out []store.Verdict) error {
	if !time.Now().Before(s.until) {
		return s.Store.Take(ctx, takes, out)
	}
	if s.atOnce {
		if err := s.Store.Take(ctx, takes, out); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return &drawgate.StoreError{Store: "deaf", Op: "take", Err: ctx.Err()}
}

// Who chose a grant may send the take again after it was given up, or after the store failed, and
// then keeps its hold: nothing that became of the earlier call takes it away, however late.
func TestTakeThatIsSentAgainKeepsItsHold(t *testing.T) {
	t.Parallel()
	for _, atOnce := range []bool{true, false} {
		for _, leave := range []bool{true, false} { // while the store is asked, or when it has failed
			synctest.Test(t, func(t *testing.T) {
				store := &deaf{Store: memory(t), until: time.Now().Add(time.Second), atOnce: atOnce}
				l := over(t, store, policy(slots(1)))
				r := drawgate.Request{
					Buckets: []drawgate.Ask{l.Ask("k", drawgate.Cost{Unit: "slots", N: 1})},
					Hold:    drawgate.Hold{For: time.Hour, ID: "job", Grant: drawgate.NewGrant()}, Wait: leave,
				}
				ctx, cancel := context.WithCancel(t.Context())
				if leave {
					time.AfterFunc(time.Second/2, cancel)
				}
				_, err := takeHeld(ctx, l, r)
				cancel()
				e, gaveUp := errors.AsType[*drawgate.GaveUpError](err)
				if gaveUp != leave || gaveUp && !e.MaySpend ||
					!gaveUp && !errors.Is(err, drawgate.ErrStoreUnavailable) {
					t.Fatalf("at once %v, leave %v: %v", atOnce, leave, err)
				}
				time.Sleep(time.Until(store.until))
				if _, err := takeHeld(t.Context(), l, r); err != nil {
					t.Fatalf("sent again: %v", err)
				}
				time.Sleep(time.Minute)
				if st, err := l.Status(t.Context(), "k", drawgate.Cost{Unit: "slots", N: 1}); err != nil ||
					st.Open != 1 {
					t.Errorf("at once %v, leave %v: %d are open, %v", atOnce, leave, st.Open, err)
				}
			})
		}
	}
}
