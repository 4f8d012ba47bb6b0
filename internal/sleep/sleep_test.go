package sleep_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/internal/sleep"
)

func TestFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			most, d, want time.Duration
			passed        bool
		}{
			{time.Minute, time.Second, time.Second, true},
			{time.Minute, time.Hour, time.Minute, false},
			{time.Minute, -time.Second, 0, true},
			{0, 0, 0, false}, // both at once
		} {
			ctx, cancel := context.WithTimeout(t.Context(), c.most)
			start := time.Now()
			if passed := sleep.For(ctx, c.d); passed != c.passed || time.Since(start) != c.want {
				t.Errorf("For(%v) of %v = %v after %v, want %v after %v", c.d, c.most, passed, time.Since(start),
					c.passed, c.want)
			}
			cancel()
		}
	})
}
