package llm

import "github.com/drawgate/drawgate"

const maxAmount = drawgate.MaxAmount

// Units that profiles count, in addition to [drawgate.UnitRequests].
const (
	UnitTokens       = "tokens"        // input and output together
	UnitInputTokens  = "input_tokens"  // of the prompt
	UnitOutputTokens = "output_tokens" // of the answer, reasoning included

	// What a call used, whatever the provider's limits count: see [Profile.Tokens].
	UnitPromptTokens = "prompt_tokens"
	UnitAnswerTokens = "answer_tokens"
	UnitImages       = "images" // that are made
	UnitBytes        = "bytes"  // that are stored: of the request
)

// Operation is what a call asks a provider for.
type Operation string

// The operations that profiles know. OpOther is everything else, such as listing models: it is
// passed on, and counted as a request only if [Profile.CountOther] says so.
const (
	OpOther          Operation = "other"
	OpChat           Operation = "chat"
	OpCompletions    Operation = "completions"
	OpResponses      Operation = "responses"
	OpEmbeddings     Operation = "embeddings"
	OpModerations    Operation = "moderations"
	OpImages         Operation = "images"
	OpImageEdits     Operation = "image_edits"
	OpStored         Operation = "stored" // for what an account has stored: see [Call.CountStored]
	OpMessages       Operation = "messages"
	OpCountTokens    Operation = "count_tokens" // of Anthropic and Gemini: free, with a limit of its own
	OpGenerate       Operation = "generateContent"
	OpStreamGenerate Operation = "streamGenerateContent"
	OpGeneric        Operation = "generic"
	maxModel                   = 256     // bytes of a model's name
	maxAnswers                 = 1 << 16 // choices of one call
	maxBody                    = 1 << 30 // bytes of a request body
)

// MediaKind is a kind of input that is not text.
type MediaKind uint8

// The kinds of media.
const (
	Image MediaKind = iota
	Audio
	Video
	File // such as a PDF
	numMedia
)

var mediaNames = [numMedia]string{"image", "audio", "video", "file"}

// String returns "image", "audio", "video" or "file".
func (k MediaKind) String() string {
	if k < numMedia {
		return mediaNames[k]
	}
	return "unknown"
}

// Media counts the inputs of one kind.
type Media struct {
	Count int64 // of all
	Named int64 // of those that the body only names, by an address or an id: their size is not known
	Bytes int64 // of the others, decoded
}

// Call is what a request asks a provider for, as far as it matters to quotas. It keeps nothing of
// the prompt. It is made by [Profile.Parse] and may be read by several goroutines.
type Call struct {
	Operation Operation
	Model     string // as the call names it; "" for OpOther
	// Other is another model that the body names beside the one of the path, which is Model; "" if
	// there is none.
	Other  string
	Family string // of models that share a limit: see Profile.Families
	Caller string // who makes the call, as far as its reader knows: an [Estimator] learns for each
	Owner  string // of the quota, by the profile's OwnerHeaders; "" if the call names none

	Stream       bool // the answer comes in pieces
	IncludeUsage bool // OpenAI's stream_options.include_usage: the stream will tell the usage
	Background   bool // the response only says that the answer will be made
	// Implied says that the call does not name Model: it is the one that the provider's
	// documentation gives such calls. See [Call.WithImplied].
	Implied bool

	// MaxOutput is the largest number of tokens of one answer, as the call says; -1 if it does not,
	// or says 0.
	MaxOutput int64
	Answers   int64 // how many are asked for, at least 1: n, candidateCount
	Inputs    int64 // texts of a list: of embeddings, of completions, items of responses; otherwise 0

	Messages int64 // in the prompt, at least 1
	Tools    int64 // tools that the model may use
	Text     Text  // of the prompt
	Schemas  Text  // of tools and of the answer's format
	Media    [4]Media
	// Hidden counts parts of the prompt that only the provider knows, such as a previous response,
	// a stored prompt or cached content. Their size is not known: an upper bound of a call that has
	// any is the model's whole context.
	Hidden int64
	// Reasonings counts items of reasoning that only the provider has: each has at most as many
	// tokens as the model's largest answer, of which it was a part.
	Reasonings int64
	// Searches counts tools that put results into the prompt at the provider's side, such as a
	// search of the web. They make the prompt longer than what is sent.
	Searches int64
	// Unknown counts what is not understood of the request. A call that has any reserves the most
	// that it can cost.
	Unknown int64
	// Unpriced names what the call asks for that costs more than [Prices] can say, such as
	// "service_tier"; "" if there is nothing.
	Unpriced string
	// Elsewhere names what may choose another model than Model, such as a fallback or a field that
	// is not known; "" if there is nothing.
	Elsewhere string
	// Stored is what the call refers to that the account has stored. Whose that is the provider
	// does not know: whoever serves several callers with one account has to.
	Stored []Stored
	// Unstored says that the provider is not to store the answer.
	Unstored bool
	// Exact is the number of tokens in Text and Schemas by [Profile.Tokenizer], or -1.
	Exact int64

	image imageOptions // of OpImages and OpImageEdits

	provider *provider
	unseen   bool  // its answer may have output that is not shown: see mayHide
	budget   int64 // of reasoning, which may be larger than MaxOutput
	thinks   bool  // asks for reasoning, where the model reasons only then
	predicts bool  // the answer may have had output that was predicted wrongly
	sound    bool  // it has audio
	sounds   int64 // inputs that may have audio
	fast     bool  // asks for a fast mode, which may have limits of its own
	flex     bool  // asks for a tier that also refuses calls when it has no capacity
	size     int   // of the body
	edit     edits // where the body says whether a stream tells its usage
}

// Estimate is how many tokens a call is expected to use. [Profile.Upper] and [Estimator.Likely]
// make it.
type Estimate struct {
	Input  int64 // tokens of the prompt, at least 1 for a call that has one
	Output int64 // the largest number of tokens of all answers together
	// Upper says that these are upper bounds: never of a call with Searches, nor of one that makes
	// images whose largest number of tokens nobody tells. See [Profile.Upper].
	Upper bool

	inputMost int64   // what Input is at most if the provider does not tell it; 0: Input
	likely    float64 // Input before the correction, of text alone
	fixed     float64 // Input of everything that is not text
}

// Usage is what a call has used, by the provider's word or, where that is missing, by what it has
// delivered.
type Usage struct {
	// Input is the number of all tokens of the prompt, those that were read from and written to a
	// cache included. InputKnown says that the provider told it.
	Input      int64
	InputKnown bool
	CacheRead  int64 // of Input: read from a cache
	CacheWrite int64 // of Input: written to a cache
	ImageInput int64 // of Input: images, as far as the provider tells
	// Output is the number of all tokens of the answers, reasoning included. Without the provider's
	// word it is an upper bound of what was delivered so far. OutputKnown says that the provider
	// told it; while Final is false it may still grow.
	Output      int64
	OutputKnown bool
	Reasoning   int64 // of Output, as far as the provider tells
	// Total is the provider's own sum, 0 if it tells none.
	Total int64
	// SoFar says that Output, before it is Final, is the provider's own count of all output so far,
	// hidden output included.
	SoFar bool
	// Final says that the provider told the usage of the whole call.
	Final bool
	// Ended says that the whole answer was read.
	Ended bool
	// Unread says that more of the answer may have come than was read: its reader paused, and then
	// left. What is not Final counts as the most that it can be.
	Unread bool
}
