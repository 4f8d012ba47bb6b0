package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
)

// The headers in which proxies say for whom they ask. Any other header of a [ProxyOptions] holds
// one address and nothing else.
const (
	XForwardedFor = "X-Forwarded-For" // a list of addresses, to which each proxy appends whom it was asked by
	Forwarded     = "Forwarded"       // RFC 7239: the same with names, quotes and ports
	XRealIP       = "X-Real-Ip"       // one address, which the proxy next to us sets
)

// Bounds of what is read of a header that strangers may have written.
const (
	maxHops = 64  // proxies between a client and us
	maxNode = 128 // bytes of one of them
)

// ProxyOptions holds what Proxies can do without. The zero value is ready to use.
type ProxyOptions struct {
	// Header is where the proxies say for whom they ask: XForwardedFor, which is the default,
	// Forwarded, XRealIP, or another header that holds one address. Every trusted proxy must append
	// to it, or replace it: what a proxy passes on unseen, its client has written.
	Header string
	// Unix trusts peers without an IP address: those that connect over a Unix socket.
	Unix bool
}

// Proxies finds the address of a client behind proxies that are trusted to tell it. It is immutable
// and safe for concurrent use. A nil *Proxies trusts nobody: the client is whoever opened the
// connection.
//
// The header is read from the right, where the proxy next to us wrote: the client is the first
// address that is not itself a trusted proxy's. What stands left of it may be anybody's invention,
// and is not looked at. (Routers have functions for this too; the walk is short, this package needs
// it for Forwarded and with a bound as well, and a library should not bring a router along.)
type Proxies struct {
	trusted []netip.Prefix
	header  string // in canonical form
	unix    bool
}

// NewProxies returns the Proxies with addresses in trusted. opts may be nil. A prefix that is not
// valid is an error.
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

// unmapPrefix writes a prefix of IPv4 addresses mapped into IPv6 as what it means.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p
}

// PrivateNetworks returns the prefixes of addresses that are not reached from the internet:
// loopback, link-local, RFC 1918, and fc00::/7 (RFC 4193). They are right as trusted proxies where
// nobody else is in these networks.
func PrivateNetworks() []netip.Prefix {
	var all []netip.Prefix
	for _, s := range [...]string{"127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "::1/128", "fc00::/7", "fe80::/10"} {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// ClientIP returns the address of the client that sent r, without zone, IPv4 in its own form. It is
// the zero Addr if the peer has no IP address (a Unix socket) and no trusted proxy says more.
func (p *Proxies) ClientIP(r *http.Request) netip.Addr {
	peer, _ := parseNode(r.RemoteAddr)
	if p == nil || !p.trusts(peer) {
		return peer
	}
	return p.walk(peer, r.Header[p.header])
}

// Client returns the address of the client for whom peer asks, by the lines of the header in their
// order: [Proxies.ClientIP] for programs without a *http.Request. The zero Addr as a peer is one
// without an IP address.
func (p *Proxies) Client(peer netip.Addr, lines []string) netip.Addr {
	peer = plain(peer)
	if p == nil || !p.trusts(peer) {
		return peer
	}
	return p.walk(peer, lines)
}

// Header returns the name of the header that is read, "" if none is.
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

// walk goes from addr, which is trusted, to the left until somebody is not. Where a proxy hides or
// garbles whom it was asked by, it stands for all of them.
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
			return addr // one address: what an earlier line says, the proxy did not write
		}
	}
	return addr
}

// last cuts the right-most element off a line.
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

// parseNode reads an address with or without port: 192.0.2.1, 192.0.2.1:80, 2001:db8::1,
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
	} else if i := strings.IndexByte(text, ':'); i >= 0 && i == strings.LastIndexByte(text, ':') { // two colons are IPv6
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

// isPort reports whether text is nothing, or a colon and a port, which RFC 7239 lets a proxy hide
// behind a name of its own.
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

// plain returns the one form of an address that all of its forms have in common: an IPv4 address is
// not an IPv6 one, and a zone is a name for a network card, not a part of who somebody is.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
