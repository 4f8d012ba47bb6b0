// Package models holds no code: it is the models of the protocols, and a test that checks them.
package models

import (
	"os/exec"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
)

// TestModels checks the models that take seconds. models/run.sh checks all; results.txt is its
// output.
func TestModels(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"spin", "gcc", "python3"} {
		needs.Program(t, program)
	}
	out, err := exec.CommandContext(t.Context(), "./run.sh", "--quick").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
