package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/config"
)

func page(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The schema and the parser accept every example of a file in these pages.
func TestExamplesInPagesAreValid(t *testing.T) {
	t.Parallel()
	s := compileSchema(t)
	paths, err := filepath.Glob("../docs/*.md")
	if err != nil || len(paths) < 10 {
		t.Fatalf("got pages %v, %v, want at least ten", paths, err)
	}
	from, err := filepath.Glob("../docs/from/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Concat(paths, from, []string{"../README.md"}) {
		_, rest, more := strings.Cut(page(t, path), "```yaml\n")
		for more {
			var block string
			block, rest, _ = strings.Cut(rest, "```")
			if strings.Contains("\n"+block, "\npolicies:") {
				if err := conforms(t, s, []byte(block)); err != nil {
					t.Errorf("%s: %v in\n%s", path, err, block)
				}
				if _, problems := config.Parse(path, []byte(block)); len(problems) > 0 {
					t.Error(config.Problems(problems))
				}
			}
			_, rest, more = strings.Cut(rest, "```yaml\n")
		}
	}
}
