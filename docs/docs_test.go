package docs_test

import (
	"os"
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
