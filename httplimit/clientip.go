package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
)

// Headers in which proxies send the client's address. Any other header of a [ProxyOptions] contains
// exactly one address.
const (
	XForwardedFor = "X-Forwarded-For" // a list of addresses, to which each proxy appends its client's
	Forwarded     = "Forwarded"       // RFC 7239: the same with names, quotes and ports
	XRealIP       = "X-Real-Ip"       // one address, set by the nearest proxy
)

// Bounds on reading a header that strangers may have written.
const (
	maxHops = 64  // proxies between a client and us
	maxNode = 128 // bytes of one of them
)

// ProxyOptions holds the optional settings of Proxies. The zero value is ready to use.
type ProxyOptions struct {
	// Header is the header with the client's address: XForwardedFor, which is the default,
	// Forwarded, XRealIP, or another header with one address. Every trusted proxy must append to it
	// or replace it, because otherwise the client could write it.
	Header string
	// Unix trusts peers without an IP address: those on a Unix socket.
	Unix bool
}

// Proxies finds the address of a client behind trusted proxies. It is immutable and safe for
// concurrent use. A nil *Proxies trusts nobody: the client is the peer that opened the connection.
//
// The header is read from the right, where the nearest proxy wrote: the client is the first address
// that is not a trusted proxy's. Everything to the left may be invented, and is ignored. (Routers
// have functions for this too; but the code is short, this package needs it for Forwarded and with
// a bound as well, and a library should not depend on a router.)
type Proxies struct {
	trusted []netip.Prefix
	header  string // in canonical form
	unix    bool
}

// NewProxies returns Proxies that trust these networks. opts may be nil. An invalid prefix is an
// error.
func NewProxies(trusted []netip.Prefix, opts *ProxyOptions) (*Proxies, error) {
	if opts == nil {
		opts = &ProxyOptions{}
	}
	p := &Proxies{header: textproto.CanonicalMIMEHeaderKey(opts.Header), unix: opts.Unix}
	if p.header == "" {
		p.header = XForwardedFor
	}
	for _, t := range trusted {
		if !t.IsValid() {
			return nil, fmt.Errorf("httplimit: a prefix of trusted proxies is not valid: give addresses as 10.0.0.0/8 or 2001:db8::/32 (%v)", t)
		}
		p.trusted = append(p.trusted, unmapPrefix(t))
	}
	return p, nil
}

// unmapPrefix converts a prefix of IPv4 addresses mapped into IPv6 to the IPv4 prefix.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p
}

// PrivateNetworks returns the prefixes that cannot be reached from the internet: loopback,
// link-local, RFC 1918, and fc00::/7 (RFC 4193). Use them as trusted proxies only if nobody else is
// in these networks.
func PrivateNetworks() []netip.Prefix {
	var all []netip.Prefix
	for _, s := range [...]string{
		"127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16",
		"::1/128", "fc00::/7", "fe80::/10",
	} {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// ClientIP returns the address of the client that sent r, without zone, and in IPv4 form if it is
// one. It is the zero Addr if the peer has no IP address (a Unix socket) and no trusted proxy gives
// one.
func (p *Proxies) ClientIP(r *http.Request) netip.Addr {
	peer, _ := parseNode(r.RemoteAddr)
	if p == nil || !p.trusts(peer) {
		return peer
	}
	return p.walk(peer, r.Header[p.header])
}

// Client returns the address of the client on whose behalf peer asks, from the lines of the header
// in order: [Proxies.ClientIP] for programs without a *http.Request. A peer without an IP address
// is the zero Addr.
func (p *Proxies) Client(peer netip.Addr, lines []string) netip.Addr {
	peer = plain(peer)
	if p == nil || !p.trusts(peer) {
		return peer
	}
	return p.walk(peer, lines)
}

// Header returns the name of the header that is read, or "" if none is.
func (p *Proxies) Header() string {
	if p == nil || len(p.trusted) == 0 && !p.unix {
		return ""
	}
	return p.header
}

func (p *Proxies) trusts(a netip.Addr) bool {
	if !a.IsValid() {
		return p.unix
	}
	for _, t := range p.trusted {
		if t.Contains(a) {
			return true
		}
	}
	return false
}

// walk goes to the left from addr, which is trusted, until it finds an address that is not. If a
// proxy hides or garbles its client's address, the proxy's own address counts.
func (p *Proxies) walk(addr netip.Addr, lines []string) netip.Addr {
	hops := 0
	for _, line := range slices.Backward(lines) {
		for rest := line; rest != ""; hops++ {
			if hops == maxHops {
				return addr
			}
			var text string
			rest, text = p.last(rest)
			if text == "" {
				continue // an empty element of a list means nothing
			}
			a, ok := p.node(text)
			if !ok {
				return addr
			}
			if addr = a; !p.trusts(a) {
				return addr
			}
		}
		if p.header != XForwardedFor && p.header != Forwarded {
			return addr // this header has one address: the proxy did not write earlier lines
		}
	}
	return addr
}

// last removes the last element from a line.
func (p *Proxies) last(line string) (rest, text string) {
	i := -1
	switch p.header {
	case XForwardedFor:
		i = strings.LastIndexByte(line, ',')
	case Forwarded:
		i = lastComma(line)
	}
	return line[:max(i, 0)], strings.Trim(line[i+1:], " \t")
}

// node returns the address in an element.
func (p *Proxies) node(text string) (netip.Addr, bool) {
	if p.header == Forwarded {
		var ok bool
		if text, ok = forwardedFor(text); !ok {
			return netip.Addr{}, false
		}
	}
	return parseNode(text)
}

// parseNode parses an address with or without port: 192.0.2.1, 192.0.2.1:80, 2001:db8::1,
// [2001:db8::1], [2001:db8::1%eth0]:80.
func parseNode(text string) (netip.Addr, bool) {
	if text == "" || len(text) > maxNode {
		return netip.Addr{}, false
	}
	host := text
	if text[0] == '[' {
		i := strings.IndexByte(text, ']')
		if i < 0 || !isPort(text[i+1:]) {
			return netip.Addr{}, false
		}
		host = text[1:i]
	} else if i := strings.IndexByte(text, ':'); i >= 0 && i == strings.LastIndexByte(text, ':') { // two are IPv6
		if !isPort(text[i:]) {
			return netip.Addr{}, false
		}
		host = text[:i]
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false
	}
	return plain(a), true
}

// isPort reports whether text is empty, or a colon and a port. RFC 7239 allows a proxy to hide the
// port behind a name.
func isPort(text string) bool {
	if text == "" {
		return true
	}
	if text[0] != ':' || len(text) < 2 {
		return false
	}
	for i := 1; i < len(text); i++ {
		if c := text[i]; (c < '0' || c > '9') && text[1] != '_' {
			return false
		}
	}
	return true
}

// plain returns a canonical form of an address: an IPv4 address is never in IPv6 form, and a zone,
// which is the name of a network card, is removed.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
