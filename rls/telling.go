package rls

import (
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Keys of the dynamic metadata of an answer. All but the last two are those of
// envoyproxy/ratelimit.
const (
	metaDomain      = "domain"
	metaDescriptors = "descriptors"
	metaEntries     = "entries"
	metaHits        = "hitsAddend"
	metaQuota       = "quotaModeEnabled"
	metaViolations  = "quotaModeViolations"
	metaFallback    = "fallback" // true: decided without the store
	metaShadow      = "shadow"   // policies in shadow that differ: {policy, divergence}
)

// tellMetadata adds dynamic metadata: the files' metadata for descriptors that pass, what was
// decided without the store and, if requested, the request.
func (c *call) tellMetadata(r *ratelimit.RateLimitResponse) {
	if c.s.opts.Metadata {
		c.tellFields(r, c.described())
	}
	if c.fallback {
		c.tellFields(r, map[string]*structpb.Value{metaFallback: structpb.NewBoolValue(true)})
	}
	for i := range c.parts {
		p := &c.parts[i]
		if p.rule != nil && p.rule.metadata != nil && !p.refusedAlone() && !c.refused {
			c.tellFields(r, p.rule.metadata.GetFields())
		}
	}
}

// tellFields adds fields to the metadata. Existing fields stay.
func (c *call) tellFields(r *ratelimit.RateLimitResponse, fields map[string]*structpb.Value) {
	if r.DynamicMetadata == nil {
		r.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
	}
	for name, value := range fields {
		if _, earlier := r.DynamicMetadata.Fields[name]; !earlier {
			r.DynamicMetadata.Fields[name] = value
		}
	}
}

// described returns the request, and the state of quotas and shadows.
func (c *call) described() map[string]*structpb.Value {
	fields := map[string]*structpb.Value{metaDomain: text(c.request.GetDomain())}
	descriptors, violations := &structpb.ListValue{}, &structpb.ListValue{}
	quota := false
	for i := range c.parts {
		p := &c.parts[i]
		entries := &structpb.ListValue{}
		for _, e := range p.entries {
			entries.Values = append(entries.Values, text(e.GetKey()+"="+e.GetValue()))
		}
		descriptors.Values = append(descriptors.Values, structpb.NewStructValue(&structpb.Struct{
			Fields: map[string]*structpb.Value{metaEntries: structpb.NewListValue(entries)},
		}))
		if p.quota() {
			quota = true
			if p.refusedAlone() {
				violations.Values = append(violations.Values, structpb.NewNumberValue(float64(i)))
			}
		}
	}
	fields[metaDescriptors] = structpb.NewListValue(descriptors)
	fields[metaQuota] = structpb.NewBoolValue(quota)
	if len(violations.Values) > 0 {
		fields[metaViolations] = structpb.NewListValue(violations)
	}
	if n := c.request.GetHitsAddend(); n > 0 {
		fields[metaHits] = structpb.NewNumberValue(float64(n))
	}
	if len(c.diverged) > 0 {
		fields[metaShadow] = c.shadowList()
	}
	return fields
}

func (c *call) shadowList() *structpb.Value {
	list := &structpb.ListValue{}
	for _, d := range c.diverged {
		list.Values = append(list.Values, structpb.NewStructValue(&structpb.Struct{
			Fields: map[string]*structpb.Value{"policy": text(d.policy), "divergence": text(d.way)},
		}))
	}
	return structpb.NewListValue(list)
}

// text returns a text value. Invalid UTF-8 would make the answer unreadable.
func text(s string) *structpb.Value { return structpb.NewStringValue(strings.ToValidUTF8(s, "\uFFFD")) }
