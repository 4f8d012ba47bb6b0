package llm

import (
	"net/url"
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
