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

// trusts reports whether a peer may ask on behalf of clients.
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

// undescribed returns a problem if the proxy does not describe the request at all.
func (f *forwarding) undescribed(h http.Header) *api.Problem {
	for _, names := range [][]string{f.uri, f.method} {
		if !slices.ContainsFunc(names, func(name string) bool { return len(h[name]) > 0 }) {
			return problem(api.CodeInvalid, "the proxy does not describe the request: it must set %s",
				strings.Join(names, ", or "))
		}
	}
	return nil
}

// attributes reads a trusted proxy's description of the request.
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
		return nil, problem(api.CodeInvalid, "the value of %s is not an HTTP method", f.method[0])
	}
	a := &rules.Attributes{
		Method: method, Path: place, Host: host, Route: route, IP: f.clients.ClientIP(r),
		Headers: r.Header,
	}
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

// one returns the value of a header that has several names. A client can send names that its proxy
// does not know, so all that are present must have the same value.
func one(h http.Header, names []string) (value string, p *api.Problem) {
	found := ""
	for _, name := range names {
		for _, v := range h[name] {
			if v = inner(name, v); found != "" && v != value {
				return "", problem(api.CodeInvalid, "%s and %s differ: the proxy must set one and remove the other",
					found, name)
			}
			found, value = name, v
		}
	}
	return value, nil
}

// inner makes X-Original-URL, which is a complete address, comparable with the others.
func inner(name, v string) string {
	if name == "X-Original-Url" {
		return originForm(v)
	}
	return v
}

// originForm returns a complete address in the form that most requests have, without the scheme and
// the host. It returns anything else unchanged: url.Parse may read it differently than the proxy
// and the site do.
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

// pathOf returns the decoded path of an address. The rules see it in its shortest form. It refuses
// an address that the proxy, the site and the rules may read as different paths: otherwise
// /health/..;/login would be exempt if /health/* is.
func pathOf(uri string) (string, *api.Problem) {
	uri = originForm(uri)
	raw, _, _ := strings.Cut(uri, "?")
	if strings.Contains(uri, "#") {
		raw = uri // for some programs the query is then part of the path
	}
	if err := rules.CheckRequestPath(raw); err != nil {
		return "", problem(api.CodeInvalid, "%v", err)
	}
	u, err := url.ParseRequestURI(uri)
	if err != nil || uri[0] != '/' {
		return "", problem(api.CodeInvalid, "the value that the proxy passes on is not the address of a request")
	}
	return u.Path, nil
}

// isToken reports whether text is a valid method (RFC 9110, section 5.6.2).
func isToken(text string) bool {
	for i := range len(text) {
		c := text[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return text != ""
}
