package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/httplimit"
)

func proxies(t testing.TB, opts *httplimit.ProxyOptions, trusted ...string) *httplimit.Proxies {
	t.Helper()
	var all []netip.Prefix
	for _, s := range trusted {
		all = append(all, netip.MustParsePrefix(s))
	}
	p, err := httplimit.NewProxies(all, opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// client returns who sent a request, by these lines of the header that p reads.
func client(p *httplimit.Proxies, remote string, lines ...string) string {
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.RemoteAddr = remote
	if p.Header() != "" {
		r.Header[p.Header()] = lines
	}
	return p.ClientIP(r).String()
}

func TestXForwardedFor(t *testing.T) {
	t.Parallel()
	p := proxies(t, nil, "10.0.0.0/8", "fd00::/8")
	for _, c := range []struct {
		name, remote, want string
		lines              []string
	}{
		{"a stranger's header means nothing", "203.0.113.9:1", "203.0.113.9", []string{"198.51.100.1"}},
		{"one proxy", "10.0.0.1:1", "198.51.100.1", []string{"198.51.100.1"}},
		{"two proxies", "10.0.0.1:1", "198.51.100.1", []string{"198.51.100.1, 10.9.9.9"}},
		{
			"what the client invented stands left of it", "10.0.0.1:1", "198.51.100.1",
			[]string{"1.1.1.1, 10.0.0.7, 198.51.100.1, 10.9.9.9"},
		},
		{
			"lines are one list, in their order", "10.0.0.1:1", "198.51.100.2",
			[]string{"1.1.1.1", "198.51.100.2", "10.3.3.3, 10.4.4.4"},
		},
		{"everybody is a proxy", "10.0.0.1:1", "10.0.0.3", []string{"10.0.0.3, 10.0.0.2"}},
		{"no header", "10.0.0.1:1", "10.0.0.1", nil},
		{"empty elements mean nothing", "10.0.0.1:1", "198.51.100.1", []string{",198.51.100.1,, ,", ""}},
		{"ports", "10.0.0.1:1", "198.51.100.1", []string{"198.51.100.1:4711"}},
		{"IPv6", "10.0.0.1:1", "2001:db8::1", []string{"2001:db8::1"}},
		{"IPv6 in brackets", "10.0.0.1:1", "2001:db8::1", []string{"[2001:db8::1]"}},
		{"IPv6 with a port", "10.0.0.1:1", "2001:db8::1", []string{"[2001:db8::1]:80"}},
		{
			"IPv4 in IPv6 is IPv4", "[::ffff:10.0.0.1]:1", "198.51.100.1",
			[]string{"::ffff:198.51.100.1, ::ffff:10.2.2.2"},
		},
		{"a proxy's zone", "[fd00::1%eth0]:1", "198.51.100.1", []string{"198.51.100.1, fd00::2%eth1"}},
		{"a client's zone", "10.0.0.1:1", "fe80::7", []string{"fe80::7%eth0"}},
		{
			"a proxy that does not know stands for its client", "10.0.0.1:1", "10.5.5.5",
			[]string{"198.51.100.1, unknown, 10.5.5.5"},
		},
		{"a proxy that writes rubbish", "10.0.0.1:1", "10.0.0.1", []string{"198.51.100.1, 1.2.3"}},
		{"rubbish on the left", "10.0.0.1:1", "198.51.100.1", []string{"%%%, 198.51.100.1"}},
		{"a name is no address", "10.0.0.1:1", "10.0.0.1", []string{"localhost"}},
		{"no port after the colon", "10.0.0.1:1", "10.0.0.1", []string{"198.51.100.1:"}},
		{"leading zeros are rubbish", "10.0.0.1:1", "10.0.0.1", []string{"010.0.0.1"}},
		{"a bracket left open", "10.0.0.1:1", "10.0.0.1", []string{"[2001:db8::1"}},
		{"a peer without port", "10.0.0.1", "198.51.100.1", []string{"198.51.100.1"}},
		{"a peer without address", "@", "invalid IP", []string{"198.51.100.1"}},
	} {
		if got := client(p, c.remote, c.lines...); got != c.want {
			t.Errorf("%s: %s with %q: client %s, want %s", c.name, c.remote, c.lines, got, c.want)
		}
	}
}

func TestForwarded(t *testing.T) {
	t.Parallel()
	p := proxies(t, &httplimit.ProxyOptions{Header: "forwarded"}, "10.0.0.0/8", "fd00::/8")
	for _, c := range []struct {
		name, want string
		lines      []string
	}{
		{"plain", "198.51.100.1", []string{"for=198.51.100.1"}},
		{"with a port", "198.51.100.1", []string{`for="198.51.100.1:4711";proto=https;by=10.0.0.1`}},
		{"parameters in any order and case", "198.51.100.1", []string{`Proto=http; FOR=198.51.100.1 ;host="a,b;c"`}},
		{"IPv6", "2001:db8::1", []string{`for="[2001:db8::1]:4711"`}},
		{"a hidden port", "2001:db8::1", []string{`for="[2001:db8::1]:_p1"`}},
		{"escapes", "198.51.100.1", []string{`for="198.51.\100.1"`}},
		{"two proxies", "198.51.100.1", []string{`for=1.1.1.1, for=198.51.100.1;by="x\",y", for="[fd00::9]"`}},
		{"lines", "198.51.100.2", []string{"for=198.51.100.1", "for=198.51.100.2", "for=10.2.2.2"}},
		{"unknown", "10.2.2.2", []string{"for=198.51.100.1, for=unknown, for=10.2.2.2"}},
		{"hidden", "10.0.0.1", []string{"for=198.51.100.1, for=_secret"}},
		{"no for", "10.0.0.1", []string{"for=198.51.100.1, proto=http"}},
		{"two fors", "10.0.0.1", []string{"for=198.51.100.1;for=198.51.100.2"}},
		{"a quote left open by the client", "198.51.100.1", []string{`for="1.1.1.1, for=198.51.100.1`}},
		{
			"a quote and a backslash left by the client", "198.51.100.1",
			[]string{`for="1.1.1.1\", for=198.51.100.1;proto="https", for=10.2.2.2`},
		},
		{"a quote left open by a proxy", "10.0.0.1", []string{`for=198.51.100.1, for="10.2.2.2`}},
		{"text after the quotes", "10.0.0.1", []string{`for="198.51.100.1"x`}},
		{"quotes inside", "10.0.0.1", []string{`for=198"51.100.1"`}},
		{"no equals sign", "10.0.0.1", []string{"198.51.100.1"}},
		{"a space in the name", "10.0.0.1", []string{"f or=198.51.100.1"}},
		{"empty parameters", "198.51.100.1", []string{" ;; proto=http;\t; for=198.51.100.1; "}},
		{"ends in an escape", "10.0.0.1", []string{`for="198.51.100.1\`}},
	} {
		if got := client(p, "10.0.0.1:1", c.lines...); got != c.want {
			t.Errorf("%s: %q: client %s, want %s", c.name, c.lines, got, c.want)
		}
	}
}

func TestOneAddressHeaders(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"x-real-ip", "CF-Connecting-IP"} {
		p := proxies(t, &httplimit.ProxyOptions{Header: name}, "10.0.0.0/8")
		for _, c := range []struct {
			want  string
			lines []string
		}{
			{"198.51.100.1", []string{"198.51.100.1"}},
			{"198.51.100.2", []string{"198.51.100.1", " 198.51.100.2 "}}, // the proxy added the last line
			{"10.0.0.1", []string{"198.51.100.1, 198.51.100.2"}},
			{"10.0.0.1", []string{""}},
			{"10.7.7.7", []string{"198.51.100.1", "10.7.7.7"}},
		} {
			if got := client(p, "10.0.0.1:1", c.lines...); got != c.want {
				t.Errorf("%s %q: client %s, want %s", name, c.lines, got, c.want)
			}
		}
	}
}

func TestNoProxies(t *testing.T) {
	t.Parallel()
	for _, p := range []*httplimit.Proxies{nil, proxies(t, nil)} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = "[2001:db8::7%eth0]:80"
		r.Header.Set("X-Forwarded-For", "198.51.100.1")
		if got := p.ClientIP(r).String(); got != "2001:db8::7" || p.Header() != "" {
			t.Errorf("client %s, header %q", got, p.Header())
		}
	}
}

func TestUnixSockets(t *testing.T) {
	t.Parallel()
	p := proxies(t, &httplimit.ProxyOptions{Unix: true})
	if got := client(p, "@", "1.1.1.1, 198.51.100.1"); got != "198.51.100.1" {
		t.Errorf("client %s", got)
	}
	if got := client(p, "203.0.113.1:1", "198.51.100.1"); got != "203.0.113.1" {
		t.Errorf("client %s: only peers without address are trusted", got)
	}
	if got := p.Client(netip.Addr{}, []string{"198.51.100.1"}).String(); got != "198.51.100.1" {
		t.Errorf("client %s", got)
	}
}

func TestClientWithoutRequest(t *testing.T) {
	t.Parallel()
	p := proxies(t, nil, "::ffff:10.0.0.0/104")
	if got := p.Client(netip.MustParseAddr("::ffff:10.0.0.1"),
		[]string{"198.51.100.1"}).String(); got != "198.51.100.1" {
		t.Errorf("client %s", got)
	}
	if got := (*httplimit.Proxies)(nil).Client(netip.MustParseAddr("::ffff:10.0.0.1"),
		[]string{"198.51.100.1"}).String(); got != "10.0.0.1" {
		t.Errorf("client %s", got)
	}
	if _, err := httplimit.NewProxies([]netip.Prefix{{}}, nil); err == nil ||
		!strings.Contains(err.Error(), "not valid") {
		t.Errorf("error %v", err)
	}
}

// The first address of the header comes from the client, so a limiter that uses it lets anybody
// choose a bucket.
func TestPeers21FirstAddressOfXForwardedForIsNotTrusted(t *testing.T) {
	t.Parallel()
	p := proxies(t, nil, "10.0.0.0/8")
	for _, invented := range []string{
		"1.1.1.1", "10.0.0.3", "unknown", "", "2001:db8::1, 3.3.3.3",
		strings.Repeat("10.0.0.9,", 500),
	} {
		if got := client(p, "10.0.0.1:1", invented+", 203.0.113.7, 10.0.0.2"); got != "203.0.113.7" {
			t.Errorf("%.40q: client %s, want 203.0.113.7", invented, got)
		}
	}
}

// A header with a million proxies takes no longer than any other, because only a bounded part is
// read.
func TestManyHops(t *testing.T) {
	t.Parallel()
	xff, fwd := proxies(t, nil, "10.0.0.0/8"), proxies(t, &httplimit.ProxyOptions{Header: httplimit.Forwarded},
		"10.0.0.0/8")
	start := time.Now()
	for _, c := range []struct {
		p     *httplimit.Proxies
		lines []string
		want  string
	}{
		{xff, []string{strings.Repeat("10.0.0.2,", 1_000_000)}, "10.0.0.2"},
		{xff, []string{"203.0.113.1" + strings.Repeat(",10.0.0.2", 1_000_000)}, "10.0.0.2"},
		{xff, []string{strings.Repeat(",", 1_000_000)}, "10.0.0.1"},
		{xff, strings.Split(strings.Repeat("10.0.0.2 ", 1_000_000), " "), "10.0.0.2"},
		{fwd, []string{strings.Repeat("for=10.0.0.2,", 1_000_000)}, "10.0.0.2"},
		{fwd, []string{strings.Repeat(`\"`, 1_000_000)}, "10.0.0.1"},
		{fwd, []string{`for="` + strings.Repeat(`\`, 1_000_000) + `"`}, "10.0.0.1"},
	} {
		if got := client(c.p, "10.0.0.1:1", c.lines...); got != c.want {
			t.Errorf("%.30q…: client %s, want %s", c.lines[0], got, c.want)
		}
	}
	if d := time.Since(start); d > time.Minute { // if it took the square of it, it would be hours
		t.Errorf("it took %v", d)
	}
}
