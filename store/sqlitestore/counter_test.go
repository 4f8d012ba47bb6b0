package sqlitestore_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store/sqlitestore"
)

// unswept makes a database that a store does not clean at the time of a new clock, so that only
// takes change it.
func unswept(t *testing.T) string {
	t.Helper()
	path := dbPath(t)
	closed(t, path, nil)
	return execSQL(t, path, fmt.Sprintf("INSERT OR REPLACE INTO meta (name, value) VALUES ('swept', %d)",
		newClock().now()))
}

// unclosed returns a database with a log, as a process that was killed leaves it: 10 of 10 are
// used, in one transaction each.
func unclosed(t *testing.T) string {
	t.Helper()
	path := unswept(t)
	s := openAt(t, path, nil, newClock())
	if n := takes(t, s, compile(t, rolling(10, time.Hour)), "k"); n != 10 {
		t.Fatalf("%d granted, want 10", n)
	}
	return copied(t, path, "", "-wal", ".mark")
}

// copied copies files of a database, while it is open or not.
func copied(t *testing.T, path string, ends ...string) string {
	t.Helper()
	to := dbPath(t)
	for _, end := range ends {
		write(t, to+end, content(t, path+end))
	}
	return to
}

// cutFrame cuts the last frame off a log.
func cutFrame(t *testing.T, path string) {
	t.Helper()
	log := content(t, path+"-wal")
	page := int(binary.BigEndian.Uint32(log[8:]))
	write(t, path+"-wal", log[:len(log)-24-page])
}

// losses are ways in which transactions get lost that had been answered.
var losses = map[string]func(t *testing.T, path string){
	"log removed": func(t *testing.T, path string) { remove(t, path+"-wal") },
	"log emptied": func(t *testing.T, path string) { write(t, path+"-wal", nil) },
	"log cut":     cutFrame,
	"older backup": func(t *testing.T, path string) {
		write(t, path, content(t, path+".old"))
		remove(t,
			path+"-wal")
	},
	"backup in use": func(t *testing.T, path string) { remove(t, path+"-wal"); checkpointed(t, path) },
}

// checkpointed has another program open a database and close it again.
func checkpointed(t *testing.T, path string) {
	t.Helper()
	if err := sqlitestore.Exec(path, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
}

// TestLostTransactions: a database that has lost transactions that were answered is refused as
// damaged, whichever way they were lost, and grants nothing again. A repair does not call it
// intact, and counts everything as used up; afterwards the database and its mark agree.
//
// req: D2, D10, D11
func TestLostTransactions(t *testing.T) {
	t.Parallel()
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, c, plan := unclosed(t), newClock(), compile(t, rolling(10, time.Hour))
			write(t, path+".old", content(t, path)) // from the last checkpoint: before the takes
			lose(t, path)
			for range 2 { // opening it changes nothing
				s, err := sqlitestore.Open(path, nil)
				wantUnavailable(t, err, "the last transactions of "+path+" are missing")
				if !errors.Is(err, sqlitestore.ErrDamaged) {
					t.Fatalf("%v, want ErrDamaged", err)
				}
				if err == nil {
					_ = s.Close()
				}
			}
			c.advance(time.Minute)
			r := repair(t, path, nil, c)
			if r.Lost < 1 || !r.Whole || r.Other || r.Since.IsZero() {
				t.Errorf("%+v", r)
			}
			counted(t, path)
			if r := repair(t, path, nil, c); r.Lost != 0 || !r.Since.IsZero() {
				t.Errorf("repaired again: %+v", r)
			}
			wantHeld(t, path, c, plan, "k")
		})
	}
}

// TestLostAndTrusted: who accepts what was lost gets the rest as it is.
//
// req: D10
func TestLostAndTrusted(t *testing.T) {
	t.Parallel()
	path, c := unclosed(t), newClock()
	cutFrame(t, path)
	if r := repair(t, path, &sqlitestore.RepairOptions{Trust: true}, c); r.Lost != 1 {
		t.Errorf("%+v", r)
	}
	if n := takes(t, openAt(t, path, nil, c), compile(t, rolling(10, time.Hour)), "k"); n != 1 {
		t.Errorf("%d granted, want the one that was lost", n)
	}
}

// TestLostInUse: a store whose log is emptied while it has the file open stops, as soon as another
// process has written.
//
// req: D2
func TestLostInUse(t *testing.T) {
	t.Parallel()
	path, plan := unswept(t), compile(t, rolling(10, time.Hour))
	s := openAt(t, path, nil, newClock())
	if n := takes(t, s, plan, "k"); n != 10 {
		t.Fatalf("%d granted", n)
	}
	if err := sqlitestore.Exec(path, "UPDATE meta SET value = value - 1 WHERE name = 'commits'"); err != nil {
		t.Fatal(err)
	}
	if _, err := take(t.Context(), s, plan, "other", 1); !errors.Is(err, sqlitestore.ErrDamaged) {
		t.Errorf("%v, want ErrDamaged", err)
	}
}

// TestNothingLost: none of these is an alarm, and the use is as it was.
//
// req: D2, D11
func TestNothingLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(t *testing.T, path string)
	}{
		"killed":                   {func(*testing.T, string) {}},
		"checkpointed by another":  {checkpointed},
		"mark missing":             {func(t *testing.T, path string) { remove(t, path+".mark") }},
		"mark of an older version": {func(t *testing.T, path string) { cutMark(t, path) }},
		"file of an older version": {func(t *testing.T, path string) {
			cutMark(t, path)
			execSQL(t, path, "DELETE FROM meta WHERE name = 'commits'")
		}},
		"mark half written": {func(t *testing.T, path string) {
			m := content(t, path+".mark")
			copy(m[1024+len("transactions "):], "ffff")
			write(t, path+".mark", m)
		}},
		"mark behind": {func(t *testing.T, path string) {
			n := counted(t, path)
			write(t, path+".mark", bytes.ReplaceAll(content(t, path+".mark"), fmt.Appendf(nil, "%016x", n),
				fmt.Appendf(nil, "%016x", n-1)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, plan := unclosed(t), compile(t, rolling(10, time.Hour))
			c.change(t, path)
			s := openAt(t, path, nil, newClock())
			if n := used(t, s, plan, "k"); n != 10 {
				t.Errorf("%d used, want 10", n)
			}
			if d, err := take(t.Context(), s, plan, "other", 1); err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
			if n := counted(t, path); n == 0 {
				t.Error("it has no transactions")
			}
		})
	}
}

// counted returns how many transactions a database had, which its mark says as well.
func counted(t *testing.T, path string) int64 {
	t.Helper()
	db, mark, err := sqlitestore.Counts(path)
	if err != nil || db != mark {
		t.Errorf("the database has %d transactions, its mark says %d, %v", db, mark, err)
	}
	return db
}

// cutMark makes a mark one of an older version, which has no number.
func cutMark(t *testing.T, path string) {
	t.Helper()
	m := content(t, path+".mark")
	write(t, path+".mark", append(bytes.TrimRight(m[:1024], "\n"), '\n'))
}

// TestPowerLost: a copy of everything at the instant between a commit and the mark, as a loss of
// power may leave it, is used, with what was committed.
//
// req: D2, D11
func TestPowerLost(t *testing.T) {
	t.Parallel()
	path, plan := unswept(t), compile(t, rolling(10, time.Hour))
	before := counted(t, path)
	n, at := int64(0), map[int64]string{}
	opts := sqlitestore.Committed(func() {
		n++
		at[n] = copied(t, path, "", "-wal", ".mark")
	})
	s := openAt(t, path, opts, newClock())
	if n := takes(t, s, plan, "k"); n != 10 {
		t.Fatalf("%d granted", n)
	}
	for i := int64(1); i <= 10; i++ {
		if db, mark, err := sqlitestore.Counts(at[i]); err != nil || db != before+i || mark != db-1 {
			t.Errorf("transaction %d: %d in the database, %d in the mark, %v", i, db, mark, err)
		}
		if n := takes(t, openAt(t, at[i], nil, newClock()), plan, "k"); n != 10-i {
			t.Errorf("transaction %d: %d granted, want %d", i, n, 10-i)
		}
	}
}

// TestUnsynced: with Normal a loss of power may undo transactions. The store says so once and goes
// on; a repair reports it and changes nothing.
//
// req: D11
func TestUnsynced(t *testing.T) {
	t.Parallel()
	path, plan, c := unswept(t), compile(t, rolling(10, time.Hour)), newClock()
	s := openAt(t, path, &sqlitestore.Options{Synchronous: sqlitestore.Normal}, c)
	if n := takes(t, s, plan, "k"); n != 10 {
		t.Fatalf("%d granted", n)
	}
	path = copied(t, path, "", "-wal", ".mark")
	cutFrame(t, path)
	if r := repair(t, path, nil, c); r.Lost != 1 || !r.Since.IsZero() {
		t.Errorf("%+v", r)
	}
	for _, times := range []int{1, 0} {
		var said syncWriter
		s := openAt(t, path, &sqlitestore.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))}, c)
		if n := strings.Count(said.String(), "a loss of power has undone"); n != times {
			t.Errorf("said %d times, want %d: %s", n, times, said.String())
		}
		if n := takes(t, s, plan, "k"); n != int64(times) {
			t.Errorf("%d granted, want %d", n, times)
		}
	}
}

// TestCountByMany: of many processes that write at once, the mark has the highest number in the
// end.
//
// req: D2
func TestCountByMany(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	closed(t, path, nil)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			out, err := child(t.Context(), "share", path, "4", "300ms", "100", dayZone()).Output()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	if n := counted(t, path); n == 0 {
		t.Error("it has no transactions")
	}
}
