package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/sleep"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// plan is a preset for one model, and what the provider allows of it.
type plan struct {
	preset, policy, model string
	rpm, rpd              int64 // the provider's; all have 250,000 tokens per minute
	minute, day           int64 // requests that the preset lets pass
	words                 int   // of the smallest prompt: the largest has twelve times as many
}

// TestPresetsAroundMidnight: each preset for a free tier as it is, by 12 callers of two gateways,
// ten minutes on each side of two midnights in California, of which one begins the day on which the
// clocks go forward. The provider counts on its own, and its calls arrive nearly as late as the
// margin allows. It refuses nothing, and 95 % of what the preset allows is used.
//
// req: A6 C1 C2
func TestPresetsAroundMidnight(t *testing.T) {
	needs.NoRace(t) // hours of calls; TestZeroOverage makes calls at once
	t.Parallel()
	for _, p := range needs.Cases(1,
		plan{config.GeminiFree, "gemini-2.5-flash", "gemini-2.5-flash", 10, 250, 8, 200, 100},
		plan{config.GeminiFree, "gemini-2.5-pro", "gemini-2.5-pro", 5, 100, 4, 80, 100},
		plan{config.GeminiTranslation, "gemini-translation", "gemini-2.5-pro", 5, 25, 5, 24, 3000},
	) {
		for _, windows := range []simulator.Window{simulator.Rolling, simulator.Aligned} {
			t.Run(p.policy+" "+string(windows), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { p.aroundMidnight(t, windows) })
			})
		}
	}
}

// nights are ten minutes on each side of a midnight. On 8 March 2026 the clocks go forward at 2:00.
func nights(t *testing.T) (all []time.Time) {
	t.Helper()
	zone, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		t.Fatal(err)
	}
	return []time.Time{time.Date(2026, 3, 8, 0, 0, 0, 0, zone), time.Date(2026, 3, 9, 0, 0, 0, 0, zone)}
}

const (
	side   = 10 * time.Minute
	cycle  = 62 * time.Second // a minute and the margin of the presets
	cycles = int64(2 * side / cycle)
)

func (p *plan) aroundMidnight(t *testing.T, windows simulator.Window) {
	t.Helper()
	sim := p.provider(t, windows)
	store := memstore.New(nil)
	defer store.Close()
	handlers := []http.Handler{p.gateway(t, store, sim), p.gateway(t, store, sim)}
	perNight := make([]int64, len(nights(t))) // in whole windows and margins
	for i, midnight := range nights(t) {
		began := midnight.Add(-side)
		time.Sleep(time.Until(began))
		ctx, cancel := context.WithDeadline(t.Context(), midnight.Add(side))
		var group sync.WaitGroup
		for caller := range 12 {
			group.Go(func() {
				for ctx.Err() == nil {
					p.call(ctx, handlers[caller%len(handlers)], caller)
				}
			})
		}
		group.Wait()
		cancel()
		for _, c := range sim.Calls() {
			if at := c.Arrived.Sub(began); at >= 0 && at < time.Duration(cycles)*cycle {
				perNight[i]++
			}
		}
	}
	if v := sim.Violations(); v.Total != 0 {
		t.Fatalf("%d violations: %v", v.Total, v.ByDimension)
	}
	report := sim.Report(time.Time{})
	for i := range report.Limits {
		if l := &report.Limits[i]; l.Over > 0 || max(l.WorstRolling, l.WorstAligned) > l.Amount {
			t.Errorf("%s was exceeded: %+v", l.Limit, l)
		}
	}
	// Where the days are shorter than the minutes, all of three days is used: one before, one
	// between and one after the midnights.
	used, most := perNight[0]+perNight[1], 2*p.minute*cycles
	if 3*p.day < most {
		used, most = report.Admitted, 3*p.day
	}
	t.Logf("%d requests were used of %d; in whole windows and margins of each night %v", used, most, perNight)
	if used < most*95/100 || used > most {
		t.Errorf("%d requests were used, want at least 95 %% of %d, and no more", used, most)
	}
}

// provider returns a simulator with the whole limits.
func (p *plan) provider(t *testing.T, windows simulator.Window) *simulator.Server {
	t.Helper()
	sim, err := simulator.New(&simulator.Options{
		Windows: windows, Travel: 1900 * time.Millisecond,
		Quotas: []simulator.Quota{{
			Provider: simulator.Gemini, Name: p.model, Models: []string{p.model}, FreeTier: true,
			Limits: []simulator.Limit{
				{Name: "rpm", Dimension: simulator.Requests, Amount: p.rpm, Window: windows},
				{Name: "tpm", Dimension: simulator.InputTokens, Amount: 250_000, Window: windows},
				{
					Name: "rpd", Dimension: simulator.Requests, Amount: p.rpd, Window: simulator.Day,
					Zone: simulator.Pacific,
				},
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

// gateway returns one that counts by the preset.
func (p *plan) gateway(t *testing.T, store store.Store, sim *simulator.Server) *gateway.Handler {
	t.Helper()
	text, err := config.Preset(p.preset)
	if err != nil {
		t.Fatal(err)
	}
	c, problems := config.Parse(p.preset, text)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	e, err := engine.New(store, c.Engine(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	h, err := gateway.New(e, gateway.Config{
		Upstreams: []gateway.Upstream{{
			Name: "gemini", Profile: llm.Gemini(), URL: &url.URL{Scheme: "http", Host: "provider.test"},
			Owner:  "project",
			Models: []gateway.Model{{Name: p.model, Policy: p.policy}},
		}},
		Keys: []gateway.Key{{Name: "caller", Sum: sha256.Sum256([]byte("virtual key"))}},
	}, &gateway.Options{Base: sim.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// call makes a call of a size that depends on the caller, and comes back when it is told to.
func (p *plan) call(ctx context.Context, h http.Handler, caller int) {
	operation := []string{"generateContent", "streamGenerateContent?alt=sse"}[caller%2]
	body := fmt.Sprintf(`{"contents":[{"role":"user","parts":[{"text":%q}]}]}`,
		strings.Repeat("word ", p.words*(caller+1)))
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/gemini/v1beta/models/"+p.model+":"+operation,
		strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Goog-Api-Key", "virtual key")
	w := httptest.NewRecorder()
	defer func() {
		if v := recover(); v != nil {
			if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
		}
	}()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		ms, _ := strconv.ParseInt(w.Header().Get("Retry-After-Ms"), 10, 64)
		sleep.For(ctx, max(time.Second, time.Duration(ms)*time.Millisecond))
	}
}
