package llm

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// The roles of values in requests.
const (
	_             role = iota
	reqText            // a part of the prompt
	reqSchema          // of a tool's definition, or of the answer's format
	reqSkip            // does not reach the model
	reqModel           //
	reqMaxOutput       //
	reqAnswers         //
	reqStream          //
	reqRoot            // the body
	reqOptions         // stream_options
	reqUsage           // stream_options.include_usage
	reqMessage         // an element of the list of messages
	reqTool            // an element of the list of tools
	reqSearch          // a tool of the provider, by its type
	reqInput           // an element of the input of an embeddings call
	reqHidden          // names a part of the prompt that the provider has
	reqImage           // media whose kind is known
	reqAudio           //
	reqVideo           //
	reqFile            //
	reqInline          // media whose kind is told by its type
	reqData            // the content of media
	reqMime            // the type of media
	reqSource          // how media are given
	reqBoth            // the largest output of chat completions, which has an older name as well
	reqBlock           // the type of a block that has media
	reqNamed           // an id of media
	reqBackground      // the answer is made after the response
	reqItemID          // of an element of the input of a response
	reqItemType        // of that element
	reqSealed          // its reasoning, encrypted
	reqRun             // a tool of the provider that has no fee
	reqTier            // what changes the price of tokens: see unpricedFields
	reqSpeed           //
	reqGeo             //
	reqTTL             //
	reqModality        //
	reqVoice           //
	reqFallbacks       //
	reqThinking        // asks for reasoning
	reqThinks          // whether it does
)

// Parse reads what matters to quotas from a request. path is the URL's path, with or without its
// query; header may be nil. It reads the whole body once and keeps nothing of it.
//
// An operation that the profile does not know is OpOther, and its body is not read. The error is
// for a body that cannot be counted: not JSON, compressed, nested too deep, with a key that matters
// twice, with a largest output that is no number of tokens. Such a call must not be passed on as if
// it cost nothing. The error shows nothing of the body.
func (p *Profile) Parse(method, path string, header http.Header, body []byte) (*Call, error) {
	c := &Call{Operation: OpOther, MaxOutput: -1, Answers: 1, Exact: -1, Owner: p.owner(header), profile: p.Name, size: len(body)}
	path, _, _ = strings.Cut(path, "?")
	op, model, stream := p.route(path)
	if method != http.MethodPost || op == OpOther {
		return c, nil
	}
	c.Operation, c.Model, c.Stream = op, model, stream
	if enc := header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, fmt.Errorf("llm: the body of a %s call is compressed (%.20q) and cannot be counted: send it as it is", op, enc)
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("llm: the body of a %s call has %d bytes, at most %d are read", op, len(body), maxBody)
	}
	r := &requestReader{call: c, exact: -1}
	if err := r.read(p.request, body); err != nil {
		return nil, fmt.Errorf("llm: the body of a %s call cannot be counted: %w at byte %d", op, err, r.scan.offset)
	}
	c.Messages = max(1, c.Messages)
	c.Family = p.Family(c.Model).Name
	c.finishPrice()
	c.unseen = p.unseen(c)
	if p.Tokenizer != nil {
		c.Exact = p.countExactly(c, body)
	}
	return c, nil
}

// countExactly reads the body again, now that the model is known, and returns the tokens of its
// texts, or -1 if the tokenizer cannot be believed.
func (p *Profile) countExactly(c *Call, body []byte) int64 {
	twin := *c // the counts of the second reading are not needed
	r := &requestReader{call: &twin, exact: 0}
	r.count = func(text string) int { return p.Tokenizer(c.Model, text) }
	if r.read(p.request, body) != nil {
		return -1
	}
	return r.exact
}

// requestReader is the sink of a request's scanner.
type requestReader struct {
	call   *Call
	scan   scanner
	media  media
	inMed  bool
	block  string // the type of the block that is being read
	level  int    // how deep that block is
	keys   int    // of the element of the input that is being read
	named  bool   // one of them is its id
	kind   string // its type
	sealed bool   // it has its reasoning, encrypted

	exact int64 // tokens by count, or -1
	count func(string) int
	tap   []byte // the text that is being read, for count
}

// media is an input that is being read.
type media struct {
	kind   MediaKind
	depth  int  // at which it began
	text   Text // of its content
	head   string
	mime   string
	source string
}

func (r *requestReader) read(root *node, body []byte) error {
	r.scan = scanner{sink: r, root: root, strict: true}
	r.scan.reset()
	if err := r.scan.write(body); err != nil {
		return err
	}
	if err := r.scan.finish(); err != nil {
		return err
	}
	r.flush()
	return nil
}

// flush counts the text that was read, exactly.
func (r *requestReader) flush() {
	if r.exact < 0 || len(r.tap) == 0 {
		return
	}
	n := r.count(string(r.tap))
	r.tap = r.tap[:0]
	if n < 1 {
		r.exact = -1
		return
	}
	r.exact = add(r.exact, int64(n))
}

func (r *requestReader) begin(ro role, array bool, offset int64) error {
	r.item(ro)
	switch ro {
	case reqInput:
		r.keys, r.named, r.kind, r.sealed = 0, false, "", false
	case reqRoot:
		if array {
			return errSyntax
		}
		r.call.edit.body = offset + 1
	case reqOptions:
		r.call.edit.options, r.call.edit.optionsEnd = offset, 0
	case reqModel, reqMaxOutput, reqBoth, reqAnswers, reqStream, reqUsage:
		return errKind
	case reqThinking, reqThinks:
		r.call.thinks = true
	case reqHidden:
		r.call.Hidden++
	case reqSearch:
		r.call.Searches++
		r.call.Unpriced = feeTools
	case reqRun:
		r.call.Searches++
	case reqTier, reqSpeed, reqGeo, reqTTL, reqModality, reqVoice, reqFallbacks:
		r.call.dearer(ro, 0, nil)
	case reqImage, reqAudio, reqVideo, reqFile, reqInline:
		if !r.inMed {
			r.inMed = true
			r.media = media{kind: kindOfRole(ro), depth: len(r.scan.stack)}
		}
	case reqSchema, reqTool:
		r.structure(&r.call.Schemas)
	case reqText:
		if r.raw() {
			r.structure(&r.call.Text)
		}
	}
	return nil
}

// raw reports whether the array or object that is read last is JSON that the model sees as such, as
// the arguments of a tool are.
func (r *requestReader) raw() bool {
	n := len(r.scan.stack)
	return n > 0 && r.scan.stack[n-1].node == nil
}

func (r *requestReader) end(ro role, _ bool, offset int64) error {
	switch {
	case ro == reqOptions:
		r.call.edit.optionsEnd = offset + 1
	case ro == reqInput && r.named:
		r.namedItem()
	}
	if r.inMed && len(r.scan.stack) < r.media.depth {
		r.inMed = false
		r.commit(&r.media)
	}
	if len(r.scan.stack) < r.level { // its type says nothing about the next block
		r.block, r.level = "", 0
	}
	return nil
}

// namedItem counts what an element of the input of a response names by its id, and does not have.
func (r *requestReader) namedItem() {
	switch {
	case r.kind == "reasoning":
		if !r.sealed { // the provider has it; a summary says nothing of its size
			r.call.Reasonings++
		}
	case r.keys <= 2, searchItem(r.kind): // an id, perhaps with a type: what it names is the prompt
		r.call.Hidden++
	}
}

// searchItem reports whether an item of this type is what a tool of the provider has found or made,
// which the item need not have.
func searchItem(kind string) bool {
	switch kind {
	case "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call":
		return true
	}
	return false
}

// item counts an element of a list that matters.
func (r *requestReader) item(ro role) {
	switch ro {
	case reqMessage:
		r.call.Messages++
	case reqTool:
		r.call.Tools++
	case reqInput:
		r.call.Inputs++
	}
}

// structure counts what surrounds a value in JSON text: quotes, a colon, a comma.
func (r *requestReader) structure(t *Text) {
	t.Bytes += 4
	t.Counts[Punctuation]++
	if r.exact >= 0 {
		r.exact++
	}
}

func (r *requestReader) text(ro role, key bool) (*Text, bool) {
	r.flush()
	c := r.call
	if key {
		top := r.scan.stack[len(r.scan.stack)-1]
		if top.role == reqInput {
			r.keys++
		}
		if top.node != nil && !top.node.open() {
			return nil, false
		}
		switch ro {
		case reqText:
			r.structure(&c.Text)
			return r.tapped(&c.Text), false
		case reqSchema:
			r.structure(&c.Schemas)
			return r.tapped(&c.Schemas), false
		}
		return nil, false
	}
	switch ro {
	case reqText, reqMessage, reqInput, reqItemID:
		return r.tapped(&c.Text), false
	case reqSchema, reqTool:
		return r.tapped(&c.Schemas), false
	case reqSearch:
		return r.tapped(&c.Schemas), true
	case reqBlock, reqTTL, reqFallbacks, reqItemType, reqSealed:
		return r.tapped(&c.Text), true
	case reqData, reqImage, reqAudio, reqVideo, reqFile, reqInline:
		if !r.inMed {
			r.media = media{kind: kindOfRole(ro), depth: -1}
		}
		if r.exact >= 0 {
			r.media.text.tap = &r.tap
		}
		return &r.media.text, true
	}
	return nil, true
}

func (r *requestReader) tapped(t *Text) *Text {
	t.tap = nil
	if r.exact >= 0 {
		t.tap = &r.tap
	}
	return t
}

func (r *requestReader) scalar(ro role, kind byte, value []byte, whole bool, offset int64) (err error) {
	c := r.call
	null := kind == 'n'
	if ro != reqInput || kind == '"' { // a number is a token of a text that is given as tokens
		r.item(ro)
	}
	switch ro {
	case reqItemID:
		r.named = true
	case reqItemType:
		r.kind = string(value[:min(len(value), maxModel)])
	case reqSealed:
		r.sealed = kind == '"' && len(value) > 0
	case reqText, reqSchema, reqMessage, reqTool, reqInput:
		t := &c.Text
		if ro == reqSchema || ro == reqTool {
			t = &c.Schemas
		}
		if r.raw() {
			r.structure(t)
		}
		if kind == '"' {
			return nil
		}
		r.flush()
		r.tapped(t).Add(string(value))
	case reqModel:
		if kind != '"' && !null {
			return errKind
		}
		if !whole || len(value) > maxModel {
			return errModel
		}
		c.edit.model, c.edit.modelEnd = offset, r.scan.offset+1
		if c.Model == "" && !null { // the model in the path decides, as at Azure
			c.Model = string(value)
		}
	case reqMaxOutput, reqBoth:
		// Responses and chat completions name their largest output differently, and some servers
		// pass over the name that they do not know.
		if null || ro == reqBoth && c.Operation == OpResponses || ro == reqMaxOutput && (c.Operation == OpChat || c.Operation == OpCompletions) {
			return nil
		}
		n, err := count(kind, value)
		if err != nil {
			return err
		}
		c.MaxOutput = max(c.MaxOutput, n)
	case reqAnswers:
		if null {
			return nil
		}
		n, err := count(kind, value)
		if err != nil || n > maxAnswers {
			return errCount
		}
		c.Answers = max(c.Answers, n)
	case reqStream:
		c.Stream = kind == 't'
		if kind != 't' && kind != 'f' && !null {
			return errKind
		}
	case reqBackground:
		c.Background = kind == 't'
	case reqRoot:
		return errKind
	case reqOptions:
		if !null {
			return errKind
		}
		c.edit.null, c.edit.options, c.edit.optionsEnd = true, offset, offset+int64(len("null"))
	case reqUsage:
		if kind != 't' && kind != 'f' && !null {
			return errKind
		}
		c.IncludeUsage = kind == 't'
		c.edit.usage, c.edit.usageEnd = offset, offset+int64(len(value))
	case reqSearch:
		if kind == '"' {
			c.search(string(value))
		}
	case reqNamed:
		if kind == '"' {
			r.commit(&media{kind: File})
		}
	case reqBlock:
		r.block, r.level = string(value[:min(len(value), maxModel)]), len(r.scan.stack)
	case reqThinking:
		c.thinks = !null
	case reqThinks:
		c.thinks = string(value) != "disabled"
	case reqHidden:
		if !null && (kind != '"' || len(value) > 0) {
			c.Hidden++
		}
	case reqTier, reqSpeed, reqGeo, reqTTL, reqModality, reqVoice, reqFallbacks:
		c.dearer(ro, kind, value)
	default:
		r.mediaScalar(ro, kind, value)
	}
	return nil
}

func (r *requestReader) mediaScalar(ro role, kind byte, value []byte) {
	if kind != '"' {
		return
	}
	m := &r.media
	switch ro {
	case reqMime:
		m.mime = string(value[:min(len(value), maxModel)])
	case reqSource:
		m.source = string(value[:min(len(value), maxModel)])
	case reqData:
		m.head = string(value[:min(len(value), maxModel)])
		if !r.inMed {
			r.commit(m)
		}
	case reqImage, reqAudio, reqVideo, reqFile, reqInline:
		m.head = string(value[:min(len(value), maxModel)])
		if !r.inMed || m.depth < 0 {
			r.commit(m)
		}
	}
}

// commit counts an input that was read.
func (r *requestReader) commit(m *media) {
	switch {
	case m.source == "text", r.block == "search_result": // a document that is given as text; where a result is from
		m.text.tap = nil
		r.call.Text.plus(&m.text)
		return
	case m.source == "content": // its blocks were counted
		return
	}
	r.tap = r.tap[:0]
	head := m.head
	if rest, ok := strings.CutPrefix(head, "data:"); ok {
		if m.mime == "" {
			m.mime, _, _ = strings.Cut(rest, ";")
		}
	}
	kind := m.kind
	if r.block == "image" || r.block == "input_image" {
		kind = Image
	}
	r.block = ""
	switch {
	case strings.HasPrefix(m.mime, "image/"):
		kind = Image
	case strings.HasPrefix(m.mime, "audio/"):
		kind = Audio
	case strings.HasPrefix(m.mime, "video/"):
		kind = Video
	}
	in := &r.call.Media[kind]
	in.Count++
	if head == "" || strings.Contains(head, "://") || m.source == "url" || m.source == "file" {
		in.Named++
		return
	}
	in.Bytes = add(in.Bytes, m.text.Bytes/4*3+3)
}

func kindOfRole(ro role) MediaKind {
	switch ro {
	case reqImage:
		return Image
	case reqAudio:
		return Audio
	case reqVideo:
		return Video
	}
	return File
}

// count returns a number of tokens or answers. Numbers such as 1e3 count as what they are.
func count(kind byte, value []byte) (int64, error) {
	if kind != '0' {
		return 0, errKind
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(string(value), 64)
		if err != nil || f < 0 || f > maxAmount || f != math.Trunc(f) {
			return 0, errCount
		}
		n = int64(f)
	}
	if n < 0 || n > maxAmount {
		return 0, errCount
	}
	return n, nil
}

// plainTool reports whether a tool of this type only has what its definition says. Others run at
// the provider, and put what they find into the prompt.
func plainTool(kind string) bool {
	for _, client := range []string{"function", "custom", "bash", "text_editor", "computer", "memory", "local_shell", "apply_patch"} {
		if strings.HasPrefix(kind, client) {
			return true
		}
	}
	return false
}
