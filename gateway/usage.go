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
	held  []byte // of the event that has not ended
	long  bool   // it is too long to be the one: it passes
	inner bool   // the last byte is within a line that has some
}

// next returns what to pass on of what was held and of p. It is valid until the next call.
func (f *usageFilter) next(p []byte) (out []byte) {
	for len(p) > 0 {
		n, ended := f.event(p)
		f.held, p = append(f.held, p[:n]...), p[n:]
		switch {
		case f.long, ended && !onlyUsage(f.held), !ended && comment(f.held):
			out = append(out, f.held...)
		case ended:
		case len(f.held) > maxHeld:
			out = append(out, f.held...)
			f.long = true
		default:
			return out
		}
		f.held, f.long = f.held[:0], f.long && !ended
	}
	return out
}

// rest returns what is held when the stream has ended.
func (f *usageFilter) rest() []byte {
	if onlyUsage(f.held) {
		return nil
	}
	return f.held
}

// event returns how many bytes of p belong to the event that has begun, up to and with the empty
// line, and whether it ends there.
func (f *usageFilter) event(p []byte) (n int, ended bool) {
	for i, c := range p {
		if c == '\n' && !f.inner {
			return i + 1, true
		}
		f.inner = c != '\n' && (c != '\r' || f.inner)
	}
	return len(p), false
}

// comment reports whether the event so far is a line that says nothing: providers send such lines
// to keep a connection alive.
func comment(b []byte) bool { return b[0] == ':' && bytes.HasSuffix(b, []byte("\n")) }

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
