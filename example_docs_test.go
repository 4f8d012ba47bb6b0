package drawgate_test

import (
	"os"
	"strings"
	"testing"
)

// What the README shows is what was compiled and run.
func TestREADME(t *testing.T) {
	t.Parallel()
	shown(t, "README.md", "example_readme_test.go", "func work(")
}

func TestConfigurationPage(t *testing.T) {
	t.Parallel()
	shown(t, "docs/configuration.md", "config/example_file_test.go", "func nightly(")
}

// shown fails unless the page has a block of Go that is the function of the file.
func shown(t *testing.T, page, file, function string) {
	t.Helper()
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, code, ok := strings.Cut(read(file), "\n"+function)
	code, _, end := strings.Cut(code, "\n}\n")
	if !ok || !end {
		t.Fatalf("%s has no %s", file, function)
	}
	if !strings.Contains(read(page), "\n```go\n"+function+code+"\n}\n```\n") {
		t.Errorf("%s does not show %s…) as it is in %s", page, function, file)
	}
}
