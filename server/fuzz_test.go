package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
)

// FuzzTake sends bodies to /v1/take: each is answered with an answer or a problem that says
// something, and never both.
func FuzzTake(f *testing.F) {
	for _, seed := range []string{
		`{"policy":"llm","key":"k","costs":{"requests":1,"tokens":500},"priority":3,"labels":{"task":"embed"}}`,
		`{"policy":"llm","hold_ms":1000,"id":"a"}`,
		`{"policy":"llm","hold_ms":1000,"id":"a","grant":"00000000000000a1"}`,
		`{"attributes":{"path":"/model","user":"u","headers":{"A":"b"}},"costs":{"tokens":5},"hold_ms":1000}`,
		`{"attributes":{"host":"api.example.com","ip":"192.0.2.1","attrs":{"a":"b"}}}`,
		`{"attributes":{"path":"/stream"}}`, `{"takes":[{"policy":"tiers"},{"policy":"slots"}]}`,
		`{"buckets":[{"policy":"llm","costs":{"tokens":9}},{"policy":"tiers"}]}`, `{"policy":"llm","wait_ms":1}`,
		`{"takes":null}`, `null`, `{`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if strings.Contains(body, "wait_ms") {
			return // it would wait
		}
		s := setup{config: fuzzed()}.make(t)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/take", strings.NewReader(body)))
		if w.Code == 200 {
			var a api.TakeAnswer
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || a.Answer == nil && a.Answers == nil {
				t.Fatalf("%q: %v in %s", body, err, w.Body)
			}
			return
		}
		var p api.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || p.Code == "" ||
			p.Detail == "" || w.Code >= 500 {
			t.Fatalf("%q: %d, %v in %s", body, w.Code, err, w.Body)
		}
	})
}

// FuzzToken settles with tokens that nobody gave out.
func FuzzToken(f *testing.F) {
	f.Add("e30")
	f.Add("eyJ2IjoxLCJpIjoiYSIsImUiOjEsImIiOlt7InBvbGljeSI6ImxsbSJ9XX0")
	f.Add("eyJ2IjoyLCJpIjoiYSIsImciOjEsImUiOjEsImIiOlt7InBvbGljeSI6ImxsbSJ9XX0")
	f.Fuzz(func(t *testing.T, text string) {
		s := setup{}.make(t)
		body, err := json.Marshal(api.SettleRequest{Reservation: text})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/settle", strings.NewReader(string(body))))
		if w.Code != 200 && w.Code != 422 || w.Code == 200 && !strings.Contains(w.Body.String(), api.OutcomeGone) {
			t.Fatalf("%q: %d %s", text, w.Code, w.Body)
		}
	})
}

// fuzzed has the policies that requests in this file name, and rules.
func fuzzed() engine.Config {
	c := ruled()
	c.Policies = append(c.Policies, enforced(policies()[0])...)
	return c
}

// FuzzScan compares the two ways of reading a request.
func FuzzScan(f *testing.F) {
	for _, body := range append(append([]string{}, usual...), odd...) {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) { same(t, body) })
}

// FuzzForwardAuth sends what proxies might pass on. No path of another spelling is exempt, and
// nothing else than a proxy's own mistakes is an error.
func FuzzForwardAuth(f *testing.F) {
	f.Add("/x?a=b", "/x?a=b", "GET", "api.example.com", "192.0.2.1, 10.0.0.1", "status=403")
	f.Add("/health/../x", "", "POST", "[::1]:80", "[2001:db8::1]:80", "")
	f.Add("", "http://h/%2e%2e", "", "", "unknown", "route=%zz&status=1")
	cfg := ruled()
	cfg.Rules = slices.Delete(cfg.Rules, 1, 2) // what comes from inside is exempt, however it is spelled
	s := setup{config: cfg}.make(f)
	f.Fuzz(func(t *testing.T, uri, url, method, host, client, query string) {
		r := httptest.NewRequest(http.MethodGet, "/auth", nil)
		r.RemoteAddr, r.URL.RawQuery = "127.0.0.1:1", query
		for name, v := range map[string]string{
			"X-Forwarded-Uri": uri, "X-Original-Url": url, "X-Forwarded-Method": method, "X-Forwarded-Host": host,
			"X-Forwarded-For": client,
		} {
			if v != "" {
				r.Header.Set(name, v)
			}
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if refusal := w.Header().Get("X-RateLimit-Status"); w.Code != 200 && w.Code != 422 && refusal != "429" &&
			refusal != "422" {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		counted := w.Code != http.StatusOK || w.Header().Get("X-RateLimit-Limit") != ""
		if host == "api.example.com" && !counted && !strings.Contains(uri+url, "health") &&
			!strings.Contains(uri+url, "%") {
			t.Fatalf("%q %q for %q is not counted: %v", uri, url, client, w.Header())
		}
	})
}
