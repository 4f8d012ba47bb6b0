package drawgate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
)

// TestEndOfAReservationOutlivesItsContext: the work's context may have ended before, and may end
// while the store is asked.
func TestEndOfAReservationOutlivesItsContext(t *testing.T) {
	t.Parallel()
	for name, context := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"cancelled before": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		},
		"its deadline was before": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, -time.Second)
		},
		"cancelled meanwhile": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(100*time.Millisecond, cancel)
			return ctx, cancel
		},
		"its deadline is meanwhile": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 100*time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := remote(t)
				l := over(t, s, policy(of("tokens", rolling(100, time.Hour))))
				settled := reserve(t, l, drawgate.Request{
					Buckets: []drawgate.Ask{l.Ask("k", tokens(50))},
					Hold:    drawgate.Hold{For: time.Minute},
				})
				cancelled := reserve(t, l, drawgate.Request{
					Buckets: []drawgate.Ask{l.Ask("k", tokens(50))},
					Hold:    drawgate.Hold{For: time.Minute},
				})
				s.script(500*time.Millisecond, 0, 0)
				ctx, stop := context(t.Context())
				defer stop()
				if err := errors.Join(settled.Settle(ctx, tokens(7)), cancelled.Cancel(ctx)); err != nil {
					t.Error(err)
				}
				if err := cancelled.Cancel(ctx); !errors.Is(err, drawgate.ErrGone) {
					t.Errorf("got %v for what is over, want ErrGone", err)
				}
				wantUsed(t, l, "k", 7)
			})
		})
	}
}

// TestDeadlineBoundsTheEndOfAReservation where it lies far enough ahead.
func TestDeadlineBoundsTheEndOfAReservation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := over(t, s, policy(rolling(100, time.Hour)))
		res := reserve(t, l, drawgate.Request{
			Buckets: []drawgate.Ask{l.Ask("k")},
			Hold:    drawgate.Hold{For: time.Minute},
		})
		s.script(0, stalls, stalls, stalls)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		start := time.Now()
		if err := res.Settle(ctx); err == nil {
			t.Error("settled, although the store does not answer")
		}
		wantTook(t, start, 1500*time.Millisecond, 0)
	})
}
