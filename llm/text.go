package llm

import (
	"math"
	"unicode"
	"unicode/utf8"
)

// Feature is something that is counted in a text, because tokenizers spend tokens on it.
type Feature uint8

// The features. Their weights differ between tokenizers; see [Weights].
//
// A word here is a run of ASCII letters, cut where a small letter is followed by a capital, as
// tokenizers cut words. Whatever else is in the text is counted by its own features, so that none
// of it is free.
const (
	Words           Feature = iota // words of ASCII letters
	LongLetters                    // letters of a word from the 7th on
	Capitals                       // capitals that are not the first letter of their word
	RareLetters                    // letters that seldom follow the one before them: "xk" rather than "th"
	Digits                         // groups of up to three digits
	Punctuation                    // runs of ASCII punctuation
	PunctuationOn                  // characters of such runs from the 2nd to the 4th
	PunctuationLong                // later characters of such runs that differ from the one before
	PunctuationSame                // later characters that do not: a line of dashes
	Spaces                         // runs of blanks from the second blank on
	SpacesOn                       // blanks of such runs
	Lines                          // runs of line ends
	LinesOn                        // line ends of such runs from the 2nd on
	Han                            // Chinese characters
	Kana                           // Japanese hiragana and katakana
	Hangul                         // Korean syllables
	OtherWords                     // runs of other letters: accented, Greek, Cyrillic, Arabic, …
	OtherLetters                   // their letters
	OtherBytes                     // bytes of everything else, such as emoji and control characters
	// Those below are counted for bounds: no text that was measured needs them for an estimate.
	ShortLetters // letters of a word from the 2nd to the 6th
	LongBytes    // bytes of rare characters beyond the usual two or three, and a blank before such a one

	numFeatures
)

// Text describes texts without keeping them: how much there is of what. The zero value describes
// no text.
type Text struct {
	Bytes  int64 // in UTF-8
	Runes  int64 // characters
	Pieces int64 // texts
	Counts [numFeatures]int64

	last  charKind
	prev  rune // the letter before, in lower case, or the punctuation; 0 if there is none
	run   int  // characters of this kind in a row
	upper bool // the letter before was a capital
	tap   *[]byte
}

// shortWord is how many letters a word has that are counted as the word alone.
const shortWord = 6

type charKind uint8

const (
	kindNone charKind = iota
	kindLetter
	kindDigit
	kindPunct
	kindBlank
	kindLine
	kindOtherLetter
	kindOther
)

// Measure describes a text.
func Measure(text string) Text {
	var t Text
	t.Add(text)
	return t
}

// Add counts one more text.
func (t *Text) Add(text string) {
	t.begin()
	for _, r := range text {
		t.add(r, utf8.RuneLen(r))
	}
	t.end()
}

// plus counts what another counted.
func (t *Text) plus(o *Text) {
	t.Bytes += o.Bytes
	t.Runes += o.Runes
	t.Pieces += o.Pieces
	for i, n := range o.Counts {
		t.Counts[i] += n
	}
}

func (t *Text) begin() {
	t.Pieces++
	t.cut()
}

func (t *Text) end() { t.cut() }

func (t *Text) cut() { t.last, t.prev, t.run, t.upper = kindNone, 0, 0, false }

// add counts a character of so many bytes.
func (t *Text) add(r rune, size int) {
	t.Bytes += int64(size)
	t.Runes++
	if t.tap != nil {
		*t.tap = utf8.AppendRune(*t.tap, r)
	}
	kind := kindOf(r)
	if kind == kindNone { // counted by itself, and ends every run
		t.wide(r, size)
		t.cut()
		return
	}
	t.feature(kind, r, size)
}

// addASCII counts ASCII characters: what add does with each of them, several times as fast.
func (t *Text) addASCII(p []byte) {
	t.Bytes += int64(len(p))
	t.Runes += int64(len(p))
	if t.tap != nil {
		*t.tap = append(*t.tap, p...)
	}
	for i := 0; i < len(p); {
		if c := p[i]; c-'a' < 26 || c == ' ' && t.last != kindBlank {
			i += t.words(p[i:])
		} else {
			t.feature(asciiKinds[c], rune(c), 1)
			i++
		}
	}
}

// words counts the small letters and the single blanks between words at the start of p, and returns
// their number. There is at least one.
func (t *Text) words(p []byte) (n int) {
	var rare, long, blanks int
	begun, from, after := 0, 0, &rareAfter[0]
	if t.last == kindLetter { // the first word began before p
		begun, from, after = 1, -t.run, &rareAfter[t.prev&31]
		long = -max(t.run-shortWord, 0)
	} else if p[0] == ' ' {
		begun = 1
	}
	n = len(p)
	for i, c := range p {
		if c-'a' < 26 {
			rare += int(after[c&31])
			after = &rareAfter[c&31]
			continue
		}
		if c != ' ' || i == from && i > 0 {
			n = i
			break
		}
		blanks++ // it ends a word
		long += max(i-from-shortWord, 0)
		from, after = i+1, &rareAfter[0]
	}
	words := blanks - begun
	t.last, t.run, t.prev, t.upper = kindBlank, 1, 0, false
	if n > from {
		words++
		long += max(n-from-shortWord, 0)
		t.last, t.run, t.prev = kindLetter, n-from, rune(p[n-1])
	}
	t.Counts[Words] += int64(words)
	t.Counts[RareLetters] += int64(rare)
	t.Counts[LongLetters] += int64(long)
	t.Counts[ShortLetters] += int64(n - blanks - words - long)
	return n
}

// rareAfter has a 1 for each letter that seldom follows another one: a is 1, z is 26. Nothing is
// rare after 0, which is a blank.
var rareAfter = func() (rare [32][32]uint8) {
	for i, common := range commonAfter {
		for c := range 26 {
			rare[i+1][c+1] = uint8(^common >> c & 1)
		}
	}
	return rare
}()

// asciiKinds is kindOf for ASCII.
var asciiKinds = func() (kinds [utf8.RuneSelf]charKind) {
	for r := range kinds {
		kinds[r] = kindOf(rune(r))
	}
	return kinds
}()

// feature counts a character by its kind.
func (t *Text) feature(kind charKind, r rune, size int) {
	if kind != t.last {
		if kind == kindOther {
			t.blankBefore()
		}
		t.run, t.prev, t.upper = 0, 0, false
	}
	t.last = kind
	t.run++
	switch kind {
	case kindLetter:
		t.letter(r)
	case kindDigit:
		if t.run%3 == 1 {
			t.Counts[Digits]++
		}
	case kindPunct:
		t.punctuation(r)
	case kindLine:
		t.first(Lines, LinesOn)
	case kindBlank:
		switch {
		case t.run == 2:
			t.Counts[Spaces]++
			t.Counts[SpacesOn] += 2
		case t.run > 2:
			t.Counts[SpacesOn]++
		}
	case kindOtherLetter:
		if t.run == 1 {
			t.Counts[OtherWords]++
		}
		t.Counts[OtherLetters]++
		t.Counts[LongBytes] += int64(max(0, size-2))
	default:
		if r < utf8.RuneSelf {
			size = 2 // a control character is a token, which two of these bytes are worth
		}
		t.Counts[OtherBytes] += int64(size)
	}
}

func (t *Text) punctuation(r rune) {
	switch {
	case t.run == 1:
		t.Counts[Punctuation]++
	case t.run <= 4:
		t.Counts[PunctuationOn]++
	case r == t.prev:
		t.Counts[PunctuationSame]++
	default:
		t.Counts[PunctuationLong]++
	}
	t.prev = r
}

func (t *Text) first(one, more Feature) {
	if t.run == 1 {
		t.Counts[one]++
		return
	}
	t.Counts[more]++
}

func (t *Text) letter(r rune) {
	upper := r <= 'Z'
	low := r | 0x20
	if upper && t.run > 1 && !t.upper {
		t.run, t.prev = 1, 0
	}
	if t.run == 1 {
		t.Counts[Words]++
	} else if upper {
		t.Counts[Capitals]++
	}
	switch {
	case t.run > shortWord:
		t.Counts[LongLetters]++
	case t.run > 1:
		t.Counts[ShortLetters]++
	}
	if t.prev != 0 && commonAfter[t.prev-'a']&(1<<(low-'a')) == 0 {
		t.Counts[RareLetters]++
	}
	t.prev, t.upper = low, upper
}

// wide counts a character of a script in which a word has few characters.
func (t *Text) wide(r rune, size int) {
	t.blankBefore()
	t.Counts[LongBytes] += int64(max(0, size-3))
	switch {
	case isHan(r):
		t.Counts[Han]++
	case unicode.In(r, unicode.Hiragana, unicode.Katakana):
		t.Counts[Kana]++
	case unicode.Is(unicode.Hangul, r):
		t.Counts[Hangul]++
	default:
		t.Counts[OtherBytes] += int64(size)
	}
}

// blankBefore counts a single blank before a character with which it may be a token of its own.
func (t *Text) blankBefore() {
	if t.last == kindBlank && t.run == 1 {
		t.Counts[LongBytes]++
	}
}

func kindOf(r rune) charKind {
	switch {
	case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z':
		return kindLetter
	case r >= '0' && r <= '9':
		return kindDigit
	case r == ' ' || r == '\t':
		return kindBlank
	case r == '\n' || r == '\r':
		return kindLine
	case r > ' ' && r < 0x7F:
		return kindPunct
	case r < utf8.RuneSelf:
		return kindOther
	case r >= 0x1100 && (isHan(r) || unicode.In(r, unicode.Hiragana, unicode.Katakana, unicode.Hangul)):
		return kindNone
	case unicode.IsLetter(r) || unicode.IsMark(r):
		return kindOtherLetter
	}
	return kindOther
}

// isHan is unicode.Is(unicode.Han, r), and faster for the block of the usual ones.
func isHan(r rune) bool { return r >= 0x4E00 && r <= 0x9FFF || unicode.Is(unicode.Han, r) }

// Weights say how many tokens each feature of a text costs.
type Weights [numFeatures]float64

// Tokens returns the estimate of a text's tokens, at least one for each text that is not empty.
func (w *Weights) Tokens(t *Text) float64 {
	var sum float64
	for i, n := range t.Counts {
		sum += w[i] * float64(n)
	}
	// No tokenizer that works on bytes makes more tokens than there are bytes.
	sum = min(sum, float64(t.Bytes))
	return max(sum, float64(min(t.Pieces, t.Bytes)))
}

// Class is what a text mostly consists of. The estimator learns a correction for each.
type Class uint8

// The classes of content.
const (
	ClassPlain Class = iota // words of ASCII letters
	ClassDense              // digits, punctuation and letters in no natural order: logs, JSON, blobs
	ClassCJK                // Chinese, Japanese, Korean
	ClassOther              // other alphabets, and everything else
	numClasses
)

var classNames = [numClasses]string{"plain", "dense", "cjk", "other"}

// String returns a short name.
func (c Class) String() string {
	if c < numClasses {
		return classNames[c]
	}
	return "unknown"
}

// Class returns what the text mostly consists of.
func (t *Text) Class() Class {
	n := &t.Counts
	cjk := n[Han] + n[Kana] + n[Hangul]
	other := n[OtherLetters] + n[OtherBytes]/2
	dense := n[Digits] + n[RareLetters] + n[Capitals] + n[Punctuation] + n[PunctuationOn] + n[PunctuationLong]
	switch {
	case 4*cjk >= t.Runes && cjk > 0:
		return ClassCJK
	case 4*other >= t.Runes && other > 0:
		return ClassOther
	case dense > n[Words]:
		return ClassDense
	}
	return ClassPlain
}

// ceil rounds up, to at least 0, and to no more than what a cost may be.
func ceil(f float64) int64 {
	if !(f > 0) {
		return 0
	}
	return int64(min(math.Ceil(f), maxAmount))
}
