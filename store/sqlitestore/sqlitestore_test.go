package sqlitestore_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
	"github.com/drawgate/drawgate/store/storetest"
)

type home struct {
	path  string
	clock *clock
}

// harness returns stores on files of their own.
func harness() storetest.Harness {
	var homes sync.Map // of stores
	on := func(t *testing.T, h home) store.Store {
		t.Helper()
		s := openAt(t, h.path, &sqlitestore.Options{Synchronous: sqlitestore.Normal}, h.clock)
		homes.Store(s, h)
		return s
	}
	return storetest.Harness{
		New: func(t *testing.T) store.Store { return on(t, home{dbPath(t), newClock()}) },
		Advance: func(s store.Store, d time.Duration) {
			h, _ := homes.Load(s)
			h.(home).clock.advance(d)
		},
		Second: func(t *testing.T, s store.Store) store.Store {
			h, _ := homes.Load(s)
			return on(t, h.(home))
		},
	}
}

// req: A8 B1 C1 D1 D2 D5 D11 D12
func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness())
}

// TestScripts compares the store with the engine on the scripts of the suite: once as it is, once
// with a cache that holds nothing, where all that is known is what was written, and once with two
// stores that take turns on a file.
//
// req: A5 E10
func TestScripts(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	n := needs.Rounds(6, 60, 2000)
	type reference struct {
		*model.Records
		clock *clock
	}
	records := storetest.Harness{
		New: func(*testing.T) store.Store {
			c := newClock()
			return &reference{model.NewRecords(c.now, true), c}
		},
		Advance: func(s store.Store, d time.Duration) { s.(*reference).clock.advance(d) },
	}
	unused := uncleaned(t)
	for name, opts := range map[string]*sqlitestore.Options{
		"cached": sqlitestore.With(0, "synchronous = OFF"), "written": sqlitestore.With(1, "synchronous = OFF"),
		"in turn": sqlitestore.With(0, "synchronous = OFF"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Scripts(t, storetest.Harness{
				New: func(t *testing.T) store.Store {
					c, path := newClock(), dbPath(t)
					if err := os.WriteFile(path, unused, 0o600); err != nil {
						t.Fatal(err)
					}
					s := openAt(t, path, opts, c)
					both := &inTurn{Store: s, other: s, clock: c}
					if name == "in turn" {
						both.other = openAt(t, path, opts, c)
					}
					return both
				},
				Advance: func(s store.Store, d time.Duration) { s.(*inTurn).clock.advance(d) },
			}, records, n)
		})
	}
}

// inTurn is two stores on one file, of which each call uses the other one.
type inTurn struct {
	*sqlitestore.Store
	other *sqlitestore.Store
	clock *clock
}

func (s *inTurn) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	s.Store, s.other = s.other, s.Store
	return s.Store.Take(ctx, batch, out)
}

func (s *inTurn) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	s.Store, s.other = s.other, s.Store
	return s.Store.Settle(ctx, batch, out)
}

// makeUncleaned makes a database that is not cleaned for a century.
func makeUncleaned(path string) error {
	s, err := sqlitestore.OpenAt(path, nil, newClock().now)
	if err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	late := newClock()
	late.advance(100 * 365 * 24 * time.Hour)
	set := "INSERT INTO meta (name, value) VALUES ('cleaned', %d), ('swept', %[1]d) ON CONFLICT DO UPDATE SET value = excluded.value"
	return sqlitestore.Exec(path, fmt.Sprintf(set, late.now()))
}

// uncleaned returns a database that is not cleaned for a century. Of what was cleaned away nobody
// knows the rate any more, and cleaning, in the background, waits for no script.
func uncleaned(t *testing.T) []byte {
	t.Helper()
	path := dbPath(t)
	if err := makeUncleaned(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
