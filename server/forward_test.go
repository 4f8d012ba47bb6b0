package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// asked is what a proxy says, as headers.
func asked(method, uri, host, client string) []string {
	return []string{
		"X-Forwarded-Method: " + method, "X-Forwarded-Uri: " + uri, "X-Forwarded-Host: " + host,
		"X-Forwarded-For: " + client,
	}
}

// site asks for a client of the site.
func site(path, client string) []string { return asked("GET", path, "api.example.com", client) }

// req: B4, E9
func TestForwardAuthSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	s := setup{
		config:  ruled(),
		options: &server.Options{ForwardAuth: &server.ForwardAuth{Shared: []string{"api"}}},
	}.make(t)
	for i := range 3 {
		w := ask(s, "GET", "/auth", "", site("/x?y=1", "192.0.2.1")...)
		h := w.Header()
		if w.Code != 200 || w.Body.Len() != 0 || h.Get("X-RateLimit-Limit") != "3" ||
			h.Get("X-RateLimit-Remaining") != string(rune('2'-i)) || h.Get("X-RateLimit-Reset") == "" ||
			h.Get("RateLimit") == "" {
			t.Errorf("%d: %d %v", i, w.Code, h)
		}
		if want := []string{
			"", "candidate=would_refuse",
			"candidate=would_refuse",
		}[i]; h.Get("X-RateLimit-Shadow") != want {
			t.Errorf("%d: shadow %q, want %q", i, h.Get("X-RateLimit-Shadow"), want)
		}
	}
	w := ask(s, "GET", "/auth", "", site("/x", "192.0.2.1")...)
	if h := w.Header(); w.Code != 429 || h.Get("Retry-After") == "" || h.Get("X-RateLimit-Status") != "429" ||
		h.Get("Content-Type") != api.ProblemType ||
		!strings.Contains(w.Body.String(), `"scope":"caller"`) {
		t.Errorf("%d %v %s", w.Code, h, w.Body)
	}
	for range 2 {
		ask(s, "GET", "/auth", "", site("/x", "192.0.2.2")...)
	}
	if w := ask(s, "GET", "/auth", "", site("/x", "192.0.2.3")...); w.Code != 429 ||
		!strings.Contains(w.Body.String(), `"scope":"api"`) {
		t.Errorf("the limit of all: %d %s", w.Code, w.Body)
	}
	if w := ask(s, "GET", "/auth", "", site("/health", "192.0.2.1")...); w.Code != 200 ||
		w.Header().Get("X-RateLimit-Limit") != "" {
		t.Errorf("what is exempt: %d %v", w.Code, w.Header())
	}
}

func TestForwardAuthStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		configured int
		query      string
		want       int
	}{
		{0, "", 429},
		{403, "", 403},
		{401, "", 401},
		{0, "?status=403", 403},
		{403, "?status=429", 429},
		{0, "?status=401&route=r", 401},
	} {
		s := setup{
			config:  ruled(),
			options: &server.Options{ForwardAuth: &server.ForwardAuth{Status: c.configured}},
		}.make(t)
		var w *httptest.ResponseRecorder
		for range 4 {
			w = ask(s, "GET", "/auth"+c.query, "", site("/x", "192.0.2.1")...)
		}
		if w.Code != c.want || w.Header().Get("X-RateLimit-Status") != "429" || w.Header().Get("Retry-After") == "" {
			t.Errorf("%+v: %d %v", c, w.Code, w.Header())
		}
	}
	e, err := engine.New(memstore.New(nil), ruled(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []server.ForwardAuth{{Status: 500}, {Status: 200}, {Proxies: make([]netip.Prefix, 1)}} {
		if _, err := server.New(e, memstore.New(nil), &server.Options{ForwardAuth: &bad}); err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
}

// from asks as a peer.
func from(h http.Handler, peer string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/auth", nil)
	r.RemoteAddr = peer
	for _, text := range headers {
		name, v, _ := strings.Cut(text, ": ")
		r.Header.Add(name, v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// PEERS.md, line 21: whoever is not a trusted proxy can say what it wants.
func TestPeers21OnlyTrustedProxiesSayForWhomTheyAsk(t *testing.T) {
	t.Parallel()
	cfg := engine.Config{Policies: ruled().Policies, Rules: []rules.Rule{{Apply: []rules.Apply{{
		Policy: "per-ip",
		Key:    "ip",
	}}}}}
	nets := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	s := setup{config: cfg, options: &server.Options{ForwardAuth: &server.ForwardAuth{Proxies: nets}}}.make(t)
	for _, peer := range []string{"192.0.2.1:1", "[2001:db9::1]:1", "127.0.0.1:1", "@", ""} {
		if w := from(s, peer, site("/x", "203.0.113.1")...); w.Code != 403 ||
			!strings.Contains(w.Body.String(), string(api.CodeUntrusted)) {
			t.Errorf("%s: %d %s", peer, w.Code, w.Body)
		}
	}
	// The client chooses what stands on the left; only what trusted proxies appended counts.
	for i, list := range []string{
		"203.0.113.1", "198.51.100.7, 203.0.113.1", "garbage, 203.0.113.1, 10.9.9.9",
		"203.0.113.1:4711",
	} {
		w := from(s, "10.0.0.1:1", site("/x", list)...)
		if want := []int{200, 200, 200, 429}[i]; w.Code != want {
			t.Errorf("%s: %d, want %d: another bucket was chosen", list, w.Code, want)
		}
	}
	unix := setup{config: cfg, options: &server.Options{ForwardAuth: &server.ForwardAuth{
		Proxies: nets,
		Unix:    true,
	}}}.make(t)
	if w := from(unix, "@", site("/x", "203.0.113.3")...); w.Code != 200 {
		t.Errorf("a trusted socket: %d %s", w.Code, w.Body)
	}
	def := setup{config: cfg}.make(t)
	for peer, want := range map[string]int{
		"127.0.0.1:1": 200, "[::1]:1": 200, "[::ffff:127.0.0.1]:1": 200, "@": 200,
		"10.0.0.1:1": 403,
	} {
		if w := from(def, peer, site("/x", "203.0.113.2")...); w.Code != want && w.Code != 429 {
			t.Errorf("by default %s: %d, want %d", peer, w.Code, want)
		}
	}
}

// What a proxy does not overwrite, its client may have written.
func TestDescriptionsMustAgree(t *testing.T) {
	t.Parallel()
	s := setup{config: ruled()}.make(t)
	for _, c := range []struct {
		want    int
		headers []string
	}{
		{200, []string{"X-Original-URI: /x?a", "X-Original-Method: GET"}},
		{200, []string{"X-Original-URL: https://api.example.com/x?a", "X-Original-Method: GET"}},
		{200, []string{
			"X-Original-URL: https://api.example.com/x?a", "X-Forwarded-Uri: /x?a",
			"X-Original-Method: GET",
		}},
		{200, []string{
			"X-Original-URI: /x", "X-Forwarded-Uri: /x", "X-Original-Method: GET",
			"X-Forwarded-Method: GET",
		}},
		{422, []string{"X-Original-URI: /x", "X-Forwarded-Uri: /health", "X-Original-Method: GET"}},
		{422, []string{"X-Forwarded-Uri: /x", "X-Forwarded-Uri: /health", "X-Original-Method: GET"}},
		{422, []string{"X-Original-URI: /x", "X-Original-Method: GET", "X-Forwarded-Method: POST"}},
		{422, []string{"X-Original-URI: /x"}},
		{422, []string{"X-Original-Method: GET"}},
		{422, []string{"X-Original-URI: /x", "X-Original-Method: GET /health"}},
		{422, []string{"X-Original-URI: x", "X-Original-Method: GET"}},
		{422, []string{"X-Original-URI: http:///x", "X-Original-Method: GET"}},
		{422, []string{"X-Original-URI: http:/x", "X-Original-Method: GET"}},
		{422, []string{"X-Original-URI: foo://h/x", "X-Original-Method: GET"}},
		{422, []string{`X-Original-URI: http://h\@i/x`, "X-Original-Method: GET"}},
		{422, []string{"X-Original-URI: example.com:443", "X-Original-Method: CONNECT"}},
		{422, []string{"X-Original-URI: ", "X-Original-Method: CONNECT"}},
		{200, []string{"X-Original-URI: http://h", "X-Original-Method: GET"}},
		{200, []string{"X-Original-URI: http://h?x", "X-Original-Method: GET"}},
		{422, []string{"X-Original-URL: http://h/x#", "X-Forwarded-Uri: /x", "X-Original-Method: GET"}},
		{422, []string{"X-Original-URI: /%zz", "X-Original-Method: GET"}},
		{422, []string{"X-Original-URI: *", "X-Original-Method: OPTIONS"}},
		{422, []string{"X-Original-URI: /x", "X-Original-Method: GET", "X-Forwarded-Host: a", "X-Forwarded-Host: b"}},
	} {
		w := ask(s, "GET", "/auth", "", c.headers...)
		if w.Code != c.want {
			t.Errorf("%q: %d %s", c.headers, w.Code, w.Body)
		}
	}
	f := &server.ForwardAuth{
		URI: "x-my-uri", Method: "x-my-method", Host: "x-my-host", User: "x-my-user",
		Class: "x-my-class", ClientHeader: "X-Real-IP",
	}
	own := setup{config: engine.Config{Policies: ruled().Policies, Rules: []rules.Rule{{
		Match: rules.Match{
			Path: "/mine", Host: "my.host", User: "alice", Class: "gold", Methods: []string{"PUT"},
			IPs: []netip.Prefix{netip.MustParsePrefix("203.0.113.9/32")},
		},
		Apply: []rules.Apply{{Policy: "per-ip", Key: "ip"}},
	}}}, options: &server.Options{ForwardAuth: f}}.make(t)
	mine := []string{
		"X-My-Uri: /mine", "X-My-Method: PUT", "X-My-Host: my.host", "X-My-User: alice", "X-My-Class: gold",
		"X-Real-IP: 203.0.113.9",
		"X-Original-URI: /other", "X-Forwarded-Method: GET",
	}
	for _, other := range []string{
		"X-My-User: bob", "X-My-Class: free", "X-My-Host: other.host", "X-My-Method: GET",
		"X-My-Uri: /other",
	} {
		if w := ask(own, "GET", "/auth", "", append(slices.Clone(mine), other)...); w.Code != 422 {
			t.Errorf("%s beside another one: %d %s", other, w.Code, w.Body)
		}
	}
	if w := ask(own, "GET", "/auth", "", mine...); w.Code != 200 || w.Header().Get("X-RateLimit-Limit") != "3" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// A path in another spelling must not be exempt, or go to another bucket.
func TestPathsAreTakenInTheirShortestForm(t *testing.T) {
	t.Parallel()
	cfg := engine.Config{Policies: ruled().Policies, Rules: []rules.Rule{
		{Match: rules.Match{Path: "/health*"}, Exempt: true},
		{Match: rules.Match{Path: "/login"}, Apply: []rules.Apply{{Policy: "per-ip", Key: `"all"`}}},
	}}
	s := setup{config: cfg}.make(t)
	for i, path := range []string{
		"/login?a=/health", "/.//login", "/./login", "/%6cogin", "/%2e/login",
		"/.//./login",
	} {
		w := ask(s, "GET", "/auth", "", site(path, "192.0.2.1")...)
		if want := i >= 3; (w.Code == 429) != want || w.Header().Get("X-RateLimit-Limit") == "" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
}

// twoMeanings are addresses of requests that programs take for different paths.
var twoMeanings = []string{
	"//login", "//x/login", `/\x/login`, "//health/x", "///login", "/login#/../health", "/login#", "/login?a#b", "#",
	"/login/..%2fhealth", "/health%2F..%2flogin", "/login%2f../health", "/a/%2e%2E%2Fhealth", "/a/..%2f../b",
	"/a%2f.", "/x/../login/..%2fhealth", "/x/./login/%2E./..%2Fhealth", "/health/../login", "/health/%2e%2e/login",
	"/a/..//login", "/..", "/a/..",
	"/health/..;/login", "/health/%2e%2e;x/login", "/health/..;x=1;y/login", "/health/..%3b/login",
	"/health/..%253bx/login", "/health/.;/login", "/.;x/login",
	`/health/..\login`, `/health\..\login`, "/health/..%5clogin", "/health%5C..%5Clogin", "/health/%252e%252e/login",
	"/health/..%252flogin", "/health/..%255clogin",
	"/health%252f%252e%252e%252flogin", "/%252e%252e%252fa", "/a%25/%252e%252e/login", "/a%25zz/..%5c", "/%252e/login",
	`/a/.\b`, "/health%00", "/login%00.png", "/login%2500",
	"/;/login", "/;x/login", "/%3b/login", "/%253B/login", "/health/;/login", `/\;/login`, "/health%2f;/login",
}

// oneMeaning are odd addresses that all programs take for the same path.
var oneMeaning = []string{
	"/wiki/%5Cfrac", `/wiki/\frac`, "/fetch/https%3A%2F%2Fexample.com%2Fa..b", "/a%2fb", "/..a%2f..b", "/.well-known/x",
	"/a/...", "/a/.../b", "/v1;a=b/x;c", "/a;..", "/..a/b..",
	"/100%25", "/%25zz", "/a%2520b", "/a.b;.", "/x?file=../../etc", "/x?a=..;/../b", "/a%23b", "/a%3F..", "/%E2%82%AC",
	"/caf%e9", "/a%3b..%3b/b", "/a%250", "/%25",
}

// Where programs do not agree what a path is, one that means something else to the site than here
// must not pass as that.
func TestPathsWithTwoMeaningsAreRefused(t *testing.T) {
	t.Parallel()
	cfg := engine.Config{Policies: ruled().Policies, Rules: []rules.Rule{{
		Match:  rules.Match{Path: "/health*"},
		Exempt: true,
	}}}
	s := setup{config: cfg}.make(t)
	for want, list := range map[int][]string{422: twoMeanings, 200: oneMeaning} {
		for _, path := range list {
			if w := ask(s, "GET", "/auth", "", site(path, "192.0.2.7")...); w.Code != want ||
				(w.Header().Get("X-RateLimit-Status") == "422") != (want == 422) {
				t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
			}
			if path[0] != '/' {
				continue
			}
			for _, header := range []string{
				"X-Original-URL: https://api.example.com" + path,
				"X-Forwarded-Uri: HTTP://api.example.com:8080" + path,
			} {
				if w := ask(s, "GET", "/auth", "", "X-Original-Method: GET", header); w.Code != want {
					t.Errorf("%s: %d %s", header, w.Code, w.Body)
				}
			}
			if want == 200 {
				path, _, _ = strings.Cut(path, "?") // a caller hands over none
			}
			body, err := json.Marshal(api.Take{Attributes: &api.Attributes{Path: path}})
			if err != nil {
				t.Fatal(err)
			}
			if w := ask(s, "POST", "/v1/take", string(body)); w.Code != want {
				t.Errorf("take of %s: %d %s", path, w.Code, w.Body)
			}
		}
	}
}

// A client's doing must not look like the proxy's mistake, or like a Drawgate that is unavailable:
// with both, proxies may let requests pass.
func TestWhatIsUnclearIsARefusal(t *testing.T) {
	t.Parallel()
	s := setup{config: ruled()}.make(t)
	for query, want := range map[string]int{"": 422, "?status=403": 403, "?status=401": 401} {
		for _, headers := range [][]string{
			site("/login#", "192.0.2.1"), site("", "192.0.2.1"), asked("GET /x", "/x", "h", "192.0.2.1"),
			append(site("/x", "192.0.2.1"), "X-Original-URI: /y"),
		} {
			w := ask(s, "GET", "/auth"+query, "", headers...)
			var p api.Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != want || p.Status != want ||
				w.Header().Get("X-RateLimit-Status") != "422" ||
				w.Header().Get("WWW-Authenticate") != "" {
				t.Errorf("%s %q: %d %v %s", query, headers, w.Code, w.Header(), w.Body)
			}
		}
		if w := ask(s, "GET", "/auth"+query, "", "X-Forwarded-Uri: /x"); w.Code != 422 ||
			w.Header().Get("X-RateLimit-Status") != "" {
			t.Errorf("%s: a proxy that does not say the method: %d %v", query, w.Code, w.Header())
		}
	}
}

// What a proxy passes on of the client's query must not choose how it is asked, or under which
// rules.
func TestForwardAuthTakesEachParameterOnce(t *testing.T) {
	t.Parallel()
	s := setup{config: ruled()}.make(t)
	for query, want := range map[string]int{
		"?status=403&status=429": 422, "?status=403&status=403": 422, "?route=a&route=b": 422, "?route=a&route=": 422,
		"?route=a&q=1": 422, "?status=403;route=b": 422,
		"?%zz": 422, "?route=a&%": 422, "?status=": 422, "?status=403&route=a": 200, "?route=": 200, "?": 200,
	} {
		if w := ask(s, "GET", "/auth"+query, "", site("/health", "192.0.2.1")...); w.Code != want ||
			w.Header().Get("X-RateLimit-Status") != "" {
			t.Errorf("%s: %d %v %s", query, w.Code, w.Header(), w.Body)
		}
	}
}

func TestProxyNeedsATokenOfItsOwn(t *testing.T) {
	t.Parallel()
	s := setup{config: ruled(), options: &server.Options{Tokens: tokens()}}.make(t)
	for _, c := range []struct {
		want    int
		headers []string
	}{
		{200, []string{"X-Drawgate-Token: " + taker, bearer("the client's own")}},
		{403, []string{bearer(taker)}}, // it is the client's header
		{403, []string{"X-Drawgate-Token: " + reader}},
		{403, []string{"X-Drawgate-Token: guess"}},
		{403, nil},
	} {
		if w := ask(s, "GET", "/auth", "", append(site("/x", "192.0.2.1"), c.headers...)...); w.Code != c.want ||
			w.Header().Get("WWW-Authenticate") != "" {
			t.Errorf("%q: %d %s", c.headers, w.Code, w.Body)
		}
	}
}

// Whoever wants to know is told why requests of proxies are not decided. Refusals are decisions.
func TestForwardAuthCountsWhatItDoesNotDecide(t *testing.T) {
	t.Parallel()
	var got []server.Undecided
	options := func(tokens []server.Token) *server.Options {
		return &server.Options{Tokens: tokens, ForwardAuth: &server.ForwardAuth{
			Undecided: func(why server.Undecided) { got = append(got, why) },
		}}
	}
	cfg := ruled()
	cfg.Rules = append([]rules.Rule{{
		Match: rules.Match{Path: "/n"}, When: `int(header("X-N")) > 1`,
		Apply: []rules.Apply{{Policy: "api", Key: "ip"}},
	}}, cfg.Rules...)
	open := setup{config: cfg, options: options(nil)}.make(t)
	locked := setup{config: cfg, options: options(tokens())}.make(t)
	down := setup{store: downStore{}, config: cfg, options: options(nil)}.make(t)
	closed := setup{config: cfg, options: options(nil)}.make(t)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		server  *server.Server
		query   string
		headers []string
		want    server.Undecided // "": it was decided
	}{
		{open, "", site("/x", "192.0.2.1"), ""},
		{open, "", site("/health", "192.0.2.1"), ""},
		{open, "", []string{"X-Forwarded-Uri: /x"}, server.UndecidedUndescribed},
		{open, "?q=1", site("/x", "192.0.2.1"), server.UndecidedUndescribed},
		{open, "", site("/a/..;/b", "192.0.2.1"), server.UndecidedAmbiguous},
		{open, "", site("/n", "192.0.2.1"), server.UndecidedRule},
		{open, "", site("/stream", "192.0.2.1"), server.UndecidedRule},
		{locked, "", site("/x", "192.0.2.1"), server.UndecidedToken},
		{locked, "", append(site("/x", "192.0.2.1"), "X-Drawgate-Token: "+taker), ""},
		{down, "", site("/x", "192.0.2.1"), server.UndecidedStore},
		{closed, "", site("/x", "192.0.2.1"), server.UndecidedEnded},
	} {
		got = nil
		w := ask(c.server, "GET", "/auth"+c.query, "", c.headers...)
		if want := []server.Undecided{c.want}; c.want == "" && got != nil || c.want != "" && !slices.Equal(got, want) {
			t.Errorf("%q %q: %d, told of %q, want %q", c.query, c.headers, w.Code, got, c.want)
		}
	}
	got = nil
	r := httptest.NewRequest(http.MethodGet, "http://localhost/auth", nil)
	r.RemoteAddr = "192.0.2.9:1234"
	open.ServeHTTP(httptest.NewRecorder(), r)
	if !slices.Equal(got, []server.Undecided{server.UndecidedUntrusted}) {
		t.Errorf("an untrusted proxy: told of %q", got)
	}
}

// What goes wrong is said to operators, and never taken for a yes.
func TestForwardAuthThatCannotDecide(t *testing.T) {
	t.Parallel()
	cfg := ruled()
	cfg.Rules = append([]rules.Rule{
		{
			Match: rules.Match{Path: "/n"}, When: `int(header("X-N")) > 1`,
			Apply: []rules.Apply{{Policy: "api", Key: "ip"}},
		},
		{Match: rules.Match{Path: "/huge"}, Apply: []rules.Apply{{
			Policy: "llm", Key: "ip",
			Costs: map[string]int64{"tokens": 500},
		}}, Final: true},
	}, cfg.Rules...)
	cfg.Policies[3].Overrides = []engine.Override{{Key: "192.0.2.1", Amounts: map[string]int64{"tpm": 50}}}
	s := setup{config: cfg}.make(t)
	for path, want := range map[string]struct {
		status int
		says   string
	}{
		"/stream": {500, "nothing would free the slot"}, "/n": {500, "rule 1"}, "/huge": {429, "will not help"},
	} {
		w := ask(s, "GET", "/auth", "", site(path, "192.0.2.1")...)
		if w.Code != want.status || !strings.Contains(w.Body.String(), want.says) ||
			w.Header().Get("Retry-After") != "" {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
	for allow, want := range map[bool]int{false: 503, true: 200} {
		s := setup{
			store: downStore{}, config: ruled(),
			options: &server.Options{ForwardAuth: &server.ForwardAuth{AllowUnavailable: allow}},
		}.make(t)
		w := ask(s, "GET", "/auth", "", site("/x", "192.0.2.1")...)
		if w.Code != want || (w.Header().Get("X-RateLimit-Fallback") == "true") != allow ||
			(w.Header().Get("Retry-After") != "") == allow {
			t.Errorf("%v: %d %v", allow, w.Code, w.Header())
		}
	}
	s = setup{
		config: ruled(), options: &server.Options{ForwardAuth: &server.ForwardAuth{AllowUnavailable: true}},
	}.make(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if w := ask(s, "GET", "/auth", "", site("/x", "192.0.2.1")...); w.Code != 503 {
		t.Errorf("a server that was closed: %d", w.Code)
	}
}

// A fallback that refuses because the store is unavailable says so as httplimit does: nobody used
// up a limit.
func TestForwardAuthRefusesForWantOfTheStore(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]int{"": 503, "?status=429": 503, "?status=403": 403} {
		s := setup{store: local{memstore.New(nil), drawgate.Unavailable}, config: ruled()}.make(t)
		var w *httptest.ResponseRecorder
		for range 4 {
			w = ask(s, "GET", "/auth"+query, "", site("/x", "192.0.2.1")...)
		}
		var p api.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != want || p.Status != want ||
			p.Code != api.CodeStoreUnavailable {
			t.Errorf("%q: %d, %v in %s", query, w.Code, err, w.Body)
		}
		if h := w.Header(); h.Get("X-RateLimit-Status") != "503" || h.Get("X-RateLimit-Fallback") != "true" ||
			h.Get("Retry-After") == "" {
			t.Errorf("%q: %v", query, h)
		}
	}
}

// local is a store whose answers are decided by a fallback.
type local struct {
	drawgate.Store
	refuses drawgate.Reason // why; 0: as the store says
}

func (s local) Take(ctx context.Context, takes []store.Take, out []store.Verdict) error {
	err := s.Store.Take(ctx, takes, out)
	for i := range out {
		if out[i].Fallback = true; !out[i].Allowed && s.refuses != 0 {
			out[i].Reason = s.refuses
		}
	}
	return err
}

// PEERS.md, line 20: an answer that was given without the store can be told from a real one.
func TestPeers20FallbackIsMarked(t *testing.T) {
	t.Parallel()
	f := setup{store: local{Store: memstore.New(nil)}, config: ruled()}.start(t)
	if a := f.take(`{"policy":"llm"}`); !a.Fallback {
		t.Errorf("got %+v", a)
	}
	if w := ask(f.srv, "GET", "/auth", "",
		site("/x", "192.0.2.1")...); w.Header().Get("X-RateLimit-Fallback") != "true" {
		t.Errorf("got %v", w.Header())
	}
}

func TestForwardAuthHeadersCanBeChosen(t *testing.T) {
	t.Parallel()
	f := &server.ForwardAuth{Headers: &httplimit.HeaderOptions{Fields: httplimit.XRateLimit, Policies: []string{"api"}}}
	s := setup{config: ruled(), options: &server.Options{ForwardAuth: f}}.make(t)
	w := ask(s, "GET", "/auth", "", site("/x", "192.0.2.1")...)
	if h := w.Header(); h.Get("X-RateLimit-Limit") != "5" || h.Get("RateLimit") != "" {
		t.Errorf("got %v", h)
	}
}

// nginx has 4 KiB for the headers of an answer; a longer one is an error, with which its
// configuration may let requests pass.
func TestForwardAuthHeadersAreShort(t *testing.T) {
	t.Parallel()
	name := func(c string, i, n int) string { return fmt.Sprintf("%02d", i) + strings.Repeat(c, n-2) }
	for _, long := range []int{16, 42, 128} {
		var cfg engine.Config
		var applied, shadows []rules.Apply
		for i := range store.MaxBuckets {
			p := drawgate.Policy{Name: name("%", i, long)}
			for j := range store.MaxLimits {
				p.Limits = append(p.Limits, drawgate.Limit{
					Name: name("l", j, min(long, 64)), Kind: drawgate.Rolling,
					Window: time.Hour * time.Duration(j+1), Amount: 1e12,
				})
			}
			if i == store.MaxBuckets-1 {
				p.Limits[3].Amount = 2
			}
			shadow := p
			shadow.Name, shadow.Limits = name("~", i, long),
				[]drawgate.Limit{{Name: "l", Kind: drawgate.Rolling, Window: time.Hour, Amount: 1}}
			cfg.Policies = append(cfg.Policies, engine.Policy{Policy: p}, engine.Policy{Policy: shadow, Shadow: true})
			applied = append(applied, rules.Apply{Policy: p.Name, Key: "ip"})
			shadows = append(shadows, rules.Apply{Policy: shadow.Name, Key: "ip"})
		}
		for part := range slices.Chunk(append(applied, shadows...), rules.MaxApply) {
			cfg.Rules = append(cfg.Rules, rules.Rule{Apply: part})
		}
		s := setup{config: cfg}.make(t)
		for i, want := range []int{200, 200, 429} {
			w := ask(s, "GET", "/auth", "", site("/x", "192.0.2.1")...)
			var head strings.Builder
			if err := w.Header().Write(&head); err != nil {
				t.Fatal(err)
			}
			h := w.Header()
			if n := head.Len(); w.Code != want || n > 4096-150 { // net/http adds the status, Date and Content-Length
				t.Errorf("names of %d bytes, %d: %d with %d bytes of headers", long, i, w.Code, n)
			}
			const tightest = "/03l"
			if !strings.Contains(h.Get("RateLimit"), tightest) ||
				!strings.Contains(h.Get("RateLimit-Policy"), tightest) || h.Get("X-RateLimit-Limit") != "2" ||
				strings.Count(h.Get("RateLimit"), ";r=") != strings.Count(h.Get("RateLimit-Policy"), ";q=") {
				t.Errorf("names of %d bytes, %d: %v", long, i, h)
			}
			if (h.Get("X-RateLimit-Shadow") != "") != (i == 1) {
				t.Errorf("names of %d bytes, %d: shadows %q", long, i, h.Get("X-RateLimit-Shadow"))
			}
		}
	}
}

// Browsers do not use this interface: a page of another origin cannot send its headers, and the
// headers of those that visit the site are not ours to judge.
func TestForwardAuthPassesOnWhatBrowsersSay(t *testing.T) {
	t.Parallel()
	s := setup{config: ruled()}.make(t)
	w := ask(s, "POST", "/auth", "", append(asked("POST", "/x", "api.example.com", "192.0.2.1"),
		"Sec-Fetch-Site: cross-site", "Origin: https://evil.example")...)
	if w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(s, "GET", "/auth", "", "Sec-Fetch-Site: cross-site"); w.Code != 422 {
		t.Errorf("without a description: %d %s", w.Code, w.Body)
	}
}
