package guard_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/redisstore"
	"github.com/drawgate/drawgate/store/sqlitestore"
	"github.com/drawgate/drawgate/store/storetest"
)

// guarded returns a store behind a guard, which closes both.
func guarded(t *testing.T, s store.Store, opts *guard.Options) *guard.Store {
	t.Helper()
	g := guard.New(s, opts)
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// TestMemory runs the suite for all stores on a guarded memory store: a guard changes nothing while
// the store works.
func TestMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(t *testing.T) store.Store {
			return guarded(t, memstore.New(nil), &guard.Options{Instances: 3}).Full()
		},
		Advance: func(_ store.Store, d time.Duration) { time.Sleep(d) },
		Wrap:    synctest.Test,
	})
}

// TestSQLite runs it over SQLite.
func TestSQLite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(t *testing.T) store.Store {
			s, err := sqlitestore.Open(filepath.Join(t.TempDir(), "state.db"), nil)
			if err != nil {
				t.Fatal(err)
			}
			return guarded(t, s, &guard.Options{Instances: 1, Timeout: time.Minute}).Full()
		},
	})
}

var prefixes atomic.Int64

// TestRedis runs it over a real Redis.
func TestRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	storetest.Run(t, storetest.Harness{
		New: func(t *testing.T) store.Store {
			s, err := redisstore.Open(server.URL(), &redisstore.Options{Prefix: time.Unix(prefixes.Add(1),
				0).UTC().Format("150405")})
			if err != nil {
				t.Fatal(err)
			}
			return guarded(t, s, &guard.Options{Instances: 2, Timeout: time.Minute}).Full()
		},
	})
}
