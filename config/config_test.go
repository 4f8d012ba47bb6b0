package config_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests need no time zone database on the machine

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
)

// golden compares with a file, or writes it with -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// differs compares two configurations.
func differs(a, b *config.Config) string {
	return cmp.Diff(a, b, cmpopts.IgnoreUnexported(config.Config{}), cmpopts.IgnoreFields(config.Config{}, "Warnings"),
		cmpopts.EquateEmpty(),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b config.Secret) bool { return a == b }))
}

func testdata(t *testing.T, pattern string, f func(t *testing.T, path string, data []byte)) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("testdata/%s: got %v, %v, want files", pattern, paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f(t, path, data)
		})
	}
}

// For a file with mistakes all problems are reported, each with its position, the line and a caret.
// The golden files have the texts.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	testdata(t, "bad/*.yaml", func(t *testing.T, path string, data []byte) {
		c, problems := config.Parse(filepath.Base(path), data)
		if c != nil || len(problems) == 0 {
			t.Errorf("Parse = %v, %d problems, want nil and some", c, len(problems))
		}
		text := config.Problems(problems).Error() + "\n"
		if strings.Contains(text, "hunter2") || strings.Contains(text, "p@ss") {
			t.Errorf("a password is shown in %s", text)
		}
		golden(t, strings.TrimSuffix(path, ".yaml")+".golden", text)
	})
}

// req: D1, C2
func TestGoodFiles(t *testing.T) {
	t.Parallel()
	testdata(t, "good/*.yaml", func(t *testing.T, path string, data []byte) {
		c, problems := config.Parse(filepath.Base(path), data)
		if len(problems) > 0 {
			t.Fatal(config.Problems(problems))
		}
		var b strings.Builder
		for _, o := range c.Explain() {
			fmt.Fprintf(&b, "%s: %s # %s\n", o.Setting, o.Value, o.From)
		}
		for _, w := range c.Warnings {
			b.WriteString(w.Error() + "\n")
		}
		if shown := b.String() + c.String(); strings.Contains(shown, "hunter2") {
			t.Errorf("a password is shown in %s", shown)
		}
		golden(t, strings.TrimSuffix(path, ".yaml")+".golden", b.String())
		if s := compileSchema(t); len(c.Policies) > 0 {
			for _, text := range [][]byte{data, c.YAML()} {
				if err := conforms(t, s, text); err != nil {
					t.Errorf("the schema refuses it: %v", err)
				}
			}
		}
		again, problems := config.Parse("again", c.YAML())
		if len(problems) > 0 {
			t.Fatal(config.Problems(problems))
		}
		if diff := differs(c, again); diff != "" {
			t.Errorf("YAML reads back as another one (-want +got):\n%s", diff)
		}
	})
}

// A file with five different mistakes gives five messages, each with its position.
func TestFiveMistakesGiveFiveMessages(t *testing.T) {
	t.Parallel()
	fiveMistakes(t, "testdata/bad/five.yaml", []placed{
		{6, 34, `unknown key "amout" in a limit; did you mean "amount"?`, "^^^^^"},
		{7, 50, `"1 minute" is not a duration`, "^^^^^^^^"},
		{8, 42, "unknown time zone America/Los_Angles", "^^^^^^^^^^^^^^^^^^"},
		{9, 43, "amount -1 is not between 0 and", "^^"},
		{10, 31, "queue must be a whole number, not the string \"50\"; write it without quotes", "^^^^"},
	})
}

// The same for rules, within expressions too.
//
// req: E3
func TestFiveMistakesInRulesGiveFiveMessages(t *testing.T) {
	t.Parallel()
	fiveMistakes(t, "testdata/bad/rules-five.yaml", []placed{
		{8, 33, `unknown key "method" in match; did you mean "methods"?`, "^^^^^^"},
		{11, 39, "when: unknown name usr; known names are method, path,", "^^^"},
		{14, 19, `ips: "10.0.0.0/33" is neither an address nor a network`, "^^^^^^^^^^^"},
		{15, 22, `unknown policy "per-ipp"; did you mean "per-ip"?`, "^^^^^^^"},
		{17, 28, `"tues" is not a day of the week such as mon or monday; did you mean "tue"?`, "^^^^"},
	})
}

type placed struct {
	line, column int
	text, caret  string
}

func fiveMistakes(t *testing.T, path string, want []placed) {
	t.Helper()
	_, err := config.Load(path)
	problems, ok := errors.AsType[config.Problems](err)
	if !ok {
		t.Fatalf("Load = %v, want Problems", err)
	}
	if len(problems) != len(want) {
		t.Fatalf("%d problems, want %d:\n%v", len(problems), len(want), err)
	}
	for i, p := range problems {
		w := want[i]
		lines := strings.Split(p.Error(), "\n")
		place := fmt.Sprintf("%s:%d:%d: ", path, w.line, w.column)
		if p.Line != w.line || p.Column != w.column || !strings.HasPrefix(lines[0], place) ||
			!strings.Contains(lines[0], w.text) {
			t.Errorf("problem %d: got %q, want %q and %q", i, lines[0], place, w.text)
		}
		if len(lines) != 3 || strings.TrimLeft(lines[2], " |") != w.caret {
			t.Errorf("problem %d has no caret %s:\n%s", i, w.caret, p.Error())
		}
	}
}

func TestParseDesignExample(t *testing.T) {
	t.Parallel()
	c, err := config.Load("testdata/good/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, ok := c.Policy("gemini-flash")
	want := drawgate.Policy{
		Name: "gemini-flash",
		Limits: []drawgate.Limit{
			{
				Name: "rpm", Unit: "requests", Kind: drawgate.Rolling, Window: time.Minute, Amount: 10,
				Headroom: drawgate.Share{Percent: 20},
			},
			{
				Name: "tpm", Unit: "input_tokens", Kind: drawgate.Rolling, Window: time.Minute, Amount: 250_000,
				Headroom: drawgate.Share{Percent: 5}, Precision: drawgate.Exact,
			},
			{
				Name: "rpd", Unit: "requests", Kind: drawgate.Calendar, Every: drawgate.Day,
				Zone:   "America/Los_Angeles",
				Amount: 250, Headroom: drawgate.Share{Percent: 20},
			},
			{Name: "burst", Kind: drawgate.Bucket, Window: time.Minute, Amount: 100, Burst: 20},
			{
				Name: "month", Kind: drawgate.Calendar, Every: drawgate.Month, Anchor: 15, Amount: 7500,
				ReservedByPriority: map[int]drawgate.Share{7: {Percent: 10}, 9: {Units: 5}}, Margin: 2 * time.Second,
				Charge: drawgate.ChargeEnd,
			},
			{Name: "slots", Kind: drawgate.Concurrency, Amount: 5},
		},
		Wait: drawgate.Wait{
			MaxWait: time.Minute, Queue: 50,
			Backoff: []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second},
		},
	}
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, ok := c.Policy("nobody"); ok {
		t.Error("there is a policy that nobody wrote")
	}
}

func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	limit := "policies: {a: {limits: [{name: a, rolling: 1m, amount: 1}]}}\n"
	for name, c := range map[string]struct{ text, want string }{
		"too large": {
			strings.Repeat("# x\n", config.MaxSize/4+1),
			"f:1:1: the file is larger than 16777216 bytes",
		},
		"line too long": {
			limit + "#" + strings.Repeat(" ", 5000) + "\n",
			"f:2:1: the line is longer than 4096 bytes",
		},
		"not UTF-8":         {limit + "# caf\xe9\n", "f:2:6: the file is not UTF-8 text"},
		"NUL":               {limit + "# \x00\n", "f:2:3: the file has a NUL character"},
		"nested":            {"a: " + strings.Repeat("[", 40), "f:1:36: more than 32 brackets are nested here"},
		"nested over lines": {"a: " + strings.Repeat("[\n", 40), "f:33:1: more than 32 brackets are nested here"},
		"anchors": {
			"a: [" + strings.Repeat("&x 1, ", 200) + "]",
			"f:1:605: anchors, aliases, tags and complex keys are not supported",
		},
		"keys":   {strings.Repeat("a: 1\n", 6000), "f:5001:2: one mapping has more than 5000 keys"},
		"a list": {"- a\n", "f:1:1: the file must be a mapping (key: value), not a list"},
		"a word": {"hello\n", `f:1:1: the file must be a mapping (key: value), not the string "hello"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c2, problems := config.Parse("f", []byte(c.text))
			if c2 != nil || len(problems) == 0 || !strings.HasPrefix(problems[0].Error(), c.want) {
				t.Errorf("got %v, want %s", config.Problems(problems), c.want)
			}
		})
	}
	if _, problems := config.Parse("bom", []byte("\xef\xbb\xbf"+limit)); len(problems) > 0 {
		t.Error(config.Problems(problems))
	}
	if _, problems := config.Parse("crlf",
		[]byte(strings.ReplaceAll("policies:\n  a:\n    limits:\n      - {name: a, rolling: 1m, amount: 1}\n", "\n",
			"\r\n"))); len(problems) > 0 {
		t.Error(config.Problems(problems))
	}
	if _, err := config.Load(filepath.Join(t.TempDir(), "missing.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load of a missing file = %v", err)
	}
}

// The number of reported problems is bounded, however many mistakes there are.
func TestManyProblemsAreBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 500 {
		fmt.Fprintf(&b, "key%d: 1\n", i)
	}
	if _, problems := config.Parse("f", []byte(b.String())); len(problems) != 100 {
		t.Errorf("%d problems, want 100", len(problems))
	}
}

func TestParseDuration(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "60s": time.Minute, "1m": time.Minute, "1h30m": 90 * time.Minute, "7d": 7 * day,
		"30d": 30 * day, "1w": 7 * day,
		"1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour, "2w1d": 15 * day, "250ms": 250 * time.Millisecond,
		"5us": 5 * time.Microsecond, "5µs": 5 * time.Microsecond,
	} {
		if got, err := config.ParseDuration(text); got != want || err != nil {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "1", "d", "-1s", "+1s", "1 m", "1month", "1y", "1D", ".5s", "1.s", "1e3s", "1s ",
		"99999999999d", "300000w",
	} {
		if got, err := config.ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", text, got)
		}
	}
}

func TestRedactURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"memory:":                         "memory:",
		"sqlite:///var/lib/a.db":          "sqlite:///var/lib/a.db",
		"redis://localhost:6379/3":        "redis://localhost:6379/3",
		"redis://u:secret@h:6379/0":       "redis://u:xxxxx@h:6379/0",
		"redis://:secret@h/0":             "redis://:xxxxx@h/0",
		"redis://secret@h/0":              "redis://xxxxx@h/0",
		"redis://u:p@ss/w:rd@h/0":         "redis://u:xxxxx@h/0",
		"redis://h/0?password=secret&a=b": "redis://h/0?password=xxxxx&a=b",
		"x://h?a=1&Auth_Token=secret":     "x://h?a=1&Auth_Token=xxxxx",
		"redis:u:p@ss@h":                  "redis:u:xxxxx@h",
		"redis:/:p@ss@h":                  "redis:/:xxxxx@h",
		"redis:///:p@ss@h":                "redis:///:xxxxx@h",
		"sqlite:///var/a@b.db":            "sqlite:///var/a@b.db",
		"redis://[::1]:6379":              "redis://[::1]:6379",
		"redis+sentinel://u:secret@a,b/m?sentinel_user=u&sentinel_password=secret": "redis+sentinel://u:xxxxx@a,b/m?sentinel_user=u&sentinel_password=xxxxx",
		"rediss+cluster://:secret@a:1,b:2":                                         "rediss+cluster://:xxxxx@a:1,b:2",
		"dynamodb://quotas?region=local&endpoint=http://127.0.0.1:8000":            "dynamodb://quotas?region=local&endpoint=http://127.0.0.1:8000",
		"dynamodb://AKIA:secret@quotas":                                            "dynamodb://AKIA:xxxxx@quotas",
		"":                                                                         "",
	} {
		if got := config.RedactURL(url); got != want {
			t.Errorf("RedactURL(%q) = %q, want %q", url, got, want)
		}
	}
}

func TestSQLitePath(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"sqlite:///var/lib/a.db": "/var/lib/a.db", "sqlite:a.db": "a.db", "sqlite:/a.db": "/a.db",
		"sqlite:data/100%.db": "data/100%.db",
		"sqlite://a.db":       "", "sqlite:": "", "sqlite://": "", "redis://h": "", "a.db": "",
	} {
		if got, ok := config.SQLitePath(url); ok != (want != "") || ok && got != want {
			t.Errorf("SQLitePath(%q) = %q, %v, want %q", url, got, ok, want)
		}
	}
}

func TestStores(t *testing.T) {
	t.Parallel()
	for url, good := range map[string]bool{
		"memory:": true, "sqlite:a.db": true, "sqlite:///a.db": true, "redis://h": true, "rediss://u:p@h:1/2": true,
		"dynamodb://quotas": true, "dynamodb://quotas?region=eu-central-1&endpoint=http://127.0.0.1:8000": true,
		"dynamodb:": false, "dynamodb://": false, "dynamodb://ab": false, "dynamodb://u:p@quotas": false,
		"dynamodb://quotas?zone=x": false,
		"memory":                   false, "memory:x": false, "sqlite:": false, "sqlite://a.db": false,
		"valkeys://h": true, "redis+sentinel://u:p@a:1,b/m/3?sentinel_password=p": true, "valkey+cluster://a,b": true,
		"redis://a:1,b:2": false, "redis://a?master_name=m": false, "redis+cluster://a/3": false,
		"redis+sentinel://a": false, "redis+x://a": false, "unix:///redis.sock": false,
		"redis:h":  false,
		"redis://": false, "mysql://h": false, "a.db": false,
	} {
		_, problems := config.Parse("f", []byte(fmt.Sprintf("store: %q", url)))
		if good != (len(problems) == 0) {
			t.Errorf("store %q: %v, want good=%v", url, problems, good)
		}
	}
}

// A total never ends, so it has no zone, and nothing of it is granted while the store is
// unavailable, whatever the policy says.
func TestTotal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"calendar: total, amount: 0": "", "calendar: total, amount: 5, fallback: closed": "",
		"calendar: total, amount: 5, zone: Europe/Paris": "what never ends has no zone",
		"calendar: total, amount: 5, anchor: 3":          "anchor is the day on which a month starts",
		"calendar: total, amount: 5, fallback: share":    "fallback share is not for a total",
		"calendar: total, amount: 5, fallback: open":     "fallback open is not for a total",
		"calendar: total": "the limit has no amount",
	} {
		c, problems := config.Parse("x", []byte("policies: {p: {fallback: open, limits: [{name: l, "+text+"}]}}\n"))
		if want != "" {
			if !strings.Contains(fmt.Sprint(problems), want) {
				t.Errorf("%s: %v, want %q", text, problems, want)
			}
			continue
		}
		if problems != nil {
			t.Errorf("%s: %v", text, problems)
			continue
		}
		if l := c.Policies[0].Limits[0]; l.Every != drawgate.Total || l.Fallback != drawgate.FallbackClosed {
			t.Errorf("%s: %+v", text, l)
		}
	}
	_, problems := config.Parse("x", []byte("policies: {p: {leased: true, limits: [{name: l, calendar: total, amount: 5}]}}\n"))
	if problems == nil || !strings.Contains(fmt.Sprint(problems), "cannot have a total") {
		t.Errorf("leased: %v", problems)
	}
}
