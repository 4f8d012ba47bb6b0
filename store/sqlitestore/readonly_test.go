package sqlitestore_test

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/drawgate/drawgate/store/sqlitestore"
)

// A service may write to few folders, so the error names one.
func TestReadOnlyFileSystemNamesAnotherFolder(t *testing.T) {
	t.Parallel()
	const path = "/etc/drawgate/drawgate.db"
	err := sqlitestore.NotMade(path, &fs.PathError{Op: "open", Path: path, Err: syscall.EROFS})
	if text := err.Error(); !errors.Is(err, syscall.EROFS) ||
		!strings.HasPrefix(text, path+" cannot be made: its file system is read-only") ||
		!strings.Contains(text, "store: sqlite:///var/lib/drawgate/drawgate.db") {
		t.Error(err)
	}
}
