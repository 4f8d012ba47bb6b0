package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"html"
	"math/bits"
	"net/http"
	"strings"
	"unicode/utf8"
)

// minRedacted is the length of the shortest key that is looked for: a shorter one may be a word of
// an answer.
const minRedacted = 8

// secretMark stands in the place of a key, with asterisks up to the key's length: an answer keeps
// its length.
const secretMark = "(secret)"

// redactor removes a provider's key from what the provider sends: as it is, in capitals or without,
// in hexadecimal, in Base64 wherever in a text it stands, and each of these with any of its
// characters escaped as JSON, URLs or HTML do. It does not know other encodings, and does not find
// a key whose parts are apart. A nil one removes nothing.
type redactor struct {
	forms []secretForm
	// Bits of forms by a byte: begin of those that begin with it, second of those that can have it
	// behind a first byte that is not escaped, and first of those that can begin with it, escaped
	// or not.
	begin, second, first [256]uint16
	least                int // bytes that a form has at least, escaped or not
}

// secretForm is one way to write the key.
type secretForm struct {
	text    string
	fold    bool // capitals do not matter
	literal bool // no character is escaped
}

// newRedactor returns nil if the key is too short.
func newRedactor(key string) *redactor {
	if len(key) < minRedacted {
		return nil
	}
	r := &redactor{forms: []secretForm{
		{text: key, literal: true}, // whatever its characters mean elsewhere
		{text: strings.ToLower(key), fold: true},
		{text: hex.EncodeToString([]byte(key)), fold: true},
	}}
	for before := range 3 {
		// What precedes the key in the text shifts its characters. Those at the ends also have bits
		// of its neighbors.
		padded := append(make([]byte, before), key...)
		from, to := (before*8+5)/6, len(padded)*8/6
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			r.forms = append(r.forms, secretForm{text: enc.EncodeToString(padded)[from:to]})
		}
	}
	r.least = len(key)
	for i, f := range r.forms {
		r.least = min(r.least, len(f.text))
		bit := uint16(1) << i
		note := func(table *[256]uint16, c byte) {
			table[c] |= bit
			if f.fold {
				table[upper(c)] |= bit
			}
		}
		note(&r.begin, f.text[0])
		note(&r.first, f.text[0])
		note(&r.second, f.text[1])
		if !f.literal {
			for _, escape := range []byte(escapes) {
				r.first[escape] |= bit
				r.second[escape] |= bit
			}
		}
	}
	return r
}

// escapes are the bytes with which an escaped character begins.
const escapes = `\%&`

// candidates returns the bits of the forms that may be at the start of b, by its first character or
// two. The others are not.
func (r *redactor) candidates(b []byte) uint16 {
	forms := r.first[b[0]]
	switch {
	case forms == 0:
	case strings.IndexByte(escapes, b[0]) >= 0:
		c, n, short := escaped(b)
		if short {
			return forms
		}
		if forms = r.begin[b[0]]; n > 0 {
			forms |= r.begin[c]
		}
	case len(b) > 1:
		forms &= r.second[b[1]]
	}
	return forms
}

// upper returns the capital of a letter of ASCII, and any other byte as it is.
func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		c -= 'a' - 'A'
	}
	return c
}

// find returns the first occurrence of the key in b, or n = 0. If end is true, nothing follows b;
// otherwise partial is where b may have its beginning, or len(b).
func (r *redactor) find(b []byte, end bool) (at, n, partial int) {
	if r == nil {
		return 0, 0, len(b)
	}
	partial = len(b)
	starts := b // where the key may begin
	if end {
		starts = b[:max(0, len(b)-r.least+1)]
	}
	for i, c := range starts {
		if r.first[c] == 0 {
			continue
		}
		for forms := r.candidates(b[i:]); forms != 0; forms &= forms - 1 {
			switch n, more := r.forms[bits.TrailingZeros16(forms)].at(b[i:]); {
			case n > 0:
				return i, n, len(b)
			case more && !end:
				partial = i
			}
		}
		if partial < len(b) {
			break // what follows is looked at when it is known
		}
	}
	return 0, 0, partial
}

// at returns the length of the form at the start of b, or 0. more is true if b ends too early to
// know.
func (f *secretForm) at(b []byte) (n int, more bool) {
	for i := range len(f.text) {
		want := f.text[i]
		if n == len(b) {
			return 0, true
		}
		if !f.literal {
			c, size, short := escaped(b[n:])
			if size > 0 && (c == want || f.fold && upper(c) == upper(want)) {
				n += size
				continue
			}
			if short {
				return 0, true
			}
		}
		if c := b[n]; c != want && (!f.fold || upper(c) != upper(want)) {
			return 0, false
		}
		n++
	}
	return n, false
}

// Bounds of escapes, so that little is held back.
const (
	maxSlashes = 8  // before a character that is escaped again and again
	maxAgain   = 4  // times that a percent sign or an ampersand is escaped again
	maxEntity  = 12 // bytes of a character of HTML
)

// escaped returns the character that b begins with if that is escaped, and the length of the
// escape, or 0. short is true if b ends within one.
func escaped(b []byte) (c byte, n int, short bool) {
	switch b[0] {
	case '\\':
		return slashed(b)
	case '%':
		return percent(b)
	case '&':
		return entity(b)
	}
	return 0, 0, false
}

// digits reads a number of exactly so many digits at b[at:].
func digits(b []byte, at, count int, base rune) (c byte, n int, short bool) {
	value := rune(0)
	for i := at; i < at+count; i++ {
		if i >= len(b) {
			return 0, 0, true
		}
		d := rune(strings.IndexByte("0123456789abcdef", b[i]|0x20))
		if b[i] >= '0' && b[i] <= '9' {
			d = rune(b[i] - '0')
		}
		if d < 0 || d >= base {
			return 0, 0, false
		}
		value = value*base + d
	}
	if value >= 0x100 {
		return 0, 0, false
	}
	return byte(value), at + count, false
}

// slashed reads \u0041, \x41, \101, \/ and so on, with one or more backslashes.
func slashed(b []byte) (c byte, n int, short bool) {
	i := 0
	for i < len(b) && i < maxSlashes && b[i] == '\\' {
		i++
	}
	if i == len(b) {
		return 0, 0, true
	}
	switch b[i] {
	case 'u':
		return digits(b, i+1, 4, 16)
	case 'U':
		return digits(b, i+1, 8, 16)
	case 'x':
		return digits(b, i+1, 2, 16)
	}
	if b[i] >= '0' && b[i] <= '3' {
		return digits(b, i, 3, 8)
	}
	return b[i], i + 1, false
}

// percent reads %41, %2541 and %u0041.
func percent(b []byte) (c byte, n int, short bool) {
	at := 1
	for range maxAgain {
		if len(b) > at+1 && b[at] == '2' && b[at+1] == '5' {
			at += 2
		}
	}
	if at < len(b) && b[at]|0x20 == 'u' {
		return digits(b, at+1, 4, 16)
	}
	return digits(b, at, 2, 16)
}

// entity reads &#65;, &#x41;, &lowbar; and the same with &amp; in place of the ampersand.
func entity(b []byte) (c byte, n int, short bool) {
	at := 1
	for range maxAgain {
		if bytes.HasPrefix(b[at:], []byte("amp;")) {
			at += len("amp;")
		}
	}
	rest := b[at:min(len(b), at+maxEntity)]
	end := bytes.IndexByte(rest, ';')
	if end < 0 {
		if len(rest) < maxEntity && !bytes.ContainsAny(rest, " \r\n\t\"'<") {
			return 0, 0, true
		}
		return 0, 0, false
	}
	text := html.UnescapeString("&" + string(rest[:end+1]))
	if r, size := utf8.DecodeRuneInString(text); size == len(text) && r < utf8.RuneSelf {
		return byte(r), at + end + 1, false
	}
	return 0, 0, false
}

// in reports whether a text has the key.
func (r *redactor) in(text string) bool {
	if r == nil || len(text) < r.least { // most headers
		return false
	}
	_, n, _ := r.find([]byte(text), true)
	return n > 0
}

// text returns a text without the key.
func (r *redactor) text(s string) string {
	if !r.in(s) {
		return s
	}
	b := []byte(s)
	r.mask(b)
	return string(b)
}

// mask removes the key from b, which is whole.
func (r *redactor) mask(b []byte) {
	for len(b) > 0 {
		at, n, _ := r.find(b, true)
		if n == 0 {
			return
		}
		blank(b[at : at+n])
		b = b[at+n:]
	}
}

// blank overwrites a key.
func blank(b []byte) {
	for i := copy(b, secretMark); i < len(b); i++ {
		b[i] = '*'
	}
}

// header adds the headers of an answer to h, without those that have the key in their names or
// values.
func (r *redactor) header(h, from http.Header) {
	for name, values := range from {
		if r.in(name) {
			continue
		}
		for _, v := range values {
			if !r.in(v) {
				h.Add(name, v)
			}
		}
	}
}

// redacting removes the key from an answer that comes in pieces. It holds back no more than the end
// of a piece that can be the beginning of the key, so no whole line ever.
type redacting struct {
	*redactor

	held []byte
}

// next returns what to pass on of what was held and of p, which it changes. It is valid until the
// next call.
func (r *redacting) next(p []byte) []byte {
	if r.redactor == nil {
		return p
	}
	if len(r.held) > 0 {
		p = append(r.held, p...)
		r.held = nil
	}
	for rest := p; ; {
		at, n, partial := r.find(rest, false)
		if n > 0 {
			blank(rest[at : at+n])
			rest = rest[at+n:]
			continue
		}
		p = p[:len(p)-len(rest)+partial]
		r.held = append([]byte(nil), rest[partial:]...)
		return p
	}
}

// rest returns what is held when the answer has ended. What was going to be the key is not passed
// on.
func (r *redacting) rest() []byte {
	if len(r.held) >= minRedacted {
		blank(r.held)
	}
	return r.held
}
