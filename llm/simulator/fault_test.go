package simulator_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/llm/simulator"
)

// streams has one stream of each API, of 5 words in chunks of 1, in pauses of a second.
var streams = map[string]struct{ path, body, word, broken string }{
	"chat": {chatPath, chat(steerSlow, `"stream":true`), `"delta":{"content":"[a-z ]`, `"type":"server_error"`},
	"responses": {
		responsePath, `{"model":"m","stream":true,"input":"` + steerSlow + `"}`,
		"event: response.output_text.delta", "event: error\n",
	},
	"messages": {
		messagePath, message(steerSlow, `"stream":true,"max_tokens":9`), "event: content_block_delta",
		"event: error\n",
	},
	"gemini":  {streamPath + "?alt=sse", contents(steerSlow), `"text":"[a-z ]`, `"status":"UNAVAILABLE"`},
	"array":   {streamPath, contents(steerSlow), `"text":"[a-z ]`, `"status":"UNAVAILABLE"`},
	"generic": {genericPath, `{"p":"` + steerSlow + `","stream":true}`, `"delta":"[a-z ]`, `"internal"`},
}

const steerSlow = "simulate: output=5 size=1 chunk=1s"

// chunks counts the chunks with words.
func chunks(name, body string) int {
	return len(regexp.MustCompile(streams[name].word).FindAllString(body, -1))
}

// faulty sends one stream with a fault, and returns what came of it.
func faulty(t *testing.T, name string, f simulator.Fault) (reply, simulator.Call, time.Duration) {
	t.Helper()
	s := newServer(t, nil)
	if err := s.Inject(f); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	got := post(t, s, streams[name].path, streams[name].body)
	return got, last(t, s), time.Since(start)
}

// each runs a test for every stream, in a bubble.
func each(t *testing.T, test func(t *testing.T, name string)) {
	t.Helper()
	for name := range streams {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, name) })
		})
	}
}

func TestWholeStream(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, name string) {
		got, c, took := faulty(t, name, simulator.Fault{Kind: simulator.FaultLatency, Delay: time.Minute})
		if n := chunks(name, got.body); n != 5 || got.err != nil || took != time.Minute+4*time.Second {
			t.Errorf("got %d chunks, %v, in %v", n, got.err, took)
		}
		if c.Outcome != simulator.Answered || c.Output != 5 || c.Delivered != 5 || c.Bytes != int64(len(got.body)) ||
			!c.Stream {
			t.Errorf("the ledger has %+v", c)
		}
	})
}

func TestCutStream(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, name string) {
		got, c, took := faulty(t, name, simulator.Fault{Kind: simulator.FaultCut, After: 2})
		if n := chunks(name, got.body); n != 2 || !errors.Is(got.err, syscall.ECONNRESET) || took != 2*time.Second {
			t.Errorf("got %d chunks, %v, in %v", n, got.err, took)
		}
		if c.Outcome != simulator.Cut || c.Output != 2 || c.Delivered != 2 || c.Status != 200 ||
			c.Fault != simulator.FaultCut {
			t.Errorf("the ledger has %+v", c)
		}
	})
}

func TestErrorInStream(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, name string) {
		got, c, _ := faulty(t, name, simulator.Fault{Kind: simulator.FaultErrorEvent, After: 3})
		if n := chunks(name, got.body); n != 3 || got.err != nil || got.status != 200 ||
			!strings.Contains(got.body, streams[name].broken) {
			t.Errorf("got %d chunks, %v, %s", n, got.err, got.body)
		}
		if c.Outcome != simulator.Cut || c.Delivered != 3 {
			t.Errorf("the ledger has %+v", c)
		}
	})
}

func TestStalledStream(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, name string) {
		got, c, took := faulty(t, name, simulator.Fault{Kind: simulator.FaultStall, After: 2, Delay: time.Hour})
		if c.Outcome != simulator.Answered || got.err != nil || took != time.Hour+4*time.Second {
			t.Errorf("it took %v, %v; the ledger has %+v", took, got.err, c)
		}
	})
}

// TestClientLeaves: a stream without an end ends when the client closes its body, and one that
// stalls when its context ends.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	for _, kind := range []simulator.FaultKind{simulator.FaultEndless, simulator.FaultStall} {
		for name, q := range streams {
			t.Run(string(kind)+" "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newServer(t, nil)
					if err := s.Inject(simulator.Fault{Kind: kind, After: 2}); err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Millisecond)
					defer cancel()
					got := do(s, newRequest(ctx, t, q.path, q.body))
					if !errors.Is(got.err, context.DeadlineExceeded) {
						t.Errorf("got %v", got.err)
					}
					synctest.Wait()
					c := last(t, s)
					want := map[simulator.FaultKind]int64{simulator.FaultEndless: 61, simulator.FaultStall: 2}[kind]
					if c.Outcome != simulator.Left || c.Output != want {
						t.Errorf("the ledger has %+v", c)
					}
				})
			})
		}
	}
}

// TestBodyIsClosedEarly: closing the body of a response ends the call.
func TestBodyIsClosedEarly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, name string) {
		s := newServer(t, nil)
		resp, err := s.Transport().RoundTrip(newRequest(t.Context(), t, streams[name].path, streams[name].body))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := resp.Body.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c := last(t, s); c.Outcome != simulator.Left || c.Output > 1 {
			t.Errorf("the ledger has %+v", c)
		}
	})
}

// TestFaultsOfStreams: an answer that lacks its usage, has another type, or is compressed.
func TestFaultsOfStreams(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, name string) {
		if got, _, _ := faulty(t, name, simulator.Fault{Kind: simulator.FaultNoUsage}); strings.Contains(got.body,
			`"usage":{`) || strings.Contains(got.body, `"usageMetadata"`) {
			t.Errorf("it has a usage: %s", got.body)
		}
		if got, _, _ := faulty(t, name,
			simulator.Fault{Kind: simulator.FaultContentType}); got.header.Get("Content-Type") != "text/plain" {
			t.Errorf("the type is %q", got.header.Get("Content-Type"))
		}
		plain, _, _ := faulty(t, name, simulator.Fault{Kind: simulator.FaultLatency, Delay: 1})
		zipped, c, _ := faulty(t, name, simulator.Fault{Kind: simulator.FaultGzip})
		if len(zipped.body) != len(plain.body) || zipped.err != nil || c.Bytes >= int64(len(plain.body)) {
			t.Errorf("%d bytes of %d, %v, sent as %d", len(zipped.body), len(plain.body), zipped.err, c.Bytes)
		}
	})
}

// TestFaultsOfPlainAnswers: what the faults of streams do to other answers.
func TestFaultsOfPlainAnswers(t *testing.T) {
	t.Parallel()
	for kind, check := range map[simulator.FaultKind]func(got reply, c simulator.Call, took time.Duration) bool{
		simulator.FaultCut: func(got reply, c simulator.Call, _ time.Duration) bool {
			return errors.Is(got.err, syscall.ECONNRESET) && c.Outcome == simulator.Cut &&
				c.Bytes == int64(len(got.body)) && c.Bytes > 0 && c.Delivered == 0
		},
		simulator.FaultClose: func(got reply, c simulator.Call, _ time.Duration) bool {
			return errors.Is(got.err, io.EOF) && c.Outcome == simulator.Failed && c.Status == 0
		},
		simulator.FaultErrorEvent: func(got reply, c simulator.Call, _ time.Duration) bool {
			return got.status == 500 && c.Outcome == simulator.Failed
		},
		simulator.FaultStall: func(_ reply, c simulator.Call, took time.Duration) bool {
			return took == time.Minute && c.Outcome == simulator.Left && c.Output == 3
		},
		simulator.FaultEndless: func(got reply, c simulator.Call, _ time.Duration) bool {
			return strings.Trim(got.body, " ") == "" && len(got.body) > 1000 && c.Outcome == simulator.Left
		},
		simulator.FaultNoUsage: func(got reply, _ simulator.Call, _ time.Duration) bool {
			return got.status == 200 && !strings.Contains(got.body, `"usage"`) &&
				!strings.Contains(got.body, `"usageMetadata"`)
		},
		simulator.FaultContentType: func(got reply, _ simulator.Call, _ time.Duration) bool {
			return got.header.Get("Content-Type") == "text/plain"
		},
		simulator.FaultGzip: func(got reply, c simulator.Call, _ time.Duration) bool {
			return strings.Contains(got.body, "the gate lets") && c.Bytes != int64(len(got.body)) &&
				got.header.Get("Content-Encoding") == ""
		},
	} {
		for p, q := range calls {
			t.Run(string(p)+" "+string(kind), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newServer(t, &simulator.Options{Output: 3})
					if err := s.Inject(simulator.Fault{Kind: kind}); err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					start := time.Now()
					got := do(s, newRequest(ctx, t, q.path, q.body))
					took := time.Since(start)
					synctest.Wait()
					if c := last(t, s); !check(got, c, took) {
						t.Errorf("got %+v after %v\nthe ledger has %+v", got, took, c)
					}
				})
			})
		}
	}
}

// TestFaultsOverTheNetwork: clients of a real server see the same as those in this process.
func TestFaultsOverTheNetwork(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	send := func(kind simulator.FaultKind, body string) (reply, error) {
		if err := s.Inject(simulator.Fault{Kind: kind, After: 1}); err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+chatPath,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			return reply{}, err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return reply{resp.StatusCode, resp.Header, string(b), err}, nil
	}
	stream := chat("simulate: output=5 size=1", `"stream":true`)
	if _, err := send(simulator.FaultClose, stream); !errors.Is(err, io.EOF) {
		t.Errorf("closed: got %v", err)
	}
	// What was on its way may be lost with the connection.
	if got, err := send(simulator.FaultCut, stream); err == nil &&
		(got.err == nil || strings.Count(got.body, `"delta":{"content":"`) > 2) {
		t.Errorf("cut: got %q, %v", got.body, got.err)
	}
	if got, err := send(simulator.FaultCut, chat("x")); err == nil && got.err == nil {
		t.Errorf("a plain answer, cut: got %q", got.body)
	}
	if got, err := send(simulator.FaultGzip, stream); err != nil || got.err != nil ||
		!strings.HasSuffix(got.body, "data: [DONE]\n\n") {
		t.Errorf("gzip: got %q, %v, %v", got.body, got.err, err)
	}
	if got, err := send(simulator.FaultBadGateway, stream); err != nil || got.status != 502 {
		t.Errorf("502: got %d, %v", got.status, err)
	}
}

// TestFaultsOverHTTP2: a connection of HTTP/2 is not closed, but the call is cut off and recorded.
func TestFaultsOverHTTP2(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	for i, c := range []struct {
		kind  simulator.FaultKind
		body  string
		want  simulator.Outcome
		total int64
	}{
		{simulator.FaultClose, chat("simulate: output=5"), simulator.Failed, 5},
		{simulator.FaultCut, chat("simulate: output=5"), simulator.Cut, 5},
		{simulator.FaultCut, chat("simulate: output=5 size=1", `"stream":true`), simulator.Cut, 1},
	} {
		if err := s.Inject(simulator.Fault{Kind: c.kind, After: 1}); err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+chatPath,
			strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Do(req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err == nil {
			t.Errorf("call %d: the answer was not cut off", i)
		}
		if got := last(t, s); got.Outcome != c.want || got.Output != c.total {
			t.Errorf("call %d: the ledger has %+v", i, got)
		}
	}
}

// TestSeed: the same seed gives the same faults to the same calls, by about their rate.
func TestSeed(t *testing.T) {
	t.Parallel()
	run := func(seed uint64, reset bool) (kinds []simulator.FaultKind) {
		s := newServer(t, &simulator.Options{Seed: seed, Faults: []simulator.Fault{
			{Kind: simulator.FaultTransient, Rate: 0.2}, {
				Kind: simulator.FaultInternal, Rate: 0.5,
				Provider: simulator.Generic,
			},
		}})
		if reset {
			post(t, s, genericPath, `{}`)
			s.Reset()
		}
		for range 400 {
			post(t, s, genericPath, `{}`)
		}
		for _, c := range s.Calls() {
			kinds = append(kinds, c.Fault)
		}
		return kinds
	}
	one := run(1, false)
	if !slices.Equal(one, run(1, true)) {
		t.Error("the same seed gave other faults")
	}
	if slices.Equal(one, run(2, false)) {
		t.Error("another seed gave the same faults")
	}
	n := map[simulator.FaultKind]int{}
	for _, k := range one {
		n[k]++
	}
	// The seed is fixed, so these are not by chance: 0.2, 0.8 · 0.5 and the rest, of 400.
	if n[simulator.FaultTransient] < 60 || n[simulator.FaultTransient] > 100 || n[simulator.FaultInternal] < 130 ||
		n[simulator.FaultInternal] > 190 {
		t.Errorf("got %v", n)
	}
}

// TestInjectedFaults: they hit the calls that they are for, in order, so many times.
func TestInjectedFaults(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	err := s.Inject(
		simulator.Fault{Kind: simulator.FaultOverload, Provider: simulator.Gemini},
		simulator.Fault{Kind: simulator.FaultInternal, Times: 2, Model: "gpt-4.1"},
		simulator.Fault{Kind: simulator.FaultTransient},
	)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		path, body string
		want       int
	}{
		{chatPath, chat("x"), 500},
		{genericPath, `{}`, 429},
		{chatPath, chat("x"), 500},
		{chatPath, chat("x"), 200},
		{geminiPath, contents("x"), 503},
		{geminiPath, contents("x"), 200},
		{chatPath, chat("simulate: fault=502"), 502},
	} {
		if got := post(t, s, c.path, c.body); got.status != c.want {
			t.Errorf("call %d: got %d, want %d", i, got.status, c.want)
		}
	}
	for _, f := range []simulator.Fault{
		{},
		{Kind: "x"},
		{Kind: simulator.FaultLatency},
		{Kind: simulator.FaultCut, After: -1},
		{Kind: simulator.FaultCut, Rate: 2},
		{Kind: simulator.FaultCut, Provider: "x"},
	} {
		if err := s.Inject(f); err == nil {
			t.Errorf("%+v was accepted", f)
		}
	}
	if err := s.Inject(make([]simulator.Fault, simulator.MaxInjected+1)...); err == nil {
		t.Error("too many were accepted")
	}
}
