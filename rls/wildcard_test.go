package rls

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A pattern matches what the regular expression with .* for each * matches.
func TestPatternIsARegularExpression(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ab_*]{0,8}`).Draw(t, "pattern")
		value := rapid.StringMatching(`[ab_]{0,8}`).Draw(t, "value")
		p := newPattern(text)
		if (p == nil) != !strings.Contains(text, "*") {
			t.Fatalf("%q: %q", text, p)
		}
		if p == nil {
			return
		}
		want := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, ".*") +
			"$").MatchString(value)
		if got := p.matches(value); got != want {
			t.Fatalf("%q matches %q: %v, want %v", text, value, got, want)
		}
	})
}
