package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
)

// TestCallsOfEachProvider: a call in the form of each provider's SDK is answered, counted as what
// it used, and made with the upstream's own key.
//
// req: C5 C1
func TestCallsOfEachProvider(t *testing.T) {
	t.Parallel()
	for name, a := range apis {
		for _, stream := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " stream"}[stream], func(t *testing.T) {
				t.Parallel()
				b := newBench(t, nil)
				got := b.call(name, stream, "Hello!\nsimulate: output=50")
				if got.status != http.StatusOK || got.err != nil || !strings.Contains(got.body, "gate") {
					t.Fatalf("got %d %v\n%s", got.status, got.err, got.body)
				}
				b.settled()
				call := b.last()
				if call.Outcome != simulator.Answered || call.Key != "account" || call.Stream != stream ||
					call.Output != 50 {
					t.Errorf("the provider saw %+v", call)
				}
				want := map[string]int64{"rpm": 1}
				for _, unit := range a.profile().Units {
					switch unit {
					case llm.UnitTokens:
						want[unit] = call.Final.Tokens
					case llm.UnitInputTokens:
						want[unit] = call.Input
					case llm.UnitOutputTokens:
						want[unit] = call.Output
					}
				}
				have := b.used("upstream", "account")
				for unit, n := range want {
					if have[unit] < n || unit != llm.UnitTokens && have[unit] != n {
						t.Errorf("%d %s are used, want the provider's %d", have[unit], unit, n)
					}
				}
				if got.header.Get(gateway.HeaderQueued) == "" || got.header.Get("RateLimit") == "" ||
					got.header.Get("RateLimit-Policy") == "" {
					t.Errorf("headers %v, want how long it was queued, and what is left", got.header)
				}
			})
		}
	}
}

// TestACallersRequestStays: the handler does not change the request, as net/http asks of handlers.
// What wraps the gateway may read its headers afterwards.
func TestACallersRequestStays(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		r := b.request(t.Context(), "openai", false, "Hello!", "Cookie: a=b")
		want := r.Header.Clone()
		if got := b.do(r); got.status != http.StatusOK {
			t.Fatalf("got %d %v\n%s", got.status, got.err, got.body)
		}
		if !reflect.DeepEqual(r.Header, want) {
			t.Errorf("the request's header is now %v, and was %v", r.Header, want)
		}
	})
}

// TestStreamsAreNotHeldBack: each piece of a stream reaches the caller before the next one is made.
//
// req: C12
func TestStreamsAreNotHeldBack(t *testing.T) {
	t.Parallel()
	const pieces = 20
	next, gone := make(chan struct{}), make(chan struct{})
	b := newBench(t, func(s *setup) {
		s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(gone)
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			for range pieces {
				io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"word"}}],"usage":null}`+"\n\n")
				http.NewResponseController(w).Flush()
				select {
				case <-next: // the caller has it
				case <-r.Context().Done():
					return
				}
			}
			io.WriteString(w,
				`data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":20,"total_tokens":29}}`+"\n\ndata: [DONE]\n\n")
		})
	})
	resp, err := b.server.Client().Do(b.request(t.Context(), "openai", true, "Hello!"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for i := range pieces {
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), "data: ") || !lines.Scan() {
			t.Fatalf("piece %d: %q, %v", i, lines.Text(), lines.Err())
		}
		next <- struct{}{}
	}
	rest := ""
	for lines.Scan() {
		rest += lines.Text()
	}
	if rest != "data: [DONE]" || lines.Err() != nil {
		t.Errorf("the stream ends with %q, %v; want no event with the usage, which nobody asked for", rest, lines.Err())
	}
	<-gone
	b.settled()
	if got := b.used("upstream", "account")[llm.UnitTokens]; got < 29 {
		t.Errorf("%d tokens are used, want 29 or what was counted at the start", got)
	}
}

// TestUsageOfStreams: the usage of a stream is counted whether its caller asked for it or not, and
// only a caller who did sees it.
func TestUsageOfStreams(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for _, asked := range []bool{false, true} {
		a := apis["openai"]
		more := a.more
		if asked {
			more += `,"stream_options":{"include_usage":true}`
		}
		body := strings.ReplaceAll(strings.ReplaceAll(a.body, "%[1]q", `"Hello!\nsimulate: output=7"`), "%[2]s", more)
		got := b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/chat/completions", body,
			"Authorization: Bearer "+alice))
		if got.status != http.StatusOK || !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
			t.Fatalf("got %d\n%s", got.status, got.body)
		}
		if seen := strings.Contains(got.body, `"completion_tokens":7`); seen != asked {
			t.Errorf("asked for the usage: %v; sent: %v\n%s", asked, seen, got.body)
		}
		for line := range strings.Lines(got.body) {
			data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
			if !ok || data == "[DONE]" {
				continue
			}
			if !json.Valid([]byte(data)) {
				t.Errorf("not whole: %q", line)
			}
		}
	}
	b.settled()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if !e.Usage.Final || e.Usage.Output != 7 {
			t.Errorf("usage %+v, want the provider's own, with 7 tokens", e.Usage)
		}
	}
}

// TestRefusalsInTheProvidersForm: what does not fit is refused as the provider would refuse it, so
// that its SDK raises the right error and waits as long as it should.
//
// req: C7 C8
func TestRefusalsInTheProvidersForm(t *testing.T) {
	t.Parallel()
	for name, a := range apis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(s *setup) {
				p := generous()
				p.Limits[0].Amount = 1
				s.policies = append(s.policies, p)
			})
			if got := b.call(name, false, "Hello!"); got.status != http.StatusOK {
				t.Fatalf("got %d %s", got.status, got.body)
			}
			b.settled()
			before := b.used("upstream", "account")
			got := b.call(name, true, "Hello!", gateway.HeaderTimeout+": 1")
			if got.status != http.StatusTooManyRequests || !strings.Contains(got.body, a.full) ||
				!strings.Contains(got.body, "rpm") {
				t.Errorf("got %d %s", got.status, got.body)
			}
			for _, h := range []string{"Retry-After", "Retry-After-Ms", "RateLimit", "RateLimit-Policy"} {
				if got.header.Get(h) == "" {
					t.Errorf("there is no %s in %v", h, got.header)
				}
			}
			most := a.profile().ClientMaxWait
			if again := got.header.Get("X-Should-Retry"); most > 0 && most < 30*time.Second && again != "false" {
				t.Errorf("X-Should-Retry is %q, want false: this SDK would come back too early", again)
			}
			if after := b.used("upstream", "account"); after["rpm"] != before["rpm"] {
				t.Errorf("a refusal has cost something: %v, then %v", before, after)
			}
			if n := len(b.sim.Calls()); n != 1 {
				t.Errorf("%d calls reached the provider, want 1", n)
			}
		})
	}
}

// TestCallersThatLeave: a caller that leaves in the middle of a stream pays for what it got, and
// the provider is told at once.
//
// req: C1
func TestCallersThatLeave(t *testing.T) {
	t.Parallel()
	for name, a := range apis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			resp, err := b.server.Client().Do(b.request(ctx, name, true,
				"Hello!\nsimulate: output=150 size=1 chunk=200ms"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			for n := 0; n < 20 && lines.Scan(); n++ {
			}
			if n := b.h.UnderWay(); n != 1 {
				t.Errorf("%d calls are under way, want 1", n)
			}
			leave()
			b.settled()
			b.until("the provider knows that the caller has left",
				func() bool { return b.last().Outcome != simulator.Running })
			call := b.last()
			if call.Outcome != simulator.Left || call.Output >= 150 {
				t.Errorf("the provider saw %+v, want that it was left", call)
			}
			used := b.used("upstream", "account")
			switch {
			case used["rpm"] != 1:
				t.Errorf("%v used, want one request", used)
			case slices.Contains(a.profile().Units, llm.UnitOutputTokens) && used[llm.UnitOutputTokens] < 1:
				t.Errorf("%v used, want some tokens of output", used)
			case slices.Contains(a.profile().Units, llm.UnitInputTokens) && used[llm.UnitInputTokens] != call.Input:
				t.Errorf("%v used, want %d tokens of input", used, call.Input)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if e := b.events[0]; e.Outcome.String() != "gave_up" || e.Usage.Output < 1 {
				t.Errorf("observed %v with usage %+v, want a caller that gave up, and what it was sent", e.Outcome,
					e.Usage)
			}
		})
	}
}

// TestCallersLimits: rules limit keys, teams and users, in the same step as the upstream's quota. A
// refusal by one costs nothing in the others.
//
// req: C1
func TestCallersLimits(t *testing.T) {
	t.Parallel()
	for by, keys := range map[string][2]string{
		`attr("key")`: {"alice", "bob"}, `attr("team")`: {"red", "blue"},
		"user": {"alice@example.com", ""},
	} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(s *setup) {
				s.policies = append(s.policies, drawgate.PerMinute("caller", 2))
				s.rules = callerRule(by)
			})
			for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
				if got := b.call("openai", false, "Hello!", gateway.HeaderTimeout+": 0"); got.status != want {
					t.Errorf("call %d: got %d %s, want %d", i+1, got.status, got.body, want)
				}
			}
			if got := b.call("openai", false, "Hello!", gateway.HeaderTimeout+": 0",
				"Authorization: Bearer "+bob); got.status != http.StatusOK {
				t.Errorf("another caller: got %d %s", got.status, got.body)
			}
			b.settled()
			if used := b.used("upstream", "account"); used["rpm"] != 3 {
				t.Errorf("the quota counts %d requests, want 3", used["rpm"])
			}
			if used := b.used("caller", keys[0]); used["requests"]+used["rate"]+used["minute"] != 2 {
				t.Errorf("the caller's limit: %v, want 2", used)
			}
		})
	}
}
