package rules

import (
	"net/netip"
	"strings"
)

// Join makes one key of several parts, such that different parts never make the same key: "|" and "%" within a part are escaped.
func Join(parts ...string) string {
	n := len(parts)
	for _, p := range parts {
		n += len(p)
	}
	b := make([]byte, 0, n+8)
	for i, p := range parts {
		if i > 0 {
			b = append(b, '|')
		}
		b = appendEscaped(b, p)
	}
	return string(b)
}

func appendEscaped(b []byte, part string) []byte {
	for {
		i := strings.IndexAny(part, "%|")
		if i < 0 {
			return append(b, part...)
		}
		b = append(b, part[:i]...)
		if part[i] == '%' {
			b = append(b, "%25"...)
		} else {
			b = append(b, "%7C"...)
		}
		part = part[i+1:]
	}
}

// network returns the key of a client's address: an IPv4 address as it is, of an IPv6 address its first 64 bits, which are what one customer of a
// network gets at least. It is "" for no address.
func network(ip netip.Addr) string {
	ip = plain(ip)
	if !ip.Is6() {
		return address(ip)
	}
	p, _ := ip.Prefix(64)
	return p.String()
}

func address(ip netip.Addr) string {
	if !ip.IsValid() {
		return ""
	}
	return plain(ip).String()
}

// plain returns an address without a zone, and an IPv4 address for one that is mapped into IPv6.
func plain(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// inside reports whether ip is in one of the networks.
func inside(nets []string, ip netip.Addr) bool {
	for _, n := range nets {
		if p, err := netip.ParsePrefix(n); err == nil && p.Contains(plain(ip)) {
			return true
		}
	}
	return false
}
