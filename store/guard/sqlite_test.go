//go:build unix

package guard_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// openFile opens a guarded SQLite store that only this process uses.
func openFile(t *testing.T, path string) *guard.Store {
	t.Helper()
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return guarded(t, s, &guard.Options{Instances: 1, Start: drawgate.StartFull})
}

// tiers returns document D's limits: during an outage the long ones are open and the short ones
// stay.
func tiers(t *testing.T, minute, day int64) *store.Plan {
	t.Helper()
	return compile(t, drawgate.Policy{Name: "tiers", Fallback: drawgate.FallbackShare, Limits: []drawgate.Limit{
		{Name: "hour", Kind: drawgate.Rolling, Amount: minute, Window: time.Hour},
		{Name: "day", Kind: drawgate.Rolling, Amount: day, Window: 24 * time.Hour, Fallback: drawgate.FallbackOpen},
	}})
}

// sqliteFault sends takes during an outage of a file, and checks what was admitted. A fault that is
// not steady comes and goes by itself.
func sqliteFault(t *testing.T, path string, steady bool, begin func(l *load), end func()) {
	t.Helper()
	const amount, ofDay = 10, 5
	g := openFile(t, path)
	plans := append(faultPlans(t, amount), tiers(t, amount, ofDay))
	spare := openFile(t, filepath.Join(t.TempDir(), "spare.db")) // the file itself stays as small as it is
	l := drive(t, pace(t, 5*time.Millisecond, spare), 3, plans, g)
	l.awaits()
	before := l.fallbacks()
	begin(l)
	l.turn() // takes that the file would refuse write nothing, and would not notice
	if steady {
		l.falls()
		l.turn()
	}
	time.Sleep(outage())
	for _, plan := range plans {
		l.presses(plan, 1)
	}
	if steady {
		l.admits(plans[0], amount)
		l.admits(plans[2], ofDay+1) // the day limit is open, and the hour limit stays
	} else {
		l.counts(plans[0], amount) // a write that was given up may still succeed
	}
	l.falters(before)
	end()
	back := l.awaits()
	time.Sleep(300 * time.Millisecond)
	l.stop()
	t.Logf("decided by the store %v after it was back", back)
	for _, plan := range plans {
		l.within(plan, amount, amount)
	}
}

// TestSQLiteLocked: another program locks the file. Short limits stay, long ones are open, and the
// store comes back by itself.
//
// req: D10
func TestSQLiteLocked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var tx *sql.Tx
	sqliteFault(t, path, true, func(*load) {
		if tx, err = db.BeginTx(t.Context(), nil); err != nil {
			t.Error(err)
		}
	}, func() {
		if tx != nil {
			_ = tx.Rollback()
		}
	})
}

// TestAPlainTakeCountsOnceInSQLite: a request that still waits for its turn when its caller leaves
// is withdrawn. So a take that is decided here counts here only.
//
// req: A12
func TestAPlainTakeCountsOnceInSQLite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	var doubtful atomic.Int64 // charges that may have been carried out although the answer was late: on a slow machine
	g := guarded(t, s, &guard.Options{
		Instances: 1, Start: drawgate.StartFull,
		Observer: &guard.Observer{BackendError: func(e *guard.BackendError) {
			if e.Op == "charge" && !errors.Is(e.Err, store.ErrNothingDone) {
				doubtful.Add(1)
			}
		}},
	})
	plan := policy(t, drawgate.FallbackShare, rolling(100, 24*time.Hour))
	for d := take(t, g, plan, "k", 0); d.Fallback; d = take(t, g, plan, "k", 0) { // until the file is there
	}
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(60000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 7 {
		if d := take(t, g, plan, "k", 1); !d.Allowed || !d.Fallback {
			t.Errorf("while the file is locked: allowed %v, fallback %v", d.Allowed, d.Fallback)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	wantBack(t, g, time.Minute)
	var out [1]store.State
	for {
		if err := g.Peek(t.Context(), []store.BucketCost{cost(plan, "k")}, 0, out[:]); err != nil ||
			out[0].Fail != nil {
			t.Fatal(err, out[0].Fail)
		}
		if !out[0].Fallback {
			break
		}
	}
	if got, most := out[0].States[0].Used, 7*(1+doubtful.Load()); got < 7 || got > most {
		t.Errorf("the file knows of %d units, want the 7 that were admitted, and at most %d", got, most)
	}
}

const childVar = "DRAWGATE_TEST_CHILD"

// inChild runs the test again in a child process, because it changes the whole process. It reports
// whether this is the child.
func inChild(t *testing.T) bool {
	t.Helper()
	return inChildOf(t, nil)
}

// inChildOf does so in a process with these attributes, if that is possible.
func inChildOf(t *testing.T, attr *syscall.SysProcAttr) bool {
	t.Helper()
	if os.Getenv(childVar) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$",
		"-test.v")
	cmd.Env = append(os.Environ(), childVar+"=1")
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	switch {
	case attr != nil && errors.Is(err, syscall.EPERM):
		t.Skipf("a file system has to be mounted: run it as root, or where a user may have a user namespace (unshare -Urm): %v", err)
	case err != nil:
		t.Errorf("%v:\n%s", err, out)
	default:
		t.Logf("%s", out)
	}
	return false
}

// setFileSize bounds the files that this process may write: with 0 it can write none.
func setFileSize(t *testing.T, most uint64) {
	t.Helper()
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
		t.Error(err)
	}
	l.Cur = min(most, l.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
		t.Error(err)
	}
}

// TestSQLiteCannotBeWritten: as on a disk that is read-only or has failed.
//
// req: D10
func TestSQLiteCannotBeWritten(t *testing.T) {
	t.Parallel()
	if !inChild(t) {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	sqliteFault(t, filepath.Join(t.TempDir(), "state.db"), true, func(*load) { setFileSize(t, 0) },
		func() { setFileSize(t, 1<<62) })
}

// TestSQLiteOnAFullDisk: SQLite cannot append to its log.
//
// req: D10
func TestSQLiteOnAFullDisk(t *testing.T) {
	t.Parallel()
	if !inChild(t) {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	// There is no room even for the first page of the log. Otherwise there would be some whenever
	// the log was moved into the file.
	sqliteFault(t, filepath.Join(t.TempDir(), "state.db"), true, func(*load) { setFileSize(t, 4096) },
		func() { setFileSize(t, 1<<62) })
}

// TestSQLiteOnAnAlmostFullDisk: SQLite can write what it has, and no more. There is room again
// whenever the log is moved into the file, so it fails now and then.
//
// req: D10
func TestSQLiteOnAnAlmostFullDisk(t *testing.T) {
	t.Parallel()
	if !inChild(t) {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	path := filepath.Join(t.TempDir(), "state.db")
	sqliteFault(t, path, false, func(*load) {
		info, err := os.Stat(path + "-wal")
		if err != nil {
			t.Error(err)
			return
		}
		setFileSize(t, uint64(info.Size())+2000)
	}, func() { setFileSize(t, 1<<62) })
}

// old is how many buckets fill uses.
const old = 2000

// fill makes a file of many pages.
func fill(t *testing.T, path string, plan *store.Plan) {
	t.Helper()
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]store.Take, old)
	for i := range batch {
		batch[i].Buckets = []store.BucketCost{cost(plan, fmt.Sprint("old ", i), 1)}
	}
	if err := errors.Join(s.Take(t.Context(), batch, make([]store.Verdict, len(batch))), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestSQLiteGone: a file that was deleted, replaced or overwritten stays unavailable, even if a
// good file takes its place, until it is repaired and the process gets the newly opened store.
// Continuing with another file would hand out its quota again.
//
// req: D2, D10
func TestSQLiteGone(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(t *testing.T, path string){
		"deleted": func(t *testing.T, path string) {
			for _, end := range []string{"", "-wal", "-shm"} {
				if err := os.Remove(path + end); err != nil {
					t.Error(err)
				}
			}
		},
		"replaced": func(t *testing.T, path string) {
			other := filepath.Join(t.TempDir(), "other.db")
			s, err := sqlitestore.Open(other, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.Close(), os.Rename(other, path)); err != nil {
				t.Error(err)
			}
		},
		"overwritten": func(t *testing.T, path string) {
			// From another process: closing the file in this one would drop SQLite's locks.
			out, err := exec.CommandContext(t.Context(), "dd", "if=/dev/urandom", "of="+path, "bs=4096", "seek=1",
				"count=200", "conv=notrunc").CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
			out, err = exec.CommandContext(t.Context(), "dd", "if=/dev/urandom", "of="+path+"-wal", "bs=4096",
				"count=200", "conv=notrunc").CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const amount, ofDay = 10, 5
			path := filepath.Join(t.TempDir(), "state.db")
			plans := append(faultPlans(t, amount), tiers(t, amount, ofDay))
			fill(t, path, plans[0])
			g := openFile(t, path)
			l := drive(t, pace(t, 5*time.Millisecond, g), 3, plans, g)
			l.awaits()
			harm(t, path)
			permanent := func() bool { // on a busy machine it may first be unavailable because it is slow
				se, ok := errors.AsType[*store.Error](g.State().Err)
				return ok && se.Fault == store.FaultPermanent
			}
			for end := time.Now().Add(patience); !permanent() &&
				time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				// Pages that are in memory reveal nothing: somebody has to read others.
				_ = g.Full().(store.Journal).Read(t.Context(), store.EventQuery{},
					func(store.Event) bool { return true })
			}
			if !permanent() {
				t.Errorf("it is away by %v", g.State().Err)
			}
			l.turn()
			time.Sleep(outage() * 2)
			l.admits(plans[0], amount)
			l.presses(plans[1], 1)
			l.admits(plans[2], ofDay+1)
			if !g.State().Unavailable {
				t.Error("it came back by itself")
			}
			r, err := sqlitestore.Repair(path, &sqlitestore.RepairOptions{Hold: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("repaired: %d buckets, %d reservations, %d events", r.Buckets, r.Reservations, r.Events)
			repaired, err := sqlitestore.Open(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Replace(repaired).Close(); err != nil {
				t.Error(err)
			}
			l.awaits()
			time.Sleep(200 * time.Millisecond)
			l.stop()
			for _, plan := range plans {
				l.within(plan, amount, amount)
			}
			if err := repaired.Ping(t.Context()); err != nil {
				t.Errorf("after the old one was closed: %v", err)
			}
		})
	}
}
