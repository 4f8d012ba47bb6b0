package sqlitestore_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// flood takes once from so many buckets.
func flood(t *testing.T, s *sqlitestore.Store, plan *store.Plan, prefix string, n int) {
	t.Helper()
	batch := make([]store.Take, n)
	for i := range batch {
		batch[i].Buckets = buckets(plan, fmt.Sprint(prefix, i, strings.Repeat("k", 200)), 1)
	}
	if err := s.Take(t.Context(), batch, make([]store.Verdict, n)); err != nil {
		t.Fatal(err)
	}
}

// pragmaNumber returns what a pragma says of a file.
func pragmaNumber(t *testing.T, path, pragma string) int64 {
	t.Helper()
	text, err := sqlitestore.Pragma(path, pragma)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFloodLeavesNothing: some minutes after many buckets were used for a moment, none of them is
// in the file, and the file is short again, while it is open. Those of a longer window, and the
// history, are still there.
//
// req: A7, D2, D6
func TestFloodLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := dir + "/state.db"
		s, err := sqlitestore.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		const n = 5000
		short, long := compile(t, rolling(5, 2*time.Second)), compile(t, rolling(5, time.Hour))
		flood(t, s, short, "short", n)
		if _, err := take(t.Context(), s, long, "long", 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := sqlitestore.Count(t, path, "state"); got != n+1 {
			t.Fatalf("%d buckets, want %d", got, n+1)
		}
		before := pragmaNumber(t, path, "page_count")
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		for table, want := range map[string]int{"state": 1, "key": 1, "entry": 1, "open": 0, "history": n + 1} {
			if got := sqlitestore.Count(t, path, table); got != want {
				t.Errorf("%d rows in %s, want %d", got, table, want)
			}
		}
		pages, free := pragmaNumber(t, path, "page_count"), pragmaNumber(t, path, "freelist_count")
		if pages > before/2 || free > 64+pages/8 {
			t.Errorf("%d pages, %d of them free, after %d pages", pages, free, before)
		}
		if info, err := os.Stat(path); err != nil || info.Size() != pages*4096 {
			t.Errorf("%d pages, and the file has %d bytes, %v", pages, info.Size(), err)
		}
		if u := used(t, s, long, "long"); u != 1 {
			t.Errorf("%d used, want 1", u)
		}
	})
}

// TestOldFileStaysAsItIs: a file that was made without giving pages back is cleaned, and keeps its
// pages.
func TestOldFileStaysAsItIs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := dir + "/state.db"
		closed(t, path, nil)
		execSQL(t, path, "PRAGMA auto_vacuum = NONE; VACUUM")
		s, err := sqlitestore.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		flood(t, s, compile(t, rolling(5, 2*time.Second)), "", 2000)
		synctest.Wait()
		before := pragmaNumber(t, path, "page_count")
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if n, pages := sqlitestore.Count(t, path, "state"), pragmaNumber(t, path, "page_count"); n != 0 ||
			pages < before {
			t.Errorf("%d buckets on %d pages, after %d", n, pages, before)
		}
	})
}

// TestCleaningWhileBusy: a store that always has something to do cleans all the same.
func TestCleaningWhileBusy(t *testing.T) {
	t.Parallel()
	c := newClock()
	path := dbPath(t)
	s := openAt(t, path, sqlitestore.With(0, "synchronous = OFF"), c)
	flood(t, s, compile(t, rolling(5, 2*time.Second)), "", 2000)
	c.advance(10 * time.Minute)
	plan := compile(t, bucketLimit(1_000_000_000, time.Second))
	var wg sync.WaitGroup
	var stop atomic.Bool
	for i := range 32 {
		wg.Go(func() {
			for !stop.Load() {
				c.advance(time.Millisecond)
				if _, err := take(t.Context(), s, plan, fmt.Sprint("busy", i), 1); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for end := time.Now().Add(2 * time.Minute); sqlitestore.Count(t, path, "state") > 32 &&
		time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		// the end is there for a store that never cleans
	}
	stop.Store(true)
	wg.Wait()
	if n := sqlitestore.Count(t, path, "state"); n > 32 {
		t.Errorf("%d buckets are left", n)
	}
}
