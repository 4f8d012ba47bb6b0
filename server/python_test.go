package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/needs"
)

// pythonExample returns examples/http/take.py, with some of its lines replaced.
func pythonExample(t *testing.T, replace ...string) string {
	t.Helper()
	text, err := os.ReadFile("../examples/http/take.py")
	if err != nil {
		t.Fatal(err)
	}
	program, found := string(text), true
	for i := 0; i < len(replace); i += 2 {
		found = found && strings.Contains(program, replace[i])
		program = strings.ReplaceAll(program, replace[i], replace[i+1])
	}
	if !found {
		t.Fatalf("examples/http/take.py does not have the lines to replace:\n%s", program)
	}
	return program
}

// cutOff passes requests on to a server, and loses some of its answers: the client sees its
// connection break.
type cutOff struct {
	inner http.Handler
	lose  map[string]int // by path: how many answers are lost, the first ones

	mu     sync.Mutex
	bodies map[string][]string // guarded by mu: by path
}

func (c *cutOff) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	c.mu.Lock()
	c.bodies[r.URL.Path] = append(c.bodies[r.URL.Path], string(body))
	lost := len(c.bodies[r.URL.Path]) <= c.lose[r.URL.Path]
	c.mu.Unlock()
	if !lost {
		c.inner.ServeHTTP(w, r)
		return
	}
	c.inner.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// examples/http/take.py neither loses units nor gives back what was perhaps used, whatever
// becomes of its messages and of its call.
func TestPythonExample(t *testing.T) {
	t.Parallel()
	python := needs.Program(t, "python3")
	const call, prepare = "used = 321", `prompt = "Summarise the report."`
	for name, c := range map[string]struct {
		replace          []string
		lose             map[string]int
		says             string // "" if it fails
		takes, settles   int
		open             int   // reservations that are open afterwards, until their hold ends
		requests, tokens int64 // that count then
	}{
		"all is well": {says: "settled\n", takes: 1, settles: 1, requests: 1, tokens: 321},
		"the answer of the take is lost": {
			lose: map[string]int{"/v1/take": 1}, says: "settled\n", takes: 2,
			settles: 1, requests: 1, tokens: 321,
		},
		"the answer of the settlement is": {
			lose: map[string]int{"/v1/settle": 1}, says: "gone\n", takes: 1,
			settles: 2, requests: 1, tokens: 321,
		},
		"the take gets no answer": {
			lose: map[string]int{"/v1/take": 99}, takes: 4, open: 1, requests: 1,
			tokens: 400,
		},
		"the call fails, perhaps too late": {
			replace: []string{call, `raise TimeoutError("no answer")`}, takes: 1,
			settles: 1, requests: 1, tokens: 400,
		},
		"nothing was sent": {
			replace: []string{prepare, `raise ValueError("no report")`}, takes: 1,
			settles: 1,
		},
		"it costs more than there is": {replace: []string{`"tokens": 400`, `"tokens": 4000`}, takes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup{config: engine.Config{Policies: enforced(drawgate.Policy{Name: "llm", Limits: []drawgate.Limit{
				{Name: "rpm", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 5},
				{Name: "tpm", Unit: "tokens", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 1000},
			}})}}.make(t)
			front := &cutOff{inner: s, lose: c.lose, bodies: map[string][]string{}}
			web := httptest.NewServer(front)
			defer web.Close()
			path := filepath.Join(t.TempDir(), "example.py")
			program := pythonExample(t, append(c.replace, "http://127.0.0.1:7878", web.URL, "(0.2, 0.5, 1, 0)",
				"(0, 0, 0, 0)", "30_000", "3_000_000", "timeout=30", "timeout=300", "timeout=10", "timeout=300")...)
			if err := os.WriteFile(path, []byte(program), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), python, path).Output()
			if string(out) != c.says && c.says != "" || (err == nil) != (c.says != "") {
				t.Errorf("it says %q, %v, want %q", out, err, c.says)
			}
			front.mu.Lock() // a request whose client has gone may still be served
			takes, settles := slices.Clone(front.bodies["/v1/take"]), slices.Clone(front.bodies["/v1/settle"])
			front.mu.Unlock()
			if len(takes) != c.takes || len(settles) != c.settles || len(slices.Compact(takes)) != 1 {
				t.Errorf("%d takes (want %d, all the same) and %d settlements (want %d):\n%q\n%q", len(takes), c.takes,
					len(settles), c.settles, takes, settles)
			}
			var st api.StatusAnswer
			if err := json.Unmarshal(ask(s, "GET", "/v1/status?key=team-a", "").Body.Bytes(), &st); err != nil ||
				st.Open != c.open {
				t.Fatalf("%+v, %v", st, err)
			}
			if r, n := st.Limits[0].Used, st.Limits[1].Used; r != c.requests || n != c.tokens {
				t.Errorf("%d requests and %d tokens count, want %d and %d", r, n, c.requests, c.tokens)
			}
		})
	}
}
