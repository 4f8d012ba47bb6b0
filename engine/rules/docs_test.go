package rules

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentedExpressions: what docs/rules.md shows can be written so.
func TestDocumentedExpressions(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "## Keys")
	keys := regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|").FindAllStringSubmatch(text, -1)
	for _, row := range keys {
		for key := range strings.SplitSeq(row[1], "`, `") {
			if x, err := compileText(strings.Trim(key, "`")); err != nil || x.direct == nil {
				t.Errorf("key %s: %v", key, err)
			}
		}
	}
	_, text, _ = strings.Cut(text, "## Expressions")
	_, text, _ = strings.Cut(text, "```\n")
	text, _, _ = strings.Cut(text, "```")
	whens := strings.Split(strings.TrimSpace(text), "\n")
	for _, when := range whens {
		if x, err := compileCondition(when); err != nil || x.direct == nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	if len(keys) < 7 || len(whens) < 4 {
		t.Errorf("%d keys and %d conditions were found", len(keys), len(whens))
	}
	for _, b := range builtins {
		if !regexp.MustCompile("\\b" + b + "\\b").Match(doc) {
			t.Errorf("%s is not documented", b)
		}
	}
}
