package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Set is a compiled list of rules. It is immutable and safe for concurrent use.
type Set struct {
	rules   []rule
	index   *index
	texts   *texts
	names   int // of policies
	applies int
	timed   bool
}

// rule is a compiled rule.
type rule struct {
	Rule
	pairs  []pair            // conditions that are not indexed
	asks   bool              // it has pairs, when or hours
	when   *expression[bool] // nil: always
	hours  *hours            // nil: always
	tenant *expression[string]
	keys   []*expression[string]
	ids    []int // of its policies: equal names have equal ids
	first  int   // position of its first apply among all applies
}

// Compile checks and compiles rules. has returns an error if the name of a policy is wrong; nil
// accepts every name.
//
// The error joins all mistakes, each an [*Error].
func Compile(list []Rule, has func(policy string) error) (*Set, error) {
	if len(list) > MaxRules {
		return nil, fmt.Errorf("rules: %d rules, but at most %d are allowed", len(list), MaxRules)
	}
	s := &Set{rules: make([]rule, len(list)), texts: newTexts()}
	var errs []error
	named, made := map[string]int{}, map[string]*expression[string]{}
	for i := range list {
		c := compiler{index: i, has: has, rule: &s.rules[i], made: made}
		c.compile(&list[i])
		if first, twice := named[list[i].Name]; twice && list[i].Name != "" {
			c.fail("name", fmt.Errorf("rule %d has the same name", first+1))
		}
		named[list[i].Name] = i
		errs = append(errs, c.errs...)
		s.rules[i].first = s.applies
		s.applies += len(list[i].Apply)
		s.timed = s.timed || c.timed
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	s.index = newIndex(s.rules)
	for i := range s.rules {
		r := &s.rules[i]
		r.asks = r.pairs != nil || r.when != nil || r.hours != nil
	}
	s.number()
	return s, nil
}

// number gives the policies ids.
func (s *Set) number() {
	ids := map[string]int{}
	for i := range s.rules {
		r := &s.rules[i]
		for k := range r.Apply {
			id, ok := ids[r.Apply[k].Policy]
			if !ok {
				id = len(ids)
				ids[r.Apply[k].Policy] = id
			}
			r.ids = append(r.ids, id)
		}
	}
	s.names = len(ids)
}

// Rules returns the number of rules.
func (s *Set) Rules() int { return len(s.rules) }

// Rule returns rule i. Its slices and maps must not be changed.
func (s *Set) Rule(i int) *Rule { return &s.rules[i].Rule }

// Applies returns the total number of applies of all rules: see [Applied].
func (s *Set) Applies() int { return s.applies }

// Timed reports whether what matches depends on the time.
func (s *Set) Timed() bool { return s.timed }

// compiler compiles one rule, and collects its mistakes.
type compiler struct {
	index int
	has   func(string) error
	rule  *rule
	made  map[string]*expression[string] // by source: most rules use the same few keys
	timed bool
	errs  []error
}

func (c *compiler) fail(field string, err error) {
	if err != nil {
		c.errs = append(c.errs, &Error{Rule: c.index, Name: c.rule.Name, Field: field, Err: err})
	}
}

func (c *compiler) compile(r *Rule) {
	c.rule.Rule = *r
	c.rule.Apply = slices.Clone(r.Apply)
	if len(r.Name) > MaxPattern {
		c.fail("name", fmt.Errorf("%d bytes, but at most %d are allowed", len(r.Name), MaxPattern))
	}
	c.match(&r.Match)
	var err error
	if r.When != "" {
		c.rule.when, err = compileCondition(r.When)
		c.fail("when", err)
		c.timed = c.timed || err == nil && c.rule.when.timed
	}
	if r.Tenant != "" {
		c.rule.tenant = c.text("tenant", r.Tenant)
	}
	if r.Schedule != nil {
		c.rule.hours, err = r.Schedule.compile()
		c.fail("schedule", err)
		c.timed = true
	}
	c.effect(r)
	for i := range r.Apply {
		c.apply("apply["+strconv.Itoa(i)+"]", &r.Apply[i])
	}
}

// effect checks that a rule does something, and does not contradict itself.
func (c *compiler) effect(r *Rule) {
	switch {
	case r.Exempt && len(r.Apply) > 0:
		c.fail("exempt", errors.New("an exempt rule applies nothing: leave apply out"))
	case r.Exempt && r.Shadow:
		c.fail("exempt", errors.New("an exemption takes nothing, so there is nothing to evaluate in shadow"))
	case len(r.Apply) == 0 && !r.Exempt && !r.Final:
		c.fail("apply", errors.New("the rule does nothing: it needs apply, exempt or final"))
	case len(r.Apply) > MaxApply:
		c.fail("apply", fmt.Errorf("%d policies, but at most %d are allowed", len(r.Apply), MaxApply))
	}
}

// match checks the conditions on single attributes.
func (c *compiler) match(m *Match) {
	c.fail("match.path", checkPath(m.Path))
	c.fail("match.host", checkHost(m.Host))
	c.fail("match.route", checkRoute(m.Route))
	c.fail("match.user", checkValue(m.User))
	c.fail("match.class", checkValue(m.Class))
	for i, method := range m.Methods {
		if method == "" || len(method) > MaxPattern || strings.ContainsAny(method, "* ") {
			c.fail(fmt.Sprintf("match.methods[%d]", i), errors.New("not a method such as GET"))
		}
	}
	for i, p := range m.IPs {
		_, err := plainPrefix(p)
		c.fail(fmt.Sprintf("match.ips[%d]", i), err)
	}
	c.values("match.headers", m.Headers)
	c.values("match.attrs", m.Attrs)
}

func (c *compiler) values(field string, conds map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(conds)) {
		switch cond := conds[name]; {
		case name == "" || len(name) > MaxPattern:
			c.fail(field, fmt.Errorf("the name must have 1 to %d bytes", MaxPattern))
		case cond == "":
			c.fail(field+"."+name,
				errors.New(`a value is missing: "*" matches any value that is not empty; for an empty one use when`))
		default:
			c.fail(field+"."+name, checkValue(cond))
		}
	}
}

func (c *compiler) apply(field string, a *Apply) {
	if a.Policy == "" {
		c.fail(field+".policy", errors.New("the name of a policy is missing"))
	} else if c.has != nil {
		c.fail(field+".policy", c.has(a.Policy))
	}
	if strings.TrimSpace(a.Key) == "" {
		c.fail(field+".key",
			errors.New(`the key is missing: say who is counted, with ip, user, hash(header("X-Api-Key")), or "global" in quotes for one bucket for all`))
		return
	}
	c.rule.keys = append(c.rule.keys, c.text(field+".key", a.Key))
}

func (c *compiler) text(field, source string) *expression[string] {
	x := c.made[source]
	if x == nil {
		var err error
		if x, err = compileText(source); err != nil {
			c.fail(field, err)
			return nil
		}
		c.made[source] = x
	}
	c.timed = c.timed || x.timed
	return x
}
