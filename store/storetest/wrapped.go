package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store"
)

// Wrapped returns h for stores with another store in front of each, such as a guard. What wrap
// returns must be comparable. It closes the store behind it.
func Wrapped(h Harness, wrap func(*testing.T, store.Store) store.Store) Harness {
	var behind sync.Map // what wrap returned, to the store behind it
	in := func(t *testing.T, s store.Store) store.Store {
		t.Helper()
		front := wrap(t, s)
		behind.Store(front, s)
		return front
	}
	of := func(front store.Store) store.Store {
		s, _ := behind.Load(front)
		return s.(store.Store) //nolint:forcetypeassert // nothing else is in it
	}
	w := h
	w.New = func(t *testing.T) store.Store {
		t.Helper()
		return in(t, h.New(t))
	}
	if h.Advance != nil {
		w.Advance = func(s store.Store, d time.Duration) { h.Advance(of(s), d) }
	}
	if h.Second != nil {
		w.Second = func(t *testing.T, s store.Store) store.Store {
			t.Helper()
			return in(t, h.Second(t, of(s)))
		}
	}
	if h.Apart != nil {
		w.Apart = func(t *testing.T, s store.Store) (behind, right store.Store) {
			t.Helper()
			behind, right = h.Apart(t, of(s))
			return in(t, behind), in(t, right)
		}
	}
	return w
}
