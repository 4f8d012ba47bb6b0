package rules

import (
	"regexp"
	"testing"
)

// TestSimplePatterns: what is of the usual sort is made ready as such, and nothing else is.
func TestSimplePatterns(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]bool{
		"^red-[0-9]+$": true, "^v[0-9]+": true, "^[a-z][a-z0-9_]*$": true, `^\d+-\w+$`: true, "^abc$": true, "^ab": true, "^a*b": false,
		"red": false, "^": false, "^(?i)red": false, "^a+a$": false, "^[0-9]+[0-9a-f]*$": false, "^[^x]+$": false, "^é": false, "^(red|blue)$": false, "^a?b": false,
		"(?m)^a$": false, "^a+?b": false, "^[a-z]*[0-9]*$": false, "^.*$": false, "(": false, "^a{3}": false, "^\uFFFD": false,
	} {
		if got := simplePattern(source) != nil; got != want {
			t.Errorf("%s: %v, want %v", source, got, want)
		}
	}
}

// FuzzPattern: a pattern says what package regexp says.
func FuzzPattern(f *testing.F) {
	for _, source := range []string{"^red-[0-9]+$", "^v[0-9]+", "^[a-z][a-z0-9_]*$", `^\w+-\d*`, "^a*b+c$", `^a[0-9]*[a-z]+\.$`, "^abc$", "^[[:^ascii:]]", "^[a-c]x*$"} {
		for _, text := range []string{"", "red-12", "red-", "v1x", "abc", "a_9", "aaabbc", "b", "a1z.", "\xff", "ré", "abc\n"} {
			f.Add(source, text)
		}
	}
	f.Fuzz(func(t *testing.T, source, text string) {
		p := simplePattern(source)
		if p == nil {
			return
		}
		if got, want := p.match(text), regexp.MustCompile(source).MatchString(text); got != want {
			t.Errorf("%q of %q: %v, package regexp says %v", source, text, got, want)
		}
	})
}
