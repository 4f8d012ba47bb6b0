package simulator_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/llm/simulator"
)

// TestPresets: each is valid, in every reading of its windows, and knows models by their names.
func TestPresets(t *testing.T) {
	t.Parallel()
	for _, name := range simulator.Presets() {
		for _, w := range []simulator.Window{"", simulator.Rolling, simulator.Aligned} {
			quotas, err := simulator.Preset(name)
			if err != nil || len(quotas) == 0 {
				t.Fatalf("%s: %v", name, err)
			}
			newServer(t, &simulator.Options{Quotas: quotas, Windows: w, Zone: "Europe/Berlin"})
		}
	}
	if _, err := simulator.Preset("x"); err == nil || !strings.Contains(err.Error(), "have: anthropic-paid, ") {
		t.Errorf("an unknown preset: %v", err)
	}
	quotas, err := simulator.Preset("paid")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, &simulator.Options{Quotas: quotas})
	for model, want := range map[string]string{
		"gpt-4.1-mini-2025-04-14": "gpt-mini", "gpt-4.1": "gpt", "gpt-5": "gpt",
		"unheard-of": "",
	} {
		post(t, s, chatPath, strings.Replace(chat("x"), "gpt-4.1", model, 1))
		if c := last(t, s); c.Quota != want || c.Model != model {
			t.Errorf("%s: the ledger has %+v", model, c)
		}
	}
}

// TestOverride: one number of a preset changes, and a burst that is the amount with it.
func TestOverride(t *testing.T) {
	t.Parallel()
	quotas := []simulator.Quota{{Name: "q", Limits: []simulator.Limit{
		{Name: "a", Amount: 5, Burst: 5},
		{Name: "b", Amount: 5, Burst: 1},
	}}}
	for _, name := range []string{"q/a", "q/b"} {
		if err := simulator.Override(quotas, name, 7); err != nil {
			t.Fatal(err)
		}
	}
	if l := quotas[0].Limits; l[0].Amount != 7 || l[0].Burst != 0 || l[1].Amount != 7 || l[1].Burst != 1 {
		t.Errorf("got %+v", l)
	}
	for name, want := range map[string]string{
		"q/c": `quota q has no limit "c" (have: a, b)`, "r/a": `no quota "r"`,
		"q": `no limit ""`,
	} {
		if err := simulator.Override(quotas, name, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

// TestMistakes: New says what is wrong, and with what.
func TestMistakes(t *testing.T) {
	t.Parallel()
	good := perMinute(simulator.Requests, 1)
	limit := func(change func(l *simulator.Limit)) *simulator.Options {
		l := good
		change(&l)
		return &simulator.Options{Quotas: quota(simulator.Generic, l)}
	}
	for want, o := range map[string]*simulator.Options{
		`has no name: give it one`:   limit(func(l *simulator.Limit) { l.Name = "" }),
		`no dimension "x"`:           limit(func(l *simulator.Limit) { l.Dimension = "x" }),
		`no window "x"`:              limit(func(l *simulator.Limit) { l.Window = "x" }),
		`no time zone "Local"`:       limit(func(l *simulator.Limit) { l.Zone = "Local" }),
		`no time zone "Mars"`:        limit(func(l *simulator.Limit) { l.Zone = "Mars" }),
		`no scope "x"`:               limit(func(l *simulator.Limit) { l.Scope = "x" }),
		`from 0 to 1000000000000`:    limit(func(l *simulator.Limit) { l.Amount = -1 }),
		`only buckets have a burst`:  limit(func(l *simulator.Limit) { l.Burst = 1 }),
		`the period -1s is negative`: limit(func(l *simulator.Limit) { l.Period = -time.Second }),
		`two limits are called`:      {Quotas: quota(simulator.Generic, good, good)},
		`no provider "x"`:            {Quotas: quota("x", good)},
		`has no models`:              {Quotas: []simulator.Quota{{Provider: simulator.Generic, Name: "q"}}},
		`has no name`:                {Quotas: []simulator.Quota{{Provider: simulator.Generic}}},
		`is not a pattern`: {Quotas: []simulator.Quota{{
			Provider: simulator.Generic, Name: "q",
			Models: []string{"["},
		}}},
		`two quotas of generic`:       {Quotas: append(quota(simulator.Generic), quota(simulator.Generic)...)},
		`neither rolling nor aligned`: {Windows: simulator.Day},
		`must be positive`:            {MaxCalls: -1},
		`at most 1000000`:             {Output: -1},
		`delays must not be negative`: {Delay: -1},
		`a secret and a name`:         {Keys: []simulator.Key{{Name: "a"}}},
		`key "b": each key`:           {Keys: []simulator.Key{{Name: "b", Secret: "s"}, {Name: "c", Secret: "s"}}},
		`there is no fault "x"`:       {Faults: []simulator.Fault{{Kind: "x"}}},
		`charging: there is no`:       {Charging: map[simulator.Provider]simulator.Charging{"x": {}}},
		`tokens must be`:              {Charging: map[simulator.Provider]simulator.Charging{simulator.OpenAI: {}}},
	} {
		if _, err := simulator.New(o); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "simulator: ") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestParseRates(t *testing.T) {
	t.Parallel()
	got, err := simulator.ParseRates("overload=0.01, latency=0.1:2s")
	want := []simulator.Fault{
		{Kind: simulator.FaultOverload, Rate: 0.01},
		{Kind: simulator.FaultLatency, Rate: 0.1, Delay: 2 * time.Second},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, text := range []string{"", "cut", "cut=x", "cut=2", "x=0.1", "latency=0.1", "latency=0.1:x", "cut=0.1,"} {
		if _, err := simulator.ParseRates(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// TestJSONIsReversible: what is written is read as the same.
func TestJSONIsReversible(t *testing.T) {
	t.Parallel()
	limit := simulator.Limit{
		Name: "a", Dimension: simulator.Tokens, Amount: 5, Window: simulator.Bucket,
		Period: 90 * time.Second, Burst: 2, Scope: simulator.Project,
	}
	fault := simulator.Fault{
		Kind: simulator.FaultCut, Rate: 0.5, Times: 3, Delay: time.Second, After: 4,
		Provider: simulator.Gemini, Model: "m",
	}
	c := simulator.Config{
		Quotas: quota(simulator.OpenAI, limit), Faults: []simulator.Fault{fault},
		Travel: simulator.Duration(time.Second),
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := simulator.ParseConfig(text)
	if err != nil || !reflect.DeepEqual(*got, c) {
		t.Errorf("got %+v, %v from %s", got, err, text)
	}
	for _, text := range []string{
		``, `{`, `{} {}`, `{"x":1}`, `{"faults":[{"kinds":"cut"}]}`,
		`{"quotas":[{"limits":[{"period":"5"}]}]}`, `{"quotas":[{"limits":[{"per":"5s"}]}]}`,
	} {
		if _, err := simulator.ParseConfig([]byte(text)); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
	for _, text := range []string{`{"preset":"x"}`, `{"preset":"free","limits":{"x/y":1}}`} {
		c, err := simulator.ParseConfig([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Options(); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
}
