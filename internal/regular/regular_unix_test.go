//go:build unix

package regular_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/drawgate/drawgate/internal/regular"
)

// Each of these would block or do something, were it opened as a file: the test's time-out is what
// would notice.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "regular") //nolint:usetesting // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(syscall.Mkfifo(at("fifo"), 0o600), os.Symlink("fifo", at("link")),
		os.Symlink("link", at("link-to-link")), os.Mkdir(at("dir"), 0o700)); err != nil {
		t.Fatal(err)
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	for path, want := range map[string]string{
		at("fifo"): "a named pipe", at("link"): "a named pipe", at("link-to-link"): "a named pipe",
		at("dir"): "a directory", at("socket"): "a socket", "/dev/null": "a device", "/dev/zero": "a device",
	} {
		_, err := regular.ReadFile(path)
		if e, ok := errors.AsType[*fs.PathError](err); !ok || e.Path != path ||
			!strings.Contains(err.Error(), want+", not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := regular.ReadFile(at("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestRegularFilesAreRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.WriteFile(path, []byte("text"), 0o600), os.Symlink("file", path+"-link")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, path + "-link"} {
		if got, err := regular.ReadFile(p); string(got) != "text" || err != nil {
			t.Errorf("%s: %q, %v", p, got, err)
		}
	}
}
