package guard_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// answerless is a Redis whose answers are lost, or that does nothing.
type answerless struct {
	*redisstore.Store

	mood atomic.Int64 // a mood: well, mute or refuses
}

func (a *answerless) call(do func() error) error {
	lost := &store.Error{Store: "redis", Op: "call", Err: errors.New("the connection was cut")}
	switch mood(a.mood.Load()) {
	case refuses:
		return lost
	case mute:
		return errors.Join(do(), lost)
	default:
		return do()
	}
}

func (a *answerless) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	return a.call(func() error { return a.Store.Take(ctx, batch, out) })
}

func (a *answerless) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	return a.call(func() error { return a.Store.Settle(ctx, batch, out) })
}

func (a *answerless) PeekKnown(
	ctx context.Context, buckets []store.BucketCost, priority int8, known []store.Known, out []store.State,
) error {
	return a.call(func() error { return a.Store.PeekKnown(ctx, buckets, priority, known, out) })
}

// TestNothingTwiceOnRedis: as [TestNothingTwice], where the store keeps histories. Redis has a
// clock of its own, so this takes as long as the hold.
//
// req: A10, A12, E5
func TestNothingTwiceOnRedis(t *testing.T) {
	t.Parallel()
	const granted, at, held = 5, 1000, 200 * time.Millisecond
	server := redistest.Start(t)
	for i, c := range []struct {
		op   store.Op
		used int64
		want int64
	}{{store.OpSettle, 3, 3}, {store.OpSettle, 8, 8}, {store.OpCancel, 0, 0}, {0, 0, granted}} {
		t.Run(fmt.Sprintf("%v %d", c.op, c.used), func(t *testing.T) {
			t.Parallel()
			plan := policy(t, 0, rolling(at, time.Hour), daily(at), leaky(at, 1000*time.Hour, at), slots(at))
			s, err := redisstore.Open("redis://"+server.Addr+"/"+strconv.Itoa(i), nil)
			if err != nil {
				t.Fatal(err)
			}
			inner := &answerless{Store: s}
			opts := full(1)
			opts.Timeout = patience
			g := guarded(t, inner, opts)
			take(t, g, plan, "k", 1) // so that it is known what the store has
			inner.mood.Store(int64(mute))
			if d := hold(t, g, "id", held, plan, "k", granted, granted, granted, 1); !d.Allowed || !d.Unsure {
				t.Fatalf("allowed %v, unsure %v", d.Allowed, d.Unsure)
			}
			inner.mood.Store(int64(refuses))
			if c.op != 0 {
				end(t, g, c.op, "id", plan, "k", c.used, c.used, c.used, 1)
			}
			open := func() int {
				var out [1]store.State
				if err := s.Peek(t.Context(), []store.BucketCost{cost(plan, "k")}, 0, out[:]); err != nil {
					t.Fatal(err)
				}
				return out[0].Open
			}
			for end := time.Now().Add(patience); open() > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the hold does not end")
				}
			}
			inner.mood.Store(int64(well))
			for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
				u, least := used(t, s, plan, "k"), min(c.want, granted)
				if u[0] < 1+least || u[1] < least {
					t.Fatalf("%d are used, want at least %d at any time", u, least)
				}
				// what has drained of a bucket is charged, as a whole unit
				if u[0] == 1+c.want && u[1] == c.want && u[2] <= c.want+1 {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%d are used, want %d", u, c.want)
				}
			}
			wantBack(t, g, patience)
			if st := g.State(); st.Miscounted != 0 {
				t.Errorf("%d counted wrongly", st.Miscounted)
			}
		})
	}
}
