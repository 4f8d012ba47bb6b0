package sqlitestore_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store/sqlitestore"
)

// closed opens a database and closes it again.
func closed(t *testing.T, path string, opts *sqlitestore.Options) {
	t.Helper()
	s, err := sqlitestore.Open(path, withLongTimeout(opts))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// markOf returns the first line of a mark.
func markOf(t *testing.T, path string) string {
	t.Helper()
	line, _, _ := strings.Cut(string(content(t, path+".mark")), "\n")
	return line
}

// TestMarkAfterACrash: whoever makes a database is killed at any point before its mark is there.
// The next one goes on with that database and writes its mark, whether the database is from before
// there were marks or not.
//
// req: D2, D11
func TestMarkAfterACrash(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{"killed": "", "from before": "DELETE FROM meta WHERE name = 'identity'"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filled(t)
			remove(t, path+".mark")
			write(t, path+".mark.new-KILLED", []byte("drawgate-da"))
			if sql != "" {
				execSQL(t, path, sql)
			}
			s := openAt(t, path, nil, newClock())
			first := markOf(t, path)
			if n := len(list(t, s, "p")); n == 0 {
				t.Error("the buckets are gone")
			}
			closed(t, path, nil)
			if again := markOf(t, path); again != first || len(first) != len("drawgate-database 0123456789abcdef") {
				t.Errorf("the mark begins with %q, then with %q", first, again)
			}
		})
	}
}

// TestMarkByMany: of many who find no database one makes it, all use it, and it is the one that the
// mark names.
//
// req: D2, D11
func TestMarkByMany(t *testing.T) {
	t.Parallel()
	path, plan := dbPath(t), compile(t, rolling(10, time.Hour))
	var said syncWriter
	log := slog.New(slog.NewTextHandler(&said, nil))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := sqlitestore.Open(path, withLongTimeout(&sqlitestore.Options{Logger: log}))
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	closed(t, path, nil) // of two that close at the same instant neither may move the log into the file
	wantFiles(t, path, "", ".mark")
	if n := strings.Count(said.String(), "created a new database"); n != 1 || !strings.Contains(said.String(), path) {
		t.Errorf("created %d times: %s", n, said.String())
	}
	if n := takes(t, openAt(t, path, nil, newClock()), plan, "k"); n != 10 {
		t.Errorf("%d granted, want 10", n)
	}
}

type syncWriter struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *syncWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(b)
}

func (w *syncWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// TestMoved: a database that was moved is used at its new place, with its mark or without; where it
// was, none is made as long as the mark is there.
func TestMoved(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]bool{"with its mark": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := filled(t), dbPath(t)
			said := markOf(t, from)
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
			if with {
				if err := os.Rename(from+".mark", to+".mark"); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(list(t, openAt(t, to, nil, newClock()), "p")); n == 0 || markOf(t, to) != said {
				t.Errorf("at its new place: %d buckets, %q", n, markOf(t, to))
			}
			s, err := sqlitestore.Open(from, nil)
			if err == nil {
				_ = s.Close()
			}
			if made := err == nil; made != with {
				t.Errorf("at its old place: %v", err)
			}
		})
	}
}

// TestMarkByALink: the mark lies beside the file to which a symbolic link leads.
func TestMarkByALink(t *testing.T) {
	t.Parallel()
	path := filled(t)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	remove(t, path+".mark")
	closed(t, link, nil)
	wantFiles(t, path, "", ".mark")
	wantFiles(t, link, "")
	write(t, path, content(t, filled(t)))
	if _, err := sqlitestore.Open(link, nil); !errors.Is(err, sqlitestore.ErrDamaged) {
		t.Errorf("another database behind the link: %v", err)
	}
	remove(t, path)
	_, err := sqlitestore.Open(link, nil)
	if !errors.Is(err, sqlitestore.ErrDamaged) || !strings.Contains(err.Error(),
		"repair --hold --store sqlite://"+path) {
		t.Errorf("a deleted database behind the link: %v", err)
	}
}

// TestMarkThatCannotBeWritten: a database whose directory takes no new file works, and it is said
// that nobody would notice if it were deleted.
func TestMarkThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	path, plan := filled(t), compile(t, rolling(10, time.Hour))
	remove(t, path+".mark")
	// there is room for -wal, and for a mark, but not for one that is being made
	long := filepath.Join(filepath.Dir(path), strings.Repeat("n", 225))
	if err := os.Rename(path, long); err != nil {
		t.Fatal(err)
	}
	var said syncWriter
	s, err := sqlitestore.Open(long, &sqlitestore.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if d, err := take(t.Context(), s, plan, "k", 1); err != nil || !d.Allowed {
		t.Errorf("%v, %v", d.Allowed, err)
	}
	if !strings.Contains(said.String(), "nobody will notice") {
		t.Errorf("said: %s", said.String())
	}
}

// TestExisting: who only looks makes nothing, neither file nor directory.
//
// req: D2
func TestExisting(t *testing.T) {
	t.Parallel()
	path, looks := dbPath(t), &sqlitestore.Options{Existing: true}
	for _, p := range []string{path, filepath.Join(filepath.Dir(path), "none", "state.db")} {
		if _, err := sqlitestore.Open(p, looks); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v, want that there is none", err)
		}
	}
	wantFiles(t, path)
	closed(t, path, nil)
	closed(t, path, looks)
	remove(t, path)
	if _, err := sqlitestore.Open(path, looks); !errors.Is(err, sqlitestore.ErrDamaged) ||
		errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that was deleted: %v, want ErrDamaged", err)
	}
}

// TestRepairOfAnother: another database in the place of the one that the mark names is held by a
// repair, and is the right one from then on. What it holds is not trusted: it was perhaps put there
// to start afresh.
//
// req: D2, D10
func TestRepairOfAnother(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(t *testing.T, path string){
		"another": func(t *testing.T, path string) { write(t, path, content(t, filled(t))) },
		"a mark that cannot be read": func(t *testing.T, path string) {
			write(t, path+".mark",
				[]byte("drawgate-database -1\n"))
		},
	} {
		for _, opts := range []*sqlitestore.RepairOptions{nil, {Hold: true}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c, plan := newClock(), compile(t, rolling(10, time.Hour))
				path := filled(t)
				c.us.Store(time.Now().UnixMicro()) // after what it was filled with
				harm(t, path)
				if r := repair(t, path, opts, c); !r.Whole || !r.Other || r.Since.IsZero() || len(r.Aside) != 0 {
					t.Errorf("%+v", r)
				}
				if r := repair(t, path, nil, c); !r.Whole || r.Other || !r.Since.IsZero() {
					t.Errorf("once more: %+v", r)
				}
				wantHeld(t, path, c, plan, "user-7")
			})
		}
	}
}

// TestFresh starts again with nothing used, whatever is there; that is kept, and the mark stays
// right.
//
// req: D2, D10
func TestFresh(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(t *testing.T, path string){
		"deleted":  func(t *testing.T, path string) { remove(t, path) },
		"empty":    func(t *testing.T, path string) { write(t, path, nil) },
		"damaged":  func(t *testing.T, path string) { flip(t, path, 3) },
		"replaced": func(t *testing.T, path string) { write(t, path, content(t, filled(t))) },
		"whole":    func(*testing.T, string) {},
		"never":    func(t *testing.T, path string) { remove(t, path); remove(t, path+".mark") },
		"its log":  func(t *testing.T, path string) { remove(t, path); write(t, path+"-wal", []byte("its log")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, plan, path := newClock(), compile(t, rolling(10, time.Hour)), filled(t)
			harm(t, path)
			before, there := os.ReadFile(path)
			r := repair(t, path, &sqlitestore.RepairOptions{Fresh: true}, c)
			if r.Whole || !r.Since.IsZero() || there == nil && !bytes.Equal(content(t, r.Aside[0]), before) {
				t.Errorf("%+v: what was there is not kept", r)
			}
			for range 2 { // it survives being opened again
				s := openAt(t, path, nil, c)
				if n := takes(t, s, plan, "user-7"); n != 10 {
					t.Errorf("%d granted, want 10", n)
				}
				c.advance(time.Hour)
			}
		})
	}
}
