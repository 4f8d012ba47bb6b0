package server

import (
	"cmp"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/internal/similar"
	"github.com/drawgate/drawgate/store"
)

// request converts a take for the engine, and checks what the engine does not.
func (s *Server) request(who *access, t *api.Take, req *engine.Request) *api.Problem {
	switch {
	case t.ID != "" && t.HoldMS == 0:
		return problem(api.CodeInvalid, "an id needs hold_ms, which is missing or 0")
	case t.Grant != "" && t.ID == "":
		return problem(api.CodeInvalid, "a grant needs an id and hold_ms")
	}
	if t.WaitMS < 0 || t.WaitMS > api.MaxWait.Milliseconds() {
		return problem(api.CodeInvalid, "wait_ms %d is not between 0 and %d", t.WaitMS, api.MaxWait.Milliseconds())
	}
	if t.HoldMS != 0 {
		hold, p := holdOf("hold_ms", t.HoldMS)
		if p != nil {
			return p
		}
		req.Hold = hold
	}
	req.Wait, req.Priority, req.ID = t.WaitMS > 0, t.Priority, t.ID
	req.Labels = labels(t.Labels)
	if t.Grant != "" {
		g, err := store.ParseGrant(t.Grant)
		if err != nil {
			return problem(api.CodeInvalid, "grant: %s", present.Problem(err).Detail)
		}
		req.Grant = g
	}
	if p := s.what(who, &t.Bucket, t.Buckets, t.Attributes, req); p != nil || req.Hold == 0 {
		return p
	}
	return fits(req)
}

// labels converts labels for the library, sorted by name.
func labels(m map[string]string) (list []drawgate.Label) {
	if len(m) == 0 {
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, drawgate.Label{Name: k, Value: m[k]})
	}
	return list
}

// what converts what a take asks for: one bucket, several, or what the rules choose.
func (s *Server) what(who *access, one *api.Bucket, several []api.Bucket, at *api.Attributes,
	req *engine.Request,
) *api.Problem {
	switch {
	case at != nil && (named(one) || several != nil):
		return problem(api.CodeInvalid, "give either attributes, or policies and keys")
	case at != nil:
		req.Costs = present.Costs(one.Costs)
		return s.byRules(who, at, req)
	case several == nil:
		return s.byName(who, one, req)
	case named(one) || one.Costs != nil:
		return problem(api.CodeInvalid, "give either buckets, or one policy, key and costs")
	case len(several) == 0:
		return problem(api.CodeInvalid, "buckets is empty")
	case len(several) > store.MaxBuckets:
		return problem(api.CodeInvalid, "buckets has %d elements, not 1 to %d", len(several), store.MaxBuckets)
	}
	for i := range several {
		if p := s.byName(who, &several[i], req); p != nil {
			return p
		}
	}
	return nil
}

// byName adds a bucket that is named.
func (s *Server) byName(who *access, b *api.Bucket, req *engine.Request) *api.Problem {
	policy := b.Policy
	if !s.engine.Config().Off {
		var p *api.Problem
		if policy, p = s.policy(policy); p != nil {
			return p
		}
	}
	tenant, p := who.tenantOf(b.Tenant)
	if p != nil {
		return p
	}
	req.Asks = append(req.Asks, engine.Ask{
		Policy: policy, Tenant: tenant, Key: cmp.Or(b.Key, api.DefaultKey),
		Costs: present.Costs(b.Costs),
	})
	return nil
}

// byRules lets the rules choose.
func (s *Server) byRules(who *access, at *api.Attributes, req *engine.Request) (p *api.Problem) {
	if req.Attributes, p = attributes(at); p != nil {
		return p
	}
	if a := req.Attributes; a.Class == "" && s.opts.Class != nil {
		a.Class = s.opts.Class(a.Headers)
	}
	if who.tenant == "" {
		return nil
	}
	return s.within(who, req)
}

// attributes converts attributes for the rules.
func attributes(at *api.Attributes) (*rules.Attributes, *api.Problem) {
	if err := rules.CheckRequestPath(at.Path); err != nil {
		return nil, problem(api.CodeInvalid, "attributes.path: %v", err)
	}
	out := &rules.Attributes{
		Method: at.Method, Path: at.Path, Host: at.Host, Route: at.Route, User: at.User,
		Class: at.Class, Extra: at.Attrs,
	}
	if at.IP != "" {
		ip, err := netip.ParseAddr(at.IP)
		if err != nil {
			return nil, problem(api.CodeInvalid, "attributes.ip is not an IP address such as 192.0.2.7 or 2001:db8::1")
		}
		out.IP = ip.Unmap().WithZone("")
	}
	if len(at.Headers) > 0 {
		out.Headers = make(http.Header, len(at.Headers))
		for name, v := range at.Headers {
			out.Headers.Set(name, v)
		}
		if len(out.Headers) != len(at.Headers) {
			return nil, problem(api.CodeInvalid, "attributes.headers has a header twice: names are not case-sensitive")
		}
	}
	return out, nil
}

// tenantAttr is the attribute by which rules can match the tenant that an access token is bound to.
const tenantAttr = "tenant"

// within passes the tenant of an access token to the rules, and refuses if they apply a policy to
// another tenant. If other rules come into force before the take, the engine refuses.
func (s *Server) within(who *access, req *engine.Request) *api.Problem {
	at := req.Attributes
	req.Within = who.tenant
	extra := make(map[string]string, len(at.Extra)+1)
	maps.Copy(extra, at.Extra)
	extra[tenantAttr] = who.tenant
	at.Extra, at.Tenant = extra, who.tenant
	res, err := s.engine.Match(at)
	if err != nil {
		return s.fail(err)
	}
	for i := range res.Applied {
		if a := &res.Applied[i]; a.Tenant != who.tenant {
			return problem(api.CodeForbidden,
				"this access token is bound to a tenant, and rule %q applies policy %q to another one: remove the rule's tenant to apply it to the caller's",
				present.RuleName(a.Rule, a.RuleName), a.Policy)
		}
	}
	return nil
}

// whose completes and checks whose bucket a request is about, unless there already is a problem.
func (s *Server) whose(who *access, policy, tenant *string, p *api.Problem) *api.Problem {
	if p == nil {
		*policy, p = s.policy(*policy)
	}
	if p == nil {
		*tenant, p = who.tenantOf(*tenant)
	}
	return p
}

// policy checks a policy's name; "" means the only one.
func (s *Server) policy(name string) (string, *api.Problem) {
	if name == "" {
		names := s.names()
		switch len(names) {
		case 0:
			return "", problem(api.CodeUnknownPolicy, "there are no policies")
		case 1:
			return names[0], nil
		}
		return "", problem(api.CodeUnknownPolicy, "there are several policies: name one of %s",
			strings.Join(names, ", "))
	}
	if s.engine.Limiter(name) == nil {
		return "", problem(api.CodeUnknownPolicy, "unknown policy %q%s", name, similar.Suggest(name, s.names()))
	}
	return name, nil
}

// names returns the names of the policies in force, sorted.
func (s *Server) names() []string {
	var names []string
	c := s.engine.Config()
	for i := range c.Policies {
		names = append(names, c.Policies[i].Name)
	}
	slices.Sort(names)
	return names
}

func holdOf(field string, ms int64) (time.Duration, *api.Problem) {
	if ms < drawgate.MinHold.Milliseconds() || ms > drawgate.MaxHold.Milliseconds() {
		return 0, problem(api.CodeInvalid, "%s %d is not between %d and %d", field, ms, drawgate.MinHold.Milliseconds(),
			drawgate.MaxHold.Milliseconds())
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// named reports whether any field of a bucket is set.
func named(b *api.Bucket) bool { return b.Policy != "" || b.Tenant != "" || b.Key != "" }
