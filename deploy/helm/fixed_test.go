package helm_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/redistest"
)

// changeable is a file with something of every section.
const changeable = `
store: "memory:"
store_timeout: 1s
enabled: true
policies:
  api: {limits: [{name: rps, rolling: 1s, amount: 300}]}
  gpt: {limits: [{name: rpm, rolling: 1m, amount: 500}], fallback: closed}
rules: [{apply: [{policy: api, key: ip}]}]
api_keys: {classes: {internal: ["sha256:fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9"]}}
queue: {max_depth: 50}
server: {tokens: [{role: admin, token_env: ADMIN}], ready: any}
telemetry: {identifiers: 20}
envoy: {configs: envoy, merge: false, headers: draft}
gateway:
  drain: 30s
  upstreams: {openai: {url: "http://127.0.0.1:1", models: [{model: "*", policy: gpt}]}}
  aliases: {fast: openai/gpt-4.1}
  keys: [{name: alice, secret_env: ALICE}]
  tokens: [{issuer: "http://127.0.0.1:1", audience: drawgate, algorithms: [RS256]}]
  prices: {models: {gpt-4.1: {input: "2.00", output: "8.00"}}}
`

// A pod is restarted for exactly those changes of its file that the program says need a restart.
func TestRestartsAreThoseThatTheProgramNeeds(t *testing.T) {
	t.Parallel()
	dir, admin := t.TempDir(), redistest.FreeAddr(t)
	path := filepath.Join(dir, "drawgate.yaml")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("drawgate.yaml", changeable)
	if err := os.Mkdir(filepath.Join(dir, "envoy"), 0o700); err != nil {
		t.Fatal(err)
	}
	write("envoy/shop.yaml", outside["ConfigMap/envoy-limits"]["shop.yaml"])
	log := &output{}
	const free = "127.0.0.1:0"
	cmd := exec.Command(program(t), "serve", "--config", path, "--listen", free, "--admin", admin, "--grpc", free,
		"--gateway", free)
	cmd.Env = []string{"ADMIN=admin-0123456789abcdef", "ALICE=vk-alice-0123456789", "HOME=" + dir}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, redistest.DieWithParent()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the server printed:\n%s", log)
		}
	})
	await(t, "the server does not start", func() bool {
		return asked(t.Context(), http.DefaultClient, "http://"+admin+"/healthz")
	})
	annotation := func(text string) string {
		t.Helper()
		values, _ := combination(0b10010)
		put("gateway.config", text)(values)
		o, err := render(values)
		if err != nil {
			t.Fatal(err)
		}
		return o.deployments[0].Spec.Template.Annotations["drawgate/fixed-settings"]
	}
	was := annotation(changeable)
	for _, c := range [][2]string{
		{"amount: 300", "amount: 301"},
		{"key: ip", "key: user"},
		{"internal:", "trusted:"},
		{"max_depth: 50", "max_depth: 51"},
		{"enabled: true", "enabled: false"},
		{`model: "*"`, `model: "gpt-*"`},
		{"name: alice", "name: bob"},
		{"fast:", "quick:"},
		{"[RS256]", "[ES256]"},
		{`"2.00"`, `"2.50"`},
		{"merge: false", "merge: true"},
		{"headers: draft", "headers: x"},
		{"drain: 30s", "drain: 31s"},
		{"identifiers: 20", "identifiers: 21"},
		{"ready: any", "ready: all"},
		{"role: admin", "role: [admin, take]"},
		{"store_timeout: 1s", "store_timeout: 2s"},
		{"store_timeout: 1s", "instances: 3\nstart: cold\nprefix: a\nmax_buckets: 1000\nwarn_every: 1m"},
		{"\n", "\n# a comment\n"},
	} {
		next := strings.ReplaceAll(changeable, c[0], c[1])
		write("drawgate.yaml", next)
		restart := reload(t, admin)
		if now := annotation(next); (now != was) != (len(restart) > 0) {
			t.Errorf("%q to %q: the program restarts for %v, the chart: %v", c[0], c[1], restart, now != was)
		}
		write("drawgate.yaml", changeable)
		if got := reload(t, admin); len(got) > 0 {
			t.Fatalf("back again: %v", got)
		}
	}
}

// reload lets a server read its file, and returns which keys need a restart.
func reload(t *testing.T, admin string) []string {
	t.Helper()
	text := asAdmin(t, http.MethodPost, "http://"+admin+"/v1/reload")
	var answer struct {
		Restart []string `json:"restart"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Restart
}
