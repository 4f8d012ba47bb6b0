package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store/memstore"
)

// config is that of most tests: windows so long that nothing comes back while a test runs.
func config() engine.Config {
	return engine.Config{
		Policies: []engine.Policy{
			{Policy: drawgate.Policy{Name: "llm", Limits: []drawgate.Limit{
				{Name: "rpm", Kind: drawgate.Rolling, Window: time.Hour, Amount: 10},
				{Name: "tpm", Unit: "tokens", Kind: drawgate.Rolling, Window: time.Hour, Amount: 1000},
			}}},
			{Policy: drawgate.Policy{Name: "slots", Limits: []drawgate.Limit{{
				Name: "slots", Kind: drawgate.Concurrency,
				Amount: 1,
			}}}},
		},
		Rules: []rules.Rule{{
			Name: "uploads", Match: rules.Match{Path: "/upload/*"},
			Apply: []rules.Apply{{Policy: "llm", Key: "user"}},
		}},
	}
}

// newServer makes a server over a store.
func newServer(t *testing.T, store drawgate.Store, opts *server.Options) *server.Server {
	t.Helper()
	e, err := engine.New(store, config(), &engine.Options{StoreTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(e, store, opts)
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

// listen serves h for as long as the test runs.
func listen(t *testing.T, h http.Handler) string {
	t.Helper()
	ts := httptest.NewServer(h)
	t.Cleanup(ts.Close)
	return ts.URL
}

// dial returns a client.
func dial(t *testing.T, address string, opts *client.Options) *client.Client {
	t.Helper()
	c, err := client.New(address, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// plain returns a client of a server in memory, with all paths.
func plain(t *testing.T) *client.Client {
	t.Helper()
	return dial(t, listen(t, newServer(t, memstore.New(nil), nil).AdminHandler()), nil)
}

// take is a take of the policy llm.
func take(key string, tokens int64) api.Take {
	return api.Take{Bucket: api.Bucket{Policy: "llm", Key: key, Costs: api.Costs{"tokens": tokens}}}
}

// used returns the units of the policy llm that count, per limit.
func used(t *testing.T, c *client.Client, key string) map[string]int64 {
	t.Helper()
	st, err := c.Status(t.Context(), api.StatusRequest{Bucket: api.Bucket{Policy: "llm", Key: key}})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int64{}
	for _, l := range st.Limits {
		out[l.Name] = l.Used
	}
	return out
}

// cutter is a proxy that loses replies: the server has done what was asked, and the client never
// hears of it.
type cutter struct {
	address string
	lose    atomic.Int64 // replies
	passed  atomic.Int64 // requests
}

func cutting(t *testing.T, target string) *cutter {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{}
	p := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }}
	c.address = listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.passed.Add(1)
		if c.lose.Add(-1) < 0 {
			p.ServeHTTP(w, r)
			return
		}
		p.ServeHTTP(httptest.NewRecorder(), r)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	}))
	return c
}

// home is where this process listens, whose ports others are not given while nobody listens there,
// as those of 127.0.0.1 may be.
func home() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1" // the only one that is there
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.N(250), rand.N(250), 1+rand.N(250))
}

// run serves s at an address, "" for a free one, until stop is called.
func run(t *testing.T, s *server.Server, address string) (at string, stop func()) {
	t.Helper()
	if address == "" {
		address = home() + ":0"
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.ServeAdmin(ctx, ln) }()
	return ln.Addr().String(), func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
