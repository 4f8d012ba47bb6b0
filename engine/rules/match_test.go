package rules

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// compile makes a set of rules that have no mistake.
func compile(t testing.TB, list ...Rule) *Set {
	t.Helper()
	s, err := Compile(list, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// counted returns what a request is counted by: "policy=key", with the tenant in front if there is
// one, and "~" for a shadow.
func counted(t testing.TB, s *Set, a *Attributes) string {
	t.Helper()
	return countedAt(t, s, a, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
}

func countedAt(t testing.TB, s *Set, a *Attributes, now time.Time) string {
	t.Helper()
	var m Matches
	if err := s.Match(a, now, &m); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, x := range m.Applied {
		text := x.Apply.Policy + "=" + x.Key
		if x.Tenant != "" {
			text = x.Tenant + "/" + text
		}
		if x.Shadow {
			text = "~" + text
		}
		list = append(list, text)
	}
	if m.Exempt {
		list = append(list, "exempt")
	}
	return strings.Join(list, " ")
}

// apply applies policies by keys, given in turn.
func apply(pairs ...string) (list []Apply) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, Apply{Policy: pairs[i], Key: pairs[i+1]})
	}
	return list
}

// TestIndexFindsWhatALinearSearchFinds compares hundreds of rules with the model.
func TestIndexFindsWhatALinearSearchFinds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		data := make([]byte, 20_000)
		for i := 0; i < len(data); i += 8 {
			binary.LittleEndian.PutUint64(data[i:], r.Uint64())
		}
		s := &script{data}
		list := make([]Rule, rapid.IntRange(0, 150).Draw(t, "rules"))
		for i := range list {
			list[i] = s.rule(i)
			list[i].Final, list[i].Exempt = list[i].Final && i%16 == 0, list[i].Exempt && i%16 == 0
		}
		set, err := Compile(list, nil)
		if err != nil {
			list = usable(list, err)
			if set, err = Compile(list, nil); err != nil {
				t.Fatal(err)
			}
		}
		var m Matches
		for range 20 {
			a := s.attributes()
			if err := agree(set, list, a, time.Date(2026, 10, 25, s.byte()%24, 30, 0, 0, time.UTC), &m); err != nil {
				t.Fatalf("%+v: %v\n%+v", a, err, list[0])
			}
		}
	})
}

func TestSpecialRulesComeFirst(t *testing.T) {
	t.Parallel()
	s := compile(t,
		Rule{Match: Match{Path: "/health/*"}, Exempt: true},
		Rule{Match: Match{Path: "/upload"}, Apply: []Apply{{
			Policy: "api", Key: "user",
			Amounts: map[string]int64{"rpm": 5},
		}}},
		Rule{Match: Match{Class: "internal"}, Apply: apply("jobs", "user"), Final: true},
		Rule{Apply: apply("api", "user", "per-ip", "ip")},
	)
	for _, c := range []struct{ path, class, want string }{
		{"/health/live", "", "exempt"},
		{"/upload", "", "api=u per-ip=192.0.2.1"}, // the first of the two that apply "api"
		{"/other", "", "api=u per-ip=192.0.2.1"},
		{"/other", "internal", "jobs=u"},
		{"/upload", "internal", "api=u jobs=u"},
	} {
		a := &Attributes{Path: c.path, Class: c.class, User: "u", IP: netip.MustParseAddr("192.0.2.1")}
		if got := counted(t, s, a); got != c.want {
			t.Errorf("%s %s: got %q, want %q", c.path, c.class, got, c.want)
		}
		var m Matches
		if err := s.Match(a, time.Now(), &m); err != nil {
			t.Fatal(err)
		}
		if strict := c.path == "/upload"; strict != (len(m.Applied) > 0 && m.Applied[0].Apply.Amounts["rpm"] == 5) {
			t.Errorf("%s: the upload's own amounts are used: not %v", c.path, strict)
		}
	}
}

// TestRulesOfClassesAndRoutes: other limits for privileged keys and internal jobs, and for single
// routes.
// req: E3.
func TestRulesOfClassesAndRoutes(t *testing.T) {
	t.Parallel()
	s := compile(t,
		Rule{Match: Match{Class: "internal"}, Exempt: true},
		Rule{Match: Match{Route: "POST /v1/reports"}, Apply: apply("reports", `header("X-Api-Key")`)},
		Rule{Match: Match{Class: "privileged"}, Apply: apply("privileged", `header("X-Api-Key")`), Final: true},
		Rule{Apply: apply("default", `header("X-Api-Key")`)},
	)
	for _, c := range []struct{ class, route, want string }{
		{"internal", "POST /v1/reports", "exempt"},
		{"privileged", "GET /v1/items", "privileged=k"},
		{"privileged", "POST /v1/reports", "reports=k privileged=k"},
		{"default", "GET /v1/items", "default=k"},
		{"", "", "default=k"},
	} {
		a := &Attributes{Class: c.class, Route: c.route, Headers: http.Header{"X-Api-Key": {"k"}}}
		if got := counted(t, s, a); got != c.want {
			t.Errorf("class %q, route %q: got %q, want %q", c.class, c.route, got, c.want)
		}
	}
}

func TestShadowsAndEnforcedDoNotHideEachOther(t *testing.T) {
	t.Parallel()
	s := compile(t,
		Rule{Name: "tried", Apply: apply("p", "user"), Shadow: true, Final: true},
		Rule{Name: "another", Apply: apply("q", "user"), Shadow: true},
		Rule{Name: "real", Apply: []Apply{{Policy: "p", Key: "ip"}, {Policy: "r", Key: "ip", Shadow: true}}},
	)
	if got, want := counted(t, s, &Attributes{User: "u", IP: netip.MustParseAddr("192.0.2.1")}),
		"~p=u p=192.0.2.1"; got != want {
		t.Errorf("got %q, want %q: a final shadow ends the shadows after it, and nothing else", got, want)
	}
}

func TestPathsCannotBeWrittenAroundRules(t *testing.T) {
	t.Parallel()
	s := compile(t,
		Rule{Match: Match{Path: "/health/*"}, Exempt: true},
		Rule{Match: Match{Path: "/v1/{kind}/upload"}, Apply: apply("upload", "path")},
		Rule{Apply: apply("other", "path")},
	)
	for path, want := range map[string]string{
		"/health/../v1/a/upload": "upload=/v1/a/upload other=/v1/a/upload",
		"//v1//a/./upload":       "upload=/v1/a/upload other=/v1/a/upload",
		"/v1/a/upload/":          "other=/v1/a/upload/",
		"/v1//upload":            "other=/v1/upload",
		"/health/":               "exempt",
		"/health":                "other=/health",
		"/health/..":             "other=/",
		"/.well-known/x":         "other=/.well-known/x",
		"":                       "other=",
		"*":                      "other=*",
	} {
		if got := counted(t, s, &Attributes{Path: path}); got != want {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	s := compile(t,
		Rule{Match: Match{Host: "API.example.com"}, Apply: apply("exact", "host")},
		Rule{Match: Match{Host: "*.example.com"}, Apply: apply("below", "host")},
		Rule{Match: Match{Host: "[2001:db8::1]"}, Apply: apply("six", "host")},
	)
	for host, want := range map[string]string{
		"api.Example.com:8443": "exact=api.example.com below=api.example.com",
		"api.example.com.":     "exact=api.example.com below=api.example.com",
		"example.com":          "", "www.example.com": "below=www.example.com", "[2001:db8::1]:80": "six=[2001:db8::1]",
		"[2001:db8::1]": "six=[2001:db8::1]",
		"":              "", ":": "", "[": "", "2001:db8::1": "",
	} {
		if got := counted(t, s, &Attributes{Host: host}); got != want {
			t.Errorf("%q: got %q, want %q", host, got, want)
		}
	}
}

// TestNetworks: an IPv4 address is one however it is written.
func TestNetworks(t *testing.T) {
	t.Parallel()
	nets := func(list ...string) (p []netip.Prefix) {
		for _, n := range list {
			p = append(p, netip.MustParsePrefix(n))
		}
		return p
	}
	s := compile(t,
		Rule{Match: Match{IPs: nets("10.0.0.0/8", "2001:db8::/32")}, Apply: apply("office", "ip")},
		Rule{Match: Match{IPs: nets("::ffff:10.1.0.0/112")}, Apply: apply("lab", "address")},
		Rule{Match: Match{IPs: nets("0.0.0.0/0")}, Apply: apply("four", `"all"`)},
	)
	for ip, want := range map[string]string{
		"10.1.2.3":            "office=10.1.2.3 lab=10.1.2.3 four=all",
		"::ffff:10.1.2.3":     "office=10.1.2.3 lab=10.1.2.3 four=all",
		"10.2.0.1":            "office=10.2.0.1 four=all",
		"2001:db8:0:5::1%eth": "office=2001:db8:0:5::/64",
		"2001:db9::1":         "",
	} {
		if got := counted(t, s, &Attributes{IP: netip.MustParseAddr(ip)}); got != want {
			t.Errorf("%s: got %q, want %q", ip, got, want)
		}
	}
	if got := counted(t, s, &Attributes{}); got != "" {
		t.Errorf("no address: got %q", got)
	}
}

// TestMissingAttributesAreCountedTogether: who lacks what a key is made of shares one bucket with
// all who lack it, and is never free.
func TestMissingAttributesAreCountedTogether(t *testing.T) {
	t.Parallel()
	s := compile(t, Rule{Apply: apply("a", "ip", "b", "user", "c", `header("X-Api-Key")`, "d", `attr("team")`, "e",
		"join(user, path)", "f", "trim(user)", "g", "address")})
	if got, want := counted(t, s, &Attributes{}), "a= b= c= d= e=| f= g="; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFailuresOfExpressionsShowNoValues(t *testing.T) {
	t.Parallel()
	const secret = "sk-very-secret"
	for _, r := range []Rule{
		{Name: "r", When: `int(header("X-Api-Key")) > 3`, Apply: apply("p", "ip")},
		{Name: "r", Apply: apply("p", `string(int(header("X-Api-Key")))`)},
		{Name: "r", Tenant: `split(header("X-Api-Key"), "-")[7]`, Apply: apply("p", "ip")},
	} {
		var m Matches
		err := compile(t, r).Match(&Attributes{Headers: http.Header{"X-Api-Key": {secret}}}, time.Now(), &m)
		var e *Error
		if !errors.As(err, &e) || e.Rule != 0 || e.Name != "r" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: error %v", r, err)
		}
		if len(m.Applied) != 0 || m.Matched {
			t.Errorf("%+v: something is applied after an error: %+v", r, m.Applied)
		}
	}
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	office := &Schedule{
		Days: []time.Weekday{time.Monday, time.Friday}, From: 9 * time.Hour,
		To: 17*time.Hour + 30*time.Minute, Zone: "Europe/Berlin",
	}
	night := &Schedule{
		Days: []time.Weekday{time.Friday}, From: 22 * time.Hour, To: 6 * time.Hour,
		Zone: "Europe/Berlin",
	}
	evening := &Schedule{From: 18 * time.Hour}
	switched := &Schedule{From: 2 * time.Hour, To: 3 * time.Hour, Zone: "Europe/Berlin"}
	for _, c := range []struct {
		schedule *Schedule
		at       string
		want     bool
	}{
		{office, "2026-11-20T08:00:00Z", true}, // Friday, 09:00 in Berlin
		{office, "2026-11-20T07:59:59Z", false},
		{office, "2026-11-20T16:29:59Z", true},
		{office, "2026-11-20T16:30:00Z", false}, // half-open
		{office, "2026-11-21T10:00:00Z", false}, // Saturday
		{office, "2026-07-03T07:00:00Z", true},  // Friday, 09:00 in summer
		{night, "2026-11-20T21:00:00Z", true},   // Friday, 22:00
		{night, "2026-11-21T04:59:59Z", true},   // Saturday morning still belongs to Friday's night
		{night, "2026-11-21T05:00:00Z", false},
		{night, "2026-11-21T21:00:00Z", false}, // Saturday night is another
		{night, "2026-11-20T04:00:00Z", false}, // and so is Thursday's
		{evening, "2026-11-20T17:59:00Z", false},
		{evening, "2026-11-20T23:59:59Z", true}, // until midnight
		{evening, "2026-11-21T00:00:00Z", false},
		{switched, "2026-10-25T00:00:00Z", true}, // 02:00, for the first time
		{switched, "2026-10-25T01:30:00Z", true}, // 02:30, again
		{switched, "2026-10-25T02:00:00Z", false},
		{switched, "2026-03-29T01:00:00Z", false}, // 03:00: there was no 02:00
		{&Schedule{}, "2026-03-29T01:00:00Z", true},
	} {
		s := compile(t, Rule{Schedule: c.schedule, Apply: apply("p", `"x"`)})
		if got := countedAt(t, s, &Attributes{}, at(c.at)) != ""; got != c.want || !s.Timed() {
			t.Errorf("%+v at %s: got %v, want %v", *c.schedule, c.at, got, c.want)
		}
	}
}

func TestTimed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule Rule
		want bool
	}{
		{Rule{When: `user == "x"`, Apply: apply("p", "ip")}, false},
		{Rule{When: `user == "x" or hour > 3`, Apply: apply("p", "ip")}, true},
		{Rule{Apply: apply("p", `join(ip, weekday)`)}, true},
		{Rule{Tenant: `weekday`, Apply: apply("p", `ip`)}, true},
	} {
		if got := compile(t, c.rule).Timed(); got != c.want {
			t.Errorf("%+v: got %v, want %v", c.rule, got, c.want)
		}
	}
}
