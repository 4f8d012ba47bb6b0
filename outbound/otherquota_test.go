package outbound_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/outbound"
)

// refusing answers every call with an error.
type refusing struct {
	status int
	body   string
}

// RoundTrip implements http.RoundTripper.
func (r refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
	}
	return &http.Response{
		StatusCode: r.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(r.body)),
		Request: req,
	}, nil
}

// TestRefusalsOfOtherModels: a 429 that names another model leaves the quota open; one that names
// the call's own pauses it.
//
// req: C1
func TestRefusalsOfOtherModels(t *testing.T) {
	t.Parallel()
	for model, paused := range map[string]bool{"gpt-4o-2024-08-06": true, "gpt-4.1": false} {
		synctest.Test(t, func(t *testing.T) {
			answer := refusing{http.StatusTooManyRequests, `{"error":{"message":"Rate limit reached for ` + model +
				` on tokens per min (TPM): Limit 5, Used 5, Requested 2.","type":"tokens","code":"rate_limit_exceeded"}}`}
			b := newBench(t, "openai chat", nil, outbound.Options{},
				func(http.RoundTripper) http.RoundTripper { return answer })
			if status, _, err := b.call(t.Context(), false, "Hello!"); status != http.StatusTooManyRequests ||
				err != nil {
				t.Fatal(status, err)
			}
			st, err := b.lim.Status(t.Context(), "project", drawgate.Requests(0))
			if err != nil || st.Pause.Until.IsZero() == paused {
				t.Errorf("refused for %s: paused until %v (%v), want a pause: %v", model, st.Pause.Until, err, paused)
			}
			want := outbound.Succeeded // it says nothing about our count, so it is no incident
			if paused {
				want = outbound.Refused
			}
			if got := b.last().Outcome; got != want {
				t.Errorf("refused for %s: the outcome is %v, want %v", model, got, want)
			}
			b.nothingHeld()
		})
	}
}

// TestAnswersThatACallCanCause: they do not open the circuit, which a caller could then do for
// everybody; 408 and 409 are worth another attempt all the same.
//
// req: C4
func TestAnswersThatACallCanCause(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		circuit  string
		attempts int
	}{
		http.StatusRequestTimeout: {outbound.CircuitClosed, 2}, http.StatusConflict: {outbound.CircuitClosed, 2},
		http.StatusBadRequest:          {outbound.CircuitClosed, 1},
		http.StatusInternalServerError: {outbound.CircuitOpen, 2},
		http.StatusServiceUnavailable:  {outbound.CircuitOpen, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := outbound.Options{Retries: 1, Breaker: outbound.Breaker{Failures: 2}}
			b := newBench(t, "anthropic", nil, o, func(http.RoundTripper) http.RoundTripper {
				return refusing{
					status,
					`{}`,
				}
			})
			if got, _, err := b.call(t.Context(), false, "Hello!"); got != status || err != nil {
				t.Fatal(got, err)
			}
			if state, _ := b.client.Circuit(); state != want.circuit || len(b.events) != want.attempts {
				t.Errorf("after %d attempts that got %d: the circuit is %s, want %s after %d", len(b.events), status,
					state, want.circuit, want.attempts)
			}
			b.nothingHeld()
		})
	}
}
