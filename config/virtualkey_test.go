package config_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/needs"
)

// TestMistakesOfKeysNameTheKey: what is wrong with a key's secret names the key and its line.
func TestMistakesOfKeysNameTheKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	text := `policies:
  gpt: {limits: [{name: rpm, rolling: 1m, amount: 10, margin: 2s}]}
gateway:
  upstreams:
    openai: {api_key_env: ALICE, models: [{model: "*", policy: gpt}]}
  keys:
    - {name: alice, secret_env: ALICE}
    - {name: bob, secret_env: BOB}
    - {name: carol, secret_env: CAROL}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const alice, bob = "ALICE=0123456789abcdef-a", "BOB=0123456789abcdef-b"
	for want, environ := range map[string][]string{
		path + ":8:7: gateway.keys[1]: the environment variable BOB is not set": {alice, "CAROL=0123456789abcdef-c"},
		path + ":9:7: gateway.keys[2]: the secret in CAROL has":                 {alice, bob, "CAROL=short"},
		path + ":9:7: gateway.keys[2]: keys \"bob\" and \"carol\" are the same": {
			alice, bob,
			"CAROL=0123456789abcdef-b",
		},
	} {
		if _, err := config.Resolve(environ, config.Flags{Config: path}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// keysFile is a file whose gateway has these keys.
func keysFile(keys string) string {
	return `policies:
  gpt: {limits: [{name: rpm, rolling: 1m, amount: 10, margin: 2s}], fallback: closed}
gateway:
  upstreams:
    openai: {url: "http://127.0.0.1:1", models: [{model: "*", policy: gpt}]}
  keys:
` + keys
}

// TestSecretsOfAKey: the secrets of a key are looked up where the list says. Only their SHA-256 is
// kept, and nothing of them is shown.
func TestSecretsOfAKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	write(t, filepath.Join(filepath.Dir(path), "new.key"), "hunter2-of-the-file\n")
	hashed, err := config.HashSecret("hunter2-that-is-hashed\n")
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, keysFile(`    - name: alice
      secrets: [{env: OLD, until: 2999-01-31T01:00:00+01:00}, {file: new.key}, {sha256: "`+hashed+`"}]
`))
	environ := []string{"OLD=hunter2-of-the-environment"}
	c := mustResolve(t, environ, config.Flags{Config: path})
	k := &c.Gateway.Keys[0]
	for i, secret := range []string{"hunter2-of-the-environment", "hunter2-of-the-file", "hunter2-that-is-hashed"} {
		if k.Secrets[i].Sum != sha256.Sum256([]byte(secret)) {
			t.Errorf("secret %d has another hash", i)
		}
	}
	first, second := k.Secrets[0].Until, k.Secrets[1].Until
	if want := time.Date(2999, 1, 31, 0, 0, 0, 0, time.UTC); first != want || !second.IsZero() {
		t.Errorf("they are valid until %v and %v, want %v and no end", first, second, want)
	}
	if !slices.Contains(config.SecretVariables(c), "OLD") {
		t.Error("OLD is not known as the variable of a secret")
	}
	if shown := fmt.Sprintf("%v %+v %#v %s", c, c.Gateway, c.Gateway, c.YAML()); strings.Contains(shown, "hunter2") {
		t.Errorf("a secret is shown in %s", shown)
	}
}

// TestMistakesInSecretsOfAKey: what is wrong with one of several secrets names its key, its place
// and no secret.
func TestMistakesInSecretsOfAKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	environ := []string{"A=hunter2-hunter2-hunter2", "B=hunter2-hunter2-hunter2", "SHORT=hunter2"}
	for keys, want := range map[string]string{
		"    - {name: alice, secrets: [{env: A}, {env: NONE}]}\n": path +
			":7:30: gateway.keys[0].secrets: the environment variable NONE is not set",
		"    - {name: alice, secrets: [{env: SHORT}]}\n": path +
			":7:30: gateway.keys[0].secrets: the secret in SHORT has fewer than 16 bytes",
		"    - {name: alice, secrets: [{env: A}, {env: B, until: 2999-01-01T00:00:00Z}]}\n": path +
			":7:7: gateway.keys[0]: two secrets of key \"alice\" are the same",
		"    - {name: alice, secrets: [{env: A}]}\n    - {name: bob, secret_env: B}\n": path +
			":8:7: gateway.keys[1]: keys \"alice\" and \"bob\" are the same",
	} {
		write(t, path, keysFile(keys))
		if _, err := config.Resolve(environ, config.Flags{Config: path}); err == nil ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %s", keys, err, want)
		}
	}
}

// TestEndsOfKeysAreWarned: from a week before the end of a key or of its last secret on, whoever
// reads the file is told. In the bubble it is the beginning of the year 2000.
func TestEndsOfKeysAreWarned(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		`expires: 2000-01-08T00:00:01Z, secret_env: A`: "",
		`expires: 2000-01-08T00:00:00Z, secret_env: A`: `f:7:30: key "alice" expires at 2000-01-08 00:00:00Z; give it a later end, if it is still needed`,
		`expires: 2000-01-01T00:00:00Z, secret_env: A`: `f:7:30: key "alice" expired at 2000-01-01 00:00:00Z: all its calls are refused; leave it out, or give it a later end`,

		`disabled: true, expires: 2000-01-01T00:00:00Z, secret_env: A`: "",

		`secrets: [{env: A, until: 2000-01-01T00:00:00Z}, {env: B}]`:                              "",
		`secrets: [{env: A, until: 2000-01-01T00:00:00Z}, {env: B, until: 2000-01-09T00:00:00Z}]`: "",
		`secrets: [{env: A, until: 2000-01-07T00:00:00Z}, {env: B, until: 2000-01-03T00:00:00Z}]`: `f:7:30: the last secret of key "alice" is valid until 2000-01-07 00:00:00Z; add a new one: drawgate key new makes it`,
		`secrets: [{env: A, until: 2000-01-01T00:00:00Z}]`:                                        `f:7:30: the last secret of key "alice" was valid until 2000-01-01 00:00:00Z: all its calls are refused; add a new one: drawgate key new makes it`,
		`expires: 2000-01-05T00:00:00Z, secrets: [{env: A, until: 2000-01-06T00:00:00Z}]`:         `f:7:30: key "alice" expires at 2000-01-05 00:00:00Z; give it a later end, if it is still needed`,
	} {
		synctest.Test(t, func(t *testing.T) {
			c, problems := config.Parse("f", []byte(keysFile("    - {name: alice, "+key+"}\n")))
			if len(problems) > 0 {
				t.Fatal(config.Problems(problems))
			}
			got := ""
			for _, w := range c.Warnings {
				got += w.OneLine()
			}
			if got != want {
				t.Errorf("%s: got %q, want %q", key, got, want)
			}
		})
	}
}

// TestNewSecrets: a generated secret has 256 bits, is never the same, and is refused where the name
// of a variable or a file should be.
func TestNewSecrets(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 20 {
		s := config.NewSecret()
		if len(s) != 46 || !strings.HasPrefix(s, "dg_") || seen[s] {
			t.Errorf("got %q, want dg_ and 43 characters that are new", s)
		}
		seen[s] = true
		for _, key := range []string{
			"secret_env: %s", "secret_file: %s", "secrets: [{env: %s}]", "secrets: [{file: %s}]",
		} {
			key = fmt.Sprintf(key, s)
			_, problems := config.Parse("f", []byte(keysFile("    - {name: alice, "+key+"}\n")))
			if said := config.Problems(problems).Error(); len(problems) != 1 || strings.Contains(said, s[3:]) {
				t.Errorf("%s: got %s, want one problem that does not show it", key, said)
			}
		}
	}
	for text, want := range map[string]string{
		"": "fewer than 16", "hunter2": "fewer than 16", strings.Repeat("hunter2", 1000): "more than 4096",
		"hunter2-hunter2-\nhunter2": "more than one line",
	} {
		if _, err := config.HashSecret(text); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestFileOfTenThousandKeys: so many keys fit into a file, and one that is wrong among them is
// named.
func TestFileOfTenThousandKeys(t *testing.T) {
	t.Parallel()
	var keys strings.Builder
	number := needs.Rounds(1000, 10_000, 10_000)
	if needs.Race { // which has nothing to find in it
		number = 100
	}
	for i := range number {
		fmt.Fprintf(&keys, "    - {name: key-%d, team: team-%d, secrets: [{sha256: \"%x\"}]}\n", i, i%40,
			sha256.Sum256([]byte(fmt.Sprint(i))))
	}
	c, problems := config.Parse("f", []byte(keysFile(keys.String())))
	if len(problems) > 0 || len(c.Gateway.Keys) != number {
		t.Fatalf("%d keys: %v", len(c.Gateway.Keys), problems)
	}
	keys.WriteString("    - {name: key-17, secrets: [{sha256: \"00\"}]}\n")
	_, problems = config.Parse("f", []byte(keysFile(keys.String())))
	if len(problems) != 2 || problems[0].Line != number+7 {
		t.Errorf("got %v, want two problems of line %d", problems, number+7)
	}
}
