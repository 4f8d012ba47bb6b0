package config

import "github.com/drawgate/drawgate/engine"

// Envoy configures the rate limit service for Envoy.
type Envoy struct {
	Configs []string // files and directories in the format of envoyproxy/ratelimit
	Merge   bool     // a file may add to a domain of another file
	Aligned bool     // windows follow the clock as with envoyproxy/ratelimit, instead of rolling
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

var envoyHeaders = []string{string(EnvoyRetryAfter), string(EnvoyNone), string(EnvoyLegacy), string(EnvoyX), string(EnvoyDraft)}

const maxConfigs = 100

func (d *decoder) envoy(e entry) {
	d.settings(e.value, "envoy", "envoy", d.config.Envoy.settings(d))
}

func (v *Envoy) settings(d *decoder) []setting {
	return []setting{
		{"configs", func(e entry) {
			d.texts(e, maxConfigs, func(e entry) {
				if path, ok := d.text(e); ok {
					v.Configs = append(v.Configs, path)
				}
			})
		}, texts(v.Configs)},
		{"merge", func(e entry) { v.Merge = d.boolean(e) }, flagNode(v.Merge)},
		{"windows", func(e entry) { v.Aligned = d.oneOf(e, "rolling", "aligned") == "aligned" }, wordNode(v.Aligned, "aligned")},
		{"refunds", func(e entry) { v.Refunds = d.boolean(e) }, flagNode(v.Refunds)},
		{"on_store_failure", func(e entry) { v.Errors = d.oneOf(e, "fallback", "error") == "error" }, wordNode(v.Errors, "error")},
		{"shadow", func(e entry) { v.Shadow = d.boolean(e) }, flagNode(v.Shadow)},
		{"reports", func(e entry) { v.OwnHits = d.oneOf(e, "marked", "own-hits") == "own-hits" }, wordNode(v.OwnHits, "own-hits")},
		{"headers", func(e entry) { v.Headers = EnvoyHeaders(d.oneOf(e, envoyHeaders...)) }, textNode(v.Headers)},
		{"limit_header", func(e entry) { v.LimitHeader = d.header(e) }, textNode(v.LimitHeader)},
		{"remaining_header", func(e entry) { v.RemainingHeader = d.header(e) }, textNode(v.RemainingHeader)},
		{"reset_header", func(e entry) { v.ResetHeader = d.header(e) }, textNode(v.ResetHeader)},
		{"shadow_header", func(e entry) { v.ShadowHeader = d.boolean(e) }, flagNode(v.ShadowHeader)},
		{"metadata", func(e entry) { v.Metadata = d.boolean(e) }, flagNode(v.Metadata)},
	}
}
