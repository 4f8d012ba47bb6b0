package httplimit

import (
	"cmp"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"

	"github.com/drawgate/drawgate/engine/rules"
)

// Key returns the key under which a bucket counts a request. ok is false for a request that the
// bucket does not count.
//
// Many goroutines call it at once, for every request that is not exempt, so it must be quick.
// Stores keep keys as they are: see [Hashed] for secrets.
type Key func(r *http.Request) (key string, ok bool)

// The part of an address that identifies a client. A subscriber gets at least an IPv6 /64, and can
// choose the rest freely.
const (
	ipv4Bits = 32
	ipv6Bits = 64
)

// ByIP counts by the client's address: IPv4 by address (192.0.2.1), IPv6 by network
// (2001:db8:1:2::/64). Without proxies, which may be nil, that is the peer that opened the
// connection, whatever the headers say. Clients without an IP address share a bucket.
func ByIP(proxies *Proxies) Key {
	if proxies.Header() != "" {
		return func(r *http.Request) (string, bool) { return IPKey(proxies.ClientIP(r)), true }
	}
	return func(r *http.Request) (string, bool) {
		// The usual case does not allocate: an IPv4 address has only one form as text, and that is
		// the key.
		if n := dotted(r.RemoteAddr); n > 0 {
			return r.RemoteAddr[:n], true
		}
		return IPKey(proxies.ClientIP(r)), true
	}
}

// ByIPPrefix is [ByIP] with larger or smaller networks: this many bits of an IPv4 address, and of
// an IPv6 address. 0 means 32 and 64, as in ByIP. Numbers below 1 count as 1, and too large ones as
// the full length.
func ByIPPrefix(proxies *Proxies, v4, v6 int) Key {
	v4, v6 = cmp.Or(v4, ipv4Bits), cmp.Or(v6, ipv6Bits)
	return func(r *http.Request) (string, bool) { return prefixKey(proxies.ClientIP(r), v4, v6), true }
}

// dotted returns the length of the address in "192.0.2.1:1234" or "192.0.2.1", the form in which a
// server has its peer's IPv4 address; 0 if text has another form.
func dotted(text string) int {
	dots, n := 0, 0
	for n < len(text) && text[n] != ':' {
		switch c := text[n]; {
		case c == '.':
			dots++
		case c < '0' || c > '9':
			return 0
		}
		n++
	}
	if dots != 3 || n > len("255.255.255.255") {
		return 0
	}
	return n
}

// IPKey returns the key under which [ByIP] counts an address; "" for the zero Addr.
func IPKey(a netip.Addr) string { return rules.Network(a) }

// prefixKey returns the network of an address, or the address if its prefix is all of it.
func prefixKey(a netip.Addr, v4, v6 int) string {
	a = plain(a)
	bits := v6
	switch {
	case !a.IsValid():
		return ""
	case a.Is4() && v4 >= ipv4Bits:
		return a.String()
	case a.Is4():
		bits = v4
	}
	p, err := a.Prefix(min(max(1, bits), a.BitLen()))
	if err != nil {
		return a.String()
	}
	return p.String()
}

// ByHeader counts by the value of a header; if there are several, by the first. Requests without it
// share a bucket, so that nobody escapes the limit by leaving it out: see [Given]. A client that
// can choose the value freely can also choose a fresh bucket, so it should be a key that is checked
// behind the limit or in front of it.
func ByHeader(name string) Key {
	name = textproto.CanonicalMIMEHeaderKey(name)
	return func(r *http.Request) (string, bool) {
		if v := r.Header[name]; len(v) > 0 {
			return v[0], true
		}
		return "", true
	}
}

// ByUser counts by the result of user: typically what authentication middleware before this one
// has put into the context. Requests for which it is "" share a bucket: see [Given].
func ByUser(user func(r *http.Request) string) Key {
	return func(r *http.Request) (string, bool) { return user(r), true }
}

// ByRoute counts by the pattern that a router matched ([http.Request.Pattern]), without its method:
// the middleware must come after the router. In front of it all requests share a bucket. Adapters
// set the pattern for other routers.
func ByRoute() Key {
	return func(r *http.Request) (string, bool) { return Route(r), true }
}

// Route returns the pattern that a router matched for r, without a method; "" if there is none yet.
func Route(r *http.Request) string {
	if i := strings.IndexByte(r.Pattern, ' '); i >= 0 {
		return strings.TrimLeft(r.Pattern[i:], " \t")
	}
	return r.Pattern
}

// Fixed counts all requests under one key.
func Fixed(key string) Key {
	return func(*http.Request) (string, bool) { return key, true }
}

// When only counts requests for which cond is true.
func When(cond func(r *http.Request) bool, key Key) Key {
	return func(r *http.Request) (string, bool) {
		if !cond(r) {
			return "", false
		}
		return key(r)
	}
}

// Given does not count requests whose key is empty: those without a user, or without the header.
func Given(key Key) Key {
	return func(r *http.Request) (string, bool) {
		k, ok := key(r)
		return k, ok && k != ""
	}
}

// Join counts by several keys together. The parts are escaped, so that no two combinations share a
// bucket: a|b and c are not a and b|c. A request that one of the keys does not count is not
// counted.
func Join(keys ...Key) Key {
	return func(r *http.Request) (string, bool) {
		parts := make([]string, len(keys))
		for i, key := range keys {
			k, ok := key(r)
			if !ok {
				return "", false
			}
			parts[i] = k
		}
		return rules.Join(parts...), true
	}
}

// Hashed counts by the SHA-256 of a key, for keys that are secrets: the store and its tools do not
// see the key. Empty keys stay empty.
func Hashed(key Key) Key {
	return func(r *http.Request) (string, bool) {
		k, ok := key(r)
		return rules.Hash(k), ok
	}
}
