package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/drawgate/drawgate/api"
)

// body reads the body of a request into a buffer.
func (s *Server) body(w http.ResponseWriter, r *http.Request, buf []byte) ([]byte, *api.Problem) {
	in := r.Body
	if r.ContentLength < 0 || r.ContentLength > api.MaxBody { // otherwise the body is no longer than its length says
		in = http.MaxBytesReader(w, in, api.MaxBody)
	}
	s.busy.Add(-1) // it has not arrived yet
	buf, err := readAll(buf[:0], in)
	s.busy.Add(1)
	if err == nil {
		return buf, nil
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return buf, problem(api.CodeTooLarge, "the body has more than %d bytes", tooLarge.Limit)
	}
	return buf, problem(api.CodeBadJSON, "the body did not arrive: %v", err)
}

// readAll is [io.ReadAll] into a buffer.
func readAll(b []byte, r io.Reader) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = slices.Grow(b, 1024)
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

// decode decodes the body, one JSON value, into v, strictly. It returns nil on success.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, v any) *api.Problem {
	body, p := s.body(w, r, nil)
	if p != nil {
		return p
	}
	return parse(body, v)
}

// parse decodes one JSON value into v, strictly.
func parse(body []byte, v any) *api.Problem {
	if !isText(body) {
		// encoding/json would decode all of these to the same character: different keys would share
		// a bucket.
		return problem(api.CodeBadJSON, "the body is not valid UTF-8, or has half of a surrogate pair")
	}
	if p := checkArraySizes(body); p != nil {
		return p
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			err = checkFieldNames(body, v)
		} else if err == nil {
			err = errors.New("there is text after the JSON value")
		}
	}
	if err == nil {
		return nil
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return problem(api.CodeBadJSON, "%s must be %s, not %s", fieldOf(wrong), wants(wrong), wrong.Value)
	}
	switch {
	case errors.Is(err, io.EOF):
		return problem(api.CodeBadJSON, "the body is empty: it must be a JSON object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return problem(api.CodeBadJSON, "the JSON ends too early")
	}
	return problem(api.CodeBadJSON, "%s", strings.TrimPrefix(err.Error(), "json: "))
}

// isText reports whether JSON contains only valid characters: no invalid UTF-8, and no escaped
// surrogate without its other half.
func isText(body []byte) bool {
	if !utf8.Valid(body) {
		return false
	}
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' { // in JSON only strings contain it
			continue
		}
		r := escaped(body[i:])
		if r < 0 || !utf16.IsSurrogate(r) {
			i++ // the escaped character may be another backslash
			continue
		}
		const escape = len(`\uD800`)
		if utf16.DecodeRune(r, escaped(body[i+escape:])) == utf8.RuneError {
			return false
		}
		i += 2*escape - 1
	}
	return true
}

// escaped returns the code of the \uXXXX at the start of the text, or -1.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}

// embedded removes embedded Go types, which JSON does not have, from a field's path.
func embedded(path string) string {
	path = strings.TrimPrefix(strings.TrimPrefix(path, "Take."), "Bucket.")
	if rest, ok := strings.CutPrefix(path, "takes.Bucket."); ok {
		return "takes." + rest
	}
	return path
}

func fieldOf(e *json.UnmarshalTypeError) string {
	if e.Field == "" {
		return "the body"
	}
	return embedded(e.Field)
}

// wants returns the JSON name of a Go type.
func wants(e *json.UnmarshalTypeError) string {
	switch k := e.Type.Kind().String(); {
	case strings.HasPrefix(k, "int"):
		return "an integer"
	case k == "bool":
		return "true or false"
	case k == "slice":
		return "an array"
	case k == "struct" || k == "map":
		return "an object"
	default:
		return "a string"
	}
}

// Media types of answers, as header values. They are not changed.
var (
	jsonType    = []string{"application/json"}
	problemType = []string{api.ProblemType}
	noStore     = []string{"no-store"}
	noSniff     = []string{"nosniff"}
)

func writeJSON(w http.ResponseWriter, status int, v any) {
	write(w, status, jsonType, append(marshal(v), '\n'))
}

// write sends an answer. Errors are ignored: the client has closed the connection.
func write(w http.ResponseWriter, status int, mediaType []string, body []byte) {
	h := w.Header()
	h["Content-Type"] = mediaType
	h["Cache-Control"] = noStore
	h["X-Content-Type-Options"] = noSniff
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // JSON, and browsers are told not to guess otherwise
}
