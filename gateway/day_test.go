package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store/memstore"
)

// dayIsOver is Gemini's answer when the requests of a day are used up, as users have reported it
// many times. The hint to try again in 22 seconds is wrong.
const dayIsOver = `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota. Please retry in 22.07s.","details":[` +
	`{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/generate_content_free_tier_requests",` +
	`"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier","quotaDimensions":{"location":"global","model":"gemini-2.5-flash"},"quotaValue":"250"}]},` +
	`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"22s"}]}}`

// refusing answers the first call with a refusal, and leaves the others to base.
type refusing struct {
	base  http.RoundTripper
	calls atomic.Int64
}

func (f *refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.calls.Add(1) > 1 {
		return f.base.RoundTrip(r)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	return &http.Response{
		StatusCode: http.StatusTooManyRequests, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(dayIsOver)), Request: r,
	}, nil
}

// TestDayIsOverInAllProcesses: once one process has heard that a day's quota is used up, no process
// sends a call before midnight in California, whatever the hint says.
//
// req: A14 C1
func TestDayIsOverInAllProcesses(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		provider, store := &refusing{base: b.sim.Transport()}, memstore.New(nil)
		change := func(s *setup) { s.store, s.options.Base, s.options.Wait = store, provider, 48*time.Hour }
		processes := []*bench{{T: t, sim: b.sim}, {T: t, sim: b.sim}}
		for _, p := range processes {
			p.build(newSetup(change), "http://provider.test")
		}
		if got := processes[0].call("gemini", false, "Hello!"); got.status != http.StatusTooManyRequests ||
			!strings.Contains(got.body, "22s") {
			t.Fatalf("%d %s, want the provider's own answer", got.status, got.body)
		}
		zone, err := time.LoadLocation("America/Los_Angeles")
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now().In(zone)
		midnight := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, zone)
		time.Sleep(time.Until(midnight) - time.Second)
		for i, p := range processes {
			if got := p.call("gemini", false, "Hello!",
				"Drawgate-Timeout: 0"); got.status != http.StatusTooManyRequests ||
				got.header.Get("Retry-After") != "1" || provider.calls.Load() != 1 {
				t.Errorf("process %d, a second before midnight: %d, retry after %q; the provider got %d calls", i,
					got.status, got.header.Get("Retry-After"), provider.calls.Load())
			}
		}
		for i, p := range processes {
			got := p.call("gemini", false, "Hello!")
			if late := time.Since(midnight); got.status != http.StatusOK || late < 0 || late > time.Minute {
				t.Errorf("process %d, which waits: %d, %v after midnight", i, got.status, late)
			}
		}
	})
}
