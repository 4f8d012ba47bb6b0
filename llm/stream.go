package llm

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	maxEvent   = 16 << 10 // bytes that are kept of an event, to read an error in it
	usualEvent = 512      // bytes that most events have at most
	maxField   = 32       // bytes of a field's name in an event stream
)

// Stream reads an answer as it passes by: an event stream, a JSON array that grows, or one JSON
// document. It does not change, keep or hold back the answer, and its memory does not grow with it.
// It gives the same results however the answer is cut into pieces. A Stream is for one goroutine.
//
//	s := p.NewStream(call)
//	io.Copy(client, io.TeeReader(response.Body, s))
//	s.Close()
//	usage := s.Usage()
type Stream struct {
	p    *Profile
	call *Call
	scan scanner

	form  form
	ended bool // by the provider's own sign
	shut  bool

	// Of an event stream.
	line    lineState
	field   [maxField]byte
	nField  int
	hasData bool // the event has any
	head    [8]byte
	nHead   int
	cr      bool // the last byte was a carriage return

	broken  bool // what is read is not the JSON that was expected
	ev      event
	one     [1]byte
	evBytes []byte // of the event or document, up to maxEvent

	delivered Text
	size      int64 // bytes of a document
	seen      [numUsage]int64
	known     [numUsage]bool
	finish    bool
	finishes  int64    // reasons why an answer is over
	toldAt    int64    // bytes that were delivered when usage was told last; -1: none was
	toldLast  bool     // it was told when an answer was over
	failure   []byte   // the first event that is an error
	status    int      // that the error would have had
	id        string   // of what is stored
	items     []string // see Items
}

type form uint8

const (
	formUnknown form = iota
	formEvents
	formJSON
	formArray
)

type lineState uint8

const (
	lineField lineState = iota
	lineSpace           // behind the colon
	lineData
	lineSkip
)

// What a response says about usage.
const (
	useInput      = iota // as the provider tells it
	useCacheRead         //
	useCacheWrite        //
	useOutput            //
	useReasoning         //
	useTool              // Gemini: results of tools, which are input as well
	useTotal             //
	useImage             // of the input: images
	numUsage
)

// The roles of values in responses. A role of usage is resUsage + its number.
const (
	_          role = iota
	resDoc          // a document, or the data of an event
	resText         // delivered
	resType         // what an event is
	resFinish       // a reason why an answer is over; null while it is not
	resError        // an error, unless it is null
	resErrorID      // its type, code or status
	resBlocked      // Gemini: why there is no answer
	resUsage
	resRepeated = resUsage + numUsage // a part of what resUsage tells, or is beside it

	resID         = resRepeated + numUsage // of what the answer is
	resResponseID = resID + 1              // of the response that an event is about
	resItem       = resID + 2              // an element of a response's output
	resItemID     = resID + 3              //
	resItemType   = resID + 4              //
	resItemSealed = resID + 5              // its reasoning, encrypted
)

// event is what one event, or document, says.
type event struct {
	kind    string
	errorID string
	isError bool
	finish  bool
	reasons int64
	usage   [numUsage]int64
	has     [numUsage]bool
	sum     [numUsage]int64 // of resRepeated
	item    outputItem      // that is being read
	items   []string        // ids of those that were read: see Stream.Items
}

// NewStream returns a Stream for the answer to a call. Answers must be given to it decompressed.
func (p *Profile) NewStream(c *Call) *Stream {
	s := &Stream{p: p, call: c, toldAt: -1}
	s.scan = scanner{sink: (*responseReader)(s), root: p.response}
	return s
}

// Write reads the next piece. It always takes all of it, and returns no error: what is not
// understood is passed over.
func (s *Stream) Write(piece []byte) (int, error) {
	n := len(piece)
	for len(piece) > 0 && !s.shut {
		if s.form == formEvents && s.line == lineData && s.nHead == len(s.head) {
			end := len(piece) // of the line
			for _, c := range []byte("\n\r") {
				if i := bytes.IndexByte(piece[:end], c); i >= 0 {
					end = i
				}
			}
			if end > 0 {
				s.feed(piece[:end])
				s.cr = false
				piece = piece[end:]
				continue
			}
		}
		if s.form == formJSON {
			piece = piece[s.document(piece):]
			continue
		}
		s.byte(piece[0])
		piece = piece[1:]
	}
	return n, nil
}

// document reads the next piece of a document, but not beyond its end, and returns how many bytes
// it has read.
func (s *Stream) document(p []byte) (n int) {
	if s.scan.state == finished && !s.broken {
		if rest := bytes.TrimLeft(p, " \t\r\n"); len(rest) < len(p) || len(rest) > 0 && rest[0] == '{' {
			if len(rest) > 0 && rest[0] == '{' { // a document in each line: the first one is not the answer
				s.form, s.ended, s.toldLast = formArray, false, false
			}
			return len(p) - len(rest)
		}
	}
	n = len(p)
	if !s.broken {
		read, err := s.scan.writeValue(p)
		if s.broken = err != nil; !s.broken {
			n = read
		}
	}
	s.size += int64(n)
	s.keep(p[:n])
	if s.scan.state == finished {
		s.endEvent()
	}
	return n
}

func (s *Stream) byte(c byte) {
	switch s.form {
	case formUnknown:
		switch c {
		case ' ', '\t', '\r', '\n', 0xEF, 0xBB, 0xBF: // white space, or a byte order mark
		case '{':
			s.form, s.size = formJSON, 1
			s.startEvent()
			s.feedByte(c)
		case '[':
			s.form = formArray
		default:
			s.form = formEvents
			s.eventByte(c)
		}
	case formEvents:
		s.eventByte(c)
	case formJSON: // Write gives it to document
	case formArray:
		s.arrayByte(c)
	}
}

// arrayByte reads a byte of a JSON array of documents.
func (s *Stream) arrayByte(c byte) {
	if !s.hasData {
		switch c {
		case '{':
			s.startEvent()
			s.feedByte(c)
		case ']':
			s.finish, s.finishes, s.toldLast = true, maxAnswers, s.toldAt >= 0
		}
		return
	}
	s.feedByte(c)
	if s.scan.state == finished {
		s.endEvent()
	}
}

// eventByte reads a byte of an event stream, as the HTML standard defines it (section 9.2.6).
func (s *Stream) eventByte(c byte) {
	if c == '\n' && s.cr {
		s.cr = false
		return
	}
	s.cr = c == '\r'
	if c == '\n' || c == '\r' {
		s.endLine()
		return
	}
	switch s.line {
	case lineField:
		if c == ':' {
			s.line = lineSkip
			if string(s.field[:s.nField]) == "data" {
				s.line = lineSpace
				s.startData()
			}
			return
		}
		if s.nField == len(s.field) {
			s.line = lineSkip
			return
		}
		s.field[s.nField] = c
		s.nField++
	case lineSpace:
		s.line = lineData
		if c != ' ' {
			s.dataByte(c)
		}
	case lineData:
		s.dataByte(c)
	}
}

// startData is called at the start of a line of data.
func (s *Stream) startData() {
	if s.hasData {
		s.dataByte('\n')
		return
	}
	s.startEvent()
}

func (s *Stream) startEvent() {
	s.hasData, s.broken, s.nHead = true, false, 0
	s.evBytes = s.evBytes[:0]
	s.ev = event{}
	s.scan.reset()
}

func (s *Stream) dataByte(c byte) {
	if s.nHead < len(s.head) {
		s.head[s.nHead] = c
		s.nHead++
	}
	s.feedByte(c)
}

// feed reads bytes of an event or document.
func (s *Stream) feed(b []byte) {
	s.keep(b)
	if !s.broken {
		s.broken = s.scan.write(b) != nil
	}
}

// keep keeps bytes of an event or document, which may be an error.
func (s *Stream) keep(b []byte) {
	if s.evBytes == nil {
		s.evBytes = make([]byte, 0, usualEvent)
	}
	s.evBytes = append(s.evBytes, b[:min(len(b), maxEvent-len(s.evBytes))]...)
}

func (s *Stream) feedByte(c byte) {
	s.one[0] = c
	s.feed(s.one[:])
}

func (s *Stream) endLine() {
	blank := s.line == lineField && s.nField == 0
	if s.line == lineField && string(s.field[:s.nField]) == "data" { // a field without a colon is empty
		s.startData()
	}
	s.line, s.nField = lineField, 0
	if blank && s.hasData {
		s.endEvent()
	}
}

// endEvent takes over what an event said.
func (s *Stream) endEvent() {
	s.hasData = false
	if s.form == formEvents && bytes.Equal(bytes.TrimSpace(s.head[:s.nHead]), []byte("[DONE]")) {
		s.ended = true
		return
	}
	if s.broken || s.scan.finish() != nil {
		return
	}
	e := &s.ev
	s.noteItems(e)
	for i := range e.usage {
		if e.has[i] || e.sum[i] > 0 { // counts are cumulative: the last is the largest
			s.seen[i], s.known[i] = max(s.seen[i], e.usage[i], e.sum[i]), true
		}
	}
	s.finish, s.finishes = s.finish || e.finish, s.finishes+e.reasons
	s.ended = s.ended || s.p.provider.ends(s.form, e)
	if e.has[useInput] || e.has[useOutput] {
		s.toldAt, s.toldLast = s.delivered.Bytes, s.finish || s.ended
	}
	if (e.isError || e.kind == "error") && s.failure == nil {
		s.failure = bytes.Clone(s.evBytes)
		s.status = statusOf(e.errorID)
	}
}

// lastEvents are the types of events that end a stream, at any provider.
var lastEvents = all(func(v *provider) []string { return v.lastEvents })

// ends reports whether an event is the last one.
func (v *provider) ends(f form, e *event) bool {
	if f == formJSON {
		return !e.isError
	}
	return slices.Contains(lastEvents, e.kind) || slices.Contains(v.lastEvents, e.kind) || v.finishEnds && e.finish
}

// Close says that nothing follows. An event that was not finished does not count, except for the
// text in it.
func (s *Stream) Close() error {
	if s.form == formEvents && !s.shut {
		if s.line == lineField && s.nField > 0 || s.line == lineData {
			s.endLine()
		}
		if s.hasData { // a proxy may have cut the last blank line
			s.endEvent()
		}
	}
	s.shut = true
	return nil
}

// Ended reports whether the answer came to its end by the provider's own sign, rather than being
// cut off. An answer that ends with an error event did not.
func (s *Stream) Ended() bool { return s.ended && s.failure == nil }

// Delivered describes the text of the answer so far: of all answers, with reasoning and calls of
// tools as far as they are shown.
func (s *Stream) Delivered() Text { return s.delivered }

// Usage returns what the call has used so far. Until the provider has told, Output is an upper
// bound of what was delivered: at least 1 if anything was, and no more than the call asks for. Of a
// document that has ended without telling, or filled in zeros, each byte may be a token: its text
// may be in fields that are not known here. Reasoning that is not shown cannot be counted.
func (s *Stream) Usage() Usage {
	u := Usage{
		Input: s.seen[useInput], InputKnown: s.known[useInput],
		CacheRead: s.seen[useCacheRead], CacheWrite: s.seen[useCacheWrite],
		Output: s.seen[useOutput], OutputKnown: s.known[useOutput],
		Reasoning: s.seen[useReasoning], Total: s.seen[useTotal], Ended: s.Ended(),
		ImageInput: s.seen[useImage],
	}
	v := s.p.provider
	if v.cacheApart {
		u.Input = add(u.Input, u.CacheRead, u.CacheWrite)
	}
	u.Input = add(u.Input, s.seen[useTool])
	if v.reasoningApart {
		u.Output = add(u.Output, u.Reasoning)
		u.OutputKnown = u.OutputKnown || s.known[useReasoning]
	}
	if s.call.wordless() && u.InputKnown {
		u.OutputKnown = true
	} else if u.InputKnown && u.OutputKnown {
		// Some who speak OpenAI's protocol tell the reasoning beside the output, not as a part of
		// it: xAI (docs.x.ai, consumption and rate limits), and Google. Their total has it.
		if u.Reasoning > u.Output {
			u.Output = add(u.Output, u.Reasoning)
		}
		u.Output = max(u.Output, u.Total-u.Input)
	}
	u.Final = u.InputKnown && s.final(u)
	u.InputKnown = u.InputKnown && u.Input > 0 // no prompt is empty: some servers fill in zeros
	// No answer has more tokens than were asked for, whatever a provisional number says, such as
	// that of Anthropic's message_start.
	least := min(add(s.delivered.Bytes, s.delivered.Pieces), maxAmount)
	counted := u.OutputKnown && u.Output > 0 || u.Final && u.InputKnown
	if s.form == formJSON && u.Ended && !counted && !s.call.wordless() {
		least = max(least, s.size)
	}
	if most := s.p.MaxOutput(s.call); most > 0 {
		least = min(least, most)
	}
	u.SoFar = v.streamed == streamedSoFar && u.OutputKnown && !u.Final && s.call.Answers == 1
	if u.Final && u.Output == 0 && least > 0 { // a provider that says so of text that it delivered is not believed
		u.Final, u.OutputKnown, u.SoFar = false, false, false
	}
	if u.SoFar { // the provider may be further than what came: so is a token for each byte
		least = add(least, u.Reasoning)
	}
	if !u.Final {
		u.Output = max(u.Output, least)
	}
	return u
}

// final reports whether the usage that was told is the whole call's.
func (s *Stream) final(u Usage) bool {
	when := s.p.provider.streamed
	switch {
	case s.failure != nil:
		return false
	case when == streamedSoFar:
		return s.toldLast && s.finishes >= s.call.Answers || s.form == formJSON && s.ended
	case !u.OutputKnown:
		return false
	case when == streamedOnce || s.form == formJSON:
		return true
	case when == streamedOver:
		return s.toldLast
	}
	return (s.ended || s.finishes >= s.call.Answers) && s.toldAt == s.delivered.Bytes
}

// ErrorUsage returns what an answer that is an error says of the usage of its call. ok is false if
// it says nothing, as nearly all errors do: then nothing is billed. What it leaves out counts as
// the most that it can be.
func (p *Profile) ErrorUsage(c *Call, body []byte) (u Usage, ok bool) {
	s := p.NewStream(c)
	_, _ = s.Write(body) // it takes everything
	_ = s.Close()        // it has no error
	u = s.Usage()
	all := s.known[useOutput] || s.known[useReasoning] || c.wordless()
	u.Final = u.InputKnown && (all || p.provider.streamed == streamedSoFar) // it leaves out numbers that are 0
	return u, u.InputKnown || s.seen[useOutput]+s.seen[useReasoning]+u.Total > 0
}

// Refusal returns what an error inside the answer means: providers send one after the status 200 if
// something fails later. ok is false if there was none. now is the time at which it came.
func (s *Stream) Refusal(now time.Time) (r Refusal, ok bool) {
	if s.failure == nil {
		return Refusal{}, false
	}
	return s.p.Refusal(s.status, nil, s.failure, now), true
}

// errorStatus are the statuses with which providers send errors of a type, code or status outside
// of a stream.
var errorStatus = func() map[string]int {
	status := map[string]int{}
	for _, v := range providers {
		maps.Copy(status, v.errorStatus)
	}
	return status
}()

// statusOf returns the status of an error of this type, code or status.
func statusOf(id string) int {
	if status, ok := errorStatus[id]; ok {
		return status
	}
	if n, err := strconv.Atoi(id); err == nil && n >= 400 && n < 600 {
		return n
	}
	return http.StatusInternalServerError
}

// responseReader is the sink of a response's scanner.
type responseReader Stream

func (r *responseReader) begin(ro role, _ bool, _ int64) error {
	switch ro {
	case resError:
		r.ev.isError = true
	case resItem:
		r.ev.item = outputItem{}
	}
	return nil
}

func (r *responseReader) end(ro role, _ bool, _ int64) error {
	if ro == resItem {
		r.ev.endItem(r.p.provider.known)
	}
	return nil
}

func (r *responseReader) unknown([]byte) {}

func (r *responseReader) note(*node, int) {}

func (r *responseReader) text(ro role, key bool) (*Text, bool) {
	if key {
		return nil, false
	}
	if ro == resText {
		return &r.delivered, false
	}
	return nil, ro != 0
}

func (r *responseReader) scalar(ro role, kind byte, value []byte, whole bool, _ int64) error {
	e := &r.ev
	switch {
	case ro >= resUsage && ro < resUsage+numUsage:
		if n, err := count(kind, value); err == nil {
			i := ro - resUsage
			e.usage[i], e.has[i] = max(e.usage[i], n), true
		}
	case ro >= resRepeated && ro < resRepeated+numUsage:
		if n, err := count(kind, value); err == nil {
			e.sum[ro-resRepeated] = add(e.sum[ro-resRepeated], n)
		}
	case kind == 'n' || kind == 'f':
	case ro == resFinish:
		e.finish = true
		e.reasons++
	case ro == resBlocked:
		e.finish, e.reasons = true, maxAnswers // no answer comes
	case ro == resError:
		e.isError = true
	case ro == resItemSealed:
		e.item.sealed = len(value) > 0
	case !whole:
	case ro == resItemID:
		e.item.id = string(value)
	case ro == resItemType:
		e.item.kind = string(value)
	case ro == resID, ro == resResponseID:
		(*Stream)(r).noteID(ro, value)
	case ro == resType:
		e.kind = string(value)
	case ro == resErrorID:
		if id := string(value); e.errorID == "" || statusOf(id) != http.StatusInternalServerError {
			e.errorID = id
		}
	}
	return nil
}
