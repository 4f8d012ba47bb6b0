//go:build unix

// Package python_test checks the Python package.
package python_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/calendar"
	"github.com/drawgate/drawgate/internal/needs"
)

// TestPython builds and installs the package by its own metadata, checks its types and its style,
// and runs its tests against a real server. A test of it that is skipped fails the run.
//
// req: B1 B4 B5 B6 B7 B8 B11 C2 C3 C4 C5 C6 C7
func TestPython(t *testing.T) {
	t.Parallel()
	bin := needs.Tool(t, "python/bin")
	dir := t.TempDir()
	program, installed := filepath.Join(dir, "drawgate"), filepath.Join(dir, "installed")
	env := append(
		os.Environ(), "DRAWGATE_PROGRAM="+program, "PYTHONPATH="+installed, "PYTHONDONTWRITEBYTECODE=1",
	)
	run := func(t *testing.T, command ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", command, err, out)
		}
		t.Logf("%s\n%s", command[0], out)
	}
	if err := needs.Drawgate("..", program); err != nil {
		t.Fatal(err)
	}
	run(t, bin+"/pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps",
		"--no-build-isolation", "--target", installed, ".")
	if _, err := os.Stat(filepath.Join(installed, "drawgate", "py.typed")); errors.Is(err, os.ErrNotExist) {
		t.Error("the built package has no py.typed, so type checkers ignore its types")
	}

	// The tests with Celery wait for workers, brokers and holds: the others run meanwhile.
	workers := filepath.Join("tests", "test_celery.py")
	t.Run("celery", func(t *testing.T) {
		t.Parallel()
		run(t, bin+"/pytest", workers)
	})
	if needs.Long() {
		t.Run("celery-5.5", func(t *testing.T) {
			t.Parallel()
			old := filepath.Join(dir, "celery-5.5") // found before what is in .tools
			run(t, bin+"/pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps",
				"--only-binary", ":all:", "--target", old, "-r", "../tools/python/celery-5.5.txt")
			run(t, "env", "PYTHONPATH="+old+":"+installed, bin+"/pytest", workers)
		})
	}
	t.Run("rest", func(t *testing.T) {
		t.Parallel()
		run(t, bin+"/pytest", "--ignore", workers)
	})
}

// TestShareKnowsEveryWindow: without the server, the package refuses what it does not know.
func TestShareKnowsEveryWindow(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(filepath.Join("drawgate", "_share.py"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(source), "_CALENDAR = {")
	list, _, _ := strings.Cut(rest, "}")
	for u := calendar.Minute; u < calendar.End; u++ {
		seconds := u.Length() / 1e6
		want := fmt.Sprintf("%q: %d,", u, seconds)
		if days := seconds / (24 * 3600); days > 0 {
			want = fmt.Sprintf("%q: (%d * 24 + 1) * 3600,", u, days)
		}
		if !strings.Contains(list, want) {
			t.Errorf("_CALENDAR in _share.py does not have %s but %s", want, list)
		}
	}
}
