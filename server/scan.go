package server

import (
	"bytes"

	"github.com/drawgate/drawgate/api"
)

// scanTake decodes the usual forms of a take request: known fields in their exact spelling, each
// once, plain ASCII strings without escapes, integers of up to 18 digits. For anything else, valid
// or not, it returns false: then encoding/json decodes it or reports the mistake, in four times the
// time. What scanTake decodes, encoding/json decodes the same (FuzzScan).
func scanTake(body []byte, q *api.TakeRequest) bool {
	s := scanner{text: body}
	ok := s.object(func(name []byte) bool {
		if string(name) == "takes" {
			return s.takes(&q.Takes)
		}
		return s.take(name, &q.Take)
	})
	s.space()
	return ok && s.at == len(body)
}

func (s *scanner) takes(list *[]api.Take) bool {
	*list = []api.Take{}
	return s.array(func() bool {
		if len(*list) == api.MaxTakes {
			return false // too many
		}
		*list = append(*list, api.Take{})
		t := &(*list)[len(*list)-1]
		return s.object(func(name []byte) bool { return s.take(name, t) })
	})
}

// take reads the value of one field of a take.
func (s *scanner) take(name []byte, t *api.Take) bool {
	switch string(name) {
	case "id":
		return s.string(&t.ID)
	case "grant":
		return s.string(&t.Grant)
	case "priority":
		var n int64
		ok := s.integer(&n)
		t.Priority = int(n)
		return ok
	case "wait_ms":
		return s.integer(&t.WaitMS)
	case "hold_ms":
		return s.integer(&t.HoldMS)
	case "labels":
		return s.texts(&t.Labels)
	case "attributes":
		t.Attributes = &api.Attributes{}
		return s.object(func(name []byte) bool { return s.attribute(name, t.Attributes) })
	case "buckets":
		return s.buckets(&t.Buckets)
	}
	return s.bucket(name, &t.Bucket)
}

func (s *scanner) buckets(list *[]api.Bucket) bool {
	*list = []api.Bucket{}
	return s.array(func() bool {
		if len(*list) == api.MaxTakes {
			return false // by far
		}
		*list = append(*list, api.Bucket{})
		b := &(*list)[len(*list)-1]
		return s.object(func(name []byte) bool { return s.bucket(name, b) })
	})
}

func (s *scanner) bucket(name []byte, b *api.Bucket) bool {
	switch string(name) {
	case "policy":
		return s.string(&b.Policy)
	case "tenant":
		return s.string(&b.Tenant)
	case "key":
		return s.string(&b.Key)
	case "costs":
		return s.costs(&b.Costs)
	}
	return false
}

func (s *scanner) attribute(name []byte, a *api.Attributes) bool {
	switch string(name) {
	case "method":
		return s.string(&a.Method)
	case "path":
		return s.string(&a.Path)
	case "host":
		return s.string(&a.Host)
	case "route":
		return s.string(&a.Route)
	case "ip":
		return s.string(&a.IP)
	case "user":
		return s.string(&a.User)
	case "class":
		return s.string(&a.Class)
	case "headers":
		return s.texts(&a.Headers)
	case "attrs":
		return s.texts(&a.Attrs)
	}
	return false
}

func (s *scanner) costs(c *api.Costs) bool {
	out := api.Costs{}
	*c = out
	return s.object(func(name []byte) bool {
		var n int64
		ok := s.integer(&n)
		out[string(name)] = n
		return ok
	})
}

func (s *scanner) texts(m *map[string]string) bool {
	*m = map[string]string{}
	return s.object(func(name []byte) bool {
		var v string
		ok := s.string(&v)
		(*m)[string(name)] = v
		return ok
	})
}

// scanner reads JSON. Its methods report whether they could read what their name says.
type scanner struct {
	text  []byte
	at    int
	names [maxNames]span // names of the open objects; the first ones are used
	open  int            // how many
}

// maxNames is how many names of open objects can be handled: each is compared with the earlier
// names of its object.
const maxNames = 24

// span is a part of the text.
type span struct{ from, to int32 }

func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// mark reads one character, and the white space before it.
func (s *scanner) mark(c byte) bool {
	s.space()
	if s.at == len(s.text) || s.text[s.at] != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) object(field func(name []byte) bool) bool {
	if !s.mark('{') {
		return false
	}
	if s.mark('}') {
		return true
	}
	outer := s.open
	for {
		name, ok := s.plain()
		if !ok || !s.first(name, outer) || !s.mark(':') || !field(name) {
			return false
		}
		if s.mark('}') {
			s.open = outer
			return true
		}
		if !s.mark(',') {
			return false
		}
	}
}

// first records the last name, in the object whose names begin at from. It reports false if the
// object already has the name, or there are too many.
func (s *scanner) first(name []byte, from int) bool {
	for _, other := range s.names[from:s.open] {
		if bytes.Equal(name, s.text[other.from:other.to]) {
			return false
		}
	}
	if s.open == maxNames {
		return false
	}
	end := s.at - 1                                            // of the quotation mark
	s.names[s.open] = span{int32(end - len(name)), int32(end)} // a body has at most api.MaxBody bytes
	s.open++
	return true
}

func (s *scanner) array(element func() bool) bool {
	if !s.mark('[') {
		return false
	}
	if s.mark(']') {
		return true
	}
	for {
		if !element() {
			return false
		}
		if s.mark(']') {
			return true
		}
		if !s.mark(',') {
			return false
		}
	}
}

func (s *scanner) string(to *string) bool {
	text, ok := s.plain()
	*to = string(text)
	return ok
}

// plain reads a string of printable ASCII without escapes.
func (s *scanner) plain() ([]byte, bool) {
	if !s.mark('"') {
		return nil, false
	}
	for i := s.at; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			text := s.text[s.at:i]
			s.at = i + 1
			return text, true
		case c < ' ' || c > '~' || c == '\\':
			return nil, false
		}
	}
	return nil, false
}

// digits is the largest number of digits with which an integer cannot overflow.
const digits = 18

// integer reads an integer without fraction or exponent. The next character must end it.
func (s *scanner) integer(to *int64) bool {
	s.space()
	minus := s.at < len(s.text) && s.text[s.at] == '-'
	if minus {
		s.at++
	}
	n, from := int64(0), s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' && s.at-from < digits {
		n = n*10 + int64(s.text[s.at]-'0')
		s.at++
	}
	if s.at == from || s.text[from] == '0' && s.at-from > 1 {
		return false
	}
	if minus {
		n = -n
	}
	*to = n
	return true
}
