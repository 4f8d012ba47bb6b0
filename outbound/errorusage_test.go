package outbound_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
)

// TestErrorsThatTellUsage: an error that says how many tokens it billed is settled with them, and
// what it leaves out with the most that it can be. Of other errors only the prompt counts, and no
// money.
func TestErrorsThatTellUsage(t *testing.T) {
	t.Parallel()
	const body = `{"model":"gpt-4o","max_tokens":1000,"messages":[{"role":"user","content":"Hello!"}]}`
	const failed = `{"error":{"message":"failed","type":"server_error"}`
	call, err := llm.OpenAI().Parse(http.MethodPost, "/v1/chat/completions", nil, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	bound := llm.OpenAI().Upper(call).Input
	for name, c := range map[string]struct {
		status int
		answer string
		tokens int64
		micros int64
	}{
		"nothing": {500, failed + `}`, max(bound, 1000), 0},
		"zeros": {
			500, failed + `,"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`,
			max(bound, 1000), 0,
		},
		"all": {
			500, failed + `,"usage":{"prompt_tokens":900,"completion_tokens":400}}`, 1300,
			900*2 + 400*10,
		},
		"a client error": {
			400, failed + `,"usage":{"prompt_tokens":900,"completion_tokens":400}}`, 1300,
			900*2 + 400*10,
		},
		"a gateway's": {
			502, failed + `,"usage":{"prompt_tokens":900,"completion_tokens":400}}`, 1300,
			900*2 + 400*10,
		},
		"less than counts": {
			500, failed + `,"usage":{"prompt_tokens":9,"completion_tokens":4}}`, max(bound, 1000), 9*2 + 4*10,
		},
		"only the prompt": {500, failed + `,"usage":{"prompt_tokens":900}}`, 1900, 900*2 + 1000*10},
		"in a response": {
			500, `{"response":` + failed + `,"usage":{"input_tokens":900,"output_tokens":400}}}`, 1300,
			5800,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var got outbound.Event
				client := outbound.New(outbound.PerModel("project", limiter(t, money())), &outbound.Options{
					Observer: &outbound.Observer{Called: func(e *outbound.Event) { got = *e }},
				})
				rt := outbound.NewTransport(client, llm.OpenAI(), &outbound.TransportOptions{
					Prices: &llm.Prices{Currency: "USD", Models: map[string]llm.Price{
						"gpt-4o": {Input: 2_000_000, Output: 10_000_000},
					}},
					Base: roundTripper(func(*http.Request) (*http.Response, error) {
						body := io.NopCloser(strings.NewReader(c.answer))
						return &http.Response{StatusCode: c.status, Header: http.Header{}, Body: body}, nil
					}),
				})
				const url = "http://upstream.test/v1/chat/completions"
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := rt.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				used := map[string]int64{}
				for _, u := range got.Used {
					used[u.Unit] = u.N
				}
				if used[llm.UnitTokens] != c.tokens || used["usd_micros"] != c.micros {
					t.Errorf("used %v, want %d tokens and %d usd_micros", got.Used, c.tokens, c.micros)
				}
			})
		})
	}
}

// TestErrorsTeachNothing: an error that is no refusal may be of a model that does not exist.
func TestErrorsTeachNothing(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int64{200: 7, 429: 7, 404: 1000, 400: 1000, 500: 1000} {
		synctest.Test(t, func(t *testing.T) {
			var limits llm.Learned
			client := outbound.New(outbound.PerModel("project", limiter(t, drawgate.PerMinute("gpt-4o", 1000))), nil)
			rt := outbound.NewTransport(client, llm.OpenAI(), &outbound.TransportOptions{
				Learned: &limits,
				Base: roundTripper(func(*http.Request) (*http.Response, error) {
					h := http.Header{"X-Ratelimit-Limit-Requests": {"7"}}
					return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader("{}"))},
						nil
				}),
			})
			const url = "http://upstream.test/v1/chat/completions"
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url,
				strings.NewReader(`{"model":"gpt-4o"}`))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := limits.Amount(llm.LimitKey{Family: "gpt-4o", Unit: "requests"}, 1000, time.Now()); got != want {
				t.Errorf("after %d: %d requests per minute, want %d", status, got, want)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
