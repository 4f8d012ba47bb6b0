//go:build unix

package docs_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// The pages of folder from show the same limit before and after. Here run those that are files; the
// ones in Python run in python/tests/test_from.py, and the ones in Go in benchmarks/internal/from.

// ran are the pages that one of these tests runs.
var ran = []string{
	"from/celery.md", "from/envoyproxy-ratelimit.md", "from/litellm.md", "from/pyrate-limiter.md",
	"from/redis_rate.md", "from/slowapi.md", "from/x-time.md",
}

// Each page of the folder is run by a test, says what one loses, and is short.
func TestFromPages(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("from/*.md")
	if err != nil || !slices.Equal(paths, ran) {
		t.Errorf("the folder has %v, %v, want %v", paths, err, ran)
	}
	for _, path := range paths {
		text := read(t, path)
		for _, heading := range []string{"## Before", "## After", "## What is different", "## What you lose"} {
			if !strings.Contains(text, "\n"+heading+"\n") {
				t.Errorf("%s has no %q", path, heading)
			}
		}
		const most = 400 // words, without code
		if n := len(strings.Fields(withoutCode(text))); n > most {
			t.Errorf("%s has %d words, at most %d", path, n, most)
		}
	}
}

// yamls returns the YAML of a page from before and from after.
func yamls(t *testing.T, path string) (before, after string) {
	t.Helper()
	all := blocks(read(t, path))
	all = slices.DeleteFunc(all, func(b block) bool { return b.language != "yaml" })
	if len(all) != 2 {
		t.Fatalf("%s has %d blocks of YAML, want two", path, len(all))
	}
	return all[0].text, all[1].text
}

// save writes a file into the reader's folder.
func (r *reader) save(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(r.changed(text)), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// liteLLM is what is used of LiteLLM's configuration. benchmarks/cmd/litellmbench runs its proxy
// with the same keys.
type liteLLM struct {
	Models []struct {
		Name   string `yaml:"model_name"`
		Params struct {
			Model  string `yaml:"model"`
			APIKey string `yaml:"api_key"`
			RPM    int    `yaml:"rpm"`
			TPM    int    `yaml:"tpm"`
		} `yaml:"litellm_params"`
	} `yaml:"model_list"`
	Router struct {
		Checks []string `yaml:"optional_pre_call_checks"`
	} `yaml:"router_settings"`
	General struct {
		MasterKey string `yaml:"master_key"`
	} `yaml:"general_settings"`
}

// The gateway's file is valid, and a key gets what its limit admits.
func TestFromLiteLLM(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	before, after := yamls(t, "from/litellm.md")
	var c liteLLM
	if err := yaml.UnmarshalWithOptions([]byte(before), &c, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if len(c.Models) != 1 || c.Models[0].Params.RPM != 60 || c.Models[0].Params.TPM != 100_000 {
		t.Errorf("before: got %+v", c)
	}
	r.env = append(r.env, "OPENAI_API_KEY=sk-of-the-provider-0123", "ALICE_KEY=vk-alice-0123456789",
		"LITELLM_MASTER_KEY=sk-master-0123456789")
	converted(t, r, before)
	r.save("drawgate.yaml", strings.Replace(after, "openai: {", `openai: {url: "http://127.0.0.1:4010", `, 1))
	for _, b := range blocks(r.changed(`
In a terminal of its own:
` + "```console" + `
$ drawgate simulate --listen 127.0.0.1:4010
…listening on…
` + "```" + `
In a terminal of its own:
` + "```console" + `
$ drawgate gateway --config drawgate.yaml --listen 127.0.0.1:7881
…gateway listening on…
` + "```" + `
` + "```console" + `
$ for i in $(seq 21); do curl -s -o answer.json -w '%{http_code} ' http://127.0.0.1:7881/openai/v1/chat/completions -H "Authorization: Bearer $ALICE_KEY" -H 'Content-Type: application/json' -d '{"model": "gpt-4.1-mini", "max_tokens": 8, "messages": [{"role": "user", "content": "Hello!"}]}'; done; echo
200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 429
$ drawgate status --config drawgate.yaml --policy model --key openai
drawgate: warning: …
policy model, key openai, 0 open reservations
LIMIT  UNIT      USED  …
rpm    requests  20    60 …
tpm    tokens    …
` + "```\n")) {
		r.follow(b)
	}
}

// converted makes drawgate.yaml of LiteLLM's configuration, with the command of the page. It is
// valid, and has the limits and the key of the page.
func converted(t *testing.T, r *reader, before string) {
	t.Helper()
	all := blocks(read(t, "from/litellm.md"))
	for _, b := range all {
		if b.language == "json" {
			r.save("keys.json", b.text)
		}
	}
	r.save("config.yaml", strings.Replace(before, "os.environ/OPENAI_API_KEY,",
		`os.environ/OPENAI_API_KEY, api_base: "http://127.0.0.1:4010/v1",`, 1))
	i := slices.IndexFunc(all, func(b block) bool { return b.language == "console" })
	r.run(steps(all[i].text)[0])
	r.run(step{"drawgate validate drawgate.yaml | tail -1", []string{"valid: …policies openai-gpt-4.1-mini, key-limits"}})
	text, err := os.ReadFile(filepath.Join(r.dir, "drawgate.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"{name: rpm, rolling: 1m, amount: 60, margin: 2s}", "{name: tpm, unit: tokens, rolling: 1m, amount: 100000, margin: 2s, charge: end}",
		"{name: rpm, rolling: 1m, amount: 20}", "{name: tpm, unit: tokens, rolling: 1m, amount: 40000, charge: end}",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("what is converted has no %s:\n%s", want, text)
		}
	}
	const key = "sk-alice-0123456789abcdef" // its SHA-256 is in the page
	if sum := sha256.Sum256([]byte(key)); !strings.Contains(string(text), hex.EncodeToString(sum[:])) {
		t.Errorf("the key of the page is another one than %s", key)
	}
}

// Drawgate reads the file of envoyproxy/ratelimit, and admits what it says.
func TestFromEnvoyproxyRatelimit(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	before, after := yamls(t, "from/envoyproxy-ratelimit.md")
	r.save("limits.yaml", strings.Replace(before, "unit: second", "unit: hour", 1))
	r.save("drawgate.yaml", strings.Replace(after, "redis://localhost:6379/0", `"memory:"`, 1))
	r.open(step{
		"drawgate serve --config drawgate.yaml", []string{"…Envoy's rate limit service at grpc://…"},
	})
	admitsFifty(t, r.ports["7880"])
}

// admitsFifty asks a rate limit service for 60 requests of one client.
func admitsFifty(t *testing.T, port string) {
	t.Helper()
	conn, err := grpc.NewClient("127.0.0.1:"+port, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	client, ok := ratelimit.NewRateLimitServiceClient(conn), 0
	for range 60 {
		a, err := client.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{
			Domain: "site", Descriptors: []*common.RateLimitDescriptor{{
				Entries: []*common.RateLimitDescriptor_Entry{{Key: "remote_address", Value: "192.0.2.1"}},
			}},
		}, grpc.WaitForReady(true)) // it may just have started
		if err != nil {
			t.Fatal(err)
		}
		if a.GetOverallCode() == ratelimit.RateLimitResponse_OK {
			ok++
		}
	}
	if ok != 50 {
		t.Errorf("%d of 60 requests passed, want 50", ok)
	}
}
