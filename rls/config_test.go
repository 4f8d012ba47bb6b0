package rls_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/rls"
)

// rate is a file with one descriptor that has these lines more, each indented by 4.
func rate(lines ...string) string {
	return "domain: d\ndescriptors:\n  - key: k\n    " + strings.Join(lines, "\n    ") + "\n"
}

func TestConfigMistakesNameTheirPlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"empty file":    {"", "1:1: the file is empty"},
		"no domain":     {"descriptors: []\n", "1:1: a file needs a domain"},
		"empty domain":  {"domain: \"\"\n", "1:1: a file needs a domain"},
		"no mapping":    {"- domain\n", "1:1: the file must be a mapping"},
		"unknown key":   {"domain: d\ndescriptor: []\n", "2:1: the file has no key \"descriptor\""},
		"key twice":     {"domain: d\ndomain: e\n", "2:1: \"domain\" is given twice"},
		"no list":       {"domain: d\ndescriptors: {key: k}\n", "2:14: descriptors must be a list"},
		"no descriptor": {"domain: d\ndescriptors: [k]\n", "2:15: a descriptor must be a mapping"},
		"no key":        {"domain: d\ndescriptors:\n  - value: v\n", "3:5: a descriptor needs a key"},
		"empty key":     {"domain: d\ndescriptors:\n  - key: \"\"\n", "3:5: a descriptor needs a key"},
		"same twice": {
			"domain: d\ndescriptors:\n  - key: k\n  - key: k\n",
			"4:5: the descriptor \"k\" is defined twice; the first time on line 3",
		},
		"same joined": {
			"domain: d\ndescriptors:\n  - key: k_v\n  - {key: k, value: v}\n",
			"4:5: the descriptor \"k_v\" is defined twice",
		},
		"misplaced shadow_mode": {
			rate("rate_limit:", "  unit: hour", "  shadow_mode: true"),
			"6:7: rate_limit has no key \"shadow_mode\" (it belongs to a descriptor)",
		},
		"misplaced unit": {
			rate("unit: hour"),
			"4:5: a descriptor has no key \"unit\" (it belongs to rate_limit)",
		},
		"no unit": {
			rate("rate_limit:", "  requests_per_unit: 5"),
			"5:7: the unit \"\" is not one of second, minute",
		},
		"bad unit": {
			rate("rate_limit: {unit: fortnight, requests_per_unit: 5}"),
			"4:24: the unit \"fortnight\" is not one of",
		},
		"unknown unit": {
			rate("rate_limit: {unit: unknown, requests_per_unit: 5}"),
			"4:24: the unit \"unknown\" is not one of",
		},
		"unlimited with unit": {rate("rate_limit: {unlimited: true, unit: hour}"), "an unlimited rate has no unit"},
		"negative rate": {
			rate("rate_limit: {unit: hour, requests_per_unit: -1}"),
			"4:49: requests_per_unit -1 is not a whole number from 0",
		},
		"huge rate": {
			rate("rate_limit: {unit: hour, requests_per_unit: 4294967296}"),
			"4:49: requests_per_unit 4294967296 is not",
		},
		"fraction": {
			rate("rate_limit: {unit: hour, requests_per_unit: 1.5}"),
			"4:49: requests_per_unit must be a whole number",
		},
		"quoted rate": {
			rate("rate_limit: {unit: hour, requests_per_unit: \"5\"}"),
			"4:49: requests_per_unit must be a whole number",
		},
		"no multiple": {
			rate("rate_limit: {unit: hour, unit_multiplier: 0, requests_per_unit: 5}"),
			"4:47: unit_multiplier 0 is not a whole number from 1",
		},
		"too long a window": {
			rate("rate_limit: {unit: year, unit_multiplier: 2, requests_per_unit: 5}"),
			"4:24: 2 years are longer than 366 days",
		},
		"share of no wildcard": {
			rate("value: v", "share_threshold: true"),
			"3:5: share_threshold is only for values and keys with a *",
		},
		"replaces itself": {
			rate("rate_limit: {unit: hour, requests_per_unit: 5, name: n, replaces: [{name: n}]}"),
			"the rate \"n\" replaces itself",
		},
		"replaces nothing": {
			rate("rate_limit: {unit: hour, requests_per_unit: 5, replaces: [{}]}"),
			"an entry of replaces needs a name",
		},
		"replaces a text": {
			rate("rate_limit: {unit: hour, requests_per_unit: 5, replaces: [n]}"),
			"an entry of replaces must be a mapping",
		},
		"value is a fraction": {rate("value: 1.5"), "4:12: value must be a string; put it in quotes"},
		"no boolean":          {rate("shadow_mode: maybe"), "4:18: shadow_mode must be true or false"},
		"quoted boolean":      {rate("shadow_mode: \"yes\""), "4:18: shadow_mode must be true or false"},
		"two documents":       {"domain: d\n---\ndomain: e\n", "3:1: only one document is allowed"},
		"unknown anchor":      {"domain: *d\n", "1:9: there is no anchor \"d\""},
		"a tag":               {"domain: !secret d\n", "1:9: tags, directives and complex keys are not supported"},
		"tab":                 {"domain: d\ndescriptors:\n\t- key: k\n", "3:"},
		"metadata is a text": {
			rate("metadata: m", "rate_limit: {unit: hour, requests_per_unit: 5}"),
			"4:15: metadata must be a mapping",
		},
	} {
		_, err := rls.ParseConfig("rates.yaml", []byte(c.text), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", name, err, c.want)
		}
	}
}

func TestConfigTellsAllMistakesInOrder(t *testing.T) {
	t.Parallel()
	_, err := rls.ParseConfig("f",
		[]byte("domain: d\ndescriptors:\n  - kee: k\n  - key: k\n    rate_limit: {unit: age}\n"), nil)
	errs, ok := errors.AsType[rls.ConfigErrors](err)
	if !ok || len(errs) != 3 {
		t.Fatalf("%v, want three mistakes", err)
	}
	if !slices.IsSortedFunc(errs, func(a, b *rls.ConfigError) int { return a.Line - b.Line }) {
		t.Errorf("not in order: %v", err)
	}
	if one, ok := errors.AsType[*rls.ConfigError](err); !ok || one.File != "f" || one.Line != 3 {
		t.Errorf("the first: %+v", one)
	}
}

func TestConfigReadsWhatYAMLReaders11Do(t *testing.T) {
	t.Parallel()
	c := config(t, `
domain: 42
descriptors:
  - &base
    key: on
    value: 404
    shadow_mode: Yes
    rate_limit: &rate {unit: MiNuTe, requests_per_unit: 0007, name: }
  - <<: *base
    value: true
    rate_limit: *rate
  - key: empty
    value:
    descriptors:
    rate_limit:
`)
	var got []string
	for _, r := range c.Rules() {
		got = append(got, fmt.Sprint(r.Domain, r.Path[0].Key, r.Path[0].Value, r.Unit, r.Requests, r.Shadow))
	}
	want := []string{"42on404MINUTE7true", "42ontrueMINUTE7true"}
	for i := range want {
		if len(got) != len(want) || strings.ReplaceAll(got[i], " ", "") != want[i] {
			t.Fatalf("read %q, want %q", got, want)
		}
	}
}

func TestConfigAliasesCannotBlowUp(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n  - key: a0\n    descriptors: &a0 [{key: k}]\n")
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&b, "  - key: a%d\n    descriptors: &a%d [{key: x, descriptors: *a%d}, {key: y, descriptors: *a%d}]\n", i, i, i-1, i-1)
	}
	if _, err := rls.ParseConfig("f", []byte(b.String()), nil); err == nil ||
		!strings.Contains(err.Error(), "the file is too large") {
		t.Errorf("2^40 descriptors: %v", err)
	}
	if _, err := rls.ParseConfig("f", []byte("domain: d\ndescriptors: &a\n  - key: k\n    descriptors: *a\n"),
		nil); err == nil {
		t.Error("a list within itself: no error")
	}
}

func TestConfigUnitsAndMultipliers(t *testing.T) {
	t.Parallel()
	const text = `
domain: d
descriptors:
  - {key: second, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: day, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: week, rate_limit: {unit: week, requests_per_unit: 1}}
  - {key: month, rate_limit: {unit: month, requests_per_unit: 1}}
  - {key: year, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: ten, rate_limit: {unit: minute, unit_multiplier: 10, requests_per_unit: 1}}
`
	const day = 24 * time.Hour
	for windows, want := range map[rls.Windows]string{
		rls.Rolling: fmt.Sprint("rolling ", time.Second, " rolling ", time.Minute, " rolling ", time.Hour, " rolling ",
			day, " rolling ", 7*day, " rolling ", 30*day,
			" rolling ", 365*day, " rolling ", 10*time.Minute),
		rls.Aligned: fmt.Sprint("rolling ", time.Second, " minute hour day week month rolling ", 365*day, " rolling ",
			10*time.Minute),
	} {
		c, err := rls.ParseConfig("f", []byte(text), &rls.ConfigOptions{Windows: windows})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range c.Policies()[1:] {
			l := p.Limits[0]
			if l.Kind == drawgate.Calendar {
				got = append(got, l.Name)
				continue
			}
			got = append(got, fmt.Sprint(l.Kind, l.Window))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("windows %d: %s, want %s", windows, got, want)
		}
	}
}

func TestConfigPolicyNamesAreUniqueAndShort(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("domain: a/b\ndescriptors:\n")
	long := strings.Repeat("x", 200)
	for _, d := range []string{
		"key: a=b", "{key: a, value: b}", "{key: a/b}", "{key: a, value: b*}", "key: a",
		"key: " + long + "1", "key: " + long + "2", "key: ünï",
	} {
		d = strings.Trim(d, "{}")
		b.WriteString("  - {" + d +
			", rate_limit: {unit: hour, requests_per_unit: 1}, descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]}\n")
	}
	c := config(t, b.String())
	seen := map[string]bool{}
	for _, p := range c.Policies() {
		if seen[p.Name] || len(p.Name) > 128 {
			t.Errorf("policy %q: used twice, or too long", p.Name)
		}
		seen[p.Name] = true
	}
	if _, e := service(t, memory(t), c, nil); len(e.Policies()) != 16 {
		t.Errorf("%d policies, want 16", len(e.Policies()))
	}
}

func TestConfigDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := rls.Load([]string{dir}, nil); err == nil ||
		!strings.Contains(err.Error(), "the directory has no files") {
		t.Errorf("an empty directory: %v", err)
	}
	write("b.yaml", "domain: b\n")
	write("a.yml", "domain: a\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 3}}]\n")
	for _, name := range []string{"c.yaml", "c.yaml/.deep", "..2026"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(".hidden.yaml", "domain: h\n")
	write("no-extension", "domain: n\n")
	write("c.yaml/file.json", `{"domain": "j"}`)
	write("c.yaml/.deep/file.yaml", "domain: deep\n")
	write("..2026/linked", "domain: linked\n")
	for name, to := range map[string]string{
		"d.yaml": "gone", "..data": "..2026", "linked.yaml": "..data/linked",
		"folder": "c.yaml",
	} {
		if err := os.Symlink(filepath.FromSlash(to), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := rls.Load([]string{dir}, nil)
	if err != nil || !slices.Equal(c.Domains(), []string{"a", "b", "deep", "h", "j", "linked", "n"}) {
		t.Fatalf("%v, %v", c, err)
	}
	var skipped []string
	for _, s := range c.Skipped() {
		skipped = append(skipped, strings.TrimPrefix(s.Path, dir+string(filepath.Separator))+": "+s.Why)
	}
	if want := []string{
		"..2026: the name begins with two dots", "..data: the name begins with two dots",
		"d.yaml: it is a dangling link, or was just removed",
		"folder: it is a link to a directory",
	}; !slices.Equal(skipped, want) {
		t.Errorf("skipped %q, want %q", skipped, want)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if c, err := rls.Load([]string{link}, nil); err != nil || len(c.Domains()) != 7 {
		t.Errorf("by a link: %v, %v", c, err)
	}
	write("notes.txt", "nonsense")
	if _, err := rls.Load([]string{dir}, nil); err == nil || !strings.Contains(err.Error(), "notes.txt:1:1: ") {
		t.Errorf("a file in another format: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "notes.txt")); err != nil {
		t.Fatal(err)
	}
	if c, err := rls.Load([]string{filepath.Join(dir, "a.yml")}, nil); err != nil ||
		!slices.Equal(c.Domains(), []string{"a"}) {
		t.Errorf("one file: %v, %v", c, err)
	}

	// The same domain in two files is a mistake, unless files may be merged; the same descriptor in
	// both is one always.
	write("e.yaml", "domain: a\ndescriptors: [{key: l, rate_limit: {unit: hour, requests_per_unit: 3}}]\n")
	if _, err := rls.Load([]string{dir}, nil); err == nil ||
		!strings.Contains(err.Error(), "e.yaml:1:1: the domain \"a\" is already in another file") {
		t.Errorf("a domain twice: %v", err)
	}
	if c, err := rls.Load([]string{dir}, &rls.ConfigOptions{Merge: true}); err != nil || len(c.Rules()) != 2 {
		t.Errorf("merged: %v, %v", c, err)
	}
	write("f.yaml", "domain: a\ndescriptors: [{key: k}]\n")
	if _, err := rls.Load([]string{dir}, &rls.ConfigOptions{Merge: true}); err == nil ||
		!strings.Contains(err.Error(), "is defined twice") {
		t.Errorf("a descriptor twice: %v", err)
	}
	if _, err := rls.Load([]string{filepath.Join(dir, "none")}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

func TestConfigAnswersTheCurrentLimit(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: d
descriptors:
  - {key: k, rate_limit: {name: my rate, unit: minute, unit_multiplier: 10, requests_per_unit: 3}}
`, nil)
	s := free(t, c, "d", "k=v", 1).GetStatuses()[0]
	l := s.GetCurrentLimit()
	if l.GetName() != "my rate" || l.GetUnit() != ratelimit.RateLimitResponse_RateLimit_MINUTE ||
		l.GetUnitMultiplier().GetValue() != 10 || l.GetRequestsPerUnit() != 3 {
		t.Errorf("limit %v", l)
	}
	if reset := s.GetDurationUntilReset().AsDuration(); reset <= 9*time.Minute || reset > 10*time.Minute+time.Second {
		t.Errorf("reset in %v, want nearly 10 minutes", reset)
	}
}

// The file in docs/envoy.md is read, and does what the page says.
func TestConfigOfTheDocumentation(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "docs", "envoy.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "```yaml\ndomain: shop\n")
	text, _, ended := strings.Cut("domain: shop\n"+text, "```")
	if !found || !ended {
		t.Fatal("docs/envoy.md has no file of the domain shop")
	}
	c := client(t, text, nil)
	passes(t, c, "shop", "remote_address=192.0.2.66", 0)
	passes(t, c, "shop", "path=/files/a", 100)
	free(t, c, "shop", "path=/files/b", 1)
	free(t, c, "shop", "service=api,customer=ann", 1001)
}

// A * stands for any text wherever it is, in values and in keys.
func TestWildcardsAnywhere(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: d
descriptors:
  - {key: mid, value: a*z, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: host, value: "*.example.com", rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: two, value: a*b*, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: all, value: "*", rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: order, value: a*, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: order, value: ab*, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: order, value: abc, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: order, rate_limit: {unit: hour, requests_per_unit: 4}}
  - {key: share, value: /api/*/items, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: x-*, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: y-*-end, value: v, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: z-*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - key: tenant
    value: t*prod
    share_threshold: true
    descriptors:
      - {key: user, value: "*@*", rate_limit: {unit: hour, requests_per_unit: 1}}
`, nil)
	for _, text := range []string{
		// each value for itself
		"mid=az", "mid=abcz", "mid=a*z", "host=.example.com", "host=www.example.com", "two=ab", "two=a1b2", "all=",
		"all=x",
		"x-=1", "x-a=1", "x-a=2", "x-b=1", "y-k-end=v", "y-l-end=v", "tenant=t1prod,user=a@b", "tenant=tprod,user=c@d",
	} {
		passes(t, c, "d", text, 1)
	}
	passes(t, c, "d", "order=abd", 2) // the first one in the file
	passes(t, c, "d", "order=abc", 3) // the value itself goes before
	passes(t, c, "d", "order=b", 4)   // and the key alone comes last
	free(t, c, "d", "share=/api/v1/items", 1)
	passes(t, c, "d", "share=/api/v2/items", 1) // both together have 2
	free(t, c, "d", "z-a=1", 1)
	passes(t, c, "d", "z-a=2", 1)
	passes(t, c, "d", "z-b=1", 2) // another key
	free(t, c, "d", "tenant=t2prod,user=e@f", 1)
	if a := answered(t, c, request("d", descriptor("tenant=t3prod,user=e@f"))); a.GetOverallCode() != over {
		t.Errorf("the tenants have one bucket per user: %v", a)
	}
	for _, text := range []string{
		"mid=a", "mid=za", "mid=bcz", "mid=azq", "mid=", "host=example.com", "host=www.example.com.evil", "two=ba",
		"two=a", "share=/api/items", "share=/api/v1/items/9",
		"x=1", "y--end=w", "y-end=v", "tenant=tproduct,user=a@b", "tenant=t1prod,user=ab",
	} {
		free(t, c, "d", text, 4)
	}
}

// The rates of a file may be leased, where they are large enough.
//
// req: C12
func TestRatesMayBeLeased(t *testing.T) {
	t.Parallel()
	const file = `domain: d
descriptors:
  - {key: large, rate_limit: {unit: minute, requests_per_unit: 60000}}
  - {key: small, rate_limit: {unit: hour, requests_per_unit: 10}}
`
	for _, leased := range []bool{false, true} {
		c, err := rls.ParseConfig("f", []byte(file), &rls.ConfigOptions{Leased: leased})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range c.Policies() {
			plan, err := p.Compile()
			if err != nil {
				t.Fatal(err)
			}
			large := strings.HasSuffix(p.Name, "large")
			if p.Name == rls.OverridePolicy {
				continue
			}
			if got := plan.LeaseLife(0) > 0; p.Leased != leased || got != (leased && large) {
				t.Errorf("leased %v: %s is leased: %v", leased, p.Name, got)
			}
		}
	}
}
