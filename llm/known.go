package llm

import (
	"maps"
	"strings"
)

// known is what is known of a provider's requests. Whatever is not in it is not understood: a call
// that has it reserves the most that it can cost, and is refused where prices hold. Nothing else
// that a request says about itself lowers what is reserved for it.
type known struct {
	// Fields by the object that has them; names are separated by white space. Those that matter by
	// themselves are in the provider's request.
	free map[string]string // neither reach the model nor change what a call costs
	text map[string]string // are a part of the prompt, with everything below them

	parts map[string]partKind // of messages, by their type
	// items are the elements of a response's input, by their type: the field that has their
	// content, or "" if the provider has it.
	items map[string]string
	tools map[string]toolKind // by their type, without its date
	edits map[string]bool     // types of edits of the context that only make it shorter
	from  bool                // a part's source may be a text, which says where it is from
}

// partKind is what a part of a message can have.
type partKind uint8

const (
	_          partKind = iota
	partInline          // all that it costs is in it
	partImage           // an image, which may be given by its address
	partSource          // a text that says where it is from
)

// toolKind says who runs a tool.
type toolKind uint8

const (
	_          toolKind = iota
	toolClient          // the caller
	toolRun             // the provider, for no more than the tokens
	toolFee             // the provider, for a fee per use
)

// kinds returns what each type is, given the types of each kind, separated by white space. A dash
// is of what names no type.
func kinds[K comparable](lists map[K]string) map[string]K {
	all := map[string]K{}
	for kind, list := range lists {
		for name := range strings.FieldsSeq(list) {
			all[strings.TrimPrefix(name, "-")] = kind
		}
	}
	return all
}

// withFree returns a copy of k in which more fields of a place are known, which are separated by
// white space. They neither reach the model nor change what a call costs.
func (k *known) withFree(place, fields string) *known {
	more := *k
	more.free = maps.Clone(k.free)
	more.free[place] += " " + fields
	return &more
}

// close makes n an object of which only the fields of a place, and those that n has already, are
// known.
func (k *known) close(n *node, place string) *node {
	n.closed = true
	for name := range strings.FieldsSeq(k.free[place]) {
		n.at(name).set(reqSkip)
	}
	for name := range strings.FieldsSeq(k.text[place]) {
		n.opaque(name)
	}
	return n
}

// tool returns who runs a tool of a type, which may have a date such as _20250124; 0 if nobody
// knows.
func (k *known) tool(kind string) toolKind {
	if run, ok := k.tools[kind]; ok {
		return run
	}
	const date = "_20250124"
	if at := len(kind) - len(date); at > 0 && kind[at] == '_' && strings.Trim(kind[at+1:], "0123456789") == "" {
		return k.tools[kind[:at]]
	}
	return 0
}
