package llm

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// calls finds the calls that count by their paths.
type calls interface {
	// route returns the operation and, where the path has it, the model.
	route(path string) (op Operation, model string, stream bool)
	// withModel replaces the model in a path that has one. path has no query.
	withModel(path, model string) (string, bool)
	// words are in the paths of calls. They have no capitals.
	words() []string
}

// pathEnds are calls that paths name at their end, in any capitals.
type pathEnds struct {
	list   []pathEnd
	before []string // precede the model, which may have slashes, in paths that have it
}

type pathEnd struct {
	end string
	op  Operation
}

func (e *pathEnds) route(path string) (op Operation, model string, stream bool) {
	for _, r := range e.list {
		if endsWith(path, r.end) {
			for _, before := range e.before {
				if _, model, ok := strings.Cut(path[:len(path)-len(r.end)], before); ok {
					return r.op, unescape(model), false
				}
			}
			return r.op, "", false
		}
	}
	return OpOther, "", false
}

func (e *pathEnds) withModel(path, model string) (string, bool) {
	plain := strings.TrimRight(path, "/")
	for _, r := range e.list {
		if !endsWith(plain, r.end) {
			continue
		}
		at := len(plain) - len(r.end)
		for _, p := range e.before {
			if before, _, ok := strings.Cut(plain[:at], p); ok {
				return before + p + model + path[at:], true
			}
		}
		break
	}
	return path, false
}

func (e *pathEnds) words() (list []string) {
	for _, r := range e.list {
		list = append(list, strings.ToLower(r.end))
	}
	return list
}

// ends reports whether a path ends as one of a call does.
func (e *pathEnds) ends(path string) bool {
	return slices.ContainsFunc(e.list, func(r pathEnd) bool { return strings.HasSuffix(path, r.end) })
}

// forms are the paths of a provider's documentation. A {} is one segment, or its part, without a
// colon; a {:} may have one.
type forms struct{ calls, lists []string }

// behind puts each of the prefixes in front of each path.
func (f forms) behind(prefixes ...string) forms {
	each := func(ends []string) (all []string) {
		for _, prefix := range prefixes {
			for _, end := range ends {
				all = append(all, prefix+end)
			}
		}
		return all
	}
	return forms{each(f.calls), each(f.lists)}
}

// Documented reports whether a request is a call that Parse understands, or lists models, and has
// exactly the path of the provider's documentation: nothing in front of it, behind it or in other
// capitals. path is decoded, and without the query. A server that takes requests of callers whom it
// does not trust refuses all others: what Parse does not know, and what it only knows by the end of
// its path, may be another call to the provider.
func (p *Profile) Documented(method, path string) bool {
	f := p.provider.paths
	list := f.calls
	switch method {
	case http.MethodPost:
	case http.MethodGet, http.MethodHead:
		list = f.lists
	default:
		return false
	}
	if slices.Contains(list, path) && !strings.Contains(path, "{") { // most are
		return true
	}
	return slices.ContainsFunc(list, func(form string) bool { return sameForm(form, path) })
}

// sameForm reports whether a path has a form.
func sameForm(form, path string) bool {
	for {
		var want, got string
		var more, also bool
		want, form, more = strings.Cut(form, "/")
		got, path, also = strings.Cut(path, "/")
		if more != also {
			return false
		}
		if end, ok := strings.CutPrefix(want, "{:}"); ok {
			if got == "" || end != "" {
				return false
			}
		} else if end, ok := strings.CutPrefix(want, "{}"); ok {
			name, fits := strings.CutSuffix(got, end)
			if !fits || name == "" || strings.Contains(name, ":") {
				return false
			}
		} else if want != got {
			return false
		}
		if !more {
			return true
		}
	}
}

// pathChars may be in a plain path. Programs agree on what these mean.
const pathChars = modelChars + "~+=,"

// PlainPath reports whether a decoded path has no other characters than letters, digits and
// -._~:@+=,/ and no empty segment at its end or within it.
func PlainPath(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.Contains(path, "//") &&
		!strings.ContainsFunc(path, func(r rune) bool { return !strings.ContainsRune(pathChars, r) })
}

// CheckOther returns why a pattern cannot stand for paths that are passed on though no quota counts
// them: it is no plain path, exact or with a "*" at its end, or it contains that of a call which is
// counted, or lists models.
func (p *Profile) CheckOther(pattern string) error {
	switch path := strings.TrimSuffix(pattern, "*"); {
	case !PlainPath(path):
		return fmt.Errorf("%q is not a path such as /v1/files or /v1/files/*", pattern)
	case p.HasCall(path):
		return fmt.Errorf("%q contains the path of a call that is counted, "+
			"and no such path is passed on as another call", pattern)
	case p.Documented(http.MethodGet, pattern):
		return fmt.Errorf("%q lists models, which is passed on anyway", pattern)
	}
	return nil
}

// callWords are in the paths of calls, of any provider: many servers have several protocols.
var callWords = all(func(v *provider) []string { return v.calls.words() })

// HasCall reports whether a path contains that of a call which a quota counts, in any capitals and
// with anything in front of it and behind it. path is decoded.
func (p *Profile) HasCall(path string) bool {
	path = strings.ToLower(path)
	has := func(word string) bool { return strings.Contains(path, word) }
	return slices.ContainsFunc(callWords, has) || slices.ContainsFunc(p.provider.calls.words(), has)
}

// endsWith reports whether a path is that of an operation, for a server that passes over capitals.
func endsWith(path, suffix string) bool {
	return len(path) >= len(suffix) && strings.EqualFold(path[len(path)-len(suffix):], suffix)
}

func unescape(s string) string {
	if u, err := url.PathUnescape(s); err == nil {
		s = u
	}
	return s[:min(len(s), maxModel)]
}
