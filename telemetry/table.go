package telemetry

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// Bounds of how many series exist. Policies and limits come from the configuration, not from
// callers; but over months a configuration may be replaced many times.
const (
	maxPolicies = 1000
	maxLimits   = 4 * store.MaxLimits // of one policy, in all its forms
)

// other is the label of everything beyond a bound.
const other = "other"

// table holds one T for each of the first policies that are seen, and one for all others. Reading
// takes no lock and does not allocate.
type table[T any] struct {
	most   int
	create func(policy string) *T

	all  atomic.Pointer[map[string]*T]
	rest atomic.Pointer[T] // for all others, once there are any
	mu   sync.Mutex        // serialises additions
}

func newTable[T any](most int, create func(policy string) *T) *table[T] {
	t := &table[T]{most: most, create: create}
	t.all.Store(&map[string]*T{})
	return t
}

// get returns the T of a policy.
func (t *table[T]) get(policy string) *T {
	if v := (*t.all.Load())[policy]; v != nil {
		return v
	}
	if v := t.rest.Load(); v != nil {
		return v
	}
	return t.add(policy)
}

func (t *table[T]) add(policy string) *T {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *t.all.Load()
	if v := old[policy]; v != nil {
		return v
	}
	if len(old) >= t.most {
		if t.rest.Load() == nil {
			t.rest.Store(t.create(other))
		}
		return t.rest.Load()
	}
	all := maps.Clone(old)
	all[policy] = t.create(policy)
	t.all.Store(&all)
	return all[policy]
}

// each calls f for every T.
func (t *table[T]) each(f func(*T)) {
	for _, v := range *t.all.Load() {
		f(v)
	}
	if v := t.rest.Load(); v != nil {
		f(v)
	}
}

// shape holds the parts of a limit that appear in labels.
type shape struct {
	name   string
	kind   drawgate.Kind
	window time.Duration
	every  drawgate.Every
}

func shapeOf(l *drawgate.Limit) shape { return shape{l.Name, l.Kind, l.Window, l.Every} }

// row holds one T for each of the first maxLimits shapes of limits of a policy, and one for all
// others.
type row[T any] struct {
	create func(limit, period string) *T

	all atomic.Pointer[[]entry[T]]
	mu  sync.Mutex // serialises additions
}

type entry[T any] struct {
	shape
	v *T
}

// get returns the T of a limit.
func (r *row[T]) get(l *drawgate.Limit) *T {
	s := shapeOf(l)
	if all := r.all.Load(); all != nil {
		for i := range *all {
			if e := &(*all)[i]; e.shape == s {
				return e.v
			}
		}
		if len(*all) > maxLimits {
			return (*all)[maxLimits].v
		}
	}
	return r.add(l, s)
}

func (r *row[T]) add(l *drawgate.Limit, s shape) *T {
	r.mu.Lock()
	defer r.mu.Unlock()
	var old []entry[T]
	if p := r.all.Load(); p != nil {
		old = *p
	}
	for i := range old {
		if old[i].shape == s || i == maxLimits {
			return old[i].v
		}
	}
	name, period := l.Name, Period(l)
	if len(old) == maxLimits {
		s, name, period = shape{}, other, other
	}
	e := entry[T]{s, r.create(label(name), period)}
	all := slices.Concat(old, []entry[T]{e})
	r.all.Store(&all)
	return e.v
}

// each calls f for every T.
func (r *row[T]) each(f func(*T)) {
	if all := r.all.Load(); all != nil {
		for i := range *all {
			f((*all)[i].v)
		}
	}
}
