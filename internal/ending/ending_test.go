package ending_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/internal/ending"
)

// TestContext outlives a cancellation and a deadline, and keeps a deadline that is not near.
func TestContext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(context.Context) (context.Context, context.CancelFunc)
		want time.Duration // until it ends; 0: it does not
	}{
		"no end": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return ctx,
				func() {}
		}, 0},
		"cancelled":               {cancelled, 0},
		"a deadline that is over": {within(-time.Minute), ending.Least},
		"a near deadline":         {within(time.Millisecond), ending.Least},
		"a later deadline":        {within(time.Minute), time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				type key struct{}
				parent, stop := c.make(context.WithValue(context.Background(), key{}, "value"))
				defer stop()
				ctx, end := ending.Context(parent)
				defer end()
				if ctx.Err() != nil || ctx.Value(key{}) != "value" {
					t.Errorf("got %v with the value %v, want no error, and the value of its parent", ctx.Err(),
						ctx.Value(key{}))
				}
				if deadline, ok := ctx.Deadline(); ok != (c.want > 0) || ok && time.Until(deadline) != c.want {
					t.Errorf("got a deadline in %v (%v), want one in %v", time.Until(deadline), ok, c.want)
				}
			})
		})
	}
}

func cancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx, cancel
}

func within(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, d)
	}
}
