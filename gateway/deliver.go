package gateway

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/drawgate/drawgate/llm"
)

// Times and bounds of answering.
const (
	writeTimeout = time.Minute // for a caller to take the next piece of its answer
	pieceSize    = 32 << 10
	maxError     = 1 << 20 // bytes of an answer that is an error
)

var pieces = sync.Pool{New: func() any { b := make([]byte, pieceSize); return &b }}

// deliver passes an answer of the provider on, piece by piece as it comes, and closes it. k, which
// may be nil, collects it for the cache.
func (x *exchange) deliver(c *call, resp *http.Response, k *keep) {
	defer resp.Body.Close() //nolint:errcheck // what was delivered is what counts
	c.forget()
	x.release()
	x.note = x.noteStored(c, resp)
	if resp.StatusCode == http.StatusUnauthorized {
		x.h.warn(x.up.config.keyRefused(), "upstream", x.up.config.Name)
		x.refuse(&refusal{
			kind:    llm.Lost,
			message: "the provider refused the key of this gateway: tell whoever runs it",
		})
		return
	}
	if resp.StatusCode < http.StatusOK || redirects(resp.StatusCode) {
		// A caller that follows would take its key and its prompt elsewhere.
		x.h.warn("the upstream does not answer, or sends callers elsewhere: look at its url", "upstream",
			x.up.config.Name, "status", resp.StatusCode)
		x.refuse(&refusal{kind: llm.Lost, message: "the answer of " + x.up.config.Name +
			" cannot be passed on: tell whoever runs this gateway"})
		return
	}
	if !plain(resp) && x.up.secret != nil && resp.StatusCode < http.StatusMultipleChoices {
		// It was not asked for, and nobody sees what is in it.
		x.h.warn("the upstream compresses its answers, although it was asked not to", "upstream", x.up.config.Name)
		x.refuse(&refusal{kind: llm.Lost, message: "the answer of " + x.up.config.Name +
			" is compressed, and cannot be passed on: tell whoever runs this gateway"})
		return
	}
	x.result = resultOf(c, resp.StatusCode)
	h := x.w.Header()
	x.answerHeader(h, c, resp)
	if resp.StatusCode >= http.StatusBadRequest {
		x.deliverError(resp)
		return
	}
	f := (*eventFilter)(nil)
	usage := c.filter && !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json")
	if resp.StatusCode == http.StatusOK && (usage || isEvents(resp)) && plain(resp) {
		f = &eventFilter{header: resp.Header, usage: usage}
		h.Del("Content-Length")
	}
	x.w.WriteHeader(resp.StatusCode)
	if x.r.Method == http.MethodHead {
		return
	}
	if err := x.copy(f, k, resp.Body); err != nil {
		x.cut(resp, err)
	}
	if k != nil {
		x.store(k, c, resp)
	}
}

// redirects reports whether a status sends a caller elsewhere.
func redirects(status int) bool {
	return status >= http.StatusMultipleChoices && status < http.StatusBadRequest && status != http.StatusNotModified
}

// keyRefused says what to do after a 401 of the provider.
func (u *Upstream) keyRefused() string {
	if u.Key == "" {
		return "the provider wants a key, and the upstream has none: name it with api_key_env or api_key_file"
	}
	return "the provider refuses the key of the upstream: look at its api_key_env or api_key_file"
}

// resultOf returns how a call is answered, unless the answer breaks off.
func resultOf(c *call, status int) string {
	switch {
	case status >= http.StatusBadRequest:
		return ResultError
	case c.instead:
		return ResultOtherModel
	}
	return ResultAnswered
}

// answerHeader sets the headers of an answer.
func (x *exchange) answerHeader(h http.Header, c *call, resp *http.Response) {
	own := h["Connection"] // of a gateway that stops
	x.up.secret.header(h, resp.Header)
	remove(h, notAnswered)
	if own != nil {
		h["Connection"] = own
	}
	noPage(h)
	for name := range h {
		if x.up.config.Profile.QuotaHeader(name) { // the account's, not the caller's
			delete(h, name)
		}
	}
	if c.entry == nil {
		return
	}
	x.h.headers.Append(h, &x.ask.decision)
	x.warnOfBudget(h, &x.ask.decision)
	h.Set(HeaderQueued, strconv.FormatInt(x.ask.queued.Milliseconds(), 10))
	if c.label != "" {
		h.Set(HeaderModel, c.label)
	}
}

// noPage keeps a browser from showing an answer of the provider as a page of this gateway, which
// has one that knows keys.
func noPage(h http.Header) {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type")) // "" if it is malformed
	if len(h["Content-Type"]) != 1 || kind != "application/json" && kind != "text/event-stream" {
		h.Set("Content-Security-Policy", "sandbox")
		h.Set("X-Content-Type-Options", "nosniff")
	}
}

// deliverError passes an error on. Some quote the key: one that is compressed, though we asked for
// it as it is, passes without its text.
func (x *exchange) deliverError(resp *http.Response) {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // what was read of it is enough
	if !plain(resp) {
		body = nil
		x.w.Header().Del("Content-Encoding")
	}
	secret := redacting{redactor: x.up.secret}
	body = secret.next(body)
	body = append(body, secret.rest()...)
	body = llm.WithoutAccount(body, resp.Header)
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_ = x.rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // a test's recorder has none
	x.w.WriteHeader(resp.StatusCode)
	if x.r.Method != http.MethodHead {
		_, _ = x.w.Write(body) //nolint:gosec // the provider says of what type its answer is; who has left needs none
	}
}

// plain reports whether an answer is not compressed.
func plain(resp *http.Response) bool {
	for _, enc := range resp.Header["Content-Encoding"] {
		if enc != "" && !strings.EqualFold(enc, "identity") {
			return false
		}
	}
	return true
}

// isEvents reports whether an answer is a stream of events.
func isEvents(resp *http.Response) bool {
	return strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
}

// errCaller is what writing to the caller failed with.
var errCaller = errors.New("gateway: the caller has left, or does not read its answer")

// copy passes a body on, and flushes each piece. f and k may be nil. An error that is not
// errCaller is the provider's.
func (x *exchange) copy(f *eventFilter, k *keep, body io.Reader) error {
	buf, _ := pieces.Get().(*[]byte)
	defer pieces.Put(buf)
	secret := redacting{redactor: x.up.secret}
	for {
		n, err := body.Read(*buf)
		if x.note != nil {
			x.note.write((*buf)[:n])
		}
		piece := secret.next((*buf)[:n])
		if errors.Is(err, io.EOF) {
			piece = append(piece, secret.rest()...)
		}
		if f != nil {
			piece = f.next(piece)
			if errors.Is(err, io.EOF) {
				piece = append(piece, f.rest()...)
			}
		}
		if k != nil {
			k.add(piece)
		}
		if len(piece) > 0 && !x.write(piece) {
			return errCaller
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// write writes a piece and flushes it.
func (x *exchange) write(piece []byte) bool {
	_ = x.rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // a test's recorder has none
	if _, err := x.w.Write(piece); err != nil {
		return false
	}
	x.crlf = x.crlf || bytes.Contains(piece, []byte("\r\n"))
	x.tail = append(x.tail, piece[max(0, len(piece)-tailSize):]...)
	x.tail = append(x.tail[:0], x.tail[max(0, len(x.tail)-tailSize):]...)
	err := x.rc.Flush()
	return err == nil || errors.Is(err, http.ErrNotSupported)
}

// tailSize is the longest end of an event: two line ends.
const tailSize = len("\r\n\r\n")

// eventEnded reports whether an event stream that ends so has no event that is still open. Google's
// SDK for Go takes an empty line that ends nothing for a damaged event, and two events whose lines
// end differently for one (google.golang.org/genai v1.77.0, func scan).
func eventEnded(tail []byte) bool {
	return len(tail) == 0 || bytes.HasSuffix(tail, []byte("\n\n")) || bytes.HasSuffix(tail, []byte("\n\r\n"))
}

// cut ends an answer that the provider did not finish. Its caller must not take it for whole: a
// stream of events gets one that is an error, and the connection is closed.
func (x *exchange) cut(resp *http.Response, err error) {
	x.result = ResultLeft
	if x.r.Context().Err() == nil && !errors.Is(err, errCaller) {
		x.result = ResultCut
		why, _ := errorOf(err, x.up.config.Name)
		x.h.warn("an answer was cut off", "upstream", x.up.config.Name, "key", x.key.Name, "error", err)
		if isEvents(resp) {
			event := x.up.config.Profile.ErrorEvent(why.kind, why.message)
			if !eventEnded(x.tail) {
				event = "\n\n" + event
			}
			event += "\n\n"
			if x.crlf {
				event = strings.ReplaceAll(event, "\n", "\r\n")
			}
			x.write([]byte(event))
		}
	}
	panic(http.ErrAbortHandler) //nolint:forbidigo // the documented way to abort an answer
}
