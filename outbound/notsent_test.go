package outbound_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
)

// TestNotSent: the error of a call of which nothing was sent says so, beside its reason, and the
// quota counts nothing of it. Once some of it was sent nobody knows.
//
// req: C1
func TestNotSent(t *testing.T) {
	t.Parallel()
	reason := errors.New("the reason")
	for _, sent := range []bool{false, true} {
		l := limiter(t, units("gpt-4o"))
		client := outbound.New(outbound.PerModel("project", l), nil)
		rt := outbound.NewTransport(client, llm.OpenAI(), &outbound.TransportOptions{
			Base: roundTripper(func(r *http.Request) (*http.Response, error) {
				if sent {
					if _, err := io.CopyN(io.Discard, r.Body, 1); err != nil {
						return nil, err
					}
				}
				return nil, reason
			}),
		})
		a := apis["openai chat"]
		resp, err := rt.RoundTrip(a.request(t.Context(), t, false, "x"))
		if err == nil {
			resp.Body.Close()
		}
		if !errors.Is(err, reason) || errors.Is(err, outbound.ErrNotSent) == sent || err.Error() != reason.Error() {
			t.Errorf("sent %v: got %v", sent, err)
		}
		if n := used(t, l)[0]; (n != 0) != sent {
			t.Errorf("sent %v: %d requests are counted", sent, n)
		}
	}
}
