package server

import (
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/rules"
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

// attributes reads what a trusted proxy says of the request that it asks about.
func (f *forwarding) attributes(r *http.Request, route string) (*rules.Attributes, *api.Problem) {
	uri, p := one(r.Header, f.uri, true)
	if p != nil {
		return nil, p
	}
	method, p := one(r.Header, f.method, true)
	if p != nil {
		return nil, p
	}
	host, p := one(r.Header, f.host, false)
	if p != nil {
		return nil, p
	}
	place, ok := pathOf(uri)
	if !ok || !isToken(method) {
		return nil, problem(api.CodeInvalid, "what the proxy says in %s and %s is not the address and the method of a request", f.uri[0], f.method[0])
	}
	a := &rules.Attributes{Method: method, Path: place, Host: host, Route: route, IP: f.clients.ClientIP(r), Headers: r.Header}
	if f.User != "" {
		a.User = r.Header.Get(f.User)
	}
	if f.Class != "" {
		a.Class = r.Header.Get(f.Class)
	}
	if a.Class == "" && f.class != nil {
		a.Class = f.class(r.Header)
	}
	return a, nil
}

// one returns the value of a header that has several names. A client can send those that its proxy does not know, so all that are there must say the same.
func one(h http.Header, names []string, needed bool) (value string, p *api.Problem) {
	found := ""
	for _, name := range names {
		for _, v := range h[name] {
			if v = inner(name, v); found != "" && v != value {
				return "", problem(api.CodeInvalid, "%s and %s say different things: the proxy must set the one and remove the other", found, name)
			}
			found, value = name, v
		}
	}
	if needed && found == "" {
		return "", problem(api.CodeInvalid, "the proxy does not describe the request: it must set %s", strings.Join(names, ", or "))
	}
	return value, nil
}

// inner makes X-Original-URL, which is a whole address, comparable with the others.
func inner(name, v string) string {
	if name != "X-Original-Url" {
		return v
	}
	if u, err := url.Parse(v); err == nil && u.IsAbs() {
		return u.RequestURI()
	}
	return v
}

// pathOf returns the path of an address in its shortest form, as those who serve it understand it: decoded, and without "..", "." and "//". Otherwise
// /health/../login would be exempt where /health is. Of /login/..%2fhealth nobody knows how they understand it, and nobody needs it: it is refused.
func pathOf(uri string) (string, bool) {
	u, err := url.ParseRequestURI(uri)
	if err != nil || u.Opaque != "" {
		return "", false
	}
	if u.Path == "" {
		return "/", true
	}
	if u.Path[0] != '/' {
		return "", false
	}
	if apart, err := url.PathUnescape(path.Clean(dotted.Replace(u.EscapedPath()))); err != nil || hasDots(apart) {
		return "", false
	}
	short := path.Clean(u.Path)
	if strings.HasSuffix(u.Path, "/") && short != "/" {
		short += "/"
	}
	return short, true
}

// dotted writes dots as dots, which in addresses they are however they are written.
var dotted = strings.NewReplacer("%2e", ".", "%2E", ".")

// hasDots reports whether one of a path's segments is "." or "..".
func hasDots(p string) bool {
	return strings.Contains(p+"/", "/./") || strings.Contains(p+"/", "/../")
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
