package present_test

import (
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/present"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
	later, before := now.Add(time.Hour), now.Add(-time.Hour)
	secrets := []api.KeySecret{{Until: &before}, {}}
	var b strings.Builder
	present.WriteKeys(&b, []api.Key{
		{
			Name: "a", Secrets: secrets, Version: 7, Changed: before, By: "ops",
			KeySettings: api.KeySettings{
				Team: "red", Models: []string{"x/*", "y"},
				Limits: map[string]map[string]int64{"p": {"b": 2, "a": 10}},
			},
		},
		{Name: "b", Secrets: secrets, KeySettings: api.KeySettings{Disabled: true, Expires: &before}},
		{Name: "c", Secrets: secrets, KeySettings: api.KeySettings{Expires: &now}},
		{Name: "d", Secrets: secrets, KeySettings: api.KeySettings{Expires: &later}},
		{Name: "e", Secrets: secrets[:1]},
		{Name: "f", Secrets: []api.KeySecret{{Until: &later}, {}}},
	}, now)
	if got := b.String(); !strings.Contains(got, "valid; a secret until 2026-11-28 11:00:00Z ") || strings.Count(got, "; a secret") != 1 {
		t.Error(got)
	}
	var states []string
	for line := range strings.Lines(b.String()) {
		if f := strings.Fields(line); len(f) > 2 {
			states = append(states, f[0]+" "+f[2])
		}
	}
	if got := strings.Join(states, ", "); got != "NAME STATE, a valid, b disabled, c expired, d until, e expired, f valid;" {
		t.Errorf("%s of\n%s", got, b.String())
	}
	if line := strings.Split(b.String(), "\n")[1]; strings.Join(strings.Fields(line), " ") !=
		"a red valid x/*, y p/a=10, p/b=2 7 2026-11-28 09:00:00Z ops" {
		t.Error(line)
	}
	b.Reset()
	present.WriteKeyEvents(&b, []api.KeyEvent{{
		At: now, Key: "a", Op: api.KeyChanged, Fields: []api.KeyField{
			{Field: "team", After: "red"},
			{Field: "user", Before: "u"},
		},
	}})
	if got := strings.Join(strings.Fields(b.String()), " "); got !=
		"AT KEY OP BY CHANGES 2026-11-28 10:00:00Z a change - team: - -> red; user: u -> -" {
		t.Error(got)
	}
}
