package gateway

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// storedAgain is after which time a caller whose key is not known may try again.
const storedAgain = time.Second

// stored are the keys of the store. A nil stored has none.
type stored struct {
	all func() bool // see [Options.Stored]

	mu    sync.RWMutex
	names map[string]*Key                  // guarded by mu
	sums  map[[sha256.Size]byte]credential // guarded by mu
}

// UseStored puts keys of the store in force, in place of those that had their names, and removes
// others by their names. A key whose name is one of the Config's or could be one of a token's gives
// nobody access; if it is disabled, or has expired, the other one of its name is refused as well.
// The keys are not changed afterwards. The error is about the keys that are not valid, which give
// nobody access either.
func (h *Handler) UseStored(put []*Key, gone []string) error {
	if h.stored == nil {
		return errors.New("gateway: UseStored needs Options.Stored")
	}
	return h.stored.use(put, gone)
}

func (t *stored) use(put []*Key, gone []string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, name := range gone {
		t.remove(name)
	}
	for _, k := range put {
		t.remove(k.Name)
	}
	for _, k := range put {
		if err := t.add(k); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// remove forgets a key. The caller holds mu.
func (t *stored) remove(name string) {
	k := t.names[name]
	if k == nil {
		return
	}
	delete(t.names, name)
	for _, s := range k.secrets() {
		if t.sums[s.Sum].key == k {
			delete(t.sums, s.Sum)
		}
	}
}

// add notes a key. The caller holds mu.
func (t *stored) add(k *Key) error {
	if err := k.check(); err != nil {
		return err
	}
	if k.Name == "" || strings.Contains(k.Name, nameEnd) {
		return fmt.Errorf("gateway: the store cannot have a key %q: it needs a name without %s", k.Name, nameEnd)
	}
	for _, s := range k.secrets() {
		if other := t.sums[s.Sum].key; other != nil || s.Sum == ([sha256.Size]byte{}) {
			return fmt.Errorf("gateway: key %q of the store has no secret of its own", k.Name)
		}
	}
	t.names[k.Name] = k
	for _, s := range k.secrets() {
		t.sums[s.Sum] = credential{k, s.Until}
	}
	return nil
}

// storedSecret returns the key of the store with a secret. Where the configuration has a key of
// that name, its secrets are those that count.
func (s *state) storedSecret(sum [sha256.Size]byte) (found credential, ok bool) {
	if s.stored == nil {
		return found, false
	}
	s.stored.mu.RLock()
	defer s.stored.mu.RUnlock()
	found, ok = s.stored.sums[sum]
	return found, ok && s.named[found.key.Name] == nil
}

// refuses returns why the store's key of the same name or secret as one that is in force forbids
// it, or nil.
func (t *stored) refuses(k *Key, sum [sha256.Size]byte, now time.Time) *refusal {
	if t == nil {
		return nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, other := range []*Key{t.names[k.Name], t.sums[sum].key} {
		if other != nil && other != k {
			if why := other.ended(now); why != nil {
				return why
			}
		}
	}
	return nil
}

// each calls f with the keys of the store until it returns false.
func (t *stored) each(f func(*Key) bool) {
	if t == nil {
		return
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, k := range t.names {
		if !f(k) {
			return
		}
	}
}
