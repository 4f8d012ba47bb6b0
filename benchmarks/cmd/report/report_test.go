package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	jsonHeader = `{"commit":"aaaaaaaaaaaa","go":"go1.26.8","cpu":"x","cores":2,"kernel":"6","at":"2026-11-22T03:22:45Z","command":"redisbench -reps=1"}`
	jsonRow    = `{"section":"B","name":"drawgate","case":"c1-hot","rep":1,"m":{"ops_s":5}}`
	textHeader = "commit: aaaaaaaaaaaa\ngo: go1.26.8\ncpu: x\nat: 2026-11-22T03:22:45Z\ncommand: inprocbench -reps=1"
	textRow    = "# repetition 1\nBenchmarkA/limiter=drawgate/case=hot-allow-2  100  80.5 ns/op  0 allocs/op"
)

// write writes raw files and returns their paths.
func write(t *testing.T, texts ...string) []string {
	t.Helper()
	var paths []string
	for i, text := range texts {
		path := filepath.Join(t.TempDir(), string(rune('a'+i)))
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

func TestFilesOfOneRunAreRead(t *testing.T) {
	t.Parallel()
	secondRep := strings.Replace(jsonRow, `"rep":1`, `"rep":2`, 1)
	r, err := load(write(t, jsonHeader+"\n"+jsonRow+"\n"+secondRep, textHeader+"\n"+textRow), "aaaaaa")
	if err != nil {
		t.Fatal(err)
	}
	if got := len(r.values[cell{"B", "c1-hot", "drawgate"}]["ops_s"]); got != 2 {
		t.Errorf("repetitions of B: c1-hot: got %d, want 2", got)
	}
	if got := r.values[cell{"A", "hot-allow", "drawgate"}]["ns/op cpu=2"]; len(got) != 1 || got[0] != 80.5 {
		t.Errorf("ns/op of A: hot-allow: got %v, want [80.5]", got)
	}
}

func TestFilesThatAreNotOneRunAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		files      []string
	}{
		{"dirty tree", "changes that are in no commit", []string{strings.Replace(jsonHeader, `aaaa"`, `aaaa-dirty"`,
			1) + "\n" + jsonRow}},
		{
			"dirty tree, text", "changes that are in no commit",
			[]string{strings.Replace(textHeader, "aaaa\n", "aaaa-dirty\n", 1) + "\n" + textRow},
		},
		{"two runs, JSON", "line 3: a second run begins", []string{jsonHeader + "\n" + jsonRow + "\n" + jsonHeader}},
		{"two runs, text", "line 8: a second run begins", []string{textHeader + "\n" + textRow + "\n" + textHeader}},
		{"two runs under one header", "is here twice", []string{jsonHeader + "\n" + jsonRow + "\n" + jsonRow}},
		{"two runs under one header, text", "is here twice", []string{textHeader + "\n" + textRow + "\n" + textRow}},
		{"no header", "before the header", []string{jsonRow}},
		{"no header, text", "before the header", []string{textRow}},
		{"no command", "lacks command", []string{strings.Replace(jsonHeader, "redisbench -reps=1", "", 1) + "\n" +
			jsonRow}},
		{"empty file", "lacks commit", []string{""}},
		{
			"a table of two files", "table B: c1-hot has rows from",
			[]string{jsonHeader + "\n" + jsonRow, jsonHeader + "\n" + jsonRow},
		},
		{"another commit", "measured at commit bbbb", []string{strings.Replace(jsonHeader, "aaaa", "bbbb", 1) + "\n" +
			jsonRow}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := load(write(t, c.files...), "aaaaaa")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one that says %q", err, c.want)
			}
		})
	}
}

func TestTargetsOfASectionNeedOneRun(t *testing.T) {
	t.Parallel()
	other := strings.Replace(jsonRow, "c1-hot", "c64-hot", 1)
	r, err := load(write(t, jsonHeader+"\n"+jsonRow, jsonHeader+"\n"+other), "")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := r.writeTargets(&b, false); err == nil || !strings.Contains(err.Error(), "section B has rows from") {
		t.Errorf("got error %v, want one that names section B", err)
	}
}

// TestREADMEShowsTheReport holds that the figures in the README are those of the raw files, and
// that each table names its file, its commit and its command.
func TestREADMEShowsTheReport(t *testing.T) { // without t.Parallel, because of Chdir
	t.Chdir("../..")
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("results/*.*")
	if err != nil {
		t.Fatal(err)
	}
	for i, paths := range [][]string{files, {"results/http/c-servers.jsonl"}} {
		r, err := load(paths, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range []string{"A", "B", "C", "D"} {
			if len(r.files(section)) == 0 {
				continue
			}
			var b strings.Builder
			if err := r.writeSection(&b, section, i > 0); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(readme), b.String()) {
				t.Errorf("README.md lacks the targets of section %s as the report writes them from %v:\n%s", section,
					paths, b.String())
			}
		}
	}
}
