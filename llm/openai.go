package llm

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/pattern"
)

// openAI is OpenAI's API, and what speaks the same protocol, such as Azure.
//
// Sources: the types of openai-go v3.95; platform.openai.com/docs.
var openAI = &provider{
	name:    "openai",
	profile: openAIProfile,
	url:     "https://api.openai.com",
	bases:   []string{"/v1"},
	private: []string{"X-Ms-Spillover-Deployment"}, // Azure: another deployment, so another model, that answers
	calls:   openAICalls,
	sdkPath: openAICalls.ends,
	paths: forms{
		calls: []string{
			"/chat/completions", "/completions", "/responses", "/embeddings", "/moderations", "/images/generations",
			"/images/edits",
			"/deployments/{}/chat/completions", "/deployments/{}/completions", "/deployments/{}/embeddings", // Azure
			"/deployments/{}/images/generations", "/deployments/{}/images/edits",
		},
		lists: []string{"/models", "/models/{:}"},
	}.behind("", "/v1", "/openai", "/openai/v1"),
	uncounted:   openAIUncounted,
	storedCalls: openAIStored,
	otherBases:  []string{"/openai/v1", "/openai", "/v1"},
	known:       openAIKnown,
	request:     openAIRequest,
	bodies:      map[Operation]func(*known) *node{OpImages: openAIImageRequest, OpModerations: openAIModeration},
	// openai-go v3.95, ModerationNewParams
	implied: map[Operation]string{OpModerations: "omni-moderation-latest"},
	atStart: openAIAtStart,
	cached:  openAICached,

	// Priority processing costs about twice as much, flex half of the usual price
	// (openai.com/api-priority-processing, platform.openai.com/docs/guides/flex-processing).
	plain: map[role][]string{
		reqTier: {"auto", "default", "flex"}, reqTTL: {"30m"}, reqModality: {"text"},
	},
	// Of OpenAI, of Perplexity (docs.perplexity.ai, pricing) and of Groq (console.groq.com/docs,
	// compound).
	searches: []string{"-search-preview", "-search-api", "sonar", "compound"},
	dearer: []string{ // openai.com/api/pricing
		"gpt-4o-2024-05-13", "chatgpt-4o", "gpt-3.5-turbo-16k", "gpt-3.5-turbo-instruct", "gpt-3.5-turbo-0301",
		"gpt-3.5-turbo-0613", "gpt-3.5-turbo-1106",
	},
	free:     []string{"omni-moderation", "text-moderation"}, // developers.openai.com/api/docs, moderation
	perImage: []string{"dall-e-"},
	images:   openAIImages,

	response: openAIResponse,
	lastEvents: []string{
		"response.completed", "response.incomplete", "response.failed",
		"image_generation.completed", "image_edit.completed",
	},
	streamed: streamedLast,
	askUsage: true,

	limits: openAILimits(),
	errorStatus: map[string]int{
		"rate_limit_exceeded":     http.StatusTooManyRequests,
		"insufficient_quota":      http.StatusTooManyRequests,
		"too_many_requests":       http.StatusTooManyRequests,
		"tokens":                  http.StatusTooManyRequests,
		"requests":                http.StatusTooManyRequests,
		"overloaded":              http.StatusServiceUnavailable,
		"slow_down":               http.StatusServiceUnavailable,
		"engine_overloaded":       http.StatusServiceUnavailable,
		"invalid_request_error":   http.StatusBadRequest,
		"context_length_exceeded": http.StatusBadRequest,
		"invalid_prompt":          http.StatusBadRequest,
	},
	refusal: func(p *Profile, r *Refusal, e *errorBody, h http.Header, now time.Time) {
		// Azure bills an answer that was filtered (learn.microsoft.com/azure, "Content filtering").
		r.Billed = r.Billed || e.code() == "content_filter"
		openAIRefusal(p, r, e, h, now)
	},
	// A 429 that names no limit means the capacity of the flex tier (platform.openai.com/docs, flex
	// processing).
	otherPool: func(c *Call, r *Refusal) bool { return c.flex && r.Unit == "" && r.Limit < 0 },
	errors: providerErrors{
		RateLimited:  {http.StatusTooManyRequests, "requests", "rate_limit_exceeded"},
		Unauthorized: {http.StatusUnauthorized, "invalid_request_error", "invalid_api_key"},
		BadRequest:   {http.StatusBadRequest, "invalid_request_error", ""},
		Overloaded:   {http.StatusServiceUnavailable, "server_error", "overloaded"},
		ServerError:  {http.StatusInternalServerError, "server_error", "server_error"},
		TimedOut:     {http.StatusGatewayTimeout, "server_error", "timeout"},
		NotFound:     {http.StatusNotFound, "invalid_request_error", "model_not_found"},
		NoSuchPath:   {http.StatusNotFound, "invalid_request_error", "unknown_url"},
		Forbidden:    {http.StatusForbidden, "invalid_request_error", "permission_denied"},
		TooLarge:     {http.StatusRequestEntityTooLarge, "invalid_request_error", "request_too_large"},
		Unavailable:  {http.StatusServiceUnavailable, "server_error", "unavailable"},
		Lost:         {http.StatusBadGateway, "server_error", "upstream_lost"},
		KeyExpired:   {http.StatusUnauthorized, "invalid_request_error", codeExpired},
		KeyDisabled:  {http.StatusUnauthorized, "invalid_request_error", codeDisabled},
		NoCredit:     {http.StatusTooManyRequests, codeCredit, codeCredit},
	},
	errorBody: func(e *providerError, message string, _ time.Duration) any {
		return map[string]any{"error": map[string]any{
			"message": message, "type": e.kind, "param": nil, "code": nullable(e.code),
		}}
	},
	accountHeaders: []string{"Openai-Organization", "Openai-Project"},
	// user_ is OpenRouter's.
	account: []string{`\borg-[A-Za-z0-9]{6,}`, `\bproj_[A-Za-z0-9]{6,}`, `\buser_[A-Za-z0-9]{24,}`},
}

// OpenAI returns the profile of OpenAI's API, and of what speaks the same protocol, such as Azure.
//
// Its quotas count requests, images that are made, and tokens, input and output together, per
// organisation and project and per model family. Whether cached input counts is not documented: it
// does here.
func OpenAI() *Profile { return openAI.newProfile() }

// compatible returns a provider whose API is OpenAI's with differences, of whose models nothing is
// published that a bound could be made of: any of them may reason, has the longest context that a
// model here has, and answers as long as that. Without max_tokens a call reserves all of it.
func compatible(name, url string, context int64, change func(*provider)) *provider {
	return openAI.like(name, url, func() *Profile {
		p := openAIProfile()
		p.Families, p.OwnerHeaders, p.Most = nil, nil, nil
		p.Units = []string{drawgate.UnitRequests, UnitTokens}
		p.Correction = 1.1 // the tokenizer was not measured
		p.Default = Family{
			Context: context, MaxOutput: context, CacheReads: true, Images: context, Audio: context, Video: context,
			Files: context, Weights: O200k(),
		}
		return p
	}, func(v *provider) {
		v.plain = map[role][]string{reqTier: {"auto", "default"}}
		change(v)
	})
}

// serves says which calls a provider has, by the ends of their paths. Before these may stand what
// the paths of its SDKs begin with.
func (v *provider) serves(ends ...pathEnd) {
	v.calls = &pathEnds{list: ends}
	f := forms{lists: []string{"/models", "/models/{:}"}}
	for _, end := range ends {
		f.calls = append(f.calls, end.end)
	}
	v.paths = f.behind(append([]string{""}, v.bases...)...)
}

// onlyMaxTokens is a request in which max_completion_tokens is not known: the provider may pass
// over it, and answer at any length.
func onlyMaxTokens(k *known) *node {
	root := openAIRequest(k)
	delete(root.keys, "max_completion_tokens")
	return root
}

// Ends of the paths of calls.
var (
	endChat        = pathEnd{"/chat/completions", OpChat}
	endCompletions = pathEnd{"/completions", OpCompletions}
	endResponses   = pathEnd{"/responses", OpResponses}
	endEmbeddings  = pathEnd{"/embeddings", OpEmbeddings}
)

func openAIProfile() *Profile {
	return &Profile{
		Units: []string{drawgate.UnitRequests, UnitTokens, UnitImages, UnitBytes},
		Families: []Family{
			// Contexts and largest outputs as OpenAI's pages of models, and those who cite them,
			// gave them in 2026; where numbers differed, the larger. Dated versions share the
			// limits of their alias.
			{Name: "gpt-5.4", Prefixes: []string{"gpt-5.4"}, Context: 1_050_000, MaxOutput: 128_000},
			{Name: "gpt-5", Prefixes: []string{"gpt-5"}, Context: 400_000, MaxOutput: 128_000},
			{Name: "gpt-5-mini", Prefixes: []string{"gpt-5-mini"}, Context: 400_000, MaxOutput: 128_000},
			{Name: "gpt-5-nano", Prefixes: []string{"gpt-5-nano"}, Context: 400_000, MaxOutput: 128_000},
			{
				Name: "gpt-4.1", Prefixes: []string{"gpt-4.1"}, Context: 1_047_576, MaxOutput: 32_768,
				Reasons: ReasonsNever,
			},
			{
				Name: "gpt-4.1-mini", Prefixes: []string{"gpt-4.1-mini"}, Context: 1_047_576, MaxOutput: 32_768,
				Reasons: ReasonsNever,
			},
			{
				Name: "gpt-4.1-nano", Prefixes: []string{"gpt-4.1-nano"}, Context: 1_047_576, MaxOutput: 32_768,
				Reasons: ReasonsNever,
			},
			{
				Name: "gpt-4o", Prefixes: []string{"gpt-4o", "chatgpt-4o"}, Context: 128_000, MaxOutput: 16_384,
				Reasons: ReasonsNever,
			},
			{
				Name: "gpt-4o-mini", Prefixes: []string{"gpt-4o-mini"}, Context: 128_000, MaxOutput: 16_384,
				Reasons: ReasonsNever,
			},
			{
				Name: "gpt-4-turbo", Prefixes: []string{"gpt-4-turbo", "gpt-4-1106", "gpt-4-0125"}, Context: 128_000,
				MaxOutput: 4096, Weights: Cl100k(), Reasons: ReasonsNever,
			},
			{
				Name: "gpt-4-32k", Prefixes: []string{"gpt-4-32k"}, Context: 32_768, MaxOutput: 32_768,
				Weights: Cl100k(), Reasons: ReasonsNever,
			},
			{
				Name: "gpt-4", Prefixes: []string{"gpt-4"}, Context: 8192, MaxOutput: 8192, Weights: Cl100k(),
				Reasons: ReasonsNever,
			},
			{
				Name: "gpt-3.5-turbo", Prefixes: []string{"gpt-3.5"}, Context: 16_385, MaxOutput: 4096,
				Weights: Cl100k(), Reasons: ReasonsNever,
			},
			{Name: "o1", Prefixes: []string{"o1"}, Context: 200_000, MaxOutput: 100_000},
			{Name: "o3", Prefixes: []string{"o3"}, Context: 200_000, MaxOutput: 100_000},
			{Name: "o4-mini", Prefixes: []string{"o4-mini"}, Context: 200_000, MaxOutput: 100_000},
			// Models that are no versions of those whose names they begin with: they have limits
			// and prices of their own, and are much more expensive.
			{Name: "gpt-5-pro", Prefixes: []string{"gpt-5-pro"}, Context: 400_000, MaxOutput: 272_000},
			{Name: "gpt-5.1", Prefixes: []string{"gpt-5.1"}, Context: 400_000},
			{Name: "gpt-5.2", Prefixes: []string{"gpt-5.2"}, Context: 400_000},
			{Name: "gpt-5.2-pro", Prefixes: []string{"gpt-5.2-pro"}},
			{Name: "gpt-5.4-pro", Prefixes: []string{"gpt-5.4-pro"}},
			{Prefixes: []string{"gpt-5."}},
			{Name: "gpt-4.5", Prefixes: []string{"gpt-4.5"}, Reasons: ReasonsNever},
			{Name: "gpt-4o-audio", Prefixes: []string{"gpt-4o-audio"}, Reasons: ReasonsNever},
			{Name: "gpt-4o-mini-audio", Prefixes: []string{"gpt-4o-mini-audio"}, Reasons: ReasonsNever},
			{Name: "gpt-4o-search", Prefixes: []string{"gpt-4o-search"}, Reasons: ReasonsNever},
			{Name: "gpt-4o-mini-search", Prefixes: []string{"gpt-4o-mini-search"}, Reasons: ReasonsNever},
			{Name: "o1-mini", Prefixes: []string{"o1-mini"}},
			{Name: "o1-pro", Prefixes: []string{"o1-pro"}},
			{Name: "o3-mini", Prefixes: []string{"o3-mini"}},
			{Name: "o3-pro", Prefixes: []string{"o3-pro"}},
			{Name: "o3-deep-research", Prefixes: []string{"o3-deep-research"}},
			{Name: "o4-mini-deep-research", Prefixes: []string{"o4-mini-deep-research"}},
			embeddings("text-embedding-3-small", "text-embedding-3-small"),
			embeddings("text-embedding-3-large", "text-embedding-3-large"), // costs several times as much
			embeddings("text-embedding-ada-002", "text-embedding-ada-002"),
			embeddings("", "text-embedding-"),
			{Name: "omni-moderation", Prefixes: []string{"omni-moderation"}, Reasons: ReasonsNever},
			{Name: "text-moderation", Prefixes: []string{"text-moderation"}, Reasons: ReasonsNever},
			// MaxOutput is of one image.
			{Name: "gpt-image-1", Prefixes: []string{"gpt-image-1"}, MaxOutput: mostImage1, Reasons: ReasonsNever},
			{
				Name: "gpt-image-1-mini", Prefixes: []string{"gpt-image-1-mini"}, MaxOutput: mostImage1,
				Reasons: ReasonsNever,
			},
			{Name: "gpt-image-1.5", Prefixes: []string{"gpt-image-1."}, MaxOutput: mostImage2, Reasons: ReasonsNever},
			{
				Name: "gpt-image-2", Prefixes: []string{"gpt-image-2", "chatgpt-image"}, MaxOutput: mostImage2,
				Reasons: ReasonsNever,
			},
			{Name: "dall-e-2", Prefixes: []string{"dall-e-2"}, Reasons: ReasonsNever},
			{Name: "dall-e-3", Prefixes: []string{"dall-e-3"}, Reasons: ReasonsNever},
		},
		Default: Family{
			Context: 1_050_000, MaxOutput: 128_000, CacheReads: true,
			// An image is scaled to at most eight tiles of 512 pixels (2048 by 768). The most
			// expensive model counts 2833 tokens, and 5667 per tile.
			Images: 2833 + 8*5667, Audio: 1_050_000, Video: 1_050_000, Files: 1_050_000,
			Weights: O200k(),
		},
		FailedInput:   true,
		OutputAtStart: true,
		OwnerHeaders:  []string{"OpenAI-Organization", "OpenAI-Project"},
		ResetZone:     "UTC",
		CreditPause:   creditPause,
		MinutePause:   time.Minute,
		ClientMaxWait: 8 * time.Second, // openai-go v3 waits no longer, and then tries again
		Overhead: Overhead{
			// A message is framed by three special tokens, its role, and perhaps a name; the answer
			// is primed with three (github.com/openai/openai-cookbook, "How to count tokens with
			// tiktoken").
			Call: 3, CallBound: 64, Message: 3, MessageBound: 16,
			Tool: 8, ToolBound: 128, Tools: 16, ToolsBound: 1024, Search: 10_000,
			Image: 765, AudioBytes: 1600, VideoBytes: 1000, FileBytes: 50,
		},
		Correction: 1,
		Most:       openAIBound(),
		LeastRatio: 0.7, // measured: the smallest true ÷ estimate of a kind of text is 0.74
	}
}

// embeddings is a family of models of embeddings.
func embeddings(name, prefix string) Family {
	return Family{
		Name: name, Prefixes: []string{prefix}, Context: 300_000, Weights: Cl100k(), Reasons: ReasonsNever,
	}
}

// openAIBound returns weights that no text which was measured exceeds, by either of OpenAI's
// tokenizers: neither usual ones, nor words and characters that were searched for because they have
// as many tokens as possible. What can be a token for each of its bytes costs its bytes. A blank in
// front of digits or of a rare character, or a tab in front of punctuation, is a token of its own.
func openAIBound() *Weights {
	return &Weights{
		Words: 1.5, ShortLetters: 0.65, LongLetters: 0.5, Capitals: 1, RareLetters: 1, Digits: 2, Punctuation: 2,
		PunctuationOn: 1, PunctuationLong: 1, PunctuationSame: 1, Spaces: 1, SpacesOn: 1, Lines: 2, LinesOn: 1,
		Han: 3, Kana: 3, Hangul: 3, OtherWords: 1, OtherLetters: 2, OtherBytes: 1, LongBytes: 1,
	}
}

// openAIAtStart returns what OpenAI counts when a call starts: the larger of max_tokens and an
// estimate. How that is made its documentation says only in part: from the number of characters.
// Four to a token is what its help pages give. Nothing says that it is corrected later.
func openAIAtStart(c *Call) int64 {
	const charsPerToken = 4
	n := (c.Text.Runes + c.Schemas.Runes + charsPerToken - 1) / charsPerToken
	if c.MaxOutput >= 0 {
		n = max(n, c.answers(c.MaxOutput))
	}
	return n
}

// openAICached returns what chooses a cache, together with the beginning of the prompt
// (platform.openai.com/docs, prompt caching).
func openAICached(body []byte) []byte {
	var b struct {
		Key string `json:"prompt_cache_key"`
	}
	if !bytes.Contains(body, []byte("prompt_cache_key")) || json.Unmarshal(body, &b) != nil {
		return nil
	}
	return []byte(b.Key)
}

// openAICalls also has those of OpenAI's first API, which others have as well:
// /v1/engines/{model}/completions. Azure's are /openai/deployments/{deployment}/chat/completions.
var openAICalls = &pathEnds{
	list: []pathEnd{
		endChat, endCompletions, endResponses, endEmbeddings,
		{"/moderations", OpModerations},
		{"/images/generations", OpImages},
		{"/images/edits", OpImageEdits},
	},
	before: []string{"/deployments/", "/engines/"},
}

// openAIPart are the fields of parts of a response's input, in messages and in outputs of tools.
const openAIPart = "text refusal detail annotations logprobs prompt_cache_breakpoint filename"

var openAIKnown = &known{
	// From top_k on they are of servers that speak the same protocol, such as vLLM. OpenAI refuses
	// them.
	free: map[string]string{
		"request": `
			audio dimensions echo encoding_format frequency_penalty function_call include logit_bias logprobs
			max_tool_calls metadata moderation parallel_tool_calls presence_penalty prompt_cache_key
			prompt_cache_retention reasoning_effort safety_identifier seed stop
			temperature top_logprobs top_p truncation user verbosity
			top_k min_p repetition_penalty length_penalty min_tokens ignore_eos stop_token_ids skip_special_tokens
			spaces_between_special_tokens include_stop_str_in_output include_reasoning reasoning_format
			enable_thinking`,
		"images": `
			background moderation output_compression output_format response_format safety_identifier style user`,
		"moderations":          "safety_identifier user",
		"stream_options":       "include_obfuscation",
		"image_url":            "detail",
		"input_audio":          "format",
		"prompt_cache_options": "mode",
		"reasoning":            "effort summary generate_summary context enabled exclude max_tokens",
	},
	text: map[string]string{
		"request": "suffix chat_template_kwargs guided_json guided_regex guided_choice guided_grammar",
		"message": `
			role name tool_calls tool_call_id function_call refusal annotations reasoning reasoning_content prefix`,
		"part": "text refusal prompt_cache_breakpoint",
		"file": "filename",
		"item": `
			role status phase call_id name namespace caller async summary pending_safety_checks
			acknowledged_safety_checks server_label error reason execution action actions
			arguments approve code input operation outputs queries results tools`,
		"itemPart": openAIPart,
		"prompt":   "version",
	},
	parts: kinds(map[partKind]string{
		partInline: `
			- text refusal image_url input_audio file input_text output_text input_image input_file summary_text
			reasoning_text computer_screenshot`,
	}),
	items: map[string]string{
		"message":                 "content",
		"function_call":           "arguments",
		"function_call_output":    "output",
		"custom_tool_call":        "input",
		"custom_tool_call_output": "output",
		"computer_call_output":    "output",
		"local_shell_call":        "action",
		"local_shell_call_output": "output",
		"computer_call":           "action",
		"apply_patch_call":        "operation",
		"apply_patch_call_output": "status",
		"mcp_list_tools":          "tools",
		"mcp_approval_request":    "arguments",
		"mcp_approval_response":   "approve",
		"mcp_call":                "arguments",
		"compaction":              "encrypted_content",
		// What a tool of the provider has found or made is not in its item.
		"item_reference":        "",
		"web_search_call":       "",
		"file_search_call":      "",
		"code_interpreter_call": "",
		"image_generation_call": "",
	},
	tools: kinds(map[toolKind]string{
		toolClient: "function custom local_shell apply_patch computer computer_use_preview namespace",
		toolRun:    "mcp tool_search",
		toolFee: `
			web_search web_search_2025_08_26 web_search_preview web_search_preview_2025_03_11 file_search
			code_interpreter`,
	}),
}

// openAIRequest covers chat completions, completions, responses and embeddings. Their fields do not
// contradict each other.
func openAIRequest(k *known) *node {
	root := &node{role: reqRoot, rest: reqText}
	root.at("background").role = reqBackground
	root.at("service_tier").role = reqTier
	root.at("modalities").list().at("*").role = reqModality
	root.at("web_search_options").set(reqSearch)
	root.at("best_of").role = reqAnswers
	root.at("model").role = reqModel
	root.at("stream").role = reqStream
	root.at("stream_options").set(reqOptions)
	root.at("stream_options", "include_usage").role = reqUsage
	k.close(root.at("stream_options"), "stream_options")
	root.at("n").role = reqAnswers
	root.at("max_tokens").role = reqBoth
	root.at("max_completion_tokens").role = reqChatOutput
	root.at("max_output_tokens").role = reqMaxOutput

	message := root.subtree(reqText, "messages", "*")
	message.role = reqMessage
	message.at("audio").role = reqHidden // an answer's audio, by its id
	message.at("audio", "id").role = reqVoice
	part := message.at("content", "*")
	part.role = reqPart
	part.at("type").role = reqBlock
	image := part.at("image_url").set(reqImage)
	image.at("url").role = reqData
	k.close(image, "image_url")
	openAIAudio(k, part)
	file := part.at("file").set(reqFile)
	file.at("file_data").role = reqData
	file.at("file_id").role = reqFileID
	k.close(file, "file")
	k.close(part, "part")
	k.close(message, "message")

	prompt := root.subtree(reqText, "prompt") // completions: texts; responses: a stored prompt
	prompt.at("id").role = reqStored
	prompt.at("*").role = reqInput
	variables := prompt.at("variables")
	variables.role, variables.rest = reqText, reqVariable
	k.close(prompt, "prompt").scalar = true
	instructions := root.at("instructions") // only a text: a list of items may name files
	instructions.role, instructions.closed = reqText, true
	instructions.scalar = true
	root.at("prediction").role = reqPrediction
	reasoning := root.at("reasoning").set(reqSkip)
	reasoning.at("mode").role = reqMode
	k.close(reasoning, "reasoning")
	cache := root.at("prompt_cache_options").set(reqSkip)
	cache.at("ttl").role = reqTTL
	k.close(cache, "prompt_cache_options")
	root.at("previous_response_id").role = reqPrevious
	root.at("conversation").role = reqConvers
	root.at("store").role = reqStore

	// The input of responses and of embeddings: a text, or a list of items or texts.
	item := root.subtree(reqText, "input", "*")
	item.role = reqInput
	item.at("*").role = reqText // embeddings: tokens
	for _, list := range []string{"content", "output"} {
		part = item.at(list, "*")
		part.role = reqPart
		openAIItemPart(k, part)
	}
	openAIItemPart(k, item.at("output")) // a screenshot
	item.at("output").scalar = true
	item.at("id").role = reqItemID
	item.at("approval_request_id").role = reqApproval
	item.at("type").role = reqBlock
	item.at("encrypted_content").role = reqSealed
	item.at("container_id").role = reqHidden
	item.at("result").role = reqText
	k.close(item, "item").scalar = true
	item.noted = true

	tools := root.subtree(reqSchema, "tools").list()
	tool := tools.subtree(reqSchema, "*")
	tool.role = reqTool
	tool.at("type").role = reqToolType
	tool.link("tools", tools) // of a namespace
	functions := root.subtree(reqSchema, "functions").list()
	functions.subtree(reqSchema, "*").role = reqFunction
	root.subtree(reqSchema, "response_format")
	root.subtree(reqSchema, "text")
	root.subtree(reqSchema, "tool_choice")
	return k.close(root, "request")
}

func openAIItemPart(k *known, part *node) {
	part.at("type").role = reqBlock
	part.at("image_url").role = reqImage
	part.at("file_data").role = reqFile
	part.at("file_url").role = reqNamed
	part.at("file_id").role = reqFileID
	openAIAudio(k, part)
	k.close(part, "itemPart")
}

func openAIAudio(k *known, part *node) {
	audio := part.at("input_audio").set(reqAudio)
	audio.at("data").role = reqData
	k.close(audio, "input_audio")
}

func openAIResponse() *node {
	root := &node{role: resDoc}
	for _, usage := range []*node{root.at("usage"), root.at("response", "usage")} {
		for _, name := range []string{"prompt_tokens", "input_tokens"} {
			usage.at(name).role = resUsage + useInput
			details := usage.at(name + "_details")
			details.at("cached_tokens").role = resUsage + useCacheRead
			details.at("cache_write_tokens").role = resUsage + useCacheWrite
			details.at("image_tokens").role = resUsage + useImage
		}
		for _, name := range []string{"completion_tokens", "output_tokens"} {
			usage.at(name).role = resUsage + useOutput
			usage.at(name+"_details", "reasoning_tokens").role = resUsage + useReasoning
		}
		usage.at("total_tokens").role = resUsage + useTotal
	}
	choice := root.at("choices", "*")
	choice.at("finish_reason").role = resFinish
	choice.at("text").role = resText
	for _, name := range []string{"delta", "message"} {
		m := choice.at(name)
		for _, text := range []string{"content", "refusal", "reasoning", "reasoning_content"} {
			m.at(text).role = resText
		}
		m.at("function_call", "name").role = resText
		m.at("function_call", "arguments").role = resText
		m.at("audio", "transcript").role = resText
		m.at("audio", "data").role = resText
		call := m.at("tool_calls", "*")
		for _, kind := range []string{"function", "custom"} {
			for _, text := range []string{"name", "arguments", "input"} {
				call.at(kind, text).role = resText
			}
		}
	}
	// Responses: the deltas of all kinds of events, and in a document the output.
	root.at("delta").role = resText
	item := root.at("output", "*")
	openAIItem(item)
	openAIItem(root.at("item"))
	item.at("content", "*", "text").role = resText
	item.at("summary", "*", "text").role = resText
	item.at("arguments").role = resText
	item.at("input").role = resText
	item.at("name").role = resText
	root.at("item", "name").role = resText // of a tool that is called: no delta has it

	root.at("id").role = resID
	root.at("response", "id").role = resResponseID
	root.at("type").role = resType
	errorFields(root.at("error"), "type", "code")
	errorFields(root.at("response", "error"), "code")
	root.at("code").role = resErrorID // an event of the type "error"
	return root
}

// openAIItem says what tells which item of a response's output a node is.
func openAIItem(item *node) {
	item.role = resItem
	item.at("id").role = resItemID
	item.at("type").role = resItemType
	item.at("encrypted_content").role = resItemSealed
}

func openAILimits() (list []limitHeader) {
	for _, unit := range []string{drawgate.UnitRequests, UnitTokens, UnitImages} {
		for _, scope := range []string{"", "project"} {
			name := unit
			if scope != "" {
				name = scope + "-" + unit
			}
			list = append(list, canonical(limitHeader{
				unit: unit, scope: scope, limit: "X-Ratelimit-Limit-" + name,
				remaining: "X-Ratelimit-Remaining-" + name, reset: "X-Ratelimit-Reset-" + name,
			}))
		}
	}
	return list
}

var (
	openAILimit = pattern.New(`.*\b(?:on|for) ([^:]{1,100}): Limit:? (\d[\d,]{0,15}\d|\d)` +
		`(?:, Used:? (?:\d[\d,]{0,15}\d|\d))?(?:, Requested:? (\d[\d,]{0,15}\d|\d))?`)
	// afford is OpenRouter's word for a call whose largest output costs more than the credit that
	// is left: smaller ones pass.
	afford      = pattern.New(`can only afford [1-9]`)
	openAIModel = pattern.New("limit reached for (?:model `)?([\\w.:/-]{1,128})")
)

func openAIRefusal(p *Profile, r *Refusal, e *errorBody, header http.Header, now time.Time) {
	decided := r.plain()
	code, message := e.code(), strings.ToLower(e.Message)
	switch {
	case code == "insufficient_quota", e.Type == "insufficient_quota", code == "billing_hard_limit_reached",
		code == "billing_not_active", r.Meaning == Credit:
		p.credit(r, now)
		r.Oversize = afford().MatchString(e.Message)
		return
	case decided, r.Status != http.StatusTooManyRequests:
		return
	case strings.Contains(message, "overloaded"), code == "engine_overloaded", code == "slow_down":
		r.Meaning = Overload
		return
	}
	hint := r.RetryAfter
	if m := tryAgain().FindStringSubmatch(e.Message); m != nil {
		text := strings.ReplaceAll(m[1], " ", "") // "5 seconds" is 5s
		if d, ok := wireDuration(strings.TrimSuffix(strings.TrimSuffix(text, "econds"), "econd")); ok {
			hint = max(hint, d)
		}
	}
	r.RetryAfter = hint
	r.Meaning = PerMinute
	if m := openAIModel().FindStringSubmatch(e.Message); m != nil {
		r.Model = m[1]
	}
	if m := openAILimit().FindStringSubmatch(e.Message); m != nil {
		r.QuotaID = m[1]
		if n, ok := wireNumber([]string{m[2]}); ok {
			r.Limit = n
			asked, ok := wireNumber([]string{m[3]})
			r.Oversize = ok && asked > n
		}
	}
	what := strings.ToLower(r.QuotaID + " " + e.Type)
	switch {
	case strings.Contains(what, "image"):
		r.Unit = UnitImages
	case strings.Contains(what, "token"):
		r.Unit = UnitTokens
	case strings.Contains(what, "request"), strings.Contains(message, "call rate limit"):
		r.Unit = drawgate.UnitRequests
	}
	if strings.Contains(what, "per day") {
		r.Meaning = PerDay
	}
	r.reopen(p, hint, p.fullAt(header, r.Unit, now), now)
}
