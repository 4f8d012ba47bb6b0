package simulator

import (
	"unicode"
	"unicode/utf8"
)

// Fixed costs of an input, in addition to its text. The providers' true ones differ a little, and
// change.
const (
	// TokensPerMessage is what each message, turn or tool costs.
	TokensPerMessage = 4
	// TokensPerRequest is what each conversation costs.
	TokensPerRequest = 3
	// TokensPerFile is what each image, sound or document costs: as an image of Gemini's.
	TokensPerFile = 258
)

// Longest runs that are one token.
const (
	lettersPerToken = 6
	digitsPerToken  = 3
	foreignPerToken = 2 // letters of other alphabets
	spacesPerToken  = 8
	signsPerToken   = 2 // of the same sign
)

// CountTokens is the token counter that a [Server] uses by default. It resembles tokenizers of the
// providers, so that an estimator is wrong about it by as much: English has about 4.5 bytes per
// token, digits 3, mixed case less. It is deterministic, and never more than the bytes of the text.
//
// A token is: up to 6 ASCII letters, without a change from lower to upper case; up to 3 digits; up
// to 2 other letters, but each ideograph, kana or hangul syllable is one; up to 8 spaces or tabs,
// except a single one, which belongs to the token after it; a line break; up to 2 of the same other
// character, if it is ASCII; any other character; a byte that is not UTF-8.
func CountTokens(text string) int {
	tokens := 0
	for len(text) > 0 {
		text = text[tokenLength(text):]
		tokens++
	}
	return tokens
}

// tokenLength returns how many bytes the first token of a text has.
func tokenLength(text string) int {
	if text[0] == ' ' && len(text) > 1 && text[1] != ' ' && text[1] != '\t' {
		if text[1] == '\n' || text[1] == '\r' {
			return 1
		}
		return 1 + tokenLength(text[1:])
	}
	if text[0] < utf8.RuneSelf {
		return asciiLength(text)
	}
	return runeLength(text)
}

// asciiLength is runeLength for a text that begins with an ASCII character, and faster. No other
// character is of the same class.
func asciiLength(text string) (n int) {
	first := text[0]
	kind := asciiClasses[first]
	most := min(kind.most, len(text))
	for n = 1; n < most; n++ {
		c := text[n]
		if c >= utf8.RuneSelf || asciiClasses[c] != kind || kind.class == sign && c != first ||
			kind.class == letter && text[n-1] >= 'a' && c <= 'Z' {
			break
		}
	}
	return n
}

type classAndMost struct {
	class class
	most  int
}

// asciiClasses is classOf for ASCII.
var asciiClasses = func() (all [utf8.RuneSelf]classAndMost) {
	for c := range all {
		all[c].class, all[c].most = classOf(rune(c))
	}
	return all
}()

// runeLength returns how many bytes the first token of a text has that begins with no single blank.
func runeLength(text string) int {
	first, size := utf8.DecodeRuneInString(text)
	class, most := classOf(first)
	n, last := size, first
	for range most - 1 {
		r, size := utf8.DecodeRuneInString(text[n:])
		if size == 0 {
			break
		}
		next, _ := classOf(r)
		if next != class || class == sign && r != first || class == letter && unicode.IsLower(last) &&
			unicode.IsUpper(r) {
			break
		}
		n, last = n+size, r
	}
	return n
}

// class is a kind of character.
type class int

const (
	single class = iota // a token of its own
	letter
	digit
	foreign
	space
	sign
)

// classOf returns a character's class, and how many of that class are one token.
func classOf(r rune) (c class, most int) {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
		return letter, lettersPerToken
	case r >= '0' && r <= '9':
		return digit, digitsPerToken
	case r == ' ' || r == '\t':
		return space, spacesPerToken
	case r == '\n' || r == '\r' || r == utf8.RuneError:
		return single, 1
	case r < utf8.RuneSelf:
		return sign, signsPerToken
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul):
		return single, 1
	case unicode.IsLetter(r):
		return foreign, foreignPerToken
	}
	return single, 1
}

// words are what answers consist of. Each is one token, with the space before it.
var words = [...]string{
	"the", "gate", "lets", "some", "water", "pass", "and", "then", "closes", "again", "for", "a", "while", "until",
	"more", "of",
	"it", "may", "flow", "down", "to", "field", "where", "every", "farmer", "has", "his", "share", "in", "turn", "by",
	"rule",
}

// answerText returns the words from number first on, so many of them. Every word but number 0 has a
// space before it.
func answerText(first, n int64) string {
	var b []byte
	for i := first; i < first+n; i++ {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, words[i%int64(len(words))]...)
	}
	return string(b)
}
