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

// unpricedFields are the fields of a request that change what tokens cost, by their roles. A value
// that is not in the provider's plain counts as dearer: nobody knows its price.
var unpricedFields = map[role]string{
	reqTier:      "service_tier",
	reqSpeed:     "speed",
	reqGeo:       "inference_geo",
	reqTTL:       "the ttl of a cache",
	reqModality:  "modalities",
	reqVoice:     "messages.audio",
	reqFallbacks: "fallbacks",
}

// plainValues are the values of these fields at the price of the table, or below it, at any
// provider.
var plainValues = func() map[role][]string {
	values := map[role][]string{}
	for ro := range unpricedFields {
		values[ro] = all(func(v *provider) []string { return v.plain[ro] })
	}
	return values
}()

// dearer notes what the call asks for if it is not at the table's price. kind is as in
// [sink.scalar], and 0 for an array or object.
func (c *Call) dearer(ro role, kind byte, value []byte) {
	field, ok := unpricedFields[ro]
	if !ok || kind == 'n' {
		return
	}
	if kind == '"' {
		c.fast = c.fast || ro == reqSpeed && string(value) == "fast"
		c.flex = c.flex || ro == reqTier && string(value) == "flex"
		for _, plain := range plainValues[ro] {
			if strings.EqualFold(plain, string(value)) {
				return
			}
		}
	}
	c.Unpriced = field
	if ro == reqFallbacks {
		c.elsewhere(field)
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

// finishPrice notes what only the whole request shows.
func (c *Call) finishPrice() {
	switch {
	case c.Unpriced != "":
	// dearer than text, where there is any
	case c.Media[Audio].Count > 0, c.sound, c.sounds > 0 && c.provider.videoFee:
		c.Unpriced = feeAudio
	case slices.ContainsFunc(c.provider.searches, func(name string) bool {
		return strings.Contains(bareModel(c.Model), name)
	}):
		c.Unpriced = feeModel
	}
}
