package llm

import "strings"

// role is what a value means to whoever reads it. Each reader has its own roles; 0 means nothing.
type role uint8

// node is a position in a document that matters: what is there, and which positions below it
// matter. Whatever is not mentioned has the role rest of the closest node above it.
//
// An object may be closed: then whoever reads is told of every key that it does not have, of a list
// in its place, and of a scalar unless scalar is set. A list of objects may be written as one of
// them, as Protocol Buffers' JSON can be.
type node struct {
	role   role
	rest   role
	keys   map[string]int // index in kids, by key
	kids   []*node        // nil: nothing below it matters
	each   *node          // the elements of an array
	closed bool
	scalar bool // a scalar may take the place of what is closed
	noted  bool // the keys that it has are told as well
	proto  bool // of Protocol Buffers' JSON, in which each key has two spellings: see snake
}

// at returns the node at a path, and makes it if there is none. "*" stands for every element of an
// array. A node has at most 128 keys: see frame.seen.
func (n *node) at(path ...string) *node {
	for _, key := range path {
		if key == "*" {
			if n.each == nil {
				n.each = &node{rest: n.rest, proto: n.proto}
			}
			n = n.each
			continue
		}
		i := n.opaque(key)
		if n.kids[i] == nil {
			n.kids[i] = &node{rest: n.rest, proto: n.proto}
		}
		n = n.kids[i]
	}
	return n
}

// opaque makes a key known, and returns its index in n.kids. Everything below it has n's rest.
func (n *node) opaque(key string) int {
	i, ok := n.keys[key]
	if !ok {
		if n.keys == nil {
			n.keys = map[string]int{}
		}
		i = len(n.kids)
		n.keys[key] = i
		if n.proto {
			n.keys[snake(key)] = i
		}
		n.kids = append(n.kids, nil)
	}
	return i
}

// link makes a key of n lead to a node that is elsewhere, or above it.
func (n *node) link(key string, to *node) { n.kids[n.opaque(key)] = to }

// list makes n a list, in the place of which nothing else is known but one of its elements.
func (n *node) list() *node {
	n.closed = true
	if n.each == nil {
		n.each = &node{rest: n.rest, proto: n.proto}
	}
	return n
}

// snake returns the original name of a field of a Protocol Buffers message: its JSON form accepts
// both (protobuf.dev, ProtoJSON format), so generation_config is generationConfig.
func snake(key string) string {
	var out []byte
	for _, c := range []byte(key) {
		if 'A' <= c && c <= 'Z' {
			out = append(out, '_', c-'A'+'a')
			continue
		}
		out = append(out, c)
	}
	return string(out)
}

// subtree says what a node and everything below it is, and returns it.
func (n *node) subtree(rest role, path ...string) *node {
	for i := range path {
		n = n.at(path[i])
		n.rest = rest
		if n.role == 0 {
			n.role = rest
		}
	}
	return n
}

// set says what a node is, and that nothing below it counts unless it is mentioned.
func (n *node) set(r role) *node {
	n.role, n.rest = r, reqSkip
	return n
}

// open reports whether the keys of the object at n are a part of the prompt, as those of a tool's
// parameters are.
func (n *node) open() bool { return n.role == reqTool || n.role == reqFunction || n.role == reqSchema }

// resembles reports whether a key that is not known is one in other capitals, which a server that
// is written in Go may take for it.
func (n *node) resembles(key []byte) bool {
	for known := range n.keys {
		if n.proto && strings.ToLower(known) != known {
			continue // no such server: what is not known costs the most
		}
		if len(known) <= len(key) && strings.EqualFold(known, string(key)) { // ſ is a small S, and K a capital k
			return true
		}
	}
	return false
}

// errorFields says what an error is, and which of its fields tell its kind.
func errorFields(n *node, ids ...string) {
	n.role = resError
	for _, id := range ids {
		n.at(id).role = resErrorID
	}
}
