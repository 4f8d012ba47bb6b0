package sdktest_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/llm/simulator"
)

// examples is the folder with the programs, which the tutorial shows.
const examples = "../../examples/gateway/"

// exampleAnswer is what each of the programs prints.
const exampleAnswer = "whole:  the gate lets some water pass and then\nstream: the gate lets some water pass and then\n"

// TestExamples runs the programs of examples/gateway as they are, with the gateway of their file in
// front of drawgate simulate. They get both answers, and with an unknown key none.
func TestExamples(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := needs.Drawgate("../..", filepath.Join(dir, "drawgate")); err != nil {
		t.Fatal(err)
	}
	provider := serve(t, dir, "simulate", "--listen", "127.0.0.1:0")
	file, err := os.ReadFile(examples + "drawgate.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"drawgate.yaml": strings.ReplaceAll(string(file), "http://127.0.0.1:4010", provider),
		"alice.key":     virtualKey, "bob.key": virtualKey + "-of-bob",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	base := serve(t, dir, "gateway", "--config", "drawgate.yaml", "--listen", "127.0.0.1:0")
	if err := os.Symlink(needs.Tool(t, "sdk-node/node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	programs := programs(t)
	for _, path := range programs {
		prepare := program(t, dir, path)
		if got := string(output(t, prepare(base, virtualKey))); got != exampleAnswer {
			t.Errorf("%s prints\n%s\nwant\n%s", path, got, exampleAnswer)
		}
		if got, err := prepare(base, "vk-a-guess").Output(); err == nil || strings.Contains(string(got), "gate") {
			t.Errorf("%s, with an unknown key: it prints %q, and ends with %v", path, got, err)
		}
	}
	calls, want := seen(t, provider), 2*len(programs)/3
	for _, p := range []simulator.Provider{simulator.OpenAI, simulator.Anthropic, simulator.Gemini} {
		if calls[p] != want {
			t.Errorf("%s was called %d times, want %d", p, calls[p], want)
		}
	}
}

// programs returns the paths of all programs: three languages for each provider.
func programs(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{"python/*.py", "typescript/*.mts", "go/*/main.go"} {
		found, err := filepath.Glob(examples + pattern)
		if err != nil || len(found) != 3 {
			t.Fatalf("%s: %q, %v; want three programs", pattern, found, err)
		}
		for _, path := range found {
			all = append(all, filepath.ToSlash(path)[len(examples):])
		}
	}
	return all
}

// program prepares a program of examples/gateway. The returned func makes a command of it that
// calls a gateway with a key. dir has node_modules.
func program(t *testing.T, dir, path string) func(base, key string) *exec.Cmd {
	t.Helper()
	var args []string
	switch filepath.Ext(path) {
	case ".py":
		args = []string{needs.Tool(t, "sdk-python/bin/python"), examples + path}
	case ".mts": // a copy: Node looks for packages next to the file
		text, err := os.ReadFile(examples + path)
		here := filepath.Join(dir, filepath.Base(path))
		if err == nil {
			err = os.WriteFile(here, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		args = []string{needs.Tool(t, "node/bin/node"), here}
	case ".go":
		binary := filepath.Join(dir, filepath.Base(filepath.Dir(path)))
		output(t, exec.CommandContext(t.Context(), "go", "-C", examples, "build", "-o", binary,
			"./"+filepath.Dir(path)))
		args = []string{binary}
	}
	return func(base, key string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env = []string{ // nothing of whoever runs the tests
			"HOME=" + t.TempDir(), "OPENAI_BASE_URL=" + base + "/openai/v1",
			"ANTHROPIC_BASE_URL=" + base + "/anthropic", "GOOGLE_GEMINI_BASE_URL=" + base + "/gemini",
			"OPENAI_API_KEY=" + key, "ANTHROPIC_API_KEY=" + key, "GEMINI_API_KEY=" + key,
		}
		return cmd
	}
}

// output runs a program to its end, and returns what it prints.
func output(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, errs.String())
	}
	return out
}

var listening = regexp.MustCompile(`listening on (http://[0-9.:]+)`)

// serve starts a server of drawgate, which ends with the test, and returns its URL.
func serve(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "drawgate"), args...)
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "DRAWGATE_STORE_TIMEOUT=30s"} // a busy machine may have a slow disk
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Wait() }) // it is killed with the test's context
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			go func() {
				for lines.Scan() { // what it logs later is of no interest, but has to be read
				}
			}()
			return m[1]
		}
	}
	t.Fatalf("drawgate %q does not listen: %s", args, lines.Text())
	return ""
}

// seen returns how many calls of each provider a simulator has answered.
func seen(t *testing.T, provider string) map[simulator.Provider]int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, provider+"/simulator/ledger", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var ledger struct {
		Calls []simulator.Call `json:"calls"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&ledger); err != nil {
		t.Fatal(err)
	}
	all := map[simulator.Provider]int{}
	for _, c := range ledger.Calls {
		if c.Outcome == simulator.Answered {
			all[c.Provider]++
		}
	}
	return all
}
