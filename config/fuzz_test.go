package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/calendar"
	"github.com/drawgate/drawgate/store"
)

// For any contents of a file, reading ends, every problem has a position inside the file, and an
// accepted configuration compiles and reads back as the same.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/bad/*.yaml", "testdata/good/*.yaml", "presets/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { fuzzFile(t, data, config.Parse) })
}

// The same holds for a file of rules: conditions, expressions, schedules, other amounts.
func FuzzRules(f *testing.F) {
	for _, rule := range []string{
		`{match: {path: /v1/*, methods: [GET]}, apply: [{policy: a, key: ip}]}`,
		`{when: 'path startsWith "/x" && hour in 9..17', exempt: true}`,
		`{when: "header(\"X\") == 'é'", final: true}`,
		`{schedule: {days: mon, from: "22:00", to: "06:00", zone: Europe/Paris}, apply: [{policy: a, key: user}]}`,
		`{apply: [{policy: a, key: 'join(user, "x")', limits: {a: 1, a.burst: 3, b: {burst: 2}}, costs: {requests: 2}, shadow: true}]}`,
		`{match: {ips: [10.0.0.0/8, "::/0"], headers: {X: "*"}, attrs: {a: b*}, class: c, host: "*.h", user: "*"}, tenant: 'attr("t")', apply: [{policy: a, key: '"g"'}]}`,
		"{when: |\n  oops\n, exempt: true}", `{when: 'a' 'b'}`,
		`{match: {path: "/a/{b}/{c}"}, when: "true", exempt: true, name: "~"}`,
	} {
		f.Add([]byte(fileOf(3) + "      - {name: b, bucket: 1s, amount: 5, burst: 2}\nrules:\n  - " + rule + "\n  - " +
			rule + "\n"))
	}
	f.Fuzz(func(t *testing.T, data []byte) { fuzzFile(t, data, config.ParseRules) })
}

func fuzzFile(t *testing.T, data []byte, parse func(string, []byte) (*config.Config, []config.Problem)) {
	t.Helper()
	c, problems := parse("f", data)
	if (c == nil) != (len(problems) > 0) {
		t.Fatalf("Parse = %v with %d problems", c, len(problems))
	}
	if c != nil {
		problems = c.Warnings
	}
	lines := strings.Split(string(data), "\n")
	for _, p := range problems {
		if p.File != "f" || p.Message == "" || p.Line < 1 || p.Line > len(lines) || p.Column < 1 ||
			p.Column > utf8.RuneCountInString(lines[p.Line-1])+1 {
			t.Errorf("no place in a file of %d lines: %#v", len(lines), p)
		}
		if parts := strings.Split(p.Snippet, "\n"); len(parts) != 2 || !strings.Contains(parts[1], "^") {
			t.Errorf("no caret: %#v", p)
		}
	}
	if c == nil {
		return
	}
	for _, p := range c.Policies {
		if _, err := p.Compile(); err != nil {
			t.Errorf("accepted, and does not compile: %v", err)
		}
	}
	again, problems := parse("again", c.YAML())
	if len(problems) > 0 {
		t.Fatalf("%v\nin what was written for\n%s", config.Problems(problems), data)
	}
	if diff := differs(c, again); diff != "" {
		t.Errorf("reads back as another one (-want +got):\n%s\nby\n%s", diff, c.YAML())
	}
}

func genShare(t *rapid.T, most int64) drawgate.Share {
	switch rapid.IntRange(0, 2).Draw(t, "share") {
	case 0:
		return drawgate.Share{}
	case 1:
		return drawgate.Share{Units: rapid.Int64Range(0, most).Draw(t, "units")}
	}
	return drawgate.Share{Percent: float64(rapid.IntRange(0, 999_999).Draw(t, "ppm")) / 10_000}
}

func genLimit(t *rapid.T, name string) drawgate.Limit {
	unit := rapid.SampledFrom([]string{"", "requests", "input_tokens", "usd_micros", "true", "1"}).Draw(t, "unit")
	l := drawgate.Limit{Name: name, Unit: unit, Amount: rapid.Int64Range(1, 1_000_000).Draw(t, "amount")}
	window := func() time.Duration {
		return time.Duration(rapid.Int64Range(1_000, int64(store.MaxWindow/time.Microsecond)).Draw(t,
			"µs")) * time.Microsecond
	}
	switch l.Kind = drawgate.Kind(rapid.IntRange(1, 4).Draw(t, "kind")); l.Kind {
	case drawgate.Bucket:
		l.Window = rapid.SampledFrom([]time.Duration{
			time.Second, time.Minute, 90 * time.Minute,
			36 * time.Hour,
		}).Draw(t, "period")
		l.Burst = rapid.Int64Range(0, 1000).Draw(t, "burst")
	case drawgate.Rolling:
		l.Window = window()
		l.Precision = rapid.SampledFrom([]int{0, drawgate.Exact, 100, 10_000}).Draw(t, "precision")
	case drawgate.Calendar:
		l.Every = drawgate.Every(rapid.IntRange(1, int(calendar.End)-1).Draw(t, "every"))
		l.Zone = rapid.SampledFrom([]string{"", "UTC", "America/Los_Angeles", "Asia/Kolkata"}).Draw(t, "zone")
		if l.Every == drawgate.Month {
			l.Anchor = rapid.IntRange(0, 31).Draw(t, "anchor")
		}
	case drawgate.Concurrency:
	}
	l.Charge = drawgate.Charge(rapid.IntRange(0, 2).Draw(t, "charge"))
	l.Margin = time.Duration(rapid.IntRange(0, 2000).Draw(t, "margin")) * time.Microsecond
	l.Headroom = genShare(t, l.Amount)
	for p := range rapid.MapOfN(rapid.IntRange(1, 9), rapid.Bool(), 0, 3).Draw(t, "priorities") {
		if l.ReservedByPriority == nil {
			l.ReservedByPriority = map[int]drawgate.Share{}
		}
		l.ReservedByPriority[p] = genShare(t, l.Amount)
	}
	return l
}

// Every policy that compiles can be written as a file. It conforms to the schema and reads back as
// the same policy.
func TestEveryPolicyReadsBack(t *testing.T) {
	t.Parallel()
	s := compileSchema(t)
	rapid.Check(t, func(rt *rapid.T) {
		p := drawgate.Policy{Name: rapid.SampledFrom([]string{
			"api", "per user", "null", "1", "a: b", "é\"\\\t", "{x}",
			"- y", "#",
		}).Draw(rt, "policy")}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
			"rpm", "tpm", "no", "7", "1.5", "-",
			"a-b_c", "1e3",
		}), 1, 6, rapid.ID).Draw(rt, "names") {
			p.Limits = append(p.Limits, genLimit(rt, name))
		}
		p.Wait = drawgate.Wait{
			MaxWait: time.Duration(rapid.Int64Range(0, 1e12).Draw(rt, "up_to")),
			Queue:   rapid.IntRange(0, 1_000_000).Draw(rt, "queue"), Barge: rapid.Bool().Draw(rt, "barge"),
		}
		for range rapid.IntRange(0, 3).Draw(rt, "steps") {
			p.Wait.Backoff = append(p.Wait.Backoff, time.Duration(rapid.Int64Range(1e6, 24*3600*1e9).Draw(rt, "step")))
		}
		if _, err := p.Compile(); err != nil {
			rt.Skip("does not compile")
		}
		c := config.Config{Store: "redis://u:p@h", Policies: []drawgate.Policy{p}}
		got, problems := config.Parse("f", c.YAML())
		if len(problems) > 0 {
			rt.Fatal(config.Problems(problems))
		}
		if diff := cmp.Diff(c.Policies, got.Policies); diff != "" {
			rt.Fatalf("-want +got:\n%s", diff)
		}
		if err := conforms(t, s, c.YAML()); err != nil {
			rt.Fatalf("%v\n%s", err, c.YAML())
		}
	})
}

// The schema finds simple mistakes too, so that an editor shows them.
func TestSchemaFindsMistakes(t *testing.T) {
	t.Parallel()
	s := compileSchema(t)
	for _, name := range []string{
		"five", "unknown", "types", "numbers", "durations", "kinds", "long", "secret",
		"rules-five", "rules", "server",
	} {
		data, err := os.ReadFile(filepath.Join("testdata", "bad", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if err := conforms(t, s, data); err == nil {
			t.Errorf("%s.yaml conforms to the schema", name)
		}
	}
	for _, text := range []string{
		"{name: a, rolling: 1m, amount: 1}", "{name: a, concurrency: 5}",
		"{name: a, bucket: 1m, amount: 250_000, burst: 20}",
		"{name: a, calendar: month, anchor: 31, zone: UTC, amount: 1, keep: {7: 10%, 9: 3}, headroom: 0}",
		"{name: a, rolling: 7d, amount: 1, precision: exact, margin: 0}",
	} {
		if err := conforms(t, s, []byte("policies: {p: {limits: ["+text+"]}}")); err != nil {
			t.Errorf("%s: got %v, want it to conform to the schema", text, err)
		}
	}
	for _, text := range []string{
		"{name: a}", "{name: a, rolling: 1m}", "{rolling: 1m, amount: 1}",
		"{name: a, rolling: 1m, bucket: 1m, amount: 1}", "{name: a, rolling: 1m, amount: -1}",
		"{name: a, rolling: 60, amount: 1}", "{name: a, rolling: 1m, amount: 1, burst: 1}",
		"{name: a, bucket: 1m, amount: 1, zone: UTC}",
		"{name: a, calendar: decade, amount: 1}", "{name: a, rolling: 1m, amount: 1, headroom: 100%}",
		"{name: a, rolling: 1m, amount: 1, keep: {0: 1}}",
		"{name: a, rolling: 1m, amount: 1, precision: 50}", "{name: a b, rolling: 1m, amount: 1}",
		"{name: a, rolling: 1m, amount: 1, x: 1}",
	} {
		if err := conforms(t, s, []byte("policies: {p: {limits: ["+text+"]}}")); err == nil {
			t.Errorf("%s conforms to the schema", text)
		}
	}
}
