//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/lambdatest"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/llm/simulator"
)

// patience is how long to wait for what must happen.
const patience = 3 * time.Minute

// The provider grants so much. The test's file has a margin for the way to it, and admits nothing
// while the store is unavailable, so that nothing excuses a call too many.
const (
	amount = 5
	window = 2 * time.Second
	file   = `
instances: 3
policies:
  gemini-2.5-flash:
    limits:
      - {name: rpm, rolling: 2s, amount: 5, margin: 500ms, fallback: closed}
      - {name: all, rolling: 30d, amount: 100_000, margin: 500ms, fallback: closed}
    wait: {up_to: 10s}
telemetry: {cloudwatch: {emf: true, interval: 1h}}
`
)

// key is the bucket of the calls.
var key = drawgate.Key{Policy: model, Name: owner}

// all is the position of the limit that counts every call.
const all = 1

func newWorld(t *testing.T) *lambdatest.World {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	return lambdatest.NewWorld(t, simulator.Quota{
		Provider: simulator.Gemini, Name: model, Models: []string{model},
		Limits: []simulator.Limit{{
			Name: "rpm", Dimension: simulator.Requests, Amount: amount,
			Window: simulator.Rolling, Period: window,
		}},
	})
}

// build builds the function.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bootstrap")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// instance is one copy of the function.
type instance struct{ *lambdatest.Environment }

func launch(t *testing.T, w *lambdatest.World, program string) instance {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "drawgate.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return instance{lambdatest.Launch(t, nil, lambdatest.Program{
		Args: []string{program}, Dir: dir, Env: []string{
			"DRAWGATE_STORE=" + w.Store, "MODEL_URL=" + w.Model,
			"MODEL_API_KEY=secret-of-the-model",
		},
	})}
}

// invoke runs one invocation to its end.
func (i instance) invoke(t *testing.T) (a Answer) {
	t.Helper()
	text := i.Invoke(`{"prompt": "hello"}`)
	if err := json.Unmarshal([]byte(text), &a); err != nil || a.Status == 0 {
		t.Fatalf("the invocation returned %s", text)
	}
	return a
}

// A function that Lambda stops between invocations, and that is stopped in the middle of one at
// every point where it waits for somebody else, never causes a call too many, settles once, and
// ends each invocation.
//
// req: A1, A3, A12, A13
func TestStoppedFunction(t *testing.T) { //nolint:paralleltest // credentials come from the environment
	w := newWorld(t)
	i := launch(t, w, build(t))
	lost := i.mustGrant(t) // units that may count although no call was made
	before := w.Asked.Load()
	lost += i.mustGrant(t)
	warm := w.Asked.Load() - before

	// Between two invocations. The first one afterwards takes at most one round trip more.
	for _, d := range []time.Duration{10 * time.Millisecond, time.Second, 3 * time.Second} {
		var asked int64
		for range 5 { // a machine that is busy may make one of them wait for the quota, or for DynamoDB
			time.Sleep(window + time.Second) // the quota is unused again
			i.Freeze()
			time.Sleep(d)
			before := w.Asked.Load()
			i.Thaw()
			lost += i.mustGrant(t)
			if asked = w.Asked.Load() - before; asked <= warm+1 {
				break
			}
		}
		t.Logf("after %v: %d requests to DynamoDB; without a stop: %d", d, asked, warm)
		if asked > warm+1 {
			t.Errorf("the first invocation after %v asked DynamoDB %d times, want at most %d", d, asked, warm+1)
		}
	}
	w.MustAgree(t, file, key, all, lost)

	// In the middle of one.
	for _, d := range []time.Duration{200 * time.Millisecond, 2500 * time.Millisecond} {
		stop := func() {
			i.Freeze()
			time.AfterFunc(d, func() { i.Thaw() })
		}
		for what, arrange := range w.Points(stop) {
			for end := time.Now().Add(patience); ; { // an invocation that is refused does not come so far
				arrange()
				a := i.invoke(t)
				stopped := w.Clear()
				// a take that was carried out, but not answered in time: then the fallback has
				// decided, and its unit counts as well
				lost++
				if a.Status != http.StatusOK {
					lost++
				}
				lost += i.mustGrant(t) // a breaker that opened is closed again within seconds
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
	w.MustAgree(t, file, key, all, lost)

	for _, metric := range []string{"RateLimiterTokensAcquired", "RateLimiterAcquisitionLatency"} {
		if !strings.Contains(i.Function.Out.String(), metric) {
			t.Errorf("there is no metric %s", metric)
		}
	}
	if all := i.Function.Out.String() + i.Function.Err.String(); strings.Contains(all, "secret-of-the-model") ||
		strings.Contains(i.Function.Out.String(), owner) {
		t.Error("the model's key, or a bucket's, is in what the function wrote")
	}
}

// mustGrant invokes until a call of the model succeeds. It returns how many failed before: on a
// busy machine an answer may come too late, and its unit counts although no call was made.
func (i instance) mustGrant(t *testing.T) (failed int64) {
	t.Helper()
	var a Answer
	for end := time.Now().Add(patience); time.Now().Before(end); failed++ {
		if a = i.invoke(t); a.Status == http.StatusOK {
			return failed
		}
	}
	t.Fatalf("no invocation is granted: %+v", a)
	return failed
}

// Several instances are stopped at random instants.
//
// req: A1, A3
func TestStoppedAtRandom(t *testing.T) { //nolint:paralleltest // credentials come from the environment
	d := 6 * time.Second
	if needs.Long() {
		d = time.Minute
	}
	w := newWorld(t)
	program := build(t)
	var failed, granted atomic.Int64
	var running sync.WaitGroup
	end := time.Now().Add(d)
	for range 3 {
		i := launch(t, w, program)
		ended := make(chan struct{})
		running.Go(func() {
			defer close(ended)
			for time.Now().Before(end) {
				if a := i.invoke(t); a.Status == http.StatusOK {
					granted.Add(1)
				} else {
					failed.Add(1)
				}
			}
		})
		running.Go(func() { i.Shake(ended, 300*time.Millisecond, 700*time.Millisecond) })
	}
	running.Wait()
	if granted.Load() == 0 {
		t.Error("no call was granted")
	}
	// Of each invocation the store may have a take that was not answered, beside the fallback's.
	w.MustAgree(t, file, key, all, granted.Load()+2*failed.Load())
}

// The file of the example is valid, its policy is that of the model, and README.md reserves as many
// copies as share the quota.
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
	if len(c.Policies) != 1 || c.Policies[0].Name != model {
		t.Errorf("got %+v", c.Policies)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("--reserved-concurrent-executions %d\n",
		c.Instances.Number); !strings.Contains(string(readme), want) {
		t.Errorf("README.md does not have %q", want)
	}
}
