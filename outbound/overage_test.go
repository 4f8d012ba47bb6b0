package outbound_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestFreeTierAroundMidnight: the free tier of the documents as it is, by 12 callers in two
// processes, ten minutes on each side of two midnights in California, one of them before the day on
// which the clocks go forward. The provider, which counts on its own, refuses nothing, and 95 % of
// what it allows is used.
//
// req: A6 C1 C2
func TestFreeTierAroundMidnight(t *testing.T) {
	t.Parallel()
	for _, windows := range []simulator.Window{simulator.Rolling, simulator.Aligned} {
		t.Run(string(windows), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { freeTier(t, windows) })
		})
	}
}

func freeTier(t *testing.T, windows simulator.Window) {
	t.Helper()
	const rpm, tpm, rpd = 5, 250_000, 25
	sim, err := simulator.New(&simulator.Options{Windows: windows, Quotas: []simulator.Quota{{
		Provider: simulator.Gemini, Name: "gemini-2.5-pro", Models: []string{"gemini-2.5-pro"}, FreeTier: true,
		Limits: []simulator.Limit{
			{Name: "rpm", Dimension: simulator.Requests, Amount: rpm, Window: windows},
			{Name: "tpm", Dimension: simulator.InputTokens, Amount: tpm, Window: windows},
			{Name: "rpd", Dimension: simulator.Requests, Amount: rpd, Window: simulator.Day, Zone: simulator.Pacific},
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New(nil)
	defer store.Close()
	margin := 2 * time.Second
	policy := drawgate.Policy{Name: "gemini-2.5-pro", Limits: []drawgate.Limit{
		drawgate.RollingLimit("rpm", rpm, time.Minute),
		drawgate.RollingLimit("tpm", tpm, time.Minute).Of(llm.UnitInputTokens),
		drawgate.CalendarLimit("rpd", rpd, drawgate.Day, "America/Los_Angeles"),
	}}
	for i := range policy.Limits {
		policy.Limits[i].Margin = margin
	}
	transports := make([]*outbound.Transport, 2)
	for i := range transports {
		l, err := drawgate.New(store, policy, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		// A call reaches the provider some time after it was granted, differently late each time.
		late := time.Duration(0)
		var mu sync.Mutex
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			late = (late + 370*time.Millisecond) % (margin - 100*time.Millisecond)
			d := late
			mu.Unlock()
			time.Sleep(d)
			return sim.Transport().RoundTrip(r)
		})
		transports[i] = outbound.NewTransport(outbound.New(outbound.PerModel("project", l), nil), llm.Gemini(),
			&outbound.TransportOptions{Base: base})
	}
	zone, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		t.Fatal(err)
	}
	// On 8 March 2026 the clocks go forward at 2:00.
	first := time.Date(2026, 3, 8, 0, 0, 0, 0, zone)
	second := time.Date(2026, 3, 9, 0, 0, 0, 0, zone)
	served := 0
	for i, midnight := range []time.Time{first, second} {
		time.Sleep(time.Until(midnight.Add(-10 * time.Minute)))
		ctx, cancel := context.WithDeadline(t.Context(), midnight.Add(10*time.Minute))
		var group sync.WaitGroup
		var mu sync.Mutex
		for caller := range 12 {
			group.Go(func() {
				rt := transports[caller%len(transports)]
				for ctx.Err() == nil {
					if geminiCall(ctx, rt, caller) {
						mu.Lock()
						served++
						mu.Unlock()
					}
				}
			})
		}
		group.Wait()
		cancel()
		if v := sim.Violations(); v.Total != 0 {
			t.Fatalf("around midnight %d: %d violations: %v", i+1, v.Total, v.ByDimension)
		}
	}
	// The first day and each of the two that follow have 25 requests.
	if want := 3 * rpd; served < want*95/100 || served > want {
		t.Errorf("%d calls were served, want at least 95 %% of %d", served, want)
	}
	report := sim.Report(time.Time{})
	for _, l := range report.Limits {
		if l.Over > 0 {
			t.Errorf("limit %s was exceeded by %d", l.Limit, l.Over)
		}
	}
}

// geminiCall makes one call of a size that depends on the caller, and reports whether it was
// answered.
func geminiCall(ctx context.Context, rt http.RoundTripper, caller int) bool {
	body := fmt.Sprintf(`{"contents":[{"role":"user","parts":[{"text":%q}]}]}`, strings.Repeat("word ", 100*(caller+1)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://upstream.test/v1beta/models/gemini-2.5-pro:generateContent", strings.NewReader(body))
	if err != nil {
		return false
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		time.Sleep(time.Second) // no call can succeed before the deadline
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK
}
