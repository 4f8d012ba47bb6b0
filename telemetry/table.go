package telemetry

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
)

// Bounds of what is kept apart. Policies and limits come from configuration, not from callers; but
// a configuration may be replaced for months.
const (
	maxPolicies = 1000
	maxLimits   = 4 * drawgate.MaxLimits // of one policy, in all its forms
)

// other stands for everything beyond a bound, in labels.
const other = "other"

// table holds one T per policy, for the first ones that are seen, and one for all others. Reading
// takes no lock and allocates nothing.
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

// get returns what belongs to a policy.
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

// shape is what of a limit shows in labels.
type shape struct {
	name   string
	kind   drawgate.Kind
	window time.Duration
	every  drawgate.Every
}

func shapeOf(l *drawgate.Limit) shape { return shape{l.Name, l.Kind, l.Window, l.Every} }

// row holds one T per limit of a policy: for the first maxLimits forms that are seen, and one for
// all others.
type row[T any] struct {
	create func(limit, period string) *T

	all atomic.Pointer[[]entry[T]]
	mu  sync.Mutex // serialises additions
}

type entry[T any] struct {
	shape
	v *T
}

// get returns what belongs to a limit.
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
