package llm

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/pattern"
)

// gemini is the Gemini Developer API, and Vertex AI, which speaks the same protocol.
//
// Sources: the types of go-genai v1.77; ai.google.dev/gemini-api/docs.
var gemini = &provider{
	name:      "gemini",
	profile:   geminiProfile,
	url:       "https://generativelanguage.googleapis.com",
	bases:     []string{"/v1beta", "/v1"},
	keyHeader: "X-Goog-Api-Key",
	private:   []string{"X-Goog-Fieldmask"}, // would cut the usage out of the answer
	param: func(name string) bool {
		switch name {
		case "fields", "userProject", "bearer_token":
			return true
		}
		// These change how Google's servers read a call, other than the form of its answer:
		// $httpHeaders and $httpMethod stand for headers and the method (goog.net.rpc.HttpCors of
		// Google's Closure Library).
		return strings.HasPrefix(name, "$") && name != "$alt"
	},
	calls:   geminiCalls{},
	sdkPath: func(path string) bool { return strings.Contains(path, "/v1beta/") },
	paths: forms{
		calls: []string{
			"/models/{}:generateContent", "/models/{}:streamGenerateContent", "/models/{}:countTokens",
			"/models/{}:embedContent", "/models/{}:batchEmbedContents",
		},
		lists: []string{"/models", "/models/{}"},
	}.behind(
		"", "/v1beta", "/v1", "/v1alpha",
		"/v1/projects/{}/locations/{}/publishers/{}", // Vertex AI
		"/v1beta1/projects/{}/locations/{}/publishers/{}",
	),
	known: geminiKnown,
	// google.golang.org/genai v1.77
	uncounted: []uncounted{
		{"files", "/files /upload", "what is stored is everybody's who has the account"},
		{"cached contents", "/cachedcontents", "they cost by the time that they are kept, and are everybody's who has the " +
			"account"},
		{"batches", "/batches :batchgeneratecontent :asyncbatchembedcontent", "they run later, and their answers are " +
			"everybody's who has the account"},
		{"images and videos of a model of their own", ":predict :predictlongrunning", "they cost by the piece, which " +
			"nothing here counts: make images with generateContent"},
		{"operations", "/operations", "they are everybody's who has the account"},
		{"tuned models", "/tunedmodels", "training costs by what it reads, after the call"},
		{"stores of files", "/filesearchstores /corpora", "what is stored is everybody's who has the account"},
		{"interactions", "/interactions /agents", "they call models by themselves, and what they store is everybody's " +
			"who has the account"},
	},
	otherBases: []string{"/v1beta", "/v1alpha", "/v1"},
	request:    geminiRequest,
	perInput:   true,

	plain:    map[role][]string{reqTier: {"standard", "flex", "unspecified"}, reqModality: {"text"}},
	videoFee: true,

	response:       geminiResponse,
	finishEnds:     true,
	streamed:       streamedSoFar,
	reasoningApart: true, // candidatesTokenCount is without the thoughts

	errorStatus: map[string]int{
		"RESOURCE_EXHAUSTED":  http.StatusTooManyRequests,
		"UNAVAILABLE":         http.StatusServiceUnavailable,
		"DEADLINE_EXCEEDED":   http.StatusGatewayTimeout,
		"INVALID_ARGUMENT":    http.StatusBadRequest,
		"FAILED_PRECONDITION": http.StatusBadRequest,
		"UNAUTHENTICATED":     http.StatusUnauthorized,
		"PERMISSION_DENIED":   http.StatusForbidden,
		"NOT_FOUND":           http.StatusNotFound,
	},
	refusal: geminiRefusal,
	errors: providerErrors{ // google.rpc.Code
		RateLimited:  {http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", ""},
		Unauthorized: {http.StatusUnauthorized, "UNAUTHENTICATED", ""},
		BadRequest:   {http.StatusBadRequest, "INVALID_ARGUMENT", ""},
		Overloaded:   {http.StatusServiceUnavailable, "UNAVAILABLE", ""},
		ServerError:  {http.StatusInternalServerError, "INTERNAL", ""},
		TimedOut:     {http.StatusGatewayTimeout, "DEADLINE_EXCEEDED", ""},
		NotFound:     {http.StatusNotFound, "NOT_FOUND", ""},
		NoSuchPath:   {http.StatusNotFound, "NOT_FOUND", ""},
		Forbidden:    {http.StatusForbidden, "PERMISSION_DENIED", ""},
		TooLarge:     {http.StatusRequestEntityTooLarge, "INVALID_ARGUMENT", ""},
		Unavailable:  {http.StatusServiceUnavailable, "UNAVAILABLE", ""},
		Lost:         {http.StatusBadGateway, "UNAVAILABLE", ""},
		KeyExpired:   {http.StatusUnauthorized, "UNAUTHENTICATED", codeExpired},
		KeyDisabled:  {http.StatusUnauthorized, "UNAUTHENTICATED", codeDisabled},
		NoCredit:     {http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", ""},
	},
	errorBody: func(e *providerError, message string, retryAfter time.Duration) any {
		inner := map[string]any{"code": e.status, "message": message, "status": e.kind}
		if retryAfter > 0 {
			inner["details"] = []any{map[string]any{
				"@type":      "type.googleapis.com/google.rpc.RetryInfo",
				"retryDelay": strconv.FormatFloat(retryAfter.Seconds(), 'f', -1, 64) + "s",
			}}
		}
		if e.code != "" {
			inner["details"] = []any{map[string]any{
				"@type":  "type.googleapis.com/google.rpc.ErrorInfo",
				"reason": strings.ToUpper(e.code), "domain": "drawgate",
			}}
		}
		return map[string]any{"error": inner}
	},
	accountHeaders: []string{"X-Goog-User-Project"},
	account:        []string{`\bprojects/[A-Za-z0-9-]+`, `\bproject_number:[0-9]+`},
}

// Gemini returns the profile of the Gemini Developer API.
//
// Its quotas count requests and input tokens, per project and model; a day starts at midnight
// Pacific time. Whether cached input and results of tools count is not documented: they do here.
func Gemini() *Profile { return gemini.newProfile() }

func geminiProfile() *Profile {
	return &Profile{
		Units: []string{drawgate.UnitRequests, UnitInputTokens},
		Families: []Family{
			// ai.google.dev/gemini-api/docs/models, 2026-06.
			{Name: "gemini-2.5-pro", Prefixes: []string{"gemini-2.5-pro"}, MaxOutput: 65_536},
			{Name: "gemini-2.5-flash", Prefixes: []string{"gemini-2.5-flash"}, MaxOutput: 65_536},
			{Name: "gemini-2.5-flash-lite", Prefixes: []string{"gemini-2.5-flash-lite"}, MaxOutput: 65_536},
			{Name: "gemini-2.0-flash", Prefixes: []string{"gemini-2.0-flash"}, MaxOutput: 8192, Reasons: ReasonsNever},
			{
				Name: "gemini-2.0-flash-lite", Prefixes: []string{"gemini-2.0-flash-lite"}, MaxOutput: 8192,
				Reasons: ReasonsNever,
			},
			// Models for images and speech, which are no versions of those either.
			{Name: "gemini-2.5-flash-image", Prefixes: []string{"gemini-2.5-flash-image"}},
			{Name: "gemini-2.5-flash-tts", Prefixes: []string{"gemini-2.5-flash-preview-tts", "gemini-2.5-flash-tts"}},
			{Name: "gemini-2.5-pro-tts", Prefixes: []string{"gemini-2.5-pro-preview-tts", "gemini-2.5-pro-tts"}},
			{Name: "gemini-2.5-flash-native-audio", Prefixes: []string{"gemini-2.5-flash-native-audio"}},
			{
				Name:     "gemini-2.0-flash-image",
				Prefixes: []string{"gemini-2.0-flash-preview-image", "gemini-2.0-flash-exp-image"},
			},
		},
		Default: Family{
			Context: 1_048_576, MaxOutput: 65_536, CacheReads: true,
			// Up to Gemini 2.5 an image has 258 tokens per tile of 768 pixels, and nothing bounds
			// the tiles: 64 are eight by eight, 6144 pixels square. Gemini 3 has at most 2240 per
			// image.
			Images: 64 * 258, Audio: 1_048_576, Video: 1_048_576, Files: 1_048_576,
			Weights: O200k(),
		},
		FailedInput:  true,
		OwnerHeaders: []string{"X-Goog-User-Project"},
		ResetZone:    pacific,
		CreditPause:  creditPause,
		MinutePause:  time.Minute,
		Overhead: Overhead{
			// Audio has 32 tokens per second, video about 300
			// (ai.google.dev/gemini-api/docs/tokens): at 64 kbit/s and 1 Mbit/s about 250 and 400
			// bytes per token. A page of a file has 258.
			Call: 2, CallBound: 64, Message: 2, MessageBound: 16,
			Tool: 8, ToolBound: 128, Tools: 16, ToolsBound: 1024, Search: 10_000,
			Image: 4 * 258, AudioBytes: 250, VideoBytes: 400, FileBytes: 50,
		},
		Correction: 1.1,
		LeastRatio: 0.7,
	}
}

// geminiCalls are /models/{model}:{operation}.
type geminiCalls struct{}

func (g geminiCalls) route(path string) (op Operation, model string, stream bool) {
	_, rest, ok := strings.Cut(path, "/models/")
	if !ok {
		return OpOther, "", false
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 0 {
		if rest = unescape(rest); strings.Contains(rest, ":") {
			return g.route("/models/" + rest)
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

func (geminiCalls) withModel(path, model string) (string, bool) {
	if before, rest, ok := strings.Cut(path, "/models/"); ok {
		if i := strings.LastIndexByte(rest, ':'); i >= 0 {
			return before + "/models/" + model + rest[i:], true
		}
	}
	return path, false
}

func (geminiCalls) words() []string {
	return []string{"generatecontent", "counttokens", "embedcontent"}
}

// Gemini has no types: a part or a tool is what its field's name says.
var geminiKnown = &known{
	free: map[string]string{
		"request": "safetySettings store taskType outputDimensionality labels",
		"generationConfig": `
			audioTimestamp enableEnhancedCivicAnswers frequencyPenalty imageConfig logprobs mediaResolution
			presencePenalty responseLogprobs responseMimeType seed speechConfig stopSequences temperature
			thinkingConfig topK topP`,
		"media": "displayName",
	},
	text: map[string]string{
		"request": "title",
		"message": "role",
		"part": `
			text functionCall executableCode codeExecutionResult thought thoughtSignature videoMetadata
			mediaResolution partMetadata toolCall toolResponse`,
		"functionResponse": "id name response willContinue scheduling",
	},
}

func geminiRequest(k *known) *node {
	root := &node{role: reqRoot, rest: reqText, proto: true}
	geminiFields(k, root)
	// countTokens and batchEmbedContents wrap the same fields.
	inner := root.at("generateContentRequest")
	geminiFields(k, inner)
	k.close(inner, "request")
	one := root.at("requests", "*")
	one.role = reqInput
	geminiFields(k, one)
	k.close(one, "request")
	return k.close(root, "request")
}

func geminiFields(k *known, root *node) {
	message := root.subtree(reqText, "contents", "*")
	message.role = reqMessage
	geminiContent(k, message)
	geminiContent(k, root.subtree(reqText, "content"))
	geminiContent(k, root.subtree(reqText, "systemInstruction"))
	root.at("model").role = reqModelAgain
	root.at("cachedContent").role = reqStored
	root.at("serviceTier").role = reqTier
	config := root.at("generationConfig").set(reqSkip)
	config.at("maxOutputTokens").role = reqMaxOutput
	config.at("candidateCount").role = reqAnswers
	config.at("responseModalities").list().at("*").role = reqModality
	config.subtree(reqSchema, "responseSchema")
	config.subtree(reqSchema, "responseJsonSchema")
	k.close(config, "generationConfig")
	tools := root.subtree(reqSchema, "tools").list()
	tool := tools.subtree(reqSchema, "*")
	tool.at("functionDeclarations").list().at("*").role = reqFunction
	for _, search := range []string{"googleSearch", "googleSearchRetrieval", "fileSearch", "googleMaps"} {
		tool.at(search).role = reqSearch
	}
	for _, run := range []string{"urlContext", "codeExecution"} { // only their tokens cost
		tool.at(run).role = reqRun
	}
	k.close(tool, "tool")
	tool.at("computerUse").role = reqRun
	root.subtree(reqSchema, "toolConfig")
}

func geminiContent(k *known, n *node) {
	part := n.at("parts", "*")
	geminiMedia(k, part)
	response := part.at("functionResponse")
	inner := response.at("parts", "*")
	geminiMedia(k, inner)
	inner.closed = true
	k.close(response, "functionResponse")
	k.close(part, "part")
	k.close(n, "message")
}

func geminiMedia(k *known, part *node) {
	for _, name := range []string{"inlineData", "fileData"} {
		in := part.at(name).set(reqInline)
		in.at("mimeType").role = reqMime
		k.close(in, "media")
	}
	part.at("inlineData", "data").role = reqData
	part.at("fileData", "fileUri").role = reqNamed
}

func geminiResponse() *node {
	root := &node{role: resDoc, proto: true}
	usage := root.at("usageMetadata")
	for name, n := range map[string]role{
		"promptTokenCount":        useInput,
		"cachedContentTokenCount": useCacheRead,
		"candidatesTokenCount":    useOutput,
		"thoughtsTokenCount":      useReasoning,
		"toolUsePromptTokenCount": useTool,
		"totalTokenCount":         useTotal,
	} {
		usage.at(name).role = resUsage + n
	}
	candidate := root.at("candidates", "*")
	candidate.at("finishReason").role = resFinish
	part := candidate.at("content", "parts", "*")
	part.at("text").role = resText
	part.at("functionCall", "name").role = resText
	args := part.at("functionCall", "args")
	args.role, args.rest = resText, resText
	part.at("executableCode", "code").role = resText
	root.at("promptFeedback", "blockReason").role = resBlocked
	errorFields(root.at("error"), "status", "code")
	return root
}

const (
	geminiSpend = 10 * time.Minute // the window of its spend limit
	dayHint     = 5 * time.Minute  // a longer one is of a limit per day
)

// violation is an element of google.rpc.QuotaFailure's list.
type violation struct {
	QuotaMetric     string            `json:"quotaMetric"`
	QuotaID         string            `json:"quotaId"`
	QuotaDimensions map[string]string `json:"quotaDimensions"`
	QuotaValue      json.RawMessage   `json:"quotaValue"` // an int64, which ProtoJSON writes as a text
}

var geminiLimit = pattern.New(`metric: ([\w./-]{1,200}), limit: (\d{1,12})(?:, model: ([\w.:/-]{1,128}))?`)

func geminiRefusal(p *Profile, r *Refusal, e *errorBody, _ http.Header, now time.Time) {
	if r.Status == 0 {
		r.Status, _ = strconv.Atoi(e.code())
	}
	message := strings.ToLower(e.Message)
	if r.plain() {
		return
	}
	if r.Meaning == Credit ||
		r.Status == http.StatusTooManyRequests && strings.Contains(message, "credits are depleted") {
		p.credit(r, now)
		return
	}
	if r.Status != http.StatusTooManyRequests {
		return
	}
	violations, hint := geminiDetails(e.Details)
	if m := tryAgain().FindStringSubmatch(e.Message); m != nil && hint == 0 {
		hint, _ = wireDuration(m[1])
	}
	r.RetryAfter = max(r.RetryAfter, hint)
	if len(violations) == 0 {
		for _, m := range geminiLimit().FindAllStringSubmatch(e.Message, 16) {
			violations = append(violations, violation{
				QuotaMetric: m[1], QuotaValue: json.RawMessage(m[2]), QuotaDimensions: map[string]string{"model": m[3]},
			})
		}
	}
	if len(violations) == 0 {
		violations = []violation{{QuotaID: e.Message[:min(len(e.Message), maxKeep)]}}
	}
	for i, v := range violations {
		one := p.geminiViolation(r, &v, message, now)
		if i == 0 || one.ReopenAt.After(r.ReopenAt) {
			*r = one
		}
	}
	if len(r.QuotaID) > 200 {
		r.QuotaID = ""
	}
}

// geminiViolation says what one violation means, given what all have in common.
func (p *Profile) geminiViolation(common *Refusal, v *violation, message string, now time.Time) Refusal {
	r := *common
	r.QuotaID, r.Model, r.Unit, r.Limit, r.ReopenAt = v.QuotaID, v.QuotaDimensions["model"], "", -1, time.Time{}
	if r.QuotaID == "" {
		r.QuotaID = v.QuotaMetric
	}
	if n, ok := wireNumber([]string{strings.Trim(string(v.QuotaValue), `"`)}); ok && len(v.QuotaValue) > 0 {
		r.Limit = n
	}
	what := strings.ToLower(strings.ReplaceAll(v.QuotaID+" "+v.QuotaMetric, "_", ""))
	switch {
	case strings.Contains(what, "token"):
		r.Unit = UnitInputTokens
	case strings.Contains(what, "image"):
		r.Unit = UnitImages
	case strings.Contains(what, "request"):
		r.Unit = drawgate.UnitRequests
	}
	switch {
	case r.Limit == 0:
		r.Meaning = NotOffered
		r.ReopenAt = now.Add(learnedFor)
	case strings.Contains(what, "spend"), strings.Contains(message, "spending cap"),
		strings.Contains(message, "spend limit"):
		r.Meaning = Spend
		r.ReopenAt = now.Add(max(geminiSpend, r.RetryAfter))
		if strings.Contains(message, "month") {
			r.ReopenAt = p.nextMonth(now)
		}
	case strings.Contains(what, "perday"), strings.Contains(what, "per day"), strings.Contains(what, "daily"),
		r.RetryAfter > dayHint:
		// The hint of a limit per day is a few seconds: it is wrong.
		r.Meaning = PerDay
		r.ReopenAt = p.nextDay(now)
	default:
		r.Meaning = PerMinute
		r.reopen(p, r.RetryAfter, time.Time{}, now)
	}
	return r
}

// geminiDetails reads the details of an error, in any order.
func geminiDetails(raw json.RawMessage) (all []violation, hint time.Duration) {
	var list []struct {
		Type       string      `json:"@type"`
		Violations []violation `json:"violations"`
		RetryDelay string      `json:"retryDelay"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil {
		return nil, 0
	}
	for _, d := range list {
		switch {
		case strings.HasSuffix(d.Type, "google.rpc.QuotaFailure"):
			all = append(all, d.Violations...)
		case strings.HasSuffix(d.Type, "google.rpc.RetryInfo"):
			if d, ok := wireDuration(d.RetryDelay); ok {
				hint = max(hint, d)
			}
		}
	}
	return all, hint
}
