package drawgate

import "github.com/drawgate/drawgate/store"

// Cost is a number of units: N, from 0 to MaxAmount, of a Unit, of which "" means requests.
// [Requests], [Tokens] and [Units] make one.
type Cost = store.Cost

// Requests is a cost of n requests.
func Requests(n int64) Cost { return Units(UnitRequests, n) }

// Tokens is a cost of n tokens, the unit that [Limit.Of] calls "tokens". If input and output are
// limited separately, use [Units].
func Tokens(n int64) Cost { return Units("tokens", n) }

// Units is a cost of n units of any name, such as 3000 of "input_tokens".
func Units(unit string, n int64) Cost { return Cost{Unit: unit, N: n} }
