package gateway

import (
	"bytes"
	"encoding/json"
)

// maxHeld is how much of one event is held back to see whether it is the one with the usage, which
// is much shorter.
const maxHeld = 16 << 10

// usageFilter leaves out of an event stream of OpenAI's the event that has nothing but the usage,
// for callers who did not ask for it. Everything else passes at once, byte for byte, except an
// event that has not ended yet: nobody can use a part of one.
type usageFilter struct {
	held []byte // of the event that has not ended
	long bool   // it is too long to be the one: it passes
}

// next returns what to pass on of what was held and of p. It is valid until the next call.
func (f *usageFilter) next(p []byte) (out []byte) {
	for len(p) > 0 {
		if f.long {
			n := eventEnd(f.held, p)
			if n < 0 {
				f.held = tail(append(f.held, p...))
				return append(out, p...)
			}
			out, p = append(out, p[:n]...), p[n:]
			f.held, f.long = f.held[:0], false
			continue
		}
		n := eventEnd(f.held, p)
		if n < 0 {
			f.held = append(f.held, p...)
			switch {
			case comment(f.held):
				out, f.held = append(out, f.held...), f.held[:0]
			case len(f.held) > maxHeld:
				out = append(out, f.held...)
				f.held, f.long = tail(f.held), true
			}
			return out
		}
		f.held, p = append(f.held, p[:n]...), p[n:]
		if !onlyUsage(f.held) {
			out = append(out, f.held...)
		}
		f.held = f.held[:0]
	}
	return out
}

// rest returns what is held when the stream has ended.
func (f *usageFilter) rest() []byte {
	if f.long || onlyUsage(f.held) {
		return nil
	}
	return f.held
}

// tail keeps as much of an event as is needed to see its end.
func tail(b []byte) []byte {
	n := copy(b, b[max(0, len(b)-3):])
	return b[:n]
}

// comment reports whether the event so far is a line that says nothing: providers send such lines
// to keep a connection alive.
func comment(b []byte) bool { return b[0] == ':' && bytes.HasSuffix(b, []byte("\n")) }

// eventEnd returns how many bytes of p belong to the event of which held is the beginning: up to
// and with the empty line. It is -1 if the event does not end in p.
func eventEnd(held, p []byte) int {
	line := len(held) == 0 // at the start of a line
	for _, c := range held {
		line = c == '\n' || c == '\r' && line
	}
	for i, c := range p {
		if c == '\n' && line {
			return i + 1
		}
		line = c == '\n' || c == '\r' && line
	}
	return -1
}

// onlyUsage reports whether an event has nothing but the usage: no choices.
func onlyUsage(event []byte) bool {
	if !bytes.Contains(event, []byte(`"usage"`)) {
		return false
	}
	var data []byte
	for line := range bytes.Lines(event) {
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, rest...)
		}
	}
	var chunk struct {
		Choices *[]json.RawMessage `json:"choices"`
		Usage   *json.RawMessage   `json:"usage"`
	}
	return json.Unmarshal(data, &chunk) == nil && chunk.Choices != nil && len(*chunk.Choices) == 0 && chunk.Usage != nil
}
