package redisstore

import (
	"testing"

	"github.com/drawgate/drawgate/internal/record"
)

// FuzzHeader reads headers and lists of what is held that are damaged.
func FuzzHeader(f *testing.F) {
	f.Add([]byte{1, 0})
	f.Add(append([]byte{1, 0}, make([]byte, 16+9+32)...))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if st, err := readHeader(string(b), 1); err == nil {
			st.complete(nil)
			st.idle(0)
			half := len(b) / 2
			_ = st.readHeld([]string{string(b[:half]), string(b[half:])}, []record.Spec{{ID: 1}})
		}
	})
}
