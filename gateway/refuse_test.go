package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
)

// TestEachErrorHasItsStatus: what is wrong with a request, or on its way, is said in the provider's
// own form, by the status that its SDK knows.
//
// req: C7
func TestEachErrorHasItsStatus(t *testing.T) {
	t.Parallel()
	change := func(s *setup) {
		s.options.MaxBody = 1 << 20
		s.config.Keys[0].Models = []string{"openai/gpt-4*", "closed/*", "anthropic/*", "gemini/*"}
		for i := range s.config.Upstreams {
			u := &s.config.Upstreams[i]
			u.Models = []gateway.Model{
				{Name: "gpt-*", Policy: "upstream"},
				{Name: "claude-*", Policy: "upstream"},
				{Name: "gemini-*", Policy: "upstream"},
			}
		}
		closed := s.config.Upstreams[0]
		closed.Name, closed.URL = "closed", closedURL()
		s.config.Upstreams = append(s.config.Upstreams, closed)
	}
	const chat = "/openai/v1/chat/completions"
	key := "Authorization: Bearer " + alice
	for name, c := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		says               string
	}{
		"no key": {"POST", chat, `{}`, nil, http.StatusUnauthorized, `"code":"invalid_api_key"`},
		"a wrong key": {
			"POST", "/anthropic/v1/messages", `{}`,
			[]string{"X-Api-Key: guess"},
			http.StatusUnauthorized, `"type":"authentication_error"`,
		},
		"the upstream's": {
			"POST", chat, `{}`,
			[]string{"Authorization: Bearer " + upstreamKey},
			http.StatusUnauthorized, "virtual key",
		},
		"no upstream": {"POST", "/other/v1/files", `{}`, []string{key}, http.StatusNotFound, `"status":404`},
		"not JSON":    {"POST", chat, `{"model":`, []string{key}, http.StatusBadRequest, "invalid_request_error"},
		"not its type": {
			"POST", chat, `{"model":"gpt-4o"}`,
			[]string{key, "Content-Type: text/plain"},
			http.StatusBadRequest, "application/json",
		},
		"compressed": {
			"POST", chat, "\x1f\x8b\x08",
			[]string{key, "Content-Encoding: gzip"},
			http.StatusBadRequest, "compressed",
		},
		"no model": {"POST", chat, `{"messages":[]}`, []string{key}, http.StatusBadRequest, "name its model"},
		"no such model": {
			"POST", chat, `{"model":"o3","messages":[]}`,
			[]string{key},
			http.StatusNotFound,
			`"code":"model_not_found"`,
		},
		"not its model": {
			"POST", chat, `{"model":"gpt-5","messages":[]}`,
			[]string{key},
			http.StatusNotFound,
			`"code":"model_not_found"`,
		},
		"uncounted": {
			"POST", "/openai/v1/batches", `{}`,
			[]string{key},
			http.StatusNotFound,
			"nothing would count them",
		},
		"not a model": {
			"POST", "/openai/v1/files", `{}`,
			[]string{key},
			http.StatusNotFound,
			`"code":"unknown_url"`,
		},
		"two models": {
			"POST", "/openai/openai/deployments/gpt-4o/chat/completions", `{"model":"gpt-4.1"}`,
			[]string{key},
			http.StatusBadRequest, "send the same in both",
		},
		"an engine": {
			"POST", "/openai/v1/engines/gpt-4o/chat/completions", `{"model":"gpt-4.1"}`,
			[]string{key},
			http.StatusNotFound, "like that of a call which is counted",
		},
		"two models, gemini": {
			"POST", "/gemini/v1beta/models/gemini-2.5-flash:countTokens",
			`{"generateContentRequest":{"model":"models/gemini-2.5-pro"}}`,
			[]string{key},
			http.StatusBadRequest, "send the same in both",
		},
		"two models, batch": {
			"POST", "/gemini/v1beta/models/gemini-embedding:batchEmbedContents",
			`{"requests":[{"model":"models/gemini-embedding"},{"model":"models/gemini-2"}]}`,
			[]string{key},
			http.StatusBadRequest, "send the same in both",
		},
		"background": {
			"POST", "/openai/v1/responses", `{"model":"gpt-4o","input":"x","background":true}`,
			[]string{key},
			http.StatusBadRequest, "background",
		},
		"background, a 1": {
			"POST", "/openai/v1/responses", `{"model":"gpt-4o","input":"x","background":1}`,
			[]string{key},
			http.StatusBadRequest, "another type",
		},
		"not a type": {
			"POST", chat, `{"model":"gpt-4o"}`,
			[]string{key, "Content-Type: application/json; x"},
			http.StatusBadRequest, "Content-Type",
		},
		"another charset": {
			"POST", chat, `{"model":"gpt-4o"}`,
			[]string{key, "Content-Type: application/json; charset=utf-7"},
			http.StatusBadRequest, "charset",
		},
		"compressed, twice": {"POST", chat, `{}`, []string{
			key, "Content-Encoding: identity",
			"+Content-Encoding: gzip",
		}, http.StatusBadRequest, "compressed"},
		"two types": {
			"POST", chat, `{}`,
			[]string{key, "+Content-Type: text/plain"},
			http.StatusBadRequest,
			"more than one Content-Type",
		},
		"deletion": {
			"DELETE", "/openai/v1/models/ft:gpt-4o", ``,
			[]string{key},
			http.StatusNotFound,
			"nothing would count them",
		},
		"upwards": {
			"POST", "/openai/v1/../chat/completions", `{}`,
			[]string{key},
			http.StatusBadRequest,
			`\"..\"`,
		},
		"upwards, escaped": {
			"POST", "/openai/v1/%2e%2e%2fchat/completions", `{}`,
			[]string{key},
			http.StatusBadRequest, `\"..\"`,
		},
		"two slashes": {
			"POST", "/openai//v1/chat/completions", `{}`,
			[]string{key},
			http.StatusBadRequest,
			"slash",
		},
		"a priority": {
			"POST", chat, `{}`,
			[]string{key, gateway.HeaderPriority + ": high"},
			http.StatusBadRequest, gateway.HeaderPriority,
		},
		"a timeout": {
			"POST", chat, `{}`,
			[]string{key, gateway.HeaderTimeout + ": soon"},
			http.StatusBadRequest, gateway.HeaderTimeout,
		},
		"a timeout, NaN": {
			"POST", chat, `{}`,
			[]string{key, gateway.HeaderTimeout + ": NaN"},
			http.StatusBadRequest, gateway.HeaderTimeout,
		},
		"too large": {
			"POST", "/gemini/v1beta/models/gemini-2.5-flash:generateContent", strings.Repeat(" ", 2<<20),
			[]string{"X-Goog-Api-Key: " + alice},
			http.StatusRequestEntityTooLarge, "INVALID_ARGUMENT",
		},
		"unreachable": {
			"POST", "/closed/v1/chat/completions", `{"model":"gpt-4o","messages":[]}`,
			[]string{key},
			http.StatusBadGateway, "cannot be reached",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, change)
			got := b.do(b.raw(t.Context(), c.method, c.path, c.body, c.headers...))
			if got.status != c.status || got.err != nil || !strings.Contains(got.body, c.says) {
				t.Errorf("got %d %v %s, want %d with %q", got.status, got.err, got.body, c.status, c.says)
			}
			if retry := got.header.Get("X-Should-Retry"); name == "unreachable" && retry != "" ||
				name != "unreachable" && retry != "false" {
				t.Errorf("X-Should-Retry is %q", retry)
			}
			if n := len(b.sim.Calls()); n != 0 {
				t.Errorf("%d calls reached the provider, want none", n)
			}
			b.settled()
			if used := b.used("upstream", "account"); used["rpm"] != 0 {
				t.Errorf("%v used, want nothing", used)
			}
		})
	}
}

// TestWhatProvidersFailWith: errors of the provider pass as they are, and its circuit opens: then
// calls are refused at once, and cost nothing.
//
// req: C4 C7
func TestWhatProvidersFailWith(t *testing.T) {
	t.Parallel()
	for name := range apis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(s *setup) {
				s.config.Keys = s.config.Keys[:1]
				for i := range s.config.Upstreams {
					s.config.Upstreams[i].Breaker = outbound.Breaker{Failures: 3, Open: time.Hour}
				}
			})
			for range 3 {
				if got := b.call(name, false,
					"Hello!\nsimulate: fault=500"); got.status != http.StatusInternalServerError {
					t.Errorf("got %d %s, want the provider's own 500", got.status, got.body)
				}
			}
			b.settled()
			before := b.used("upstream", "account")
			got := b.call(name, false, "Hello!")
			if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "3600" {
				t.Errorf("got %d %v %s, want 503 for an hour", got.status, got.header, got.body)
			}
			if state, after, ok := b.h.Circuit(apis[name].upstream); state != outbound.CircuitOpen || after <= 0 ||
				!ok {
				t.Errorf("the circuit is %s for %v", state, after)
			}
			if after := b.used("upstream", "account"); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("%v were used, and then %v", before, after)
			}
		})
	}
}

// TestProvidersRefusals: a 429 of the provider passes as it is, and the quota is paused for
// everybody.
//
// req: C1 A14
func TestProvidersRefusals(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		if got := b.call("openai", true, "Hello!\nsimulate: fault=minute"); got.status != http.StatusTooManyRequests ||
			!strings.Contains(got.body, "Rate limit reached") {
			t.Errorf("got %d %s", got.status, got.body)
		}
		got := b.call("openai", false, "Hello!", gateway.HeaderTimeout+": 1s", "Authorization: Bearer "+bob)
		if got.status != http.StatusTooManyRequests || !strings.Contains(got.body, "paused") ||
			got.header.Get("Retry-After") == "" {
			t.Errorf("another caller: got %d %v %s, want that the quota is paused", got.status, got.header, got.body)
		}
	})
}

// TestAnswersThatAreCutOff: a caller can tell that its answer is not whole.
func TestAnswersThatAreCutOff(t *testing.T) {
	t.Parallel()
	for name := range apis {
		for _, stream := range []bool{false, true} {
			b := newBench(t, nil)
			got := b.call(name, stream, "Hello!\nsimulate: output=100 fault=cut after=3")
			if got.err == nil {
				t.Errorf("%s, stream %v: got %d %s without an error", name, stream, got.status, got.body)
			}
			if stream && !strings.Contains(got.body, `"error"`) {
				t.Errorf("%s: the stream does not say that it was cut off: %s", name, got.body)
			}
		}
	}
}

// TestErrorEventsStandAlone: the event that says that a stream was cut off is an event of its own,
// wherever the stream broke off, no empty line that ends nothing precedes it, and its lines end as
// those of the stream. Of an event that has not ended nothing passes, unless it is very long.
func TestErrorEventsStandAlone(t *testing.T) {
	t.Parallel()
	long := "data: " + strings.Repeat("x", 100<<10)
	for sent, want := range map[string]string{
		"data: {}\n\n":          "data: {}\n\n",
		"data: {}\r\n\r\n":      "data: {}\r\n\r\n",
		"data: {}\n":            "",
		"data: {}\n\ndata: {\"": "data: {}\n\n",
		"data: {}\n\n" + long:   "data: {}\n\n" + long + "\n\n",
		"":                      "",
	} {
		b := newBench(t, func(s *setup) {
			s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, sent)
				http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			})
		})
		got := b.call("gemini", true, "Hello!")
		rest, ok := strings.CutPrefix(got.body, want+`data: {"error":`)
		end := "\n\n"
		if strings.Contains(sent, "\r") {
			end = "\r\n\r\n"
		}
		if !ok || strings.Index(rest, "}"+end) != len(rest)-len(end)-1 || got.err == nil {
			t.Errorf("after %.100q: got %.100q, %v", sent, got.body, got.err)
		}
	}
}

// TestSilentProviders: an answer that does not come, or does not end, is given up, and its caller
// knows.
//
// req: C12
func TestSilentProviders(t *testing.T) {
	t.Parallel()
	for name := range apis {
		inBubble(t, func(s *setup) {
			for i := range s.config.Upstreams {
				s.config.Upstreams[i].Silence, s.config.Upstreams[i].Duration = time.Minute, 10*time.Minute
				s.config.Upstreams[i].Breaker = outbound.Breaker{Failures: -1}
			}
		}, func(t *testing.T, b *bench) {
			for _, c := range []struct {
				stream bool
				how    string
				after  time.Duration
				status int
				cut    bool
			}{
				{false, "fault=stall", time.Minute, http.StatusGatewayTimeout, false},
				{true, "delay=61s", time.Minute, http.StatusGatewayTimeout, false},
				{true, "output=100 size=10 fault=stall after=2", time.Minute, http.StatusOK, true},
				{true, "output=100 size=10 chunk=59s", 9 * 59 * time.Second, http.StatusOK, false},
				{true, "fault=endless chunk=1s", 10 * time.Minute, http.StatusOK, true},
				{false, "fault=endless chunk=1s", 10 * time.Minute, http.StatusOK, true},
			} {
				began := time.Now()
				got := b.call(name, c.stream, "Hello!\nsimulate: "+c.how)
				if got.status != c.status || (got.err != nil) != c.cut || time.Since(began) != c.after {
					t.Errorf("%s, %s: got %d %v after %v, want %d, cut off %v, after %v", name, c.how, got.status,
						got.err, time.Since(began), c.status, c.cut, c.after)
				}
				if c.stream && c.cut && !strings.Contains(got.body, "did not answer in time") {
					t.Errorf("%s, %s: the stream does not say why it ends", name, c.how)
				}
				if e := b.events[len(b.events)-1]; (e.Outcome == outbound.Failed) != (c.cut ||
					c.status != http.StatusOK) {
					t.Errorf("%s, %s: %v with %v", name, c.how, e.Outcome, e.Err)
				}
			}
			if n := b.h.UnderWay(); n != 0 {
				t.Errorf("%d calls are under way", n)
			}
		})
	}
}

// TestSecretsStayInside: the provider's key never reaches a caller, and the caller's key never
// reaches the provider.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	var seen http.Header
	var query url.Values
	b := newBench(t, func(s *setup) {
		s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen, query = r.Header.Clone(), r.URL.Query()
			status := http.StatusOK
			fmt.Sscan(r.Header.Get("X-Answer"), &status)
			w.Header().Set("X-Echo", fmt.Sprint(r.Header))
			w.Header().Set("Set-Cookie", "session=1")
			w.Header().Set("Alt-Svc", `h3=":443"`)
			w.WriteHeader(status)
			if status >= http.StatusBadRequest {
				fmt.Fprintf(w, `{"error":{"message":"Incorrect API key provided: %s"}}`, r.Header)
			}
		})
	})
	for name := range apis {
		for _, status := range []int{
			http.StatusOK, http.StatusBadRequest, http.StatusUnauthorized,
			http.StatusForbidden, http.StatusInternalServerError,
		} {
			r := b.request(t.Context(), name, false, "Hello!", "X-Answer: "+fmt.Sprint(status), "Cookie: a=b",
				"X-Forwarded-For: 192.0.2.1", "OpenAI-Organization: other",
				"X-Goog-User-Project: other", "Connection: X-Hop", "X-Hop: 1", gateway.HeaderPriority+": 1",
				"X-Http-Method-Override: DELETE", "User-Agent: sdk/1")
			r.URL.RawQuery = "key=" + alice + "&alt=json&api-version=2"
			resp, err := b.server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			all := fmt.Sprint(resp.Header, string(body))
			if strings.Contains(all, upstreamKey) || strings.Contains(all, "session=1") ||
				strings.Contains(all, "h3=") {
				t.Errorf("%s, status %d: the answer shows what it must not: %s", name, status, all)
			}
			if status == http.StatusUnauthorized && resp.StatusCode != http.StatusBadGateway {
				t.Errorf("%s: the gateway's own key is wrong: got %d, want 502", name, resp.StatusCode)
			}
			if sent := fmt.Sprint(seen, query); strings.Contains(sent, alice) || strings.Contains(sent, "other") ||
				strings.Contains(sent, "192.0.2.1") {
				t.Errorf("%s: the provider sees what it must not: %s", name, sent)
			}
			for _, h := range []string{"Cookie", "X-Hop", gateway.HeaderPriority, "X-Http-Method-Override"} {
				if seen.Get(h) != "" {
					t.Errorf("%s: the provider sees %s", name, h)
				}
			}
			if strings.Count(fmt.Sprint(seen), upstreamKey) != 1 || seen.Get("User-Agent") != "sdk/1" ||
				query.Get("api-version") != "2" {
				t.Errorf("%s: the provider sees %v %v, want its own key once, and the rest as it was", name, seen,
					query)
			}
		}
	}
	if text := fmt.Sprintf("%v %+v %#v", gateway.Upstream{Key: upstreamKey}, gateway.Upstream{Key: upstreamKey},
		gateway.Upstream{Key: upstreamKey}); strings.Contains(text, upstreamKey) {
		t.Errorf("an upstream prints its key: %s", text)
	}
}

// TestKeysWhereSDKsPutThem: each place counts.
func TestKeysWhereSDKsPutThem(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	a := apis["gemini"]
	for _, place := range []string{
		"Authorization: Bearer ", "authorization: bearer ", "X-Api-Key: ",
		"X-Goog-Api-Key: ", "Api-Key: ", "?key=",
	} {
		r := b.raw(t.Context(), http.MethodPost, "/gemini"+a.path, fmt.Sprintf(a.body, "Hello!", ""))
		if place == "?key=" {
			r.URL.RawQuery = "key=" + alice
		} else {
			name, before, _ := strings.Cut(place, ": ")
			r.Header.Set(name, before+alice)
		}
		if got := b.do(r); got.status != http.StatusOK {
			t.Errorf("%s: got %d %s", place, got.status, got.body)
		}
	}
}

// TestUncountedCalls: lists of models and counts of tokens pass, and cost nothing.
func TestUncountedCalls(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	got := b.do(b.raw(t.Context(), http.MethodPost, "/anthropic/v1/messages/count_tokens",
		`{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":"Hello!"}]}`, "X-Api-Key: "+alice))
	if got.status != http.StatusOK || !strings.Contains(got.body, "input_tokens") {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if got := b.do(b.raw(t.Context(), http.MethodGet, "/openai/v1/models", "",
		"Authorization: Bearer "+alice)); got.status != http.StatusNotFound || strings.Contains(got.body, "gateway") {
		t.Errorf("got %d %s, want the simulator's own answer: it has no such path", got.status, got.body)
	}
	if got := b.do(b.raw(t.Context(), http.MethodGet, "/healthz", "")); got.status != http.StatusOK ||
		got.body != "ok\n" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if used := b.used("upstream", "account"); used["rpm"] != 0 {
		t.Errorf("%v used, want nothing", used)
	}
}

// TestCallsThatNeverFit: a call that asks for more than a limit has is refused at once, and says
// what to do.
//
// req: C7
func TestCallsThatNeverFit(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(s *setup) {
		p := generous()
		p.Limits = append(p.Limits[:1], drawgate.RollingLimit("tpm", 100, time.Minute).Of(llm.UnitTokens))
		s.policies = append(s.policies, p)
	})
	got := b.call("openai", false, "Hello!")
	if got.status != http.StatusBadRequest || !strings.Contains(got.body, "max_tokens") ||
		got.header.Get("Retry-After") != "" || got.header.Get("X-Should-Retry") != "false" {
		t.Errorf("got %d %v %s, want 400 that is not retried", got.status, got.header, got.body)
	}
}

// TestDearerCallsAreRefused: with prices, a call that asks for more than they say is not made.
// Without them it passes.
//
// req: B12
func TestDearerCallsAreRefused(t *testing.T) {
	t.Parallel()
	const body = `{"model":"gpt-4o","max_tokens":5,"service_tier":"priority","messages":[{"role":"user","content":"Hello!"}]}`
	for _, prices := range []*llm.Prices{nil, {
		Currency: "usd",
		Models:   map[string]llm.Price{"gpt-4o": {Input: 1, Output: 1}},
	}} {
		inBubble(t, func(s *setup) { s.config.Prices = prices }, func(t *testing.T, b *bench) {
			got := b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/chat/completions", body,
				"Authorization: Bearer "+alice))
			if prices == nil {
				if got.status != http.StatusOK {
					t.Errorf("without prices: %d %s", got.status, got.body)
				}
				return
			}
			if got.status != http.StatusBadRequest || !strings.Contains(got.body,
				"prices do not cover what the call asks for (service_tier): leave it out") {
				t.Errorf("got %d %s, want 400 that names the field", got.status, got.body)
			}
			if n := len(b.sim.Calls()); n != 0 {
				t.Errorf("%d calls reached the provider, want none", n)
			}
			if used := b.used("upstream", "account")["rpm"]; used != 0 {
				t.Errorf("%d requests were taken, want none", used)
			}
		})
	}
}

// TestCallsWithoutAnUpstream: an SDK whose base URL lacks the upstream's name shows what to do, as
// it gets the provider's own form.
func TestCallsWithoutAnUpstream(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for path, form := range map[string]string{
		"/v1/chat/completions": `{"error":{"code":"unknown_url"`,
		"/v1/responses":        `{"error":{"code":"unknown_url"`,
		"/v1/embeddings":       `{"error":{"code":"unknown_url"`,
		"/v1/messages":         `"type":"not_found_error"`,
		"/v1beta/models/gemini-2.5-flash:generateContent": `"status":"NOT_FOUND"`,
	} {
		got := b.do(b.raw(t.Context(), http.MethodPost, path, `{}`))
		if got.status != http.StatusNotFound || !strings.Contains(got.body, form) ||
			!strings.Contains(got.body, "add it to the base URL") {
			t.Errorf("%s: got %d %s, want %s", path, got.status, got.body, form)
		}
	}
}

// TestRefusedKeysAreLogged: the log names the settings that hold the key.
func TestRefusedKeysAreLogged(t *testing.T) {
	t.Parallel()
	for key, want := range map[gateway.Secret]string{
		"":           "the upstream has none: name it with api_key_env or api_key_file",
		"sk-refused": "look at its api_key_env or api_key_file",
	} {
		var log bytes.Buffer
		inBubble(t, func(s *setup) {
			s.config.Upstreams[0].Key = key
			s.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
		}, func(t *testing.T, b *bench) {
			if got := b.call("openai", false, "Hello!"); got.status != http.StatusBadGateway ||
				!strings.Contains(log.String(), want) {
				t.Errorf("key %q: got %d, and the log %s, want %q", string(key), got.status, log.String(), want)
			}
		})
	}
}
