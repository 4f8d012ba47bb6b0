package guard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/internal/localtest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

type (
	resets  struct{}
	lists   struct{}
	journal struct{}
)

func (resets) Reset(context.Context, []store.Key) error                        { return nil }
func (lists) List(context.Context, string, string, func(store.Key) bool) error { return nil }
func (journal) Read(context.Context, store.EventQuery, func(store.Event) bool) error {
	return nil
}

// TestFullOffersWhatTheStoreOffers: Full has the store's optional interfaces, and no others.
func TestFullOffersWhatTheStoreOffers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plain := struct{ store.Store }{memstore.New(nil)}
		type rl struct {
			store.Store
			resets
			lists
		}
		for i, s := range []store.Store{
			plain,
			struct {
				store.Store
				resets
			}{plain, resets{}},
			struct {
				store.Store
				lists
			}{plain, lists{}},
			rl{plain, resets{}, lists{}},
			struct {
				store.Store
				journal
			}{plain, journal{}},
			struct {
				store.Store
				resets
				journal
			}{plain, resets{}, journal{}},
			struct {
				store.Store
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
			r, reset := full.(store.Resetter)
			l, list := full.(store.Lister)
			j, read := full.(store.Journal)
			_, ping := full.(store.Pinger)
			_, watch := full.(store.Watcher)
			_, opens := full.(localtest.Opener)
			if reset != (i&1 > 0) || list != (i&2 > 0) || read != (i&4 > 0) || !ping || !watch || opens {
				t.Errorf("store %d: reset %v, list %v, read %v, ping %v, watch %v, open %v", i, reset, list, read, ping,
					watch, opens)
			}
			g.Replace(plain) // which has none of the interfaces
			if reset && !errors.Is(r.Reset(t.Context(), nil), store.ErrInvalid) ||
				list && !errors.Is(l.List(t.Context(), "", "", nil), store.ErrInvalid) ||
				read && !errors.Is(j.Read(t.Context(), store.EventQuery{}, nil), store.ErrInvalid) {
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
		mem := memstore.New(nil)
		inner := &faulty{Store: mem}
		g := guarded(t, struct {
			*faulty
			store.Resetter
			store.Lister
		}{inner, mem, mem}, full(1))
		plan := policy(t, 0, rolling(10, time.Hour))
		key := cost(plan, "k").Key
		s := g.Full()
		if err := g.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		inner.set(refuses)
		for range 4 {
			take(t, g, plan, "k", 1)
		}
		asked := inner.count()
		for what, err := range map[string]error{
			"reset": s.(store.Resetter).Reset(t.Context(), []store.Key{key}), "ping": g.Ping(t.Context()),
			"list": s.(store.Lister).List(t.Context(), "", "p", func(store.Key) bool { return true }),
		} {
			if se, ok := errors.AsType[*store.Error](err); !ok || se.Op != what {
				t.Errorf("%s: %v", what, err)
			}
		}
		if inner.count() != asked {
			t.Error("the store was asked")
		}
		inner.set(well)
		for g.State().Unavailable {
			time.Sleep(time.Millisecond)
		}
		if err := s.(store.Resetter).Reset(t.Context(), []store.Key{key}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := used(t, g, plan, "k")[0]; got != 0 || g.State().Pending != 0 {
			t.Errorf("%d used after a reset, %+v", got, g.State())
		}
	})
}
