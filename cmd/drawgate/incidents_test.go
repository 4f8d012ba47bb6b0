//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/telemetry"
)

// The secrets of a gateway whose provider quotes them in its errors.
const (
	callerKey   = "virtual-0123456789abcdef"
	providerKey = "sk-provider-0123456789abcdef"
	diary       = "my diary of last night"
)

// quoting is a configuration whose quota is larger than the provider's.
const quoting = `
store: sqlite:quota.db
policies:
  quota: {limits: [{name: rpm, rolling: 1m, amount: 10, margin: 30s}, {name: tpm, unit: tokens, rolling: 1m, amount: 1_000_000, margin: 30s}]}
gateway:
  upstreams:
    openai: {url: %q, api_key_env: PROVIDER_KEY, owner: project-1, models: [{model: "*", policy: quota}]}
  keys: [{name: alice, secret_env: ALICE_KEY}]
telemetry:
  webhook: {url: %q, secret_env: SECRET, kinds: [incident]}
`

// quotingProvider is a simulated provider that admits two requests a minute, and quotes the key and
// the prompt in its errors.
func quotingProvider(t *testing.T) string {
	t.Helper()
	o := simulator.Options{Quotas: []simulator.Quota{{
		Provider: simulator.OpenAI, Name: "gpt", Models: []string{"*"},
		Limits: []simulator.Limit{{
			Name: "rpm", Dimension: simulator.Requests, Amount: 2, Window: simulator.Rolling,
			Period: time.Minute,
		}},
	}}}
	sim, err := simulator.New(&o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		sim.ServeHTTP(answer, r)
		body := answer.Body.Bytes()
		if answer.Code == http.StatusTooManyRequests {
			quoted := `"message":"` + r.Header.Get("Authorization") + " " + diary + " "
			if body = bytes.Replace(body, []byte(`"message":"`), []byte(quoted), 1); !bytes.Contains(body,
				[]byte(providerKey)) {
				t.Errorf("the provider's error quotes nothing: %s", body)
			}
			answer.Header().Del("Content-Length")
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// say makes a call, and returns the status of its answer.
func say(t *testing.T, url, key string) int {
	t.Helper()
	body := fmt.Sprintf(`{"model":"gpt-4o","max_tokens":20,"messages":[{"role":"user","content":%q}]}`, diary)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Drawgate-Timeout", "0")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// A provider whose limit is smaller than ours, and used by somebody else, refuses a call that a
// real gateway had granted: the log, the webhook, the file, the address for administrators and the
// command all have the incident, with the cause, and none of them has the provider's key or the
// prompt, which the provider quotes. It outlives a kill -9.
//
// req: A14
func TestGatewayIncident(t *testing.T) {
	t.Parallel()
	b, hook := newBench(t, "SECRET="+hookSecret, "PROVIDER_KEY="+providerKey, "ALICE_KEY="+callerKey), newReceiver(t)
	provider := quotingProvider(t)
	b.write("drawgate.yaml", fmt.Sprintf(quoting, provider, hook.url))
	g := b.gateway()
	for i, call := range []struct{ url, key string }{
		{provider, providerKey},
		{provider, providerKey},
		{g.public + "/openai", callerKey},
	} {
		want := []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests}[i] // the first two are somebody else's
		if got := say(t, call.url, call.key); got != want {
			t.Fatalf("call %d: got %d, want %d; log: %s", i, got, want, g.log)
		}
	}
	const cause = "the provider says that its limit is 2 requests, and limit quota/rpm allows 10: set its amount to 2"
	id := g.log.await(t, `incident=(\S+)`)
	posted := hook.awaits(telemetry.Incident)
	if in := posted.Incident; in == nil || in.ID != id || len(in.Diagnosis) == 0 || in.Diagnosis[0] != cause ||
		len(in.Takes) != 1 || posted.Message != in.Summary {
		t.Errorf("the webhook got %+v", posted)
	}

	c, err := client.New(g.admin, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var over api.Incident // with the state a little later
	eventually(t, "state of the quota", func() bool {
		over, err = c.Incident(t.Context(), "last")
		return err == nil && over.Now != nil
	})
	if s := over.Now; over.ID != id || s.Key != "project-1" || s.Paused == nil || s.Limits[0].Used != 1 {
		t.Errorf("over HTTP: %+v", over)
	}
	listed, err := c.Incidents(t.Context(), over.At)
	if err != nil || len(listed) != 1 || listed[0].ID != id || listed[0].Takes != nil {
		t.Errorf("listed over HTTP: %+v, %v", listed, err)
	}

	file := filepath.Join(b.dir, "quota.db-incidents.jsonl")
	eventually(t, "line in the file", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && bytes.HasSuffix(text, []byte("\n"))
	})
	g.kill()
	shown := map[string]string{"log": g.log.String()}
	run := func(what string, args ...string) string {
		out, code := b.do(append([]string{"incidents"}, args...)...)
		if code != 0 {
			t.Errorf("%s: exit code %d: %s", what, code, out)
		}
		shown[what] = out
		return out
	}
	for what, out := range map[string]string{
		"list":  run("list", "--config", "drawgate.yaml", "--since", "1h"),
		"show":  run("show", "show", "last", "--config", "drawgate.yaml"),
		"by id": run("by id", "show", id, "--file", file),
	} {
		if !strings.Contains(out, id) || !strings.Contains(out, cause) {
			t.Errorf("%s: %s", what, out)
		}
	}
	if lines := strings.Count(shown["show"], "\n"); lines > 40 {
		t.Errorf("it does not fit on a screen: %d lines\n%s", lines, shown["show"])
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	webhook, err := json.Marshal(hook.all())
	if err != nil {
		t.Fatal(err)
	}
	shown["file"], shown["webhook"], shown["json"] = string(text), string(webhook),
		run("json", "show", "last", "--json", "--file", file)

	again := b.gateway() // a new process lists what the old one has written
	shown["remote"] = run("remote", "list", "--server", again.admin)
	if !strings.Contains(shown["remote"], id) {
		t.Errorf("after a restart: %s", shown["remote"])
	}
	for where, text := range shown {
		for _, secret := range []string{callerKey, providerKey, diary} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %q: %s", where, secret, text)
			}
		}
	}
	if testing.Verbose() {
		t.Log(shown["list"] + shown["show"])
	}
}
