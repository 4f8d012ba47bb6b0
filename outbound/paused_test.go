package outbound_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
)

// TestReadersThatPause: whoever reads nothing for a while and then leaves pays for the longest
// answer that the call allowed: the provider may have sent it meanwhile. Who reads on, and waits
// for the provider again, pays for what came.
//
// req: B12 C1
func TestReadersThatPause(t *testing.T) {
	t.Parallel()
	const body = `{"model":"gpt-4o","stream":true,"max_tokens":1000,"messages":[]}`
	const event = `data: {"choices":[{"delta":{"content":"word"}}]}` + "\n\n"
	const usage = `data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}` + "\n\ndata: [DONE]\n\n"
	for name, c := range map[string]struct {
		read   func(from io.Reader, send io.Writer)
		tokens int64 // of output
	}{
		"leaves at once": {func(r io.Reader, _ io.Writer) { piece(t, r) }, 5},
		"pauses and leaves": {func(r io.Reader, _ io.Writer) {
			piece(t, r)
			time.Sleep(2 * time.Second)
		}, 1000},
		"pauses, reads a little and leaves": {func(r io.Reader, w io.Writer) {
			piece(t, r)
			time.Sleep(2 * time.Second)
			go io.WriteString(w, event)
			synctest.Wait()
			piece(t, r)
		}, 1000},
		"pauses, catches up and leaves": {func(r io.Reader, w io.Writer) {
			piece(t, r)
			time.Sleep(2 * time.Second)
			go func() {
				time.Sleep(time.Second)
				_, _ = io.WriteString(w, event)
			}()
			piece(t, r)
		}, 10},
		"pauses and reads to the end": {func(r io.Reader, w io.Writer) {
			piece(t, r)
			time.Sleep(2 * time.Second)
			go io.WriteString(w, usage)
			synctest.Wait()
			piece(t, r)
		}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var got outbound.Event
				client := outbound.New(outbound.PerModel("project", limiter(t, money())), &outbound.Options{
					Observer: &outbound.Observer{Called: func(e *outbound.Event) { got = *e }},
				})
				from, to := io.Pipe()
				rt := outbound.NewTransport(client, llm.OpenAI(), &outbound.TransportOptions{
					Prices: &llm.Prices{Currency: "USD", Models: map[string]llm.Price{"gpt-4o": {Output: 1_000_000}}},
					Base: roundTripper(func(*http.Request) (*http.Response, error) {
						return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: from}, nil
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
				go io.WriteString(to, event)
				c.read(resp.Body, to)
				resp.Body.Close()
				if used := fmt.Sprint(got.Used[len(got.Used)-1].N); used != fmt.Sprint(c.tokens) {
					t.Errorf("%s tokens of output are paid for, want %d", used, c.tokens)
				}
			})
		})
	}
}

// piece reads what comes next.
func piece(t *testing.T, r io.Reader) {
	t.Helper()
	if _, err := r.Read(make([]byte, 1000)); err != nil {
		t.Error(err)
	}
}
