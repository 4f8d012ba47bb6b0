package rules

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
)

// Set is a list of rules made ready. It is immutable and safe for concurrent use.
type Set struct {
	rules   []rule
	applies int
	timed   bool
}

// rule is a rule made ready.
type rule struct {
	Rule
	when   *program // nil: always
	hours  *hours   // nil: always
	tenant *program // nil: the caller's own
	keys   []*program
	first  int // position of its first apply among all
}

// Compile checks rules and makes them ready. has reports what is wrong with the name of a policy; nil takes every name for good.
//
// The error joins all mistakes, each an [*Error].
func Compile(list []Rule, has func(policy string) error) (*Set, error) {
	if len(list) > MaxRules {
		return nil, fmt.Errorf("rules: %d rules are more than %d", len(list), MaxRules)
	}
	s := &Set{rules: make([]rule, len(list))}
	var errs []error
	for i := range list {
		c := compiler{index: i, has: has, rule: &s.rules[i]}
		c.compile(list[i])
		errs = append(errs, c.errs...)
		s.rules[i].first = s.applies
		s.applies += len(list[i].Apply)
		s.timed = s.timed || c.rule.hours != nil || c.rule.when != nil
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return s, nil
}

// Rules returns the number of rules.
func (s *Set) Rules() int { return len(s.rules) }

// Rule returns rule i. Its slices and maps must not be changed.
func (s *Set) Rule(i int) *Rule { return &s.rules[i].Rule }

// Applies returns how many policies all rules apply together: see [Applied.Index].
func (s *Set) Applies() int { return s.applies }

// Timed reports whether what matches depends on the time.
func (s *Set) Timed() bool { return s.timed }

// compiler makes one rule ready, and collects what is wrong with it.
type compiler struct {
	index int
	has   func(string) error
	rule  *rule
	errs  []error
}

func (c *compiler) fail(field string, err error) {
	if err != nil {
		c.errs = append(c.errs, &Error{Rule: c.index, Name: c.rule.Name, Field: field, Err: err})
	}
}

func (c *compiler) compile(r Rule) {
	c.rule.Rule = r
	var err error
	if r.When != "" {
		c.rule.when, err = compileExpr(r.When, reflect.Bool)
		c.fail("when", err)
	}
	if r.Tenant != "" {
		c.rule.tenant, err = compileExpr(r.Tenant, reflect.String)
		c.fail("tenant", err)
	}
	if r.Schedule != nil {
		c.rule.hours, err = r.Schedule.compile()
		c.fail("schedule", err)
	}
	switch {
	case r.Exempt && len(r.Apply) > 0:
		c.fail("exempt", errors.New("an exempt rule applies nothing: leave apply out"))
	case r.Exempt && r.Shadow:
		c.fail("exempt", errors.New("an exemption takes nothing, so there is nothing to evaluate in shadow"))
	case !r.Exempt && len(r.Apply) == 0 && !r.Final:
		c.fail("apply", errors.New("the rule does nothing: it needs apply, exempt or final"))
	case len(r.Apply) > MaxApply:
		c.fail("apply", fmt.Errorf("%d policies are more than %d", len(r.Apply), MaxApply))
	}
	for i := range r.Apply {
		c.apply("apply["+strconv.Itoa(i)+"]", &r.Apply[i])
	}
}

func (c *compiler) apply(field string, a *Apply) {
	if a.Policy == "" {
		c.fail(field+".policy", errors.New("the name of a policy is missing"))
	} else if c.has != nil {
		c.fail(field+".policy", c.has(a.Policy))
	}
	var key *program
	var err error
	if strings.TrimSpace(a.Key) == "" {
		err = errors.New(`the key is missing: who is counted? ip, user, header("X-Api-Key"), or "global" for one bucket for all`)
	} else {
		key, err = compileExpr(a.Key, reflect.String)
	}
	c.fail(field+".key", err)
	c.rule.keys = append(c.rule.keys, key)
}

// matches reports whether the conditions on single attributes hold.
func (m *Match) matches(a *Attributes) bool {
	return oneOf(m.Methods, a.Method) && pathHolds(m.Path, a.Path) && holds(m.Host, a.Host) && holds(m.Route, a.Route) && holds(m.User, a.User) &&
		holds(m.Class, a.Class) && within(m.IPs, a.IP) && m.headers(a.Headers) && m.attrs(a.Extra)
}

func (m *Match) headers(h http.Header) bool {
	for k, v := range m.Headers {
		if !holds(v, h.Get(k)) {
			return false
		}
	}
	return true
}

func (m *Match) attrs(extra map[string]string) bool {
	for k, v := range m.Attrs {
		if !holds(v, extra[k]) {
			return false
		}
	}
	return true
}

func oneOf(list []string, s string) bool {
	for _, l := range list {
		if strings.EqualFold(l, s) {
			return true
		}
	}
	return len(list) == 0
}

// holds reports whether a value is what a condition asks for.
func holds(cond, v string) bool {
	switch {
	case cond == "":
		return true
	case v == "":
		return false
	case strings.HasSuffix(cond, "*"):
		return strings.HasPrefix(v, cond[:len(cond)-1])
	}
	return cond == v
}

// pathHolds reports whether a path is one of a pattern.
func pathHolds(pattern, path string) bool {
	if pattern == "" {
		return true
	}
	for {
		p, prest, pmore := strings.Cut(pattern, "/")
		s, srest, smore := strings.Cut(path, "/")
		switch {
		case !pmore && strings.HasSuffix(p, "*"):
			return strings.HasPrefix(path, p[:len(p)-1])
		case strings.HasPrefix(p, "{"):
			if s == "" {
				return false
			}
		case p != s:
			return false
		}
		if pmore != smore {
			return false
		}
		if !pmore {
			return true
		}
		pattern, path = prest, srest
	}
}

func within(list []netip.Prefix, ip netip.Addr) bool {
	for _, p := range list {
		if p.Contains(plain(ip)) {
			return true
		}
	}
	return len(list) == 0
}
