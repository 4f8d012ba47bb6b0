package config_test

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate/config"
)

// Relative paths in a file are relative to its folder: of the store, certificates, secrets and
// Envoy's files. The same holds for [config.Load].
//
// req: B11
func TestRelativePathsOfAFile(t *testing.T) {
	t.Parallel()
	path := writeFile(t, `
store: sqlite:state.db
server:
  tls: {cert: tls/cert.pem, key: /abs/key.pem, client_ca: ../ca.pem}
  tokens: [{role: take, token_file: secrets/token}]
telemetry:
  salt_file: salt
  webhook: {url_file: url, secret_file: ./secret}
envoy: {configs: [edge.yaml, envoy]}
policies: {a: {limits: [{name: a, rolling: 1m, amount: 1}]}}
`)
	dir := filepath.Dir(path)
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{
		"secrets/token": "0123456789abcdef", "salt": "0123456789abcdef", "url": "https://hooks.example.com/",
		"secret": "0123456789abcdef",
	} {
		if err := cmp.Or(os.MkdirAll(filepath.Dir(in(name)), 0o700),
			os.WriteFile(in(name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"sqlite://" + in("state.db"), in("tls/cert.pem"), "/abs/key.pem", in("../ca.pem"), in("secrets/token"),
		in("salt"), in("url"), in("secret"), in("edge.yaml"), in("envoy"),
	}
	for name, load := range map[string]func() (*config.Config, error){
		"Load":    func() (*config.Config, error) { return config.Load(path) },
		"Resolve": func() (*config.Config, error) { return config.Resolve(nil, config.Flags{Config: path}) },
	} {
		c, err := load()
		if err != nil {
			t.Fatalf("%s: got %v, want no error", name, err)
		}
		tls, hook := c.Server.TLS, c.Telemetry.Webhook
		got := []string{
			c.Store, tls.Cert, tls.Key, tls.ClientCA, c.Server.Tokens[0].Secret.File, c.Telemetry.Salt.File,
			hook.Address.File, hook.Secret.File, c.Envoy.Configs[0], c.Envoy.Configs[1],
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		var paths []string
		for _, p := range c.RelativePaths() {
			if p.Tell {
				t.Errorf("%s: %+v is to be told, though a file says it", name, p)
			}
			paths = append(paths, p.Value)
		}
		if len(paths) != len(want)-1 || slices.Contains(paths, "/abs/key.pem") {
			t.Errorf("%s: the relative paths are %v", name, paths)
		}
	}
	if c, problems := config.Parse("x.yaml",
		[]byte("store: sqlite:state.db\npolicies: {a: {limits: [{name: a, rolling: 1m, amount: 1}]}}")); len(problems) > 0 || c.Store != "sqlite:state.db" {
		t.Errorf("what is parsed is in no folder: %v, %v", c, problems)
	}
}

// Relative paths in variables are relative to the file's folder, or without a file to the state
// folder, both for certificates and for stores. They are marked to be printed.
//
// req: D1
func TestRelativePathsOfVariables(t *testing.T) {
	t.Parallel()
	path := writeFile(t,
		"store: sqlite:file.db\nserver: {tls: {cert: c.pem, key: k.pem}}\npolicies: {a: {limits: [{name: a, rolling: 1m, amount: 1}]}}")
	environ := []string{
		"HOME=/home/ann", "DRAWGATE_STORE=sqlite:x.db", "DRAWGATE_TLS_CERT=cert.pem",
		"DRAWGATE_TLS_KEY=/abs/key.pem", "RATE_LIMIT_PER_DAY=1",
	}
	for _, c := range []struct {
		environ []string
		flags   config.Flags
		dir     string
	}{
		{environ, config.Flags{}, "/home/ann/.local/state/drawgate"},
		{append(environ, "XDG_STATE_HOME=/var/state"), config.Flags{}, "/var/state/drawgate"},
		{append(environ, "XDG_STATE_HOME=relative"), config.Flags{}, "/home/ann/.local/state/drawgate"},
		{environ, config.Flags{Config: path}, filepath.Dir(path)},
	} {
		got, err := config.Resolve(c.environ, c.flags)
		if err != nil {
			t.Fatal(err)
		}
		store, cert := "sqlite://"+c.dir+"/x.db", c.dir+"/cert.pem"
		if got.Store != store || got.Server.TLS.Cert != cert || got.Server.TLS.Key != "/abs/key.pem" {
			t.Errorf("store %s, certificate %s, key %s, want them in %s", got.Store, got.Server.TLS.Cert,
				got.Server.TLS.Key, c.dir)
		}
		want := []config.RelativePath{
			{
				Origin: config.Origin{Setting: "server.tls", Value: cert, From: "environment: DRAWGATE_TLS_CERT"},
				Tell:   true,
			},
			{Origin: config.Origin{Setting: "store", Value: store, From: "environment: DRAWGATE_STORE"}, Tell: true},
		}
		paths := got.RelativePaths()
		slices.SortFunc(paths, func(a, b config.RelativePath) int { return cmp.Compare(a.Setting, b.Setting) })
		if diff := gocmp.Diff(want, paths); diff != "" {
			t.Errorf("relative paths (-want +got):\n%s", diff)
		}
	}
}
