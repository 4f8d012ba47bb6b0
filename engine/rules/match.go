package rules

import (
	"cmp"
	"strconv"
	"time"

	"github.com/expr-lang/expr/vm"
)

// Matches is the result of [Set.Match]. The zero value is ready to use. It can be reused by one
// goroutine at a time.
type Matches struct {
	Applied []Applied // in the order of the rules
	Exempt  bool      // a rule exempts the request; what earlier rules applied stands
	Matched bool      // a rule matched that is not in shadow

	request request
	bits    bitset // candidates, followed by as many words of working space
	// by policy id: base plus the position of the last rule that applied it; enforced, and in
	// shadow
	taken   [2][]uint64
	base    uint64 // larger than anything that earlier matches left in taken, which therefore need not be cleared
	env     env
	machine vm.VM
	filled  bool // env has the request
}

// Clear removes what belongs to the last request.
func (m *Matches) Clear() {
	clear(m.Applied)
	m.Applied, m.Exempt, m.Matched = m.Applied[:0], false, false
	m.request.Attributes = nil
}

// Applied is one policy to take from.
type Applied struct {
	Rule   int    // position of the rule
	Index  int    // position of the apply among all applies of the set, in the order of the rules
	Apply  *Apply // must not be changed
	Tenant string // the tenant that the rule names, or else [Attributes.Tenant]; "" is the server's own
	Key    string
	Shadow bool // by the rule or the apply
}

// Match collects into m what the rules apply to a request at an instant, and replaces the previous
// content. Once m has grown, it does not allocate for keys that are a single attribute.
//
// An error means that an expression failed on this request. It is an [*Error]; nothing is applied
// then, and the request should be refused.
func (s *Set) Match(a *Attributes, now time.Time, m *Matches) error {
	clear(m.Applied) // beyond what Clear would reach
	m.Applied, m.Exempt, m.Matched, m.filled = m.Applied[:0], false, false, false
	m.request.set(a, now, s.texts)
	n := len(s.index.all)
	m.grow(2*n, s.names)
	found := m.bits[:n]
	s.index.candidates(&m.request, found, m.bits[n:2*n])
	err := s.match(found, m)
	if err != nil {
		m.Applied, m.Exempt, m.Matched = m.Applied[:0], false, false
	}
	return err
}

// grow makes room, and forgets which policies were applied.
func (m *Matches) grow(rules, policies int) {
	if len(m.bits) < rules {
		m.bits = make(bitset, rules)
	}
	for i := range m.taken {
		if len(m.taken[i]) < policies {
			m.taken[i] = make([]uint64, policies)
		}
	}
	m.base += MaxRules
}

func (s *Set) match(found bitset, m *Matches) error {
	final := false // for shadows
	for i := found.next(0); i >= 0; i = found.next(i + 1) {
		r := &s.rules[i]
		if final && r.Shadow {
			continue
		}
		if r.asks {
			if ok, err := r.holds(i, m); err != nil {
				return err
			} else if !ok {
				continue
			}
		}
		if err := s.collect(i, final, m); err != nil {
			return err
		}
		m.Matched = m.Matched || !r.Shadow
		if r.Exempt || r.Final && !r.Shadow {
			m.Exempt = r.Exempt
			return nil
		}
		final = final || r.Final
	}
	return nil
}

// holds reports whether the conditions of rule i that are not in the index hold.
func (r *rule) holds(i int, m *Matches) (bool, error) {
	if !m.request.pairsHold(r.pairs) || r.hours != nil && !r.hours.hold(m.request.now) {
		return false, nil
	}
	if r.when == nil {
		return true, nil
	}
	ok, err := r.when.value(m)
	if err != nil {
		return false, &Error{Rule: i, Name: r.Name, Field: "when", Err: err}
	}
	return ok, nil
}

// collect adds what rule i applies.
func (s *Set) collect(i int, final bool, m *Matches) error {
	r, tenant, mine := &s.rules[i], m.request.Tenant, m.base+uint64(i)
	if r.tenant != nil {
		named, err := r.tenant.value(m)
		if err != nil {
			return &Error{Rule: i, Name: r.Name, Field: "tenant", Err: err}
		}
		tenant = cmp.Or(named, tenant)
	}
	for k := range r.Apply {
		a := &r.Apply[k]
		shadow := r.Shadow || a.Shadow
		by := &m.taken[side(shadow)][r.ids[k]]
		if shadow && final || *by >= m.base && *by != mine {
			continue
		}
		*by = mine
		key, err := r.keys[k].value(m)
		if err != nil {
			return &Error{Rule: i, Name: r.Name, Field: "apply[" + strconv.Itoa(k) + "].key", Err: err}
		}
		x := m.more()
		x.Rule, x.Index, x.Apply, x.Tenant, x.Key, x.Shadow = i, r.first+k, a, tenant, key, shadow
	}
	return nil
}

// more returns space for one more, in place: this is most of what a match writes.
func (m *Matches) more() *Applied {
	n := len(m.Applied)
	if n == cap(m.Applied) {
		m.Applied = append(m.Applied, Applied{})
	} else {
		m.Applied = m.Applied[:n+1]
	}
	return &m.Applied[n]
}

// side returns where an apply is recorded: enforced and shadow applies do not hide each other.
func side(shadow bool) int {
	if shadow {
		return 1
	}
	return 0
}
