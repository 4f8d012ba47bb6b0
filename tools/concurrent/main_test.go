package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// files is a module of packages that start goroutines, or do not.
var files = map[string]string{
	"go.mod":              "module m\n\ngo 1.26\n",
	"code/a.go":           "package code\nfunc F() { go func() {}() }\n",
	"group/a.go":          "package group\nimport \"sync\"\nfunc F() { var g sync.WaitGroup; g.Go(func() {}) }\n",
	"test/a.go":           "package test\nfunc F() {}\n",
	"test/a_test.go":      "package test\nfunc f() { go f() }\n",
	"outer/a.go":          "package outer\nfunc F() {}\n",
	"outer/a_test.go":     "package outer_test\nimport \"time\"\nfunc f() { time.AfterFunc(1, f) }\n",
	"server/a.go":         "package server\nfunc F() {}\n",
	"server/a_test.go":    "package server\nimport _ \"net/http/httptest\"\n",
	"pure/a.go":           "package pure\nimport \"sync\"\ntype T struct{ mu sync.Mutex }\n",
	"pure/a_test.go":      "package pure\nimport \"testing\"\nfunc TestT(t *testing.T) { t.Parallel() }\n",
	"doc/doc.go":          "// Package doc has tests only.\npackage doc\n",
	"doc/a_test.go":       "package doc\nfunc f() { go f() }\n",
	"comment/a.go":        "package comment // go f()\n",
	"late/a.go":           "package late\nfunc F() { go F() }\n",
	"late/a_test.go":      "package late\nfunc TestB() { needs.NoRace() }\nfunc TestA() { f(needs.NoRace) }\nfunc TestC() {}\n",
	"late2/a.go":          "package late\nfunc F() {}\n",
	"late2/a_test.go":     "package late\nfunc TestB() { needs.NoRace(); go TestB() }\n",
	"pure/b_test.go":      "package pure\nfunc TestN() { needs.NoRace() }\n",
	"pure/testdata/a.go":  "package x\nfunc f() { go f() }\n",
	"pure/below/below.go": "package below\nfunc f() { go f() }\n",
}

func TestPackages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		not, later bool
		want       string
	}{
		{false, false, "m/code\nm/group\nm/late\nm/late2\nm/outer\nm/pure/below\nm/server\nm/test\n"},
		{true, false, "m/comment\nm/doc\nm/pure\n"},
		{false, true, "-run ^(TestA|TestB)$ m/late m/late2\n"},
	} {
		var w bytes.Buffer
		if err := run(&w, dir, c.not, c.later, nil); err != nil || w.String() != c.want {
			t.Errorf("not %v, later %v: got %q, %v, want %q", c.not, c.later, w.String(), err, c.want)
		}
	}
	if err := run(&bytes.Buffer{}, dir, false, false, []string{"./none"}); err == nil {
		t.Error("a pattern that matches nothing is no error")
	}
}
