//go:build unix

package main

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/drawgate/drawgate/api"
)

// reloadable is a configuration with an amount in everything that is reloaded, and with the class
// of the key "a key".
const reloadable = `
store: "memory:"
policies: {api: {limits: [{name: rpd, rolling: 24h, amount: %[1]d}]}}
api_keys: {classes: {%[2]s: ["sha256:%[3]x"]}}
rules:
  - {match: {class: gold}, final: true, apply: [{policy: api, key: ip, limits: {rpd: 1000}}]}
  - {apply: [{policy: api, key: ip}]}
envoy: {configs: limits.yaml}
server: {proxies: {trusted: [127.0.0.0/8]}}
`

// SIGHUP makes the server read its files again even if none has changed. Changes are in force in
// policies, in classes of keys, and in answers to Envoy.
//
// req: E3
func TestServeReloadsItsFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	write := func(amount int, class string) {
		b.write("drawgate.yaml", fmt.Sprintf(reloadable, amount, class, sha256.Sum256([]byte("a key"))))
		b.write("limits.yaml",
			fmt.Sprintf("domain: edge\ndescriptors: [{key: ip, rate_limit: {unit: day, requests_per_unit: %d}}]\n",
				amount))
	}
	write(3, "gold")
	d := b.daemon()
	const good = `drawgate_config_reloads_total{result="success"}`
	for i := range 2 {
		d.signal(syscall.SIGHUP)
		d.shows(good, float64(i+1))
	}
	c := d.envoy(nil)
	check := func(amount, ofKey string, requests uint32) {
		t.Helper()
		for key, want := range map[string]string{"another key": amount, "a key": ofKey} {
			r := d.must(d.public+"/auth", nil, "X-Forwarded-Method: GET", "X-Forwarded-Uri: /",
				"X-Forwarded-For: 192.0.2.1", "X-Api-Key: "+key)
			if got := r.header.Get("X-Ratelimit-Limit"); got != want {
				t.Errorf("%s: a limit of %s, want %s: %d %s", key, got, want, r.code, r.body)
			}
		}
		a, err := c.ShouldRateLimit(short(t), hit("ip", "192.0.2.1"))
		if err != nil {
			t.Fatal(err)
		}
		if got := a.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit(); got != requests {
			t.Errorf("Envoy is told of a limit of %d, want %d", got, requests)
		}
	}
	check("3", "1000", 3)
	write(5, "silver")
	if r := d.must(d.admin+"/v1/reload", struct{}{}); r.code != http.StatusOK {
		t.Fatalf("reload: got %d %s, want 200", r.code, r.body)
	}
	check("5", "5", 5)
}

// forwarding is a configuration with every option of forward-auth.
const forwarding = `
store: "memory:"
max_buckets: 40
api_keys: {header: X-Key, classes: {internal: ["sha256:%x"]}}
policies:
  caller: {limits: [{name: rpd, rolling: 24h, amount: 2}]}
  site: {limits: [{name: rpd, rolling: 24h, amount: 4}]}
rules:
  - {match: {class: internal}, exempt: true}
  - {match: {host: other.example.com}, final: true, apply: [{policy: caller, key: user, limits: {rpd: 9}}]}
  - {apply: [{policy: caller, key: ip}, {policy: site, key: '"all"'}]}
server:
  proxies: {trusted: [%s], header: X-Client}
  forward_auth: {status: 403, allow_unavailable: true, shared: [site], describe: [caller], uri_header: X-Uri, method_header: X-Verb, host_header: X-Site, user_header: X-User,
    class_header: X-Class}
telemetry: {raw_identifiers: true}
`

// A server answers proxies as its configuration says.
//
// req: B4, E3
func TestServeAnswersProxies(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("drawgate.yaml", fmt.Sprintf(forwarding, sha256.Sum256([]byte("a key")), "127.0.0.0/8"))
	d := b.daemon()
	asks := func(headers ...string) reply {
		t.Helper()
		return d.must(d.public+"/auth", nil, append([]string{"X-Uri: /", "X-Verb: GET"}, headers...)...)
	}
	for _, c := range []struct {
		headers       string
		code          int
		limit, within string
	}{
		{"X-Client: 192.0.2.1", 200, "2", ""},
		{"X-Client: 192.0.2.1", 200, "2", ""},
		{"X-Client: 192.0.2.1", 403, "2", `"scope":"caller"`},
		{"X-Client: 192.0.2.2", 200, "2", ""},
		{"X-Client: 192.0.2.3", 200, "2", ""},
		{"X-Client: 192.0.2.4", 403, "2", `"scope":"api"`},
		{"X-Client: 192.0.2.4; X-Key: a key", 200, "", ""},
		{"X-Client: 192.0.2.4; X-Class: internal", 200, "", ""},
		{"X-Client: 192.0.2.4; X-Site: other.example.com; X-User: ann", 200, "9", ""},
	} {
		r := asks(strings.Split(c.headers, "; ")...)
		policies := r.header.Get("Ratelimit-Policy")
		if r.code != c.code || r.header.Get("X-Ratelimit-Limit") != c.limit || !strings.Contains(r.body, c.within) ||
			strings.Contains(policies, "site") {
			t.Errorf("%s: %d %v %s, want %+v", c.headers, r.code, r.header, r.body, c)
		}
	}
	d.shows(`rate_limit_hits_total{identifier="192.0.2.1",type="caller"}`, 1)
	d.shows(`rate_limit_rejections_total{reason="local_exhausted"}`, 2)
	keys, err := d.ask(d.admin+"/v1/buckets?policy=caller", nil)
	if err != nil || !strings.Contains(keys.body, `"ann"`) {
		t.Errorf("the user's bucket is not there: %v %s", err, keys.body)
	}
	var many api.TakeRequest
	for i := range 60 { // more than there is room for
		many.Takes = append(many.Takes, take("caller", fmt.Sprint("k", i)))
	}
	a := decoded[api.TakeAnswer](d, d.public+"/v1/take", many)
	if full := a.Answers[len(a.Answers)-1].Error; full == nil || full.Code != api.CodeStoreUnavailable {
		t.Fatalf("the store is not full: %+v", a.Answers)
	}
	if r := asks("X-Client: 192.0.2.99"); r.code != http.StatusOK || r.header.Get("X-Ratelimit-Fallback") != "true" {
		t.Errorf("nothing was decided: %d %v %s", r.code, r.header, r.body)
	}
}

// Only configured proxies get an answer.
func TestServeTrustsOnlyConfiguredProxies(t *testing.T) {
	t.Parallel()
	v := wired(t, fmt.Sprintf(forwarding, sha256.Sum256([]byte("a key")), "10.0.0.0/8"))
	if code, body := asked(v, "127.0.0.1:1", "X-Uri: /", "X-Verb: GET",
		"X-Client: 192.0.2.1"); code != http.StatusForbidden || !strings.Contains(body, string(api.CodeUntrusted)) {
		t.Errorf("another address: got %d %s, want 403 untrusted", code, body)
	}
	if code, body := asked(v, "10.0.0.1:1", "X-Uri: /", "X-Verb: GET", "X-Client: 192.0.2.1"); code != http.StatusOK {
		t.Errorf("the proxy: got %d %s, want 200", code, body)
	}
}
