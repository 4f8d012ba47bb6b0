//go:build unix

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// The files of policies that are installed have no mistake, and nothing that is seldom intended.
// What docs/install.md says is tested with the packages: see the folder release.
func TestInstalledFilesAreValid(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, name := range []string{"release/files/drawgate.yaml", "deploy/compose/drawgate/drawgate.yaml"} {
		path, err := filepath.Abs("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		out, err := b.command("validate", path).CombinedOutput()
		if err != nil || strings.Contains(string(out), "warning") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
