package fromlitellm

import (
	"math/big"
	"strconv"
	"strings"
	"unicode"

	"github.com/drawgate/drawgate/internal/pattern"
	"github.com/drawgate/drawgate/internal/yamltext"
)

// secretLike matches what looks like a key: with the usual beginning, or long and without a word.
var secretLike = pattern.New(`(?i)(^|[^a-z])sk-[a-z0-9]|[a-z0-9+]{40}`)

// keyLike matches names that begin as keys do.
var keyLike = pattern.New(`(?i)(^|/)sk-`)

// show returns a text of the file for a message or a comment: on one line, short, and never one
// that may be a secret.
func show(text string) string {
	if secretLike().MatchString(text) {
		return "(hidden)"
	}
	return yamltext.Shorten(printable(text))
}

// printable replaces what cannot be seen.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return '?'
	}, text)
}

var (
	plainText = pattern.New(`^[A-Za-z][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)*$`)
	notPlain  = pattern.New(`(?i)^(true|false|null|yes|no|on|off|y|n)$`)
)

// quote returns a text as YAML has it.
func quote(text string) string {
	if plainText().MatchString(text) && !notPlain().MatchString(text) {
		return text
	}
	return strconv.Quote(printable(text))
}

// maxAmount is the largest amount of a limit.
const maxAmount = 1_000_000_000_000

// whole returns a whole number from 0 to maxAmount.
func (v *value) whole() (n int64, ok bool) {
	return v.times(1)
}

// times returns the product of a decimal number and factor, rounded down, from 0 to maxAmount.
func (v *value) times(factor int64) (n int64, ok bool) {
	const longest = 40 // more digits, or a large exponent, would only take long
	if v == nil || v.kind != isText || len(v.text) > longest || !decimal().MatchString(v.text) {
		return 0, false
	}
	r, ok := new(big.Rat).SetString(strings.ReplaceAll(v.text, "_", ""))
	if !ok || r.Sign() < 0 {
		return 0, false
	}
	r.Mul(r, new(big.Rat).SetInt64(factor))
	if r.Cmp(new(big.Rat).SetInt64(maxAmount)) > 0 {
		return 0, false
	}
	return new(big.Int).Quo(r.Num(), r.Denom()).Int64(), true
}

var decimal = pattern.New(`^[0-9][0-9_]*(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?$`)

// fromEnvironment returns the name of the variable that a value stands for.
func (v *value) fromEnvironment() (name string, ok bool) {
	if v == nil || v.kind != isText {
		return "", false
	}
	name, ok = strings.CutPrefix(v.text, "os.environ/")
	return name, ok && variables().MatchString(name)
}

var variables = pattern.New(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
