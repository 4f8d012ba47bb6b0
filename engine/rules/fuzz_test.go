package rules

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

// script makes rules and requests of bytes.
type script struct{ data []byte }

func (s *script) byte() int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b)
}

// text takes one of the list, or, seldom, raw bytes.
func (s *script) text(list ...string) string {
	b := s.byte()
	if b >= 250 {
		n := min(len(s.data), s.byte()%12)
		raw := string(s.data[:min(n, len(s.data))])
		s.data = s.data[len(raw):]
		return raw
	}
	return list[b%len(list)]
}

var (
	somePaths = []string{
		"/", "/a", "/a/", "/a/b", "/a/b/c", "/a/x/c", "/v1/items/17", "/v1/items", "/v1//items", "/a/../v1/items",
		"/a/b/..", "/a/.", "/.well-known/x", "", "*",
		"a/b", "/a/b/c/d", "//", "/x/b/c",
	}
	somePatterns = []string{
		"", "", "", "/", "/a", "/a/*", "/a*", "/a/b", "/a/{id}", "/{x}/b", "/{x}/{y}/c", "/a/{id}/*", "/v1/items/{id}",
		"/v1/*", "*", "/a/{id", "/a/*/c", "x", "//", "/*",
	}
	someValues = []string{
		"", "", "", "x", "xy", "x*", "*", "abc", "ab*", "*b", "*.example.com", "api.example.com",
		"API.example.com", "x*y",
	}
	someHosts = []string{
		"", "api.example.com", "API.Example.com:8080", "example.com", "[2001:db8::1]:443", "[::1]",
		"x", "x.", ":", "[", "::1",
	}
	someIPs = []string{
		"", "192.0.2.1", "192.0.2.200", "10.1.2.3", "::ffff:10.1.2.3", "2001:db8::1",
		"2001:db8:0:1::5", "fe80::1%eth0", "::1",
	}
	someNets = []string{
		"", "192.0.2.0/24", "192.0.2.128/25", "10.0.0.0/8", "0.0.0.0/0", "::/0", "2001:db8::/32",
		"2001:db8::/64", "::ffff:10.0.0.0/104", "::ffff:0:0/90", "10.1.2.3/32", "fe80::/10",
	}
	someWhens = []string{
		"", "", "", "", `path startsWith "/a"`, `method == "POST" && user != ""`, `not (class in ["x", "abc"])`,
		`hour in 9..17`, `hour >= 9 and hour < 17`,
		`header("X-A") matches "^x"`, `attr("team") == "x" || inside("10.0.0.0/8", "2001:db8::/32")`,
		`weekday == "sunday"`, `int(user) > 3`, `len(path) > 3`,
		`any(split(path, "/"), # == "b")`, `ip == address`, `user`, `lower(user) == "x"`, `1 +`,
		`user in ["x"] ? true : false`, `host endsWith ".com" == true`,
	}
	someKeys = []string{
		"ip", "user", "path", `"global"`, `header("x-a")`, `attr("team")`, "join(ip, path)", "join(user, path, host)",
		"address", "class + \"x\"", "user + path",
		`user != "" ? join("u", user) : join("ip", ip)`, `trim(user)`, "", "hour", `string(int(user))`,
		`join(join(user, path), ip)`, `route`, "join()", "method",
		`hash(user)`, `join("key", hash(header("x-a")))`, `join(hash(join(user, path)), "x")`, `hash(trim(user))`,
		`hash()`, `hash(hash(header("x-b")))`,
	}
	somePolicies = []string{"p", "q", "r", "s", "unknown", ""}
)

func (s *script) rule(i int) Rule {
	r := Rule{Name: fmt.Sprint("r", i), When: s.text(someWhens...)}
	r.Match = Match{
		Path: s.text(somePatterns...), Host: s.text(someValues...), Route: s.text(someValues...),
		User: s.text(someValues...), Class: s.text(someValues...),
	}
	bits := s.byte()
	if bits&1 != 0 {
		r.Match.Methods = []string{s.text("GET", "post", "PUT", "*"), s.text("GET", "PATCH", "")}
	}
	if bits&2 != 0 {
		r.Match.Headers = map[string]string{
			s.text("X-A", "x-a", "X-B"): s.text(someValues...),
			"X-C":                       s.text(someValues...),
		}
	}
	if bits&4 != 0 {
		r.Match.Attrs = map[string]string{s.text("team", "plan", ""): s.text(someValues...)}
	}
	if bits&8 != 0 {
		for range s.byte()%3 + 1 {
			p, _ := netip.ParsePrefix(s.text(someNets...))
			r.Match.IPs = append(r.Match.IPs, p)
		}
	}
	if bits&16 != 0 {
		r.Schedule = &Schedule{
			Zone: s.text("", "Europe/Berlin", "America/St_Johns", "Nowhere"),
			From: time.Duration(s.byte()%26) * time.Hour, To: time.Duration(s.byte()%26) * time.Hour,
		}
		for range s.byte() % 3 {
			r.Schedule.Days = append(r.Schedule.Days, time.Weekday(s.byte()%8))
		}
	}
	if bits&32 != 0 {
		r.Tenant = s.text(someKeys...)
	}
	r.Exempt, r.Final, r.Shadow = s.byte()%16 == 1, s.byte()%8 == 1, s.byte()%4 == 1
	for range s.byte() % 4 {
		r.Apply = append(r.Apply, Apply{
			Policy: s.text(somePolicies...), Key: s.text(someKeys...),
			Shadow: s.byte()%4 == 1,
		})
	}
	return r
}

func (s *script) attributes() *Attributes {
	ip, _ := netip.ParseAddr(s.text(someIPs...))
	a := &Attributes{
		Method: s.text("GET", "POST", "post", "", "PATCH"), Path: s.text(somePaths...), Host: s.text(someHosts...),
		Route: s.text(someValues...), IP: ip,
		User: s.text("", "x", "xy", "7", "2", "a|b", "a%7Cb", "ABC"), Class: s.text(someValues...),
	}
	if s.byte()%2 == 1 {
		a.Headers = http.Header{"X-A": {s.text(someValues...), "second"}, "X-B": {}, "X-C": {s.text(someValues...)}}
	}
	if s.byte()%2 == 1 {
		a.Extra = map[string]string{"team": s.text(someValues...), "plan": s.text(someValues...)}
	}
	a.Tenant = s.text("", "", "t", "x")
	return a
}

// agree compares a set with the model on one request.
func agree(s *Set, list []Rule, a *Attributes, now time.Time, m *Matches) error {
	err := s.Match(a, now, m)
	applied, exempt, matched, failed := model{list}.match(a, now)
	if (err != nil) != failed {
		return fmt.Errorf("the model fails: %v, the set: %w", failed, err)
	}
	same := slices.EqualFunc(m.Applied, applied, func(x, y Applied) bool {
		return x.Rule == y.Rule && x.Index == y.Index && x.Tenant == y.Tenant && x.Key == y.Key &&
			x.Shadow == y.Shadow && x.Apply.Policy == y.Apply.Policy
	})
	if !same || m.Exempt != exempt || m.Matched != matched {
		return fmt.Errorf("got %+v exempt %v matched %v, the model %+v %v %v", m.Applied, m.Exempt, m.Matched, applied,
			exempt, matched)
	}
	return nil
}

// usable returns the rules without a mistake.
func usable(list []Rule, err error) (good []Rule) {
	bad := map[int]bool{}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if mistake, ok := errors.AsType[*Error](e); ok {
				bad[mistake.Rule] = true
			}
		}
	}
	for i, r := range list {
		if !bad[i] {
			good = append(good, r)
		}
	}
	return good
}

// FuzzRules compiles any rules and matches any request: nothing panics, and the index finds what
// the obvious model finds.
func FuzzRules(f *testing.F) {
	for i := range 40 {
		data := make([]byte, 600)
		for k := range data {
			data[k] = byte(k*k*7 + k*i*13 + i*31)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &script{data}
		list := make([]Rule, s.byte()%8)
		for i := range list {
			list[i] = s.rule(i)
		}
		set, err := Compile(list, nil)
		if err != nil {
			_ = err.Error()
			list = usable(list, err)
			if set, err = Compile(list, nil); err != nil {
				t.Fatalf("of the rest: %v", err)
			}
		}
		var m Matches
		now := time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)
		for range 4 {
			a := s.attributes()
			at := now.Add(time.Duration(s.byte()) * 17 * time.Minute)
			if err := agree(set, list, a, at, &m); err != nil {
				t.Fatalf("%+v at %v: %v\nrules %+v", a, at, err, list)
			}
		}
	})
}

// FuzzExpr compiles any expression: nothing panics, and what is run as Go gives what the language's
// own machine gives.
func FuzzExpr(f *testing.F) {
	for _, w := range slices.Concat(someWhens, someKeys) {
		f.Add(w, "x", "/a/b", "v")
	}
	f.Add(`user matches "a.*b" and not inside("::1", "192.0.2.7/32")`, "acb", "/", "")
	f.Add(`header("X-A") != user ? join(user, "|") : weekday`, "é", "/%", "|")
	f.Add(`hour in [1, 2] or hour in 3..24 and 1 < 2`, "", "", "")
	f.Fuzz(func(t *testing.T, source, user, p, header string) {
		a := &Attributes{
			Method: "GET", Path: p, User: user, Headers: http.Header{"X-A": {header}},
			Extra: map[string]string{"team": user}, IP: netip.MustParseAddr("192.0.2.7"),
		}
		now := time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
		m := &Matches{}
		m.request.set(a, now, newTexts())
		if x, err := compileCondition(source); err == nil {
			got, err := x.value(m)
			want, failed := modelValue(source, reflect.Bool, a, now)
			if (err != nil) != (failed != nil) || err == nil && got != want {
				t.Errorf("%q: got %v, %v; the machine says %v, %v", source, got, err, want, failed)
			}
		}
		if x, err := compileText(source); err == nil {
			got, err := x.value(m)
			want, failed := modelValue(source, reflect.String, a, now)
			if (err != nil) != (failed != nil) || err == nil && got != want {
				t.Errorf("%q: got %q, %v; the machine says %q, %v", source, got, err, want, failed)
			}
		}
	})
}
