package llm

import (
	"cmp"
	"strings"
)

// block is an object with a type that is being read: a part of a message, an element of a
// response's input, or a tool. What it is follows when it ends: its type may come last.
type block struct {
	role     role
	depth    int    // of the stack, with it
	kind     string // its type
	odd      bool   // its type is no text
	node     *node  // if its keys are noted
	given    uint64 // its keys that have a value, by their index in node.kids
	key      int    // of the value that comes, or -1
	open     int    // of the list or object that is open and was empty so far, or -1
	id       string // of an element of the input of a response; "" if it is none that could be stored
	approved string // the id of an element of an earlier response that it approves
	sealed   bool   // it has its reasoning, encrypted
	webs     int64  // inputs that it gives by an address
	source   Text   // of a search's result: where it is from
}

// top returns the block that is being read, or nil.
func (r *requestReader) top() *block {
	if n := len(r.blocks); n > 0 {
		return &r.blocks[n-1]
	}
	return nil
}

// value notes that a value of the block begins. empty says that it is an empty text, or no text,
// and opens that it is a list or an object.
func (b *block) value(depth int, opens, empty bool) {
	switch {
	case depth == b.depth && !opens:
		if !empty && b.key >= 0 {
			b.given |= 1 << b.key
		}
		b.key = -1
	case depth == b.depth+1 && opens:
		b.open, b.key = b.key, -1
		return
	case b.open >= 0 && empty:
		return
	case b.open >= 0:
		b.given |= 1 << b.open
	default:
		return
	}
	b.open = -1
}

// has reports whether the block has a text for a key, or a list or an object that has something in
// it; not "". Other values are no content: programs may take them for none.
func (b *block) has(key string) bool {
	if b.node == nil {
		return false
	}
	i, ok := b.node.keys[key]
	return ok && b.given>>i&1 != 0
}

// note implements sink.
func (r *requestReader) note(n *node, i int) {
	if b := r.top(); b != nil && len(r.scan.stack) == b.depth {
		b.node, b.key = n, i
	}
}

// unknown implements sink: what is not understood costs the most that the call can cost.
func (r *requestReader) unknown(key []byte) {
	c := r.call
	c.Hidden++
	c.Unknown++
	what := "something that this gateway does not know"
	if plainKey(string(key)) {
		what = "the field " + string(key) + ", which is not known here"
	}
	c.elsewhere(what)
	c.Unpriced = cmp.Or(c.Unpriced, what)
}

// elsewhere notes what may choose another model.
func (c *Call) elsewhere(what string) { c.Elsewhere = cmp.Or(c.Elsewhere, what) }

// leave judges a block that has ended.
func (r *requestReader) leave(b *block) {
	k, c := r.table, r.call
	if k == nil {
		return
	}
	switch b.role {
	case reqPart:
		kind := k.parts[b.kind]
		if kind == 0 || b.odd {
			r.unknown(nil)
		}
		for range b.webs {
			if kind == partImage {
				r.count1(Image, 0)
			} else {
				r.count1(File, 0)
			}
		}
		if b.source.Pieces > 0 {
			if kind == partSource {
				c.Text.plus(&b.source)
			} else {
				r.count1(File, 0)
			}
		}
	case reqTool:
		run := k.tool(b.kind)
		if b.odd || b.kind == "" && !b.has("input_schema") {
			run = 0
		}
		switch run {
		case toolClient:
		case toolRun:
			c.Searches++
		default:
			c.Searches++
			c.Unpriced = cmp.Or(c.Unpriced, feeTools)
			if !strings.HasPrefix(b.kind, "web_search") {
				c.refer(StoredTool, "")
			}
			if run != toolFee { // it may be a model, such as one for images
				c.elsewhere("a tool that is not known here")
			}
		}
	case reqInput:
		if c.Operation == OpResponses {
			r.item(b)
		}
	}
}

// item counts an element of the input of a response that the provider has.
func (r *requestReader) item(b *block) {
	c := r.call
	kind := b.kind
	if kind == "" && b.has("role") {
		kind = "message"
	}
	content, ok := r.table.items[kind]
	switch {
	case kind == "reasoning" && !b.odd:
		if !b.sealed { // a summary says nothing of its size
			c.Reasonings++
			r.referItem(b)
		}
	case b.node == nil: // it has nothing that is known
		r.unknown(nil)
	case kind == "" && !b.odd:
		c.Hidden++ // an id: what it names is the prompt
		r.referItem(b)
	case !ok || b.odd:
		r.unknown(nil)
	case kind == "mcp_approval_response":
		c.refer(StoredItem, b.approved)
	case content == "" || !b.has(content):
		c.Hidden++
		r.referItem(b)
	}
}

// referItem notes that the provider may take an element's content from what it has stored under its
// id. Without an id there is nothing.
func (r *requestReader) referItem(b *block) {
	if b.has("id") {
		r.call.refer(StoredItem, b.id)
	}
}
