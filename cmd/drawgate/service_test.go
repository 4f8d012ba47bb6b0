package main

import (
	"log/slog"
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

// What switches all limits off also switches off the limits of Envoy's files.
func TestLimitsOfEnvoysFilesAreSwitchedOffToo(t *testing.T) {
	t.Parallel()
	conf := &config.Config{Off: true, Envoy: config.Envoy{Configs: []string{envoyFile(t)}}}
	envoy, err := loadEnvoy(conf)
	c := conf.Engine()
	if err != nil || len(c.Policies) == 0 {
		t.Fatalf("%v: %d policies", err, len(c.Policies))
	}
	if envoy != nil {
		t.Error("descriptors are still matched, so a rate of 0 would refuse; want them ignored")
	}
	for _, p := range c.Policies {
		if !p.Disabled {
			t.Errorf("policy %s is not disabled", p.Name)
		}
	}
}

// Envoy's files are read once at the start, so that a change meanwhile cannot give the engine and
// Envoy's service different configurations.
func TestEnvoysFilesAreReadOnceAtTheStart(t *testing.T) {
	t.Parallel()
	path := envoyFile(t)
	c := &config.Config{
		Store: config.Memory, Envoy: config.Envoy{Configs: []string{path}},
		Server: config.Server{GRPC: "127.0.0.1:0"},
	}
	v := &service{app: &app{}, log: slog.New(slog.DiscardHandler)}
	var err error
	if v.rates, err = loadEnvoy(c); err != nil {
		t.Fatal(err)
	}
	if v.run, err = config.Start(t.Context(), c, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.close() })
	if err := os.WriteFile(path, []byte("domain: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := v.open(); err != nil || v.envoy == nil {
		t.Errorf("the files were read again: %v", err)
	}
}
