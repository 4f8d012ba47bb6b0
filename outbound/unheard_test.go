package outbound_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
)

// proxy answers in the provider's place.
type proxy struct {
	http.RoundTripper

	status int
	text   string
}

// RoundTrip implements http.RoundTripper.
func (p proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.RoundTripper.RoundTrip(r)
	if err == nil { // it read the answer, and gives one of its own
		_, err = io.Copy(io.Discard, resp.Body)
		resp.StatusCode, resp.Body = p.status, io.NopCloser(strings.NewReader(p.text))
	}
	return resp, err
}

// TestAnswersThatAProxyGaveUp: what the answer may have used stays counted, as the provider may
// have made it all the same. After an error of the provider's own it comes back.
//
// req: C1
func TestAnswersThatAProxyGaveUp(t *testing.T) {
	t.Parallel()
	const envoy = "upstream connect error or disconnect/reset before headers. "
	for answer, stands := range map[proxy]bool{
		{status: http.StatusBadGateway}: true, {status: http.StatusGatewayTimeout}: true, {status: 524}: true,
		{status: 499}:                            true,
		{status: http.StatusInternalServerError}: false, {status: http.StatusServiceUnavailable}: false,
		{status: 529}: false,
		{status: http.StatusServiceUnavailable, text: envoy + "reset reason: connection termination"}:          true,
		{status: http.StatusServiceUnavailable, text: envoy + "reset reason: remote connection failure"}:       false,
		{status: http.StatusServiceUnavailable, text: envoy + "retried and the latest reset reason: overflow"}: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, "anthropic", nil, outbound.Options{}, func(base http.RoundTripper) http.RoundTripper {
				answer.RoundTripper = base
				return answer
			})
			b.call(t.Context(), false, "Hello!")
			st, err := b.lim.Status(t.Context(), "project", drawgate.Units(llm.UnitOutputTokens, 0))
			if err != nil {
				t.Fatal(err)
			}
			if n := st.States[3].Used; n != 0 != stands {
				t.Errorf("after %d %s: %d output tokens are counted", answer.status, answer.text, n)
			}
			b.nothingHeld()
		})
	}
}
