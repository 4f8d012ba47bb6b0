//go:build unix

package sqlitestore_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/drawgate/drawgate/store/sqlitestore"
)

// checkMode checks the mode of a database and, if it is open, of what lies beside it.
func checkMode(t *testing.T, path string, want fs.FileMode, ends ...string) {
	t.Helper()
	for _, end := range ends {
		info, err := os.Stat(path + end)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %v, want %v", filepath.Base(path+end), got, want)
		}
	}
}

// Keys may be personal data or secrets.
func TestNewFilesAreTheirOwnersAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkMode(t, path, 0o600, "", "-wal", "-shm")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if s, err = sqlitestore.Open(path, nil); err != nil {
		t.Fatal(err)
	}
	checkMode(t, path, 0o640, "", "-wal", "-shm")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLineHasTheModeOfTheDatabase: whoever may use the database may stand in its lines.
func TestLineHasTheModeOfTheDatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	for _, mode := range []fs.FileMode{0o600, 0o660} { // changed while nobody has it open
		s, err := sqlitestore.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		plan := tightPlan(1)
		ask(t, s, plan, 0, 1)
		ask(t, s, plan, 1, 1)
		checkMode(t, path, mode, "", ".line")
		withdraw(t, s, plan, 1)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o660); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRepairedFilesKeepTheirMode(t *testing.T) {
	t.Parallel()
	for want, damage := range map[fs.FileMode]func(path string) error{
		0o600: func(string) error { return nil }, // it was deleted
		0o640: func(path string) error {
			return os.WriteFile(path, []byte("no database, but long enough to be taken for one"), 0o600)
		},
	} {
		path := filepath.Join(t.TempDir(), "state.db")
		if err := damage(path); err != nil {
			t.Fatal(err)
		}
		if want != 0o600 {
			if err := os.Chmod(path, want); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := sqlitestore.Repair(path, &sqlitestore.RepairOptions{Hold: true}); err != nil {
			t.Fatal(err)
		}
		checkMode(t, path, want, "")
	}
}
