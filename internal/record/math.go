package record

import (
	"math"
	"math/bits"
)

// maxUsed is where used saturates: the largest integer that every store counts exactly, including
// Lua's doubles.
const maxUsed = 1<<53 - 1

// mulSat returns a*b for a, b >= 0, or the largest int64 if that overflows.
func mulSat(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// addSat returns a+b for a, b >= 0, or the largest int64 if that overflows.
func addSat(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxInt64
}

// CeilDiv returns a/b rounded up, for a >= 0, b > 0.
func CeilDiv(a, b int64) int64 {
	q := a / b
	if q*b != a {
		q++
	}
	return q
}

// mulDivUp returns a*b/c rounded up, for a, b >= 0, c > 0, but at most maxUsed.
func mulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return maxUsed
	}
	q, rest := bits.Div64(hi, lo, uint64(c))
	if rest != 0 && q < maxUsed {
		q++
	}
	return int64(min(q, maxUsed))
}

// rescale converts used from 1/from units to 1/to units, rounded up.
func rescale(used, from, to int64) int64 {
	if from == to || used == 0 {
		return used
	}
	return min(addSat(mulCap(used/from, to), mulDivUp(used%from, to, from)), maxUsed)
}

func mulCap(a, b int64) int64 { return min(mulSat(a, b), maxUsed) }

// Full returns the most units that a bucket limit can have used: more are not counted.
func (s *Spec) Full() int64 { return CeilDiv(maxUsed, s.Scale) }

// forever is a time in µs that never passes, and that every store counts exactly.
const forever = maxUsed

// Never is the wait, in µs, of a take that can never pass.
const Never = math.MaxInt64
