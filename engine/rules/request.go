package rules

import (
	"hash/maphash"
	"net/netip"
	"path"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// request is what conditions and expressions see: attributes in the form in which they are
// compared.
type request struct {
	*Attributes
	method string     // in capitals
	path   string     // without "//", "/./" and "/../"
	host   string     // in lower case, without a port
	ip     netip.Addr // without a zone, IPv4 as IPv4
	now    time.Time  // in UTC
	texts  *texts
	text   *text // of ip; nil until needed
	join   []byte
}

// set computes the form that is compared. It only allocates for requests that are written
// unusually.
func (q *request) set(a *Attributes, now time.Time, t *texts) {
	q.Attributes, q.method, q.path, q.host = a, strings.ToUpper(a.Method), cleanPath(a.Path), cleanHost(a.Host)
	q.ip, q.now, q.texts, q.text = plain(a.IP), now.UTC(), t, nil
}

// header returns the first value of a header. name must be in its canonical form.
func (q *request) header(name string) string {
	if v := q.Headers[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// network is the network that the address belongs to; address is the whole address.
func (q *request) network() string { return q.texted().network }
func (q *request) address() string { return q.texted().address }

func (q *request) texted() *text {
	if q.text == nil {
		q.text = q.texts.of(q.ip)
	}
	return q.text
}

// cleanPath resolves what a server may resolve too: otherwise "/health/../v1" would match as
// something else. It returns p itself if p is clean.
func cleanPath(p string) string {
	if p == "" || p[0] != '/' || !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return p
	}
	c := path.Clean(p)
	if last := p[strings.LastIndexByte(p, '/')+1:]; c != "/" && (last == "" || last == "." || last == "..") {
		c += "/"
	}
	return c
}

// cleanHost returns a host in lower case, without its port. It returns h itself if h is clean.
func cleanHost(h string) string {
	if isCleanHost(h) {
		return h
	}
	if i := strings.LastIndexByte(h, ':'); i >= 0 && strings.IndexByte(h[i:], ']') < 0 &&
		(h[0] == '[' || strings.IndexByte(h, ':') == i) {
		h = h[:i]
	}
	return strings.ToLower(strings.TrimSuffix(h, "."))
}

func isCleanHost(h string) bool {
	for i := range len(h) {
		if c := h[i]; c == ':' || c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf {
			return false
		}
	}
	return h == "" || h[len(h)-1] != '.'
}

// plain returns an address without a zone, and an IPv4 address for one that is mapped into IPv6.
func plain(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// text has the forms of an address that keys and expressions use; they are empty for the zero
// address.
type text struct {
	ip               netip.Addr
	network, address string
}

// texts caches the texts of recently seen addresses, so that a client's next request need not make
// them again.
type texts struct {
	seed maphash.Seed
	list [4096]atomic.Pointer[text]
}

func newTexts() *texts { return &texts{seed: maphash.MakeSeed()} }

func (t *texts) of(ip netip.Addr) *text {
	slot := &t.list[maphash.Comparable(t.seed, ip)%uint64(len(t.list))]
	if have := slot.Load(); have != nil && have.ip == ip {
		return have
	}
	made := &text{ip: ip, network: Network(ip)}
	if ip.IsValid() {
		made.address = ip.String()
	}
	slot.Store(made)
	return made
}
