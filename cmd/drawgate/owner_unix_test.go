//go:build unix

package main

import (
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drawgate/drawgate"
)

// A command that may not open a service's file is told as which user it may.
func TestNotAllowedNamesTheOwner(t *testing.T) {
	t.Parallel()
	own, other := t.TempDir(), "/" // of root
	if os.Geteuid() == 0 {
		other = t.TempDir()
		if err := os.Chown(other, 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	id := "0"
	if os.Geteuid() == 0 {
		id = "1"
	}
	owner, err := user.LookupId(id)
	if err != nil {
		t.Skip(err)
	}
	for dir, want := range map[string]string{
		own: "Run the command as the user who owns the file, or ask the server with --server.",
		other: "Run the command as the user " + owner.Username +
			" (sudo -u " + owner.Username + " drawgate …), or ask the server with --server.",
	} {
		path := filepath.Join(dir, "missing", "drawgate.db")
		err := &drawgate.StoreError{
			Store: "sqlite", Op: "open",
			Err: &fs.PathError{Op: "stat", Path: path, Err: fs.ErrPermission},
		}
		if got := advice(err); !strings.HasSuffix(got, want) {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}
