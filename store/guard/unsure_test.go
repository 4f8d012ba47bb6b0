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

// TestWhatCountsTwiceIsTold: a reservation was given without asking the store. When that is back, it
// is told, and opens the hold, but its answer is lost, and it is away until after the hold's end:
// then it has the hold, as used, beside what was used. State tells that, and does not where the hold
// could still be cancelled, or the store never had it.
//
// req: A10
func TestWhatCountsTwiceIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replay mood          // what becomes of the message
		away   time.Duration // afterwards
		used   int64         // by the store
		twice  uint64
	}{
		"carried out, and away for long":    {mute, 50 * time.Second, 9, 1},
		"carried out, and away for a while": {mute, 5 * time.Second, 4, 0},
		"never asked":                       {refuses, 0, 4, 0},
	} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(1000, time.Hour))
			inner.set(refuses)
			for !g.State().Unavailable {
				take(t, g, plan, "other", 1)
			}
			if d := hold(t, g, "id", 30*time.Second, plan, "k", 5); !d.Allowed || d.Unsure {
				t.Fatalf("%s: allowed %v, unsure %v", name, d.Allowed, d.Unsure)
			}
			if c.away > 0 {
				inner.mu.Lock()
				inner.mood, inner.only = well, func(op string, _ bool) mood {
					if op == "take" {
						return c.replay
					}
					return well
				}
				inner.mu.Unlock()
				time.Sleep(3 * time.Second)
				inner.mu.Lock()
				inner.mood, inner.only = refuses, nil
				inner.mu.Unlock()
			}
			end(t, g, store.OpSettle, "id", plan, "k", 4)
			time.Sleep(c.away)
			inner.set(well)
			wantBack(t, g, time.Minute)
			time.Sleep(10 * time.Second)
			st := g.State()
			if n := used(t, inner.Store, plan, "k")[0]; n != c.used || st.Twice != c.twice || st.Undelivered {
				t.Errorf("%s: %d are used, %d counted twice, undelivered %v, want %d and %d", name, n, st.Twice, st.Undelivered,
					c.used, c.twice)
			}
		})
	}
}
