//go:build unix

package rls_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/drawgate/drawgate/rls"
)

// The test's time-out is what would notice that somebody waits for a writer.
func TestLoadOpensNoNamedPipes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := rls.Load([]string{path}, nil); err == nil || !strings.Contains(err.Error(), "a named pipe") {
		t.Errorf("the pipe itself: %v", err)
	}
	if _, err := rls.Load([]string{filepath.Dir(path)}, nil); err == nil ||
		!strings.Contains(err.Error(), "has no files") {
		t.Errorf("a directory with nothing but a pipe: %v", err)
	}
}
