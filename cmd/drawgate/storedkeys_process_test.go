//go:build unix

package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/llm/simulator"
)

// keysInStore is a configuration whose keys are in the file and in the store. What limits admit
// while the store is away is another matter.
const keysInStore = `
store: %s
server: {tokens: [{name: ops, token_env: OPS_TOKEN, role: admin}, {name: reader, token_env: READ_TOKEN, role: read}]}
gateway:
  upstreams:
    openai: {url: %s, models: [{model: "*", policy: spare}]}
  keys: [{name: alice, sha256: "%x"}]
  keys_in_store: true
policies:
  spare: {limits: [{name: rpm, rolling: 1m, amount: 1000, margin: 2s}], fallback: open}
  per-key: {limits: [{name: calls, rolling: 24h, amount: 1000, precision: exact}], fallback: open}
rules:
  - {apply: [{policy: per-key, key: attr("key")}]}
`

const opsToken = "ops-0123456789abcdef"

// keyBench is two gateways on one store.
type keyBench struct {
	bench
}

func newKeyBench(t *testing.T, store string) keyBench {
	t.Helper()
	provider, err := simulator.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	upstream := httptest.NewServer(provider)
	t.Cleanup(upstream.Close)
	b := keyBench{newBench(t, append(slices.Clip(awsEnv), "OPS_TOKEN="+opsToken, "READ_TOKEN=read-0123456789abcdef",
		"DRAWGATE_TOKEN="+opsToken)...)}
	b.write("drawgate.yaml", fmt.Sprintf(keysInStore, store, upstream.URL+"/openai", sha256.Sum256([]byte(virtualKey))))
	return b
}

// key runs drawgate key at a gateway.
func (b keyBench) key(d *daemon, args ...string) string {
	b.t.Helper()
	out, code := b.do(append(append([]string{"key"}, args...), "--server", d.admin, "--json")...)
	if code != 0 {
		b.t.Fatalf("key %s: exit code %d, %s", args, code, out)
	}
	return out
}

// secretIn returns the secret that a command printed.
func (b keyBench) secretIn(out string) string {
	b.t.Helper()
	var k api.KeyWithSecret
	if err := json.Unmarshal([]byte(out), &k); err != nil || !strings.HasPrefix(k.Secret, "dg_") {
		b.t.Fatalf("%v in %s", err, out)
	}
	return k.Secret
}

// call makes a call with a key, and returns the status of its answer.
func call(d *daemon, secret string) int {
	d.t.Helper()
	r, err := d.ask(d.public+"/openai/v1/chat/completions", map[string]any{
		"model": "gpt-4.1-mini", "max_tokens": 5, "messages": []any{map[string]any{
			"role":    "user",
			"content": "Hello!",
		}},
	}, "Content-Type: application/json", "Authorization: Bearer "+secret)
	if err != nil {
		d.t.Fatal(err)
	}
	return r.code
}

// await calls with a key until the answer has a status. It is there within a second, but a busy
// machine gets the time that it takes.
func await(d *daemon, what, secret string, want int) {
	d.t.Helper()
	for end := time.Now().Add(endTime); ; time.Sleep(20 * time.Millisecond) {
		got := call(d, secret)
		if got == want {
			return
		}
		if time.Now().After(end) {
			d.t.Fatalf("%s: %d, want %d", what, got, want)
		}
	}
}

// TestKeysOfTheStoreAreSharedAndKept: what an administrator changes at one gateway is in force
// there at once and at another one soon, and after a restart. What the file has stays, and nobody
// else sees or changes anything.
func TestKeysOfTheStoreAreSharedAndKept(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(t *testing.T) string{
		"sqlite":   func(*testing.T) string { return "sqlite:state.db" },
		"redis":    func(t *testing.T) string { t.Helper(); return redistest.Start(t).URL() },
		"postgres": func(t *testing.T) string { t.Helper(); return pgtest.Shared(t).Schema(t) },
		"dynamodb": func(t *testing.T) string {
			t.Helper()
			url := "dynamodb://keys?region=eu-central-1&endpoint=" + awstest.Moto(t).URL
			if out, code := newBench(t, awsEnv...).do("table", "create", "--store", url); code != 0 {
				t.Fatalf("the table was not made: %d, %s", code, out)
			}
			return url
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newKeyBench(t, store(t))
			one, two := b.gateway(), b.gateway()
			bob := b.secretIn(b.key(one, "create", "bob", "--team", "red", "--models", "openai/*"))
			want := func(d *daemon, what, secret string, status int) {
				t.Helper()
				if got := call(d, secret); got != status {
					t.Errorf("%s: %d, want %d", what, got, status)
				}
			}
			want(one, "a new key, where it was made", bob, http.StatusOK)
			await(two, "a new key, elsewhere", bob, http.StatusOK)
			want(two, "a key of the file", virtualKey, http.StatusOK)
			if out, code := b.do("key", "create", "alice", "--server", one.admin); code == 0 {
				t.Errorf("a key of the file's name was made: %s", out)
			}
			if out, code := b.do("key", "change", "bob", "--models", "azure/*", "--server", one.admin); code == 0 {
				t.Errorf("a key may use what is of no upstream: %s", out)
			}
			b.key(two, "disable", "bob")
			await(one, "a key that was disabled elsewhere", bob, http.StatusUnauthorized)
			b.key(one, "enable", "bob")
			newer := b.secretIn(b.key(one, "rotate", "bob", "--keep", "0s"))
			want(one, "a secret that was replaced", bob, http.StatusUnauthorized)
			await(two, "a new secret", newer, http.StatusOK)
			want(two, "a secret that was replaced elsewhere", bob, http.StatusUnauthorized)
			two.kill()
			two = b.gateway()
			want(two, "a key after a restart", newer, http.StatusOK)
			want(two, "a secret that was replaced, after a restart", bob, http.StatusUnauthorized)

			for who, token := range map[string]string{
				"a key": newer, "a reader": "read-0123456789abcdef",
				"nobody": "x",
			} {
				r, err := two.ask(two.admin+"/v1/keys", nil, "Authorization: Bearer "+token)
				if err != nil || r.code != http.StatusUnauthorized && r.code != http.StatusForbidden {
					t.Errorf("%s sees the keys: %d %v", who, r.code, err)
				}
			}
			r, err := two.ask(two.public+"/v1/keys", nil, "Authorization: Bearer "+opsToken)
			if err != nil || r.code != http.StatusNotFound {
				t.Errorf("the address for callers has the keys: %d %v", r.code, err)
			}
			var events api.KeyEventsAnswer
			if err := json.Unmarshal([]byte(b.key(two, "history", "bob")), &events); err != nil {
				t.Fatal(err)
			}
			var ops []string
			for _, e := range events.Events {
				ops = append(ops, e.Op+" by "+e.By)
			}
			if got := strings.Join(ops, ", "); got != "rotate by ops, enable by ops, disable by ops, create by ops" {
				t.Errorf("the history: %s", got)
			}
			text, _ := b.do("key", "list", "--server", two.admin)
			if !strings.Contains(text, "bob") || !strings.Contains(text, "valid") || strings.Contains(text, "alice") {
				t.Errorf("the list:\n%s", text)
			}
			b.amounts(one, two)
			b.key(one, "delete", "bob")
			await(two, "a key that is gone", newer, http.StatusUnauthorized)
			for _, d := range []*daemon{one, two} {
				if log := d.log.String(); strings.Contains(log, "dg_") || !strings.Contains(log, "bob") && d == one {
					t.Errorf("the log has a secret, or nothing of the changes:\n%s", log)
				}
			}
		})
	}
}

// amounts gives a key a budget of its own, and changes it.
func (b keyBench) amounts(one, two *daemon) {
	b.t.Helper()
	carol := b.secretIn(b.key(one, "create", "carol", "--limits", "per-key/calls=1"))
	over := func(what string) {
		b.t.Helper()
		for _, d := range []*daemon{one, two} {
			if got := call(d, carol); got != http.StatusTooManyRequests {
				b.t.Errorf("%s: %d", what, got)
			}
		}
	}
	await(two, "the only call", carol, http.StatusOK)
	over("a second call of 1")
	b.key(two, "change", "carol", "--limits", "per-key/calls=3")
	await(one, "a second call of 3", carol, http.StatusOK)
	await(two, "a third call of 3", carol, http.StatusOK)
	over("a fourth call of 3")
	b.key(one, "change", "carol", "--limits", "per-key/calls=2")
	again := b.gateway()
	if got := call(again, carol); got != http.StatusTooManyRequests {
		b.t.Errorf("a fourth call of 2, after a start: %d", got)
	}
	r, err := again.ask(again.public+"/v1/me", nil, "Authorization: Bearer "+carol)
	if err != nil || !strings.Contains(r.body, `"amount":2`) {
		b.t.Errorf("what the key may know: %s %v", r.body, err)
	}
	list, _ := b.do("key", "list", "--server", two.admin)
	history, _ := b.do("key", "history", "carol", "--server", two.admin)
	if !strings.Contains(list, "per-key/calls=2") ||
		!strings.Contains(history, "limits: per-key/calls=3 -> per-key/calls=2") {
		b.t.Errorf("the list and the history:\n%s%s", list, history)
	}
	for want, limits := range map[string]string{
		`unknown policy "pre-key"`: "pre-key/calls=1", "amount 0 of": "per-key/calls=0",
		`has no limit "call"`: "per-key/call=1",
		"no rule applies":     "spare/rpm=1", "is not of the form": "calls=1", "names per-key/calls twice": "per-key/calls=1,per-key/calls=2",
	} {
		cmd := b.command("key", "change", "carol", "--limits", limits, "--server", one.admin)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			b.t.Errorf("--limits %s: %s, want %q", limits, out, want)
		}
	}
	b.key(two, "change", "carol", "--limits", "")
	await(one, "a call of 1000", carol, http.StatusOK)
	b.key(one, "delete", "carol")
}

// TestKeysWhileTheStoreHangs: keys that are known go on, and an unknown one is told to try again.
func TestKeysWhileTheStoreHangs(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	b := newKeyBench(t, redis.URL())
	d := b.gateway()
	bob := b.secretIn(b.key(d, "create", "bob"))
	redis.Stop()
	await(d, "an unknown key without the store", "dg_of-nobody-0123456789", http.StatusServiceUnavailable)
	for what, secret := range map[string]string{"a key of the store": bob, "a key of the file": virtualKey} {
		// Until the guard notices the outage, a take may be answered with 503, but never as a wrong
		// key.
		for got := 0; got != http.StatusOK; {
			if got = call(d, secret); got != http.StatusOK && got != http.StatusServiceUnavailable {
				t.Fatalf("%s without the store: %d", what, got)
			}
		}
	}
	if out, code := b.do("key", "create", "carol", "--server", d.admin); code != exitUnavailable {
		t.Errorf("a key was made without the store: exit code %d, %s", code, out)
	}
	redis.Continue()
	await(d, "an unknown key when the store is back", "dg_of-nobody-0123456789", http.StatusUnauthorized)
	await(d, "a key of the store when it is back", bob, http.StatusOK)
}

// TestTheFileGetsANameOfTheStore: then the file's key is in force, and the log says so, at the
// reload and after a restart.
func TestTheFileGetsANameOfTheStore(t *testing.T) {
	t.Parallel()
	b := newKeyBench(t, "sqlite:state.db")
	d := b.gateway()
	secret := b.secretIn(b.key(d, "create", "bob"))
	const ofTheFile = "vk-bob-0123456789abcdef"
	raw, err := os.ReadFile(filepath.Join(b.dir, "drawgate.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	b.write("drawgate.yaml", strings.Replace(text, "  keys: [",
		fmt.Sprintf("  keys: [{name: bob, sha256: \"%x\"}, ", sha256.Sum256([]byte(ofTheFile))), 1))
	await(d, "the file's key", ofTheFile, http.StatusOK)
	d.log.await(t, `(have a key of the same name.*key=bob)`)
	check := func(d *daemon) {
		t.Helper()
		if got := call(d, secret); got != http.StatusUnauthorized {
			t.Errorf("the store's secret: %d", got)
		}
		if got := call(d, ofTheFile); got != http.StatusOK {
			t.Errorf("the file's secret: %d", got)
		}
	}
	check(d)
	again := b.gateway()
	again.log.await(t, `(have a key of the same name.*key=bob)`)
	check(again)
	b.key(again, "disable", "bob")
	await(d, "a key that is disabled in the store", ofTheFile, http.StatusUnauthorized)
}
