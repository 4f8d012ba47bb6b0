package guard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/answer"
	"github.com/drawgate/drawgate/store/memstore"
)

type (
	resets  struct{}
	lists   struct{}
	journal struct{}
)

func (resets) Reset(context.Context, []drawgate.Key) error                        { return nil }
func (lists) List(context.Context, string, string, func(drawgate.Key) bool) error { return nil }
func (journal) Read(context.Context, drawgate.EventQuery, func(drawgate.Event) bool) error {
	return nil
}

// TestFullOffersWhatTheStoreOffers: Full has the store's optional interfaces, and no others.
func TestFullOffersWhatTheStoreOffers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plain := struct{ drawgate.Store }{memstore.New(nil)}
		type rl struct {
			drawgate.Store
			resets
			lists
		}
		for i, s := range []drawgate.Store{
			plain,
			struct {
				drawgate.Store
				resets
			}{plain, resets{}},
			struct {
				drawgate.Store
				lists
			}{plain, lists{}},
			rl{plain, resets{}, lists{}},
			struct {
				drawgate.Store
				journal
			}{plain, journal{}},
			struct {
				drawgate.Store
				resets
				journal
			}{plain, resets{}, journal{}},
			struct {
				drawgate.Store
				lists
				journal
			}{plain, lists{}, journal{}},
			struct {
				rl
				journal
			}{rl{plain, resets{}, lists{}}, journal{}},
		} {
			g := guarded(t, s, nil)
			full := g.Full()
			r, reset := full.(drawgate.Resetter)
			l, list := full.(drawgate.Lister)
			j, read := full.(drawgate.Journal)
			_, ping := full.(drawgate.Pinger)
			_, watch := full.(drawgate.Watcher)
			_, opens := full.(answer.Opener)
			if reset != (i&1 > 0) || list != (i&2 > 0) || read != (i&4 > 0) || !ping || !watch || opens {
				t.Errorf("store %d: reset %v, list %v, read %v, ping %v, watch %v, open %v", i, reset, list, read, ping, watch, opens)
			}
			g.Replace(plain) // which has none of the interfaces
			if reset && !errors.Is(r.Reset(t.Context(), nil), drawgate.ErrInvalid) || list && !errors.Is(l.List(t.Context(), "", "", nil), drawgate.ErrInvalid) ||
				read && !errors.Is(j.Read(t.Context(), drawgate.EventQuery{}, nil), drawgate.ErrInvalid) {
				t.Errorf("store %d: replaced, it claims what the new one lacks", i)
			}
		}
	})
}

// TestCapabilitiesDuringAnOutage: the optional interfaces fail at once, because they have no
// fallback. A reset also forgets what the ledger knows.
//
// req: D8
func TestCapabilitiesDuringAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New(nil)
		store := &faulty{Store: inner}
		g := guarded(t, struct {
			*faulty
			drawgate.Resetter
			drawgate.Lister
		}{store, inner, inner}, full(1))
		plan := policy(t, 0, rolling(10, time.Hour))
		key := cost(plan, "k").Key
		s := g.Full()
		if err := g.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		store.set(refuses)
		for range 4 {
			take(t, g, plan, "k", 1)
		}
		asked := store.count()
		for what, err := range map[string]error{
			"reset": s.(drawgate.Resetter).Reset(t.Context(), []drawgate.Key{key}), "ping": g.Ping(t.Context()),
			"list": s.(drawgate.Lister).List(t.Context(), "", "p", func(drawgate.Key) bool { return true }),
		} {
			if se, ok := errors.AsType[*drawgate.StoreError](err); !ok || se.Op != what {
				t.Errorf("%s: %v", what, err)
			}
		}
		if store.count() != asked {
			t.Error("the store was asked")
		}
		store.set(well)
		for g.State().Unavailable {
			time.Sleep(time.Millisecond)
		}
		if err := s.(drawgate.Resetter).Reset(t.Context(), []drawgate.Key{key}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := used(t, g, plan, "k")[0]; got != 0 || g.State().Pending != 0 {
			t.Errorf("%d used after a reset, %+v", got, g.State())
		}
	})
}
