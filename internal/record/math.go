package record

import (
	"math"
	"math/bits"
)

// maxUsed is where used saturates: the largest integer that every store, Lua's doubles included, counts exactly.
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

// rescale converts used from 1/from units to 1/to units, rounded up by at most two parts.
//
// It is written in doubles, operation for operation as the Redis script does it, so that every store rounds alike.
func rescale(used, from, to int64) int64 {
	if from == to || used == 0 {
		return used
	}
	units := used / from
	frac := used - units*from
	if frac == 0 {
		return mulCap(units, to)
	}
	f := math.Ceil(float64(frac)/float64(from)*float64(to)) + 1
	return min(addSat(mulCap(units, to), min(int64(f), to)), maxUsed)
}

func mulCap(a, b int64) int64 { return min(mulSat(a, b), maxUsed) }

// Never is the wait of what can never pass, in µs.
const Never = math.MaxInt64
