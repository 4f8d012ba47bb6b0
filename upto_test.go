package drawgate_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
)

// TestAllowUpTo takes what there is, whichever limit has the least, and no more than was asked.
func TestAllowUpTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy(rolling(100, time.Hour), of("tokens", rolling(10, time.Minute)),
			leaky(50, time.Hour, 50).Of("tokens"))
		for name, l := range map[string]*drawgate.Limiter{"in memory": local(t, p), "away": over(t, remote(t), p)} {
			upTo := func(n, want int64) {
				t.Helper()
				d, got, err := l.AllowUpTo(t.Context(), "k", drawgate.Tokens(n))
				if err != nil || got != want || d.Allowed != (want > 0) {
					t.Errorf("%s: up to %d: got %d, allowed %v, %v, want %d", name, n, got, d.Allowed, err, want)
				}
			}
			upTo(7, 7)
			wantUsed(t, l, "k", 1, 7, 7)
			upTo(7, 3)
			wantUsed(t, l, "k", 2, 10, 10)
			upTo(7, 0)
			upTo(drawgate.MaxAmount, 0)
			wantUsed(t, l, "k", 2, 10, 10)
			if st, err := l.Status(t.Context(), "k"); err != nil || st.Open != 0 {
				t.Errorf("%s: %d reservations are open, %v, want none", name, st.Open, err)
			}
			time.Sleep(time.Minute)
			upTo(5, 5)
		}
	})
}

// TestAllowUpToIsNeverOver: many callers get all there is between them, and not one unit more.
func TestAllowUpToIsNeverOver(t *testing.T) {
	t.Parallel()
	l := local(t, policy(rolling(1000, time.Hour)))
	var got atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 100 {
				_, n, err := l.AllowUpTo(t.Context(), "k", drawgate.Requests(7))
				if err != nil {
					t.Error(err)
				}
				got.Add(n)
			}
		})
	}
	wg.Wait()
	if got.Load() != 1000 {
		t.Errorf("got %d units in all, want 1000", got.Load())
	}
	wantUsed(t, l, "k", 1000)
}

// TestAllowUpToMistakes are errors, and take nothing.
func TestAllowUpToMistakes(t *testing.T) {
	t.Parallel()
	l := local(t, policy(rolling(10, time.Hour)))
	for _, c := range []struct {
		l    *drawgate.Limiter
		most drawgate.Cost
		want error
	}{
		{l, drawgate.Requests(0), drawgate.ErrInvalid},
		{l, drawgate.Requests(-1), drawgate.ErrInvalid},
		{l, drawgate.Tokens(1), drawgate.ErrUnknownUnit},
		{
			with(t, l, drawgate.Policy{Name: "slots", Limits: []drawgate.Limit{slots(2)}}), drawgate.Units("slots", 1),
			drawgate.ErrNeedsReserve,
		},
	} {
		d, n, err := c.l.AllowUpTo(t.Context(), "k", c.most)
		if wantErr(t, err, c.want); n != 0 || d.Allowed {
			t.Errorf("%+v: got %d, allowed %v, want nothing", c.most, n, d.Allowed)
		}
	}
	wantUsed(t, l, "k", 0)
}
