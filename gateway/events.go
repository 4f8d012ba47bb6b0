package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/drawgate/drawgate/llm"
)

// maxHeld is how much of one event is held back to see what it is: events with errors and with the
// usage are shorter.
const maxHeld = 64 << 10

// eventFilter changes two kinds of events of a stream. Errors lose the names of the account, as
// errors with a status of their own do. For callers who did not ask for the usage, the event that
// has nothing else is left out. Everything else passes at once, byte for byte, except an event that
// has not ended yet: nobody can use a part of one, and one that is cut off does not pass.
type eventFilter struct {
	header http.Header // of the answer, which names the account
	usage  bool        // the event with the usage is left out
	held   []byte      // of the event that has not ended
	long   bool        // it is too long to look at: it passes
	inner  bool        // the last byte is within a line that has some
	cr     bool        // the last byte is a carriage return
}

// next returns what to pass on of what was held and of p. It is valid until the next call.
func (f *eventFilter) next(p []byte) (out []byte) {
	for len(p) > 0 {
		n, ended := f.event(p)
		f.held, p = append(f.held, p[:n]...), p[n:]
		switch {
		case f.long, !ended && comment(f.held):
			out = append(out, f.held...)
		case ended:
			out = append(out, f.whole(f.held)...)
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

// rest returns what to pass on of what is held when the stream has ended.
func (f *eventFilter) rest() []byte { return f.whole(f.held) }

// whole returns what to pass on of a whole event.
func (f *eventFilter) whole(event []byte) []byte {
	switch {
	case f.usage && onlyUsage(event):
		return nil
	case bytes.Contains(event, []byte("error")):
		return withoutAccountIn(event, f.header)
	}
	return event
}

// event returns how many bytes of p belong to the event that has begun, up to and with the empty
// line, and whether it ends there.
func (f *eventFilter) event(p []byte) (n int, ended bool) {
	inner, cr := f.inner, f.cr
	for i, c := range p {
		if c != '\n' && c != '\r' {
			inner, cr = true, false
			continue
		}
		if c == '\n' && !inner || c == '\r' && cr {
			f.inner, f.cr = false, false
			return i + 1, true
		}
		inner, cr = inner && c == '\r', c == '\r'
	}
	f.inner, f.cr = inner, cr
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
	var chunk struct {
		Choices *[]json.RawMessage `json:"choices"`
		Usage   *json.RawMessage   `json:"usage"`
	}
	return json.Unmarshal(dataOf(event), &chunk) == nil &&
		chunk.Choices != nil && len(*chunk.Choices) == 0 && chunk.Usage != nil
}

// dataOf returns the data of an event.
func dataOf(event []byte) (data []byte) {
	for line := range bytes.Lines(bytes.ReplaceAll(event, []byte("\r"), []byte("\n"))) {
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, rest...)
		}
	}
	return data
}

// withoutAccountIn returns an event without the names of the account, if it is an error or has one,
// or cannot be read.
func withoutAccountIn(event []byte, h http.Header) []byte {
	var data struct {
		Type     string          `json:"type"`
		Error    json.RawMessage `json:"error"`
		Response struct {
			Error json.RawMessage `json:"error"`
		} `json:"response"`
	}
	damaged := json.Unmarshal(dataOf(event), &data) != nil
	failure := data.Response.Error
	switch {
	case damaged, data.Type == "error", len(data.Error) > 0 && string(data.Error) != "null":
		return llm.WithoutAccount(event, h)
	case len(failure) == 0 || string(failure) == "null":
		return event
	case !bytes.Contains(event, failure): // it is in several lines
		return llm.WithoutAccount(event, h)
	}
	// The rest is the answer, whose identifiers are not the account's.
	return bytes.Replace(event, failure, llm.WithoutAccount(failure, h), 1)
}
