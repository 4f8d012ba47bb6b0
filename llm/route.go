package llm

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// route tells the operation and, where the path has it, the model.
func (p *Profile) route(path string) (op Operation, model string, stream bool) {
	path = strings.TrimRight(path, "/") // many servers pass over it
	switch p.wire {
	case wireOpenAI:
		return routeOpenAI(path)
	case wireAnthropic:
		switch {
		case endsWith(path, "/messages"):
			return OpMessages, "", false
		case endsWith(path, "/messages/count_tokens"):
			return OpCountTokens, "", false
		}
	case wireGemini:
		return routeGemini(path)
	case wireGeneric:
		for _, suffix := range p.generic.Paths {
			if endsWith(path, strings.TrimRight(suffix, "/")) {
				return OpGeneric, "", false
			}
		}
	}
	return OpOther, "", false
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

var (
	openAIForms = forms{
		calls: []string{
			"/chat/completions", "/completions", "/responses", "/embeddings",
			"/deployments/{}/chat/completions", "/deployments/{}/completions", "/deployments/{}/embeddings", // Azure
		},
		lists: []string{"/models", "/models/{:}"},
	}.behind("", "/v1", "/openai", "/openai/v1")
	anthropicForms = forms{
		calls: []string{"/messages", "/messages/count_tokens"},
		lists: []string{"/models", "/models/{:}"},
	}.behind("", "/v1")
	geminiForms = forms{
		calls: []string{
			"/models/{}:generateContent", "/models/{}:streamGenerateContent", "/models/{}:countTokens",
			"/models/{}:embedContent", "/models/{}:batchEmbedContents",
		},
		lists: []string{"/models", "/models/{}"},
	}.behind(
		"", "/v1beta", "/v1", "/v1alpha",
		"/v1/projects/{}/locations/{}/publishers/{}", // Vertex AI
		"/v1beta1/projects/{}/locations/{}/publishers/{}",
	)
	genericLists = []string{"/models", "/models/{:}"}
)

// Documented reports whether a request is a call that Parse understands, or lists models, and has
// exactly the path of the provider's documentation: nothing in front of it, behind it or in other
// capitals. path is decoded, and without the query. A server that takes requests of callers whom it
// does not trust refuses all others: what Parse does not know, and what it only knows by the end of
// its path, may be another call to the provider.
func (p *Profile) Documented(method, path string) bool {
	var f forms
	switch p.wire {
	case wireOpenAI:
		f = openAIForms
	case wireAnthropic:
		f = anthropicForms
	case wireGemini:
		f = geminiForms
	case wireGeneric:
		f = forms{p.generic.Paths, genericLists}
	}
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
var callWords = []string{
	"/completions", "/responses", "/embeddings", "/messages", "generatecontent", "counttokens", "embedcontent",
}

// HasCall reports whether a path contains that of a call which a quota counts, in any capitals and
// with anything in front of it and behind it. path is decoded.
func (p *Profile) HasCall(path string) bool {
	path = strings.ToLower(path)
	has := func(word string) bool { return strings.Contains(path, word) }
	if slices.ContainsFunc(callWords, has) {
		return true
	}
	return p.wire == wireGeneric && slices.ContainsFunc(p.generic.Paths, func(call string) bool {
		return has(strings.ToLower(strings.TrimRight(call, "/")))
	})
}

// endsWith reports whether a path is that of an operation, for a server that passes over capitals.
func endsWith(path, suffix string) bool {
	return len(path) >= len(suffix) && strings.EqualFold(path[len(path)-len(suffix):], suffix)
}

// openAIPaths are the ends of the paths of OpenAI's operations.
var openAIPaths = []struct {
	suffix string
	op     Operation
}{
	{"/chat/completions", OpChat},
	{"/completions", OpCompletions},
	{"/responses", OpResponses},
	{"/embeddings", OpEmbeddings},
}

func routeOpenAI(path string) (op Operation, model string, stream bool) {
	for _, r := range openAIPaths {
		if endsWith(path, r.suffix) {
			return r.op, modelOfPath(path[:len(path)-len(r.suffix)]), false
		}
	}
	return OpOther, "", false
}

// modelPaths precede the model in paths: /openai/deployments/{deployment}/chat/completions of
// Azure, and /v1/engines/{model}/completions of OpenAI's first API, which others have as well.
var modelPaths = []string{"/deployments/", "/engines/"}

func modelOfPath(path string) string {
	for _, p := range modelPaths {
		if _, model, ok := strings.Cut(path, p); ok {
			return unescape(model)
		}
	}
	return ""
}

func routeGemini(path string) (op Operation, model string, stream bool) {
	_, rest, ok := strings.Cut(path, "/models/")
	if !ok {
		return OpOther, "", false
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 0 {
		if rest = unescape(rest); strings.Contains(rest, ":") {
			return routeGemini("/models/" + rest)
		}
		return OpOther, "", false
	}
	model = unescape(rest[:i])
	switch unescape(rest[i+1:]) {
	case "generateContent":
		return OpGenerate, model, false
	case "streamGenerateContent":
		return OpStreamGenerate, model, true
	case "countTokens":
		return OpCountTokens, model, false
	case "embedContent", "batchEmbedContents":
		return OpEmbeddings, model, false
	}
	return OpOther, "", false
}

func unescape(s string) string {
	if u, err := url.PathUnescape(s); err == nil {
		s = u
	}
	return s[:min(len(s), maxModel)]
}

// withModel replaces the model in a path that has one: /models/{model}:{operation} of Gemini, and
// those of modelPaths, whose models may have slashes.
func withModel(path, model string) (string, bool) {
	end := len(path)
	if i := strings.IndexByte(path, '?'); i >= 0 {
		end = i
	}
	plain := path[:end]
	if before, rest, ok := strings.Cut(plain, "/models/"); ok {
		if i := strings.LastIndexByte(rest, ':'); i >= 0 {
			return before + "/models/" + model + rest[i:] + path[end:], true
		}
	}
	plain = strings.TrimRight(plain, "/")
	for _, r := range openAIPaths {
		if !endsWith(plain, r.suffix) {
			continue
		}
		at := len(plain) - len(r.suffix)
		for _, p := range modelPaths {
			if before, _, ok := strings.Cut(plain[:at], p); ok {
				return before + p + model + path[at:], true
			}
		}
		break
	}
	return path, false
}
