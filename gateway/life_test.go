package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/internal/pipetest"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/memstore"
)

// steps is a provider that streams a word whenever it is told to, and ends when it is told no more.
func steps(next <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, ": begins\n\n")
		http.NewResponseController(w).Flush()
		for range next {
			io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"word"}}]}`+"\n\n")
			http.NewResponseController(w).Flush()
		}
		io.WriteString(w, "data: [DONE]\n\n")
	})
}

// TestReloadKeepsStreams: a new configuration is in force for calls that begin then. A stream that
// runs ends as it began, and an upstream that stays keeps the state of its circuit.
//
// req: E3
func TestReloadKeepsStreams(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	var conf gateway.Config
	b := newBench(t, func(s *setup) {
		s.upstream = steps(next)
		s.config.Upstreams[1].URL = closedURL()
		s.config.Upstreams[1].Breaker = outbound.Breaker{Failures: 1, Open: time.Hour}
		conf = s.config
	})
	if got := b.call("anthropic", false, "Hello!"); got.status != http.StatusBadGateway {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	resp, err := b.server.Client().Do(b.request(t.Context(), "openai", true, "Hello!"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Scan()

	conf.Upstreams = append([]gateway.Upstream{}, conf.Upstreams...)
	conf.Upstreams[0].Models = []gateway.Model{
		{Name: "gpt-4o", Policy: "upstream"},
		{Name: "other", Policy: "upstream"},
	}
	conf.Keys = []gateway.Key{{Name: "carol", Sum: sha256.Sum256([]byte("carol's key"))}}
	if err := b.h.Use(conf); err != nil {
		t.Fatal(err)
	}
	if got := b.call("openai", false, "Hello!"); got.status != http.StatusUnauthorized {
		t.Errorf("a key that is gone: got %d %s", got.status, got.body)
	}
	if got := b.call("anthropic", false, "Hello!",
		"X-Api-Key: carol's key"); got.status != http.StatusServiceUnavailable {
		t.Errorf("an upstream that stays: got %d %s, want that its circuit is open", got.status, got.body)
	}
	bad := conf
	bad.Upstreams = append([]gateway.Upstream{}, conf.Upstreams[0], conf.Upstreams[0])
	if err := b.h.Use(bad); err == nil {
		t.Error("two upstreams of one name: no error")
	}
	words := 0
	for range 5 {
		next <- struct{}{}
	}
	close(next)
	for lines.Scan() {
		words += strings.Count(lines.Text(), "word")
	}
	if words != 5 || lines.Err() != nil {
		t.Errorf("the running stream has %d words, %v; want 5", words, lines.Err())
	}
}

// TestServeStops: a gateway that stops accepts no calls any more, and lets running streams end;
// what does not end in time is cut off.
func TestServeStops(t *testing.T) {
	t.Parallel()
	for name, drain := range map[string]time.Duration{"in time": time.Minute, "cut off": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := make(chan struct{})
			b := newBench(t, func(s *setup) {
				s.upstream = steps(next)
				s.options.Drain = drain
			})
			ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			done := make(chan error)
			go func() { done <- b.h.Serve(ctx, ln) }()
			r := b.request(t.Context(), "openai", true, "Hello!")
			r.URL.Host = ln.Addr().String()
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			io.ReadFull(resp.Body, make([]byte, 5))
			stop()
			b.until("nobody listens any more", func() bool {
				conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", ln.Addr().String())
				if err == nil {
					conn.Close()
				}
				return err != nil
			})
			if drain == time.Minute {
				next <- struct{}{}
				close(next)
				body, err := io.ReadAll(resp.Body)
				if err != nil || !strings.Contains(string(body), "word") || !strings.Contains(string(body), "[DONE]") {
					t.Errorf("the running stream: %q, %v", body, err)
				}
				if err := <-done; err != nil {
					t.Errorf("Serve: %v", err)
				}
				return
			}
			body, err := io.ReadAll(resp.Body)
			if err == nil {
				t.Error("the stream ended by itself, want that it was cut off")
			}
			if event := "\n\ndata: {\"error\":"; !strings.Contains(string(body), event) ||
				!strings.Contains(string(body), "this gateway is stopping") ||
				!strings.HasSuffix(string(body), "\n\n") {
				t.Errorf("the stream ends with %q, want an event that is an error", body)
			}
			if err := <-done; err == nil {
				t.Error("Serve does not say that it cut something off")
			}
			close(next)
			b.settled()
		})
	}
}

// TestStoppingAnswersOnOpenConnections: a call that is sent over an idle connection of a gateway
// that stops is answered, and the answer says that it is the last one.
func TestStoppingAnswersOnOpenConnections(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) { s.store = tardy{memstore.New(nil)} }, func(t *testing.T, b *bench) {
		ln := pipetest.Listen()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.h.Serve(ctx, ln) }()
		conns := 0
		rt := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conns++
			return ln.DialContext(ctx, network, addr)
		}}
		call := func(stream bool) (last bool) {
			t.Helper()
			resp, err := rt.RoundTrip(b.request(t.Context(), "openai", stream, "Hello!"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("got %s %s, %v", resp.Status, body, err)
			}
			return resp.Close
		}
		if call(false) {
			t.Error("the gateway closes a connection before it stops")
		}
		stop()
		synctest.Wait()
		if !call(true) {
			t.Error("the last answer does not say that it is the last one")
		}
		if conns != 1 {
			t.Errorf("%d connections, want one", conns)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestTimesOfConnections: a connection serves one request after the other, whatever time lies
// between them. A request that does not come any further is given up; one that comes slowly is not.
func TestTimesOfConnections(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) { s.options.MaxBody = 1000 }, func(t *testing.T, b *bench) {
		ln := pipetest.Listen()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.h.Serve(ctx, ln) }()
		conns := 0
		rt := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conns++
			return ln.DialContext(ctx, network, addr)
		}}
		send := func(r *http.Request) (int, string) {
			t.Helper()
			resp, err := rt.RoundTrip(r)
			if err != nil {
				return 0, err.Error()
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Error(err)
			}
			return resp.StatusCode, string(body)
		}
		for range 3 {
			if code, body := send(b.request(t.Context(), "openai", true, "Hello!")); code != http.StatusOK {
				t.Errorf("got %d %s", code, body)
			}
			time.Sleep(100 * time.Second)
			if code, body := send(b.raw(t.Context(), http.MethodGet, "/healthz", "")); code != http.StatusOK {
				t.Errorf("got %d %s", code, body)
			}
			time.Sleep(100 * time.Second)
		}
		if conns != 1 {
			t.Errorf("%d connections, want one for all", conns)
		}
		for name, c := range map[string]struct {
			pause time.Duration
			want  int
		}{"slow": {25 * time.Second, http.StatusOK}, "stuck": {time.Hour, http.StatusBadRequest}} {
			r := b.request(t.Context(), "openai", false, "Hello!")
			r.Body = io.NopCloser(&slow{[]byte(fmt.Sprintf(apis["openai"].body, "Hello!", "")), c.pause})
			if code, body := send(r); code != c.want {
				t.Errorf("%s: got %d %s, want %d", name, code, body, c.want)
			}
		}
		began := time.Now()
		r := b.request(t.Context(), "openai", false, "Hello!", "Authorization: Bearer guess")
		r.Body = io.NopCloser(&slow{bytes.Repeat([]byte("x"), 100_000), time.Hour})
		r.ContentLength = 100_000
		if code, body := send(r); code != http.StatusUnauthorized || time.Since(began) > time.Minute {
			t.Errorf("a stranger that sends nothing: got %d %s after %v, want 401 soon", code, body, time.Since(began))
		}
		rt.CloseIdleConnections()
		time.Sleep(3 * time.Hour) // the senders see that nobody reads
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// slow is a body that comes in two pieces, with a pause between them.
type slow struct {
	rest  []byte
	pause time.Duration
}

func (s *slow) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	if len(s.rest) < 30 || s.pause == time.Hour && len(s.rest) < 100_000 {
		time.Sleep(s.pause)
	}
	n := copy(p, s.rest[:max(1, len(s.rest)-20)])
	s.rest = s.rest[n:]
	return n, nil
}

// TestManyGatewaysOneQuota: gateways that share a store never exceed the provider's quota together,
// and every call is answered.
//
// req: C1 C2
func TestManyGatewaysOneQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rpm, tpm, gateways, calls = 10, 4000, 3, 150
		sim, err := simulator.New(&simulator.Options{Quotas: []simulator.Quota{{
			Provider: simulator.OpenAI, Name: "gpt", Models: []string{"gpt-4o*"},
			Limits: []simulator.Limit{
				{Name: "rpm", Dimension: simulator.Requests, Amount: rpm, Window: simulator.Rolling},
				{Name: "tpm", Dimension: simulator.Tokens, Amount: tpm, Window: simulator.Rolling},
			},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		store := memstore.New(nil)
		defer store.Close()
		var benches []*bench
		for range gateways {
			p := drawgate.Policy{Name: "upstream", Limits: []drawgate.Limit{
				drawgate.RollingLimit("rpm", rpm, time.Minute),
				drawgate.RollingLimit("tpm", tpm, time.Minute).Of(llm.UnitTokens),
			}}
			for i := range p.Limits {
				p.Limits[i].Margin = 2 * time.Second
			}
			e, err := engine.New(store, engine.Config{Policies: []engine.Policy{{Policy: p}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			u, _ := url.Parse("http://provider.test")
			h, err := gateway.New(e, gateway.Config{
				Upstreams: []gateway.Upstream{{
					Name: "openai", Profile: llm.OpenAI(), URL: u, Owner: "account",
					Models: []gateway.Model{{Name: "*", Policy: "upstream"}},
				}},
				Keys: []gateway.Key{{Name: "alice", Sum: sha256.Sum256([]byte(alice))}},
			}, &gateway.Options{Base: sim.Transport(), Wait: 24 * time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			benches = append(benches, &bench{T: t, h: h, engine: e, sim: sim})
		}
		var group sync.WaitGroup
		for i := range calls {
			group.Go(func() {
				time.Sleep(time.Duration(i%50) * 7 * time.Second)
				prompt := fmt.Sprintf("%s\nsimulate: output=%d delay=%dms", strings.Repeat("word ", i), 1+i*7%200,
					i*13%3000)
				if got := benches[i%gateways].call("openai", i%2 == 0, prompt); got.status != http.StatusOK {
					t.Errorf("call %d: got %d %s", i, got.status, got.body)
				}
			})
		}
		group.Wait()
		if v := sim.Violations(); v.Total != 0 || len(sim.Calls()) != calls {
			t.Errorf("%d violations in %d calls, want none in %d: %v", v.Total, len(sim.Calls()), calls, v.ByDimension)
		}
		for _, l := range sim.Report(time.Time{}).Limits {
			t.Logf("%s: %d of %d used in whole windows", l.Limit, l.Used, l.Allowed)
		}
	})
}
