package llm

import (
	"cmp"
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
	reqModelAgain      // the model, which the path has as well
	reqMaxOutput       //
	reqAnswers         //
	reqStream          //
	reqRoot            // the body
	reqOptions         // stream_options
	reqUsage           // stream_options.include_usage
	reqMessage         // an element of the list of messages
	reqPart            // a part of a message, with a type
	reqTool            // an element of the list of tools, with a type
	reqFunction        // a tool without one, which the caller runs
	reqInput           // an element of the input of a response or an embeddings call
	reqBlock           // the type of a part or an element
	reqToolType        // the type of a tool
	reqSearch          // a tool of the provider that has a fee
	reqRun             // a tool of the provider that has none
	reqHidden          // names a part of the prompt that the provider has
	reqStored          // the same, which may have tools as well
	reqImage           // media whose kind is known
	reqAudio           //
	reqFile            //
	reqInline          // media whose kind is told by its type
	reqData            // the content of media
	reqMime            // the type of media
	reqSource          // how media are given
	reqNamed           // an id or an address of media
	reqBoth            // the largest output of chat completions, which has an older name as well
	reqChatOutput      // the same, by a name that only chat completions have
	reqBackground      // the answer is made after the response
	reqItemID          // of an element of the input of a response
	reqApproval        // of the element that it approves
	reqSealed          // its reasoning, encrypted
	reqTier            // what changes the price of tokens: see unpricedFields
	reqSpeed           //
	reqGeo             //
	reqTTL             //
	reqModality        //
	reqVoice           //
	reqFallbacks       //
	reqThinking        // asks for reasoning
	reqMode            // of reasoning: "pro" reasons several times, or is another model
	reqThinks          // whether it does
	reqPrediction      // of the answer: what is wrong in it is billed, and not shown
	reqEdit            // the type of an edit of the context
	reqBudget          // of reasoning
	reqSize            // of images that are made
	reqQuality         //
	reqPrevious        // names a response that is a part of the prompt
	reqConvers         // names a conversation that is
	reqFileID          // an id of media
	reqStore           // whether the answer is stored
	reqPartials        // how often a stream shows an image before it is done
	reqVariable        // of a stored prompt: a text, or an input that may name what is stored
)

// Parse reads what matters to quotas from a request. path is the URL's path, with or without its
// query; header may be nil. It reads the whole body once and keeps nothing of it.
//
// An operation that the profile does not know is OpOther, and its body is not read. The error is
// for a body that cannot be counted: not JSON, compressed, nested too deep, with a key that matters
// twice, with a largest output that is no number of tokens. Such a call must not be passed on as if
// it cost nothing. The error shows nothing of the body.
func (p *Profile) Parse(method, path string, header http.Header, body []byte) (*Call, error) {
	c := &Call{
		Operation: OpOther, MaxOutput: -1, Answers: 1, Exact: -1, Owner: p.owner(header), provider: p.provider,
		size: len(body),
	}
	path, _, _ = strings.Cut(path, "?")
	op, model, stream := p.provider.calls.route(strings.TrimRight(path, "/")) // many servers pass over it
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
	r := &requestReader{call: c, table: p.provider.known, exact: -1}
	if op == OpImageEdits {
		if err := c.readForm(header, body); err != nil {
			return nil, fmt.Errorf("llm: the body of a %s call cannot be counted: %w", op, err)
		}
	} else if err := r.read(p.body(op), body); err != nil {
		return nil, fmt.Errorf("llm: the body of a %s call cannot be counted: %w at byte %d", op, err, r.scan.offset)
	}
	if name := p.provider.implied[op]; c.Model == "" && name != "" {
		c.Model, c.Implied = name, true
	}
	if err := c.checkImages(); err != nil {
		return nil, err
	}
	c.Messages = max(1, c.Messages)
	family := p.Family(c.Model)
	c.Family = family.Name
	c.finishPrice()
	c.headerPrice(header)
	c.unseen = c.mayHide(family.Reasons)
	if p.Tokenizer != nil && op != OpImageEdits {
		c.Exact = p.countExactly(c, body)
	}
	return c, nil
}

// body returns where the requests of an operation have what matters.
func (p *Profile) body(op Operation) *node {
	if n := p.bodies[op]; n != nil {
		return n
	}
	return p.request
}

// countExactly reads the body again, now that the model is known, and returns the tokens of its
// texts, or -1 if the tokenizer cannot be believed.
func (p *Profile) countExactly(c *Call, body []byte) int64 {
	twin := *c // the counts of the second reading are not needed
	r := &requestReader{call: &twin, table: p.provider.known, exact: 0}
	r.count = func(text string) int { return p.Tokenizer(c.Model, text) }
	if r.read(p.body(c.Operation), body) != nil {
		return -1
	}
	return r.exact
}

// requestReader is the sink of a request's scanner.
type requestReader struct {
	call   *Call
	table  *known // nil: only what the profile names is known
	scan   scanner
	media  media
	inMed  bool
	blocks []block

	exact int64 // tokens by count, or -1
	count func(string) int
	tap   []byte // the text that is being read, for count
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
	r.element(ro)
	if b := r.top(); b != nil {
		b.value(len(r.scan.stack), true, false)
	}
	switch ro {
	case reqPart, reqTool, reqInput:
		switch {
		case !array:
			r.blocks = append(r.blocks, block{role: ro, depth: len(r.scan.stack), key: -1, open: -1})
		case ro == reqTool, ro == reqInput && r.call.Operation == OpResponses: // a list in a list
			r.unknown(nil)
		}
		if ro == reqTool {
			r.structure(&r.call.Schemas)
		}
	case reqBlock, reqToolType:
		if b := r.top(); b != nil {
			b.odd = true
		}
	case reqEdit, reqMode:
		r.unknown(nil)
	case reqPrediction:
		r.call.predicts = true
	case reqNamed:
		r.named()
	case reqFileID:
		r.call.refer(StoredFile, "")
		r.named()
	case reqRoot:
		if array {
			return errSyntax
		}
		r.call.edit.body = offset + 1
	case reqOptions:
		r.call.edit.options, r.call.edit.optionsEnd = offset, 0
	case reqModel, reqModelAgain, reqMaxOutput, reqBoth, reqChatOutput, reqBudget, reqAnswers, reqStream, reqUsage,
		reqSize, reqQuality, reqPartials, reqStore:
		return errKind
	case reqThinking, reqThinks:
		r.call.thinks = true
	case reqHidden:
		r.call.Hidden++
		r.call.refer(StoredOther, "")
	case reqVariable:
		r.call.Hidden++
		r.call.refer(StoredOther, "")
	case reqPrevious, reqConvers: // an object has its id in a field
		r.call.Hidden++
		r.call.refer(StoredConversation, "")
	case reqStored:
		r.call.stored()
	case reqSearch:
		r.call.Searches++
		r.call.Unpriced = feeTools
	case reqRun:
		r.call.Searches++
	case reqTier, reqSpeed, reqGeo, reqTTL, reqModality, reqVoice, reqFallbacks:
		r.call.dearer(ro, 0, nil)
	case reqImage, reqAudio, reqFile, reqInline:
		if !r.inMed {
			r.inMed = true
			r.media = media{kind: kindOfRole(ro), depth: len(r.scan.stack)}
		}
	case reqSchema, reqFunction:
		if ro == reqFunction && array {
			r.unknown(nil)
		}
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
	if ro == reqOptions {
		r.call.edit.optionsEnd = offset + 1
	}
	if r.inMed && len(r.scan.stack) < r.media.depth {
		r.inMed = false
		r.commit(&r.media)
	}
	if b := r.top(); b != nil && len(r.scan.stack) < b.depth {
		ended := *b
		r.blocks = r.blocks[:len(r.blocks)-1]
		r.leave(&ended)
	}
	return nil
}

// named counts an input of which there is only an id or an address.
func (r *requestReader) named() {
	if r.inMed {
		r.media.named = true
		return
	}
	r.commit(&media{kind: File, named: true})
}

// element counts an element of a list that matters.
func (r *requestReader) element(ro role) {
	switch ro {
	case reqMessage:
		r.call.Messages++
	case reqTool, reqFunction:
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
		if top.node != nil && !top.node.open() {
			return nil, false
		}
		switch ro {
		case reqText, reqVariable:
			r.structure(&c.Text)
			return r.tapped(&c.Text), false
		case reqSchema:
			r.structure(&c.Schemas)
			return r.tapped(&c.Schemas), false
		}
		return nil, false
	}
	switch ro {
	case reqText, reqMessage, reqPart, reqInput, reqPrediction, reqVariable:
		return r.tapped(&c.Text), false
	case reqSchema, reqTool, reqFunction, reqRun:
		return r.tapped(&c.Schemas), false
	case reqSearch, reqToolType:
		return r.tapped(&c.Schemas), true
	case reqBlock, reqTTL, reqFallbacks, reqSealed, reqItemID, reqApproval:
		return r.tapped(&c.Text), true
	case reqData, reqImage, reqAudio, reqFile, reqInline:
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
		r.element(ro)
	}
	b := r.top()
	if b != nil {
		b.value(len(r.scan.stack), false, kind != '"' || r.scan.offset == offset+1)
	}
	switch ro {
	case reqItemID:
		if b != nil {
			b.id = idOf(kind, value, whole)
			b.odd = b.odd || kind != '"' && !null
		}
	case reqApproval:
		if b != nil {
			b.approved = idOf(kind, value, whole)
		}
	case reqSealed:
		if b != nil {
			b.sealed = kind == '"' && len(value) > 0
		}
	case reqEdit:
		if kind != '"' || r.table == nil || !r.table.edits[string(value)] {
			r.unknown(nil)
		}
	case reqMode:
		if !null && (kind != '"' || string(value) != "standard") {
			r.unknown([]byte("reasoning_mode"))
		}
	case reqPrediction:
		c.predicts = c.predicts || !null
	case reqText, reqSchema, reqMessage, reqPart, reqTool, reqFunction, reqInput, reqVariable:
		if (ro == reqTool || ro == reqFunction) && !null {
			r.unknown(nil)
		}
		t := &c.Text
		if ro == reqSchema || ro == reqTool || ro == reqFunction {
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
	case reqModel, reqModelAgain:
		if kind != '"' && !null {
			return errKind
		}
		if !whole || len(value) > maxModel {
			return errModel
		}
		name := string(value)
		if ro == reqModel || !null {
			resource := ro == reqModelAgain && strings.HasPrefix(name, "models/")
			c.edit.mention(mention{start: offset, end: r.scan.offset + 1, resource: resource})
		}
		switch {
		case null:
		case c.Model == "": // the model in the path decides, as at Azure
			c.Model = name
		case name != c.Model && name != "models/"+c.Model:
			c.Other = name
		}
	case reqMaxOutput, reqBoth, reqChatOutput:
		// Responses and chat completions name their largest output differently, and some servers
		// pass over the name that they do not know.
		if null || ro == reqBoth && c.Operation == OpResponses || ro == reqChatOutput && c.Operation != OpChat ||
			ro == reqMaxOutput && (c.Operation == OpChat || c.Operation == OpCompletions) {
			return nil
		}
		n, err := count(kind, value)
		if err != nil {
			return err
		}
		if n > 0 { // to some servers 0 means that nothing is set; providers refuse it
			c.MaxOutput = max(c.MaxOutput, n)
		}
	case reqBudget:
		n, err := count(kind, value)
		if err != nil && !null {
			return err
		}
		c.budget = n
	case reqAnswers:
		if null {
			return nil
		}
		n, err := count(kind, value)
		if err != nil || n > maxAnswers {
			return errCount
		}
		c.Answers = max(c.Answers, n)
	case reqSize, reqQuality:
		if kind != '"' && !null {
			return errKind
		}
		if ro == reqSize {
			c.image.size = string(value[:min(len(value), maxModel)])
		} else {
			c.image.quality = string(value[:min(len(value), maxModel)])
		}
	case reqPartials:
		n, err := count(kind, value)
		if err != nil && !null {
			return err
		}
		c.image.partials = n
	case reqStream:
		c.Stream = kind == 't'
		if kind != 't' && kind != 'f' && !null {
			return errKind
		}
	case reqBackground:
		if kind != 't' && kind != 'f' && !null {
			return errKind
		}
		c.Background = c.Background || kind == 't' // xAI has two such fields
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
		if !null {
			c.Searches++
			c.Unpriced = feeTools
		}
	case reqRun:
		if !null {
			c.Searches++
		}
	case reqNamed, reqFileID:
		if !null && r.scan.offset > offset+1 {
			if ro == reqFileID {
				c.refer(StoredFile, idOf(kind, value, whole))
			}
			r.named()
		}
	case reqStore:
		c.Unstored = kind == 'f'
		if kind != 't' && kind != 'f' && !null {
			return errKind
		}
	case reqBlock, reqToolType:
		switch {
		case b == nil:
		case len(r.scan.stack) > b.depth: // of a part in it, which is no block of its own
			b.odd = b.odd || r.table == nil || kind != '"' || !whole || r.table.parts[string(value)] == 0
		default:
			b.kind, b.odd = string(value), b.odd || !null && (kind != '"' || !whole)
			if null {
				b.kind = ""
			}
		}
	case reqThinking:
		c.thinks = !null
	case reqThinks:
		c.thinks = string(value) != "disabled"
	case reqHidden, reqPrevious, reqConvers:
		if null || kind == '"' && len(value) == 0 {
			return nil
		}
		c.Hidden++
		switch ro {
		case reqPrevious:
			c.refer(StoredResponse, idOf(kind, value, whole))
		case reqConvers:
			c.refer(StoredConversation, idOf(kind, value, whole))
		default:
			c.refer(StoredOther, "")
		}
	case reqStored:
		if !null && (kind != '"' || len(value) > 0) {
			c.stored()
		}
	case reqTier, reqSpeed, reqGeo, reqTTL, reqModality, reqVoice, reqFallbacks:
		c.dearer(ro, kind, value)
	default:
		r.mediaScalar(ro, kind, value)
	}
	return nil
}

// idOf returns an id, or "" for what is none.
func idOf(kind byte, value []byte, whole bool) string {
	if kind != '"' || !whole {
		return ""
	}
	return string(value)
}

// stored counts a stored prompt, or cached content, which may have tools that have a fee.
func (c *Call) stored() {
	c.Hidden++
	c.Searches++
	c.Unpriced = cmp.Or(c.Unpriced, feeStored)
}

func (r *requestReader) mediaScalar(ro role, kind byte, value []byte) {
	if kind != '"' {
		return
	}
	m := &r.media
	text := string(value[:min(len(value), maxModel)])
	switch ro {
	case reqMime:
		m.mime = text
	case reqSource:
		m.source = text
	case reqData:
		m.twice = m.twice || m.head != ""
		m.head = text
	case reqImage, reqAudio, reqFile, reqInline:
		m.head = text
		b := r.top()
		if ro == reqFile && b != nil && b.role == reqPart && r.table != nil && r.table.from {
			b.source.plus(&m.text)
			return
		}
		r.commit(m)
	}
}

func kindOfRole(ro role) MediaKind {
	switch ro {
	case reqImage:
		return Image
	case reqAudio:
		return Audio
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
