package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// read returns a file of the repository; path is relative to this folder.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	span    = regexp.MustCompile("`([^`]+)`")
	missing = regexp.MustCompile(`"…"|…`)
)

// TestTroubleshootingNamesRealMessages: each message on the page is in the code, part by part; what
// stands between the parts is … on the page and a verb in the code.
func TestTroubleshootingNamesRealMessages(t *testing.T) {
	t.Parallel()
	code := source(t)
	messages := 0
	for line := range strings.Lines(read(t, "troubleshooting.md")) {
		cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if !ok || !strings.HasPrefix(line, "| ") {
			continue
		}
		for _, m := range span.FindAllStringSubmatch(cell, -1) {
			messages++
			for _, part := range missing.Split(m[1], -1) {
				if !strings.Contains(code, strings.TrimSpace(part)) {
					t.Errorf("no program says %q of %q", part, m[1])
				}
			}
		}
	}
	if messages < 50 {
		t.Errorf("only %d messages were found", messages)
	}
}

// source returns all Go code that ships.
func source(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", ".tools", "benchmarks", "tools", "bin"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir(), filepath.Ext(path) != ".go", strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(all.String(), `\"`, `"`)
}
