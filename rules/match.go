package rules

import (
	"time"

	"github.com/expr-lang/expr/vm"
)

// Matches is what matched: see [Set.Match]. The zero value is ready. It may be used again and again, by one goroutine at a time.
type Matches struct {
	Applied []Applied // in the order of the rules
	Exempt  bool      // a rule exempts the request: what rules before it applied stands
	Any     bool      // a rule matched that is not a shadow

	env     env
	machine vm.VM
	attrs   *Attributes
}

// Clear lets go of what belongs to the last request.
func (m *Matches) Clear() {
	clear(m.Applied)
	m.Applied, m.Exempt, m.Any = m.Applied[:0], false, false
}

// Applied is one policy to be taken of.
type Applied struct {
	Rule   int    // position of the rule
	Index  int    // position of the apply among all of the set
	Apply  *Apply // must not be changed
	Tenant string // "" is the caller's own
	Key    string
	Shadow bool // by the rule or the apply
}

// Match collects what the rules apply to a request at an instant into m, in place of what was there.
//
// An error says that an expression failed on this request. It is an [*Error]; nothing is applied then, and the request should be refused.
func (s *Set) Match(a *Attributes, now time.Time, m *Matches) error {
	m.Applied, m.Exempt, m.Any, m.attrs = m.Applied[:0], false, false, a
	m.bind()
	m.env.fill(a, now)
	err := s.match(a, now, m)
	m.attrs = nil
	if err != nil {
		m.Applied = m.Applied[:0]
	}
	return err
}

func (s *Set) match(a *Attributes, now time.Time, m *Matches) error {
	final := false // for shadows
	for i := range s.rules {
		r := &s.rules[i]
		if final && r.Shadow || !r.Match.matches(a) || r.hours != nil && !r.hours.hold(now) {
			continue
		}
		if r.when != nil {
			v, err := r.when.run(&m.machine, &m.env)
			if err != nil {
				return &Error{Rule: i, Name: r.Name, Field: "when", Err: err}
			}
			if v != true {
				continue
			}
		}
		if err := s.collect(i, final, m); err != nil {
			return err
		}
		m.Any = m.Any || !r.Shadow
		if r.Exempt || r.Final && !r.Shadow {
			m.Exempt = r.Exempt
			return nil
		}
		final = final || r.Final
	}
	return nil
}

// collect adds what rule i applies.
func (s *Set) collect(i int, final bool, m *Matches) error {
	r, before, tenant := &s.rules[i], len(m.Applied), ""
	if r.tenant != nil {
		v, err := r.tenant.run(&m.machine, &m.env)
		if err != nil {
			return &Error{Rule: i, Name: r.Name, Field: "tenant", Err: err}
		}
		tenant, _ = v.(string)
	}
	for k := range r.Apply {
		a := &r.Apply[k]
		shadow := r.Shadow || a.Shadow
		if shadow && final || m.has(a.Policy, shadow, before) {
			continue
		}
		v, err := r.keys[k].run(&m.machine, &m.env)
		if err != nil {
			return &Error{Rule: i, Name: r.Name, Field: "key", Err: err}
		}
		key, _ := v.(string)
		m.Applied = append(m.Applied, Applied{Rule: i, Index: r.first + k, Apply: a, Tenant: tenant, Key: key, Shadow: shadow})
	}
	return nil
}

// has reports whether an earlier rule applied the policy. What is enforced and what is shadow do not hide each other.
func (m *Matches) has(policy string, shadow bool, before int) bool {
	for i := range before {
		if a := &m.Applied[i]; a.Shadow == shadow && a.Apply.Policy == policy {
			return true
		}
	}
	return false
}

// bind gives the expressions their functions, once.
func (m *Matches) bind() {
	if m.env.Header != nil {
		return
	}
	m.env.Header = func(name string) string { return m.attrs.Headers.Get(name) }
	m.env.Attr = func(name string) string { return m.attrs.Extra[name] }
	m.env.Join = Join
	m.env.Inside = func(nets ...string) bool { return inside(nets, m.attrs.IP) }
}
