package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/httplimit"
)

// FuzzForwarded reads headers that a client may have sent. Whatever they contain, nothing panics.
// Without a trusted proxy the client is the peer. With one it is the address that the last trusted
// proxy names, whatever stands to the left of that.
func FuzzForwarded(f *testing.F) {
	for _, s := range []string{
		"", "198.51.100.1", "1.1.1.1, 10.0.0.2", `for="[2001:db8::1]:80";proto=https, for=_x`, `for="1.1.1.1`, `a="\`,
		"unknown,,", "[::1", "::ffff:1.2.3.4%z",
		"\n", `for="1.1.1.1\", for=2.2.2.2`, strings.Repeat("10.0.0.1,", 70),
	} {
		f.Add(s, s, "203.0.113.9:1", "198.51.100.7")
		f.Add(s, "10.0.0.1", "10.0.0.1:1", "2001:db8::7")
	}
	headers := []string{httplimit.XForwardedFor, httplimit.Forwarded, httplimit.XRealIP}
	nobody, some := map[string]*httplimit.Proxies{}, map[string]*httplimit.Proxies{}
	for _, h := range headers {
		nobody[h] = proxies(f, &httplimit.ProxyOptions{Header: h})
		some[h] = proxies(f, &httplimit.ProxyOptions{Header: h}, "10.0.0.0/8")
	}
	f.Fuzz(func(t *testing.T, first, second, remote, text string) {
		for _, h := range headers {
			r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			r.RemoteAddr = remote
			peer := nobody[h].ClientIP(r)
			r.Header[h] = []string{first, second}
			if got := nobody[h].ClientIP(r); got != peer {
				t.Fatalf("%s %q %q from %q: client %v without a trusted proxy", h, first, second, remote, got)
			}
			if got := some[h].ClientIP(r); !got.IsValid() && peer.IsValid() || got.Zone() != "" || got.Is4In6() {
				t.Fatalf("%s %q %q from %q: client %v", h, first, second, remote, got)
			}
			vouched(t, some[h], h, first, second, text)
		}
	})
}

// vouched appends two trusted proxies to what a client sent, and expects the client that the first
// of them saw.
func vouched(t *testing.T, p *httplimit.Proxies, header, first, second, text string) {
	t.Helper()
	seen, err := netip.ParseAddr(text)
	if err != nil || seen.Zone() != "" || seen.Is4In6() || netip.MustParsePrefix("10.0.0.0/8").Contains(seen) {
		return
	}
	var wrote string
	switch header {
	case httplimit.XForwardedFor:
		wrote = seen.String() + ", 10.0.0.2"
	case httplimit.Forwarded:
		wrote = `for="` + bracketed(seen) + `";by="a\",b";proto=https, for=10.0.0.2:80`
	default:
		wrote = seen.String()
	}
	all := [][]string{{first, second, wrote}} // the proxy began a line of its own
	if header != httplimit.XRealIP {
		all = append(all, []string{first, second + ", " + wrote})
	}
	for _, lines := range all {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.RemoteAddr, r.Header[header] = "10.0.0.1:1", lines
		if got := p.ClientIP(r); got != seen {
			t.Fatalf("%s: %q: client %v, want %v", header, lines, got, seen)
		}
	}
}

func bracketed(a netip.Addr) string {
	if a.Is4() {
		return a.String()
	}
	return "[" + a.String() + "]"
}
