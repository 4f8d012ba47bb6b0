package server

import "github.com/drawgate/drawgate/api"

// deepest is deeper than an array may be that means something.
const deepest = 16

// checkArraySizes returns a problem if an array of a body has more elements than any may have: two
// bytes in a body are hundreds in memory. So it is asked before the body is read into anything. It
// takes a body for JSON: what is none is for encoding/json to refuse.
func checkArraySizes(body []byte) *api.Problem {
	var commas [deepest]int // in the arrays and objects around this byte
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
				return problem(api.CodeInvalid, "an array has more than %d elements: that is the most of takes and keys, and buckets has fewer", api.MaxTakes)
			}
		}
	}
	return nil
}

// endOfString returns where the string ends that begins at i, or where the body does.
func endOfString(body []byte, i int) int {
	for i++; i < len(body) && body[i] != '"'; i++ {
		if body[i] == '\\' {
			i++
		}
	}
	return i
}
