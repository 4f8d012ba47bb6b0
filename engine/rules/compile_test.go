package rules

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestMistakes(t *testing.T) {
	t.Parallel()
	ok := apply("p", "ip")
	long := strings.Repeat("x", MaxPattern+1)
	for _, c := range []struct {
		rule        Rule
		field, want string
	}{
		{Rule{}, "apply", "does nothing"},
		{Rule{Exempt: true, Apply: ok}, "exempt", "applies nothing"},
		{Rule{Exempt: true, Shadow: true}, "exempt", "shadow"},
		{Rule{Apply: apply("", "ip")}, "apply[0].policy", "missing"},
		{Rule{Apply: apply("p", " ")}, "apply[0].key", `"global"`},
		{Rule{Apply: apply("p", "ip", "q", "usr")}, "apply[1].key", "unknown name usr; known names are method,"},
		{Rule{Apply: apply("p", "all")}, "apply[0].key", "expected string, but got the name of a function: call it, or put a string in quotes"},
		{Rule{Apply: apply("p", "hour")}, "apply[0].key", "expected string"},
		{Rule{Apply: apply("p", "user, path")}, "apply[0].key", "line 1, column 5"},
		{Rule{Apply: apply("p", `header()`)}, "apply[0].key", "not enough arguments"},
		{Rule{Apply: make([]Apply, 9)}, "apply", "at most 8"},
		{Rule{When: "user", Apply: ok}, "when", "expected bool"},
		{Rule{When: "now() > 3", Apply: ok}, "when", "unknown name now"},
		{Rule{When: "path matches user", Apply: ok}, "when", "literal"},
		{Rule{When: `path matches "("`, Apply: ok}, "when", "missing closing"},
		{Rule{When: "let x = path; x == user", Apply: ok}, "when", "let"},
		{Rule{When: `any(split(path, ""), any(split(path, ""), # == "x"))`, Apply: ok}, "when", "loop within a loop"},
		{Rule{When: `any(1..1000000, # == 7)`, Apply: ok}, "when", "range"},
		{Rule{When: `any(1..hour, # == 7)`, Apply: ok}, "when", "range"},
		{Rule{When: `inside(user)`, Apply: ok}, "when", "literal"},
		{Rule{When: `inside()`, Apply: ok}, "when", "literal"},
		{Rule{When: `inside("10.0.0.0/33")`, Apply: ok}, "when", "is not a network"},
		{Rule{When: strings.Repeat("!", MaxSource) + "true", Apply: ok}, "when", "bytes"},
		{Rule{When: strings.Repeat("!", MaxNodes) + "true", Apply: ok}, "when", "nodes"},
		{Rule{Tenant: "hour", Apply: ok}, "tenant", "expected string"},
		{Rule{Match: Match{Path: "a/b"}, Apply: ok}, "match.path", `begin with "/"`},
		{Rule{Match: Match{Path: "/a/*/b"}, Apply: ok}, "match.path", "at the end"},
		{Rule{Match: Match{Path: "/a/../b"}, Apply: ok}, "match.path", `use "/b"`},
		{Rule{Match: Match{Path: "/a?x=1"}, Apply: ok}, "match.path", "query"},
		{Rule{Match: Match{Path: "/a/{id"}, Apply: ok}, "match.path", "whole segment"},
		{Rule{Match: Match{Path: "/a/x{id}"}, Apply: ok}, "match.path", "whole segment"},
		{Rule{Match: Match{Path: "/a/{id...}"}, Apply: ok}, "match.path", "match the rest"},
		{Rule{Match: Match{Path: "/" + long}, Apply: ok}, "match.path", "bytes"},
		{Rule{Match: Match{Host: "x:80"}, Apply: ok}, "match.host", "port"},
		{Rule{Match: Match{Host: "*.x.*"}, Apply: ok}, "match.host", `one "*"`},
		{Rule{Match: Match{User: "*x"}, Apply: ok}, "match.user", "at the end"},
		{Rule{Match: Match{Class: long}, Apply: ok}, "match.class", "bytes"},
		{Rule{Match: Match{Route: long}, Apply: ok}, "match.route", "bytes"},
		{Rule{Match: Match{Methods: []string{"GET", "*"}}, Apply: ok}, "match.methods[1]", "not a method"},
		{Rule{Match: Match{IPs: []netip.Prefix{{}}}, Apply: ok}, "match.ips[0]", "not a network"},
		{
			Rule{Match: Match{IPs: []netip.Prefix{netip.MustParsePrefix("::ffff:0:0/90")}}, Apply: ok},
			"match.ips[0]",
			"partly",
		},
		{Rule{Match: Match{Headers: map[string]string{"X-A": ""}}, Apply: ok}, "match.headers.X-A", "missing"},
		{Rule{Match: Match{Attrs: map[string]string{"": "x"}}, Apply: ok}, "match.attrs", "name"},
		{Rule{Match: Match{Attrs: map[string]string{"a": "x*y"}}, Apply: ok}, "match.attrs.a", "at the end"},
		{Rule{Schedule: &Schedule{Zone: "Berlin"}, Apply: ok}, "schedule", "Europe/Berlin"},
		{Rule{Schedule: &Schedule{Zone: "Local"}, Apply: ok}, "schedule", "machine"},
		{Rule{Schedule: &Schedule{From: 25 * time.Hour}, Apply: ok}, "schedule", "time of day"},
		{Rule{Schedule: &Schedule{From: time.Second}, Apply: ok}, "schedule", "whole minutes"},
		{Rule{Schedule: &Schedule{From: 24 * time.Hour}, Apply: ok}, "schedule", "00:00"},
		{Rule{Schedule: &Schedule{From: time.Hour, To: time.Hour}, Apply: ok}, "schedule", "the same"},
		{Rule{Schedule: &Schedule{Days: []time.Weekday{7}}, Apply: ok}, "schedule", "weekday 7"},
		{Rule{Name: long, Apply: ok}, "name", "bytes"},
	} {
		_, err := Compile([]Rule{{Apply: ok}, c.rule}, nil)
		e, found := errors.AsType[*Error](err)
		if !found || e.Rule != 1 || e.Field != c.field || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), "rules: rule 2") {
			t.Errorf("%+v\ngot  %v\nwant %s: … %s", c.rule, err, c.field, c.want)
		}
	}
}

// TestAllMistakesAreReportedAtOnce: whoever writes a file need not find them one by one.
// req: B11.
func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	list := []Rule{
		{Name: "a", Match: Match{Path: "x", User: "*y"}, When: "1", Apply: apply("nope", "usr", "", "")},
		{Name: "a", Exempt: true},
	}
	_, err := Compile(list, func(policy string) error { return fmt.Errorf("unknown policy %q", policy) })
	for _, want := range []string{
		`rule 1 ("a"): match.path`, `match.user`, `rule 1 ("a"): when`, `apply[0].policy: unknown policy "nope"`,
		`apply[0].key`, `apply[1].policy`, `apply[1].key`,
		`rule 2 ("a"): name: rule 1 has the same name`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
}

// TestErrorsDoNotShowExpressions: the text of an expression may hold a secret.
func TestErrorsDoNotShowExpressions(t *testing.T) {
	t.Parallel()
	for _, when := range []string{
		`header("X-Key") == "sk-secret" && nope`, `header("X-Key") == "sk-secret" +`,
		`"sk-secret"`, `header("X-Key") == "sk-secret" and path matches user`,
	} {
		_, err := Compile([]Rule{{When: when, Apply: apply("p", "ip")}}, nil)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error %v", when, err)
		}
	}
}

func TestTooManyRules(t *testing.T) {
	t.Parallel()
	if _, err := Compile(make([]Rule, MaxRules+1), nil); err == nil || !strings.Contains(err.Error(), "at most 10000") {
		t.Errorf("error %v", err)
	}
	s := compile(t)
	if got := counted(t, s, &Attributes{Path: "/", Headers: http.Header{}}); got != "" || s.Rules() != 0 ||
		s.Applies() != 0 {
		t.Errorf("no rules: got %q", got)
	}
}

func TestClocksAndDaysAreRead(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]time.Duration{
		"00:00": 0, "9:05": 9*time.Hour + 5*time.Minute, "24:00": day,
		"23:59": day - time.Minute,
	} {
		if got, err := ParseClock(s); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "9", "24:01", "12:60", "-1:00", "+1:00", "1:1", "012:00", "12:00:00"} {
		if got, err := ParseClock(s); err == nil {
			t.Errorf("%q: got %v", s, got)
		}
	}
	for s, want := range map[string]time.Weekday{"mon": time.Monday, "Sunday": time.Sunday, "SAT": time.Saturday} {
		if got, err := ParseDay(s); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", s, got, err, want)
		}
	}
	if got, err := ParseDay("mo"); err == nil {
		t.Errorf("mo: got %v", got)
	}
}
