package sqlitestore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// wantUnavailable checks that an error is a StoreError that says what to do.
func wantUnavailable(t *testing.T, err error, says string) {
	t.Helper()
	if _, ok := errors.AsType[*store.Error](err); !ok || !errors.Is(err, store.ErrStoreUnavailable) ||
		!strings.Contains(err.Error(), says) {
		t.Errorf("got error %v, want a StoreError that says %q", err, says)
	}
}

// filled makes a database of which a few hundred buckets are used, closes it, and returns its path.
func filled(t *testing.T) string {
	t.Helper()
	path := dbPath(t)
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan := compile(t, rolling(10, time.Hour))
	batch := make([]store.Take, 300)
	for i := range batch {
		batch[i].Buckets = buckets(plan, fmt.Sprint("user-", i), 1)
	}
	if err := s.Take(t.Context(), batch, make([]store.Verdict, len(batch))); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOpenRefuses opens files that must not be used: a clear error, and the file is left as it was,
// never started afresh.
//
// req: D2 D6
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(t *testing.T, path string) string // returns the path to open
		want   error
		says   string
	}{
		{
			"empty", func(t *testing.T, path string) string { return write(t, path, nil) }, sqlitestore.ErrDamaged,
			"is empty",
		},
		{"garbage", func(t *testing.T, path string) string {
			return write(t, path,
				bytes.Repeat([]byte("garbage!"), 4096))
		}, sqlitestore.ErrDamaged, "restore"},
		{"random", func(t *testing.T, path string) string {
			b := make([]byte, 9000)
			_, _ = rand.Read(b)
			return write(t, path, b)
		}, sqlitestore.ErrDamaged, "restore"},
		{
			"truncated", func(t *testing.T, path string) string { return write(t, path, content(t, path)[:12<<10]) },
			sqlitestore.ErrDamaged, "restore",
		},
		{"cut within a page", func(t *testing.T, path string) string {
			return write(t, path,
				content(t, path)[:20_000])
		}, sqlitestore.ErrDamaged, "restore"},
		{
			"flipped header", func(t *testing.T, path string) string { return flip(t, path, 3) },
			sqlitestore.ErrDamaged,
			"restore",
		},
		{"flipped page", func(t *testing.T, path string) string {
			return flip(t, path, 4096, 4097, 4098, 4099, 4100, 8192, 8193, 8194, 8195)
		}, sqlitestore.ErrDamaged, "restore"},
		{
			"newer", func(t *testing.T, path string) string { return execSQL(t, path, "PRAGMA user_version = 99") },
			sqlitestore.ErrForeign, "use a newer version",
		},
		{"other program", func(t *testing.T, path string) string {
			return execSQL(t, path,
				"PRAGMA application_id = 7")
		}, sqlitestore.ErrForeign, "another program"},
		{"log without file", func(t *testing.T, path string) string {
			write(t, path+"-wal", []byte("a log"))
			remove(t, path)
			remove(t, path+".mark")
			return path
		}, sqlitestore.ErrDamaged, "-wal"},
		{
			"deleted", func(t *testing.T, path string) string { remove(t, path); return path }, sqlitestore.ErrDamaged,
			"drawgate reset --all",
		},
		{"deleted but for its log", func(t *testing.T, path string) string {
			remove(t, path)
			write(t, path+"-wal", []byte("a log"))
			return path
		}, sqlitestore.ErrDamaged, "drawgate repair --hold"},
		{
			"replaced", func(t *testing.T, path string) string { return write(t, path, content(t, filled(t))) },
			sqlitestore.ErrDamaged, "drawgate repair --hold",
		},
		{"replaced by one without an identity", func(t *testing.T, path string) string {
			return execSQL(t, path, "DELETE FROM meta WHERE name = 'identity'")
		}, sqlitestore.ErrDamaged, "drawgate reset --all"},
		{"a mark that cannot be read", func(t *testing.T, path string) string {
			write(t, path+".mark",
				nil)
			return path
		}, sqlitestore.ErrDamaged, ".mark"},
		{"no directory", func(_ *testing.T, path string) string {
			return filepath.Join(filepath.Dir(path), "none",
				"state.db")
		}, os.ErrNotExist, "directory"},
		{
			"directory", func(_ *testing.T, path string) string { return filepath.Dir(path) },
			store.ErrStoreUnavailable,
			"regular file",
		},
		{"dangling link", func(t *testing.T, path string) string {
			if err := os.Symlink(path+"-none", path+"-link"); err != nil {
				t.Fatal(err)
			}
			return path + "-link"
		}, store.ErrStoreUnavailable, "symbolic link"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := c.change(t, filled(t))
			before, _ := os.ReadFile(path)
			s, err := sqlitestore.Open(path, nil)
			if err == nil {
				s.Close()
			}
			wantUnavailable(t, err, c.says)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
		})
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, path string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func flip(t *testing.T, path string, at ...int) string {
	t.Helper()
	b := content(t, path)
	for _, i := range at {
		b[i] ^= 0x55
	}
	return write(t, path, b)
}

func execSQL(t *testing.T, path, sql string) string {
	t.Helper()
	if err := sqlitestore.Exec(path, sql); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSpecialPath(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b%20?mode=memory#x.db")
	plan := compile(t, rolling(5, time.Hour))
	for range 2 {
		s := openAt(t, path, nil, newClock())
		if _, err := take(t.Context(), s, plan, "k", 1); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestDamagedBucket damages what one bucket has used: it fails alone, is not started afresh, and
// its key is not told. A reset repairs it.
//
// req: D2
func TestDamagedBucket(t *testing.T) {
	t.Parallel()
	plan := compile(t, rolling(10, time.Hour))
	for name, sql := range map[string]string{
		"record":      `UPDATE state SET record = substr(record, 1, 20) || x'00' || substr(record, 22) WHERE key = 7`,
		"state":       `DELETE FROM state WHERE key = 7`,
		"entry":       `DELETE FROM entry WHERE key = 7`,
		"entry's n":   `UPDATE entry SET n = 0 WHERE key = 7`,
		"newer":       `UPDATE state SET record = x'63' || substr(record, 2) WHERE key = 7`,
		"wrong limit": `UPDATE entry SET lim = 1 WHERE key = 7`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := execSQL(t, filled(t), sql)
			s, err := sqlitestore.Open(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for range 2 {
				_, err = take(t.Context(), s, plan, "user-6", 1)
				wantUnavailable(t, err, "bucket")
				if err == nil || strings.Contains(err.Error(), "user-6") {
					t.Errorf("the error tells the key: %v", err)
				}
			}
			if d, err := take(t.Context(), s, plan, "user-7", 1); err != nil || !d.Allowed {
				t.Errorf("another bucket: %v, %v", d.Allowed, err)
			}
			if err := s.Reset(t.Context(), []store.Key{buckets(plan, "user-6")[0].Key}); err != nil {
				t.Fatal(err)
			}
			if n := takes(t, s, plan, "user-6"); n != 10 {
				t.Errorf("%d granted after the reset, want 10", n)
			}
		})
	}
}

// TestGoneUnderneath deletes, replaces or damages a file in use: the store stays away, even if
// something is put in its place.
//
// req: D2
func TestGoneUnderneath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(t *testing.T, path string)
		says   string
	}{
		{"deleted", func(t *testing.T, path string) { remove(t, path) }, "deleted"},
		{"replaced", func(t *testing.T, path string) {
			if err := os.Rename(filled(t), path); err != nil {
				t.Fatal(err)
			}
		}, "replaced"},
		{"recreated empty", func(t *testing.T, path string) {
			remove(t, path)
			write(t, path, nil)
		}, "while it was in use"},
		{"log deleted", func(t *testing.T, path string) { remove(t, path+"-wal") }, "-wal was deleted"},
		{"log of another", func(t *testing.T, path string) {
			remove(t, path+"-wal")
			write(t, path+"-wal", []byte("not ours"))
		}, "-wal was"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filled(t)
			s, err := sqlitestore.Open(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			plan := compile(t, rolling(10, time.Hour))
			if err := s.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.change(t, path)
			sqlitestore.CheckLogs(s)
			for range 2 {
				_, err = take(t.Context(), s, plan, "k", 1)
				wantUnavailable(t, err, c.says)
				if !errors.Is(err, sqlitestore.ErrDamaged) {
					t.Errorf("got %v, want ErrDamaged", err)
				}
			}
			wantUnavailable(t, s.Ping(t.Context()), c.says)
			wantUnavailable(t, s.Read(t.Context(), store.EventQuery{}, nil), c.says)
		})
	}
}

// TestDeletedLog: what a running store has in a log that was deleted is not lost when it is closed,
// and the advice names the database, not the log: a repair would make a database of that name.
//
// req: D2, D10
func TestDeletedLog(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"-wal", "-shm"} {
		path, plan, c := unswept(t), compile(t, rolling(10, time.Hour)), newClock()
		s := openAt(t, path, nil, c)
		for range 4 {
			if d, err := take(t.Context(), s, plan, "k", 1); err != nil || !d.Allowed {
				t.Fatal(d.Allowed, err)
			}
		}
		remove(t, path+part)
		sqlitestore.CheckLogs(s)
		err := s.Ping(t.Context())
		wantUnavailable(t, err, "drawgate repair --store sqlite://"+path+")")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if n := used(t, openAt(t, path, nil, c), plan, "k"); n != 4 {
			t.Errorf("%s: %d used afterwards, want 4", part, n)
		}
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedUnderneath overwrites a file in use.
//
// req: D2
func TestDamagedUnderneath(t *testing.T) {
	t.Parallel()
	path := filled(t)
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := child(t.Context(), "scribble", path).Run(); err != nil {
		t.Fatal(err)
	}
	plan := compile(t, rolling(10, time.Hour))
	// the pages that takes need may be in memory still
	wantUnavailable(t, s.Read(t.Context(), store.EventQuery{}, nil), "restore")
	for range 2 {
		_, err = take(t.Context(), s, plan, "user-3", 1)
		wantUnavailable(t, err, "restore")
		if !errors.Is(err, sqlitestore.ErrDamaged) {
			t.Errorf("got %v, want ErrDamaged", err)
		}
	}
}

// TestLocked has another connection hold the lock: callers get an error in time, nothing is taken,
// and the store comes back by itself.
//
// req: D10
func TestLocked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // time stands still while the disk is busy with what the other store does
		path := filled(t)
		s, err := sqlitestore.Open(path, &sqlitestore.Options{BusyTimeout: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		unlock, err := sqlitestore.Lock(path)
		if err != nil {
			t.Fatal(err)
		}
		plan := compile(t, rolling(10, time.Hour))
		_, err = take(t.Context(), s, plan, "k", 1)
		wantUnavailable(t, err, "another process")
		wantUnavailable(t, s.Ping(t.Context()), "another process")
		if n := used(t, s, plan, "k"); n != 0 { // peeking needs no lock
			t.Errorf("%d used, want 0", n)
		}
		waiting, err := sqlitestore.Open(path, &sqlitestore.Options{BusyTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer waiting.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err = take(ctx, waiting, plan, "k", 1)
		wantUnavailable(t, err, "nothing was done")
		wantUnavailable(t, err, "another process holds a lock")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 20*time.Second {
			t.Errorf("got %v after %v, want the deadline", err, time.Since(start))
		}
		if err := unlock(); err != nil {
			t.Fatal(err)
		}
		if n := takes(t, s, plan, "k"); n != 10 {
			t.Errorf("%d granted, want 10", n)
		}
	})
}

// TestOpenLaterLocked opens a database that another program has for itself, as a restart does.
//
// req: D10
func TestOpenLaterLocked(t *testing.T) {
	t.Parallel()
	path := filled(t)
	unlock, err := sqlitestore.LockWhole(path)
	if err != nil {
		t.Fatal(err)
	}
	opts := &sqlitestore.Options{BusyTimeout: time.Millisecond}
	_, err = sqlitestore.Open(path, opts)
	wantUnavailable(t, err, "another process holds a lock")
	opts.OpenLater = true
	s, err := sqlitestore.Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.Ping(t.Context())
	wantUnavailable(t, err, "another process holds a lock")
	if n := strings.Count(err.Error(), "another process"); n != 1 {
		t.Errorf("%v: the reason is there %d times", err, n)
	}
	if !s.SoleOwner() {
		t.Error("it is not the sole owner")
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err != nil || !s.SoleOwner() {
		t.Errorf("afterwards: %v, sole owner: %v", err, s.SoleOwner())
	}
}

// TestOpenLaterDamaged: a database that is deleted before it could be opened is damaged, and stays
// so. One that is damaged from the start answers every call with that.
//
// req: D2, D10
func TestOpenLaterDamaged(t *testing.T) {
	t.Parallel()
	path := filled(t)
	unlock, err := sqlitestore.LockWhole(path)
	if err != nil {
		t.Fatal(err)
	}
	opts := &sqlitestore.Options{BusyTimeout: time.Millisecond, OpenLater: true}
	s, err := sqlitestore.Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := errors.Join(os.Remove(path), unlock()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Ping(t.Context()); !errors.Is(err, sqlitestore.ErrDamaged) {
			t.Errorf("got %v, want ErrDamaged", err)
		}
	}
	again, err := sqlitestore.Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.Ping(t.Context()); !errors.Is(err, sqlitestore.ErrDamaged) {
		t.Errorf("got %v, want ErrDamaged", err)
	}
	opts.OpenLater = false
	if s, err := sqlitestore.Open(path, opts); !errors.Is(err, sqlitestore.ErrDamaged) {
		t.Errorf("without OpenLater: got %v, %v, want ErrDamaged", s, err)
	}
}

// TestLockedForEachCaller: each waits for as long as it may by itself. Who comes while another one
// waits does not fail with it.
//
// req: D10
func TestLockedForEachCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filled(t)
		const patience = 3 * time.Second
		s, err := sqlitestore.Open(path, &sqlitestore.Options{BusyTimeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		unlock, err := sqlitestore.Lock(path)
		if err != nil {
			t.Fatal(err)
		}
		plan := compile(t, rolling(10, time.Hour))
		ask := func() chan error {
			done := make(chan error, 1)
			go func() {
				_, err := take(t.Context(), s, plan, "k", 1)
				done <- err
			}()
			return done
		}
		start := time.Now()
		first := ask()
		time.Sleep(patience / 2) // less than the first one waits
		second := ask()
		wantUnavailable(t, <-first, "another process")
		if took := time.Since(start); took < patience*9/10 {
			t.Errorf("the first one failed after %v, want %v", took, patience)
		}
		select {
		case err := <-second:
			t.Errorf("the second one ended with the first: %v", err)
		default:
		}
		if err := unlock(); err != nil {
			t.Fatal(err)
		}
		if err := <-second; err != nil {
			t.Errorf("the second one, within its own time: %v", err)
		}
		if n := takes(t, s, plan, "k"); n != 9 {
			t.Errorf("%d granted, want 9", n)
		}
	})
}

// TestLockedForAWhile waits for the lock: no error.
func TestLockedForAWhile(t *testing.T) {
	t.Parallel()
	path := filled(t)
	s, err := sqlitestore.Open(path, &sqlitestore.Options{BusyTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	unlock, err := sqlitestore.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(30*time.Millisecond, func() {
		if err := unlock(); err != nil {
			t.Error(err)
		}
	})
	if d, err := take(t.Context(), s, compile(t, rolling(10, time.Hour)), "k", 1); err != nil || !d.Allowed {
		t.Errorf("%v, %v", d.Allowed, err)
	}
}

// TestFullDisk fills a database whose size is bounded: takes fail and say why, and nothing is half
// done. TestDiskComesBack fills a disk, and makes room.
//
// req: D2 D10
func TestFullDisk(t *testing.T) {
	t.Parallel()
	s, err := sqlitestore.Open(dbPath(t), sqlitestore.With(0, "max_page_count = 40"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plan := compile(t, rolling(1_000_000, time.Hour))
	granted := int64(0)
	for err = nil; err == nil; granted++ {
		pad := strings.Repeat("x", 2000)
		out := make([]store.Verdict, 1)
		tk := store.Take{Buckets: buckets(plan, "k", 1), Labels: []store.Label{{Name: "pad", Value: pad}}}
		err = s.Take(t.Context(), []store.Take{tk}, out)
	}
	granted--
	wantUnavailable(t, err, "disk is full")
	if n := used(t, s, plan, "k"); n != granted {
		t.Errorf("%d used, %d granted", n, granted)
	}
}

// TestReadOnly cannot write: takes fail and say why, status can still be read.
//
// req: D10
func TestReadOnly(t *testing.T) {
	t.Parallel()
	path := filled(t)
	s, err := sqlitestore.Open(path, sqlitestore.With(0, "query_only = ON"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plan := compile(t, rolling(10, time.Hour))
	_, err = take(t.Context(), s, plan, "user-1", 1)
	wantUnavailable(t, err, "cannot be written")
	if n := used(t, s, plan, "user-1"); n != 1 {
		t.Errorf("%d used, want 1", n)
	}
}

// TestDeadlines gives callers very little time: whoever is told that nothing was done has not spent
// anything, whoever is granted has.
//
// req: A8 D2
func TestDeadlines(t *testing.T) {
	t.Parallel()
	s, err := sqlitestore.Open(dbPath(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plan := compile(t, rolling(1_000_000, time.Hour))
	var granted, nothing, unanswered atomic.Int64
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 60 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration((g*60+i)%50)*40*time.Microsecond)
				d, err := take(ctx, s, plan, "k", 1)
				cancel()
				switch {
				case err == nil && d.Allowed:
					granted.Add(1)
				case err != nil && strings.Contains(err.Error(), "nothing was done"):
					nothing.Add(1)
				case errors.Is(err, context.DeadlineExceeded) && errors.Is(err, store.ErrStoreUnavailable):
					unanswered.Add(1)
				default:
					t.Errorf("%v, %v", d.Allowed, err)
				}
			}
		})
	}
	wg.Wait()
	n := used(t, s, plan, "k")
	if n < granted.Load() || n > granted.Load()+unanswered.Load() {
		t.Errorf("%d used; %d granted, %d unknown, %d withdrawn", n, granted.Load(), unanswered.Load(), nothing.Load())
	}
	t.Logf("%d granted, %d unknown, %d withdrawn, %d used", granted.Load(), unanswered.Load(), nothing.Load(), n)
}
