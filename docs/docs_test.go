package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/calendar"
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

// pages returns the pages for users: this folder's, the tutorials, and the README.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"../README.md"}
	for _, pattern := range []string{"*.md", "tutorials/*.md", "from/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) < 3 {
			t.Fatal(pattern, found, err)
		}
		all = append(all, found...)
	}
	return all
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// links returns the targets of a page's links, except those to other sites.
func links(text string) (targets []string) {
	for _, m := range link.FindAllStringSubmatch(withoutCode(text), -1) {
		if !strings.Contains(m[1], "://") {
			targets = append(targets, m[1])
		}
	}
	return targets
}

var (
	fenced = regexp.MustCompile("(?ms)^```.*?^```$")
	inline = regexp.MustCompile("`[^`\n]*`")
)

// withoutCode returns a page without its blocks and spans of code.
func withoutCode(text string) string {
	return inline.ReplaceAllString(fenced.ReplaceAllString(text, ""), "")
}

// A reader who begins at docs/README.md finds every page.
func TestIndexNamesEveryPageOnce(t *testing.T) {
	t.Parallel()
	index := links(read(t, "README.md"))
	for _, page := range pages(t) {
		if page == "README.md" || page == "../README.md" {
			continue
		}
		n := len(slices.DeleteFunc(slices.Clone(index), func(l string) bool { return l != page }))
		if n != 1 {
			t.Errorf("docs/README.md links %s %d times, want once", page, n)
		}
	}
}

// Links lead to existing files, and to headings that they have.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, page := range append(pages(t), "../ARCHITECTURE.md", "../SECURITY.md", "../benchmarks/README.md",
		"../examples/lambda/README.md", "../examples/lambda-python/README.md") {
		for _, target := range links(read(t, page)) {
			file, anchor, _ := strings.Cut(target, "#")
			path := page
			if file != "" {
				path = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s links %s, which is not there", page, target)
			} else if anchor != "" && !slices.Contains(anchors(read(t, path)), anchor) {
				t.Errorf("%s links %s: the page has no such heading", page, target)
			}
		}
	}
}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	named   = regexp.MustCompile(`<a id="([^"]*)"`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the names that links can use for the headings of a page, as GitHub makes them.
func anchors(text string) (names []string) {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		names = append(names, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

var internalID = regexp.MustCompile(`\b[A-Z][0-9]{1,2}\b`)

// Pages name no numbers of requirements, which mean nothing to users.
func TestPagesHaveNoInternalIDs(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		if page == "design.md" {
			continue // it is for those who work on Drawgate
		}
		for _, id := range internalID.FindAllString(withoutCode(read(t, page)), -1) {
			t.Errorf("docs/%s names %s", page, id)
		}
	}
}

var (
	span    = regexp.MustCompile("`([^`]+)`")
	missing = regexp.MustCompile(`"…"|…`)
)

// Each message on the page is in the code, part by part. Between the parts there is … on the page,
// and a formatting verb in the code.
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

// concatenation is between two parts of a text that is written in several lines.
var concatenation = regexp.MustCompile(`"\s*\+\s*"`)

// source returns all Go code that ships, with its texts in one piece each.
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
	joined := concatenation.ReplaceAllString(all.String(), "")
	return strings.ReplaceAll(joined, `\"`, `"`)
}

// TestCalendarWindowsAreNamedEverywhere: each place that lists the calendar windows lists all of
// them.
func TestCalendarWindowsAreNamedEverywhere(t *testing.T) {
	t.Parallel()
	for path, where := range map[string]*regexp.Regexp{
		"../config/schema.json":  regexp.MustCompile(`(?s)"calendar": \{[^{}]*?"enum": \[(.*?)\]`),
		"../api/openapi.json":    regexp.MustCompile(`"every": \{"type": "string", "enum": \[(.*?)\]`),
		"../limit.go":            regexp.MustCompile(`(?s)// The calendar windows.*?const \((.*?)\)`),
		"../telemetry/period.go": regexp.MustCompile(`(?s)// Period names (.*?)for a calendar limit`),
		"configuration.md":       regexp.MustCompile("(?m)^\\| `calendar` \\|(.*)$"),
		"semantics.md":           regexp.MustCompile(`(?m)(?:at most amount per calendar|^\*\*Calendar\.\*\*) (.*)$`),
		"metrics.md":             regexp.MustCompile("(?m)^\\| `period` \\|(.*)$"),
	} {
		lists := where.FindAllStringSubmatch(read(t, path), -1)
		if len(lists) == 0 {
			t.Errorf("%s has no list of calendar windows: %s", path, where)
		}
		for _, list := range lists {
			for u := calendar.Minute; u < calendar.End; u++ {
				if !strings.Contains(strings.ToLower(list[1]), u.String()) {
					t.Errorf("%s does not name the calendar window %s: %s", path, u, list[1])
				}
			}
		}
	}
}
