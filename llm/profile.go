package llm

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"
)

// creditPause is how long a provider whose credit is exhausted is left alone. Its refusals cost
// nothing, so that one call in this time finds out soon whether somebody has paid; official clients
// would ask twice more at once.
const creditPause = 5 * time.Minute

// Profile is what Drawgate knows of one provider. The functions that return one make a copy, whose
// fields may be set before it is used; after that it is safe for concurrent use.
type Profile struct {
	Name string
	// Units are what the provider's quotas count, in the order in which Admission names them:
	// requests, tokens, input_tokens, output_tokens or images. A unit may be removed or added.
	Units []string
	// Families are groups of models that share their limits, and what is known of them. The longest
	// prefix of a model's name decides. A model of no family is a family of its own.
	Families []Family
	// Default holds for models of no family, and for whatever a family leaves at 0.
	Default Family
	// CountOther counts calls of OpOther as requests.
	CountOther bool
	// FailedInput says that the input of a call that failed counts against the quota.
	FailedInput bool
	// OutputAtStart says that the provider counts the largest possible output when a call starts,
	// as OpenAI does, and Anthropic did until 2025: then no reservation is less. If false, it
	// counts what is produced. What stays counted when the call is over says Settlement.
	OutputAtStart bool
	// OwnerHeaders are the headers of a request that name whose quota it uses. If a call has none
	// of them, the owner follows from its key, and has to be configured.
	OwnerHeaders []string
	// ResetZone is the time zone of the provider's days: an IANA name.
	ResetZone string
	// CreditPause is how long to leave a provider alone whose credit is exhausted: 5 minutes unless
	// it is set. Nothing says when somebody pays; 0 means that only an operator ends it.
	CreditPause time.Duration
	// MinutePause holds for a refusal by a limit per minute that says nothing of its end.
	MinutePause time.Duration
	// ClientMaxWait is the longest Retry-After that the provider's own clients wait out; 0 means
	// any. A longer one would only make them come back too early, so they are told not to retry.
	ClientMaxWait time.Duration
	// Overhead is what a prompt has in addition to its text.
	Overhead Overhead
	// Correction multiplies the likely number of tokens of text before anything is learned: for
	// tokenizers that nobody outside the provider can measure.
	Correction float64
	// LeastRatio bounds how far what is learned lowers the likely number of tokens, whoever calls:
	// 0.7 is a part of 0.7. 0 means that nothing lowers it.
	LeastRatio float64
	// Most are weights of which texts have no more tokens, whatever they are; nil: only their bytes
	// bound them. A call whose prompt the provider did not tell is settled by them.
	Most *Weights
	// Tokenizer counts a text's tokens exactly; nil means that there is none. It must not keep the
	// text, and must be safe for concurrent use. A result of less than 1 for a text is not
	// believed.
	Tokenizer func(model, text string) int

	location *time.Location // of ResetZone, as it was at first
	provider *provider
	request  *node
	bodies   map[Operation]*node // in the place of request
	response *node
}

// Family is a group of models that share their limits. A 0 means the profile's default.
type Family struct {
	Name     string   // such as "claude-opus-4"; "": each of its models is a family of its own
	Prefixes []string // of the models' names

	Context   int64 // largest number of tokens of a prompt
	MaxOutput int64 // largest number of tokens of one answer, if the call does not say
	// CacheReads says that tokens that were read from a cache count as input tokens.
	CacheReads bool
	// Images, Audio, Video and Files bound the tokens of one input whose size is not known, or does
	// not follow from its bytes.
	Images, Audio, Video, Files int64
	// Weights are the tokenizer's; nil means the profile's default.
	Weights *Weights
	// Reasons says whether its models make output that is billed and not shown.
	Reasons Reasoning
}

// Reasoning says when models make output that is billed and not shown, or only in a summary.
type Reasoning uint8

// When models reason. The zero value holds for every model of which nothing else is known.
const (
	ReasonsAlways Reasoning = iota
	ReasonsAsked            // if the call asks for it, as Anthropic's do
	ReasonsNever
)

// Overhead is what a prompt has in addition to its text, in tokens. The bounds are for
// [Profile.Upper], the others for [Estimator.Likely].
type Overhead struct {
	Call, CallBound       int64 // per call
	Message, MessageBound int64 // per message
	Tool, ToolBound       int64 // per tool, in addition to the text of its definition
	Tools, ToolsBound     int64 // once, if there is any tool
	Search                int64 // per tool that puts results into the prompt
	Image                 int64 // per image
	AudioBytes            int64 // bytes of an audio input per token
	VideoBytes            int64 // bytes of a video input per token
	FileBytes             int64 // bytes of a file per token
}

// Family returns what is known of a model, with the profile's defaults filled in. Its Name is the
// model's if it belongs to no family.
func (p *Profile) Family(model string) Family {
	model = bareModel(model)
	var best Family
	longest, at := -1, 0
	for i := range p.Families { // copying each takes longer than looking at it
		for _, prefix := range p.Families[i].Prefixes {
			if len(prefix) > longest && strings.HasPrefix(model, prefix) {
				longest, at = len(prefix), i
			}
		}
	}
	if longest >= 0 {
		best = p.Families[at]
	}
	d := &p.Default
	if longest < 0 {
		best.Reasons = d.Reasons
	}
	best.Name = cmp.Or(best.Name, model)
	best.CacheReads = best.CacheReads || d.CacheReads
	for _, v := range []struct {
		n    *int64
		from int64
	}{
		{&best.Context, d.Context},
		{&best.MaxOutput, d.MaxOutput},
		{&best.Images, d.Images},
		{&best.Audio, d.Audio},
		{&best.Video, d.Video},
		{&best.Files, d.Files},
	} {
		if *v.n == 0 {
			*v.n = v.from
		}
	}
	if best.Weights == nil {
		best.Weights = d.Weights
	}
	if best.Weights == nil {
		best.Weights = O200k()
	}
	return best
}

// Knows reports whether a model is of a family of the profile. The provider may have others.
func (p *Profile) Knows(model string) bool {
	model = bareModel(model)
	return slices.ContainsFunc(p.Families, func(f Family) bool {
		return slices.ContainsFunc(f.Prefixes, func(prefix string) bool { return strings.HasPrefix(model, prefix) })
	})
}

// bareModel removes what names a model's place: models/gemini-2.5-pro is gemini-2.5-pro, and
// ft:gpt-4o:acme:x is gpt-4o.
func bareModel(model string) string {
	model = strings.TrimPrefix(model, "ft:")
	if i := strings.IndexByte(model, ':'); i >= 0 {
		model = model[:i]
	}
	return model[strings.LastIndexByte(model, '/')+1:]
}

// Counts reports whether an operation counts against the profile's quotas.
func (p *Profile) Counts(op Operation) bool {
	switch op {
	case OpOther:
		return p.CountOther
	case OpCountTokens:
		return false
	}
	return true
}

// MaxOutput returns the largest number of output tokens of all answers of a call: what it asks
// for, or the family's largest.
func (p *Profile) MaxOutput(c *Call) int64 {
	switch c.Operation {
	case OpOther, OpStored, OpCountTokens, OpEmbeddings, OpModerations:
		return 0
	case OpImages, OpImageEdits:
		return mul(p.imageTokens(c), c.Answers)
	}
	// Where reasoning alternates with calls of tools its budget may exceed max_tokens, and then
	// bounds the answer (platform.claude.com/docs, interleaved thinking).
	n := max(c.MaxOutput, c.budget)
	if c.MaxOutput < 0 || c.Unknown > 0 { // nobody knows what else says how long it may be
		f := p.Family(c.Model)
		n = max(n, f.MaxOutput)
	}
	return c.answers(n)
}

// answers returns the output of all answers of a call of which each has n tokens.
func (c *Call) answers(n int64) int64 {
	switch c.Operation {
	case OpOther, OpCountTokens, OpEmbeddings:
		return 0
	case OpCompletions: // each prompt has its own
		n = mul(n, max(1, c.Inputs))
	}
	return mul(n, c.Answers)
}

// mayHide reports whether a call may have output that its answer does not show: reasoning, answers
// of which only the best are returned or which come one after another, images, and what the model
// writes for tools of the provider. Unless the provider tells how much that is, its reservation
// stands.
func (c *Call) mayHide(reasons Reasoning) bool {
	return reasons == ReasonsAlways || reasons == ReasonsAsked && c.thinks || c.Answers > 1 ||
		c.Searches+c.Unknown > 0 || c.predicts || c.makesImages()
}

func (p *Profile) unit(name string) bool { return slices.Contains(p.Units, name) }

func (p *Profile) owner(h http.Header) string {
	var parts []string
	for _, name := range p.OwnerHeaders {
		if v := h.Get(name); v != "" && len(v) <= maxModel {
			parts = append(parts, v)
		}
	}
	return strings.Join(parts, "/")
}

// mul and add stay within what a cost may be. Negative numbers count as 0.
func mul(a, b int64) int64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	if a > maxAmount/b {
		return maxAmount
	}
	return a * b
}

func add(numbers ...int64) (sum int64) {
	for _, n := range numbers {
		sum = min(sum+min(max(n, 0), maxAmount), maxAmount)
	}
	return sum
}
