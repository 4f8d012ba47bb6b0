package rules

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// paths indexes patterns of paths: a tree with a level per segment.
type paths struct {
	free  bitset
	rules int
	root  pathNode
}

// pathNode is a place between two slashes.
type pathNode struct {
	next  map[string]*pathNode // by the segment
	any   *pathNode            // whatever the segment, if it is not empty
	here  *members             // patterns that end with the segment that led here
	tails []tail               // patterns that end here with "*"
}

// tail is a pattern's last part: whatever begins so.
type tail struct {
	prefix string
	rules  members
}

func newPaths(rules int) *paths { return &paths{free: newBitset(rules), rules: rules} }

// add notes a rule's pattern.
func (p *paths) add(rule int, pattern string) {
	if pattern == "" {
		p.free.add(rule)
		return
	}
	n := &p.root
	for {
		segment, rest, more := strings.Cut(pattern, "/")
		if before, ok := strings.CutSuffix(segment, "*"); ok && !more {
			n.tail(before).add(rule, p.rules)
			return
		}
		n = n.child(segment)
		if !more {
			break
		}
		pattern = rest
	}
	if n.here == nil {
		n.here = &members{}
	}
	n.here.add(rule, p.rules)
}

func (n *pathNode) child(segment string) *pathNode {
	if strings.HasPrefix(segment, "{") {
		if n.any == nil {
			n.any = &pathNode{}
		}
		return n.any
	}
	c := n.next[segment]
	if c == nil {
		if n.next == nil {
			n.next = map[string]*pathNode{}
		}
		c = &pathNode{}
		n.next[segment] = c
	}
	return c
}

func (n *pathNode) tail(prefix string) *members {
	for i := range n.tails {
		if n.tails[i].prefix == prefix {
			return &n.tails[i].rules
		}
	}
	n.tails = append(n.tails, tail{prefix: prefix})
	return &n.tails[len(n.tails)-1].rules
}

// holding sets b to the rules whose pattern holds for a path.
func (p *paths) holding(path string, b bitset) {
	copy(b, p.free)
	if path != "" {
		p.root.walk(path, b)
	}
}

// walk visits what is left of a path. It visits no more nodes than the patterns have, whatever the
// path.
func (n *pathNode) walk(rest string, b bitset) {
	for i := range n.tails {
		if strings.HasPrefix(rest, n.tails[i].prefix) {
			n.tails[i].rules.into(b)
		}
	}
	if n.next == nil && n.any == nil {
		return
	}
	segment, rest, more := cutSegment(rest)
	if c := n.next[segment]; c != nil {
		c.enter(rest, more, b)
	}
	if n.any != nil && segment != "" {
		n.any.enter(rest, more, b)
	}
}

// cutSegment is strings.Cut at a slash, and faster.
func cutSegment(p string) (segment, rest string, more bool) {
	if i := strings.IndexByte(p, '/'); i >= 0 { //nolint:modernize // strings.Cut looks for texts, which takes longer for each segment
		return p[:i], p[i+1:], true
	}
	return p, "", false
}

func (n *pathNode) enter(rest string, more bool, b bitset) {
	if more {
		n.walk(rest, b)
		return
	}
	n.here.into(b)
}

// What CheckRequestPath refuses.
var (
	errFragment = errors.New(`the path has a raw "#", where some programs end it and others do not`)
	errDots     = errors.New(`the path has a "..", or something that some programs take for one: which path it is depends on the program`)
	errHost     = errors.New(`the path begins with "//" or "/\", behind which some programs expect a host`)
	errNUL      = errors.New("the path has a NUL byte, where some programs end it and others do not")
)

// CheckRequestPath returns an error for the path of a request that different programs take for
// different paths. Whoever matches rules for another program, as a server does for the site behind
// a proxy, must refuse it: /public/..;/login may be /login there, and below /public/ here. p has no
// query; it may be as it was sent or decoded, and is looked at as it is, decoded once and decoded
// twice. The error does not show it.
//
//   - A raw "#" ends the path for some.
//   - "/" and "\" separate segments, "%2f" and "%5c" do so for some, and what follows ";" in a
//     segment is left out by some. What is then ".." is refused, and what is then "." unless it
//     stands between two plain slashes.
//   - What follows "//" or "/\" at the start is a host for some, and the path begins behind it.
//   - A NUL byte ends the path for some.
//
// A path that only has a "\" is fine, and so is one that only has a "%2f" or a ";".
func CheckRequestPath(p string) error {
	if strings.IndexByte(p, '#') >= 0 {
		return errFragment
	}
	if len(p) > 1 && p[0] == '/' && (p[1] == '/' || p[1] == '\\') {
		return errHost
	}
	if strings.IndexByte(p, '%') >= 0 { // a replacer allocates even if it has nothing to replace
		p = encodedDots.Replace(p)
	}
	for decoded := range 3 {
		if strings.IndexByte(p, 0) >= 0 {
			return errNUL
		}
		if hasDots(p, decoded == 0) {
			return errDots
		}
		next := unescape(cleanPath(p))
		if next == p {
			break
		}
		p = next
	}
	return nil
}

// encodedDots decodes dots: every program takes "%2e" for one.
var encodedDots = strings.NewReplacer("%2e", ".", "%2E", ".")

// hasDots reports whether a segment of p is "..", or is "." in a way that is not resolved before
// paths are compared: plainly so, between slashes, it may be if plain is true.
func hasDots(p string, plain bool) bool {
	if !strings.Contains(p, ".") {
		return false
	}
	before := byte('/')
	for {
		segment, after := p, byte('/')
		i := strings.IndexAny(p, `/\`)
		if i >= 0 {
			segment, after = p[:i], p[i]
		}
		name, _, parameters := strings.Cut(segment, ";")
		if name == ".." || name == "." && (!plain || parameters || before != '/' || after != '/') {
			return true
		}
		if i < 0 {
			return false
		}
		p, before = p[i+1:], after
	}
}

// unescape decodes p once. What is no escape stays as it is, as lenient programs have it.
func unescape(p string) string {
	i := strings.IndexByte(p, '%')
	if i < 0 {
		return p
	}
	out := make([]byte, 0, len(p))
	for ; i >= 0; i = strings.IndexByte(p, '%') {
		out = append(out, p[:i]...)
		if b, err := hex.DecodeString(p[i+1 : min(i+3, len(p))]); err == nil && len(b) == 1 {
			out, p = append(out, b[0]), p[i+3:]
		} else {
			out, p = append(out, '%'), p[i+1:]
		}
	}
	return string(append(out, p...))
}

// checkPath refuses a pattern that no path, or not the paths that it seems to mean, would match.
func checkPath(pattern string) error {
	switch {
	case pattern == "" || pattern == "*":
		return nil
	case len(pattern) > MaxPattern:
		return fmt.Errorf("%d bytes are more than %d", len(pattern), MaxPattern)
	case pattern[0] != '/':
		return errors.New(`a path begins with "/"`)
	case cleanPath(pattern) != pattern:
		return fmt.Errorf(`no path is like this: "//", "/./" and "/../" are resolved before; %q would match`, cleanPath(pattern))
	case strings.Contains(pattern[:len(pattern)-1], "*"):
		return errors.New(`a "*" stands at the end, for whatever follows; {name} is any one segment`)
	case strings.ContainsAny(pattern, "?#"):
		return errors.New(`a path has no query: leave out what begins with "?" or "#"`)
	}
	for segment := range strings.SplitSeq(pattern, "/") {
		if err := checkSegment(segment); err != nil {
			return err
		}
	}
	return nil
}

func checkSegment(segment string) error {
	open, end := strings.IndexByte(segment, '{'), strings.LastIndexByte(segment, '}')
	switch {
	case open < 0 && end < 0:
		return nil
	case open != 0 || end != len(segment)-1 || strings.ContainsAny(segment[1:end], "{}"):
		return fmt.Errorf(`%q: {name} is a whole segment`, segment)
	case strings.HasSuffix(segment, "...}"):
		return fmt.Errorf(`%q: whatever follows is "*"`, segment)
	}
	return nil
}
