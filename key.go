package drawgate

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"
)

// Lengths in bytes.
const (
	maxTenant = 256
	longKey   = 256 // of a key that a store keeps as it is
	keyStart  = 128 // of the start of a longer one that it keeps, for people and for overrides
)

// BoundedKey returns the name of the bucket that a key is counted in: a key of up to 256 bytes as
// it is, of a longer one its first bytes and the SHA-256 of all. It does not change a name that it
// returned. [Limiter] shortens its keys in this way; code that calls a [Store] must do it itself.
func BoundedKey(key string) string {
	if len(key) <= longKey {
		return key
	}
	n := keyStart
	for n > 0 && !utf8.RuneStart(key[n]) {
		n--
	}
	h := sha256.Sum256([]byte(key))
	return key[:n] + "\x00sha256:" + hex.EncodeToString(h[:])
}
