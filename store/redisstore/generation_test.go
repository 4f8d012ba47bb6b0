package redisstore

import (
	"strings"
	"testing"
)

// TestPlacesAreFilled: the generation is filled in at each place, however what is sent is cut.
func TestPlacesAreFilled(t *testing.T) {
	t.Parallel()
	const marker, zeros = "m4rkerMM", "\x00\x00\x00\x00\x00\x00\x00\x00"
	text := "m4rk m4rkerM " + marker + zeros + marker + zeros + " and m" + marker + zeros + "m4"
	want := strings.ReplaceAll(text, marker+zeros, marker+"GENERATE")
	for size := 1; size <= len(text); size++ {
		n := namer{marker: marker, generation: [8]byte([]byte("GENERATE"))}
		var got strings.Builder
		for at := 0; at < len(text); at += size {
			b := []byte(text[at:min(at+size, len(text))])
			if err := n.name(b); err != nil {
				t.Fatal(err)
			}
			got.Write(b)
		}
		if got.String() != want {
			t.Errorf("in writes of %d bytes: %q", size, got.String())
		}
	}
}
