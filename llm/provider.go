package llm

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/pattern"
)

// provider is what is known of one provider: a value in a file of its own, such as openai.go. Only
// those files, and the list below, name providers; everything else asks the value.
//
// A provider whose API is like another one's is a copy of that value, with what differs: see
// [provider.like].
type provider struct {
	name    string
	profile func() *Profile // its numbers: a new copy each time, without a name

	// How it is called.
	url       string   // of its API
	bases     []string // with which the paths of its SDKs begin, such as "/v1"
	keyHeader string   // has its key; "" means Authorization, with "Bearer"
	// private are headers of requests that callers may not choose, beside the profile's
	// OwnerHeaders. They are kept from all providers.
	private []string
	// param reports whether a parameter of a query may not be passed on: it has a key, says whose
	// quota is used, or makes the answer tell less than its usage. nil means that there is none.
	param func(name string) bool

	// Requests.
	calls   calls                            // the paths of calls that count
	sdkPath func(path string) bool           // guesses that its SDKs make a call; nil: another provider's are used
	paths   forms                            // of its documentation
	known   *known                           // nil: only what request names is known
	request func(*known) *node               // where a request has what matters, beside what is known
	bodies  map[Operation]func(*known) *node // the same for operations whose requests are unlike the others
	// implied are the models of calls that name none.
	implied map[Operation]string
	// uncounted are calls that no quota counts, of which refusals say why, behind one of
	// otherBases, the longest first.
	uncounted  []uncounted
	otherBases []string
	// storedCalls are those for what an account has stored, behind otherBases.
	storedCalls []storedCall
	// cached returns what calls have in common that the provider's cache serves together: see
	// [Call.CacheName]. nil: nothing says that.
	cached func(body []byte) []byte
	// perInput says that each text of a batch of embeddings counts as a request.
	perInput bool
	// atStart returns the tokens that a call counts when it starts: it never counts fewer, whatever
	// it uses. nil: it counts its input and output.
	atStart func(*Call) int64

	// What prices do not cover.
	plain    map[role][]string // values at the price of the table: see unpricedFields
	searches []string          // are in the names of models that search for a fee
	dearer   []string          // begin the names of models that cost more than their family
	free     []string          // begin the names of models whose moderations cost nothing
	images   *imageTable       // nil: it publishes nothing of that
	perImage []string          // begin the names of models that cost by the image, and have no tokens
	videoFee bool              // media that may have sound cost more

	// Answers.
	response       func() *node // where a response, or an event of a stream, has what matters
	lastEvents     []string     // types of events that end a stream
	finishEnds     bool         // the reason why an answer is over ends a stream
	streamed       streamed     // when a stream tells its usage
	askUsage       bool         // which it does only if stream_options of the request asks for it
	cacheApart     bool         // its input is without what was read from and written to a cache
	reasoningApart bool         // its output is without the reasoning

	// Errors and limits.
	limits       []limitHeader
	quotaHeaders []string       // begin the names of other headers about the account's quota
	errorStatus  map[string]int // of an error's type, code or status
	// refusal says what an error means. What does not depend on the provider is in r already.
	refusal func(p *Profile, r *Refusal, e *errorBody, h http.Header, now time.Time)
	// otherPool reports whether a refusal of a limit is for a pool apart from what is counted, as
	// the call's speed or tier has one. nil means that there is none.
	otherPool func(c *Call, r *Refusal) bool
	errors    providerErrors // its words for ours
	errorBody func(e *providerError, message string, retryAfter time.Duration) any
	errorType string // the Content-Type of errors; "" means JSON
	events    bool   // events of its streams have names
	// accountHeaders name the account in answers, and account is the same in errors: parts of a
	// regular expression.
	accountHeaders, account []string
}

// providers are those that have a value here.
var providers = []*provider{
	openAI, anthropic, gemini, xai, mistral, deepSeek, groq, together, vllm, ollama,
}

// streamed says which usage that a stream tells is final, which means that it is the whole call's.
// In a document it always is. For what is settled otherwise see [Profile.Settlement].
type streamed uint8

const (
	// streamedLast: what no text follows, if all answers are over. Some servers tell the numbers so
	// far in every chunk.
	streamedLast streamed = iota
	// streamedOver: what is told with or after the end of an answer: its reason, or one of
	// lastEvents. What is told before is provisional.
	streamedOver
	// streamedSoFar: every piece tells the numbers so far, without those that are 0; final is what
	// is told when all answers are over.
	streamedSoFar
	// streamedOnce: whatever is told.
	streamedOnce
)

// like returns a copy of v for a provider with a similar API: change sets what differs. It replaces
// lists and maps; it must not change those that v has.
//
// The copy calls, reads, counts and refuses as v does: known, atStart, askUsage, streamed and
// errorStatus are v's until change sets them, and a field that v knows and this provider lacks may
// lower an estimate. Not inherited is what is v's alone, and who
// wants it names it: its models and what is special about some of them, its headers of requests and
// of accounts, its pools, and sdkPath, as the paths tell v.
func (v *provider) like(name, url string, profile func() *Profile, change func(*provider)) *provider {
	other := *v
	other.name, other.url, other.profile = name, url, profile
	other.sdkPath, other.otherPool = nil, nil
	other.private, other.accountHeaders, other.account, other.quotaHeaders = nil, nil, nil, nil
	other.searches, other.dearer, other.plain, other.lastEvents = nil, nil, nil, nil
	other.free, other.perImage, other.implied, other.images = nil, nil, nil, nil
	other.uncounted, other.otherBases, other.bodies, other.storedCalls = nil, nil, nil, nil
	change(&other)
	return &other
}

// newProfile returns a profile of the provider.
func (v *provider) newProfile() *Profile {
	p := v.profile()
	p.Name, p.provider, p.location = v.name, v, loadZone(p.ResetZone)
	p.request, p.response = v.request(v.known), v.response()
	for op, body := range v.bodies {
		if p.bodies == nil {
			p.bodies = map[Operation]*node{}
		}
		p.bodies[op] = body(v.known)
	}
	return p
}

// byName returns a provider, or nil.
func byName(name string) *provider {
	if i := slices.IndexFunc(providers, func(v *provider) bool { return v.name == name }); i >= 0 {
		return providers[i]
	}
	return nil
}

// all returns what the providers have in a list, without repetitions. Many servers speak several
// protocols, or pass on what another provider says.
func all(list func(*provider) []string) (whole []string) {
	for _, v := range providers {
		for _, s := range list(v) {
			if !slices.Contains(whole, s) {
				whole = append(whole, s)
			}
		}
	}
	return whole
}

// Profiles returns the profiles of all providers that have one. For others see [NewGeneric].
func Profiles() (list []*Profile) {
	for _, v := range providers {
		list = append(list, v.newProfile())
	}
	return list
}

// Names returns the names of the profiles: "openai", "anthropic" and so on.
func Names() (names []string) {
	for _, v := range providers {
		names = append(names, v.name)
	}
	return names
}

// ByName returns the profile of a name.
func ByName(name string) (*Profile, bool) {
	if v := byName(name); v != nil {
		return v.newProfile(), true
	}
	return nil, false
}

// ByPath guesses from the path of a call which provider's SDK makes it.
func ByPath(path string) (*Profile, bool) {
	for _, v := range slices.Backward(providers) {
		if v.sdkPath != nil && v.sdkPath(path) {
			return v.newProfile(), true
		}
	}
	return nil, false
}

// Address returns the URL of a provider's API, by the name of its profile; "" if there is none.
func Address(name string) string {
	if v := byName(name); v != nil {
		return v.url
	}
	return ""
}

// Bases returns with what the paths of a provider's SDKs begin, such as "/v1", by the name of its
// profile.
func Bases(name string) []string {
	if v := byName(name); v != nil {
		return slices.Clone(v.bases)
	}
	return nil
}

// KeyHeader returns the header in which the provider wants its key.
func (p *Profile) KeyHeader() string { return p.provider.key() }

func (v *provider) key() string { return cmp.Or(v.keyHeader, "Authorization") }

// KeyHeaders returns the headers in which providers want their keys.
func KeyHeaders() []string { return all(func(v *provider) []string { return []string{v.key()} }) }

// PrivateHeaders returns the headers of requests that callers who share an account may not choose:
// they say whose quota is used, or let a call do something else than its path and body say.
func PrivateHeaders() []string {
	return all(func(v *provider) (names []string) {
		for _, name := range v.profile().OwnerHeaders {
			names = append(names, http.CanonicalHeaderKey(name))
		}
		return append(names, v.private...)
	})
}

// PrivateParam reports whether callers who share an account may not choose a parameter of a call's
// query: it has a key, says whose quota is used, or changes how the call is read.
func (p *Profile) PrivateParam(name string) bool {
	return p.provider.param != nil && p.provider.param(name)
}

// AccountHeaders returns the headers of answers that name the account.
func AccountHeaders() []string {
	return all(func(v *provider) []string { return v.accountHeaders })
}

// accounts are the names of an account in errors.
var accounts = pattern.New(strings.Join(all(func(v *provider) []string { return v.account }), "|"))

// WithoutAccount returns the body of an error without the names of the account of which it speaks.
// Callers share that, and need not know it.
func WithoutAccount(body []byte, header http.Header) []byte {
	const hidden = "(account)"
	body = accounts().ReplaceAll(body, []byte(hidden))
	for _, name := range AccountHeaders() {
		if v := header.Get(name); len(v) >= 4 {
			body = bytes.ReplaceAll(body, []byte(v), []byte(hidden))
		}
	}
	return body
}
