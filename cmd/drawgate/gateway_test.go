package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/llm/simulator"
)

// proxied is a configuration with a gateway.
const proxied = `
store: "memory:"
policies:
  quota: {limits: [{name: rpm, rolling: 1m, amount: 1000, margin: 2s}], wait: {up_to: 1s}}
gateway:
  max_body: 1000
  upstreams:
    mine:
      profile: openai
      url: %[1]s
      owner: project
      models: %[2]s
      estimate: likely
      breaker: {failures: 7, open: 1h, successes: 3}
      retries: 1
  keys:
    - {name: alice, sha256: "%[3]x", team: red, priority: 3, models: ["mine/gpt-4*"]}
  prices: {models: {gpt-4o: {input: "2.50", output: "10"}, gpt-4o-mini: {input: "0.15", output: "0.60"}}}
`

// chat asks a gateway for an answer.
func chat(t *testing.T, url, model, key string) (code int, header http.Header, body string) {
	t.Helper()
	text := fmt.Sprintf(`{"model":%q,"max_tokens":20,"messages":[{"role":"user","content":"Hello!"}]}`, model)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/mine/v1/chat/completions",
		strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(all)
}

// Every setting of the section arrives in the gateway, and a reload puts new keys and models in
// force.
//
// req: C5 E3
func TestGatewayFromItsSection(t *testing.T) {
	t.Parallel()
	provider, err := simulator.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	upstream := httptest.NewServer(provider)
	defer upstream.Close()
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	text := func(models, key string) string {
		return fmt.Sprintf(proxied, upstream.URL, models, sha256.Sum256([]byte(key)))
	}
	v := wired(t, text(`[{model: "*", policy: quota, cache: {ttl: 1h}}]`, "first key"))
	front := httptest.NewServer(v.gateway)
	defer front.Close()

	if code, _, body := chat(t, front.URL, "gpt-4o", "first key"); code != http.StatusOK {
		t.Fatalf("got %d %s", code, body)
	}
	if _, header, _ := chat(t, front.URL, "gpt-4o", "first key"); header.Get(gateway.HeaderCache) != gateway.CacheHit {
		t.Errorf("the same call again: got %v, want an answer from the cache", header)
	}
	for model, want := range map[string]int{
		"o3": http.StatusNotFound, "gpt-4-turbo": http.StatusNotFound,
		"gpt-4o-mini": http.StatusOK,
	} {
		if code, _, body := chat(t, front.URL, model, "first key"); code != want {
			t.Errorf("%s: got %d %s, want %d: a model of the key's, with a price", model, code, body, want)
		}
	}
	if err := os.WriteFile(path, []byte(text(`[{model: "gpt-4o", policy: quota}]`, "second key")), 0o600); err != nil {
		t.Fatal(err)
	}
	v.flags = &serveFlags{}
	if err := v.use(resolved(t, path)); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]int{"first key": http.StatusUnauthorized, "second key": http.StatusOK} {
		if code, _, body := chat(t, front.URL, "gpt-4o", key); code != want {
			t.Errorf("after the reload, %s: got %d %s, want %d", key, code, body, want)
		}
	}
	if code, _, _ := chat(t, front.URL, "gpt-4o-mini", "second key"); code != http.StatusNotFound {
		t.Errorf("a model that the new file does not have: got %d", code)
	}
	conf, err := gatewayConfig(&v.run.Config().Gateway)
	if err != nil {
		t.Fatal(err)
	}
	u := &conf.Upstreams[0]
	if u.Owner != "project" || !u.Likely || u.Breaker.Failures != 7 || u.Breaker.Successes != 3 || u.Retries != 1 ||
		conf.Keys[0].Team != "red" || conf.Keys[0].Priority != 3 {
		t.Errorf("got %+v and %+v, want what the file says", u, conf.Keys)
	}
}

// Every setting of a key arrives in the gateway, and its addresses are those that the server's
// proxies name.
func TestKeysFromTheirSection(t *testing.T) {
	t.Parallel()
	provider, err := simulator.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	upstream := httptest.NewServer(provider)
	defer upstream.Close()
	sum := func(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }
	v := wired(t, fmt.Sprintf(`
store: "memory:"
server: {proxies: {trusted: [127.0.0.0/8], header: X-Caller}}
policies:
  quota: {limits: [{name: rpm, rolling: 1m, amount: 1000, margin: 2s}]}
gateway:
  upstreams:
    mine: {profile: openai, url: %s, models: [{model: "*", policy: quota}]}
  keys:
    - name: alice
      secrets: [{sha256: "%x", until: 2999-01-01T00:00:00Z}, {sha256: "%x"}]
      team: red
      user: a
      class: gold
      priority: 3
      models: mine/*
      others: mine/v1/files
      paths: "*"
      addresses: 192.0.2.0/24
      expires: 2999-02-01T00:00:00Z
    - {name: bob, sha256: "%x", disabled: true}
`, upstream.URL, sum("an old secret"), sum("a new secret"), sum("bob's secret")))
	conf, err := gatewayConfig(&v.run.Config().Gateway)
	if err != nil {
		t.Fatal(err)
	}
	year := func(month time.Month) time.Time { return time.Date(2999, month, 1, 0, 0, 0, 0, time.UTC) }
	want := []gateway.Key{
		{
			Name: "alice", Team: "red", User: "a", Class: "gold", Priority: 3, Models: []string{"mine/*"},
			Others: []string{"mine/v1/files"}, Paths: []string{"*"},
			Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Expires: year(2),
			Secrets: []gateway.KeySecret{{Sum: sum("an old secret"), Until: year(1)}, {Sum: sum("a new secret")}},
		},
		{Name: "bob", Sum: sum("bob's secret"), Disabled: true},
	}
	if !reflect.DeepEqual(conf.Keys, want) {
		t.Errorf("got %+v, want %+v", conf.Keys, want)
	}
	for caller, want := range map[string]int{"192.0.2.7": http.StatusOK, "198.51.100.7": http.StatusForbidden} {
		r := httptest.NewRequest(http.MethodPost, "/mine/v1/chat/completions",
			strings.NewReader(`{"model":"gpt-4o","max_tokens":20,"messages":[{"role":"user","content":"Hello!"}]}`))
		r.RemoteAddr = "127.0.0.1:1234"
		r.Header.Set("Authorization", "Bearer a new secret")
		r.Header.Set("X-Caller", caller)
		w := httptest.NewRecorder()
		if v.gateway.ServeHTTP(w, r); w.Code != want {
			t.Errorf("from %s: got %d %s, want %d", caller, w.Code, w.Body, want)
		}
	}
}

// Every setting of an issuer of tokens arrives in the gateway.
func TestTokensFromTheirSection(t *testing.T) {
	t.Parallel()
	v := wired(t, `
store: "memory:"
policies:
  quota: {limits: [{name: rpm, rolling: 1m, amount: 1000, margin: 2s}]}
gateway:
  upstreams:
    mine: {profile: openai, url: "http://127.0.0.1:1", models: [{model: "*", policy: quota}]}
  tokens:
    - issuer: http://127.0.0.1:1/realm
      name: corp
      audience: [drawgate, other]
      algorithms: [RS256, ES256]
      keys_url: http://127.0.0.1:1/keys
      key_claim: email
      team_claim: group
      user_claim: id
      class: gold
      priority: 3
      models: mine/*
      others: mine/v1/files
      paths: "*"
      addresses: 192.0.2.0/24
      disabled: true
    - {issuer: "http://127.0.0.1:2", audience: drawgate, algorithms: EdDSA, team: red, user: robots}
`)
	conf, err := gatewayConfig(&v.run.Config().Gateway)
	if err != nil {
		t.Fatal(err)
	}
	want := []gateway.TokenIssuer{
		{
			Issuer: "http://127.0.0.1:1/realm", Name: "corp", Audiences: []string{"drawgate", "other"},
			Algorithms: []string{"RS256", "ES256"}, KeysURL: "http://127.0.0.1:1/keys", KeyClaim: "email",
			TeamClaim: "group", UserClaim: "id", Key: gateway.Key{
				Class: "gold", Priority: 3, Models: []string{"mine/*"}, Others: []string{"mine/v1/files"},
				Paths: []string{"*"}, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Disabled: true,
			},
		},
		{
			Issuer: "http://127.0.0.1:2", Audiences: []string{"drawgate"}, Algorithms: []string{"EdDSA"},
			Key: gateway.Key{Team: "red", User: "robots"},
		},
	}
	if !reflect.DeepEqual(conf.Tokens, want) {
		t.Errorf("got %+v, want %+v", conf.Tokens, want)
	}
}

// The program takes a token whose issuer publishes its keys on the network, and a reload changes
// what such tokens may do.
func TestTokensOfAnIssuerOnTheNetwork(t *testing.T) {
	t.Parallel()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var issuer *httptest.Server
	issuer = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = map[string]string{"issuer": issuer.URL, "jwks_uri": issuer.URL + "/keys"}
		if r.URL.Path == "/keys" {
			answer = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{KeyID: "k", Key: secret.Public()}}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer issuer.Close()
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: jose.ES256, Key: jose.JSONWebKey{KeyID: "k", Key: secret},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: issuer.URL, Subject: "alice", Audience: jwt.Audience{"drawgate"},
		Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	provider, err := simulator.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	upstream := httptest.NewServer(provider)
	defer upstream.Close()
	text := func(more string) string {
		return fmt.Sprintf(`
store: "memory:"
policies:
  quota: {limits: [{name: rpm, rolling: 1m, amount: 1000, margin: 2s}]}
gateway:
  upstreams:
    mine: {profile: openai, url: %s, models: [{model: "*", policy: quota}]}
  tokens:
    - {issuer: "%s", audience: drawgate, algorithms: ES256%s}
`, upstream.URL, issuer.URL, more)
	}
	v := wired(t, text(""))
	call := func() (code int, body string) {
		r := httptest.NewRequest(http.MethodPost, "/mine/v1/chat/completions",
			strings.NewReader(`{"model":"gpt-4o","max_tokens":20,"messages":[{"role":"user","content":"Hello!"}]}`))
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		v.gateway.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	if code, body := call(); code != http.StatusOK {
		t.Errorf("got %d %s, want 200", code, body)
	}
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	if err := os.WriteFile(path, []byte(text(", disabled: true")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := v.useGateway(resolved(t, path)); err != nil {
		t.Fatal(err)
	}
	if code, body := call(); code != http.StatusUnauthorized || !strings.Contains(body, "key_disabled") {
		t.Errorf("after the reload: got %d %s, want 401", code, body)
	}
}

// However many models callers make up, metrics show those of the configuration.
//
// req: C11
func TestMadeUpModelsGetNoSeries(t *testing.T) {
	t.Parallel()
	provider, err := simulator.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	upstream := httptest.NewServer(provider)
	defer upstream.Close()
	v := wired(t, fmt.Sprintf(`
store: "memory:"
policies:
  quota: {limits: [{name: rpd, calendar: month, amount: 20}]}
gateway:
  upstreams:
    mine: {profile: openai, url: %s, models: [{model: "made-up-1*", policy: quota}, {model: "*", policy: quota}]}
  keys: [{name: alice, sha256: "%x"}]
`, upstream.URL, sha256.Sum256([]byte("a key"))))
	for i := range 10_000 {
		text := fmt.Sprintf(`{"model":"made-up-%d","max_tokens":20,"messages":[{"role":"user","content":"Hello!"}]}`, i)
		r := httptest.NewRequest(http.MethodPost, "/mine/v1/chat/completions", strings.NewReader(text))
		r.Header.Set("Authorization", "Bearer a key")
		r.Header.Set(gateway.HeaderTimeout, "0")
		v.gateway.ServeHTTP(httptest.NewRecorder(), r)
	}
	w := httptest.NewRecorder()
	v.http.AdminHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	seen, answers := map[string]bool{}, map[string]int{}
	for line := range strings.Lines(w.Body.String()) {
		if _, rest, ok := strings.Cut(line, `model="`); ok {
			model, _, _ := strings.Cut(rest, `"`)
			seen[model] = true
			if strings.HasPrefix(line, "drawgate_gateway_answers_total{") {
				n, _ := strconv.Atoi(strings.Fields(line)[1])
				answers[model] += n
			}
		}
	}
	// The circuit of the connections to an upstream has no model.
	if len(seen) != 3 || !seen[""] || !seen["*"] || !seen["made-up-1*"] {
		t.Errorf("models %v have series, want none, * and made-up-1*", seen)
	}
	if want := map[string]int{"made-up-1*": 1 + 10 + 100 + 1000, "*": 10_000 - 1111}; !maps.Equal(answers, want) {
		t.Errorf("answers by model: %v, want %v", answers, want)
	}
}

// The gateway listens only if there is one, and on loopback unless the file says otherwise.
func TestWhereTheGatewayListens(t *testing.T) {
	t.Parallel()
	some := config.Gateway{Upstreams: make([]config.Upstream, 1)}
	there := some
	there.Listen = "a:1"
	for name, c := range map[string]struct {
		flags           serveFlags
		file            config.Gateway
		gateway, listen string
	}{
		"none":       {serveFlags{}, config.Gateway{}, config.ListenOff, defaultListen},
		"serve":      {serveFlags{}, some, defaultGateway, defaultListen},
		"free ports": {serveFlags{listen: "127.0.0.1:0"}, some, "127.0.0.1:0", "127.0.0.1:0"},
		"the file":   {serveFlags{}, there, "a:1", defaultListen},
		"the flag":   {serveFlags{gateway: "b:2"}, there, "b:2", defaultListen},
		"off":        {serveFlags{gateway: config.ListenOff}, there, config.ListenOff, defaultListen},
		"alone":      {serveFlags{alone: true}, some, defaultGateway, config.ListenOff},
	} {
		all := config.Config{Gateway: c.file}
		c.flags.merge(&all)
		if all.Gateway.Listen != c.gateway || all.Server.Listen != c.listen {
			t.Errorf("%s: the gateway listens on %q and the server on %q, want %q and %q", name, all.Gateway.Listen,
				all.Server.Listen, c.gateway, c.listen)
		}
	}
}
