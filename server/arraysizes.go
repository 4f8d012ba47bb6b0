package server

import "github.com/drawgate/drawgate/api"

// deepest is more nesting than any valid body has.
const deepest = 16

// checkArraySizes returns a problem if an array of a body is longer than any array may be. It runs
// before the body is decoded, because two bytes in a body become hundreds in memory. It assumes
// that the body is JSON: encoding/json refuses others later.
func checkArraySizes(body []byte) *api.Problem {
	var commas [deepest]int // in the arrays and objects around the current byte
	var array [deepest]bool // which of them are arrays
	depth := 0
	for i := 0; i < len(body); i++ {
		switch c := body[i]; c {
		case '"':
			i = endOfString(body, i)
		case '[', '{':
			if depth++; depth < deepest {
				commas[depth], array[depth] = 0, c == '['
			}
		case ']', '}':
			depth = max(0, depth-1)
		case ',':
			if depth >= deepest || !array[depth] {
				continue
			}
			if commas[depth]++; commas[depth] >= api.MaxTakes {
				return problem(api.CodeInvalid,
					"an array has more than %d elements, which is the maximum for takes and keys (buckets have a lower one)", api.MaxTakes)
			}
		}
	}
	return nil
}

// endOfString returns where the string that begins at i ends, or the end of the body.
func endOfString(body []byte, i int) int {
	for i++; i < len(body) && body[i] != '"'; i++ {
		if body[i] == '\\' {
			i++
		}
	}
	return i
}
