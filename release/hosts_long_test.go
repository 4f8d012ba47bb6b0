//go:build long

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/rhysd/actionlint"

	"github.com/drawgate/drawgate/internal/needs"
)

// The workflows are what the host's linter accepts.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	linter, err := actionlint.NewLinter(os.Stderr, &actionlint.LinterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(paths) < 2 {
		t.Fatal(paths, err)
	}
	found, err := linter.LintFiles(paths, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range found {
		t.Errorf("%s:%d: %s", e.Filepath, e.Line, e.Message)
	}
}

// The compose file is read strictly, by compose's own package, and names the image that is made.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	const token = "DRAWGATE_TAKE_TOKEN"
	load := func(env ...string) (image string, err error) {
		o, err := cli.NewProjectOptions([]string{"../deploy/compose/compose.yaml"}, cli.WithEnv(env))
		if err != nil {
			return "", err
		}
		project, err := o.LoadProject(t.Context())
		if err != nil {
			return "", err
		}
		return project.Services["drawgate"].Image, project.CheckContainerNameUnicity()
	}
	if image, err := load(token + "=0123456789abcdef"); err != nil || image != "drawgate:"+nextVersion {
		t.Errorf("%q, %v", image, err)
	}
	if _, err := load(); err == nil || !strings.Contains(err.Error(), token) {
		t.Errorf("without a token: %v", err)
	}
}

func TestFormula(t *testing.T) {
	t.Parallel()
	ruby := needs.Program(t, "ruby")
	path := filepath.Join(once(t).out, "drawgate.rb")
	if out, err := exec.Command(ruby, "-wc", path).CombinedOutput(); err != nil || string(out) != "Syntax OK\n" {
		text, _ := os.ReadFile(path)
		t.Errorf("%v\n%s\n%s", err, out, text)
	}
}
