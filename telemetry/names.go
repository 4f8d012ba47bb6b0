package telemetry

import (
	"maps"
	"slices"
	"sync"
)

// names bounds the values of a label that do not all come from a configuration: the first ones that
// are added keep their name, and all others are [other]. It is safe for concurrent use.
type names struct {
	most int

	mu    sync.Mutex
	known map[string]string // guarded by mu: the label of each name
}

func newNames(most int) *names { return &names{most: most, known: map[string]string{}} }

// get returns the label of a name. Only if add is set, a name that is not known yet becomes known.
func (n *names) get(name string, add bool) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l, ok := n.known[name]; ok {
		return l
	}
	if !add || len(n.known) >= n.most {
		return other
	}
	n.known[name] = label(name)
	return n.known[name]
}

// list returns the labels.
func (n *names) list() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.known))
}
