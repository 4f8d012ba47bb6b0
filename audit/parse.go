package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"unicode/utf8"
)

// errLine is of a line that is none of a ledger: it was torn, or damaged.
var errLine = errors.New("audit: this is not a line of a ledger")

// parser reads lines. It is made for the few shapes that a line has, which is several times as fast
// as a reader of any JSON.
type parser struct {
	rest  []byte
	names map[string]string // texts that occur again and again
}

// maxNames bounds the names that a parser keeps. An upstream has few models, owners and units.
const maxNames = 1 << 16

// ParseLine reads a line, with or without the newline at its end. Keys that are not known are
// skipped if their values are numbers, texts or amounts.
func ParseLine(text []byte) (*Line, error) {
	l := &Line{}
	p := parser{}
	return l, p.parse(text, l)
}

func (p *parser) parse(text []byte, l *Line) error {
	*l = Line{}
	p.rest = bytes.TrimSuffix(text, []byte("\n"))
	err := p.object(func(k []byte) error { return p.field(string(k), l) })
	switch {
	case err != nil:
		return err
	case len(p.rest) != 0, l.N == 0, l.At <= 0, l.At > maxInstant, l.Event == "":
		return errLine
	}
	return nil
}

// maxInstant is the latest instant of a line, in the year 2116: a window after it can be computed
// without an overflow.
const maxInstant = 1 << 62

// field reads the value of one key.
func (p *parser) field(key string, l *Line) (err error) { //nolint:gocyclo // a table of the keys
	var n int64
	switch key {
	case "n":
		n, err = p.number()
		l.N = uint64(max(0, n))
	case "t":
		l.At, err = p.number()
	case "e":
		err = p.text((*string)(&l.Event))
	case "heard":
		n, err = p.number()
		l.Heard = uint64(max(0, n))
	case "miscounted":
		n, err = p.number()
		l.Miscounted = n != 0
	case "v":
		n, err = p.number()
		l.Version = int(n)
	case "run":
		err = p.text(&l.Run)
	case "host":
		err = p.text(&l.Host)
	case "part":
		n, err = p.number()
		l.Part = int(n)
	case "call":
		n, err = p.number()
		l.Call = uint64(n)
	case "upstream":
		err = p.text(&l.Upstream)
	case "granted":
		l.Granted, err = p.number()
	case "asked":
		l.Asked, err = p.number()
	case "key":
		err = p.text(&l.Key)
	case "team":
		err = p.text(&l.Team)
	case "owner":
		err = p.text(&l.Owner)
	case "model":
		err = p.text(&l.Model)
	case "policy":
		err = p.text(&l.Policy)
	case "reserved":
		l.Reserved, err = p.amounts()
	case "fallback":
		n, err = p.number()
		l.Fallback, l.Unsure = n != 0, n == 2
	case "limit":
		err = p.text(&l.Limit)
	case "sent":
		l.Sent, err = p.number()
	case "answered":
		l.Answered, err = p.number()
	case "ended":
		l.Ended, err = p.number()
	case "outcome":
		err = p.text(&l.Outcome)
	case "status":
		n, err = p.number()
		l.Status = int(n)
	case "meaning":
		err = p.text(&l.Meaning)
	case "unit":
		err = p.text(&l.Unit)
	case "used":
		l.Used, err = p.amounts()
	case "reported":
		err = p.text((*string)(&l.Reported))
	default:
		err = p.skip()
	}
	return err
}

// object reads an object, whose values value reads.
func (p *parser) object(value func(key []byte) error) error {
	if !p.take('{') {
		return errLine
	}
	if p.take('}') {
		return nil
	}
	for {
		k, err := p.raw()
		if err != nil || !p.take(':') {
			return errLine
		}
		if err := value(k); err != nil {
			return err
		}
		if p.take('}') {
			return nil
		}
		if !p.take(',') {
			return errLine
		}
	}
}

func (p *parser) take(c byte) bool {
	if len(p.rest) == 0 || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *parser) skip() (err error) {
	switch {
	case len(p.rest) == 0:
		return errLine
	case p.rest[0] == '{':
		_, err = p.amounts()
	case p.rest[0] == '"':
		_, err = p.raw()
	default:
		_, err = p.number()
	}
	return err
}

// number reads an integer.
func (p *parser) number() (n int64, err error) {
	negative := p.take('-')
	digits := 0
	for ; digits < len(p.rest); digits++ {
		c := p.rest[digits] - '0'
		if c > 9 {
			break
		}
		if n > (math.MaxInt64-int64(c))/10 {
			return 0, errLine
		}
		n = n*10 + int64(c)
	}
	if digits == 0 {
		return 0, errLine
	}
	p.rest = p.rest[digits:]
	if negative {
		n = -n
	}
	return n, nil
}

// raw reads a text. It is valid until the next line.
func (p *parser) raw() ([]byte, error) {
	if len(p.rest) == 0 || p.rest[0] != '"' {
		return nil, errLine
	}
	end := bytes.IndexByte(p.rest[1:], '"') + 1
	if end == 0 {
		return nil, errLine
	}
	s := p.rest[1:end]
	if bytes.IndexByte(s, '\\') < 0 && utf8.Valid(s) {
		p.rest = p.rest[end+1:]
		return s, nil
	}
	for end = 1; end < len(p.rest) && p.rest[end] != '"'; end++ {
		if p.rest[end] == '\\' {
			end++
		}
	}
	if end >= len(p.rest) {
		return nil, errLine
	}
	var out string
	if json.Unmarshal(p.rest[:end+1], &out) != nil {
		return nil, errLine
	}
	p.rest = p.rest[end+1:]
	return []byte(out), nil
}

func (p *parser) text(to *string) error {
	s, err := p.raw()
	*to = p.name(s)
	return err
}

// name returns a text that is kept once.
func (p *parser) name(s []byte) string {
	if known, ok := p.names[string(s)]; ok {
		return known
	}
	if p.names == nil || len(p.names) >= maxNames {
		p.names = map[string]string{}
	}
	p.names[string(s)] = string(s)
	return string(s)
}

// amounts reads units. They are never negative.
func (p *parser) amounts() ([]Amount, error) {
	list := make([]Amount, 0, 3)
	err := p.object(func(k []byte) error {
		unit := p.name(k)
		n, err := p.number()
		if n < 0 || n > maxUnits {
			return errLine
		}
		list = append(list, Amount{unit, n})
		return err
	})
	return list, err
}

// maxUnits is the largest amount that a line may have: sums of a million of them fit into an int64.
const maxUnits = 1_000_000_000_000
