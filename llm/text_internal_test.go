package llm

import (
	"bytes"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

// TestASCIICountsAlike: counting many characters at once gives what counting them one by one does,
// wherever the text is cut.
func TestASCIICountsAlike(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.OneOf(
			rapid.StringMatching(`[a-z]{1,12}`), rapid.StringMatching(`[A-Za-z]{1,6}`),
			rapid.StringMatching("[ -~\n\r\t\x01\x7f]{1,8}"), rapid.Just("限é🙂"),
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

// TestIsHan: the short cut is right for every character.
func TestIsHan(t *testing.T) {
	t.Parallel()
	for r := range rune(unicode.MaxRune) {
		if isHan(r) != unicode.Is(unicode.Han, r) {
			t.Fatalf("%U: got %t", r, isHan(r))
		}
	}
}

// TestPlainLength: looking at eight characters at a time finds the same as looking at each.
func TestPlainLength(t *testing.T) {
	t.Parallel()
	for c := range 1 << 8 {
		for size := range 20 {
			for at := range size {
				for _, next := range []byte{0, 'a', '"', '!', ' ', 0x7f, 0x80, 0xff} {
					text := bytes.Repeat([]byte("a"), size)
					text[at] = byte(c)
					if at+1 < size {
						text[at+1] = next
					}
					want := 0
					for want < size && plainASCII[text[want]] {
						want++
					}
					if got := plainLength(text); got != want {
						t.Fatalf("%q: got %d, want %d", text, got, want)
					}
				}
			}
		}
	}
}
