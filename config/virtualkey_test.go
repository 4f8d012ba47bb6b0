package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/config"
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
