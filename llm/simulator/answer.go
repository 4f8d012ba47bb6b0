package simulator

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// event is one part of a stream: its name, if it has one, and its JSON.
type event struct {
	name string
	data any
}

// done is the data of the event that ends a stream of OpenAI's.
const done = raw("[DONE]")

// raw is data that is not JSON.
type raw string

// stream is what a streamed answer consists of.
type stream interface {
	// begin returns what precedes the words.
	begin() []event
	// words returns what carries some words of the answer with a number, from 0 on.
	words(choice int64, text string) []event
	// end returns what follows the words.
	end() []event
	// fail returns an error in the middle of the stream.
	fail() []event
}

// encode returns the JSON of what this package answers, which can always be encoded.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return []byte(`{"error":{"message":"simulator: the answer cannot be encoded"}}`)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// writeFailure answers a call that gets no answer.
func (x *exchange) writeFailure(f failure) {
	h := x.w.Header()
	if f.fault == FaultBadGateway {
		x.headers(h)
		h.Set("Content-Type", "text/html; charset=UTF-8")
		x.write(http.StatusBadGateway,
			[]byte("<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n"))
		return
	}
	refuse := refuseUnknown
	if x.dialect != nil {
		refuse = x.dialect.refuse
	}
	x.headers(h)
	h.Set("Content-Type", "application/json; charset=UTF-8")
	status, body := refuse(x, f, h)
	x.write(status, encode(body))
}

// refuseUnknown answers a call to a path that no provider has.
func refuseUnknown(_ *exchange, f failure, _ http.Header) (int, any) {
	return http.StatusNotFound, map[string]any{"error": map[string]any{"message": "simulator: " + f.message}}
}

func (x *exchange) headers(h http.Header) {
	if x.dialect != nil {
		x.dialect.headers(x, h)
	}
}

// requestID returns the call's id as providers write them: a prefix and 24 digits.
func (x *exchange) requestID(prefix string) string { return fmt.Sprintf("%s%024d", prefix, x.id) }

// write sends a whole body, and reports whether the client took it.
func (x *exchange) write(status int, body []byte) bool {
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.status = status
	x.w.WriteHeader(status)
	n, err := x.w.Write(body)
	x.bytes += int64(n)
	return err == nil
}

// wait waits until the answer begins. outcome is why it does not; "" if it does.
func (x *exchange) wait(ctx context.Context) (outcome Outcome) {
	d := x.q.delay
	if x.fault.Kind != FaultStall {
		d += x.fault.Delay
	}
	if !sleep(ctx, d) {
		return Left
	}
	if x.fault.Kind == FaultClose {
		x.abort(false)
		return Failed
	}
	return ""
}

// stall waits as long as the fault says.
func (x *exchange) stall(ctx context.Context) bool {
	d := x.fault.Delay
	if d == 0 {
		d = -1
	}
	return sleep(ctx, d)
}

// plainAnswer answers with one JSON object. The output is produced, and counts, when the answer
// begins, or when the client leaves: the provider has no reason to stop then.
func (x *exchange) plainAnswer(ctx context.Context) Outcome {
	outcome := x.wait(ctx)
	if outcome == "" && x.fault.Kind == FaultStall && !x.stall(ctx) {
		outcome = Left
	}
	if x.q.generates {
		x.produce(x.q.total())
	}
	x.complete()
	if outcome != "" {
		return outcome
	}
	h := x.w.Header()
	if x.fault.Kind == FaultErrorEvent {
		x.writeFailure(failure{reason: faulty, fault: FaultInternal})
		return Failed
	}
	x.headers(h)
	h.Set("Content-Type", "application/json; charset=UTF-8")
	return x.writePlain(ctx, encode(x.api.answer(x)))
}

// writePlain sends a body, as the fault lets it.
func (x *exchange) writePlain(ctx context.Context, body []byte) Outcome {
	h := x.w.Header()
	switch x.fault.Kind {
	case FaultContentType:
		h.Set("Content-Type", "text/plain")
	case FaultGzip:
		if x.acceptsGzip() {
			h.Set("Content-Encoding", "gzip")
			body = compress(body)
		}
	case FaultCut:
		h.Set("Content-Length", strconv.Itoa(len(body)))
		x.status = http.StatusOK
		x.w.WriteHeader(http.StatusOK)
		n, _ := x.w.Write(body[:len(body)/2]) // it is cut off anyway
		x.bytes += int64(n)
		_ = http.NewResponseController(x.w).Flush()
		x.abort(true)
		return Cut
	case FaultEndless:
		return x.endless(ctx)
	}
	if !x.write(http.StatusOK, body) {
		return Left
	}
	x.sent = x.output
	return Answered
}

// spacesInChunk is how much an endless answer sends at once.
const spacesInChunk = 64

// leastPause is the pause between chunks that do not end, so that they keep no processor busy.
const leastPause = 10 * time.Millisecond

// endless sends spaces until the client leaves. JSON may begin with them.
func (x *exchange) endless(ctx context.Context) Outcome {
	x.status = http.StatusOK
	x.w.WriteHeader(http.StatusOK)
	for sleep(ctx, max(leastPause, x.q.pause)) {
		n, err := x.w.Write([]byte(strings.Repeat(" ", spacesInChunk)))
		x.bytes += int64(n)
		if err != nil || http.NewResponseController(x.w).Flush() != nil {
			break
		}
	}
	return Left
}

func (x *exchange) acceptsGzip() bool {
	return strings.Contains(strings.Join(x.r.Header.Values("Accept-Encoding"), ","), "gzip")
}

func compress(body []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(body) // a buffer takes everything
	_ = z.Close()
	return b.Bytes()
}

// aborter is a ResponseWriter that can close its connection.
type aborter interface{ abort() }

// abort closes the connection without an end of the answer. If reset, the client sees that the
// connection was reset, and may lose what was on its way.
func (x *exchange) abort(reset bool) {
	if a, ok := x.w.(aborter); ok {
		a.abort()
		return
	}
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil { // HTTP/2: ServeHTTP lets the server reset the stream
		x.aborted = true
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0) // closing it is all that matters
	}
	_ = conn.Close()
}

// streamer writes a stream.
type streamer struct {
	*exchange
	stream stream
	frame  framer
	gz     *gzip.Writer
	chunks int // with words, that were sent
	err    error
}

// streamAnswer answers with a stream. Output is produced, and counts, chunk by chunk, until the
// stream ends or the client leaves.
func (x *exchange) streamAnswer(ctx context.Context) (outcome Outcome) {
	if outcome = x.wait(ctx); outcome != "" {
		x.produce(x.q.thoughts * x.q.choices)
		x.complete()
		return outcome
	}
	x.headers(x.w.Header())
	s := &streamer{exchange: x, stream: x.api.stream(x), frame: framerOf(x)}
	s.open()
	outcome = s.run(ctx)
	if s.err != nil {
		outcome = Left
	}
	x.complete()
	return outcome
}

func (s *streamer) open() {
	h := s.w.Header()
	h.Set("Content-Type", s.frame.contentType())
	h.Set("Cache-Control", "no-cache")
	if s.fault.Kind == FaultContentType {
		h.Set("Content-Type", "text/plain")
	}
	if s.fault.Kind == FaultGzip && s.acceptsGzip() {
		h.Set("Content-Encoding", "gzip")
		s.gz = gzip.NewWriter(counting{s.exchange})
	}
	s.status = http.StatusOK
	s.w.WriteHeader(http.StatusOK)
}

// counting writes the body and counts its bytes.
type counting struct{ *exchange }

func (c counting) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.bytes += int64(n)
	return n, err
}

// send writes events and flushes them.
func (s *streamer) send(events ...event) {
	for _, e := range events {
		s.text(s.frame.event(e))
	}
	s.flush()
}

func (s *streamer) text(b []byte) {
	switch {
	case s.err != nil:
	case s.gz != nil:
		_, s.err = s.gz.Write(b)
	default:
		_, s.err = counting{s.exchange}.Write(b)
	}
}

func (s *streamer) flush() {
	if s.err == nil && s.gz != nil {
		s.err = s.gz.Flush()
	}
	if s.err == nil {
		s.err = http.NewResponseController(s.w).Flush()
	}
}

// run writes the stream. Errors of writing are in s.err.
func (s *streamer) run(ctx context.Context) Outcome {
	if s.q.images.images > 0 {
		s.produce(s.q.total())
	} else {
		s.produce(s.q.thoughts * s.q.choices)
	}
	s.send(s.stream.begin()...)
	n, _ := s.q.words()
	endless := s.fault.Kind == FaultEndless
	for first := int64(0); first < n || endless; first += s.q.size {
		if outcome := s.before(ctx); outcome != "" {
			return outcome
		}
		size := s.q.size
		if !endless {
			size = min(size, n-first)
		}
		s.produce(size * s.q.choices)
		for choice := range s.q.choices {
			s.send(s.stream.words(choice, answerText(first, size))...)
		}
		if s.err != nil {
			return Left
		}
		s.sent += size * s.q.choices
		s.chunks++
	}
	if outcome := s.fail(ctx); outcome != "" {
		return outcome
	}
	s.complete()
	s.send(s.stream.end()...)
	s.text(s.frame.end())
	if s.err == nil && s.gz != nil {
		s.err = s.gz.Close()
	}
	s.sent += s.q.thoughts * s.q.choices
	return Answered
}

// before is what happens before each chunk: the pause, and the fault.
func (s *streamer) before(ctx context.Context) Outcome {
	pause := s.q.pause
	if s.fault.Kind == FaultEndless {
		pause = max(leastPause, pause)
	}
	if s.chunks > 0 && !sleep(ctx, pause) || ctx.Err() != nil {
		return Left
	}
	if s.chunks < s.fault.After {
		return ""
	}
	return s.fail(ctx)
}

// fail lets the fault of a stream happen. A stream that has fewer chunks than After fails at its
// end.
func (s *streamer) fail(ctx context.Context) Outcome {
	switch s.fault.Kind {
	case FaultCut:
		s.abort(true)
		return Cut
	case FaultErrorEvent:
		s.send(s.stream.fail()...)
		s.text(s.frame.end())
		return Cut
	case FaultStall:
		if !s.stall(ctx) {
			return Left
		}
		s.fault.Kind = "" // it stalls once; the ledger has it
	}
	return ""
}

// framer writes events.
type framer interface {
	contentType() string
	event(e event) []byte
	end() []byte
}

// framerOf returns how an API frames its streams.
func framerOf(x *exchange) framer {
	if x.dialect.frame != nil {
		return x.dialect.frame(x)
	}
	return eventFramer{lineEnd: "\n"}
}

// eventFramer writes server-sent events (html.spec.whatwg.org/multipage/server-sent-events.html).
type eventFramer struct{ lineEnd string }

func (eventFramer) contentType() string { return "text/event-stream; charset=utf-8" }

func (f eventFramer) event(e event) []byte {
	var b bytes.Buffer
	if e.name != "" {
		b.WriteString("event: " + e.name + f.lineEnd)
	}
	b.WriteString("data: ")
	if text, ok := e.data.(raw); ok {
		b.WriteString(string(text))
	} else {
		b.Write(encode(e.data))
	}
	b.WriteString(f.lineEnd + f.lineEnd)
	return b.Bytes()
}

func (eventFramer) end() []byte { return nil }

// arrayFramer writes one JSON array, an element at a time.
type arrayFramer struct{ begun bool }

func (*arrayFramer) contentType() string { return "application/json; charset=UTF-8" }

func (f *arrayFramer) event(e event) []byte {
	before := "["
	if f.begun {
		before = ",\r\n"
	}
	f.begun = true
	return append([]byte(before), encode(e.data)...)
}

func (f *arrayFramer) end() []byte {
	if !f.begun {
		return []byte("[]")
	}
	return []byte("]")
}
