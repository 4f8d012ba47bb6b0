package sqlitestore_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// wantFiles checks which files are there, by what follows the database's name in theirs, the
// instant of a repair left out.
func wantFiles(t *testing.T, path string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, e := range entries {
		name, _ := strings.CutPrefix(e.Name(), filepath.Base(path))
		if strings.HasSuffix(name, ".owner") || strings.HasSuffix(name, ".users") { // locks, which stay
			continue
		}
		if rest, ok := strings.CutPrefix(name, ".damaged-"); ok {
			_, end, _ := strings.Cut(rest, "-")
			if name = ".damaged"; end != "" {
				name += "-" + end
			}
		}
		got = append(got, name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
}

// wantHeld checks that a file grants nothing for now, and everything after a window.
func wantHeld(t *testing.T, path string, c *clock, plan *store.Plan, name string) {
	t.Helper()
	s, err := sqlitestore.OpenAt(path, nil, c.now)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := takes(t, s, plan, name) + takes(t, s, plan, "never seen"); n != 0 {
		t.Errorf("%d granted after the repair", n)
	}
	c.advance(time.Hour + time.Second)
	if n := takes(t, s, plan, name); n != 10 {
		t.Errorf("%d granted a window after the repair, want 10", n)
	}
}

// TestRepairOfAnyHeader: whatever a damaged file begins with, and wherever it ends, a repair
// succeeds, mints nothing, makes no file of a size that the damage says, and leaves nothing behind
// but the damaged file.
//
// req: D2, D10
func TestRepairOfAnyHeader(t *testing.T) {
	t.Parallel()
	garbage := func(b []byte) []byte { copy(b, strings.Repeat("garbage!", 20)); return b }
	pages := func(n uint32, page uint16) func(b []byte) []byte {
		return func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[28:], n)
			binary.BigEndian.PutUint16(b[16:], page)
			return b
		}
	}
	cut := func(n int) func(b []byte) []byte { return func(b []byte) []byte { return b[:n] } }
	for name, harm := range map[string]func(b []byte) []byte{
		"garbage":         garbage,
		"many pages":      pages(1<<31-1, 4096),
		"more pages":      pages(1<<32-1, 4096),
		"large pages":     pages(1<<30, 1),
		"no page size":    pages(64, 0),
		"odd page size":   pages(1<<31, 513),
		"wrong page size": pages(200, 512),
		"empty":           cut(0),
		"one byte":        cut(1),
		"no header":       cut(20),
		"no page":         cut(511),
		"one page":        cut(4096),
		"half a page":     cut(20_000),
		"one page less":   func(b []byte) []byte { return b[:len(b)-4096] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, plan := newClock(), compile(t, rolling(10, time.Hour))
			path := many(t, plan, 200, c)
			harmed := harm(content(t, path))
			write(t, path, harmed)
			r := repair(t, path, nil, c)
			if r.Whole || len(r.Aside) == 0 || !bytes.Equal(content(t, r.Aside[0]), harmed) {
				t.Errorf("%+v: the damaged file is not kept", r)
			}
			if info, err := os.Stat(path); err != nil || info.Size() > 1<<20 {
				t.Errorf("%v, %v", info, err)
			}
			for _, f := range r.Aside { // reading may have made an index
				if strings.HasSuffix(f, "-shm") || strings.HasSuffix(f, "-wal") && len(content(t, f)) == 0 {
					remove(t, f)
				}
			}
			wantFiles(t, path, "", ".damaged", ".mark")
			wantHeld(t, path, c, plan, "user-3")
		})
	}
}

// unlike makes a database with a log that belongs to another one: it is damaged with the log, and
// would pass for whole without it.
func unlike(t *testing.T, plan *store.Plan) (path string) {
	t.Helper()
	other := filled(t)
	s, err := sqlitestore.Open(other, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := take(t.Context(), s, plan, "user-7", 1); err != nil {
		t.Fatal(err)
	}
	log := content(t, other+"-wal")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path = many(t, plan, 600, newClock())
	write(t, path+"-wal", log)
	return path
}

// TestRepairKilled kills a repair after each change that it makes to the directory. A file without
// its log is then neither opened nor made afresh, and the next repair finds the damaged files,
// names them, and mints nothing.
//
// req: D2, D10, D11
func TestRepairKilled(t *testing.T) {
	t.Parallel()
	plan := compile(t, rolling(10, time.Hour))
	template := unlike(t, plan)
	database, log := content(t, template), content(t, template+"-wal")
	const steps = 6 // built, noted, the database's second name, the log's name, the index's name, put in its place
	for step := 1; step <= steps+1; step++ {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			t.Parallel()
			path := dbPath(t)
			write(t, path, database)
			write(t, path+"-wal", log)
			err := child(t.Context(), "repair", path, fmt.Sprint(step)).Run()
			if killed := err != nil && strings.Contains(err.Error(), "killed"); killed != (step <= steps) {
				t.Fatalf("step %d: %v", step, err)
			}
			if step <= steps {
				for range 2 {
					if s, err := sqlitestore.Open(path, nil); !errors.Is(err, sqlitestore.ErrDamaged) {
						t.Errorf("opening it: %v, want ErrDamaged", err)
						if err == nil {
							s.Close()
						}
					}
				}
			}
			c := newClock()
			c.us.Store(time.Now().UnixMicro())
			r := repair(t, path, nil, c)
			if r.Whole != (step >= steps) {
				t.Errorf("%+v", r)
			}
			if step <= steps && (len(r.Aside) < 2 || !bytes.Equal(content(t, r.Aside[0]), database) ||
				!bytes.Equal(content(t, r.Aside[1]), log)) {
				t.Errorf("%q are not the damaged files", r.Aside)
			}
			for _, end := range []string{"-wal", "-shm"} { // looking at the file has made them
				_ = os.Remove(path + end)
			}
			wantFiles(t, path, "", ".damaged", ".damaged-shm", ".damaged-wal")
			if r := repair(t, path, nil, c); !r.Whole || len(r.Aside) != 0 {
				t.Errorf("once more: %+v", r)
			}
			wantHeld(t, path, c, plan, "user-7")
		})
	}
}

// TestRepairWhereItWasInterruptedAndRestored: whoever finds no file and puts a backup there has it,
// and nothing of the damaged one is put beside it.
func TestRepairWhereItWasInterruptedAndRestored(t *testing.T) {
	t.Parallel()
	plan := compile(t, rolling(10, time.Hour))
	path := unlike(t, plan)
	backup := content(t, path) // of this database: another one would be held
	if err := child(t.Context(), "repair", path, "4").Run(); err == nil {
		t.Fatal("it was not killed")
	}
	remove(t, path)
	write(t, path, backup)
	c := newClock()
	if r := repair(t, path, nil, c); !r.Whole || len(r.Aside) != 2 {
		t.Errorf("%+v", r)
	}
	if !bytes.Equal(content(t, path), backup) {
		t.Error("the backup was changed")
	}
}

// TestRepairThatCannotContinue: whatever fails while files are renamed, they get their names back,
// and a file that somebody has put there is left alone.
//
// req: D2, D10
func TestRepairThatCannotContinue(t *testing.T) {
	t.Parallel()
	template := unlike(t, compile(t, rolling(10, time.Hour)))
	database, log := content(t, template), content(t, template+"-wal")
	for step := 3; step <= 5; step++ { // two names are given, or three, or four
		for _, c := range []struct {
			name string
			harm func(t *testing.T, path string)
			same bool
		}{
			{"the new file is gone", func(t *testing.T, path string) { remove(t, path+".new-repaired") }, true},
			{
				"another file", func(t *testing.T, path string) { remove(t, path); write(t, path, []byte("another")) },
				false,
			},
		} {
			t.Run(fmt.Sprint(c.name, " ", step), func(t *testing.T) {
				t.Parallel()
				path := dbPath(t)
				write(t, path, database)
				write(t, path+"-wal", log)
				left := step
				opts := sqlitestore.Stepwise(func() {
					if left--; left == 0 {
						c.harm(t, path)
					}
				})
				_, err := sqlitestore.Repair(path, opts)
				wantUnavailable(t, err, "new-repaired")
				_ = os.Remove(path + "-shm")
				if c.same {
					wantFiles(t, path, "", "-wal")
					if !bytes.Equal(content(t, path), database) || !bytes.Equal(content(t, path+"-wal"), log) {
						t.Error("the damaged files were changed")
					}
				} else if string(content(t, path)) != "another" || exists(path+".repairing") || exists(path+"-wal") {
					t.Error("the other file is not left alone, or was given a log")
				}
				if s, err := sqlitestore.Open(path, nil); !errors.Is(err, sqlitestore.ErrDamaged) {
					t.Errorf("opening it: %v, want ErrDamaged", err)
					if err == nil {
						s.Close()
					}
				}
			})
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestRepairMissing: what is not there is not made, unless something of it is left.
func TestRepairMissing(t *testing.T) {
	t.Parallel()
	c, plan := newClock(), compile(t, rolling(10, time.Hour))
	path := dbPath(t)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for name, says := range map[string]string{path: "there is no file", link: "symbolic link"} {
		_, err := sqlitestore.RepairAt(name, nil, c.now())
		wantUnavailable(t, err, says)
		wantFiles(t, path)
	}
	write(t, path+"-wal", []byte("its log"))
	if r := repair(t, path, nil, c); len(r.Aside) != 1 || string(content(t, r.Aside[0])) != "its log" {
		t.Errorf("%+v", r)
	}
	wantFiles(t, path, "", ".damaged-wal")
	wantHeld(t, path, c, plan, "k")

	damaged := write(t, path, []byte("not a database"))
	if r := repair(t, link, nil, c); len(r.Aside) == 0 || filepath.Dir(r.Aside[0]) != filepath.Dir(damaged) {
		t.Errorf("by a symbolic link: %+v", r)
	}
	if to, err := os.Readlink(link); err != nil || to != path {
		t.Errorf("the link leads to %s, %v", to, err)
	}
	wantHeld(t, link, c, plan, "k")
}

// TestResetAfterRepair: what a repair holds for a bucket is lifted by a reset, for good, for
// whoever has the file open, whether the bucket has a record or not; of that bucket alone, and
// until the next repair.
//
// req: D2, D10
func TestResetAfterRepair(t *testing.T) {
	t.Parallel()
	for _, opts := range []*sqlitestore.RepairOptions{
		{Hold: true, Force: true},
		{Hold: true, Trust: true, Force: true},
	} {
		t.Run(fmt.Sprintf("trust=%v", opts.Trust), func(t *testing.T) {
			t.Parallel()
			c := newClock()
			plan := compile(t, rolling(10, time.Hour), drawgate.Limit{
				Name: "m", Unit: "tokens",
				Kind: drawgate.Calendar, Every: drawgate.Month, Amount: 12,
			})
			path := filled(t)
			for round := range 2 {
				repair(t, path, opts, c)
				s, other := openAt(t, path, nil, c), openAt(t, path, nil, c)
				used, unused, held := fmt.Sprint("used ", round), fmt.Sprint("unused ", round),
					fmt.Sprint("held ", round)
				for _, name := range []string{used, unused, held} {
					if n := takes(t, s, plan, name) + takes(t, other, plan, name); n != 0 {
						t.Errorf("%s: %d granted", name, n)
					}
				}
				if err := s.Reset(t.Context(), []store.Key{
					buckets(plan, used)[0].Key,
					buckets(plan, unused)[0].Key,
				}); err != nil {
					t.Fatal(err)
				}
				if a, b := takes(t, other, plan, used), takes(t, s, plan, used); a != 10 || b != 0 {
					t.Errorf("granted %d and %d after the reset, want 10 and 0", a, b)
				}
				c.advance(50 * time.Hour)
				// as cleaning does: nothing of them is used any more
				execSQL(t, path, "DELETE FROM key; DELETE FROM state; DELETE FROM entry")
				for name, want := range map[string]bool{used: true, unused: true, held: false} {
					if d, err := take(t.Context(), other, plan, name, 1, 12); err != nil || d.Allowed != want {
						t.Errorf("%s: granted %v of the month, %v", name, d.Allowed, err)
					}
				}
			}
		})
	}
}
