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

// pathNode is a position between two slashes.
type pathNode struct {
	next  map[string]*pathNode // by the segment
	any   *pathNode            // any segment that is not empty
	here  *members             // patterns that end with the segment that led here
	tails []tail               // patterns that end here with "*"
}

// tail is the last part of a pattern: a prefix.
type tail struct {
	prefix string
	rules  members
}

func newPaths(rules int) *paths { return &paths{free: newBitset(rules), rules: rules} }

// add adds a rule's pattern.
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

// walk visits the nodes for the rest of a path. It visits no more nodes than the patterns have,
// whatever the path.
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

// cutSegment is a faster strings.Cut at a slash.
func cutSegment(p string) (segment, rest string, more bool) {
	if i := strings.IndexByte(p, '/'); i >= 0 { //nolint:modernize // strings.Cut searches for texts, which takes longer for each segment
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

// Errors of CheckRequestPath.
var (
	errFragment = errors.New(`the path has a raw "#", where some programs end it and others do not`)
	errDots     = errors.New(`the path has a "..", or something that some programs read as one: programs do not agree which path it is`)
	errHost     = errors.New(`the path begins with "//" or "/\", after which some programs expect a host`)
	errNoName   = errors.New(`the path has a segment that begins with ";": to some programs it is empty, so that "/;/a" is "//a" or "/a"`)
	errNUL      = errors.New("the path has a NUL byte, where some programs end it and others do not")
)

// CheckRequestPath returns an error for a request path that different programs read as different
// paths. Any program that matches rules on behalf of another one, as a server does for the site
// behind a proxy, must refuse such a path: /public/..;/login may be /login there, and below
// /public/ here. p has no query; it may be raw or decoded, and is checked as it is, decoded once
// and decoded twice. The error does not show it.
//
//   - A raw "#" ends the path for some programs.
//   - "/" and "\" separate segments, "%2f" and "%5c" do so for some, and some leave out what
//     follows ";" in a segment. A segment that then is ".." is refused, and one that is "." unless
//     it is between two plain slashes.
//   - A segment that begins with ";" is empty for those that leave out what follows it, so that
//     "/;/login" is "//login" or "/login".
//   - What follows "//" or "/\" at the start is a host for some, and the path begins after it.
//   - A NUL byte ends the path for some.
//
// A path that only has a "\" is fine, and so is one that only has a "%2f", or a ";" behind a name.
func CheckRequestPath(p string) error {
	if strings.IndexByte(p, '#') >= 0 {
		return errFragment
	}
	if len(p) > 1 && p[0] == '/' && (p[1] == '/' || p[1] == '\\') {
		return errHost
	}
	if strings.IndexByte(p, '%') >= 0 { // a replacer allocates even if there is nothing to replace
		p = encodedDots.Replace(p)
	}
	for decoded := range 3 {
		if strings.IndexByte(p, 0) >= 0 {
			return errNUL
		}
		if hasDots(p, decoded == 0) {
			return errDots
		}
		if hasNoName(p) {
			return errNoName
		}
		next := unescape(cleanPath(p))
		if next == p {
			break
		}
		p = next
	}
	return nil
}

// encodedDots decodes dots: every program reads "%2e" as one.
var encodedDots = strings.NewReplacer("%2e", ".", "%2E", ".")

// hasDots reports whether a segment of p is "..", or is "." in a way that is not resolved before
// paths are compared. If plain is true, a "." between two slashes is allowed.
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

// hasNoName reports whether a segment of p has parameters, but no name.
func hasNoName(p string) bool {
	for i := range len(p) {
		if p[i] == ';' && (i == 0 || p[i-1] == '/' || p[i-1] == '\\') {
			return true
		}
	}
	return false
}

// unescape decodes p once. Invalid escapes stay as they are, as in lenient programs.
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

// checkPath refuses a pattern that would match no path, or other paths than it suggests.
func checkPath(pattern string) error {
	switch {
	case pattern == "" || pattern == "*":
		return nil
	case len(pattern) > MaxPattern:
		return fmt.Errorf("%d bytes, but at most %d are allowed", len(pattern), MaxPattern)
	case pattern[0] != '/':
		return errors.New(`a path must begin with "/"`)
	case cleanPath(pattern) != pattern:
		return fmt.Errorf(`this matches no path, because "//", "/./" and "/../" are resolved first; use %q`,
			cleanPath(pattern))
	case strings.Contains(pattern[:len(pattern)-1], "*"):
		return errors.New(`"*" is only allowed at the end, where it matches the rest; {name} matches any one segment`)
	case strings.ContainsAny(pattern, "?#"):
		return errors.New(`a path has no query: leave out what follows "?" or "#"`)
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
		return fmt.Errorf(`%q: {name} must be a whole segment`, segment)
	case strings.HasSuffix(segment, "...}"):
		return fmt.Errorf(`%q: use "*" to match the rest`, segment)
	}
	return nil
}
