package sqlitestore_test

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store/sqlitestore"
)

// holdChild has a database open until it is killed, and prints whether it is alone.
func holdChild(path string, _ []string) error {
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		return err
	}
	fmt.Println(s.SoleOwner())
	select {}
}

// held starts a process that has a database open, and returns what ends it and whether it was
// alone.
func held(t *testing.T, path string) (kill func(), alone bool) {
	t.Helper()
	cmd := child(t.Context(), "hold", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	}, line == "true\n"
}

// TestRepairInUse: neither a repair nor a new beginning touches a file that a process has open, as
// its first user or a later one, until it was killed or the operator insists.
//
// req: D10
func TestRepairInUse(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]sqlitestore.RepairOptions{
		"hold": {Hold: true}, "fresh": {Fresh: true},
		"plain": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, c := filled(t), newClock()
			before := content(t, path)
			kill, _ := held(t, path)
			killSecond, alone := held(t, path)
			if alone {
				t.Error("the second process takes itself for the only one")
			}
			refused := func(who string) {
				t.Helper()
				_, err := sqlitestore.RepairAt(path, &opts, c.now())
				if !errors.Is(err, sqlitestore.ErrInUse) || !strings.Contains(err.Error(), "stop the programs") ||
					!strings.Contains(err.Error(), "--force") {
					t.Errorf("repaired with %s: %v", who, err)
				}
				if string(content(t, path)) != string(before) {
					t.Errorf("changed with %s", who)
				}
			}
			refused("two processes")
			kill()
			refused("the second process")
			forced := opts
			forced.Force = true
			if r := repair(t, path, &forced, c); !r.InUse {
				t.Errorf("forced: %+v", r)
			}
			killSecond()
			if r := repair(t, path, &opts, c); r.InUse {
				t.Errorf("after both were killed: %+v", r)
			}
		})
	}
}

// TestSoleOwner: a store is alone while nobody else has the database open, whoever came first.
func TestSoleOwner(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	open := func() *sqlitestore.Store {
		t.Helper()
		s, err := sqlitestore.Open(path, withLongTimeout(nil))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	want := func(when string, s *sqlitestore.Store, alone bool) {
		t.Helper()
		if got := s.SoleOwner(); got != alone {
			t.Errorf("%s: %v, want %v", when, got, alone)
		}
	}
	first := open()
	want("the only one", first, true)
	kill, alone := held(t, path)
	if alone {
		t.Error("another process: it takes itself for the only one")
	}
	want("with another process", first, false)
	kill()
	want("after that was killed", first, true)
	second := open()
	want("with a second store", first, false)
	want("the second store", second, false)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	want("closed", first, false)
	want("the second store, left alone", second, true)
	third := open()
	want("with a third store", second, false)
	if err := errors.Join(second.Close(), third.Close()); err != nil {
		t.Error(err)
	}
}

// TestSoleOwnerWithoutItsFile: a store whose lock file was deleted does not take itself for the
// only one, because another one can be that.
//
// req: A10
func TestSoleOwnerWithoutItsFile(t *testing.T) {
	t.Parallel()
	path, c := filled(t), newClock()
	first := openAt(t, path, nil, c)
	if !first.SoleOwner() {
		t.Error("the only store is not the owner")
	}
	remove(t, path+".owner")
	second := openAt(t, path, nil, c)
	if first.SoleOwner() && second.SoleOwner() {
		t.Error("both are the only one")
	}
}

// TestSoleOwnerNeedsNoDisk: whether a store is alone is asked while its disk fails, and while takes
// wait for the answer. So it opens no file.
//
// req: A6, D10
func TestSoleOwnerNeedsNoDisk(t *testing.T) {
	t.Parallel()
	path := unswept(t) // nothing but the test makes the store look for its file
	folder := filepath.Dir(path)
	s := openAt(t, path, nil, newClock())
	if err := os.Rename(folder, folder+"-gone"); err != nil {
		t.Fatal(err)
	}
	if !s.SoleOwner() {
		t.Error("it looked for files that cannot be reached")
	}
}

// TestBrokenFreesLock: a store that has found its file to be damaged does not keep anybody from
// repairing it.
//
// req: D10
func TestBrokenFreesLock(t *testing.T) {
	t.Parallel()
	path, c := filled(t), newClock()
	s := openAt(t, path, nil, c)
	if err := os.Rename(path, path+"-gone"); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, sqlitestore.ErrDamaged) {
		t.Fatal(err)
	}
	if !s.SoleOwner() {
		t.Error("nobody else goes on without the file")
	}
	repair(t, path, &sqlitestore.RepairOptions{Hold: true}, c)
	if o := openAt(t, path, nil, c); !o.SoleOwner() {
		t.Error("the repaired file is not open alone")
	}
}

// TestSoleOwnerOfADamagedFile: of several stores that go on without a damaged file none is alone,
// and neither is one while somebody still has the file open.
//
// req: D10
func TestSoleOwnerOfADamagedFile(t *testing.T) {
	t.Parallel()
	path, later := unswept(t), &sqlitestore.Options{OpenLater: true}
	ping := func(s *sqlitestore.Store) {
		t.Helper()
		if err := s.Ping(t.Context()); !errors.Is(err, sqlitestore.ErrDamaged) {
			t.Fatal(err)
		}
	}
	c := newClock()
	running := openAt(t, path, nil, c)
	if err := os.Rename(path, path+"-gone"); err != nil {
		t.Fatal(err)
	}
	first, err := sqlitestore.Open(path, later)
	if err != nil {
		t.Fatal(err)
	}
	ping(first)
	if first.SoleOwner() {
		t.Error("another store has the file open")
	}
	ping(running) // it finds out, too
	if first.SoleOwner() || running.SoleOwner() {
		t.Errorf("both go on without the file: %v, %v", first.SoleOwner(), running.SoleOwner())
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if !running.SoleOwner() || first.SoleOwner() {
		t.Errorf("one has ended: %v, %v", running.SoleOwner(), first.SoleOwner())
	}
	repair(t, path, &sqlitestore.RepairOptions{Hold: true}, c)
	if again := openAt(t, path, later, c); again.Ping(t.Context()) != nil || running.SoleOwner() {
		t.Error("somebody has the repaired file open")
	}
}

// TestOpenDuringRepair: nobody opens a file that is being repaired.
//
// req: D10
func TestOpenDuringRepair(t *testing.T) {
	t.Parallel()
	path, tried := filled(t), 0
	flip(t, path, 3)
	_, err := sqlitestore.RepairAt(path, sqlitestore.Stepwise(func() {
		if _, err := os.Stat(path); err != nil || tried > 0 {
			return
		}
		tried++
		if s, err := sqlitestore.Open(path, nil); !errors.Is(err, sqlitestore.ErrInUse) {
			t.Errorf("opened: %v", err)
			if err == nil {
				_ = s.Close()
			}
		}
	}), time.Now().UnixMicro())
	if err != nil || tried == 0 {
		t.Errorf("%v, tried %d times", err, tried)
	}
}

// TestLockThatCannotBeTaken: a database without lock files works, says so, and takes no store for
// its only one; a repair is refused because nobody knows who uses the file.
func TestLockThatCannotBeTaken(t *testing.T) {
	t.Parallel()
	path := filled(t)
	for _, end := range []string{".owner", ".users"} {
		if err := errors.Join(os.Remove(path+end), os.Symlink(path+"-nowhere/"+end, path+end)); err != nil {
			t.Fatal(err)
		}
	}
	var said syncWriter
	s, err := sqlitestore.Open(path, &sqlitestore.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if s.SoleOwner() || !strings.Contains(said.String(), "a repair will not notice") {
		t.Errorf("sole owner: %v; said: %s", s.SoleOwner(), said.String())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := sqlitestore.Repair(path, nil); !errors.Is(err, sqlitestore.ErrInUse) ||
		!strings.Contains(err.Error(), "cannot be found out") {
		t.Errorf("repaired: %v", err)
	}
	if _, err := sqlitestore.Repair(path, &sqlitestore.RepairOptions{Force: true}); err != nil {
		t.Errorf("forced: %v", err)
	}
}
