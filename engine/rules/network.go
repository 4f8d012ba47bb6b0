package rules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// networks indexes the networks that a client's address must be in.
type networks struct {
	free  bitset
	rules int
	v4    map[uint64]*members // by length and bits
	v6    map[net6]*members
	len4  []int
	len6  []int
}

type net6 struct {
	high, low uint64
	bits      int
}

func newNetworks(rules int) *networks {
	return &networks{free: newBitset(rules), rules: rules, v4: map[uint64]*members{}, v6: map[net6]*members{}}
}

// add adds a rule's condition. The networks have been checked.
func (n *networks) add(rule int, list []netip.Prefix) {
	if len(list) == 0 {
		n.free.add(rule)
	}
	for _, p := range list {
		p, _ = plainPrefix(p)
		if ip := p.Addr(); ip.Is4() {
			remember(n.v4, key4(bits4(ip), p.Bits()), rule, n.rules)
			n.len4 = once(n.len4, p.Bits())
		} else {
			high, low := bits6(ip)
			remember(n.v6, key6(high, low, p.Bits()), rule, n.rules)
			n.len6 = once(n.len6, p.Bits())
		}
	}
}

func remember[K comparable](in map[K]*members, k K, rule, rules int) {
	if in[k] == nil {
		in[k] = &members{}
	}
	in[k].add(rule, rules)
}

func once(list []int, n int) []int {
	if slices.Contains(list, n) {
		return list
	}
	return append(list, n)
}

// holding sets b to the rules for which an address is in one of their networks.
func (n *networks) holding(ip netip.Addr, b bitset) {
	copy(b, n.free)
	switch {
	case ip.Is4():
		v := bits4(ip)
		for _, bits := range n.len4 {
			n.v4[key4(v, bits)].into(b)
		}
	case ip.Is6():
		high, low := bits6(ip)
		for _, bits := range n.len6 {
			n.v6[key6(high, low, bits)].into(b)
		}
	}
}

func bits4(ip netip.Addr) uint32 {
	a := ip.As4()
	return binary.BigEndian.Uint32(a[:])
}

func bits6(ip netip.Addr) (high, low uint64) {
	a := ip.As16()
	return binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])
}

// key4 and key6 keep the first bits of an address. A shift by its width or more leaves nothing.
func key4(ip uint32, bits int) uint64 {
	return uint64(bits)<<32 | uint64(ip)>>(32-bits)<<(32-bits)
}

func key6(high, low uint64, bits int) net6 {
	if bits <= 64 {
		return net6{high >> (64 - bits) << (64 - bits), 0, bits}
	}
	return net6{high, low >> (128 - bits) << (128 - bits), bits}
}

// plainPrefix returns the IPv4 network for one that is mapped into IPv6.
func plainPrefix(p netip.Prefix) (netip.Prefix, error) {
	const mapped = 96
	ip := p.Addr()
	switch {
	case !p.IsValid():
		return p, errors.New("not a network, such as 192.0.2.0/24 or 2001:db8::/32")
	case !ip.Is4In6():
		return p, nil
	case p.Bits() < mapped:
		return p, fmt.Errorf("%s is partly IPv4 mapped into IPv6: name the IPv4 network", p)
	}
	return netip.PrefixFrom(ip.Unmap(), p.Bits()-mapped), nil
}

// parseNetwork parses a network. An address is the network of itself alone.
func parseNetwork(s string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(s); err == nil {
		ip = plain(ip)
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%q is not a network, such as 192.0.2.0/24", s)
	}
	return plainPrefix(p)
}
