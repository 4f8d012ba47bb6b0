//go:build long

package fromlitellm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/fromlitellm"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/llm/simulator"
)

// masterKey is the key with which all calls are made.
const masterKey = "sk-master-0123456789abcdef0123456789"

const callsEach = 15

// compared are the configurations of which both programs are run: LiteLLM does not start with odd.
var compared = []string{
	"aliases", "balanced", "budgets", "clouds", "environment", "fallbacks", "keys", "providers", "simple", "wildcard",
}

// differ says of names of a configuration why the two answer otherwise.
var differ = map[string]string{
	"balanced/gpt-4.1-mini": "limits: 3 calls a minute at each of two accounts. LiteLLM refuses sooner, the gateway the 7th",
	"balanced/smart":        "translation: an account of this name is Anthropic's, and is left out of the name here",
}

// caller is a name that callers of LiteLLM ask for, and how they ask for it here.
type caller struct{ name, base, profile, model string }

// side is one of the two programs.
type side struct {
	url string
	sim *simulator.Server
}

// TestBesideLiteLLM makes the same calls through LiteLLM's proxy and through the gateway with what
// is made of its configuration, each in front of a simulator, and prints in what they differ.
//
// LITELLM is the folder in which LiteLLM is installed: see benchmarks/README.md.
func TestBesideLiteLLM(t *testing.T) {
	folder := os.Getenv("LITELLM")
	if folder == "" {
		t.Skip("LITELLM is not set: the folder in which LiteLLM is installed")
	}
	program := filepath.Join(t.TempDir(), "drawgate")
	if err := needs.Drawgate("../..", program); err != nil {
		t.Fatal(err)
	}
	total, alike := 0, 0
	for _, name := range compared {
		t.Run(name, func(t *testing.T) { // the programs end with it
			n, same := compareOne(t, name, filepath.Join(folder, "venv", "bin", "litellm"), program)
			total, alike = total+n, alike+same
		})
	}
	t.Logf("%d calls through each: %d with the same status, tokens and model", total, alike)
}

// compareOne compares the two with one configuration.
func compareOne(t *testing.T, name, litellm, program string) (calls, alike int) {
	t.Helper()
	dir := t.TempDir()
	theirs, ours := newSide(t), newSide(t)
	in := input(t, "testdata/"+name)
	env := environment(dir)
	var errOut bytes.Buffer
	their := at(in, theirs.upstream(t))
	for _, s := range []fromlitellm.Source{their.Config, include(t, their)} {
		if s.Text != nil {
			save(t, filepath.Join(dir, s.Name), s.Text)
		}
	}
	port := freePort(t)
	start(t, dir, env, &errOut, litellm, "--config", "config.yaml", "--host", "127.0.0.1", "--port", port,
		"--num_workers", "1", "--telemetry", "False")
	theirs.url = "http://127.0.0.1:" + port

	r, err := fromlitellm.Convert(at(in, ours.upstream(t)))
	if err != nil {
		t.Fatal(err)
	}
	save(t, filepath.Join(dir, "drawgate.yaml"), r.Text)
	port = freePort(t)
	start(t, dir, env, &errOut, program, "gateway", "--config", "drawgate.yaml", "--listen", "127.0.0.1:"+port,
		"--admin", "off")
	ours.url = "http://127.0.0.1:" + port
	ready(t, theirs.url+"/health/liveliness", &errOut)
	ready(t, ours.url+"/", &errOut)

	return exchange(t, name, callersOf(r.Text), theirs, ours)
}

// exchange makes the calls, and prints a line for each name.
func exchange(t *testing.T, name string, callers []caller, theirs, ours *side) (calls, alike int) {
	t.Helper()
	lines := map[string]int{}
	for i := range callsEach {
		c := callers[i%len(callers)]
		a, b := theirs.call(t, c, true), ours.call(t, c, false)
		calls++
		why := ""
		if a == b {
			alike++
		} else if why = differ[name+"/"+c.name]; why == "" {
			t.Errorf("%s, %s: LiteLLM answers %s, and the gateway %s", name, c.name, a, b)
		} else {
			why = "   # " + why
		}
		lines[fmt.Sprintf("%-11s  %-22s  LiteLLM %-42s  Drawgate %-42s%s", name, c.name, a, b, why)]++
	}
	var keys []string
	for line := range lines {
		keys = append(keys, line)
	}
	slices.Sort(keys)
	for _, line := range keys {
		t.Logf("%2d × %s", lines[line], strings.TrimRight(line, " "))
	}
	return calls, alike
}

var callerLine = regexp.MustCompile(`(?m)^#   (\S+) +base URL http://127\.0\.0\.1:7881(\S+) \((\w+)\), model (\S+)$`)

// callersOf reads how callers ask for each name, from the comment at the top of a result.
func callersOf(text []byte) (list []caller) {
	for _, m := range callerLine.FindAllSubmatch(text, -1) {
		c := caller{string(m[1]), string(m[2]), string(m[3]), string(m[4])}
		if c.profile == "gemini" {
			continue // LiteLLM has other rules for an address of one's own
		}
		tail := map[string]string{"openai": "gpt-4o", "anthropic": "haiku-4-5"}[c.profile]
		c.name, c.model = strings.Replace(c.name, "*", tail, 1), strings.Replace(c.model, "*", tail, 1)
		list = append(list, c)
	}
	return list
}

func newSide(t *testing.T) *side {
	t.Helper()
	sim, err := simulator.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &side{sim: sim}
}

func (s *side) upstream(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(s.sim)
	t.Cleanup(server.Close)
	return server.URL
}

// call makes one call in the form of its provider, and returns its answer in words.
func (s *side) call(t *testing.T, c caller, theirs bool) string {
	t.Helper()
	base, model := c.base, c.model
	if theirs {
		base, model = "/v1", c.name
		if c.profile == "anthropic" {
			base = ""
		}
	}
	path, body := "/chat/completions", map[string]any{"model": model, "max_tokens": 8}
	switch {
	case c.profile == "anthropic":
		path = "/v1/messages"
	case strings.Contains(c.name, "embedding"):
		path, body = "/embeddings", map[string]any{"model": model, "input": "hello"}
	}
	if body["input"] == nil {
		body["messages"] = []map[string]string{{"role": "user", "content": "simulate: output=5"}}
	}
	text, _ := json.Marshal(body)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+base+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Drawgate-Timeout", "0")
	req.Header.Set("Authorization", "Bearer "+masterKey)
	req.Header.Set("X-Api-Key", masterKey)
	req.Header.Set("Anthropic-Version", "2023-06-01")
	before := len(s.sim.Calls())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return words(resp.StatusCode, answer, s.sim.Calls()[before:])
}

// words says what an answer is: its status, the tokens that it used, and the models that were
// called.
func words(status int, answer []byte, made []simulator.Call) string {
	var a struct {
		Usage struct {
			Input      int `json:"input_tokens"`
			Prompt     int `json:"prompt_tokens"`
			Output     int `json:"output_tokens"`
			Completion int `json:"completion_tokens"`
		} `json:"usage"`
	}
	_ = json.Unmarshal(answer, &a)
	text := fmt.Sprint(status)
	if status == http.StatusOK {
		text += fmt.Sprintf(" %d+%d", a.Usage.Input+a.Usage.Prompt, a.Usage.Output+a.Usage.Completion)
	}
	for i := range made {
		text += " " + made[i].Model
	}
	return text
}

var (
	oneLine  = regexp.MustCompile(`(?m)^( +)model: ("?(?:openai/|anthropic/|groq/|gpt-)\S+)$`)
	inBraces = regexp.MustCompile(`\{model: ((?:openai|anthropic)/[^,}]+)`)
	// Redis, a database and services of others are not there.
	absent = regexp.MustCompile(`(?m)^  (redis_\w+|database_url|store_model_in_db|success_callback|cache|cache_params): .*\n|` +
		`^(guardrails|mcp_servers):\n( .*\n)+`)
	base = regexp.MustCompile(`(?m)^( +api_base: ).*$`)
)

// at returns a configuration with the simulator in place of the providers, without Redis and a
// database, and with a master key that both accept.
func at(in fromlitellm.Input, link string) fromlitellm.Input {
	change := func(s fromlitellm.Source) fromlitellm.Source {
		text := string(s.Text)
		text = base.ReplaceAllString(text, "")
		text = oneLine.ReplaceAllStringFunc(text, func(line string) string {
			m := oneLine.FindStringSubmatch(line)
			return line + "\n" + m[1] + "api_base: " + link + v1(m[2])
		})
		text = regexp.MustCompile(`(?m)^( +)model: hosted_vllm/.*$`).ReplaceAllString(text, "$0\n${1}api_base: "+link+"/v1")
		text = inBraces.ReplaceAllStringFunc(text, func(part string) string {
			return part + `, api_base: "` + link + v1(part[len("{model: "):]) + `"`
		})
		text = absent.ReplaceAllString(text, "")
		text = strings.Replace(text, "master_key: sk-1234", "master_key: "+masterKey, 1)
		if s.Name == "config.yaml" && !strings.Contains(text, "general_settings:") {
			text += "general_settings: {master_key: os.environ/LITELLM_MASTER_KEY}\n"
		}
		return fromlitellm.Source{Name: s.Name, Text: []byte(text)}
	}
	out := in
	out.Config = change(in.Config)
	out.Keys, out.Teams = nil, nil
	out.Include = func(name string) (fromlitellm.Source, error) {
		s, err := in.Include(name)
		return change(s), err
	}
	return out
}

func v1(model string) string {
	if strings.HasPrefix(strings.TrimLeft(model, `"`), "anthropic/") {
		return ""
	}
	return "/v1"
}

// include returns the file that a configuration includes, if any.
func include(t *testing.T, in fromlitellm.Input) fromlitellm.Source {
	t.Helper()
	if !bytes.Contains(in.Config.Text, []byte("\n  - models.yaml")) {
		return fromlitellm.Source{}
	}
	s, err := in.Include("models.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func environment(home string) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_LOG=ERROR",
		"LITELLM_MODE=PRODUCTION", "LITELLM_MASTER_KEY=" + masterKey,
	}
	for _, name := range []string{
		"OPENAI_API_KEY", "OPENAI_API_KEY_1", "OPENAI_API_KEY_2", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GROQ_API_KEY",
		"SPARE_API_KEY", "COHERE_API_KEY", "AZURE_API_KEY",
	} {
		env = append(env, name+"=sk-provider-"+name)
	}
	return env
}

func save(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	return port
}

// start starts a program, and ends it with the test.
func start(t *testing.T, dir string, env []string, out io.Writer, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Cancel()
		_ = cmd.Wait()
	})
}

// ready waits until a program answers.
func ready(t *testing.T, link string, out *bytes.Buffer) {
	t.Helper()
	for range 600 {
		resp, err := http.Get(link)
		if err == nil {
			_ = resp.Body.Close()
			return
		}
		if errors.Is(err, t.Context().Err()) {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Fatalf("%s does not answer:\n%s", link, out)
}
