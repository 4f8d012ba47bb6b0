package llm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds of what a scanner keeps, whatever it is fed.
const (
	maxDepth  = 128  // levels of arrays and objects; providers' own limits are lower
	maxNumber = 40   // bytes of a number
	maxKeep   = 1024 // bytes that are kept of a string whose value matters
)

// Errors of scanners. Parse adds the position.
var (
	errSyntax    = errors.New("not valid JSON")
	errDepth     = fmt.Errorf("more than %d levels deep", maxDepth)
	errNumber    = fmt.Errorf("a number of more than %d bytes", maxNumber)
	errUTF8      = errors.New("not valid UTF-8")
	errDuplicate = errors.New("a key that matters occurs twice in an object")
	errCapitals  = errors.New("a key that matters is written with other capitals")
	errUnended   = errors.New("the JSON ends too early")
)

// sink is told what a scanner reads.
type sink interface {
	// begin is called at the start of an array or object, and end at its end.
	begin(r role, array bool, offset int64) error
	end(r role, array bool, offset int64) error
	// text returns where to count the characters of a string, or nil, and whether its first bytes
	// are to be kept. It is asked before the string is read. Keys are asked for as well.
	text(r role, key bool) (count *Text, keep bool)
	// scalar is called after a string (kind '"'), a number ('0'), true ('t'), false ('f') or null
	// ('n'). value is what was kept of it: up to maxKeep bytes of a string. whole is false if the
	// string was longer.
	scalar(r role, kind byte, value []byte, whole bool, offset int64) error
	// unknown is called for a key whose value is not null, or a value in the place of one of
	// another kind, that is not known where it is: see [node]. key is nil for a value, or if it is
	// too long.
	unknown(key []byte)
	// note is called for a key of an object whose keys are noted: the i-th of n.kids.
	note(n *node, i int)
}

// frame is an array or object that is open.
type frame struct {
	array bool
	node  *node // nil below everything that matters
	role  role
	rest  role
	seen  [2]uint64 // keys that matter, by their index in node.kids
}

type scanState uint8

const (
	wantValue scanState = iota
	wantFirst           // a value or the end of an array
	wantKeyOrEnd
	wantKey
	wantColon
	wantComma // or the end of what is open
	inString
	inEscape
	inHex
	inNumber
	inLiteral
	finished
)

// scanner reads one JSON value in pieces of any size, in memory that does not grow with it. It
// finds the roles of values by their position and tells a sink. After an error it must be reset.
type scanner struct {
	sink   sink
	root   *node
	strict bool // duplicates of keys that matter are an error

	state  scanState
	offset int64 // of the next byte
	start  int64 // of the current scalar
	stack  []frame
	next   *node // of the value that comes
	role   role  // of the value that comes, or is being read
	rest   role

	isKey   bool
	odd     bool // the key that was read is not known where it is
	count   *Text
	keep    bool
	kept    []byte
	whole   bool
	partial [utf8.UTFMax]byte // the beginning of a character
	nPart   int
	hex     rune
	nHex    int
	high    rune // the first half of a surrogate pair
	literal string
}

// reset makes s ready for a value.
func (s *scanner) reset() {
	*s = scanner{sink: s.sink, root: s.root, strict: s.strict, stack: s.stack[:0], kept: s.kept[:0]}
	s.enter(s.root, 0)
}

// enter notes the position of the value that comes.
func (s *scanner) enter(n *node, rest role) {
	s.next = n
	if n == nil {
		s.role, s.rest = rest, rest
		return
	}
	s.role, s.rest = n.role, n.rest
	if s.role == 0 {
		s.role = n.rest
	}
}

// write reads the next piece.
func (s *scanner) write(p []byte) error {
	for len(p) > 0 {
		n, err := s.writeValue(p)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// writeValue reads the next piece, but not beyond the byte that ends the value, and returns how
// many bytes it has read.
func (s *scanner) writeValue(p []byte) (n int, err error) {
	for i := 0; i < len(p); i++ {
		if s.state == inString && s.nPart == 0 && s.high == 0 {
			n := s.characters(p[i:])
			i += n
			s.offset += int64(n)
			if i == len(p) {
				return i, nil
			}
		}
		again, err := s.step(p[i])
		if err != nil {
			return i, err
		}
		if again { // the byte ended a number, and is not a part of it
			if _, err := s.step(p[i]); err != nil {
				return i, err
			}
		}
		s.offset++
		if s.state == finished {
			return i + 1, nil
		}
	}
	return len(p), nil
}

// characters reads those at the start of p that stand for themselves in a string, as far as they
// are whole, and returns how many bytes they have.
func (s *scanner) characters(p []byte) (n int) {
	for n < len(p) {
		if plainASCII[p[n]] {
			n += s.plain(p[n:])
			continue
		}
		r, size := utf8.DecodeRune(p[n:])
		if size == 1 { // ASCII, or not whole, or damaged
			break
		}
		s.rune(r)
		n += size
	}
	return n
}

// plainASCII has the ASCII characters that stand for themselves in a string.
var plainASCII = func() (plain [1 << 8]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// plainLength returns how many of plainASCII's characters p begins with.
func plainLength(p []byte) (n int) {
	// Of eight at a time: the high bit of a byte is set if it is the first that is something else,
	// and of those after it perhaps.
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	rest := p
	for len(rest) >= 8 {
		x := binary.LittleEndian.Uint64(rest)
		quote, escape := x^ones*'"', x^ones*'\\'
		odd := (x - ones*' ') | (quote - ones) | (escape - ones)
		if odd = (odd&^x | x) & highs; odd != 0 {
			return len(p) - len(rest) + bits.TrailingZeros64(odd)/8
		}
		rest = rest[8:]
	}
	n = len(p) - len(rest)
	for _, c := range rest {
		if !plainASCII[c] {
			break
		}
		n++
	}
	return n
}

// plain reads the ASCII characters at the start of p that need no care, and returns their number.
func (s *scanner) plain(p []byte) int {
	n := plainLength(p)
	if s.count != nil {
		s.count.addASCII(p[:n])
	}
	if s.keep || s.isKey {
		s.store(p[:n])
	}
	return n
}

func (s *scanner) store(p []byte) {
	if len(s.kept)+len(p) > maxKeep {
		s.whole = false
		p = p[:max(0, maxKeep-len(s.kept))]
	}
	s.kept = append(s.kept, p...)
}

// step reads one byte. again says that it must be read once more.
func (s *scanner) step(c byte) (again bool, err error) {
	switch s.state {
	case inString:
		return false, s.inString(c)
	case inEscape:
		return false, s.escape(c)
	case inHex:
		return false, s.hexDigit(c)
	case inNumber:
		if c >= '0' && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-' {
			if len(s.kept) >= maxNumber {
				return false, errNumber
			}
			s.kept = append(s.kept, c)
			return false, nil
		}
		return true, s.endNumber()
	case inLiteral:
		if c != s.literal[len(s.kept)] {
			return false, errSyntax
		}
		if s.kept = append(s.kept, c); len(s.kept) < len(s.literal) {
			return false, nil
		}
		return false, s.endScalar(s.literal[0])
	}
	if c == ' ' || c == '\t' || c == '\n' || c == '\r' {
		return false, nil
	}
	return false, s.structure(c)
}

// structure reads a byte between scalars.
func (s *scanner) structure(c byte) error {
	switch {
	case s.state == wantFirst && c == ']', s.state == wantKeyOrEnd && c == '}':
		return s.close(c)
	case s.state == wantValue, s.state == wantFirst:
		return s.value(c)
	case s.state == wantKeyOrEnd && c == '"', s.state == wantKey && c == '"':
		s.isKey = true
		f := s.stack[len(s.stack)-1]
		s.count, s.keep = s.sink.text(f.rest, true)
		s.startString()
	case s.state == wantColon && c == ':':
		s.state = wantValue
	case s.state == wantComma && c == ',':
		if f := s.stack[len(s.stack)-1]; f.array {
			s.state = wantValue
			s.element(f)
		} else {
			s.state = wantKey
		}
	case s.state == wantComma && (c == ']' || c == '}'):
		return s.close(c)
	default:
		return errSyntax
	}
	return nil
}

func (s *scanner) element(f frame) {
	if f.node != nil && f.node.each != nil {
		s.enter(f.node.each, f.rest)
		return
	}
	s.enter(nil, f.rest)
}

// value reads the first byte of a value.
func (s *scanner) value(c byte) error {
	if s.odd && c != 'n' { // a field that is null is as good as absent: SDKs write fields that nobody has set
		key := s.kept
		if !s.whole {
			key = nil
		}
		s.sink.unknown(key)
	}
	s.odd = false
	s.start = s.offset
	s.kept = s.kept[:0]
	switch {
	case c == '{' || c == '[':
		if len(s.stack) >= maxDepth {
			return errDepth
		}
		if n := s.next; n != nil {
			switch {
			case c == '{' && n.each != nil && len(n.keys) == 0:
				s.enter(n.each, s.rest) // an object in the place of a list is a list of one
			case c == '[' && n.each == nil && n.closed:
				s.sink.unknown(nil)
			}
		}
		f := frame{array: c == '[', node: s.next, role: s.role, rest: s.rest}
		s.stack = append(s.stack, f)
		if err := s.sink.begin(f.role, f.array, s.offset); err != nil {
			return err
		}
		s.state = wantKeyOrEnd
		if f.array {
			s.state = wantFirst
			s.element(f)
		}
	case c == '"':
		s.isKey = false
		s.count, s.keep = s.sink.text(s.role, false)
		s.startString()
	case c == '-' || c >= '0' && c <= '9':
		s.kept = append(s.kept, c)
		s.state = inNumber
	case c == 't':
		s.startLiteral("true")
	case c == 'f':
		s.startLiteral("false")
	case c == 'n':
		s.startLiteral("null")
	default:
		return errSyntax
	}
	return nil
}

func (s *scanner) startString() {
	s.state, s.whole, s.kept, s.nPart, s.high = inString, true, s.kept[:0], 0, 0
	if s.count != nil {
		s.count.begin()
	}
}

func (s *scanner) startLiteral(text string) {
	s.state, s.literal = inLiteral, text
	s.kept = append(s.kept, text[0])
}

// inString reads a byte of a string.
func (s *scanner) inString(c byte) error {
	if s.nPart > 0 || c >= utf8.RuneSelf {
		return s.multibyte(c)
	}
	if s.high != 0 && c != '\\' {
		s.lone()
	}
	switch {
	case c == '"':
		return s.endString()
	case c == '\\':
		s.state = inEscape
	case c < ' ':
		return errSyntax
	default:
		s.rune(rune(c))
	}
	return nil
}

func (s *scanner) multibyte(c byte) error {
	if s.high != 0 {
		s.lone()
	}
	s.partial[s.nPart] = c
	s.nPart++
	p := s.partial[:s.nPart]
	if !utf8.FullRune(p) {
		return nil
	}
	r, size := utf8.DecodeRune(p)
	if r == utf8.RuneError && size <= 1 || size != s.nPart {
		return errUTF8
	}
	s.nPart = 0
	s.rune(r)
	return nil
}

func (s *scanner) escape(c byte) error {
	if s.high != 0 && c != 'u' {
		s.lone()
	}
	s.state = inString
	switch c {
	case '"', '\\', '/':
		s.rune(rune(c))
	case 'b':
		s.rune('\b')
	case 'f':
		s.rune('\f')
	case 'n':
		s.rune('\n')
	case 'r':
		s.rune('\r')
	case 't':
		s.rune('\t')
	case 'u':
		s.state, s.hex, s.nHex = inHex, 0, 0
	default:
		return errSyntax
	}
	return nil
}

func (s *scanner) hexDigit(c byte) error {
	switch {
	case c >= '0' && c <= '9':
		s.hex = s.hex<<4 | rune(c-'0')
	case c >= 'a' && c <= 'f':
		s.hex = s.hex<<4 | rune(c-'a'+10)
	case c >= 'A' && c <= 'F':
		s.hex = s.hex<<4 | rune(c-'A'+10)
	default:
		return errSyntax
	}
	if s.nHex++; s.nHex < 4 {
		return nil
	}
	s.state = inString
	if s.high != 0 {
		high := s.high
		if r := utf16.DecodeRune(high, s.hex); r != utf8.RuneError {
			s.high = 0
			s.rune(r)
			return nil
		}
		s.lone()
	}
	if s.hex >= 0xD800 && s.hex < 0xDC00 {
		s.high = s.hex
		return nil
	}
	s.rune(s.hex) // a lone second half becomes the replacement character, as in most decoders
	return nil
}

// lone counts the first half of a surrogate pair that has no second half.
func (s *scanner) lone() {
	s.high = 0
	s.rune(utf8.RuneError)
}

func (s *scanner) rune(r rune) {
	if !utf8.ValidRune(r) {
		r = utf8.RuneError
	}
	if s.count != nil {
		s.count.add(r, utf8.RuneLen(r))
	}
	if s.keep || s.isKey {
		var b [utf8.UTFMax]byte
		s.store(b[:utf8.EncodeRune(b[:], r)])
	}
}

func (s *scanner) endString() error {
	if s.count != nil {
		s.count.end()
	}
	if !s.isKey {
		return s.endScalar('"')
	}
	s.isKey = false
	s.state = wantColon
	f := &s.stack[len(s.stack)-1]
	if f.node != nil && s.whole {
		if i, ok := f.node.keys[string(s.kept)]; ok {
			seen, bit := &f.seen[i/64], uint64(1)<<(i%64)
			if *seen&bit != 0 && s.strict {
				return errDuplicate
			}
			*seen |= bit
			if f.node.noted {
				s.sink.note(f.node, i)
			}
			s.enter(f.node.kids[i], f.rest)
			return nil
		}
		if s.strict && f.node.resembles(s.kept) {
			return errCapitals
		}
	}
	s.odd = f.node != nil && f.node.closed
	s.enter(nil, f.rest)
	return nil
}

func (s *scanner) endScalar(kind byte) error {
	s.state = wantComma
	if len(s.stack) == 0 {
		s.state = finished
	}
	if n := s.next; n != nil && n.closed && !n.scalar && kind != 'n' {
		s.sink.unknown(nil)
	}
	value := s.kept
	if kind == '"' && !s.keep {
		value = nil
	}
	return s.sink.scalar(s.role, kind, value, s.whole || kind != '"', s.start)
}

func (s *scanner) endNumber() error {
	if !validNumber(s.kept) {
		return errSyntax
	}
	return s.endScalar('0')
}

// close ends an array or object.
func (s *scanner) close(c byte) error {
	f := s.stack[len(s.stack)-1]
	if f.array != (c == ']') {
		return errSyntax
	}
	s.stack = s.stack[:len(s.stack)-1]
	s.state = wantComma
	if len(s.stack) == 0 {
		s.state = finished
	}
	return s.sink.end(f.role, f.array, s.offset)
}

// finish says that nothing follows.
func (s *scanner) finish() error {
	if s.state == inNumber && len(s.stack) == 0 {
		if err := s.endNumber(); err != nil {
			return err
		}
	}
	if s.state != finished {
		return errUnended
	}
	return nil
}

// validNumber reports whether b is a number of RFC 8259, section 6.
func validNumber(b []byte) bool {
	digits := func() bool {
		n := 0
		for n < len(b) && b[n] >= '0' && b[n] <= '9' {
			n++
		}
		b = b[n:]
		return n > 0
	}
	if len(b) > 0 && b[0] == '-' {
		b = b[1:]
	}
	if len(b) > 1 && b[0] == '0' && b[1] >= '0' && b[1] <= '9' || !digits() {
		return false
	}
	if len(b) > 0 && b[0] == '.' {
		if b = b[1:]; !digits() {
			return false
		}
	}
	if len(b) > 0 && (b[0] == 'e' || b[0] == 'E') {
		if b = b[1:]; len(b) > 0 && (b[0] == '+' || b[0] == '-') {
			b = b[1:]
		}
		if !digits() {
			return false
		}
	}
	return len(b) == 0
}
