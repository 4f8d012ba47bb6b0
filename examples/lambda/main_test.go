//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/store/dynamostore"
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

// world is a table, a provider, and instances of the function.
type world struct {
	store string // its URL, through the proxy
	sim   *simulator.Server
	model *httptest.Server

	asked    atomic.Int64                    // requests to DynamoDB
	atTable  atomic.Pointer[func(op string)] // is called before DynamoDB gets a request
	atAnswer atomic.Pointer[func(op string)] // is called before its answer is passed on
	atModel  atomic.Pointer[func()]          // is called before the provider gets a call
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	w := &world{}
	server := awstest.Dynalite(t)
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	op := func(r *http.Request) string {
		_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		return op
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			// DynamoDB carries out what it has received. dynalite crashes if a client breaks off in
			// the middle of a request.
			body, err := io.ReadAll(r.In.Body)
			if err != nil {
				body = nil
			}
			r.Out = r.Out.WithContext(context.WithoutCancel(r.Out.Context()))
			r.Out.Body = io.NopCloser(bytes.NewReader(body))
			w.asked.Add(1)
			if f := w.atTable.Load(); f != nil {
				(*f)(op(r.In))
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if f := w.atAnswer.Load(); f != nil {
				(*f)(op(r.Request))
			}
			return nil
		},
	})
	t.Cleanup(proxy.Close)
	l := dynamostore.Location{Table: "drawgate", Region: "us-east-1", Endpoint: proxy.URL}
	w.store = l.String()
	client, err := dynamostore.Client(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &l.Table, BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String(dynamostore.KeyAttribute), KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String(dynamostore.KeyAttribute), AttributeType: types.ScalarAttributeTypeS}},
	}); err != nil {
		t.Fatal(err)
	}
	w.sim, err = simulator.New(&simulator.Options{Quotas: []simulator.Quota{{
		Provider: simulator.Gemini, Name: model, Models: []string{model},
		Limits: []simulator.Limit{{Name: "rpm", Dimension: simulator.Requests, Amount: amount, Window: simulator.Rolling, Period: window}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	w.model = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if f := w.atModel.Load(); f != nil {
			(*f)()
		}
		w.sim.ServeHTTP(rw, r)
	}))
	t.Cleanup(w.model.Close)
	return w
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

// instance is a process of the function, with Lambda's Runtime API for it.
type instance struct {
	pid     int
	events  chan string        // bodies of invocations
	answers chan string        // what they returned
	idle    chan struct{}      // the process asks for the next invocation
	out     *lockedBuffer      // its standard output
	err     *lockedBuffer      // its log
	stop    context.CancelFunc // of the Runtime API's requests
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// launch starts an instance, and waits until it is ready.
func (w *world) launch(t *testing.T, program string) *instance {
	t.Helper()
	i := &instance{events: make(chan string), answers: make(chan string, 1), idle: make(chan struct{}, 1), out: &lockedBuffer{}, err: &lockedBuffer{}}
	ctx, stop := context.WithCancel(context.Background())
	i.stop = stop
	n := 0
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(rw http.ResponseWriter, r *http.Request) {
		i.idle <- struct{}{}
		select {
		case event := <-i.events:
			n++
			h := rw.Header()
			h.Set("Lambda-Runtime-Aws-Request-Id", fmt.Sprint("invocation-", n))
			h.Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(patience).UnixMilli()))
			h.Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:123456789012:function:f")
			_, _ = io.WriteString(rw, event)
		case <-r.Context().Done():
		case <-ctx.Done():
		}
	})
	done := func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			body = []byte(err.Error())
		}
		i.answers <- string(body)
		rw.WriteHeader(http.StatusAccepted)
	}
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", done)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", done)
	runtime := httptest.NewServer(mux)
	t.Cleanup(func() {
		stop()
		runtime.CloseClientConnections()
		runtime.Close()
	})

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "drawgate.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, i.out, i.err, redistest.DieWithParent()
	cmd.Env = append(os.Environ(), "AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(runtime.URL, "http://"), "DRAWGATE_STORE="+w.store, "MODEL_URL="+w.model.URL, "MODEL_API_KEY=secret-of-the-model")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	i.pid = cmd.Process.Pid
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of process %d:\n%s", i.pid, i.err)
		}
	})
	i.rest(t)
	return i
}

// rest waits until the process asks for the next invocation.
func (i *instance) rest(t *testing.T) {
	t.Helper()
	select {
	case <-i.idle:
	case <-time.After(patience):
		t.Fatal("the function hangs")
	}
}

// invoke runs one invocation to its end.
func (i *instance) invoke(t *testing.T) Answer {
	t.Helper()
	i.events <- `{"prompt": "hello"}`
	var text string
	select {
	case text = <-i.answers:
	case <-time.After(patience):
		t.Fatal("an invocation hangs")
	}
	i.rest(t)
	var a Answer
	if err := json.Unmarshal([]byte(text), &a); err != nil || a.Status == 0 {
		t.Fatalf("the invocation returned %s", text)
	}
	return a
}

// freeze stops the process, and waits until it stands still.
func (i *instance) freeze(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(i.pid, syscall.SIGSTOP); err != nil {
		t.Error(err)
		return
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", i.pid))
		_, state, _ := bytes.Cut(stat, []byte(") "))
		if err != nil || bytes.HasPrefix(state, []byte("T")) || time.Now().After(end) {
			return
		}
	}
}

func (i *instance) thaw(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(i.pid, syscall.SIGCONT); err != nil {
		t.Error(err)
	}
}

// used returns what the table says was used of the limit "all", and how many holds are open.
func (w *world) used(t *testing.T) (used int64, open int) {
	t.Helper()
	c, problems := config.Parse("drawgate.yaml", []byte(file+"\nstore: "+w.store))
	if len(problems) > 0 {
		t.Fatal(config.Problems(problems))
	}
	r, err := config.Start(t.Context(), c, &config.OpenOptions{EMF: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	st, err := r.Engine.Limiter(model).Status(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	return st.States[1].Used, st.Open
}

// A function that Lambda stops between invocations, and that is stopped in the middle of one at
// every point where it waits for somebody else, never causes a call too many, settles once, and
// ends each invocation.
//
// req: A1, A3, A12, A13
func TestStoppedFunction(t *testing.T) { //nolint:paralleltest // credentials come from the environment
	w := newWorld(t)
	i := w.launch(t, build(t))
	lost := i.mustGrant(t) // units that may count although no call was made
	before := w.asked.Load()
	lost += i.mustGrant(t)
	warm := w.asked.Load() - before

	// Between two invocations. The first one afterwards takes at most one round trip more.
	for _, d := range []time.Duration{10 * time.Millisecond, time.Second, 3 * time.Second} {
		var asked int64
		for range 5 { // a machine that is busy may make one of them wait for the quota, or for DynamoDB
			time.Sleep(window + time.Second) // the quota is unused again
			i.freeze(t)
			time.Sleep(d)
			before := w.asked.Load()
			i.thaw(t)
			lost += i.mustGrant(t)
			if asked = w.asked.Load() - before; asked <= warm+1 {
				break
			}
		}
		t.Logf("after %v: %d requests to DynamoDB; without a stop: %d", d, asked, warm)
		if asked > warm+1 {
			t.Errorf("the first invocation after %v asked DynamoDB %d times, want at most %d", d, asked, warm+1)
		}
	}
	w.mustAgree(t, lost)

	// In the middle of one.
	nth := func(op string, n int, f func()) *func(string) {
		seen := 0
		var once sync.Once
		g := func(o string) {
			if o == op {
				if seen++; seen == n {
					once.Do(f)
				}
			}
		}
		return &g
	}
	for _, d := range []time.Duration{200 * time.Millisecond, 2500 * time.Millisecond} {
		stop := func() {
			i.freeze(t)
			time.AfterFunc(d, func() { i.thaw(t) })
		}
		for what, arrange := range map[string]func(){
			"the take is on its way":              func() { w.atTable.Store(nth("PutItem", 1, stop)) },
			"the answer to the take is":           func() { w.atAnswer.Store(nth("PutItem", 1, stop)) },
			"the settlement is on its way":        func() { w.atTable.Store(nth("PutItem", 2, stop)) },
			"the answer to the settlement is":     func() { w.atAnswer.Store(nth("PutItem", 2, stop)) },
			"the call of the model is on its way": func() { var once sync.Once; f := func() { once.Do(stop) }; w.atModel.Store(&f) },
		} {
			arrange()
			a := i.invoke(t)
			w.atTable.Store(nil)
			w.atAnswer.Store(nil)
			w.atModel.Store(nil)
			if a.Status != http.StatusOK {
				lost++
			}
			t.Logf("stopped for %v while %s: %d %s", d, what, a.Status, a.Error)
			lost += i.mustGrant(t) // a breaker that opened is closed again within seconds
		}
	}
	w.mustAgree(t, lost)

	for _, metric := range []string{"RateLimiterTokensAcquired", "RateLimiterAcquisitionLatency"} {
		if !strings.Contains(i.out.String(), metric) {
			t.Errorf("there is no metric %s", metric)
		}
	}
	if all := i.out.String() + i.err.String(); strings.Contains(all, "secret-of-the-model") || strings.Contains(i.out.String(), owner) {
		t.Error("the model's key, or a bucket's, is in what the function wrote")
	}
}

// mustGrant invokes until a call of the model succeeds. It returns how many failed before: on a
// busy machine an answer may come too late, and its unit counts although no call was made.
func (i *instance) mustGrant(t *testing.T) (failed int64) {
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

// mustAgree checks that the provider saw no call too many, and the table the same calls.
func (w *world) mustAgree(t *testing.T, lost int64) {
	t.Helper()
	if v := w.sim.Violations(); v.Total > 0 {
		t.Errorf("%d calls found the provider's limit full: %+v", v.Total, v)
	}
	calls := int64(len(w.sim.Calls()))
	var used int64
	var open int
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) { // holds that nobody ended end by themselves
		if used, open = w.used(t); open == 0 || time.Now().After(end) {
			break
		}
	}
	t.Logf("%d calls, %d units used, %d invocations failed", calls, used, lost)
	if used < calls || used > calls+lost || open != 0 {
		t.Errorf("%d units are used and %d holds open after %d calls, of which %d failed", used, open, calls, lost)
	}
}

// Several instances are stopped at random instants.
//
// req: A1, A3
func TestStoppedAtRandom(t *testing.T) { //nolint:paralleltest // credentials come from the environment
	d := 6 * time.Second
	if os.Getenv("DRAWGATE_LONG") != "" {
		d = time.Minute
	}
	w := newWorld(t)
	program := build(t)
	var failed, granted atomic.Int64
	var all sync.WaitGroup
	end := time.Now().Add(d)
	for range 3 {
		i := w.launch(t, program)
		ended := make(chan struct{})
		all.Go(func() {
			defer close(ended)
			for time.Now().Before(end) {
				if a := i.invoke(t); a.Status == http.StatusOK {
					granted.Add(1)
				} else {
					failed.Add(1)
				}
			}
		})
		all.Go(func() {
			for {
				select {
				case <-ended:
					return
				case <-time.After(rand.N(300 * time.Millisecond)):
				}
				i.freeze(t)
				time.Sleep(rand.N(700 * time.Millisecond))
				i.thaw(t)
			}
		})
	}
	all.Wait()
	if granted.Load() == 0 {
		t.Error("no call was granted")
	}
	w.mustAgree(t, failed.Load())
}

// The file of the example is valid, and its policy is that of the model.
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
}
