package fromlitellm_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/fromlitellm"
)

var update = flag.Bool("update", false, "write the files that the results are compared with")

// input reads a folder of testdata.
func input(t testing.TB, dir string) (in fromlitellm.Input) {
	t.Helper()
	read := func(name string) fromlitellm.Source {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return fromlitellm.Source{Name: name, Text: text}
	}
	in.Config = read("config.yaml")
	in.Include = func(name string) (fromlitellm.Source, error) { return read(name), nil }
	for name, to := range map[string]*[]fromlitellm.Source{"keys.json": &in.Keys, "teams.json": &in.Teams} {
		if s := read(name); s.Text != nil {
			*to = append(*to, s)
		}
	}
	in.Prices = read("prices.json")
	return in
}

// resolve reads a result as drawgate does, with each variable set that it asks for.
func resolve(dir string, r *fromlitellm.Result) (*config.Config, error) {
	path := filepath.Join(dir, "drawgate.yaml")
	if err := os.WriteFile(path, r.Text, 0o600); err != nil {
		return nil, err
	}
	var environ []string
	for i, v := range r.Set {
		if v.Name != "DRAWGATE_STORE" {
			environ = append(environ, fmt.Sprintf("%s=a-secret-of-sixteen-%d", v.Name, i))
		}
	}
	return config.Resolve(environ, config.Flags{Config: path})
}

// Each configuration in a form that LiteLLM documents becomes a valid one, with what was read of it
// and what was left out as it was reviewed.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob("testdata/*/config.yaml")
	if err != nil || len(dirs) < 10 {
		t.Fatalf("%d configurations, %v", len(dirs), err)
	}
	for _, dir := range dirs {
		dir = filepath.Dir(dir)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			r, err := fromlitellm.Convert(input(t, dir))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, filepath.Join(dir, "drawgate.yaml"), r.Text)
			compare(t, filepath.Join(dir, "report.txt"), report(r))
			c, err := resolve(t.TempDir(), r)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range c.Warnings {
				if text := w.Error(); !expected(text) {
					t.Errorf("warning: %s", text)
				}
			}
		})
	}
}

// expected reports whether a warning says what LiteLLM's configuration means: it has models that
// nothing limits, refuses all that it does not name, and sends some calls without a key.
func expected(warning string) bool {
	return slices.ContainsFunc([]string{
		`policy "no-limits" is switched off`, "that fit none of these have no policy", "are made without a key",
	}, func(part string) bool { return strings.Contains(warning, part) })
}

// report is what the command prints.
func report(r *fromlitellm.Result) []byte {
	var b strings.Builder
	for _, v := range r.Set {
		fmt.Fprintf(&b, "set %s: %s\n", v.Name, v.Why)
	}
	for _, n := range r.Left {
		fmt.Fprintln(&b, n)
	}
	return []byte(b.String())
}

func compare(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

// No secret of a configuration reaches the result, not even in a comment.
func TestSecretsStayBehind(t *testing.T) {
	t.Parallel()
	for dir, secrets := range map[string][]string{
		"environment": {"sk-literal", "sk-another", "lf-secret", "redis-password", "cache-password", "sk-1234"},
		"clouds":      {"the-password"},
		"odd":         {"sk-", "password@"},
	} {
		r, err := fromlitellm.Convert(input(t, "testdata/"+dir))
		if err != nil {
			t.Fatal(err)
		}
		all := string(r.Text) + string(report(r))
		for _, secret := range secrets {
			if strings.Contains(all, secret) {
				t.Errorf("%s: the result has %s", dir, secret)
			}
		}
	}
}

// Nobody may use more than before: a key whose models or team are not known is switched off.
func TestKeysThatCannotBeLimitedAreOff(t *testing.T) {
	t.Parallel()
	r, err := fromlitellm.Convert(input(t, "testdata/keys"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := resolve(t.TempDir(), r)
	if err != nil {
		t.Fatal(err)
	}
	off := map[string]bool{"dave": true, "erin": true, "frank": true}
	for i := range c.Gateway.Keys {
		k := &c.Gateway.Keys[i]
		if k.Disabled != off[k.Name] {
			t.Errorf("key %s: disabled is %v", k.Name, k.Disabled)
		}
	}
}

// A key may use what LiteLLM lets it use, and never more: what both the key and its team allow.
func TestModelsOfKeys(t *testing.T) {
	t.Parallel()
	const models = `
model_list:
  - {model_name: fast, litellm_params: {model: openai/gpt-4.1-mini}, model_info: {access_groups: [cheap]}}
  - {model_name: gpt-4.1, litellm_params: {model: openai/gpt-4.1}}
  - {model_name: "claude/*", litellm_params: {model: "anthropic/*"}}
`
	for _, c := range []struct{ key, team, want string }{
		{`[]`, `[]`, ``},
		{`["fast"]`, `[]`, `models: [fast]`},
		{`["gpt-4.1"]`, `[]`, `models: [openai/gpt-4.1]`},
		{`["cheap"]`, `[]`, `models: [fast]`},
		{`["claude/claude-haiku-4-5"]`, `[]`, `models: [anthropic/claude-haiku-4-5]`},
		{`["claude/*"]`, `[]`, `models: ["anthropic/*"]`},
		{`["*"]`, `[]`, ``},
		{`["all-proxy-models"]`, `["fast"]`, `models: [fast]`},
		{`["all-team-models"]`, `["fast"]`, `models: [fast]`},
		{`[]`, `["fast"]`, `models: [fast]`},
		{`["fast", "gpt-4.1"]`, `["cheap"]`, `models: [fast]`},
		{`["claude/*"]`, `["claude/claude-haiku-4-5"]`, `models: [anthropic/claude-haiku-4-5]`},
		{`["claude/claude-haiku-4-5"]`, `["claude/*"]`, `models: [anthropic/claude-haiku-4-5]`},
		{`["fast"]`, `["gpt-4.1"]`, `disabled: true`},
		{`["no-default-models"]`, `[]`, `disabled: true`},
		{`["gone", "other"]`, `[]`, `disabled: true`},
		{`["gone", "fast"]`, `[]`, `models: [fast]`},
		{`[""]`, `[]`, `disabled: true`},
		{`[7]`, `[]`, `disabled: true`},
	} {
		in := of(models)
		in.Keys = []fromlitellm.Source{{Name: "keys.json", Text: fmt.Appendf(nil,
			`{"keys": [{"token": %q, "key_alias": "alice", "team_id": "t", "models": %s}]}`, strings.Repeat("a", 64), c.key)}}
		in.Teams = []fromlitellm.Source{{Name: "teams.json", Text: fmt.Appendf(nil, `[{"team_id": "t", "models": %s}]`, c.team)}}
		r, err := fromlitellm.Convert(in)
		if err != nil {
			t.Fatal(err)
		}
		_, line, _ := strings.Cut(string(r.Text), "- {name: alice, ")
		line, _, _ = strings.Cut(line, "}")
		_, got, _ := strings.Cut(line, "team: t")
		if got = strings.TrimPrefix(got, ", "); got != c.want {
			t.Errorf("models %s of a team with %s: %q, want %q", c.key, c.team, got, c.want)
		}
		if _, err := resolve(t.TempDir(), r); err != nil {
			t.Error(err)
		}
	}
}

// A key that may make some calls only is off, as is one whose end is not understood. TestWeights:
// the load goes where LiteLLM sends it: by the first of weight, rpm and tpm that the first
// deployment has. A deployment that LiteLLM never chooses is named.
func TestWeights(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		one, other string
		want       [2]int
		note       bool
	}{
		{"weight: 3", "weight: 1", [2]int{3, 1}, false},
		{"rpm: 500", "rpm: 100", [2]int{5, 1}, false},
		{"rpm: 500, weight: 3", "rpm: 100", [2]int{1000, 1}, true},
		{"rpm: 500", "rpm: 100, weight: 3", [2]int{5, 1}, false},
		{"tpm: 1000", "rpm: 100", [2]int{1000, 1}, true},
		{"timeout: 9", "weight: 7", [2]int{1, 1}, false},
	} {
		r, err := fromlitellm.Convert(of(fmt.Sprintf(`
model_list:
  - {model_name: smart, litellm_params: {model: openai/gpt-4.1, api_key: os.environ/A, %s}}
  - {model_name: smart, litellm_params: {model: openai/gpt-4.1, api_key: os.environ/B, %s}}
`, c.one, c.other)))
		if err != nil {
			t.Fatal(err)
		}
		text := string(r.Text)
		for i, account := range []string{"openai", "openai-2"} {
			if line := fmt.Sprintf("{model: %s/gpt-4.1, weight: %d}", account, c.want[i]); !strings.Contains(text, line) {
				t.Errorf("%s and %s: there is no %s in\n%s", c.one, c.other, line, text)
			}
		}
		if strings.Contains(text, "never chooses it") != c.note {
			t.Errorf("%s and %s: what is left out:\n%s", c.one, c.other, report(r))
		}
	}
}

func TestKeysWithOtherRightsAreOff(t *testing.T) {
	t.Parallel()
	for fields, off := range map[string]bool{
		`"allowed_routes": []`: false, `"allowed_routes": ["llm_api_routes"]`: false, `"allowed_routes": null`: false,
		`"allowed_routes": ["management_routes"]`: true, `"allowed_routes": ["/embeddings"]`: true,
		`"allowed_routes": "x"`: true, `"expires": "soon"`: true, `"expires": "2031-01-31T00:00:00Z"`: false,
		`"expires": "2031-01-31T00:00:00"`: false, `"blocked": true`: true, `"team_id": "gone"`: true,
	} {
		in := of("model_list: [{model_name: a, litellm_params: {model: openai/gpt-4.1}}]\n")
		in.Keys = []fromlitellm.Source{{Name: "keys.json", Text: fmt.Appendf(nil,
			`{"keys": [{"token": %q, "key_alias": "alice", %s}]}`, strings.Repeat("a", 64), fields)}}
		r, err := fromlitellm.Convert(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(r.Text), "disabled: true}\n"); got != off {
			t.Errorf("%s: disabled is %v, want %v", fields, got, off)
		}
		if _, err := resolve(t.TempDir(), r); err != nil {
			t.Error(err)
		}
	}
}

// The table of prices gives each model its price, so that budgets are kept.
func TestPricesFromLiteLLMsTable(t *testing.T) {
	t.Parallel()
	in := input(t, "testdata/wildcard")
	in.Config.Text = []byte(strings.Replace(string(in.Config.Text), "general_settings:",
		"litellm_settings: {max_budget: 5, budget_duration: 1d}\ngeneral_settings:", 1))
	without, err := fromlitellm.Convert(in)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(without.Text), "prices:") || !strings.Contains(string(report(without)), "--prices") {
		t.Errorf("without prices:\n%s", without.Text)
	}
	in.Prices = fromlitellm.Source{Name: "prices.json", Text: []byte(`{
		"gpt-4.1": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 2e-06, "output_cost_per_token": 8e-06},
		"gpt-4o": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 2.5e-06,
			"input_cost_per_token_above_200k_tokens": 5e-06, "output_cost_per_token": 1e-05},
		"dall-e-3": {"litellm_provider": "openai", "mode": "image_generation", "input_cost_per_token": 1, "output_cost_per_token": 1},
		"claude-haiku-4-5": {"litellm_provider": "anthropic", "mode": "chat", "input_cost_per_token": 1e-06,
			"output_cost_per_token": 5e-06, "cache_creation_input_token_cost": 1.25e-06,
			"cache_creation_input_token_cost_above_1hr": 2e-06, "cache_read_input_token_cost": 1e-07}}`)}
	r, err := fromlitellm.Convert(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`gpt-4.1: {input: "2.00", output: "8.00"}`, `gpt-4o: {input: "5.00", output: "10.00"}`,
		`claude-haiku-4-5: {input: "1.00", cache_read: "0.10", cache_write: "1.25", output: "5.00"}`,
		"calendar: day, amount: 5000000",
	} {
		if !strings.Contains(string(r.Text), want) {
			t.Errorf("there is no %s in\n%s", want, r.Text)
		}
	}
	if strings.Contains(string(r.Text), "dall-e") {
		t.Error("there is the price of an image")
	}
	if _, err := resolve(t.TempDir(), r); err != nil {
		t.Error(err)
	}
}

// Periods become the window that is nearest, and days, weeks and months those of the calendar, as
// in LiteLLM.
func TestPeriods(t *testing.T) {
	t.Parallel()
	for period, want := range map[string]string{
		"1d": "calendar: day", "24h": "calendar: day", "daily": "calendar: day", "7d": "calendar: week",
		"1w":  "calendar: week",
		"30d": "calendar: month", "1mo": "calendar: month", "monthly": "calendar: month", "1h": "calendar: hour",
		"1m": "calendar: minute", "30s": "rolling: 30s", "10d": "rolling: 10d", "2w": "rolling: 2w",
		"36h": "rolling: 36h",
		"2mo": "", "0d": "", "400d": "", "1y": "", "-1d": "", "99999999999d": "", "soon": "",
	} {
		text := fmt.Sprintf(`
model_list: [{model_name: gpt-4.1, litellm_params: {model: openai/gpt-4.1, input_cost_per_token: 1, output_cost_per_token: 1}}]
litellm_settings: {max_budget: 1, budget_duration: %q}
`, period)
		r, err := fromlitellm.Convert(of(text))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, has := strings.Cut(string(r.Text), "unit: usd_micros, ")
		got, _, _ := strings.Cut(rest, ", amount")
		if got != want || has != (want != "") {
			t.Errorf("%s is %q, want %q", period, got, want)
		}
		if want == "" && !strings.Contains(string(report(r)), "max_budget: ") {
			t.Errorf("%s is left out in silence", period)
		}
	}
}

// What would be more than a configuration can have is left out.
func TestMoreThanCanBe(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("model_list:\n")
	for i := range 1100 {
		fmt.Fprintf(&b, "- {model_name: m%d, litellm_params: {model: openai/own-%[1]d, api_key: k}}\n", i)
	}
	for i := range 110 {
		fmt.Fprintf(&b, "- {model_name: u%d, litellm_params: {model: openai/own, api_base: \"http://h%[1]d/v1\"}}\n", i)
	}
	b.WriteString("- {model_name: a, litellm_params: {model: openai/}}\n")
	r, err := fromlitellm.Convert(of(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"an upstream can have 1000 models", "there can be 100 upstreams", "model a (openai/)"} {
		if !strings.Contains(string(report(r)), want) {
			t.Errorf("the report has no %q", want)
		}
	}
	if _, err := resolve(t.TempDir(), r); err != nil {
		t.Error(err)
	}
}

// What is no configuration of LiteLLM is refused, with what was expected, and no text of it.
func TestRefused(t *testing.T) {
	t.Parallel()
	const model = "model_list: [{model_name: a, litellm_params: {model: openai/gpt-4.1}}]\n"
	for name, c := range map[string]struct {
		in   fromlitellm.Input
		want string
	}{
		"empty":        {of(""), "it has no model_list"},
		"a list":       {of("- a\n- b\n"), "it has no model_list"},
		"a text":       {of("sk-secret-0123456789"), "it has no model_list"},
		"no list":      {of("model_list: sk-secret-0123456789\n"), "model_list is not a list"},
		"no YAML":      {of("model_list: [\n  sk-secret-0123456789: {\n"), "this is not YAML"},
		"Drawgate's":   {of("policies: {a: {}}\ngateway: {}\nstore: x\n"), "It looks like one of Drawgate"},
		"no models":    {of("model_list: []\n"), "it has no model_list"},
		"none of ours": {of("model_list: [{model_name: a, litellm_params: {model: azure/a}}]\n"), "no model of model_list"},
		"twice":        {of(model + model), "given twice"},
		"no anchor":    {of("model_list: *gone\n"), "an anchor that is not there"},
		"itself":       {of("model_list: &a [*a]\n"), "levels"},
		"two":          {of(model + "---\n" + model), "only one document"},
		"keys": {fromlitellm.Input{
			Config: of(model).Config,
			Keys:   []fromlitellm.Source{{Name: "keys.json", Text: []byte(`{"sk-secret-0123456789": 1}`)}},
		}, "GET /key/list"},
		"teams": {fromlitellm.Input{
			Config: of(model).Config,
			Teams:  []fromlitellm.Source{{Name: "teams.json", Text: []byte(`sk-secret-0123456789`)}},
		}, "not one value of JSON"},
		"prices": {fromlitellm.Input{
			Config: of(model).Config, Prices: fromlitellm.Source{Name: "p.json", Text: []byte(`{"a": {}}`)},
		}, "table of prices"},
	} {
		r, err := fromlitellm.Convert(c.in)
		if err == nil {
			t.Errorf("%s: it is converted:\n%s", name, r.Text)
			continue
		}
		if _, ok := errors.AsType[*fromlitellm.Error](err); !ok || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// of returns an input of a configuration alone.
func of(s string) fromlitellm.Input {
	return fromlitellm.Input{Config: fromlitellm.Source{Name: "config.yaml", Text: []byte(s)}}
}

// Whatever is converted is valid here, and nothing panics.
func FuzzConvert(f *testing.F) {
	dirs, _ := filepath.Glob("testdata/*/config.yaml")
	for _, path := range dirs {
		in := input(f, filepath.Dir(path))
		keys, teams := []byte("[]"), []byte("[]")
		if in.Keys != nil {
			keys, teams = in.Keys[0].Text, in.Teams[0].Text
		}
		f.Add(in.Config.Text, keys, teams)
	}
	f.Add([]byte("model_list: [{model_name: a, litellm_params: {model: openai/gpt-4.1, rpm: 1e12}}]"), []byte(`["x"]`), []byte("{}"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text, keys, teams []byte) {
		r, err := fromlitellm.Convert(fromlitellm.Input{
			Config: fromlitellm.Source{Name: "config.yaml", Text: text},
			Keys:   []fromlitellm.Source{{Name: "keys.json", Text: keys}},
			Teams:  []fromlitellm.Source{{Name: "teams.json", Text: teams}},
		})
		if err != nil {
			return
		}
		if _, err := resolve(dir, r); err != nil {
			t.Fatalf("%v\n%s", err, r.Text)
		}
	})
}
