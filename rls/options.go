package rls

import (
	"log/slog"

	"google.golang.org/grpc/codes"

	"github.com/drawgate/drawgate"
)

// MaxDescriptors is the maximum number of descriptors in a request. A request with more is invalid,
// as is one that needs more than [store.MaxBuckets] buckets at once.
const MaxDescriptors = 64

// ReportKey is an entry that marks its descriptor's hits as already used: they are counted even
// over the limit. The entry may be anywhere in the descriptor, with any value, and is ignored in
// matching.
const ReportKey = "drawgate.report"

// Headers selects the headers that the proxy should add to its response.
type Headers uint8

const (
	// HeadersRetryAfter is Retry-After, in whole seconds, on a refusal that waiting can end. The
	// other choices, except HeadersNone, include it.
	HeadersRetryAfter Headers = iota
	// HeadersNone adds none.
	HeadersNone
	// HeadersLegacy adds the headers of envoyproxy/ratelimit with LIMIT_RESPONSE_HEADERS_ENABLED:
	// RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset, for the limit with the least
	// remaining. Names in [Options] replace these.
	HeadersLegacy
	// HeadersDraft adds RateLimit and RateLimit-Policy of the limits that decided, as package
	// httplimit does.
	HeadersDraft
)

// Reports determines which hits count as already used, and are therefore counted even over the
// limit.
type Reports uint8

const (
	// ReportMarked means those of descriptors with an entry [ReportKey].
	ReportMarked Reports = iota
	// ReportOwnHits also means those of descriptors with a positive hits_addend of their own. It is
	// for proxies that ask with 0 hits first, and report what was used after the response.
	ReportOwnHits
)

// Options holds the optional settings of a Service. The zero value is ready to use.
type Options struct {
	Config *Config // domains with their own trees; nil: only the engine's rules decide. [Service.Use] replaces it

	Tenant string // tenant of all keys of Config's limits; "": the engine's own. Rules name their own
	// is_negative_hits gives units back: an exception to the promise, because nobody can check
	// whether they were taken (docs/semantics.md)
	Refunds bool
	Reports Reports // which hits are counted even over the limit
	// StoreErrors answers UNAVAILABLE where a fallback decided because the store is unavailable, as
	// envoyproxy/ratelimit does: then Envoy's failure_mode_deny decides. Otherwise the fallback's
	// decision is the answer.
	StoreErrors bool
	Shadow      bool // everything is decided and reported per descriptor, but every answer is OK, as with SHADOW_MODE

	Headers         Headers
	LimitHeader     string // with HeadersLegacy: "" means RateLimit-Limit
	RemainingHeader string // "" means RateLimit-Remaining
	ResetHeader     string // "" means RateLimit-Reset
	Metadata        bool   // answers describe the request in dynamic_metadata, as with RESPONSE_DYNAMIC_METADATA
	// X-RateLimit-Shadow names the policies in shadow that differ, and how; the proxy's clients can
	// see it
	ShadowHeader bool

	Logger *slog.Logger // nil discards; failures are logged, at most one in 10 s

	// Class returns the class of a descriptor that rules decide, by its entries, one of which may
	// carry an API key; use the method ClassOf of a *config.Runtime. It is called if no entry is
	// named class. nil: there are no classes.
	Class func(entries map[string]string) string

	// Undecided receives the code of each request that is answered with an error, or would be
	// without Shadow. Envoy then decides by its failure_mode_deny. Several goroutines may call it
	// at once. It may be nil.
	Undecided func(code codes.Code)
}

// MaxHits is the maximum number of hits of one descriptor. A larger number counts as MaxHits.
const MaxHits = drawgate.MaxAmount
