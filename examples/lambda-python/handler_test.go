//go:build linux

package lambdapython_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/lambdatest"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/llm/simulator"
)

const (
	model = "gemini-2.5-flash"
	owner = "project-1"

	question = `{"prompt": "hello"}`
	estimate = int64(len(`{"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}`)) // tokens of the call

	patience = 3 * time.Minute // how long to wait for what must happen
)

// The provider grants so much. The file of the test has a margin for the way to it, and admits
// nothing while the store is unavailable, so that nothing excuses a call too many.
const (
	amount = 5
	window = 2 * time.Second
	margin = time.Second
	file   = `
instances: 3
policies:
  gemini-2.5-flash:
    limits:
      - {name: rpm, rolling: 2s, amount: 5, margin: 1s, fallback: closed}
      - {name: all, rolling: 30d, amount: 100_000, margin: 1s, fallback: closed}
      - {name: tpm, unit: input_tokens, rolling: 30d, amount: 100_000_000, margin: 1s, fallback: closed}
telemetry: {cloudwatch: {emf: true, interval: 1h}}
`
	all, tokens = 1, 2 // the positions of the limits that count everything

	// The handler's: holds end while the processes stand still, and a call that is sent just before
	// a stop arrives within the margin.
	hold     = 300 * time.Millisecond
	sendable = 400 * time.Millisecond
	stop     = 400 * time.Millisecond // the longest one at a random instant
)

// key is the bucket of the calls.
var key = drawgate.Key{Policy: model, Name: owner}

// program is the extension, which built makes once.
var (
	program string
	built   = sync.OnceValue(func() error { return needs.Drawgate("../..", program) })
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "lambda-python")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "extensions", "drawgate")
	code := m.Run()
	_ = os.RemoveAll(dir) // it is in the folder for temporary files
	os.Exit(code)
}

// world is a table, a provider, and copies of the function.
type world struct{ *lambdatest.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	needs.Program(t, "python3")
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	if err := built(); err != nil {
		t.Fatal(err)
	}
	return &world{lambdatest.NewWorld(t, simulator.Quota{
		Provider: simulator.Gemini, Name: model, Models: []string{model},
		Limits: []simulator.Limit{{
			Name: "rpm", Dimension: simulator.Requests, Amount: amount,
			Window: simulator.Rolling, Period: window,
		}},
	})}
}

// instance is one copy of the function, with its extension.
type instance struct{ *lambdatest.Environment }

func (w *world) launch(t *testing.T) instance {
	t.Helper()
	addr, dir := redistest.FreeAddr(t), t.TempDir()
	path := filepath.Join(dir, "drawgate.yaml")
	if err := os.WriteFile(path, []byte(file+"server: {admin: off, listen: '"+addr+"'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	folder, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	constants, err := json.Marshal(map[string]float64{"HOLD": hold.Seconds(), "MARGIN": sendable.Seconds()})
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"DRAWGATE_CONFIG=" + path, "DRAWGATE_STORE=" + w.Store}
	return instance{lambdatest.Launch(t, &lambdatest.Program{Args: []string{program}, Dir: dir, Env: env},
		lambdatest.Program{
			Args: []string{"python3", filepath.Join(folder, "testdata", "runtime.py")}, Dir: dir,
			Env: append(env, "LAMBDA_TASK_ROOT="+folder, "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1",
				"DRAWGATE_SERVER=http://"+addr, "MODEL_URL="+w.Model, "MODEL_API_KEY=secret-of-the-model",
				"CONSTANTS="+string(constants)),
		})}
}

// answer is what the function returns.
type answer struct {
	Status       int
	RetryAfterMS int64 `json:"retry_after_ms"`
	Error        string
}

func (i instance) invoke(t *testing.T) (a answer) {
	t.Helper()
	text := i.Invoke(question)
	if err := json.Unmarshal([]byte(text), &a); err != nil || a.Status == 0 {
		t.Fatalf("the invocation returned %s", text)
	}
	return a
}

// mustGrant invokes until a call of the model succeeds. It returns how many failed before: on a
// busy machine an answer may come too late, and its unit counts although no call was made.
func (i instance) mustGrant(t *testing.T) (failed int64) {
	t.Helper()
	var a answer
	for end := time.Now().Add(patience); time.Now().Before(end); failed++ {
		if a = i.invoke(t); a.Status == 200 {
			return failed
		}
	}
	t.Fatalf("no invocation is granted: %+v", a)
	return failed
}

// doubtful is how many takes got no answer. Their units count if their hold ended before they were
// sent again.
func (i instance) doubtful() int64 {
	return int64(strings.Count(i.Function.Out.String(), "no answer to /v1/take"))
}

var acquired = regexp.MustCompile(`"BucketType":"all"[^}]*"RateLimiterTokensAcquired":(\d+)`)

// reported is how many requests the extension's metrics have.
func (i instance) reported(t *testing.T) (sum int64) {
	t.Helper()
	for _, m := range acquired.FindAllStringSubmatch(i.Extension.Out.String(), -1) {
		n, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// shutdown ends an instance, whose calls must all be in its metrics: those of the last invocation
// are reported at the end.
func (i instance) shutdown(t *testing.T, granted, lost int64) {
	t.Helper()
	code, took := i.Shutdown()
	n := i.reported(t)
	t.Logf("the extension ended after %v; it reported %d requests for %d calls; %d more may count", took, n, granted,
		lost)
	if code != 0 || n < granted || n > granted+lost {
		t.Errorf("exit code %d; %d requests are in the metrics of %d calls, and %d more may count", code, n, granted,
			lost)
	}
	if long() && took > 2*time.Second {
		t.Error("Lambda would have killed it")
	}
	if text := i.Extension.Out.String() + i.Extension.Err.String(); strings.Contains(text, "secret-of-the-model") ||
		strings.Contains(text, owner) {
		t.Error("the model's key, or a bucket's, is in what the extension wrote")
	}
}

// mustAgree checks that the provider saw no call too many, and the table the same calls, and at
// most lost units more. Tokens that were settled twice would be missing in it.
func (w *world) mustAgree(t *testing.T, lost int64) {
	t.Helper()
	used := w.MustAgree(t, file, key, all, lost)[tokens].Used
	var least int64
	calls := w.Sim.Calls()
	for _, c := range calls {
		least += c.Input
	}
	if most := (int64(len(calls)) + lost) * estimate; used < least || used > most {
		t.Errorf("%d tokens are used, want %d to %d", used, least, most)
	}
}

func long() bool { return needs.Long() }

// A function that Lambda stops between invocations, and that is stopped in the middle of one at
// every point where it waits for somebody else, never causes a call too many, settles once, and
// ends each invocation. Its holds end meanwhile.
//
// req: A1, A3, A12, A13
func TestStoppedFunction(t *testing.T) { //nolint:paralleltest // credentials come from the environment
	w := newWorld(t)
	i := w.launch(t)
	var granted, lost int64 // lost: units that may count although no call was made
	must := func() {
		lost += i.mustGrant(t)
		granted++
	}
	must()
	before := w.Asked.Load()
	must()
	warm := w.Asked.Load() - before

	// Between two invocations. The first one afterwards takes at most one round trip more.
	for _, d := range []time.Duration{10 * time.Millisecond, 3 * time.Second} {
		var asked int64
		for range 5 { // a machine that is busy may make one of them wait for the quota, or for DynamoDB
			time.Sleep(window + margin) // the quota is unused again
			i.Freeze()
			time.Sleep(d)
			before := w.Asked.Load()
			i.Thaw()
			must()
			if asked = w.Asked.Load() - before; asked <= warm+1 {
				break
			}
		}
		t.Logf("after %v: %d requests to DynamoDB; without a stop: %d", d, asked, warm)
		if asked > warm+1 {
			t.Errorf("the first invocation after %v asked DynamoDB %d times, want at most %d", d, asked, warm+1)
		}
	}

	// In the middle of one: for longer than a hold, and for longer than DynamoDB may take.
	for _, d := range []time.Duration{hold + 100*time.Millisecond, 2500 * time.Millisecond} {
		freeze := func() {
			i.Freeze()
			time.AfterFunc(d, i.Thaw)
		}
		for what, arrange := range w.Points(freeze) {
			for end := time.Now().Add(patience); ; { // an invocation that is refused does not come so far
				arrange()
				a := i.invoke(t)
				stopped := w.Clear()
				// a take that was carried out, but not answered in time: then the fallback has
				// decided, and its unit counts as well
				lost++
				if a.Status == 200 {
					granted++
				} else {
					lost++
				}
				must() // a breaker that opened is closed again within seconds
				if stopped {
					t.Logf("stopped for %v while %s: %d %s", d, what, a.Status, a.Error)
					break
				}
				if time.Now().After(end) {
					t.Fatalf("no invocation comes so far that %s", what)
				}
			}
		}
	}
	lost += i.doubtful()
	w.mustAgree(t, lost)
	i.shutdown(t, granted, lost)
}

// Several copies are stopped at random instants.
//
// req: A1, A3
func TestStoppedAtRandom(t *testing.T) { //nolint:paralleltest // credentials come from the environment
	d := 5 * time.Second
	if long() {
		d = time.Minute
	}
	w := newWorld(t)
	var granted, failed atomic.Int64
	var refused atomic.Int64 // of failed
	var running sync.WaitGroup
	end := time.Now().Add(d)
	var copies []instance
	for range 3 {
		i := w.launch(t)
		copies = append(copies, i)
		ended := make(chan struct{})
		running.Go(func() {
			defer close(ended)
			for time.Now().Before(end) || granted.Load() == 0 {
				switch a := i.invoke(t); a.Status {
				case 200:
					granted.Add(1)
				case 429:
					refused.Add(1)
					failed.Add(1)
				default:
					failed.Add(1)
				}
			}
		})
		running.Go(func() { i.Shake(ended, 300*time.Millisecond, stop) })
	}
	running.Wait()
	t.Logf("%d calls granted, %d invocations failed, of which %d were refused", granted.Load(), failed.Load(),
		refused.Load())
	// of each invocation the store may have a take that was not answered, beside that of the
	// fallback
	lost := granted.Load() + 2*failed.Load()
	for _, i := range copies {
		lost += i.doubtful()
	}
	w.mustAgree(t, lost)
}

// A quota that is used up is an answer, and the model is not called.
//
// req: A2
func TestRefusal(t *testing.T) { //nolint:paralleltest // credentials come from the environment
	w := newWorld(t)
	i := w.launch(t)
	c, problems := config.Parse("drawgate.yaml", []byte(file+"\nstore: "+w.Store))
	if len(problems) > 0 {
		t.Fatal(config.Problems(problems))
	}
	r, err := config.Start(t.Context(), c, &config.OpenOptions{EMF: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if d, err := r.Engine.Limiter(model).Allow(t.Context(), owner,
		drawgate.Cost{Unit: "input_tokens", N: 100_000_000}); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	a := i.invoke(t)
	if a.Status != 429 || a.RetryAfterMS <= 0 || !strings.Contains(a.Error, "tpm") {
		t.Errorf("got %+v, want a refusal that says why", a)
	}
	if n := len(w.Sim.Calls()); n != 0 {
		t.Errorf("the model was called %d times", n)
	}
}

// An extension that hangs does not hold up an invocation until Lambda kills it, and a proxy is not
// asked for what is on this machine.
func TestHangingExtension(t *testing.T) {
	t.Parallel()
	needs.Program(t, "python3")
	var takes, settlements atomic.Int64
	ended := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/take" {
			takes.Add(1)
		} else {
			settlements.Add(1)
		}
		<-ended
	}))
	defer hangs.Close()
	defer close(ended)
	c := exec.CommandContext(t.Context(), "python3", "-c", `
import handler, types
print(handler.handler({"prompt": "hello"}, types.SimpleNamespace(get_remaining_time_in_millis=lambda: 2500)))`)
	c.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "DRAWGATE_SERVER="+hangs.URL,
		"HTTP_PROXY=http://127.0.0.1:1", "http_proxy=http://127.0.0.1:1", "NO_PROXY=", "no_proxy=")
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "'status': 503") {
		t.Errorf("%v: %s", err, out)
	}
	if takes.Load() != 1 || settlements.Load() != 1 {
		t.Errorf("%d takes and %d settlements were sent, want one of each: there was no time for more", takes.Load(),
			settlements.Load())
	}
}

// The file of the example is valid, and agrees with the handler.
func TestFile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("drawgate.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, problems := config.Parse("drawgate.yaml", text)
	if len(problems) > 0 {
		t.Fatal(config.Problems(problems))
	}
	handler, err := os.ReadFile("handler.py")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Policies) != 1 {
		t.Fatalf("got %+v", c.Policies)
	}
	for _, want := range []string{
		fmt.Sprintf("MODEL = %q", c.Policies[0].Name),
		fmt.Sprintf("MARGIN = %.1f", c.Policies[0].Limits[0].Margin.Seconds()),
	} {
		if !strings.Contains(string(handler), want) {
			t.Errorf("handler.py has no %s", want)
		}
	}
}
