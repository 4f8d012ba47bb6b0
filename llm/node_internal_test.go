package llm

import "testing"

// TestKeysFitTheirBits: the scanner notes the keys that it has seen of an object in 128 bits. A key
// beyond them could occur twice without an error.
func TestKeysFitTheirBits(t *testing.T) {
	t.Parallel()
	walked := map[*node]bool{}
	var walk func(name string, n *node)
	walk = func(name string, n *node) {
		if n == nil || walked[n] {
			return
		}
		walked[n] = true
		if len(n.kids) > 128 {
			t.Errorf("%s: an object has %d keys that matter, at most 128 fit", name, len(n.kids))
		}
		walk(name, n.each)
		for _, kid := range n.kids {
			walk(name, kid)
		}
	}
	for _, p := range Profiles() {
		walk(p.Name, p.request)
	}
}
