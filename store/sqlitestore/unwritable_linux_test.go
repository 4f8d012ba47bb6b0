package sqlitestore_test

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/store/sqlitestore"
)

// TestUnwritableFolder: the error names the file, and says what to do. Not even root can make a
// file in this folder.
func TestUnwritableFolder(t *testing.T) {
	t.Parallel()
	const path = "/proc/self/quota.db"
	s, err := sqlitestore.Open(path, nil)
	if err == nil {
		s.Close()
		t.Skip("files can be made in /proc/self here")
	}
	if want := path + " cannot be made: check that its directory can be written"; !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
