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

// anthropic is Anthropic's API.
//
// Sources: the types of anthropic-sdk-go v1.84; platform.claude.com/docs.
var anthropic = &provider{
	name:      "anthropic",
	profile:   anthropicProfile,
	url:       "https://api.anthropic.com",
	bases:     []string{"/v1"},
	keyHeader: "X-Api-Key",
	calls:     anthropicCalls,
	sdkPath:   anthropicCalls.ends,
	paths: forms{
		calls: []string{"/messages", "/messages/count_tokens"},
		lists: []string{"/models", "/models/{:}"},
	}.behind("", "/v1"),
	known: anthropicKnown,
	// anthropic-sdk-go v1.84
	uncounted: []uncounted{
		{"batches", "/messages/batches", "they run later, and their answers are everybody's who has the account"},
		{"files", "/files", "what is stored is everybody's who has the account"},
		{"skills", "/skills", "what is stored is everybody's who has the account"},
		{"text completions", "/complete", "models that had them are gone: use /messages"},
		{"administration", "/organizations", "it is the account's own"},
	},
	otherBases: []string{"/v1"},
	request:    anthropicRequest,
	cached:     anthropicCached,

	// Fast mode costs several times as much, inference in the US 1.1 times, a write to the cache
	// for an hour twice the input (platform.claude.com/docs, pricing).
	plain: map[role][]string{
		reqTier: {"auto", "standard_only"}, reqSpeed: {"standard"}, reqGeo: {"global"}, reqTTL: {"5m"},
	},
	// Three times as much as later ones of Opus 4 (platform.claude.com/docs, pricing).
	dearer: []string{"claude-opus-4-0", "claude-opus-4-1", "claude-opus-4-2025"},

	response:   anthropicResponse,
	lastEvents: []string{"message_stop"},
	streamed:   streamedOver, // message_start has a provisional output
	cacheApart: true,         // its input_tokens are those that no cache was involved with

	limits:       anthropicLimits(),
	quotaHeaders: []string{"Anthropic-Ratelimit-", "Anthropic-Priority-", "Anthropic-Fast-"},
	errorStatus: map[string]int{
		"rate_limit_error":      http.StatusTooManyRequests,
		"overloaded_error":      StatusOverloaded,
		"timeout_error":         http.StatusGatewayTimeout,
		"invalid_request_error": http.StatusBadRequest,
		"authentication_error":  http.StatusUnauthorized,
		"permission_error":      http.StatusForbidden,
		"not_found_error":       http.StatusNotFound,
	},
	refusal: anthropicRefusal,
	// The limits of its fast mode are separate (platform.claude.com/docs, fast mode).
	otherPool: func(c *Call, _ *Refusal) bool { return c.fast },
	errors: providerErrors{
		RateLimited:  {http.StatusTooManyRequests, "rate_limit_error", ""},
		Unauthorized: {http.StatusUnauthorized, "authentication_error", ""},
		BadRequest:   {http.StatusBadRequest, "invalid_request_error", ""},
		Overloaded:   {StatusOverloaded, "overloaded_error", ""},
		ServerError:  {http.StatusInternalServerError, "api_error", ""},
		TimedOut:     {http.StatusGatewayTimeout, "timeout_error", ""},
		NotFound:     {http.StatusNotFound, "not_found_error", ""},
		NoSuchPath:   {http.StatusNotFound, "not_found_error", ""},
		Forbidden:    {http.StatusForbidden, "permission_error", ""},
		TooLarge:     {http.StatusRequestEntityTooLarge, "request_too_large", ""},
		Unavailable:  {http.StatusServiceUnavailable, "api_error", ""},
		Lost:         {http.StatusBadGateway, "api_error", ""},
		KeyExpired:   {http.StatusUnauthorized, "authentication_error", codeExpired},
		KeyDisabled:  {http.StatusUnauthorized, "authentication_error", codeDisabled},
		NoCredit:     {http.StatusTooManyRequests, "billing_error", ""},
	},
	errorBody: func(e *providerError, message string, _ time.Duration) any {
		inner := map[string]any{"type": e.kind, "message": message}
		if e.code != "" { // of this gateway alone: the provider has no codes
			inner["code"] = e.code
		}
		return map[string]any{"type": "error", "error": inner}
	},
	events:         true,
	accountHeaders: []string{"Anthropic-Organization-Id"},
	account:        []string{`\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`},
}

// Anthropic returns the profile of Anthropic's API.
//
// Its quotas count requests, input tokens and output tokens apart, per organisation and class of
// models. Input that was read from a cache does not count, except for Haiku 3.5 and Haiku 3. Output
// counts as it is produced; set OutputAtStart for the rule of 2025.
func Anthropic() *Profile { return anthropic.newProfile() }

func anthropicProfile() *Profile {
	return &Profile{
		Units: []string{drawgate.UnitRequests, UnitInputTokens, UnitOutputTokens},
		Families: []Family{
			// docs.anthropic.com, rate limits and models, 2026-02 to 2026-05: all Opus 4.x share
			// one limit, all Sonnet 4.x another.
			{Name: "claude-opus-4", Prefixes: []string{"claude-opus-4"}, Reasons: ReasonsAsked},
			{Name: "claude-sonnet-4", Prefixes: []string{"claude-sonnet-4"}, Reasons: ReasonsAsked},
			{
				Name: "claude-haiku-4.5", Prefixes: []string{"claude-haiku-4-5"}, Context: 200_000, MaxOutput: 64_000,
				Reasons: ReasonsAsked,
			},
			{
				Name: "claude-sonnet-3.7", Prefixes: []string{"claude-3-7-sonnet"}, Context: 200_000,
				MaxOutput: 128_000, Reasons: ReasonsAsked,
			},
			{
				Name: "claude-haiku-3.5", Prefixes: []string{"claude-3-5-haiku"}, Context: 200_000, MaxOutput: 8192,
				CacheReads: true, Reasons: ReasonsNever,
			},
			{
				Name: "claude-haiku-3", Prefixes: []string{"claude-3-haiku"}, Context: 200_000, MaxOutput: 4096,
				CacheReads: true, Reasons: ReasonsNever,
			},
		},
		Default: Family{
			Context: 1_000_000, MaxOutput: 128_000,
			// An image is scaled to 1568 pixels at its long side and about 1600 tokens, for the
			// newest models to 2576 pixels and 4784 tokens (width · height / 750).
			Images: 4784, Audio: 1_000_000, Video: 1_000_000, Files: 1_000_000,
			Weights: O200k(),
		},
		FailedInput:   true,
		ResetZone:     "UTC",
		CreditPause:   creditPause,
		MinutePause:   time.Minute,
		ClientMaxWait: time.Minute, // anthropic-sdk-go sleeps as long as it is told
		Overhead: Overhead{
			// The hidden prompt for tools has up to 346 tokens, for Claude 3 Opus 530
			// (docs.anthropic.com, tool use, pricing and tokens).
			Call: 4, CallBound: 64, Message: 4, MessageBound: 16,
			Tool: 16, ToolBound: 1024, Tools: 346, ToolsBound: 1024, Search: 10_000,
			Image: 1600, AudioBytes: 1600, VideoBytes: 1000, FileBytes: 50,
		},
		// Nobody outside can measure the tokenizer. Others report more tokens than GPT's; learning
		// corrects this.
		Correction: 1.15,
		LeastRatio: 0.7,
	}
}

// anthropicCached returns what precedes the messages in a prompt of which a part is kept
// (platform.claude.com/docs, prompt caching).
func anthropicCached(body []byte) []byte {
	var b struct {
		Tools  json.RawMessage `json:"tools"`
		System json.RawMessage `json:"system"`
	}
	if !bytes.Contains(body, []byte("cache_control")) || json.Unmarshal(body, &b) != nil {
		return nil
	}
	return append(b.Tools, b.System...)
}

var anthropicCalls = &pathEnds{list: []pathEnd{
	{"/messages", OpMessages},
	{"/messages/count_tokens", OpCountTokens},
}}

var anthropicKnown = &known{
	free: map[string]string{
		"request": "diagnostics metadata stop_sequences temperature top_k top_p",
	},
	text: map[string]string{
		"request":       "tool_choice output_format output_config",
		"message":       "role",
		"cache_control": "type scope",
		"part": `
			text citations id input name tool_use_id toolset_name is_error thinking signature data title context
			caller encrypted_content url page_age retrieved_at stdout stderr encrypted_stdout return_code error_code
			error_message tool_name server_name tool_references file_type num_lines start_line total_lines
			is_file_update lines new_lines new_start old_lines old_start`,
	},
	parts: kinds(map[partKind]string{
		partInline: `
			- text document thinking redacted_thinking tool_use tool_result server_tool_use mcp_tool_use
			mcp_tool_result tool_reference web_search_tool_result web_search_result web_search_tool_result_error
			web_fetch_tool_result web_fetch_result web_fetch_tool_result_error code_execution_tool_result
			code_execution_result code_execution_tool_result_error bash_code_execution_tool_result
			bash_code_execution_result text_editor_code_execution_tool_result tool_search_tool_result
			tool_search_tool_search_result tool_search_tool_result_error`,
		partImage:  "image",
		partSource: "search_result",
	}),
	tools: kinds(map[toolKind]string{
		toolClient: "- custom bash text_editor computer memory",
		toolRun:    "web_fetch tool_search_tool_regex tool_search_tool_bm25 mcp_toolset",
		toolFee:    "web_search code_execution",
	}),
	edits: map[string]bool{"clear_tool_uses_20250919": true, "clear_thinking_20251015": true},
	from:  true,
}

func anthropicRequest(k *known) *node {
	root := &node{role: reqRoot, rest: reqText}
	thinking := root.at("thinking").set(reqThinking)
	thinking.at("type").role = reqThinks
	thinking.at("budget_tokens").role = reqBudget
	root.at("model").role = reqModel
	root.at("stream").role = reqStream
	root.at("max_tokens").role = reqMaxOutput
	root.at("service_tier").role = reqTier
	root.at("speed").role = reqSpeed
	root.at("inference_geo").role = reqGeo
	root.subtree(reqText, "fallbacks").role = reqFallbacks
	root.at("container").role = reqHidden
	edit := root.at("context_management").set(reqSkip)
	edit.at("edits").list().at("*").role = reqPart
	edit.at("edits", "*", "type").role = reqEdit
	edit.closed = true
	anthropicCache(k, root)
	blocks := root.subtree(reqText, "system")
	anthropicBlocks(k, blocks)
	message := root.subtree(reqText, "messages", "*")
	message.role = reqMessage
	message.link("content", blocks)
	k.close(message, "message")
	tools := root.subtree(reqSchema, "tools").list()
	tool := tools.subtree(reqSchema, "*")
	tool.role = reqTool
	tool.at("type").role = reqToolType
	tool.opaque("input_schema") // which a tool without a type needs
	tool.noted = true
	anthropicCache(k, tool)
	root.subtree(reqSchema, "tool_choice")
	root.subtree(reqSchema, "output_format")
	root.subtree(reqSchema, "output_config")
	root.at("mcp_servers").list().at("*").set(reqRun)
	return k.close(root, "request")
}

func anthropicCache(k *known, n *node) {
	cache := n.subtree(reqText, "cache_control")
	cache.at("ttl").role = reqTTL
	k.close(cache, "cache_control")
}

// anthropicBlocks covers a list of content blocks: blocks are nested in the results of tools, and
// in documents, however deep.
func anthropicBlocks(k *known, list *node) {
	block := list.at("*")
	block.role = reqPart
	block.at("type").role = reqBlock
	block.at("file_id").role = reqNamed
	block.link("content", list)
	anthropicCache(k, block)
	source := block.at("source")
	source.set(reqFile)
	source.at("type").role = reqSource
	source.at("media_type").role = reqMime
	source.at("data").role = reqData
	source.at("url").role = reqData
	source.at("file_id").role = reqNamed
	source.link("content", list)
	source.closed, source.scalar = true, true
	k.close(block, "part")
}

func anthropicResponse() *node {
	root := &node{role: resDoc}
	for _, usage := range []*node{root.at("usage"), root.at("message", "usage")} {
		usage.at("input_tokens").role = resUsage + useInput
		usage.at("cache_read_input_tokens").role = resUsage + useCacheRead
		usage.at("cache_creation_input_tokens").role = resUsage + useCacheWrite
		usage.at("output_tokens").role = resUsage + useOutput
		// What is billed is the sum of these, where there are any: the numbers above are without
		// those of compaction (platform.claude.com/docs, compaction).
		each := usage.at("iterations", "*")
		each.at("input_tokens").role = resRepeated + useInput
		each.at("cache_read_input_tokens").role = resRepeated + useCacheRead
		each.at("cache_creation_input_tokens").role = resRepeated + useCacheWrite
		each.at("output_tokens").role = resRepeated + useOutput
	}
	for _, block := range []*node{root.at("content", "*"), root.at("content_block"), root.at("delta")} {
		for _, text := range []string{"text", "thinking", "partial_json", "name", "data"} {
			block.at(text).role = resText
		}
		for _, tree := range []string{"input", "citation", "citations"} { // input is of a tool, in a document
			block.at(tree).rest = resText
			block.at(tree).role = resText
		}
	}
	root.at("delta", "content").role = resText // a summary that replaces the prompt
	root.at("delta", "stop_reason").role = resFinish
	root.at("stop_reason").role = resFinish
	root.at("type").role = resType
	errorFields(root.at("error"), "type")
	return root
}

func anthropicLimits() (list []limitHeader) {
	for _, l := range []struct{ name, unit, scope string }{
		{"requests", drawgate.UnitRequests, ""},
		{"tokens", UnitTokens, ""},
		{"input-tokens", UnitInputTokens, ""},
		{"output-tokens", UnitOutputTokens, ""},
		{"priority-input-tokens", UnitInputTokens, "priority"},
		{"priority-output-tokens", UnitOutputTokens, "priority"},
		{"fast-input-tokens", UnitInputTokens, "fast"},
		{"fast-output-tokens", UnitOutputTokens, "fast"},
	} {
		prefix := "Anthropic-Ratelimit-" + l.name
		if l.scope != "" {
			prefix = "Anthropic-" + l.name
		}
		step := int64(1000) // token numbers are rounded to the nearest thousand
		if l.unit == drawgate.UnitRequests {
			step = 1
		}
		list = append(list, canonical(limitHeader{
			unit: l.unit, scope: l.scope, step: step,
			limit: prefix + "-Limit", remaining: prefix + "-Remaining", reset: prefix + "-Reset",
		}))
	}
	return list
}

var (
	anthropicLimit = pattern.New(`limit of (\d[\d,]{0,15}\d|\d) (input tokens|output tokens|requests|tokens)`)
	// Whole sentences: other errors quote what the caller wrote, such as the name of a model or of
	// a field that is not known.
	anthropicCap    = pattern.New(`^you have reached your specified [^:]*usage limits\.([^:]* at 00:00 utc\.)?$`)
	anthropicCredit = pattern.New(`^your credit balance is too low[^:]*$`)
	anthropicRegain = pattern.New(`on (\d{4}-\d{2}-\d{2}) at 00:00 UTC`)
)

func anthropicRefusal(p *Profile, r *Refusal, e *errorBody, header http.Header, now time.Time) {
	var details struct {
		ErrorCode string `json:"error_code"`
	}
	if len(e.Details) > 0 {
		_ = json.Unmarshal(e.Details, &details) // without details the type and message decide
	}
	message := strings.ToLower(e.Message)
	decided := r.plain()
	switch {
	case e.Type == "overloaded_error":
		r.Meaning = Overload
		return
	case decided:
		return
	case e.Type == "billing_error", r.Meaning == Credit,
		r.Status == http.StatusBadRequest && anthropicCredit().MatchString(message):
		p.credit(r, now)
		return
	case details.ErrorCode == "enforced_spend_limit_reached",
		r.Status == http.StatusBadRequest && anthropicCap().MatchString(message):
		r.Meaning = Spend
		r.ReopenAt = nextMonth(now)
		if m := anthropicRegain().FindStringSubmatch(e.Message); m != nil {
			if at, err := time.Parse(time.DateOnly, m[1]); err == nil && at.After(now) &&
				at.Before(now.Add(2*maxReset)) {
				r.ReopenAt = at
			}
		}
		return
	case r.Status != http.StatusTooManyRequests:
		return
	}
	r.Meaning = PerMinute
	if m := anthropicLimit().FindStringSubmatch(e.Message); m != nil {
		if n, ok := wireNumber([]string{m[1]}); ok {
			r.Limit = n
		}
		r.Unit = strings.ReplaceAll(m[2], " ", "_")
	}
	if r.Unit == "" {
		r.Unit = p.spent(header, now)
	}
	if strings.Contains(message, "per day") || strings.Contains(message, "daily") {
		r.Meaning = PerDay
	}
	r.reopen(p, r.RetryAfter, p.fullAt(header, r.Unit, now), now)
}
