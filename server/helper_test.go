package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store/memstore"
)

// policies are those of most tests: windows so long that nothing comes back while a test runs.
func policies() []drawgate.Policy {
	return []drawgate.Policy{
		{Name: "tiers", Limits: []drawgate.Limit{
			{Name: "minute", Kind: drawgate.Rolling, Window: time.Hour, Amount: 3},
			{Name: "day", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 5},
		}},
		{Name: "llm", Limits: []drawgate.Limit{
			{Name: "rpm", Kind: drawgate.Rolling, Window: time.Hour, Amount: 10},
			{Name: "tpm", Unit: "tokens", Kind: drawgate.Rolling, Window: time.Hour, Amount: 1000},
		}},
		{Name: "slots", Limits: []drawgate.Limit{{Name: "slots", Kind: drawgate.Concurrency, Amount: 1}}},
	}
}

// fixture is a server on a real listener.
type fixture struct {
	t   *testing.T
	url string
	srv *server.Server
	web http.RoundTripper // nil: the network
	ln  net.Listener      // of serve
}

// setup is what a server is made of.
type setup struct {
	store   drawgate.Store  // nil: in memory
	config  engine.Config   // without policies: policies()
	engine  *engine.Options // may be nil
	options *server.Options // may be nil
}

// slowStore engines give a busy machine the time that it takes.
var slowStore = &engine.Options{StoreTimeout: time.Minute}

// make makes the server.
func (c setup) make(t testing.TB) *server.Server {
	t.Helper()
	if c.store == nil {
		c.store = memstore.New(nil)
	}
	if c.config.Policies == nil {
		c.config.Policies = enforced(policies()...)
	}
	if c.engine == nil {
		c.engine = slowStore
	}
	e, err := engine.New(c.store, c.config, c.engine)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(e, c.store, c.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start runs it, with all paths.
func (c setup) start(t *testing.T) fixture {
	t.Helper()
	s := c.make(t)
	ts := httptest.NewServer(s.AdminHandler())
	t.Cleanup(ts.Close)
	return fixture{t: t, url: ts.URL, srv: s}
}

// direct asks a handler without a network, as it must be in a bubble.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

// inBubble makes the server, which is asked without a network.
func (c setup) inBubble(t *testing.T) fixture {
	t.Helper()
	s := c.make(t)
	return fixture{t: t, url: "http://localhost", srv: s, web: direct{s.AdminHandler()}}
}

// enforced returns policies as an engine has them.
func enforced(ps ...drawgate.Policy) (all []engine.Policy) {
	for _, p := range ps {
		all = append(all, engine.Policy{Policy: p})
	}
	return all
}

func plain(t *testing.T) fixture {
	t.Helper()
	return setup{}.start(t)
}

// do sends a request and decodes the answer into out. It returns the status.
func (f fixture) do(method, path, body string, out any) int {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	res, err := (&http.Client{Transport: f.web}).Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := json.Unmarshal(got, out); err != nil {
		f.t.Fatalf("%s %s %s: %v in %q", method, path, body, err, got)
	}
	return res.StatusCode
}

func (f fixture) take(body string) api.Answer {
	f.t.Helper()
	var a api.Answer
	if got := f.do("POST", "/v1/take", body, &a); got != 200 {
		f.t.Fatalf("take %s: %d, want 200", body, got)
	}
	return a
}

func (f fixture) settle(body string) api.SettleAnswer {
	f.t.Helper()
	var a api.SettleAnswer
	if got := f.do("POST", "/v1/settle", body, &a); got != 200 {
		f.t.Fatalf("settle %s: %d, want 200", body, got)
	}
	return a
}

// used returns the units that count, per limit.
func (f fixture) used(policy, key string) map[string]int64 {
	f.t.Helper()
	var st api.StatusAnswer
	if got := f.do("GET", "/v1/status?policy="+policy+"&key="+key, "", &st); got != 200 {
		f.t.Fatalf("status: %d", got)
	}
	out := map[string]int64{}
	for _, l := range st.Limits {
		out[l.Name] = l.Used
	}
	return out
}

// waitFor asks for the health until it is as it should be.
func (f fixture) waitFor(ok func(api.Health) bool) {
	f.t.Helper()
	for {
		var h api.Health
		f.do("GET", "/healthz", "", &h)
		if ok(h) {
			return
		}
		if f.t.Context().Err() != nil {
			f.t.Fatal("it did not happen")
		}
	}
}

// serve runs Serve on a port of its own.
func serve(t *testing.T, s *server.Server) (f fixture, stop func() error) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	return fixture{t: t, url: "http://" + ln.Addr().String(), srv: s, ln: ln}, func() error { cancel(); return <-done }
}
