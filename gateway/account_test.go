package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/outbound"
)

// TestAccountStaysHere: callers do not learn whose account they share, nor what is left of it, and
// are not sent past the gateway.
func TestAccountStaysHere(t *testing.T) {
	t.Parallel()
	const organization, uuid = "org-4bcDEF0123456789", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
	b := newBench(t, func(s *setup) {
		s.config.Upstreams[0].Others = []string{"/v1/files"}
		s.config.Upstreams[0].Breaker = outbound.Breaker{Failures: -1}
		s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			h := w.Header()
			for _, name := range []string{
				"openai-organization", "openai-project", "anthropic-organization-id", "x-ratelimit-remaining-tokens",
				"x-ratelimit-limit-project-tokens",
				"anthropic-ratelimit-requests-remaining", "anthropic-priority-input-tokens-limit", "ratelimit-policy",
				"location", "content-location", "operation-location", "refresh",
			} {
				h.Set(name, "acme-account")
			}
			h.Set("Content-Type", "application/json")
			h.Set("X-Request-Id", "req_1")
			status := 0
			fmt.Sscan(r.Header.Get("X-Status"), &status)
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error":{"message":"Rate limit reached for gpt-4o in organization %s on requests per `+
				`min of acme-account, projects/acme-1, your organization (%s), proj_Ab1234567"},"user_id":"user_3D0IVsejFIV6kOYwkxFE9nKiq0g"}`, organization, uuid)
		})
	})
	for _, c := range []struct {
		method, path string
		status, want int
	}{
		{"POST", "/v1/chat/completions", 200, 200},
		{"POST", "/v1/chat/completions", 400, 400},
		{"POST", "/v1/chat/completions", 307, 502},
		{"POST", "/v1/files", 201, 201},
		{"POST", "/v1/files", 307, 502},
		{"GET", "/v1/models", 302, 502},
		{"GET", "/v1/models", 304, 304},
		{"GET", "/v1/models", 403, 403},
		{"POST", "/v1/chat/completions", 429, 429},
	} {
		r := b.raw(t.Context(), c.method, "/openai"+c.path, `{"model":"gpt-4o","messages":[]}`,
			"Authorization: Bearer "+alice, "X-Status: "+fmt.Sprint(c.status))
		resp, err := b.server.Client().Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		all := fmt.Sprint(resp.Header)
		if c.status >= http.StatusBadRequest {
			all += string(body)
			if !strings.Contains(string(body),
				"Rate limit reached for gpt-4o in organization (account) on requests per min") {
				t.Errorf("%d: got %s, want the rest of the message as it is", c.status, body)
			}
		}
		for _, secret := range []string{"acme", organization, uuid, "proj_", "user_3D"} {
			if strings.Contains(all, secret) {
				t.Errorf("%s answered by %d shows %s: %s", c.path, c.status, secret, all)
			}
		}
		if resp.StatusCode != c.want || c.want != http.StatusBadGateway && resp.Header.Get("X-Request-Id") != "req_1" {
			t.Errorf("%s answered by %d: got %d %v, want %d", c.path, c.status, resp.StatusCode, resp.Header, c.want)
		}
	}
}

// TestAccountOfAnErrorInAStream: an error that comes after a stream has begun does not show the
// account either, and the other events pass as they are, whatever is in them.
func TestAccountOfAnErrorInAStream(t *testing.T) {
	t.Parallel()
	const (
		organization, uuid = "org-4bcDEF0123456789", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
		text               = "error: org-4bcDEF0123456789 of acme-account, " + uuid
		message            = "no quota for " + organization + ", projects/acme-1 and acme-account (" + uuid + ")"
		hidden             = "no quota for (account), (account) and (account) ((account))"
	)
	chunk := `data: {"id":"` + uuid + `","choices":[{"index":0,"delta":{"content":"` + text + `"}}]}`
	completed := `data: {"type":"response.completed","response":{"error":null,"output":"` + text + `"}}`
	for _, c := range []struct{ name, path, before, failure string }{
		{"chat", "/openai/v1/chat/completions", chunk, `data: {"error":{"message":"%s","type":"tokens"}}`},
		{
			"message", "/anthropic/v1/messages", chunk,
			"event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"%s\"}}",
		},
		{
			"generation", "/gemini/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", chunk,
			`data: {"error": {"code": 429, "message": "%s"}}`,
		},
		{"response", "/openai/v1/responses", completed, `data: {"type":"error","code":"x","message":"%s"}`},
		{
			"failed response", "/openai/v1/responses", completed,
			`data: {"type":"response.failed","response":{"id":"` + uuid + `","error":{"code":"x","message":"%s"}}}`,
		},
		{
			"several lines", "/openai/v1/responses", completed,
			"data: {\"response\":{\"error\":{\"code\":\"x\",\ndata: \"message\":\"%s\"}}}",
		},
		{"damaged", "/anthropic/v1/messages", chunk, "event: error\ndata: {\"error\":\"%s"},
	} {
		for _, end := range []string{"\n", "\r\n", "\r"} {
			stream := func(message string) string {
				events := c.before + "\n\n" + fmt.Sprintf(c.failure, message)
				return strings.ReplaceAll(events+"\n\n", "\n", end)
			}
			b := newBench(t, func(s *setup) {
				s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					w.Header().Set("Content-Type", "text/event-stream")
					w.Header().Set("Openai-Organization", "acme-account")
					for piece := range strings.SplitAfterSeq(stream(message), "e") { // in the middle of names, too
						io.WriteString(w, piece)
						http.NewResponseController(w).Flush()
					}
				})
			})
			body := `{"model":"gpt-4o","stream":true,"messages":[],"input":"a"}`
			switch {
			case strings.HasPrefix(c.path, "/gemini"):
				body = `{"contents":[]}`
			case strings.HasPrefix(c.path, "/anthropic"):
				body = `{"model":"claude-sonnet-4-5","stream":true,"max_tokens":5,"messages":[]}`
			}
			r := b.raw(t.Context(), http.MethodPost, c.path, body, "Authorization: Bearer "+alice,
				"X-Api-Key: "+alice, "X-Goog-Api-Key: "+alice)
			if got := b.do(r); got.status != http.StatusOK || got.body != stream(hidden) {
				t.Errorf("%s: got %d %q\nwant %q", c.name, got.status, got.body, stream(hidden))
			}
		}
	}
}

// TestCacheKnowsWhatIsPassedOn: a call is only the same as another one if the provider got the same
// headers, but for those that change no answer.
func TestCacheKnowsWhatIsPassedOn(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		s.config.Upstreams[0].Models[0].Cache = gateway.Cache{TTL: time.Hour, Shared: true}
	}, func(t *testing.T, b *bench) {
		for _, c := range []struct {
			hit     string
			headers []string
		}{
			{"", nil},
			{gateway.CacheHit, nil},
			{gateway.CacheHit, []string{
				"User-Agent: sdk/2", "X-Stainless-Retry-Count: 1", "Traceparent: 00-1",
				"X-Forwarded-For: 192.0.2.7", "Authorization: Bearer " + bob,
			}},
			{"", []string{"X-Project: a"}},
			{"", []string{"X-Project: b"}},
			{"", []string{"X-Project: a", "+X-Project: b"}},
			{"", []string{"X-Project: a,b"}},
			{gateway.CacheHit, []string{"X-Project: b"}},
			{"", []string{"Openai-Beta: x"}},
			{"", []string{"Accept-Language: de"}},
			{gateway.CacheHit, []string{"X_Project: c"}}, // not passed on
		} {
			got := b.call("openai", false, "Hello!", c.headers...)
			if got.status != http.StatusOK || got.header.Get(gateway.HeaderCache) != c.hit {
				t.Errorf("with %q: got %d, from the cache %q, want %q", c.headers, got.status,
					got.header.Get(gateway.HeaderCache), c.hit)
			}
		}
	})
}

// TestWrongKeysAreSeen: each call with a wrong key counts, and the log says so without the keys,
// and not each time.
func TestWrongKeysAreSeen(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	counted := map[string]int{}
	var log bytes.Buffer
	inBubble(t, func(s *setup) {
		s.options.WrongKey = func(upstream string) {
			mu.Lock()
			defer mu.Unlock()
			counted[upstream]++
		}
		s.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
	}, func(t *testing.T, b *bench) {
		for i := range 60 {
			b.call("openai", false, "Hello!", "Authorization: Bearer sk-guess-"+fmt.Sprint(i))
		}
		if got := b.call("openai", false, "Hello!"); got.status != http.StatusOK {
			t.Errorf("got %d %s", got.status, got.body)
		}
		time.Sleep(time.Minute)
		r := b.raw(t.Context(), http.MethodPost, "/anthropic/v1/messages", `{}`)
		b.do(r)
	})
	if counted["openai"] != 60 || counted["anthropic"] != 1 {
		t.Errorf("counted %v, want 60 and 1", counted)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "upstream=openai client=192.0.2.1 shown=true") ||
		!strings.Contains(lines[1], "shown=false not_logged=59") || strings.Contains(log.String(), "guess") {
		t.Errorf("the log says\n%s", &log)
	}
}
