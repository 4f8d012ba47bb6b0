//go:build unix

package docs_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The files of policies that are installed have no mistake, and nothing that is seldom intended.
// What the page on installing says is tested with the packages: see the folder release.
func TestInstalledFilesAreValid(t *testing.T) {
	t.Parallel()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"../release/files/drawgate.yaml", "../deploy/compose/drawgate/drawgate.yaml"} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(built, "drawgate"), "validate", path)
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(string(out), "warning") {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
}
