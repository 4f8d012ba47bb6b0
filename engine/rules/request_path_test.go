package rules_test

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/engine/rules"
)

func TestRequestPathsWithTwoMeanings(t *testing.T) {
	t.Parallel()
	for p, why := range map[string]string{
		"": "", "/": "", "/a": "", "a": "", "/a/./b": "", "/%2e/b": "", "/a/.": "", "/a//b": "", "/wiki/%5Cfrac": "",
		`/a\b`: "", "/a..b": "", "/...": "", "/a;..": "", "/%": "", "/%2": "",
		"/%zz": "", "/100%25": "", "/a%2fb": "", "/é": "", "/..a/b..": "", "/a.b;.": "", "/a?../b": "", "*": "",
		"/%2fa": "", "/%5ca": "", "/a//": "", `/a\\`: "",
		"//": "host", "//a/b": "host", `/\a/b`: "host", "///a": "host",
		"/;/login": ";", "/;login": ";", ";": ";", "/a/;x/b": ";", "/%3b/login": ";", "/%253B/login": ";", `/a\;x`: ";",
		"/a%2f;x": ";",
		"/a;x/b":  "", "/a;": "", "/a;;x": "",
		"/a#": "#", "#": "#", "/a%00": "NUL", "/a%2500": "NUL", "/a\x00b": "NUL",
		"..": "..", "/..": "..", "/a/../b": "..", "/%2e%2E/b": "..", "/.%2e": "..", "/a/..;/b": "..",
		"/%2e%2e;x/b": "..", "/..%3bx/b": "..", "/..%253bx": "..", `/a/..\b`: "..",
		"/..%5cb": "..", "/..%2fb": "..", "/%252e%252e%252f": "..", "/a%/%2e%2e": "..", "/a%25/%252e%252e": "..",
		"/a/.;x/b": "..", "/.%2fb": "..", `/.\b`: "..", `/a\.`: "..", "/%252e/b": "..",
	} {
		err := rules.CheckRequestPath(p)
		if (err != nil) != (why != "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", p, err, why)
		}
	}
}

// What is accepted below /public/ is there for every program that decodes paths up to twice, takes
// backslashes for slashes, or leaves out what follows ";".
func FuzzRequestPath(f *testing.F) {
	for _, p := range []string{
		"x", "../login", "..;/login", "%2e%2e;x/login", `..\login`, "..%5clogin", "%252e%252e/login", "..%253b/",
		"%5Cfrac", "a%25/%2e.", ".;/..", "#/../x", "x%00/", "/%2f/;/.a", ";/login",
	} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		p := "/public/" + rest
		if rules.CheckRequestPath(p) != nil {
			return
		}
		for program := range 3 * 8 {
			if got := understood(p, program/8, program&1 != 0, program&2 != 0,
				program&4 != 0); !strings.HasPrefix(got+"/", "/public/") {
				t.Errorf("%q is %q to one that decodes %d times", p, got, program/8)
			}
		}
	})
}

// understood is how a program may understand a path.
func understood(p string, decodes int, backslash, parameters, late bool) string {
	p, _, _ = strings.Cut(p, "#")
	strip := func() {
		segments := strings.Split(p, "/")
		for i := range segments {
			segments[i], _, _ = strings.Cut(segments[i], ";")
		}
		p = strings.Join(segments, "/")
	}
	if parameters && !late {
		strip()
	}
	for range decodes {
		if once, err := url.PathUnescape(p); err == nil {
			p = once
		}
	}
	if backslash {
		p = strings.ReplaceAll(p, `\`, "/")
	}
	if parameters && late {
		strip()
	}
	p, _, _ = strings.Cut(p, "\x00")
	return path.Clean(p)
}
