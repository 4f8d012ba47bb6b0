//go:build unix

package audit_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate/audit"
)

// TestPipesAreNotRead: what is no file is not opened, which could wait for ever.
func TestPipesAreNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeRun(t, dir, "A", []time.Duration{time.Second}, nil)
	pipe := filepath.Join(dir, "pipe"+audit.Suffix)
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"+audit.Suffix), 0o700); err != nil {
		t.Fatal(err)
	}
	if r, err := audit.Replay(t.Context(), []string{dir}, nil, nil); err != nil || r.Calls != 1 {
		t.Errorf("the files of the folder: %+v, %v", r, err)
	}
	if _, err := audit.Replay(t.Context(), []string{pipe}, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "neither a file nor a folder") {
		t.Errorf("a pipe: %v", err)
	}
}
