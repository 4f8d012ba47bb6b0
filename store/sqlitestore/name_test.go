package sqlitestore

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOneFileUnderTwoNames: two names would mean two logs over one database, and twice the limit.
func TestOneFileUnderTwoNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db")
	s, err := Open(a, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(a, b); err != nil {
		t.Fatal(err)
	}
	if other, err := Open(b, nil); err == nil {
		_ = other.Close()
		t.Error("the second name was opened")
	} else if !strings.Contains(err.Error(), "2 names") {
		t.Errorf("the second name: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(b); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(a, nil); err != nil {
		t.Fatalf("with one name again: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestFileMountedByItself: the same by a bind mount, as containers make it. Where nothing can be
// mounted there is nothing to refuse.
func TestFileMountedByItself(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db")
	s, err := Open(a, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.WriteFile(b, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "mount", "--bind", a, b).CombinedOutput(); err != nil {
		t.Logf("no mounts here: %v: %s", err, out)
		return
	}
	defer func() {
		if out, err := exec.Command("umount", b).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	}()
	if other, err := Open(b, nil); err == nil {
		_ = other.Close()
		t.Error("a file that is mounted by itself was opened")
	} else if !strings.Contains(err.Error(), "mount the directory") {
		t.Errorf("a file that is mounted by itself: %v", err)
	}
}

// TestNameOfOneThatWasKilled: who makes a file and is killed before it has removed the name under
// which it made it does not lock the others out.
func TestNameOfOneThatWasKilled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	for range 2 {
		s, err := Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if left, _ := filepath.Glob(path + unfinished + "*"); len(left) != 0 {
			t.Fatalf("left: %q", left)
		}
		if err := os.Link(path, path+unfinished+"KILLED"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMadeMeanwhile: who finds no file, and then one that another process has made in that instant,
// goes on with that one.
func TestMadeMeanwhile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	s, err := Open(path, nil) // with its log
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := create(path, &Options{}); err != nil {
		t.Error(err)
	}
	dangling := path + "-link"
	if err := os.Symlink(path+"-none", dangling); err != nil {
		t.Fatal(err)
	}
	if err := create(dangling, &Options{}); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link to nothing: %v", err)
	}
}
