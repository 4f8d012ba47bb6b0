package rules

import "math/bits"

// bitset is a set of rules.
type bitset []uint64

func newBitset(rules int) bitset { return make(bitset, (rules+63)/64) }

func (b bitset) add(i int) { b[i/64] |= 1 << (i % 64) }

func (b bitset) or(o bitset) {
	for i := range o {
		b[i] |= o[i]
	}
}

func (b bitset) and(o bitset) {
	for i := range o {
		b[i] &= o[i]
	}
}

// next returns the first member that is not less than rule, and -1 if there is none.
func (b bitset) next(rule int) int {
	for i := rule / 64; i < len(b); i++ {
		w := b[i]
		if i == rule/64 {
			w &= ^uint64(0) << (rule % 64)
		}
		if w != 0 {
			return i*64 + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// members is a set of rules that is usually small: it is a list as long as that is shorter than a
// bitset.
type members struct {
	list []int32
	set  bitset
}

func (m *members) add(rule, rules int) {
	if m.set == nil && len(m.list) >= (rules+63)/64 {
		m.set = newBitset(rules)
		for _, r := range m.list {
			m.set.add(int(r))
		}
		m.list = nil
	}
	if m.set != nil {
		m.set.add(rule)
		return
	}
	m.list = append(m.list, int32(rule))
}

// into adds the members to b. m may be nil.
func (m *members) into(b bitset) {
	if m == nil {
		return
	}
	if m.set != nil {
		b.or(m.set)
		return
	}
	for _, r := range m.list {
		b.add(int(r))
	}
}
