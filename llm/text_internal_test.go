package llm

import (
	"testing"

	"pgregory.net/rapid"
)

// TestASCIICountsAlike: counting many characters at once gives what counting them one by one does,
// wherever the text is cut.
func TestASCIICountsAlike(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.OneOf(
			rapid.StringMatching(`[a-z]{1,12}`), rapid.StringMatching(`[A-Za-z]{1,6}`), rapid.StringMatching("[ -~\n\r\t\x01\x7f]{1,8}"), rapid.Just("限é🙂"),
		)).Draw(t, "text")
		var got, want Text
		got.begin()
		want.begin()
		for _, piece := range text {
			ascii := true
			for _, r := range piece {
				ascii = ascii && r < 0x80
				want.add(r, len(string(r)))
			}
			if ascii {
				got.addASCII([]byte(piece))
				continue
			}
			for _, r := range piece {
				got.add(r, len(string(r)))
			}
		}
		if got != want {
			t.Fatalf("%q: got %+v, want %+v", text, got, want)
		}
	})
}
