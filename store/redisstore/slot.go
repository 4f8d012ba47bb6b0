package redisstore

import (
	"strconv"
	"strings"
)

// slots is how many slots a cluster has.
const slots = 16384

// crcs are the CRC-16 of all bytes, by the polynomial x^16 + x^12 + x^5 + 1.
var crcs = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			if crc <<= 1; carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()

// slotOf returns the slot of a key: that of what is in its first braces, or else of all of it.
func slotOf(key string) uint16 {
	if start := strings.IndexByte(key, '{'); start >= 0 {
		if n := strings.IndexByte(key[start+1:], '}'); n > 0 {
			key = key[start+1 : start+1+n]
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc = crc<<8 ^ crcs[byte(crc>>8)^key[i]]
	}
	return crc % slots
}

// oneSlot reports whether all keys are in one slot.
func oneSlot(keys []string) bool {
	for _, k := range keys[1:] {
		if slotOf(k) != slotOf(keys[0]) {
			return false
		}
	}
	return true
}

// markGroups is into how many groups of neighbouring slots a cluster is divided. Each has a mark.
const markGroups = 256

// markKeys returns the marks' keys of a store in a cluster, one in each group of slots. If the
// prefix has braces, all keys of the store are in one slot, and there is one mark.
func markKeys(prefix string) []string {
	name := func(n int) string { return prefix + ":%mark:{" + strconv.Itoa(n) + "}" }
	first := slotOf(name(0))
	if slotOf(name(1)) == first && slotOf(name(2)) == first && slotOf(name(3)) == first {
		return []string{name(0)}
	}
	keys := make([]string, markGroups)
	for n, left := 0, markGroups; left > 0; n++ {
		k := name(n)
		if g := slotOf(k) / (slots / markGroups); keys[g] == "" {
			keys[g] = k
			left--
		}
	}
	return keys
}
