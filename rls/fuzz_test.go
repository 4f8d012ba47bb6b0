package rls_test

import (
	"errors"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/rls"
	"github.com/drawgate/drawgate/store/memstore"
)

const fuzzed = `
domain: d
descriptors:
  - {key: a, rate_limit: {name: n, unit: hour, requests_per_unit: 3}}
  - {key: b, rate_limit: {unit: day, requests_per_unit: 1}, descriptors: [{key: c, value: x*, rate_limit: {unit: minute, requests_per_unit: 2, replaces: [{name: n}]}}]}
  - {key: b, value: z*, share_threshold: true, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: q, quota_mode: true, metadata: {q: 1}, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: r, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: s, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: u, rate_limit: {unlimited: true}}
  - {key: z, rate_limit: {unit: hour}}
`

// FuzzShouldRateLimit sends arbitrary messages: none may panic, every answer has a status for each
// descriptor and can be written, and one that refuses has spent nothing, in whatever bucket.
func FuzzShouldRateLimit(f *testing.F) {
	carrying := descriptor("a=1")
	carrying.Limit = limitOf(f, "HOUR", 2)
	for _, r := range []*ratelimit.RateLimitRequest{
		request("d", descriptor("a=1")),
		request("d", descriptor("a=1"), descriptor("b=1"), descriptor("q=1"), descriptor("r=1"), descriptor("s=1"),
			descriptor("u=1"), descriptor("z=1")),
		request("d", hits(descriptor("a=1"), 5), descriptor("b=1,c=xx"), descriptor("b=zz")),
		request("d", hits(descriptor("a=1"), 0), carrying, hits(descriptor("q=1"), 0), descriptor("r=1")),
		request("d", negative(descriptor("a=1"), 1), hits(descriptor("a=1,"+rls.ReportKey+"=1"), 9)),
		request("native", descriptor("user=x"), hits(descriptor("user=y"), 0), hits(descriptor("user=z"), 7)),
		request("", descriptor("a=1")), request("d"),
	} {
		data, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	c := config(f, fuzzed)
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &ratelimit.RateLimitRequest{}
		if proto.Unmarshal(data, r) != nil {
			return
		}
		store := memstore.New(nil)
		defer store.Close()
		e, err := engine.New(store, engine.Config{
			Policies: append(c.Policies(), hourly("per-user", 2)),
			Rules: []rules.Rule{{
				Match: rules.Match{Attrs: map[string]string{"user": "*"}},
				Apply: []rules.Apply{{Policy: "per-user", Key: "user"}},
			}},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		s := rls.New(e, &rls.Options{
			Config: c, Refunds: true, Metadata: true, Headers: rls.HeadersDraft,
			ShadowHeader: true,
		})
		for range 4 {
			before := used(t, e, c, r)
			a, err := s.ShouldRateLimit(t.Context(), r)
			if err != nil {
				continue
			}
			if len(a.GetStatuses()) != len(r.GetDescriptors()) {
				t.Fatalf("%d statuses of %d descriptors", len(a.GetStatuses()), len(r.GetDescriptors()))
			}
			if _, err := proto.Marshal(a); err != nil {
				t.Fatalf("the answer cannot be written: %v", err)
			}
			if a.GetOverallCode() == over && !afterTheFact(r) {
				for key, n := range used(t, e, c, r) {
					if n != before[key] {
						t.Errorf("a refusal took bucket %v from %d to %d used", key, before[key], n)
					}
				}
			}
		}
	})
}

// afterTheFact reports whether a request tells of what has happened: that counts, refused or not.
func afterTheFact(r *ratelimit.RateLimitRequest) bool {
	for _, d := range r.GetDescriptors() {
		if d.GetIsNegativeHits() {
			return true
		}
		for _, e := range d.GetEntries() {
			if e.GetKey() == rls.ReportKey {
				return true
			}
		}
	}
	return false
}

// used returns what is used of every bucket that the store has, those in shadow left out.
func used(t *testing.T, e *engine.Engine, c *rls.Config, r *ratelimit.RateLimitRequest) map[drawgate.Key]int64 {
	t.Helper()
	keys := map[string]bool{"": true}
	for _, d := range r.GetDescriptors() {
		for _, entry := range d.GetEntries() {
			keys[entry.GetValue()] = true
		}
	}
	shadow := map[string]bool{}
	for _, p := range c.Policies() {
		shadow[p.Name] = p.Shadow
	}
	found := map[drawgate.Key]int64{}
	for _, p := range e.Policies() {
		for key := range keys {
			st, err := e.Limiter(p.Name).Status(t.Context(), key)
			if err != nil {
				continue // a key that is too long
			}
			if !shadow[p.Name] {
				found[drawgate.Key{Policy: p.Name, Name: key}] = st.States[0].Used
			}
		}
	}
	return found
}

// FuzzEnvoyYAML reads arbitrary files: none may panic, a mistake has a place in the file, and what
// is read can be put in force.
func FuzzEnvoyYAML(f *testing.F) {
	for _, text := range []string{
		fuzzed, users, "", "domain: d", "domain: d\ndescriptors: &a\n  - key: k\n    descriptors: *a\n",
		"domain: d\ndescriptors:\n  - <<: {key: k}\n",
		rate("rate_limit: {unit: year, unit_multiplier: 9, requests_per_unit: 4294967295}"), "domain: [d", "? a\n: b",
		"domain: d\n---\n", "%TAG", "domain: d\ndescriptors:\n- - - -",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := rls.ParseConfig("f", data, &rls.ConfigOptions{Windows: rls.Windows(len(data) % 2)})
		if err != nil {
			errs, ok := errors.AsType[rls.ConfigErrors](err)
			if !ok || len(errs) == 0 || errs[0].Line < 1 || errs[0].Column < 1 || errs[0].Message == "" {
				t.Fatalf("mistakes without a place: %v", err)
			}
			return
		}
		store := memstore.New(nil)
		defer store.Close()
		e, err := engine.New(store, engine.Config{Policies: c.Policies()}, nil)
		if err != nil {
			t.Fatalf("the engine does not take it: %v", err)
		}
		defer e.Close()
		s := rls.New(e, &rls.Options{Config: c})
		for _, r := range c.Rules() {
			d := descriptorOf(r)
			if _, err := s.ShouldRateLimit(t.Context(), request(r.Domain, d)); err != nil {
				t.Fatalf("%v: %v", d, err)
			}
		}
	})
}
