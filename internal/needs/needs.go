// Package needs lets a test say what it needs: programs besides Go, no race detector, and how many
// rounds in each of the three sizes of the proof.
//
// The quick proof, "go test -short", leaves out each test that asks for one, whether it is
// installed or not. Without -short such a test is skipped if its program is missing, so that "go
// test ./..." passes on a fresh clone; tools/test.sh, and so "make test", counts a skipped test as
// a failure.
package needs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Program returns the path of a program that "make deps" installs, or that is on the PATH anyway.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	leaveOut(tb, name)
	path, err := exec.LookPath(name)
	if err != nil {
		missing(tb, name, err)
	}
	return path
}

// Match returns the path of a program that is not on the PATH: the only file that a pattern of
// [filepath.Glob] matches, or one of them.
func Match(tb testing.TB, pattern string) string {
	tb.Helper()
	leaveOut(tb, pattern)
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		missing(tb, pattern, err)
	}
	return found[0]
}

// Tool returns the path of something that "make deps" installs in .tools, in the root of the
// repository.
func Tool(tb testing.TB, name string) string {
	tb.Helper()
	leaveOut(tb, ".tools/"+name)
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for ; filepath.Dir(dir) != dir; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, ".tools", name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	missing(tb, ".tools/"+name, os.ErrNotExist)
	return ""
}

// NoRace leaves a test to the run without the race detector: it counts allocations, or computes for
// long in one goroutine. "make test" runs it once, without.
func NoRace(tb testing.TB) {
	tb.Helper()
	if Race {
		tb.Skip("left to the run without the race detector") // tools/testlog knows these words
	}
}

// Long reports whether the larger forms of tests run, as in "make long".
func Long() bool { return os.Getenv("DRAWGATE_LONG") != "" }

// Rounds returns how many rounds a test makes: in the quick proof, in "make test", and in "make
// long".
func Rounds(quick, test, long int) int {
	switch {
	case testing.Short():
		return quick
	case Long():
		return long
	default:
		return test
	}
}

// Cases returns the cases that a test looks at: in the quick proof only the first of them.
func Cases[C any](quick int, cases ...C) []C {
	if testing.Short() {
		return cases[:quick]
	}
	return cases
}

func leaveOut(tb testing.TB, name string) {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("needs %s: left out by -short", name)
	}
}

func missing(tb testing.TB, name string, err error) {
	tb.Helper()
	tb.Skipf(`needs %s (%v): run "make deps" in the root of the repository`, name, err)
}
