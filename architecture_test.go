package drawgate_test

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
)

// row returns the places that ARCHITECTURE.md names for a likely change.
func row(t *testing.T, page, change string) (places []string) {
	t.Helper()
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "| "+change) {
			return spans(line)
		}
	}
	t.Fatalf("ARCHITECTURE.md has no row for %s", change)
	return nil
}

var code = regexp.MustCompile("`([^`]+)`")

func spans(text string) (list []string) {
	for _, m := range code.FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

func architecture(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// Each file and folder that the page names is there.
func TestArchitectureNamesWhatIsThere(t *testing.T) {
	t.Parallel()
	_, text, _ := strings.Cut(architecture(t), "```") // the drawing
	_, text, _ = strings.Cut(text, "```")
	names := spans(text)
	if !slices.Contains(names, "deps_test.go") {
		t.Errorf("the names are read wrongly: %q", names)
	}
	for _, name := range names {
		if !strings.Contains(name, "/") && path.Ext(name) == "" || strings.Contains(name, " ") ||
			strings.HasPrefix(name, "/") {
			continue // an identifier or a command
		}
		if _, err := os.Stat(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// sources are the files of this module that are no tests, examples or documents.
func sources(t *testing.T) (list []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "*.go", "*.lua", "*.py", "*.json").Output()
	if err != nil {
		t.Fatal(err)
	}
	other := regexp.MustCompile(`_test\.go$|^(benchmarks|docs|examples|tools|models)/|/(testdata|tests|sdktest)/`)
	for file := range strings.FieldsSeq(string(out)) {
		if !other.MatchString(file) {
			list = append(list, file)
		}
	}
	return list
}

// The row for another calendar window, provider or store says where each place stands that knows
// them. What lists windows without these two words is found by tests that go up to calendar.End.
func TestRowsOfLikelyChangesForgetNothing(t *testing.T) {
	t.Parallel()
	needs.NoRace(t) // one goroutine
	page := architecture(t)
	words := func(list ...string) (all []*regexp.Regexp) {
		for _, w := range list {
			all = append(all, regexp.MustCompile(`\b(`+w+`|`+strings.ToUpper(w[:1])+w[1:]+`)\b`))
		}
		return all
	}
	for change, c := range map[string]struct {
		all    []*regexp.Regexp // a file that has all of these knows the list
		others []string         // and need not change
	}{
		"a calendar window": {
			all: words("weeks?", "months?"),
			// Envoy's units, what is generated, and cases with other windows.
			others: []string{"rls/build.go", "rls/config.go", "config/schema.json", "store/storetest"},
		},
		"a provider": {
			all: []*regexp.Regexp{regexp.MustCompile(
				`"anthropic"|\banthropic\b,|(?i:\bopenai\W{1,4}anthropic\W{1,4}(and |or )?gemini\b)`)},
			others: []string{"config/schema.json"}, // it is generated
		},
		"a store": {
			all:    words("sqlitestore"),
			others: []string{"store/sqlitestore", "cmd/drawgate", "store/guard/doc.go", "store/redisstore"},
		},
	} {
		places := append(row(t, page, change), c.others...)
		for _, file := range sources(t) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if knows(text, c.all) && !named(file, places) {
				t.Errorf("%s: ARCHITECTURE.md does not name %s", change, file)
			}
		}
	}
}

func knows(text []byte, all []*regexp.Regexp) bool {
	for _, r := range all {
		if !r.Match(text) {
			return false
		}
	}
	return !bytes.HasPrefix(text, []byte("// Code generated"))
}

// named reports whether places name a file, or a folder that it is in.
func named(file string, places []string) bool {
	for ; file != "."; file = path.Dir(file) {
		if slices.Contains(places, file) {
			return true
		}
	}
	return false
}
