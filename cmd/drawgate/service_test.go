package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/drawgate/drawgate/config"
)

// envoyFile writes a file of envoyproxy/ratelimit into a directory of its own.
func envoyFile(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "envoy.yaml")
	text := "domain: edge\ndescriptors: [{key: ip, rate_limit: {unit: minute, requests_per_unit: 3}}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSwitchedOffForEnvoyToo: what switches all limits off switches off those of Envoy's files.
func TestSwitchedOffForEnvoyToo(t *testing.T) {
	t.Parallel()
	c, _, err := compile(&config.Config{Off: true, Envoy: config.Envoy{Configs: []string{envoyFile(t)}}})
	if err != nil || len(c.Policies) == 0 {
		t.Fatalf("%v: %d policies", err, len(c.Policies))
	}
	for _, p := range c.Policies {
		if !p.Disabled {
			t.Errorf("policy %s is not disabled", p.Name)
		}
	}
}
