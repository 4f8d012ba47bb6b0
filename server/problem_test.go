package server_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store/memstore"
)

func TestProblems(t *testing.T) {
	t.Parallel()
	f := plain(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		code               api.Code
		says               string
	}{
		{"POST", "/v1/take", ``, 400, api.CodeBadJSON, "empty"},
		{"POST", "/v1/take", `{`, 400, api.CodeBadJSON, "too early"},
		{"POST", "/v1/take", `[]`, 400, api.CodeBadJSON, "an object"},
		{"POST", "/v1/take", `{"polici":"llm"}`, 400, api.CodeBadJSON, `unknown field "polici"`},
		{"POST", "/v1/take", `{"policy":"llm"} {}`, 400, api.CodeBadJSON, "after the JSON value"},
		{"POST", "/v1/take", `{"policy":"llm","costs":{"tokens":1.5}}`, 400, api.CodeBadJSON, "an integer"},
		{
			"POST", "/v1/take", `{"policy":"llm","costs":{"tokens":null}}`, 400, api.CodeBadJSON,
			"^costs.tokens must be an integer, not null",
		},
		{
			"POST", "/v1/take", `{"takes":[{"policy":"llm","costs":{"tokens":"5"}}]}`, 400, api.CodeBadJSON,
			"^takes.costs.tokens must be an integer, not string",
		},
		{
			"POST", "/v1/take", `{"policy":"llm","costs":{"tokens":1,"tokens":2}}`, 400, api.CodeBadJSON,
			`"tokens" is used twice`,
		},
		{"POST", "/v1/take", `{"policy":"llm","costs":[]}`, 400, api.CodeBadJSON, "costs must be an object, not array"},
		{
			"POST", "/v1/settle", `{"reservation":"e30","used":{"tokens":null}}`, 400, api.CodeBadJSON,
			"used.tokens must be an integer, not null",
		},
		{
			"POST", "/v1/take", `{"policy":"llm","wait_ms":"5s"}`, 400, api.CodeBadJSON,
			"^wait_ms must be an integer, not string",
		},
		{
			"POST", "/v1/take", `{}`, 422, api.CodeUnknownPolicy,
			"there are several policies: name one of llm, slots, tiers",
		},
		{"POST", "/v1/take", `{"policy":"gpt"}`, 422, api.CodeUnknownPolicy, `"gpt" (have: llm, slots, tiers)`},
		{"POST", "/v1/take", `{"policy":"slot"}`, 422, api.CodeUnknownPolicy, `"slot"; did you mean "slots"?`},
		{"POST", "/v1/take", `{"policy":"llm","costs":{"bytes":1}}`, 422, api.CodeUnknownUnit, `"bytes"`},
		{"POST", "/v1/take", `{"policy":"llm","costs":{"tokens":-1}}`, 422, api.CodeInvalid, "-1"},
		{"POST", "/v1/take", `{"policy":"llm","costs":{"tokens":1001}}`, 422, api.CodeNeverFits, "at most 1000"},
		{"POST", "/v1/take", `{"policy":"llm","priority":10}`, 422, api.CodeInvalid, "priority 10"},
		{"POST", "/v1/take", `{"policy":"llm","wait_ms":-1}`, 422, api.CodeInvalid, "wait_ms -1"},
		{"POST", "/v1/take", `{"policy":"llm","hold_ms":9223372036854775807}`, 422, api.CodeInvalid, "hold_ms"},
		{"POST", "/v1/take", `{"policy":"llm","id":"x"}`, 422, api.CodeInvalid, "hold_ms"},
		{
			"POST", "/v1/take", `{"policy":"llm","hold_ms":1000,"grant":"00000000000000a1"}`, 422, api.CodeInvalid,
			"a grant needs an id",
		},
		{
			"POST", "/v1/take", `{"policy":"llm","grant":"00000000000000a1"}`, 422, api.CodeInvalid,
			"a grant needs an id",
		},
		{
			"POST", "/v1/take", `{"policy":"llm","hold_ms":1000,"id":"x","grant":"a1"}`, 422, api.CodeInvalid,
			"16 hexadecimal digits",
		},
		{
			"POST", "/v1/take", `{"policy":"llm","hold_ms":1000,"id":"x","grant":"0000000000000000"}`, 422,
			api.CodeInvalid, "not all zero",
		},
		{
			"POST", "/v1/take", `{"takes":[{"policy":"llm"}],"grant":"00000000000000a1"}`, 422, api.CodeInvalid,
			"no fields other than takes",
		},
		{
			"POST", "/v1/settle", `{"reservation":"eyJ2IjoxLCJpIjoiYSIsImUiOjEsImIiOlt7InBvbGljeSI6ImxsbSJ9XX0"}`, 422,
			api.CodeBadToken, "another version",
		},
		{
			"POST", "/v1/settle", `{"reservation":"eyJ2IjoyLCJpIjoiYSIsImUiOjEsImIiOlt7InBvbGljeSI6ImxsbSJ9XX0"}`, 422,
			api.CodeBadToken, "unchanged",
		},
		{"POST", "/v1/take", `{"policy":"slots"}`, 422, api.CodeNeedsHold, "hold_ms"},
		{"POST", "/v1/take", `{"policy":"llm","buckets":[{"policy":"llm"}]}`, 422, api.CodeInvalid, "either"},
		{"POST", "/v1/take", `{"buckets":[]}`, 422, api.CodeInvalid, "empty"},
		{"POST", "/v1/take", `{"buckets":[{"policy":"llm"},{"policy":"llm"}]}`, 422, api.CodeInvalid, "twice"},
		{"POST", "/v1/take", `{"takes":[]}`, 422, api.CodeInvalid, "1 to 100"},
		{
			"POST", "/v1/take", `{"key":"k","takes":[{"policy":"llm"}]}`, 422, api.CodeInvalid,
			"no fields other than takes",
		},
		{"POST", "/v1/take", `{"key":"` + strings.Repeat("k", api.MaxBody) + `"}`, 413, api.CodeTooLarge, "1048576"},
		{"GET", "/v1/take", ``, 405, api.CodeBadMethod, "POST"},
		{"POST", "/v1/settle", `{}`, 422, api.CodeInvalid, "reservation is missing"},
		{"POST", "/v1/settle", `{"reservation":"x!"}`, 422, api.CodeBadToken, "unchanged"},
		{"POST", "/v1/settle", `{"reservation":"e30"}`, 422, api.CodeBadToken, "unchanged"},
		{"POST", "/v1/settle", `{"reservation":"e30","cancel":true,"used":{}}`, 422, api.CodeInvalid, "one of"},
		{"POST", "/v1/settle", `{"reservation":"e30","renew_ms":-5}`, 422, api.CodeInvalid, "renew_ms"},
		{
			"POST", "/v1/settle", `{"reservation":"e30","cancel":true,"take":{}}`, 422, api.CodeInvalid,
			"reservation is missing",
		},
		{
			"POST", "/v1/settle", `{"take":{"policy":"llm","hold_ms":1,"id":"x","grant":"00000000000000a1"}}`, 422,
			api.CodeInvalid, "can only be cancelled",
		},
		{
			"POST", "/v1/settle", `{"cancel":true,"take":{"policy":"llm","hold_ms":1,"id":"x"}}`, 422, api.CodeInvalid,
			"no grant",
		},
		{
			"POST", "/v1/settle",
			`{"cancel":true,"take":{"policy":"nope","hold_ms":1,"id":"x","grant":"00000000000000a1"}}`, 422,
			api.CodeUnknownPolicy, "nope",
		},
		{"DELETE", "/v1/status", ``, 405, api.CodeBadMethod, "GET and POST"},
		{"GET", "/v1/status?polici=llm", ``, 422, api.CodeInvalid, "polici"},
		{"GET", "/v1/status?policy=llm&priority=x", ``, 422, api.CodeInvalid, "not a number"},
		{"GET", "/v2/take", ``, 404, api.CodeNotFound, "/v1/take"},
	} {
		var p api.Problem
		status := f.do(c.method, c.path, c.body, &p)
		if status != c.status || p.Status != c.status || p.Code != c.code || !strings.Contains("^"+p.Detail, c.says) ||
			p.Title == "" {
			t.Errorf("%s %s %.80s: %d %+v, want %d %s with %q", c.method, c.path, c.body, status, p, c.status, c.code,
				c.says)
		}
	}
}

// A page that a user of this machine visits must neither spend its units nor read what is here,
// whatever the method.
func TestWebPagesOfOtherOriginsAreNotServed(t *testing.T) {
	t.Parallel()
	s := setup{options: &server.Options{Metrics: http.NotFoundHandler()}}.make(t)
	for _, r := range s.Routes() {
		if r.Path == "/auth" {
			continue // its headers are those of a visitor of the site behind the proxy
		}
		path := strings.ReplaceAll(r.Path, "{name}", "llm")
		for _, method := range append(slices.Clone(r.Methods), http.MethodHead, http.MethodOptions) {
			for _, header := range []string{
				"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site",
				"Origin: https://evil.example", "Origin: null",
			} {
				if w := ask(s.AdminHandler(), method, path, "", header); w.Code != http.StatusForbidden ||
					!strings.Contains(w.Body.String(), "cross_origin") {
					t.Errorf("%s %s with %s: %d %.100s", method, path, header, w.Code, w.Body)
				}
			}
			for _, header := range []string{
				"", "Sec-Fetch-Site: none", "Sec-Fetch-Site: same-origin",
				"Origin: http://localhost",
			} {
				if w := ask(s.AdminHandler(), method, path, "", header); w.Code == http.StatusForbidden {
					t.Errorf("%s %s with %q: %d %.100s", method, path, header, w.Code, w.Body)
				}
			}
		}
	}
}

// Each warning is logged at most once in ten seconds, with the number of those that were left out.
// One kind does not hide another.
func TestWarningsAreSampledByKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		const storeTimeout = time.Millisecond
		s := setup{
			store: hanging{memstore.New(nil)}, config: ruled(), engine: &engine.Options{StoreTimeout: storeTimeout},
			options: &server.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))},
		}.make(t)
		logged := func() []string {
			lines := strings.FieldsFunc(log.String(), func(r rune) bool { return r == '\n' })
			log.Reset()
			return lines
		}
		takes := func(n int) {
			for range n {
				ask(s, "POST", "/v1/take", `{"policy":"llm"}`)
			}
		}
		const store, proxy = `msg="the store is unavailable"`, `msg="a request from a proxy could not be answered"`
		begin := time.Now()
		takes(4)
		ask(s, "GET", "/auth", "", site("/stream", "192.0.2.1")...)
		if got := logged(); len(got) != 2 || !strings.Contains(got[0], store) ||
			!strings.Contains(got[0], "not_logged=0") ||
			!strings.Contains(got[1], proxy) || !strings.Contains(got[1], "not_logged=0") {
			t.Errorf("both kinds once: got %q", got)
		}
		time.Sleep(time.Until(begin.Add(10*time.Second + storeTimeout)))
		takes(2)
		if got := logged(); len(got) != 1 || !strings.Contains(got[0], store) ||
			!strings.Contains(got[0], "not_logged=3") {
			t.Errorf("ten seconds later: got %q", got)
		}
	})
}

// The clients of a proxy that is refused do not see why, so the log says it: once a minute for each
// reason, with the setting to change, and without the token.
func TestRefusedProxiesAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		options := func(tokens []server.Token) *server.Options {
			return &server.Options{Tokens: tokens, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		}
		logged := func() []string {
			lines := strings.FieldsFunc(log.String(), func(r rune) bool { return r == '\n' })
			log.Reset()
			return lines
		}
		for _, c := range []struct{ token, says string }{
			{"", "a proxy was refused: it sends no access token: let it send one of server.tokens with the role take in X-Drawgate-Token"},
			{"guess-0123456789", "a proxy was refused: the access token in X-Drawgate-Token is not one of server.tokens"},
			{reader, "a proxy was refused: the access token in X-Drawgate-Token does not have the role take"},
		} {
			s := setup{config: ruled(), options: options(tokens())}.make(t)
			begin := time.Now()
			for range 3 {
				ask(s, "GET", "/auth", "", append(site("/x", "192.0.2.1"), "X-Drawgate-Token: "+c.token)...)
			}
			if got := logged(); len(got) != 1 || !strings.Contains(got[0], c.says) ||
				!strings.Contains(got[0], "not_logged=0") ||
				c.token != "" && strings.Contains(got[0], c.token) {
				t.Errorf("token %q: got %q", c.token, got)
			}
			time.Sleep(time.Until(begin.Add(time.Minute)))
			ask(s, "GET", "/auth", "", site("/x", "192.0.2.1")...)
			if got := logged(); len(got) != 1 || !strings.Contains(got[0], "not_logged=2") {
				t.Errorf("token %q, a minute later: got %q", c.token, got)
			}
		}
		s := setup{config: ruled(), options: options(nil)}.make(t)
		for range 2 {
			r := httptest.NewRequest(http.MethodGet, "http://localhost/auth", nil)
			r.RemoteAddr = "192.0.2.9:1234"
			r.Header.Set("X-Forwarded-Uri", "/x")
			r.Header.Set("X-Forwarded-Method", "GET")
			s.ServeHTTP(httptest.NewRecorder(), r)
		}
		if got := logged(); len(got) != 1 || !strings.Contains(got[0], "add it to server.proxies.trusted") ||
			!strings.Contains(got[0], "proxy=192.0.2.9:1234") {
			t.Errorf("an untrusted proxy: got %q", got)
		}
	})
}
