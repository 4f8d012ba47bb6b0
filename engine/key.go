package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"
)

// Lengths of keys in bytes.
const (
	longKey  = 256 // is kept as it is
	keyStart = 128 // of a longer one, is kept of its start, for people and for overrides
)

// BoundedKey returns a key of bounded length in place of k: clients write what rules make keys of, of any length, a store keeps each as long as it limits, and
// one that is too long for a take would be an error, with which many a proxy lets a request pass.
func BoundedKey(k string) string {
	if len(k) <= longKey {
		return k
	}
	n := keyStart
	for n > 0 && !utf8.RuneStart(k[n]) {
		n--
	}
	h := sha256.Sum256([]byte(k))
	return k[:n] + "\x00sha256:" + hex.EncodeToString(h[:])
}
