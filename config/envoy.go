package config

import "github.com/drawgate/drawgate/engine"

// Envoy configures the rate limit service for Envoy.
type Envoy struct {
	Configs []string // files and directories in the format of envoyproxy/ratelimit
	Merge   bool     // a file may add to a domain of another file
	Aligned bool     // windows follow the clock as with envoyproxy/ratelimit, instead of rolling
	Leased  bool     // processes take units of Configs' rates ahead
	Refunds bool     // hits can be given back, so the limit is no longer a guarantee
	Errors  bool     // while the store is unavailable requests get an error instead of the fallback's decision

	Shadow  bool         // everything is decided and counted, and every answer is OK
	OwnHits bool         // hits of a single descriptor report what was used already
	Headers EnvoyHeaders // which headers answers ask for
	// Names for those of EnvoyLegacy; "" means the name that envoyproxy/ratelimit has.
	LimitHeader, RemainingHeader, ResetHeader string
	ShadowHeader                              bool // answers tell Envoy's clients which policies in shadow differ
	Metadata                                  bool // answers describe the request in dynamic metadata

	// Policies are the rates of Configs. The code that serves Envoy reads them with package rls,
	// and the engine has them in addition to the policies of the file.
	Policies []engine.Policy
}

// EnvoyHeaders says which headers an answer asks Envoy to add.
type EnvoyHeaders string

// The possible values. "" means EnvoyRetryAfter.
const (
	EnvoyRetryAfter EnvoyHeaders = "retry-after" // Retry-After alone, on refusals; the other ways have it as well
	EnvoyNone       EnvoyHeaders = "none"
	EnvoyLegacy     EnvoyHeaders = "legacy" // RateLimit-Limit, -Remaining and -Reset, as envoyproxy/ratelimit has them
	EnvoyX          EnvoyHeaders = "x"      // X-RateLimit-Limit, -Remaining and -Reset
	EnvoyDraft      EnvoyHeaders = "draft"  // RateLimit and RateLimit-Policy
)

const maxConfigs = 100

var envoySection = &section[Envoy]{name: "envoy", what: "envoy", noted: "envoy", settings: (*Envoy).settings}

func (v *Envoy) settings() []setting {
	headers := words(EnvoyRetryAfter, EnvoyNone, EnvoyLegacy, EnvoyX, EnvoyDraft)
	return []setting{
		{
			"configs", oneOrMore(asText, maxConfigs).to(&v.Configs), "none: the rules decide",
			"files in the format of envoyproxy/ratelimit, or directories of such files, including subdirectories",
		},
		{"merge", asFlag.to(&v.Merge), no, "a file may add to the domain of another file"},
		{"windows", either("rolling", "aligned").to(&v.Aligned), "`rolling`", "`rolling`: the last minute, so that " +
			"no minute has more; `aligned`: from one full minute to the next, as in envoyproxy/ratelimit"},
		{"leased", asFlag.to(&v.Leased), no, "processes take units of the files' rates from the store ahead, and decide " +
			"with these by themselves: as `leased` of a [policy](#leased), where a rate is large enough"},
		{"refunds", asFlag.to(&v.Refunds), no, "hits can be given back. They carry no id, so a limit may be exceeded " +
			"by the amount given back"},
		{"on_store_failure", either("fallback", "error").to(&v.Errors), "`fallback`", "what answers while the store " +
			"is unavailable: the [fallback](fallback.md) of each limit (`fallback`), or an error (`error`), as " +
			"envoyproxy/ratelimit does, so that Envoy's `failure_mode_deny` decides"},
		{"shadow", asFlag.to(&v.Shadow), no, "everything is decided and counted, and every answer is OK"},
		{"reports", either("marked", "own-hits").to(&v.OwnHits), "`marked`", "which hits report past use, and count " +
			"even beyond the limit: those of `marked` descriptors; or, with `own-hits`, also those of descriptors " +
			"with hits of their own"},
		{"headers", headers.to(&v.Headers), "`retry-after`", "which headers answers ask Envoy to add: `retry-after`, " +
			"`none`, `legacy` (RateLimit-Limit …), `x` (X-RateLimit-Limit …), `draft` (RateLimit, RateLimit-Policy)"},
		{"limit_header", asHeader.to(&v.LimitHeader), "`RateLimit-Limit`", "with `headers: legacy`: another name for " +
			"that header"},
		{"remaining_header", asHeader.to(&v.RemainingHeader), "`RateLimit-Remaining`", "with `headers: legacy`: " +
			"another name for that header"},
		{"reset_header", asHeader.to(&v.ResetHeader), "`RateLimit-Reset`", "with `headers: legacy`: another name for " +
			"that header"},
		{"shadow_header", asFlag.to(&v.ShadowHeader), no, "`X-RateLimit-Shadow` tells Envoy's clients which policies " +
			"in shadow differ"},
		{"metadata", asFlag.to(&v.Metadata), no, "answers describe the request in dynamic metadata"},
	}
}
