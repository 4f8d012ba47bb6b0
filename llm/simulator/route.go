package simulator

import "strings"

var dialects = map[Provider]*dialect{OpenAI: openAIDialect, Anthropic: anthropicDialect, Gemini: geminiDialect, Generic: genericDialect}

// apis are the operations with fixed paths.
var apis = map[string]*api{
	"/v1/chat/completions": {OpenAI, parseChat, answerChat, func(x *exchange) stream { return chatStream{x} }},
	"/v1/responses":        {OpenAI, parseResponses, answerResponses, func(x *exchange) stream { return newResponses(x) }},
	"/v1/embeddings":       {OpenAI, parseEmbeddings, answerEmbeddings, nil},

	"/v1/messages":              {Anthropic, parseMessages, answerMessages, func(x *exchange) stream { return messagesStream{x} }},
	"/v1/messages/count_tokens": {Anthropic, parseCount, answerCount, nil},
}

var (
	geminiAPI  = &api{Gemini, parseGemini, answerGemini, func(x *exchange) stream { return geminiWords{x} }}
	genericAPI = &api{Generic, parseGeneric, answerGeneric, func(x *exchange) stream { return genericStream{x} }}
)

// route returns the operation at a path, or nil, and the provider whose errors fit.
func route(path string) (Provider, *api) {
	if a := apis[path]; a != nil {
		return a.provider, a
	}
	if strings.HasPrefix(path, genericPrefix) {
		return Generic, genericAPI
	}
	if model, operation, ok := geminiModel(path); ok && model != "" && !strings.Contains(model, "/") {
		if operation == geminiAnswer || operation == geminiStream || operation == geminiCounting {
			return Gemini, geminiAPI
		}
		return Gemini, nil
	}
	switch {
	case strings.HasPrefix(path, "/v1beta/"), strings.HasPrefix(path, "/v1alpha/"):
		return Gemini, nil
	case strings.HasPrefix(path, "/v1/messages/"):
		return Anthropic, nil
	case strings.HasPrefix(path, "/v1/"):
		return OpenAI, nil
	}
	return "", nil
}
