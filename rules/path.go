package rules

import (
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

// walk visits what is left of a path. It visits no more nodes than the patterns have, whatever the path.
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
