package gateway_test

import (
	"io"
	"net/http"
	"net/netip"
	"sync"
	"testing"

	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/httplimit"
)

// TestPathsOfAKey: a key with paths makes no other calls, whether a quota counts them or not, and
// no fallback of another path.
func TestPathsOfAKey(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		k := &s.config.Keys[0]
		k.Paths = []string{"openai/v1/chat/completions", "openai/v1/files*", "gemini/v1beta/models/gemini-2.5-flash:*"}
		k.Others = []string{"openai/v1/files/*"}
		for i := range s.config.Upstreams {
			s.config.Upstreams[i].Others = []string{"/v1/files", "/v1/files/*", "/v1/batches"}
		}
		onePerMinute(s)
		for i := range s.config.Upstreams {
			if u := &s.config.Upstreams[i]; u.Name == "gemini" {
				u.Models = []gateway.Model{
					{Name: "gemini-2.5-flash", Policy: "upstream", Fallbacks: []string{"gemini-2.5-flash-lite"}},
					{Name: "*", Policy: "other"},
				}
			}
		}
		other := generous()
		other.Name = "other"
		s.policies = append(s.policies, other)
	}, func(t *testing.T, b *bench) {
		if got := b.call("gemini", false, "Hello!"); got.status != http.StatusOK {
			t.Errorf("its path: got %d %s", got.status, got.body)
		}
		got := b.call("gemini", false, "Hello!", gateway.HeaderTimeout+": 0")
		if got.status != http.StatusTooManyRequests {
			t.Errorf("a fallback of another path: got %d %s, want a refusal", got.status, got.body)
		}
		got = b.call("openai", false, "Hello!", gateway.HeaderTimeout+": 0")
		if got.status != http.StatusTooManyRequests {
			t.Errorf("its path: got %d %s, want a refusal by the quota", got.status, got.body)
		}
		for _, c := range []struct {
			method, path string
			status       int
		}{
			{"POST", "/openai/v1/responses", http.StatusForbidden},
			{"POST", "/openai/chat/completions", http.StatusForbidden}, // the same call, but not so written
			{"POST", "/openai/v1/chat/completions/", http.StatusBadRequest},
			{"POST", "/openai/v1/chat/Completions", http.StatusForbidden},
			{"POST", "/anthropic/v1/messages", http.StatusForbidden},
			{"GET", "/openai/v1/models", http.StatusForbidden},
			{"POST", "/openai/v1/batches", http.StatusForbidden},
			{"POST", "/openai/v1/files", http.StatusNotFound},                  // not of its others
			{"POST", "/openai/v1/%63hat/completions", http.StatusBadRequest},   // no model: the path is right
			{"POST", "/openai/v1/chat/completions?x=y", http.StatusBadRequest}, // likewise
		} {
			got := b.do(b.raw(t.Context(), c.method, c.path, `{}`, "Authorization: Bearer "+alice))
			if got.status != c.status {
				t.Errorf("%s %s: got %d %s, want %d", c.method, c.path, got.status, got.body, c.status)
			}
			free := b.do(b.raw(t.Context(), c.method, c.path, `{}`, "Authorization: Bearer "+bob))
			if free.status == http.StatusForbidden {
				t.Errorf("%s %s, of a key without paths: got %d %s", c.method, c.path, free.status, free.body)
			}
		}
	})
}

// TestAddressesOfAKey: a key's calls come from its networks: as the connection says, or a proxy
// that is trusted. The provider does not learn the address.
func TestAddressesOfAKey(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []http.Header
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	gatewayBehind := func(trusted ...netip.Prefix) *bench {
		return newBench(t, func(s *setup) {
			s.config.Keys[0].Addresses = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
			s.config.Keys[1].Addresses = []netip.Prefix{loopback}
			s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, r.Header.Clone())
				io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
			})
			var err error
			if s.options.Proxies, err = httplimit.NewProxies(trusted,
				&httplimit.ProxyOptions{Header: "X-Caller"}); err != nil {
				t.Fatal(err)
			}
		})
	}
	direct, behind := gatewayBehind(), gatewayBehind(loopback)
	for _, c := range []struct {
		b           *bench
		key, caller string
		status      int
	}{
		{direct, bob, "", http.StatusOK},
		{direct, alice, "", http.StatusForbidden},
		{direct, alice, "203.0.113.7", http.StatusForbidden}, // the caller's own word
		{direct, bob, "203.0.113.7", http.StatusOK},
		{behind, alice, "203.0.113.7", http.StatusOK},
		{behind, alice, "::ffff:203.0.113.7", http.StatusOK},
		{behind, alice, "203.0.112.7", http.StatusForbidden},
		{behind, alice, "", http.StatusForbidden}, // the proxy's own
		{behind, alice, "nonsense", http.StatusForbidden},
		{behind, bob, "", http.StatusOK},
		{behind, bob, "203.0.113.7", http.StatusForbidden},
	} {
		got := c.b.call("openai", false, "Hello!", "Authorization: Bearer "+c.key, "X-Caller: "+c.caller)
		if got.status != c.status {
			t.Errorf("%s from %q: got %d %s, want %d", c.key, c.caller, got.status, got.body, c.status)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for i, h := range seen {
		if _, there := h["X-Caller"]; there && i >= 2 { // of the calls behind the proxy
			t.Errorf("the provider was sent %v", h)
		}
	}
}
