package llm

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// ErrUnpriced means that a call asks for something that costs more than [Prices] can say, such as a
// faster service tier. The call would be counted too low.
var ErrUnpriced = errors.New("llm: prices do not cover what the call asks for")

// unpriced is a field of a request that changes what tokens cost.
type unpriced struct {
	field string
	plain []string // its values at the price of the table, or below it
}

// The fields by their roles. A value that is not listed counts as dearer: nobody knows its price.
//
// Sources: OpenAI's priority processing costs about twice as much, flex half of the usual price
// (openai.com/api-priority-processing, platform.openai.com/docs/guides/flex-processing); the types
// of openai-go v3, anthropic-sdk-go and go-genai name the values. Anthropic's fast mode costs
// several times as much, inference in the US 1.1 times, a write to the cache for an hour twice the
// input, and tokens of a fallback what that model costs (platform.claude.com/docs, pricing).
var unpricedFields = map[role]unpriced{
	reqTier:      {"service_tier", []string{"auto", "default", "flex", "standard", "standard_only", "unspecified"}},
	reqSpeed:     {"speed", []string{"standard"}},
	reqGeo:       {"inference_geo", []string{"global"}},
	reqTTL:       {"the ttl of a cache", []string{"5m", "30m"}},
	reqModality:  {"modalities", []string{"text"}},
	reqVoice:     {"messages.audio", nil},
	reqFallbacks: {"fallbacks", nil},
}

// dearer notes what the call asks for if it is not at the table's price. kind is as in
// [sink.scalar], and 0 for an array or object.
func (c *Call) dearer(ro role, kind byte, value []byte) {
	f, ok := unpricedFields[ro]
	if !ok || kind == 'n' {
		return
	}
	if kind == '"' {
		c.fast = c.fast || ro == reqSpeed && string(value) == "fast"
		c.flex = c.flex || ro == reqTier && string(value) == "flex"
		for _, plain := range f.plain {
			if strings.EqualFold(plain, string(value)) {
				return
			}
		}
	}
	c.Unpriced = f.field
	if ro == reqFallbacks {
		c.elsewhere(f.field)
	}
}

// headerPrice notes what headers ask for that is not at the table's price: at Vertex AI calls of
// the type "priority" (docs.cloud.google.com/vertex-ai, Priority PayGo), at Bedrock tiers, low
// latency and guardrails (docs.aws.amazon.com/bedrock, InvokeModel).
func (c *Call) headerPrice(header http.Header) {
	const vertex, bedrock = "X-Vertex-Ai-Llm-Shared-Request-Type", "X-Amzn-Bedrock-"
	for name, values := range header {
		var plain []string
		switch rest, ok := strings.CutPrefix(name, bedrock); {
		case name == vertex:
			plain = []string{"flex"}
		case !ok, rest == "Trace":
			continue
		case rest == "Service-Tier":
			plain = []string{"default", "flex"}
		}
		for _, v := range values {
			if !slices.Contains(plain, strings.ToLower(strings.TrimSpace(v))) {
				c.Unpriced = cmp.Or(c.Unpriced, "the header "+name)
			}
		}
	}
}

// Fees are per use of a tool, or per call of a model that always searches.
const (
	feeTools  = "tools that have a fee per use"
	feeStored = "a stored prompt or cached content, which may have tools that have a fee per use"
	feeModel  = "a model that searches for a fee"
	feeAudio  = "audio, or media that may have it"
)

// searching are in the names of models that use tools by themselves: of OpenAI, of Perplexity
// (docs.perplexity.ai, pricing) and of Groq (console.groq.com/docs, compound).
var searching = []string{"-search-preview", "-search-api", "sonar", "compound"}

// finishPrice notes what only the whole request shows.
func (c *Call) finishPrice() {
	switch {
	case c.Unpriced != "":
	// dearer than text at OpenAI and Gemini
	case c.Media[Audio].Count > 0, c.sound, c.sounds > 0 && c.profile == geminiName:
		c.Unpriced = feeAudio
	case c.profile == "openai" && slices.ContainsFunc(searching, func(name string) bool {
		return strings.Contains(bareModel(c.Model), name)
	}):
		c.Unpriced = feeModel
	}
}
