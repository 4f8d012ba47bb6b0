package drawgate

import (
	"context"
	"fmt"

	"github.com/drawgate/drawgate/store"
)

// Reset forgets everything about the buckets of keys, including open reservations. The error is
// ErrInvalid if the store cannot reset buckets.
func (l *Limiter) Reset(ctx context.Context, keys ...string) error {
	s, ok := l.store.(store.Resetter)
	if !ok {
		return fmt.Errorf("%w: the store cannot reset buckets", ErrInvalid)
	}
	ks := make([]Key, len(keys))
	for i, k := range keys {
		ks[i] = l.key(k)
	}
	if err := l.within(ctx, "reset", l.step, func(ctx context.Context) error {
		return s.Reset(ctx,
			ks)
	}); err != nil {
		return l.storeError(ctx, "reset", err)
	}
	for i := range ks {
		l.queue.wake(ks[i])
	}
	return nil
}
