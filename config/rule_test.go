package config_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/store/memstore"
)

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func mustResolve(t *testing.T, environ []string, flags config.Flags) *config.Config {
	t.Helper()
	c, err := config.Resolve(environ, flags)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRuleOfAFile(t *testing.T) {
	t.Parallel()
	c, err := config.Load("testdata/good/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := rules.Rule{
		Name: "uploads",
		Match: rules.Match{
			Methods: []string{"POST", "PUT"}, Path: "/v1/uploads/{id}", Host: "api.example.com", Route: "upload*",
			User: "*", Class: "privileged",
			IPs: []netip.Prefix{
				netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32"),
				netip.MustParsePrefix("192.0.2.7/32"),
			},
			Headers: map[string]string{"X-Client": "mobile-*"}, Attrs: map[string]string{"region": "eu"},
		},
		When: "len(user) > 3 &&\nheader(\"X-Debug\") == \"\"\n",
		Schedule: &rules.Schedule{
			Days: []time.Weekday{time.Monday, time.Tuesday}, From: 22 * time.Hour,
			To: 6 * time.Hour, Zone: "Europe/Paris",
		},
		Tenant: `header("X-Tenant")`,
		Apply: []rules.Apply{
			{Policy: "per-ip", Key: "ip", Amounts: map[string]int64{"rate.burst": 10}},
			{Policy: "api", Key: `"global"`, Costs: map[string]int64{"requests": 1, "tokens": 10}},
			{Policy: "old", Key: `join(user, "it's")`, Shadow: true},
		},
		Final: true,
	}
	prefixes := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(want, c.Rules[1], prefixes, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	e := c.Engine()
	wantModes := []engine.Policy{
		{Overrides: []engine.Override{
			{Key: "vip-*", Amounts: map[string]int64{"rate": 600, "rate.burst": 60, "day": 100_000}},
			{Key: "192.0.2.7", Tenant: "acme", Amounts: map[string]int64{"day": 1}},
		}},
		{},
		{Shadow: true},
		{Disabled: true},
	}
	for i := range e.Policies {
		e.Policies[i].Policy = drawgate.Policy{}
	}
	if diff := cmp.Diff(wantModes, e.Policies, cmpopts.EquateEmpty()); diff != "" || len(e.Rules) != 4 {
		t.Errorf("%d rules, policies -want +got:\n%s", len(e.Rules), diff)
	}
}

// taker takes one request at a time from an engine over a configuration.
type taker struct {
	*testing.T

	engine *engine.Engine
	keys   *config.APIKeys
}

func newTaker(t *testing.T, c *config.Config) taker {
	t.Helper()
	store := memstore.New(nil)
	e, err := engine.New(store, c.Engine(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = e.Close(), store.Close() })
	return taker{t, e, &c.APIKeys}
}

// passes returns how many of n requests pass.
func (t taker) passes(n int, a rules.Attributes) (passed int) {
	t.Helper()
	a.Class = t.keys.Class(a.Headers)
	for range n {
		r, err := t.engine.Take(t.Context(), &engine.Request{Attributes: &a})
		if err != nil {
			t.Fatal(err)
		}
		if r.Decision.Allowed {
			passed++
		}
	}
	return passed
}

// A file of rules can give default keys, privileged keys, internal jobs and a route different
// limits.
//
// req: E3
func TestRulesFileByClassAndRoute(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.yaml")
	write(t, path, `
policies:
  per-key:
    limits:
      - {name: rate, rolling: 1m, amount: 3}
rules:
  - {name: jobs, match: {class: internal}, exempt: true}
  - {name: exports, match: {path: /exports/*}, apply: [{policy: per-key, key: 'join("export", header("X-API-Key"))', limits: {rate: 1}}]}
  - {name: privileged, match: {class: privileged}, apply: [{policy: per-key, key: 'header("X-API-Key")', limits: {rate: 20}}]}
  - {name: rest, match: {class: default}, apply: [{policy: per-key, key: 'header("X-API-Key")'}]}
api_keys:
  classes:
    privileged: ["`+hashOf("key-of-a-customer-who-pays")+`"]
    internal: ["`+hashOf("key-of-a-job")+`"]
`)
	c := mustResolve(t, []string{"RATE_LIMIT_RULES_PATH=" + path}, config.Flags{})
	take := newTaker(t, c)
	with := func(key, path string) rules.Attributes {
		return rules.Attributes{Path: path, Headers: http.Header{"X-Api-Key": {key}}}
	}
	for _, r := range []struct {
		key, path string
		want      int
	}{
		{"nobody-knows-me", "/", 3},
		{"key-of-a-customer-who-pays", "/", 20},
		{"key-of-a-job", "/", 30},
		{"key-of-a-customer-who-pays", "/exports/1", 1},
		{"key-of-a-job", "/exports/1", 30},
		{"somebody-else", "/", 3},
	} {
		if got := take.passes(30, with(r.key, r.path)); got != r.want {
			t.Errorf("key %q, path %s: %d of 30 passed, want %d", r.key, r.path, got, r.want)
		}
	}
	if strings.Contains(string(c.YAML()), "key-of-a-job") {
		t.Error("a key is in the configuration")
	}
}

// Rules of a separate file come before those of the main file, and those of presets come last.
func TestOrderOfRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	main, extra := filepath.Join(dir, "drawgate.yaml"), filepath.Join(dir, "rules.yaml")
	write(t, main, fileOf(5)+"rules: [{name: health, apply: [{policy: b, key: ip}]}]\n")
	write(t, extra, "policies: {b: {limits: [{name: x, rolling: 1m, amount: 1}]}}\nrules:\n  - {name: special, apply: [{policy: a, key: ip}, {policy: ip, key: user}]}\n")
	c := mustResolve(t, []string{"IP_BURST_SIZE=3", "RATE_LIMIT_RULES_PATH=/missing"},
		config.Flags{Config: main, Rules: extra})
	var got []string
	for _, o := range c.Explain() {
		if strings.HasPrefix(o.Setting, "rules") {
			got = append(got, o.Setting+" from "+o.From)
		}
	}
	want := []string{
		"rules.special from " + extra + ":3:5", "rules.health from " + main + ":5:9",
		// health is a file's
		"rules[2] from preset http-api", "rules.per-ip from preset http-api", "rules.per-user from preset http-api",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Mistakes in all files are reported together, each with its file.
func TestMistakesOfSeveralFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	main, extra := filepath.Join(dir, "drawgate.yaml"), filepath.Join(dir, "rules.yaml")
	write(t, main, fileOf(5)+"rules:\n  - {name: one, apply: [{policy: nobody, key: ip}]}\napi_keys: {classes: {x: ['"+hashOf("x")+"']}}\n")
	write(t, extra, "policies: {a: {limits: [{name: x, rolling: 1m, amount: 1}]}}\nstore: 'memory:'\nrules:\n  - {name: one, exempt: true}\n  - {apply: [{policy: a, key: ip, limits: {y: 1}}]}\napi_keys: {classes: {y: ['"+hashOf("y")+"']}}\n")
	_, err := config.Resolve([]string{"IP_BURST_SIZE=x"}, config.Flags{Config: main, Rules: extra})
	if err == nil {
		t.Fatal("no mistake was found")
	}
	for _, want := range []string{
		`environment: IP_BURST_SIZE="x" is not a whole number`,
		main + `:6:34: unknown policy "nobody"`,
		extra + `:1:12: policy "a" is in ` + main + `:2:3 as well; leave one of them out`,
		extra + `:2:1: unknown key "store" in a file of rules; known keys: policies, rules, api_keys`,
		main + `:6:12: rule name "one" is used twice; the first one is at ` + extra + `:4:5`,
		extra + `:5:44: policy "a" has no limit "y"; have: a`,
		extra + `:6:1: api_keys is in ` + main + `:7:1 as well; leave one of them out`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %s in\n%v", want, err)
		}
	}
}

// With the variables of the preset http-api alone, health checks are exempt, and other requests are
// counted by address, for the API, and by user.
//
// req: B4, B2, B8
func TestHTTPAPIRules(t *testing.T) {
	t.Parallel()
	c := mustResolve(t, []string{"IP_REQUESTS_PER_MINUTE=10", "IP_BURST_SIZE=5"}, config.Flags{})
	take := newTaker(t, c)
	from := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}) }
	if got := take.passes(50, rules.Attributes{Path: "/health/ready", IP: from(1)}); got != 50 {
		t.Errorf("%d of 50 health checks passed", got)
	}
	if got := take.passes(50, rules.Attributes{Path: "/", IP: from(1)}); got != 5 {
		t.Errorf("%d of 50 requests of one address passed, want the burst of 5", got)
	}
	passed := 0
	for n := range 20 {
		passed += take.passes(5, rules.Attributes{Path: "/", IP: from(100 + n)})
	}
	if passed != 15 {
		t.Errorf("%d requests of other addresses passed, want what the first left of the API's burst of 20", passed)
	}
	if f := c.Server.ForwardAuth; !slices.Equal(f.Describe, []string{"ip"}) ||
		!slices.Equal(f.Shared, []string{"api"}) {
		t.Errorf("headers describe %v, shared are %v", f.Describe, f.Shared)
	}
}

// The engine uses the overrides and other amounts of a file.
func TestOverridesOfAFile(t *testing.T) {
	t.Parallel()
	c, problems := config.Parse("f", []byte(`
policies:
  per-user:
    limits:
      - {name: rate, bucket: 1h, amount: 3, burst: 3}
    overrides:
      - {key: "vip-*", limits: {rate: {amount: 10, burst: 7}}}
      - {key: vip-1, limits: {rate: {burst: 9}}}
rules:
  - {match: {path: /slow}, apply: [{policy: per-user, key: user, limits: {rate: {burst: 1}}}]}
  - {apply: [{policy: per-user, key: user}]}
`))
	if len(problems) > 0 {
		t.Fatal(config.Problems(problems))
	}
	take := newTaker(t, c)
	for _, r := range []struct {
		user, path string
		want       int
	}{{"a", "/", 3}, {"vip-2", "/", 7}, {"vip-1", "/", 9}, {"b", "/slow", 1}, {"c", "", 3}} {
		if got := take.passes(20, rules.Attributes{User: r.user, Path: r.path}); got != r.want {
			t.Errorf("user %s, path %q: %d passed, want %d", r.user, r.path, got, r.want)
		}
	}
}

func TestAPIKeyClass(t *testing.T) {
	t.Parallel()
	h := func(pairs ...string) http.Header {
		headers := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			headers.Add(pairs[i], pairs[i+1])
		}
		return headers
	}
	sum := func(s string) [32]byte { return sha256.Sum256([]byte(s)) }
	none, some := config.APIKeys{}, config.APIKeys{Classes: map[[32]byte]string{sum("a"): "x"}}
	other := config.APIKeys{Classes: some.Classes, Header: "Authorization", Default: "guest"}
	for i, r := range []struct {
		keys    *config.APIKeys
		headers http.Header
		want    string
	}{
		{&none, h("X-API-Key", "a"), ""},
		{&some, h("X-API-Key", "a"), "x"},
		{&some, h("X-API-Key", "b"), "default"},
		{&some, nil, "default"},
		{&some, h("X-API-Key", "b", "X-API-Key", "a"), "default"},
		{&other, h("X-API-Key", "a"), "guest"},
		{&other, h("Authorization", "a"), "x"},
	} {
		if got := r.keys.Class(r.headers); got != r.want {
			t.Errorf("case %d: class %q, want %q", i, got, r.want)
		}
	}
}

// Every position in an expression is found in the file, however the expression is quoted.
func TestPlacesInExpressions(t *testing.T) {
	t.Parallel()
	for expression, column := range map[string]int{
		`path == "/x" && oops == 1`:             27,
		`'path == "/x" && oops == 1'`:           28,
		`'path == "it''s" && oops == 1'`:        31,
		`"path == \"/x\" && oops == 1"`:         30,
		`"path == \"\\u0041\u0041\" && oops"`:   41,
		`"path == \"\x41\U00000041\" && oops"`:  42,
		"|\n      path == 'é' &&\n        oops": 9,
	} {
		_, problems := config.Parse("f", []byte("rules:\n  - when: "+expression+"\n    exempt: true\n"))
		if len(problems) != 1 || problems[0].Column != column ||
			!strings.HasPrefix(problems[0].Message, "when: unknown name oops") {
			t.Errorf("%s: got %v, want column %d", expression, config.Problems(problems), column)
		} else if !strings.HasSuffix(problems[0].Snippet, "^^^^") {
			t.Errorf("%s: the caret is not below the word:\n%s", expression, problems[0].Snippet)
		}
	}
}

// Thousands of rules are read, and a mistake in the last one is found.
func TestManyRules(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(fileOf(5) + "rules:\n")
	const n = 1000
	for i := range n {
		fmt.Fprintf(&b, "  - {name: r%d, match: {path: /v1/%d/*}, apply: [{policy: a, key: ip}]}\n", i, i)
	}
	if _, problems := config.Parse("f", []byte(b.String())); len(problems) > 0 {
		t.Fatal(config.Problems(problems))
	}
	b.WriteString("  - {apply: [{policy: z, key: ip}]}\n")
	_, problems := config.Parse("f", []byte(b.String()))
	if len(problems) != 1 || problems[0].Line != n+6 {
		t.Errorf("got %v", config.Problems(problems))
	}
}
