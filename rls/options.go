package rls

import (
	"log/slog"

	"google.golang.org/grpc/codes"

	"github.com/drawgate/drawgate"
)

// MaxDescriptors is the most descriptors of a request. A request with more is refused as invalid,
// as is one of which more than [drawgate.MaxBuckets] buckets are asked at once.
const MaxDescriptors = 64

// ReportKey is an entry that says of its descriptor, wherever it stands in it, that the hits were
// used already: they are counted even over the limit. The entry takes no part in matching, whatever
// its value.
const ReportKey = "drawgate.report"

// Headers says which headers an answer asks the proxy to add to its response.
type Headers uint8

const (
	// HeadersRetryAfter is Retry-After, in whole seconds, on a refusal that waiting can end. The
	// other ways have it too.
	HeadersRetryAfter Headers = iota
	// HeadersNone adds none.
	HeadersNone
	// HeadersLegacy adds what envoyproxy/ratelimit adds with LIMIT_RESPONSE_HEADERS_ENABLED:
	// RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset, of the limit with the least
	// remaining. Names in [Options] replace these.
	HeadersLegacy
	// HeadersDraft adds RateLimit and RateLimit-Policy of the limits that decided, as package
	// httplimit does.
	HeadersDraft
)

// Reports says which hits were used already when they are told, and are counted even over the
// limit.
type Reports uint8

const (
	// ReportMarked takes those of descriptors with an entry [ReportKey] for reports.
	ReportMarked Reports = iota
	// ReportOwnHits takes those of descriptors with a hits_addend of their own that is over 0 for
	// reports too. It is for proxies that ask with 0 hits first, and tell what was used when the
	// response has passed.
	ReportOwnHits
)

// Options holds what a Service can do without. The zero value is ready to use.
type Options struct {
	Config *Config // domains with trees of their own; nil: the engine's rules decide alone. [Service.Use] replaces it

	Tenant  string  // part of all keys of Config's limits; "": the engine's own. Rules name their own
	Refunds bool    // is_negative_hits gives units back: an exception of the promise, because nobody can tell whether they were taken (docs/semantics.md)
	Reports Reports // whose hits are counted even over the limit
	// StoreErrors answers UNAVAILABLE where a fallback decided because the store is unavailable, as
	// envoyproxy/ratelimit does: Envoy's failure_mode_deny then says what happens. Otherwise the
	// fallback's decision is the answer.
	StoreErrors bool
	Shadow      bool // everything is decided and told per descriptor, and every answer is OK, with SHADOW_MODE's meaning

	Headers         Headers
	LimitHeader     string // with HeadersLegacy: "" means RateLimit-Limit
	RemainingHeader string // "" means RateLimit-Remaining
	ResetHeader     string // "" means RateLimit-Reset
	Metadata        bool   // answers describe the request in dynamic_metadata, as with RESPONSE_DYNAMIC_METADATA
	ShadowHeader    bool   // X-RateLimit-Shadow names the policies in shadow that differ, and how: the proxy's callers see it

	Logger *slog.Logger // nil discards; what fails is logged, at most once in 10 s

	// Undecided is told of each request that is answered with an error, or would be but for Shadow:
	// of its code. Envoy then decides by its failure_mode_deny. It may be called by several
	// goroutines at once. nil: nobody is told.
	Undecided func(code codes.Code)
}

// MaxHits is the most hits of one descriptor. More are taken for as many.
const MaxHits = drawgate.MaxAmount
