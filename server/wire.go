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

// post serves a path that is only posted to.
func post(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if allowMethod(w, r, http.MethodPost) {
			h(w, r)
		}
	})
}

// allowMethod reports whether the request has one of the methods; otherwise it was answered.
func allowMethod(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	if slices.Contains(methods, r.Method) {
		return true
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	writeProblem(w, problem(api.CodeBadMethod, "%s is answered to %s, not to %s", r.URL.Path, strings.Join(methods, " and "), r.Method))
	return false
}

// decode reads one JSON value into v, strictly. It returns nil if all is well.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, v any) *api.Problem {
	s.busy.Add(-1) // it has not arrived yet
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, api.MaxBody))
	s.busy.Add(1)
	if err == nil && !isText(body) {
		// encoding/json would make the same character of all of these: different keys would share a bucket.
		return problem(api.CodeBadJSON, "the body is not valid UTF-8, or has half of a surrogate pair")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err == nil {
		err = d.Decode(v)
	}
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = errors.New("something follows the JSON value")
		}
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return problem(api.CodeTooLarge, "the body has more than %d bytes", tooLarge.Limit)
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

// isText reports whether JSON says only characters: no invalid UTF-8, and no escaped surrogate without its other half.
func isText(body []byte) bool {
	if !utf8.Valid(body) {
		return false
	}
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' { // in JSON only strings have it
			continue
		}
		r := escaped(body[i:])
		if r < 0 || !utf16.IsSurrogate(r) {
			i++ // what is escaped may be another backslash
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

// escaped returns the code of the \uXXXX that the text begins with, or -1.
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

// embedded removes from a field's path the Go types that its fields are embedded in, of which JSON knows nothing.
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

// wants names a Go type as JSON does.
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

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // the types of package api can always be written
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	h := w.Header()
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that went away needs no answer
}
