// Package ending gives a context to what must be done after the work's own context has ended.
package ending

import (
	"context"
	"time"
)

// Least is the time that the end of something gets at least, whatever has become of its context.
const Least = time.Second

// Context returns ctx without its cancellation, and without a deadline that is over or nearer than
// [Least]. A later deadline stays.
func Context(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	end, bounded := ctx.Deadline()
	ctx = context.WithoutCancel(ctx)
	if !bounded {
		return ctx, func() {}
	}
	if least := time.Now().Add(Least); end.Before(least) {
		end = least
	}
	return context.WithDeadline(ctx, end)
}
