package lease_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/lease"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/sqlitestore"
	"github.com/drawgate/drawgate/store/storetest"
)

// leasing returns a store in front of s, which closes both.
func leasing(t testing.TB, s store.Store) *lease.Store {
	t.Helper()
	l := lease.New(s, nil)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// TestMemory runs the suite for all stores: for policies that are not leased nothing changes.
func TestMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New:     func(t *testing.T) store.Store { return leasing(t, memstore.New(nil)).Full() },
		Advance: func(_ store.Store, d time.Duration) { time.Sleep(d) },
		Wrap:    synctest.Test,
	})
}

// TestGuarded runs it as programs use it: in front of a guard.
func TestGuarded(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(t *testing.T) store.Store {
			return leasing(t, guard.New(memstore.New(nil), &guard.Options{Instances: 3}).Full()).Full()
		},
		Advance: func(_ store.Store, d time.Duration) { time.Sleep(d) },
		Wrap:    synctest.Test,
	})
}

// TestSQLite runs it over a store with a history.
func TestSQLite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(t *testing.T) store.Store {
			s, err := sqlitestore.Open(filepath.Join(t.TempDir(), "state.db"), nil)
			if err != nil {
				t.Fatal(err)
			}
			return leasing(t, s).Full()
		},
	})
}
