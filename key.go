package drawgate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"unicode/utf8"
)

// Lengths in bytes.
const (
	MaxKey    = 64 << 10 // of the key that a caller may give; see [BoundedKey]
	maxTenant = 256
	longKey   = 256 // of a key that a store keeps as it is
	keyStart  = 128 // of the start of a longer one that it keeps, for people and for overrides
)

// BoundedKey returns the name of the bucket that a key is counted in: keys of up to 256 bytes as
// they are, of longer ones the start and the SHA-256 of all of it. What it returns has at most 256
// bytes, and stays as it is if it is cut again, so that a name from [Lister] or the history is a
// key as well.
//
// Clients write keys of any length, and a store keeps each for as long as it limits, in its history
// for weeks. Every method of [Limiter] that takes a key cuts it. Who calls a [Store] directly has
// to.
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

// checkKey says what is wrong with a key or a tenant.
func checkKey(tenant, key string) error {
	switch {
	case len(key) > MaxKey:
		return fmt.Errorf("%w: the key has %d bytes, more than %d", ErrInvalid, len(key), MaxKey)
	case len(tenant) > maxTenant:
		return fmt.Errorf("%w: the tenant has %d bytes, more than %d", ErrInvalid, len(tenant), maxTenant)
	}
	return nil
}
