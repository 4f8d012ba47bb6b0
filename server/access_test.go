package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// Secrets of the access tokens in tests.
const (
	taker  = "secret-of-the-taker"
	reader = "secret-of-the-reader"
	admin  = "secret-of-the-admin"
	bound  = "secret-of-one-tenant"
)

// tokens are the access tokens in tests: one of them is known by its hash only.
func tokens() []server.Token {
	sum := sha256.Sum256([]byte(reader))
	return []server.Token{
		{Name: "taker", Secret: taker, Roles: []server.Role{server.RoleTake}},
		{Name: "reader", SHA256: hex.EncodeToString(sum[:]), Roles: []server.Role{server.RoleRead}},
		{Name: "admin", Secret: admin, Roles: []server.Role{server.RoleAdmin}},
		{Name: "bound", Secret: bound, Roles: []server.Role{server.RoleAdmin}, Tenant: "acme"},
	}
}

// ask sends a request to a handler, with headers given as "Name: value".
func ask(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1"
	for _, text := range headers {
		name, v, _ := strings.Cut(text, ": ")
		r.Header.Add(name, v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func bearer(secret string) string { return "Authorization: Bearer " + secret }

func TestEveryRouteWantsItsRole(t *testing.T) {
	t.Parallel()
	s := setup{options: &server.Options{Tokens: tokens(), Metrics: http.NotFoundHandler()}}.make(t)
	may := map[server.Role]map[string]bool{
		server.RoleTake:  {taker: true, admin: true},
		server.RoleRead:  {reader: true, admin: true},
		server.RoleAdmin: {admin: true},
		"":               {"": true, "a guess": true, taker: true, reader: true, admin: true},
	}
	for _, r := range s.Routes() {
		if r.Path == "/auth" {
			continue // it has a header of its own: see TestProxyNeedsATokenOfItsOwn
		}
		path := strings.ReplaceAll(r.Path, "{name}", "llm")
		for _, secret := range []string{"", "a guess", taker, reader, admin} {
			w := ask(s.AdminHandler(), r.Methods[0], path, "", bearer(secret))
			refused := w.Code == http.StatusUnauthorized || w.Code == http.StatusForbidden
			if refused == may[r.Role][secret] {
				t.Errorf("%s with %q: %d %s", path, secret, w.Code, w.Body)
			}
			if known := secret == taker || secret == reader ||
				secret == admin; refused && known != (w.Code == http.StatusForbidden) {
				t.Errorf("%s with %q: %d", path, secret, w.Code)
			}
			if w.Code == http.StatusUnauthorized && w.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("%s: an unauthorized answer does not say what it wants", path)
			}
		}
	}
}

func TestAdministrationIsOnItsOwnHandler(t *testing.T) {
	t.Parallel()
	s := everyRoute(t)
	for _, r := range s.Routes() {
		path := strings.ReplaceAll(r.Path, "{name}", "llm")
		elsewhere := strings.Contains(ask(s, r.Methods[0], path, "").Body.String(), "admin listener only")
		if elsewhere != r.Admin {
			t.Errorf("%s: on the public handler %v, want %v", path, !elsewhere, !r.Admin)
		}
	}
}

func TestHowATokenIsSent(t *testing.T) {
	t.Parallel()
	s := setup{options: &server.Options{Tokens: tokens()}}.make(t)
	for _, c := range []struct {
		want    int
		headers []string
	}{
		{200, []string{bearer(taker)}},
		{200, []string{"Authorization: bearer  " + taker}},
		{200, []string{"X-Drawgate-Token: " + taker}},
		{401, nil},
		{401, []string{"Authorization: Basic " + taker}},
		{401, []string{"Authorization: " + taker}},
		{401, []string{bearer(taker + " ")}},
		{401, []string{bearer("")}},
		{401, []string{bearer(taker), bearer(taker)}},
	} {
		if w := ask(s, "POST", "/v1/take", `{"policy":"llm"}`, c.headers...); w.Code != c.want {
			t.Errorf("%q: %d %s", c.headers, w.Code, w.Body)
		}
	}
	if w := ask(s, "POST", "/v1/take?access_token="+taker, `{"policy":"llm"}`); w.Code != 401 {
		t.Errorf("a token in an address ends in logs: %d", w.Code)
	}
}

func TestBadTokensAreReported(t *testing.T) {
	t.Parallel()
	ok := tokens()[0]
	for name, c := range map[string]struct {
		list []server.Token
		says string
	}{
		"neither":  {[]server.Token{{Roles: ok.Roles}}, "either"},
		"both":     {[]server.Token{{Secret: taker, SHA256: tokens()[1].SHA256, Roles: ok.Roles}}, "either"},
		"short":    {[]server.Token{{Secret: "secret", Roles: ok.Roles}}, "6 bytes"},
		"no hash":  {[]server.Token{{SHA256: "secret", Roles: ok.Roles}}, "64 hexadecimal"},
		"no role":  {[]server.Token{{Name: "x", Secret: taker}}, `"x" has no role`},
		"bad role": {[]server.Token{{Secret: taker, Roles: []server.Role{"root"}}}, `"root"`},
		"the same": {[]server.Token{ok, ok}, "same secret"},
	} {
		e, err := engine.New(downStore{}, engine.Config{Policies: enforced(policies()...)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = server.New(e, downStore{}, &server.Options{Tokens: c.list}); err == nil ||
			!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret-of") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// req: E4
func TestBoundTokenTouchesOneTenantOnly(t *testing.T) {
	t.Parallel()
	cfg := engine.Config{Policies: enforced(policies()...), Rules: []rules.Rule{
		{
			Match: rules.Match{Path: "/own"}, Tenant: `attr("tenant")`,
			Apply: []rules.Apply{{Policy: "llm", Key: "user"}},
		},
		{
			Match: rules.Match{Path: "/chosen"}, Tenant: `header("X-Tenant")`,
			Apply: []rules.Apply{{Policy: "llm", Key: "user"}},
		},
		{Match: rules.Match{Path: "/silent"}, Apply: []rules.Apply{{Policy: "llm", Key: "user"}}},
		{Match: rules.Match{Path: "/shared"}, Tenant: `"all"`, Apply: []rules.Apply{{Policy: "llm", Key: "user"}}},
	}}
	reload := func(context.Context) ([]string, error) { return nil, nil }
	h := setup{config: cfg, options: &server.Options{Tokens: tokens(), Reload: reload}}.make(t).AdminHandler()
	acme, other := reservation(t, h, `"tenant":"acme"`), reservation(t, h, `"tenant":"other"`)
	for _, c := range []struct {
		path, body string
		want       int
	}{
		{"/v1/take", `{"policy":"llm"}`, 200},
		{"/v1/take", `{"policy":"llm","tenant":"acme"}`, 200},
		{"/v1/take", `{"policy":"llm","tenant":"other"}`, 403},
		{"/v1/take", `{"buckets":[{"policy":"llm"},{"policy":"tiers","tenant":"other"}]}`, 403},
		{"/v1/take", `{"attributes":{"path":"/own","user":"u"}}`, 200},
		{"/v1/take", `{"attributes":{"path":"/own","user":"u","attrs":{"tenant":"other"}}}`, 200},
		{"/v1/take", `{"attributes":{"path":"/chosen","user":"u","headers":{"X-Tenant":"acme"}}}`, 200},
		{"/v1/take", `{"attributes":{"path":"/chosen","user":"u","headers":{"X-Tenant":"other"}}}`, 403},
		{"/v1/take", `{"attributes":{"path":"/silent","user":"u"}}`, 200},
		{"/v1/take", `{"attributes":{"path":"/shared","user":"u"}}`, 403},
		{"/v1/explain", `{"attributes":{"path":"/chosen","user":"u","headers":{"X-Tenant":"other"}}}`, 403},
		{"/v1/status", `{"policy":"llm","tenant":"other"}`, 403},
		{"/v1/reset", `{"policy":"llm","tenant":"other"}`, 403},
		{"/v1/pause", `{"policy":"llm","tenant":"other","for_ms":1000}`, 403},
		{"/v1/unpause", `{"policy":"llm","tenant":"other","until":"2026-01-01T00:00:00Z"}`, 403},
		{"/v1/adjust", `{"policy":"llm","tenant":"other","used":0,"reason":"r"}`, 403},
		{"/v1/policies/llm/disable", `{"for_ms":1}`, 403},
		{"/v1/policies/llm/enable", ``, 403},
		{"/v1/reload", ``, 403},
		{"/v1/settle", `{"reservation":"` + other + `"}`, 403},
		{"/v1/settle", `{"reservation":"` + acme + `"}`, 200},
	} {
		if w := ask(h, "POST", c.path, c.body, bearer(bound)); w.Code != c.want {
			t.Errorf("%s %s: %d %s", c.path, c.body, w.Code, w.Body)
		}
	}
	if w := ask(h, "GET", "/v1/buckets?policy=llm&tenant=other", "", bearer(bound)); w.Code != 403 {
		t.Errorf("keys of another tenant: %d %s", w.Code, w.Body)
	}
	var b api.BucketsAnswer
	decode(t, ask(h, "GET", "/v1/buckets?policy=llm", "", bearer(bound)), &b)
	if len(b.Keys) != 2 || b.Keys[0] != "default" || b.Keys[1] != "u" || b.Tenant != "acme" {
		t.Errorf("keys: %+v", b)
	}
	var st api.StatusAnswer
	decode(t, ask(h, "GET", "/v1/status?policy=llm&key=u", "", bearer(admin)), &st)
	if st.Limits[0].Used != 0 {
		t.Errorf("of the server's own tenant %d are used", st.Limits[0].Used)
	}
}

// Each route either answers for the token's tenant alone (TestBoundTokenTouchesOneTenantOnly), or
// shows nothing of any tenant, or refuses. A new route has to say here which.
//
// req: E4
func TestBoundTokenSeesNoOtherTenant(t *testing.T) {
	t.Parallel()
	const secret = "seen-by-all-of-them"
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, secret) })
	list := append(tokens(), server.Token{
		Name: "bound reader", Secret: "secret-of-one-reader",
		Roles: []server.Role{server.RoleRead}, Tenant: "acme",
	})
	s := setup{options: &server.Options{Tokens: list, Metrics: metrics}}.make(t)
	const own, nothing, refused = "answers for its tenant", "shows nothing of tenants", "refuses"
	of := map[string]string{
		"/auth": own, "/v1/take": own, "/v1/settle": own, "/v1/status": own, "/v1/explain": own, "/v1/buckets": own,
		"/v1/usage": own, "/v1/waiting": own, "/v1/refusals": own, "/v1/reset": own,
		"/v1/pause": own, "/v1/unpause": own, "/v1/adjust": own, "/v1/history": own,
		"/v1/policies": nothing, "/healthz": nothing, "/readyz": nothing, "/healthcheck": nothing,
		"/openapi.json":               nothing,
		"/v1/policies/{name}/disable": refused, "/v1/policies/{name}/enable": refused, "/v1/reload": refused,
		"/metrics": refused, "/v1/upstreams": refused, "/v1/spend": refused,
		"/v1/incidents": refused, "/v1/incidents/{id}": refused,
		"/v1/keys": refused, "/v1/keys/{name}": refused, "/v1/keys/{name}/rotate": refused,
		"/v1/keys/{name}/disable": refused, "/v1/keys/{name}/enable": refused, "/v1/history/keys": refused,
	}
	for _, r := range s.Routes() {
		kind := of[r.Path]
		if kind == "" {
			t.Errorf("%s: what does a token that is bound to a tenant see there?", r.Path)
		}
		for _, token := range []string{bound, "secret-of-one-reader"} {
			w := ask(s.AdminHandler(), r.Methods[0], strings.ReplaceAll(r.Path, "{name}", "llm"), "", bearer(token))
			if strings.Contains(w.Body.String(), secret) || kind == refused && w.Code != http.StatusForbidden ||
				kind == nothing && w.Code != http.StatusOK {
				t.Errorf("%s %s: %d %.200s", r.Path, kind, w.Code, w.Body)
			}
		}
	}
	if w := ask(s.AdminHandler(), "GET", "/metrics", "", bearer(reader)); w.Body.String() != secret {
		t.Errorf("who may read everything: %d %s", w.Code, w.Body)
	}
}

// The rules may be replaced between the check of a request and its explanation.
func TestExplainStaysWithinATenant(t *testing.T) {
	t.Parallel()
	cfg := engine.Config{Policies: enforced(policies()...), Rules: []rules.Rule{{
		Tenant: `"other"`,
		Apply:  []rules.Apply{{Policy: "llm", Key: `"k"`}},
	}}}
	e, err := engine.New(memstore.New(nil), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	req := engine.Request{Attributes: &rules.Attributes{Tenant: "acme"}, Within: "acme"}
	out, err := present.Explain(t.Context(), e, &req, 0, present.Problem)
	if !errors.Is(err, engine.ErrOtherTenant) {
		t.Errorf("got %+v, %v", out, err)
	}
}

// reservation holds a request of the policy llm, and returns its token.
func reservation(t *testing.T, h http.Handler, more string) string {
	t.Helper()
	var a api.Answer
	decode(t, ask(h, "POST", "/v1/take", `{"policy":"llm","hold_ms":60000,`+more+`}`, bearer(admin)), &a)
	return a.Reservation
}

// decode reads an answer.
func decode(t *testing.T, w *httptest.ResponseRecorder, to any) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), to); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
}

func TestHealthTellsStrangersLittle(t *testing.T) {
	t.Parallel()
	s := setup{options: &server.Options{Tokens: tokens()}}.make(t)
	for _, path := range []string{"/healthz", "/readyz", "/healthcheck"} {
		if w := ask(s, "GET", path, ""); w.Code != 200 || strings.Contains(w.Body.String(), "llm") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := ask(s, "GET", "/readyz", "", bearer(reader)); w.Code != 200 || !strings.Contains(w.Body.String(), "llm") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Nothing that is secret, or might be somebody's name, is written to the log or into an error.
func TestSecretsAndKeysStayOutOfLogs(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	o := &server.Options{Tokens: tokens(), Logger: slog.New(slog.NewTextHandler(&log,
		&slog.HandlerOptions{Level: slog.LevelDebug}))}
	const key = "alice@example.com"
	cfg := engine.Config{Policies: enforced(policies()...), Rules: []rules.Rule{{
		When:  `int(header("X-N")) > 1`,
		Apply: []rules.Apply{{Policy: "llm", Key: "user"}},
	}}}
	for _, store := range []store.Store{downStore{}, memstore.New(nil)} {
		h := setup{store: store, config: cfg, options: o}.make(t).AdminHandler()
		for _, secret := range []string{admin, taker, "a-wrong-secret-of-somebody"} {
			for _, c := range [][2]string{
				{"/v1/take", `{"policy":"llm","key":"` + key + `"}`},
				{"/v1/status", `{"policy":"llm","key":"` + key + `"}`},
				{"/v1/reset", `{"policy":"llm","key":"` + key + `"}`},
				{"/v1/take", `{"attributes":{"user":"` + key + `","headers":{"X-N":"` + key + `"}}}`},
				{"/v1/take", `{"policy":"llm","key":"` + key + `","costs":{"tokens":5000}}`},
				{"/v1/take", `{"policy":"slots","key":"` + key + `"}`},
			} {
				if text := ask(h, "POST", c[0], c[1], bearer(secret)).Body.String(); strings.Contains(text,
					"secret-of") || !strings.Contains(text, `"key"`) && strings.Contains(text, key) {
					t.Errorf("%s %s: %s", c[0], c[1], text)
				}
			}
			ask(h, "GET", "/auth", "", "X-Drawgate-Token: "+secret, "X-Forwarded-Uri: /"+key, "X-Forwarded-Method: GET",
				"X-N: "+key, bearer("secret-of-the-client"))
		}
	}
	if text := log.String(); strings.Contains(text, "alice") || strings.Contains(text, "secret-of") || log.Len() == 0 {
		t.Errorf("the log says:\n%s", text)
	}
}
