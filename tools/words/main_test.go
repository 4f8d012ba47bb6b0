package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMistakesAreFound plants one mistake of each kind.
func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	wide := strings.Repeat("word ", 20)
	for name, c := range map[string]struct{ file, text, want string }{
		"a function":  {"a/a.go", "package a\n\nfunc HangUp() {}\n", "use closeConn"},
		"a method":    {"a/a.go", "package a\n\ntype t int\n\nfunc (t) hangUp() {}\n", "use closeConn"},
		"a field":     {"a/a.go", "package a\n\ntype t struct{ beside int }\n", "use shadow"},
		"a parameter": {"a/a.go", "package a\n\nfunc f(told int) {}\n", "use outcome"},
		"a variable": {
			"a/a.go", "package a\n\nfunc f() { told := 1; _ = told }\n",
			"a/a.go:3:12: the name told",
		},
		"a loop variable": {
			"a/a.go", "package a\n\nfunc f() { for _, told := range []int{} { _ = told } }\n",
			"use outcome",
		},
		"a word of cells":   {"internal/cells/a.go", "package cells\n\nvar home int\n", "use owner"},
		"a file name":       {"server/exact.go", "package server\n", "file name"},
		"a wide comment":    {"a/a.go", "package a\n\n// " + wide + "\n", "a/a.go:3: a comment of 103 columns"},
		"an indented one":   {"a/a.go", "package a\n\nfunc f() {\n\t\t// " + wide[:90] + "\n}\n", "101 columns"},
		"a comment of Lua":  {"a/a.lua", "-- " + wide + "\n", "103 columns"},
		"after an example":  {"a/a.go", "package a\n\n// Output: x\n\n// " + wide + "\n", "a/a.go:5:"},
		"wide code":         {"a/a.go", "package a\n\nvar x = 1" + strings.Repeat(" + 1", 40) + "\n", "code of"},
		"Go that is broken": {"a/a.go", "package", "a/a.go"},
	} {
		if found := checkFile(c.file, []byte(c.text)); len(found) != 1 || !strings.Contains(found[0], c.want) {
			t.Errorf("%s: got %q, want one mistake with %q", name, found, c.want)
		}
	}
	if found := checkSubjects([]string{
		"1234567 " + strings.Repeat("x", 71),
		"1234568 " + strings.Repeat("x", 70),
	}); len(found) != 1 {
		t.Errorf("subjects: got %q, want one mistake", found)
	}
}

// TestExceptions has nothing to find.
func TestExceptions(t *testing.T) {
	t.Parallel()
	wide := strings.Repeat("word ", 20)
	for name, c := range map[string]struct{ file, text string }{
		"use of another's name": {"a/a.go", "package a\n\nimport \"b\"\n\nvar x = b.HangUp()\n"},
		"a word of cells":       {"a/a.go", "package a\n\nvar home int\n"},
		"a string":              {"a/a.go", "package a\n\nvar x = \"told\" // told\n"},
		"preformatted":          {"a/a.go", "package a\n\n// x:\n//\n//\t" + wide + "\n"},
		"an output":             {"a/a.go", "package a\n\nfunc f() {\n\t// Output:\n\t// " + wide + "\n}\n"},
		"a directive":           {"a/a.go", "package a\n\n//go:generate " + wide + "\n"},
		"a URL":                 {"a/a.go", "package a\n\n// https://" + strings.Repeat("x", 100) + "\n"},
		"wide text":             {"a/a.go", "package a\n\nvar x = \"" + wide + wide + "\"\n"},
		"behind code":           {"a/a.go", "package a\n\nvar x = 1 // " + wide + "\n"},
	} {
		if found := checkFile(c.file, []byte(c.text)); len(found) > 0 {
			t.Errorf("%s: got %q, want none", name, found)
		}
	}
}

// TestWithoutGit: a directory that is no repository is checked, but for commits.
func TestWithoutGit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "server"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "server", "exact.go"), []byte("package server\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := check(dir)
	if want := []string{"server/exact.go: this file name was retired"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("got %q, %v, want %q", found, err, want)
	}
}
