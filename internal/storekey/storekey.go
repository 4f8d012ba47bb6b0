// Package storekey gives each [store.Key] a readable name of its own in a store that others use,
// too.
//
// A name is prefix:tenant:policy:name. Any character in a part that we, Redis SCAN's patterns or a
// cluster's hash tags could misread is percent-escaped. A part that is too long is replaced by "%~"
// and its SHA-256, which no escaped part starts with; the parts are then also stored in the bucket,
// so that it can be listed.
package storekey

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/drawgate/drawgate/store"
)

// The longest parts that are written in full, in escaped bytes: with the default prefix a key has
// at most 200.
const (
	longestName = 100
	longestPart = 40
)

// Format returns a bucket's key, and what to store in the bucket so that its parts can be found
// again ("" if the key has them).
func Format(prefix string, k store.Key) (key, raw string) {
	buf := make([]byte, 0, 64)
	buf = append(buf, prefix...)
	whole := true
	for i, part := range [...]string{k.Tenant, k.Policy, k.Name} {
		most := longestPart
		if i == 2 {
			most = longestName
		}
		var short bool
		buf, short = appendPart(append(buf, ':'), part, most)
		whole = whole && short
	}
	if !whole {
		raw = packKey(k)
	}
	return string(buf), raw
}

// Start returns what the names of a policy's buckets start with.
func Start(prefix, tenant, policy string) string {
	buf := []byte(prefix)
	for _, part := range [...]string{tenant, policy} {
		buf, _ = appendPart(append(buf, ':'), part, longestPart)
	}
	return string(append(buf, ':'))
}

// appendPart appends an escaped part. It reports whether the part was short enough to be written in
// full.
func appendPart(buf []byte, part string, most int) ([]byte, bool) {
	const hexDigits = "0123456789ABCDEF"
	start := len(buf)
	for i := range len(part) {
		c := part[i]
		if plain(c) {
			buf = append(buf, c)
		} else {
			buf = append(buf, '%', hexDigits[c>>4], hexDigits[c&15])
		}
		if len(buf)-start > most {
			sum := sha256.Sum256([]byte(part))
			return base64.RawURLEncoding.AppendEncode(append(buf[:start], "%~"...), sum[:]), false
		}
	}
	return buf, true
}

// plain reports whether a byte need not be escaped in a key.
func plain(c byte) bool {
	return c > ' ' && c < 0x7f && c != ':' && c != '%' && c != '{' && c != '}' && c != '*' && c != '?' && c != '[' &&
		c != ']' && c != '\\'
}

// ErrKey is the error for a name that Format did not make.
var ErrKey = errors.New("not a key of this store")

// Parse is the inverse of Format. raw is what was stored in the bucket.
func Parse(prefix, key, raw string) (k store.Key, err error) {
	rest, ok := strings.CutPrefix(key, prefix+":")
	parts := strings.Split(rest, ":")
	if !ok || len(parts) != 3 {
		return k, ErrKey
	}
	if raw != "" {
		k, err = unpackKey(raw)
		if again, _ := Format(prefix, k); err == nil && again != key {
			err = ErrKey
		}
		return k, err
	}
	for i, dst := range [...]*string{&k.Tenant, &k.Policy, &k.Name} {
		if *dst, err = unescape(parts[i]); err != nil {
			return store.Key{}, err
		}
	}
	return k, nil
}

func unescape(part string) (string, error) {
	if !strings.Contains(part, "%") {
		return part, nil
	}
	buf := make([]byte, 0, len(part))
	for i := 0; i < len(part); i++ {
		if part[i] != '%' {
			buf = append(buf, part[i])
			continue
		}
		if i+2 >= len(part) {
			return "", ErrKey
		}
		hi, lo := strings.IndexByte("0123456789ABCDEF", part[i+1]), strings.IndexByte("0123456789ABCDEF", part[i+2])
		if hi < 0 || lo < 0 {
			return "", ErrKey
		}
		buf = append(buf, byte(hi<<4|lo))
		i += 2
	}
	return string(buf), nil
}

func packKey(k store.Key) string {
	var buf []byte
	for _, part := range [...]string{k.Tenant, k.Policy, k.Name} {
		buf = binary.AppendUvarint(buf, uint64(len(part)))
		buf = append(buf, part...)
	}
	return string(buf)
}

func unpackKey(raw string) (k store.Key, err error) {
	buf := []byte(raw)
	for _, dst := range [...]*string{&k.Tenant, &k.Policy, &k.Name} {
		n, size := binary.Uvarint(buf)
		if size <= 0 || n > uint64(len(buf)-size) {
			return store.Key{}, ErrKey
		}
		*dst = string(buf[size : size+int(n)])
		buf = buf[size+int(n):]
	}
	if len(buf) > 0 {
		return store.Key{}, ErrKey
	}
	return k, nil
}
