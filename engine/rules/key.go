package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"
)

// Network returns the part of an address that says who a client is: an IPv4 address itself
// (192.0.2.1), and of an IPv6 address the network (2001:db8:1:2::/64), because a customer of one
// can choose addresses from at least a /64. It is "" for the zero Addr.
func Network(ip netip.Addr) string {
	ip = plain(ip)
	switch {
	case !ip.IsValid():
		return ""
	case ip.Is4():
		return ip.String()
	}
	p, _ := ip.Prefix(64)
	return p.String()
}

// Hash turns a secret, such as an API key, into a key, so that the secret is not in the store, its
// backups or lists of buckets. It is the SHA-256 in hexadecimal digits, as printed by sha256sum. An
// empty secret stays empty. Guessable values, such as addresses or names, can be found from their
// hash.
func Hash(secret string) string {
	if secret == "" {
		return ""
	}
	h := sha256.Sum256([]byte(secret))
	var text [2 * sha256.Size]byte
	hex.Encode(text[:], h[:])
	return string(text[:])
}

// Join makes one key from several parts, such that different parts never make the same key: "%" and
// "|" within a part are escaped.
func Join(parts ...string) string {
	var b []byte
	for i, p := range parts {
		b = appendPart(b, i, p)
	}
	return string(b)
}

// appendPart appends part i to a joined key.
func appendPart(b []byte, i int, part string) []byte {
	if i > 0 {
		b = append(b, '|')
	}
	for {
		at := strings.IndexAny(part, "%|")
		if at < 0 {
			return append(b, part...)
		}
		b = append(b, part[:at]...)
		if part[at] == '%' {
			b = append(b, "%25"...)
		} else {
			b = append(b, "%7C"...)
		}
		part = part[at+1:]
	}
}
