package simulator

// TokenRule says what a provider charges in the dimension [Tokens].
type TokenRule string

// The rules for [Tokens].
const (
	// MaxOrEstimate charges the larger of the output that the request allows and its characters ÷ 4
	// at its arrival, and when the answer is complete what the true total has more.
	MaxOrEstimate TokenRule = "max_or_estimate"
	// Total charges the input at the arrival, and the output as it is produced.
	Total TokenRule = "total"
)

// OutputRule says what a provider charges in the dimension [OutputTokens].
type OutputRule string

// The rules for [OutputTokens].
const (
	// Produced charges output as it is produced. A call is refused only if nothing fits any more.
	Produced OutputRule = "produced"
	// MaxTokens charges the largest output that the request allows at its arrival, and corrects
	// that when the answer ends. What the request does not limit is charged as under [Produced].
	MaxTokens OutputRule = "max_tokens"
)

// Charging says what a provider counts, and when.
//
// Requests cost 1. InputTokens are all tokens of the input, but see CacheReads.
type Charging struct {
	Tokens TokenRule  `json:"tokens"`
	Output OutputRule `json:"output"`
	// CacheReads says that input that was read from a cache counts too.
	CacheReads bool `json:"cache_reads"`
	// Failed says that a request that fails counts: as one request if it is invalid or is refused
	// for another reason than a quota, and in full if it fails after it was admitted.
	Failed bool `json:"failed"`
	// Refused says that even a request that a quota refuses counts as one, against limits shorter
	// than a day.
	Refused bool `json:"refused"`
}

// DefaultCharging returns what a provider counts, by the stricter reading where its documents leave
// something open.
func DefaultCharging(p Provider) Charging {
	if d := dialectOf(p); d != nil {
		return d.charging
	}
	return usualCharging
}

// usualCharging counts input, and output as it is produced; a request that fails counts.
var usualCharging = Charging{Tokens: Total, Output: Produced, CacheReads: true, Failed: true}

// charactersPerToken is OpenAI's estimate.
const charactersPerToken = 4

// admission returns what a request is charged at its arrival, and what must fit for that.
func (c Charging) admission(q *request) (charge, need Amounts) {
	charge = Amounts{Requests: 1, InputTokens: q.input, Images: q.images.images}
	if !c.CacheReads {
		charge.InputTokens -= q.cacheRead
	}
	charge.Tokens = charge.InputTokens
	if c.Tokens == MaxOrEstimate {
		charge.Tokens = max(q.maxTotal(), (q.characters+charactersPerToken-1)/charactersPerToken)
	}
	if c.Output == MaxTokens {
		charge.OutputTokens = q.maxTotal()
	}
	need = charge
	if q.generates {
		need.OutputTokens = max(1, need.OutputTokens)
	}
	return charge, need
}

// produced returns what n more tokens of output are charged.
func (c Charging) produced(q *request, n int64) (charge Amounts) {
	if c.Output == Produced || q.maxTokens == 0 {
		charge.OutputTokens = n
	}
	if c.Tokens == Total {
		charge.Tokens = n
	}
	return charge
}

// completed returns what is charged when an answer ends after so many tokens of output, and what of
// the admission's charge is given back.
func (c Charging) completed(q *request, admitted Amounts, output int64) (more, back Amounts) {
	if c.Tokens == MaxOrEstimate {
		more.Tokens = max(0, q.input+output-admitted.Tokens)
	}
	if c.Output == MaxTokens && q.maxTokens > 0 {
		more.OutputTokens = max(0, output-admitted.OutputTokens) // only a fault exceeds the bound
		back.OutputTokens = max(0, admitted.OutputTokens-output)
	}
	return more, back
}
