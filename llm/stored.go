package llm

import (
	"cmp"
	"strconv"
	"strings"
)

// StoredKind is a kind of what a provider stores for an account.
type StoredKind uint8

// The kinds.
const (
	StoredResponse     StoredKind = iota // with its input
	StoredFile                           //
	StoredConversation                   //
	StoredItem                           // of a response's output, or of a conversation, by its id
	StoredTool                           // what a tool that the provider runs has at hand
	StoredOther                          // such as a container
	StoredMany                           // more than are looked up for a call
	numStored
)

var storedNames = [numStored]string{
	"a response", "a file", "a conversation", "an item",
	"a tool that reads what is stored", "something that is stored",
	"more than " + strconv.Itoa(maxStored) + " things that are stored",
}

// String returns what it is, for people: "a response".
func (k StoredKind) String() string {
	if k < numStored {
		return storedNames[k]
	}
	return storedNames[StoredOther]
}

// Stored is something that a provider stores for an account, and that whoever knows its id can use.
type Stored struct {
	Kind StoredKind
	ID   string // "" if it is none that could be stored, or has none yet
}

// maxStored bounds what is kept of what a call refers to.
const maxStored = 100

// refer notes that a call refers to something that is stored.
func (c *Call) refer(kind StoredKind, id string) {
	if !storedID(id) {
		id = ""
	}
	if len(c.Stored) == maxStored {
		kind, id = StoredMany, ""
	}
	if len(c.Stored) <= maxStored {
		c.Stored = append(c.Stored, Stored{kind, id})
	}
}

// storedID reports whether a text can be the id of something that is stored: in paths all programs
// read it as the same.
func storedID(id string) bool {
	return id != "" && len(id) <= 256 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

// storedCall is a call for what is stored.
type storedCall struct {
	method, form string
	kind         StoredKind
}

// KeepsStored reports whether [Profile.StoredCall] knows calls of the provider.
func (p *Profile) KeepsStored() bool { return len(p.provider.storedCalls) > 0 }

// StoredCall returns what a call is for that reads, changes or stores something of an account, by
// exactly the path of the provider's documentation; the ID is "" if it makes something new. path is
// decoded, and without the query. ok is false for other calls.
func (p *Profile) StoredCall(method, path string) (s Stored, ok bool) {
	plain := path
	for _, base := range p.provider.otherBases {
		if rest, found := strings.CutPrefix(path, base+"/"); found {
			plain = "/" + rest
			break
		}
	}
	for _, c := range p.provider.storedCalls {
		if c.method != method || !sameForm(c.form, plain) {
			continue
		}
		if !strings.Contains(c.form, "{}") {
			return Stored{Kind: c.kind}, true
		}
		id := strings.Split(plain, "/")[2]
		return Stored{c.kind, id}, storedID(id)
	}
	return Stored{}, false
}

// CountStored makes a call that [Profile.StoredCall] knows one that counts: as a request, and the
// bytes of its body. It was read by [Profile.Parse].
func (c *Call) CountStored() {
	c.Operation, c.Model, c.Family, c.MaxOutput = OpStored, string(OpStored), string(OpStored), 0
}

// ID returns the id of what an answer has stored, as soon as it was read; "" before, and if there
// is none.
func (s *Stream) ID() string { return s.id }

// noteID notes the id of an answer: of a document its own, of events that of their response.
func (s *Stream) noteID(ro role, value []byte) {
	if ro == resID && s.form == formJSON || ro == resResponseID && s.form == formEvents {
		s.id = cmp.Or(s.id, string(value))
	}
}

// outputItem is what an element of a response's output says of itself.
type outputItem struct {
	id, kind string
	sealed   bool // it has its reasoning, encrypted
}

// endItem notes the element that was read, if later calls name it by its id.
func (e *event) endItem(k *known) {
	if k == nil || e.item.id == "" || len(e.items) == maxStored {
		return
	}
	content, ok := k.items[e.item.kind]
	switch kind := e.item.kind; {
	case ok && content == "", kind == "reasoning" && !e.item.sealed, kind == "mcp_approval_request":
		e.items = append(e.items, e.item.id)
	}
}

// noteItems takes over what an event says that is complete.
func (s *Stream) noteItems(e *event) {
	if s.form == formJSON || e.kind == "response.output_item.done" {
		s.items = append(s.items, e.items[:min(len(e.items), maxStored-len(s.items))]...)
	}
}

// Items returns the ids of those elements of the output that were read since it was called last,
// and that a later call names by their ids: their content, such as reasoning that is not encrypted,
// is not in the answer, or they ask for an approval. Of a document there are at most 100.
func (s *Stream) Items() []string {
	list := s.items
	s.items = nil
	return list
}
