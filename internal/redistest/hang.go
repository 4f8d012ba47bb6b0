package redistest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Hang stops a process by SIGSTOP, and waits until each of its threads stands still: the signal
// is sent when kill returns, while a thread that runs may still answer for a moment.
func Hang(tb testing.TB, pid int) {
	tb.Helper()
	if err := hang(pid); err != nil {
		tb.Error(err)
		return
	}
	for end := time.Now().Add(30 * time.Second); !stopped(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Errorf("process %d does not stop", pid)
			return
		}
	}
}

// Resume lets a process that hangs go on.
func Resume(tb testing.TB, pid int) {
	tb.Helper()
	if err := resume(pid); err != nil {
		tb.Error(err)
	}
}

// stopped reports whether every thread of a process is stopped. Where there is no /proc it cannot
// tell, and says so of every process.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is valid
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		_, state, _ := bytes.Cut(stat, []byte(") "))
		if !bytes.HasPrefix(state, []byte("T")) {
			return false
		}
	}
	return true
}
