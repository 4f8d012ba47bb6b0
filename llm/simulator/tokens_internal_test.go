package simulator

import (
	"testing"

	"pgregory.net/rapid"
)

// TestASCIITokensAlike: the faster way to find a token that begins with ASCII finds the same ones.
func TestASCIITokensAlike(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringMatching(`[\x00-\x7f]{1,20}`), rapid.StringMatching(`[a-zA-Z]{1,12}`),
			rapid.StringMatching("[\\x00-\\x7f][aZ0 =\né限]{0,12}"),
			rapid.StringMatching(`(\+{1,4}|=|-| {1,10}|\t|[0-9]{1,5}|é){1,5}`),
		).Filter(func(s string) bool { return s != "" && s[0] < 0x80 }).Draw(t, "text")
		if got, want := asciiLength(text), runeLength(text); got != want {
			t.Fatalf("%q: got %d bytes, want %d", text, got, want)
		}
	})
}
