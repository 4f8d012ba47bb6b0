package server

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine/rules"
)

// trusts reports whether a peer may ask for the requests of others.
func (f *forwarding) trusts(remote string) bool {
	peer, err := netip.ParseAddrPort(remote)
	if err != nil {
		return f.Unix // it has no address: a Unix socket
	}
	a := peer.Addr().Unmap().WithZone("")
	for _, t := range f.Proxies {
		if t.Contains(a) {
			return true
		}
	}
	return false
}

// undescribed returns a problem if a proxy does not describe the request at all.
func (f *forwarding) undescribed(h http.Header) *api.Problem {
	for _, names := range [][]string{f.uri, f.method} {
		if !slices.ContainsFunc(names, func(name string) bool { return len(h[name]) > 0 }) {
			return problem(api.CodeInvalid, "the proxy does not describe the request: it must set %s", strings.Join(names, ", or "))
		}
	}
	return nil
}

// attributes reads what a trusted proxy says of the request that it asks about.
func (f *forwarding) attributes(r *http.Request, route string) (*rules.Attributes, *api.Problem) {
	uri, p := one(r.Header, f.uri)
	if p != nil {
		return nil, p
	}
	method, p := one(r.Header, f.method)
	if p != nil {
		return nil, p
	}
	host, p := one(r.Header, f.host)
	if p != nil {
		return nil, p
	}
	place, p := pathOf(uri)
	if p != nil {
		return nil, p
	}
	if !isToken(method) {
		return nil, problem(api.CodeInvalid, "what the proxy says in %s is not the method of a request", f.method[0])
	}
	a := &rules.Attributes{Method: method, Path: place, Host: host, Route: route, IP: f.clients.ClientIP(r), Headers: r.Header}
	if a.User, p = one(r.Header, []string{f.User}); p != nil {
		return nil, p
	}
	if a.Class, p = one(r.Header, []string{f.Class}); p != nil {
		return nil, p
	}
	if a.Class == "" && f.class != nil {
		a.Class = f.class(r.Header)
	}
	return a, nil
}

// one returns the value of a header that has several names. A client can send those that its proxy
// does not know, so all that are there must say the same.
func one(h http.Header, names []string) (value string, p *api.Problem) {
	found := ""
	for _, name := range names {
		for _, v := range h[name] {
			if v = inner(name, v); found != "" && v != value {
				return "", problem(api.CodeInvalid, "%s and %s say different things: the proxy must set the one and remove the other", found, name)
			}
			found, value = name, v
		}
	}
	return value, nil
}

// inner makes X-Original-URL, which is a whole address, comparable with the others.
func inner(name, v string) string {
	if name == "X-Original-Url" {
		return originForm(v)
	}
	return v
}

// originForm returns a whole address as most requests have it, without the scheme and the host. All
// else it returns as it is: what url.Parse makes of an address is not what the proxy and the site
// see.
func originForm(address string) string {
	scheme, rest, _ := strings.Cut(address, "://")
	if !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return address
	}
	end := strings.IndexAny(rest, `/?#\`)
	switch {
	case rest == "" || end == 0:
		return address // without a host
	case end < 0:
		return "/"
	case rest[end] == '/':
		return rest[end:]
	case rest[end] == '?':
		return "/" + rest[end:]
	}
	return address
}

// pathOf returns the path of an address, decoded. The rules see it in its shortest form. It refuses
// an address of which the proxy, the site and the rules may not understand the same path: otherwise
// /health/..;/login would be exempt where /health/* is.
func pathOf(uri string) (string, *api.Problem) {
	uri = originForm(uri)
	raw, _, _ := strings.Cut(uri, "?")
	if strings.Contains(uri, "#") {
		raw = uri // for some the query is a part of the path then
	}
	if err := rules.CheckRequestPath(raw); err != nil {
		return "", problem(api.CodeInvalid, "%v", err)
	}
	u, err := url.ParseRequestURI(uri)
	if err != nil || uri[0] != '/' {
		return "", problem(api.CodeInvalid, "what the proxy passes on is not the address of a request")
	}
	return u.Path, nil
}

// isToken reports whether text can be a method (RFC 9110, section 5.6.2).
func isToken(text string) bool {
	for i := range len(text) {
		c := text[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return text != ""
}
