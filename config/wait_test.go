package config_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/store/memstore"
)

// The call behind a burst waits until the minute and its margin are over, with the policies of the
// preset gemini-free.
//
// req: C5
func TestGeminiFreeQueuesBursts(t *testing.T) {
	t.Parallel()
	data, err := config.Preset("gemini-free")
	if err != nil {
		t.Fatal(err)
	}
	c, problems := config.Parse("gemini-free", data)
	if len(problems) > 0 || len(c.Warnings) > 0 {
		t.Fatal(problems, c.Warnings)
	}
	for name, burst := range map[string]int{"gemini-2.5-flash": 8, "gemini-2.5-pro": 4} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(nil)
			defer store.Close()
			p, _ := c.Policy(name)
			l, err := drawgate.New(store, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			time.Sleep(12 * time.Hour) // not at the day's end
			start := time.Now()
			for i := range burst + 1 {
				if _, err := l.Wait(t.Context(), "project"); err != nil {
					t.Fatalf("%s: call %d: %v", name, i+1, err)
				}
				if waited := time.Since(start) >= 62*time.Second; waited != (i == burst) {
					t.Errorf("%s: call %d is granted after %v", name, i+1, time.Since(start))
				}
			}
		})
	}
}

// A longest wait that is shorter than a window with its margin is warned about, and so is a policy
// of an upstream that may be exceeded while the store is unavailable.
func TestWarningsAboutPoliciesOfUpstreams(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{limits: [{name: rpm, rolling: 1m, amount: 5, margin: 2s}], wait: {up_to: 60s}, fallback: closed}`:                 `policy "a" waits up to 1m, but the units of a burst leave limit "rpm" after 1m2s`,
		`{limits: [{name: rpm, rolling: 1m, amount: 5, margin: 2s}], wait: {up_to: 62s}, fallback: closed}`:                 "",
		`{limits: [{name: rpd, calendar: day, amount: 5}, {name: s, concurrency: 2}], wait: {up_to: 1s}, fallback: closed}`: "",
		`{limits: [{name: rpm, rolling: 1m, amount: 5}], fallback: open}`:                                                   `limit "rpm" of policy "a" is an upstream's, and its fallback is open`,
		`{limits: [{name: rpm, rolling: 1m, amount: 5}]}`:                                                                   `limit "rpm" of policy "a" is an upstream's, and its fallback is share, with several instances`,
	} {
		c, problems := config.Parse("a.yaml", []byte(`
store: redis://localhost:6379/0
instances: 2
policies:
  a: `+text+`
gateway:
  upstreams:
    openai: {api_key_env: KEY, models: [{model: "*", policy: a}]}
  keys: [{name: a, sha256: "`+strings.Repeat("1", 64)+`"}]
`))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		var got []string
		for _, w := range c.Warnings {
			if strings.Contains(w.Error(), "waits up to") || strings.Contains(w.Error(), "an upstream's") {
				got = append(got, w.Error())
			}
		}
		if len(got) > 1 || want == "" && len(got) > 0 || want != "" &&
			(len(got) == 0 || !strings.Contains(got[0], want)) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
