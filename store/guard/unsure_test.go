package guard_test

import (
	"context"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
)

// TestARefusalStaysUnsure: a take that was carried out and not answered is made again from the
// queue. Until its cancellation is answered, each refusal says that the store may have granted it.
//
// req: A10
func TestARefusalStaysUnsure(t *testing.T) {
	t.Parallel()
	bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
		plan := policy(t, drawgate.FallbackClosed, rolling(10, time.Hour))
		inner.set(mute)
		for i := range 5 {
			if d := send(t, g, reserve(plan, "id", 1, 5)); d.Allowed || !d.Unsure {
				t.Errorf("try %d: allowed %v, unsure %v", i, d.Allowed, d.Unsure)
			}
			time.Sleep(300 * time.Millisecond)
		}
		inner.set(well)
		free(t, inner, plan, 10*time.Second)
		time.Sleep(10 * time.Second) // until no message can open it again
		if d := send(t, g, reserve(plan, "id", 1, 11)); d.Allowed || d.Unsure {
			t.Errorf("it was cancelled: allowed %v, unsure %v", d.Allowed, d.Unsure)
		}
	})
}

// lossy is a store that carries out the first take, and loses the answer a second later.
type lossy struct {
	store.Store

	takes     int
	meanwhile func()
}

func (s *lossy) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	err := s.Store.Take(ctx, batch, out)
	if s.takes++; s.takes > 1 || err != nil {
		return err
	}
	time.Sleep(time.Second)
	s.meanwhile()
	return &store.Error{Store: "lossy", Op: "take", Err: errRefused}
}

// TestWhatTheStoreRefusesMayBeUnsure: the first message of a take was carried out and not answered,
// and the second one is refused, because others have taken what came free since. The grant stays
// open until it is cancelled, and what it holds of other limits counts.
//
// req: A10
func TestWhatTheStoreRefusesMayBeUnsure(t *testing.T) {
	t.Parallel()
	opts := full(1)
	opts.Timeout = 3 * time.Second
	bubble(t, opts, func(t *testing.T, _ *guard.Store, inner *faulty) {
		plan := policy(t, drawgate.FallbackClosed, rolling(10, time.Second), rolling(100, time.Hour))
		s := &lossy{Store: inner, meanwhile: func() { take(t, inner, plan, "k", 10, 1) }}
		g := guarded(t, s, opts)
		if d := send(t, g, reserve(plan, "id", 1, 10, 10)); d.Allowed || d.Fallback || !d.Unsure {
			t.Errorf("allowed %v, by the fallback %v, unsure %v", d.Allowed, d.Fallback, d.Unsure)
		}
		if d := send(t, g, reserve(plan, "id2", 2, 10, 10)); d.Allowed || d.Unsure {
			t.Errorf("another one: allowed %v, unsure %v", d.Allowed, d.Unsure)
		}
	})
}
