//go:build linux

package lambdatest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience is how long to wait for what must happen.
const patience = 3 * time.Minute

// API is what Lambda serves inside of one environment: the Runtime API for a function, and the
// Extensions API for one extension. Requests that Lambda would refuse fail the test.
type API struct {
	Addr       string      // the value of AWS_LAMBDA_RUNTIME_API
	Registered chan string // names of extensions, as they register
	Failed     chan Failure

	tb         testing.TB
	end        chan struct{} // closed at the end of the test
	events     chan string   // bodies of invocations
	answers    chan string   // what they returned
	idle       chan struct{} // the function asks for the next invocation
	extEvents  chan string
	extIdle    chan struct{} // the extension asks for the next event
	invocation atomic.Int64  // the number of the latest one

	mu    sync.Mutex
	state state // guarded by mu: the extension's
}

// Failure is what an extension has reported.
type Failure struct {
	Path    string `json:"-"` // init/error or exit/error
	Type    string `json:"errorType"`
	Message string `json:"errorMessage"`
}

// state is the state of an extension.
type state int

const (
	started state = iota
	registered
	running // it has asked for an event
	failed
)

const (
	extensions = "/2020-01-01/extension/"
	runtime    = "/2018-06-01/runtime/invocation/"
	extension  = "11111111-2222-3333-4444-555555555555"
)

// NewAPI serves until the end of the test.
func NewAPI(tb testing.TB) *API {
	tb.Helper()
	a := &API{
		tb: tb, Registered: make(chan string, 1), Failed: make(chan Failure, 1), end: make(chan struct{}),
		events: make(chan string), answers: make(chan string, 1), idle: make(chan struct{}, 1),
		extEvents: make(chan string), extIdle: make(chan struct{}, 1),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+runtime+"next", a.nextInvocation)
	mux.HandleFunc("POST "+runtime+"{id}/response", a.answer)
	mux.HandleFunc("POST "+runtime+"{id}/error", a.answer)
	mux.HandleFunc("POST "+extensions+"register", a.register)
	mux.HandleFunc("GET "+extensions+"event/next", a.nextEvent)
	mux.HandleFunc("POST "+extensions+"init/error", a.fail)
	mux.HandleFunc("POST "+extensions+"exit/error", a.fail)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { a.refuse(w, r, "there is no such path") })
	s := httptest.NewServer(mux)
	a.Addr = strings.TrimPrefix(s.URL, "http://")
	tb.Cleanup(func() {
		close(a.end)
		s.CloseClientConnections()
		s.Close()
	})
	return a
}

func (a *API) refuse(w http.ResponseWriter, r *http.Request, why string) {
	a.tb.Errorf("Lambda refuses %s %s: %s", r.Method, r.URL, why)
	http.Error(w, why, http.StatusForbidden)
}

func (a *API) nextInvocation(w http.ResponseWriter, r *http.Request) {
	a.idle <- struct{}{}
	select {
	case event := <-a.events:
		h := w.Header()
		h.Set("Lambda-Runtime-Aws-Request-Id", fmt.Sprint("invocation-", a.invocation.Add(1)))
		h.Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(patience).UnixMilli()))
		h.Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:123456789012:function:f")
		_, _ = io.WriteString(w, event)
	case <-r.Context().Done():
	case <-a.end:
	}
}

func (a *API) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = []byte(err.Error())
	}
	a.answers <- string(body)
	w.WriteHeader(http.StatusAccepted)
}

// step moves the extension on, if it is in one of these states.
func (a *API) step(to state, from ...state) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	ok := slices.Contains(from, a.state)
	if ok {
		a.state = to
	}
	return ok
}

func (a *API) register(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	name := r.Header.Get("Lambda-Extension-Name")
	switch {
	case err != nil || name == "" || !bytes.Contains(body, []byte(`"SHUTDOWN"`)):
		a.refuse(w, r, fmt.Sprintf("%q registers for %s", name, body))
		return
	case !a.step(registered, started):
		a.refuse(w, r, "it has registered before")
		return
	}
	w.Header().Set("Lambda-Extension-Identifier", extension)
	_, _ = io.WriteString(w, `{"functionName":"f","functionVersion":"$LATEST","handler":"handler.handler"}`)
	a.Registered <- name
}

func (a *API) nextEvent(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Lambda-Extension-Identifier") != extension || !a.step(running, registered, running) {
		a.refuse(w, r, "this extension cannot ask for an event")
		return
	}
	a.extIdle <- struct{}{}
	select {
	case event := <-a.extEvents:
		_, _ = io.WriteString(w, event)
	case <-r.Context().Done():
	case <-a.end:
	}
}

func (a *API) fail(w http.ResponseWriter, r *http.Request) {
	f := Failure{Path: strings.TrimPrefix(r.URL.Path, extensions)}
	from := []state{registered}
	if f.Path == "exit/error" {
		from = append(from, running)
	}
	kind := r.Header.Get("Lambda-Extension-Function-Error-Type")
	err := json.NewDecoder(r.Body).Decode(&f)
	if r.Header.Get("Lambda-Extension-Identifier") != extension || err != nil || kind == "" || kind != f.Type ||
		!a.step(failed, from...) {
		a.refuse(w, r, fmt.Sprintf("this extension cannot report %q %+v: %v", kind, f, err))
		return
	}
	w.WriteHeader(http.StatusAccepted)
	a.Failed <- f
}

// Say answers the extension's request for an event.
func (a *API) Say(event string) { a.extEvents <- event }

// Event tells the extension of an invocation, whose time is over after d.
func (a *API) Event(d time.Duration) {
	a.Say(fmt.Sprintf(`{"eventType":"INVOKE","deadlineMs":%d,"requestId":"3da1f2dc-3222-475e-9205-e2e6c6318895","invokedFunctionArn":"arn:aws:lambda:us-east-1:123456789012:function:f","tracing":{"type":"X-Amzn-Trace-Id","value":"Root=1-5f35ae12-0c0fec141ab77a00bc047aa2"}}`,
		time.Now().Add(d).UnixMilli()))
}

// Shutdown tells the extension that the environment ends.
func (a *API) Shutdown() {
	a.Say(fmt.Sprintf(`{"eventType":"SHUTDOWN","shutdownReason":"spindown","deadlineMs":%d}`,
		time.Now().Add(2*time.Second).UnixMilli()))
}

// ExtensionRests waits until the extension asks for the next event.
func (a *API) ExtensionRests() {
	a.tb.Helper()
	select {
	case <-a.extIdle:
	case f := <-a.Failed:
		a.tb.Fatalf("the extension reports %+v", f)
	case <-time.After(patience):
		a.tb.Fatal("the extension hangs")
	}
}
