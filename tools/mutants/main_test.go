package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// files is a module with mutants of each kind.
var files = map[string]string{
	"go.mod": "module m\n\ngo 1.26\n",
	"a/a.go": "package a\n\nfunc Least(a, b int) int {\n\tif a < b {\n\t\treturn a\n\t}\n\treturn b\n}\n\n" +
		"func Most(a, b int) int {\n\tif a > b {\n\t\treturn a\n\t}\n\treturn b\n}\n",
	"a/a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestLeast(t *testing.T) {\n\tif Least(1, 2) != 1 {\n" +
		"\t\tt.Fatal()\n\t}\n}\n\nfunc TestNothing(*testing.T) {}\n",
	"a/a.txt": "1\n2\n",
	"a/b_test.go": "package a\n\nimport (\n\t_ \"embed\"\n\t\"testing\"\n)\n\n//go:embed a.txt\nvar text string\n\n" +
		"func TestText(t *testing.T) {\n\tif text != \"1\\n2\\n\" {\n\t\tt.Fatal()\n\t}\n}\n",
}

const least = "a/a.go\n-	if a < b {\n+	if a > b {\ntest ./a"

func TestMutants(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ list, want, err string }{
		"killed": {
			least, "a/a.go:4 killed TestLeast if a [< → >] b { 1 mutants: 1 killed, 0 change nothing", "",
		},
		"by a named test": {least + " TestNothing TestLeast", "killed TestLeast", ""},
		"not by it":       {least + " TestNothing", "SURVIVED", "1 were not killed"},
		"left out": {
			"# first\n\na/a.go\n 	if a < b {\n-		return a\n+		return b + 0\ntest ./a",
			"a/a.go:5 killed TestLeast return [a → b + 0]", "",
		},
		"not compiled": {"a/a.go\n-	if a < b {\ntest ./a", "a/a.go:4 DOES NOT COMPILE without if a < b {", "1 were"},
		"an embedded":  {"a/a.txt\n-2\ntest ./a", "a/a.txt:2 killed TestText without 2", ""},
		"not there":    {"a/a.go\n-	if a <= b {\n+	if false {\ntest ./a", "NOT FOUND", "1 were"},
		"there twice":  {"a/a.go\n-		return a\n+		return 0\ntest ./a", "NOT FOUND", "1 were"},
		"no file":      {"b/b.go\n-	x\ntest ./a", "NOT FOUND", "1 were"},
		"nothing to see": {
			"a/a.go\n-	if a < b {\n+	if a <= b {\nsame They are equal.",
			"a/a.go:4 changes nothing if a [< → <=] b { They are equal. 1 mutants: 0 killed, 1 change nothing", "",
		},
		"no change":      {"a/a.go\n 	if a < b {\ntest ./a", "", "block 1 (a/a.go): it needs a change"},
		"no test":        {"a/a.go\n-	if a < b {", "", "either test or same"},
		"another line":   {"a/a.go\nif a < b {", "", "unknown line"},
		"a failing test": {least + "\n\n" + least[:len(least)-1] + "none", "", "fail without a change: ./none"},
		"no such test":   {least + " TestMost", "", "fail without a change: ./a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, files)
			write(t, dir, map[string]string{"tools/mutants/list.txt": c.list + "\n"})
			var w bytes.Buffer
			err := run(t.Context(), &w, dir, []string{"a/", "b/"})
			got := strings.Join(strings.Fields(w.String()), " ")
			if !strings.Contains(got, c.want) || (err == nil) != (c.err == "") ||
				err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %q, %v, want %q, %q", got, err, c.want, c.err)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "a/a.go")); err != nil || string(b) != files["a/a.go"] {
				t.Errorf("the file is now %q, %v", b, err)
			}
		})
	}
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFirstFailure reads what the tests print.
func TestFirstFailure(t *testing.T) {
	t.Parallel()
	for out, want := range map[string]string{
		"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\n":   "TestA",
		"FAILED tests/test_take.py::test_a[x] - assert 1 == 2\n":     "test_a[x]",
		"ERROR tests/test_take.py::test_a - RuntimeError\n":          "test_a",
		"panic: test timed out after 5m0s\n":                         "the tests did not end",
		"panic: runtime error\nFAIL\tm/a\t0.1s\n":                    "the tests ended early",
		"ERROR tests/test_take.py - NameError: name 'x' is not def…": "the tests ended early",
	} {
		if got := firstFailure(out); got != want {
			t.Errorf("%q: got %q, want %q", out, got, want)
		}
	}
	re := regexp.MustCompile(pattern([]string{"TestA", "TestB"}))
	if re.MatchString("TestAB") || !re.MatchString("TestB") {
		t.Error(re)
	}
}
