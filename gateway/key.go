package gateway

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
)

// KeySecret is one of the secrets of a [Key].
type KeySecret struct {
	Sum   [sha256.Size]byte // SHA-256 of the secret
	Until time.Time         // it is valid before this instant; zero: it has no end
}

// secrets returns all secrets of a key.
func (k *Key) secrets() []KeySecret {
	if len(k.Secrets) == 0 {
		return []KeySecret{{Sum: k.Sum}}
	}
	return k.Secrets
}

// end returns the instant from which on no call of a key passes, with any of its secrets; zero if
// there is none.
func (k *Key) end() (end time.Time) {
	for _, s := range k.secrets() {
		if s.Until.IsZero() {
			return k.Expires
		}
		if s.Until.After(end) {
			end = s.Until
		}
	}
	if !k.Expires.IsZero() && k.Expires.Before(end) {
		end = k.Expires
	}
	return end
}

// over reports whether an end has come.
func over(end, now time.Time) bool { return !end.IsZero() && !now.Before(end) }

// check returns the mistakes of a key that need no look at others.
func (k *Key) check() error {
	var errs []error
	if k.Priority < 0 || k.Priority > drawgate.MaxPriority {
		errs = append(errs, fmt.Errorf("gateway: key %q: priority %d is not between 0 and %d", k.Name, k.Priority,
			drawgate.MaxPriority))
	}
	if len(k.Secrets) > 0 && k.Sum != ([sha256.Size]byte{}) {
		errs = append(errs, fmt.Errorf("gateway: key %q has both a Sum and Secrets: move the Sum into Secrets", k.Name))
	}
	if slices.ContainsFunc(k.Addresses, func(p netip.Prefix) bool { return !p.IsValid() }) {
		errs = append(errs, fmt.Errorf("gateway: key %q: one of its addresses is not a network", k.Name))
	}
	return errors.Join(errs...)
}

// checkKeys returns the mistakes of all keys.
func (c *Config) checkKeys() (errs []error) {
	names := map[string]bool{}
	sums := map[[sha256.Size]byte]string{{}: ""}
	for i := range c.Keys {
		k := &c.Keys[i]
		for _, s := range k.secrets() {
			if other, twice := sums[s.Sum]; twice {
				errs = append(errs,
					fmt.Errorf("gateway: key %q has no secret of its own: %q has the same, or there is none", k.Name,
						other))
			}
			sums[s.Sum] = k.Name
		}
		if k.Name == "" || names[k.Name] {
			errs = append(errs, fmt.Errorf("gateway: key %d (%q) needs a name that no other key has", i+1, k.Name))
		}
		names[k.Name] = true
		errs = append(errs, k.check())
	}
	return errs
}

// credential is a secret of a key in force.
type credential struct {
	key   *Key
	until time.Time
}

// credentialsOf returns the secrets of all keys by their sums.
func credentialsOf(keys []Key) map[[sha256.Size]byte]credential {
	all := map[[sha256.Size]byte]credential{}
	for i := range keys {
		for _, s := range keys[i].secrets() {
			all[s.Sum] = credential{&keys[i], s.Until}
		}
	}
	return all
}

// caller returns the key of a request, and why its calls are refused now. Without the secret of a
// key nobody learns anything about it: the key is nil, and the reason always the same. Whoever has
// an old secret learns that it is over, and nothing about the key.
func (s *state) caller(r *http.Request) (*Key, *refusal) {
	secret := secretOf(r)
	// The sum of a guess says nothing about the sums of keys: a plain look-up leaks nothing.
	sum := sha256.Sum256([]byte(secret))
	found := s.credential(sum)
	switch {
	case found.key == nil && len(s.issuers) > 0 && isToken(secret):
		return s.bearer(r.Context(), secret)
	case secret == "":
		return nil, &refusal{kind: llm.Unauthorized, message: s.unknownKey()}
	}
	return found.key, s.refuses(found, sum)
}

// credential returns the key that a secret is of. Without one its key is nil.
func (s *state) credential(sum [sha256.Size]byte) credential {
	if found, ok := s.secrets[sum]; ok {
		return found
	}
	if found, ok := s.storedSecret(sum); ok {
		return found
	}
	return credential{}
}

// refuses returns why no call with a secret passes now, or nil. Without a key the secret is
// unknown.
func (s *state) refuses(c credential, sum [sha256.Size]byte) *refusal {
	k, now := c.key, time.Now()
	switch {
	case k == nil && s.stored != nil && !s.stored.all(): // it may be a right one
		return &refusal{
			kind: llm.Unavailable, after: storedAgain,
			message: "the keys in the store cannot be read now, and this one is not known yet: try again",
		}
	case k == nil:
		return &refusal{kind: llm.Unauthorized, message: s.unknownKey()}
	case over(c.until, now):
		return &refusal{
			kind:    llm.KeyExpired,
			message: "this secret was valid until " + instant(c.until) + ": use the newer one of the key",
		}
	}
	if why := k.ended(now); why != nil {
		return why
	}
	return s.stored.refuses(k, sum, now)
}

// refusesNow returns why a call of a key that has passed, and may have waited since, is not to be
// sent, or nil. It asks nobody: what this process knows of keys now is what counts.
func (h *Handler) refusesNow(k *Key, sum [sha256.Size]byte) *refusal {
	s := h.state.Load()
	if k.issuer == "" {
		c := s.credential(sum)
		if c.key != nil && c.key.Name != k.Name { // the secret was given to another one
			c = credential{}
		}
		return s.refuses(c, sum)
	}
	i := s.issuers[k.issuer]
	switch {
	case i == nil:
		return refuseToken(errStranger)
	case i.config.Key.Disabled:
		return refuseDisabled()
	case over(k.Expires, time.Now()):
		return refuseToken(errOver)
	}
	return nil
}

// keyError says why the key of a call that was granted does not allow it any more.
type keyError struct{ why *refusal }

func (e *keyError) Error() string { return "gateway: " + e.why.message }

// ended returns why no call of a key passes now, or nil.
func (k *Key) ended(now time.Time) *refusal {
	switch {
	case k.Disabled:
		return &refusal{kind: llm.KeyDisabled, message: "this key is disabled: ask whoever runs this gateway"}
	case over(k.Expires, now):
		return &refusal{
			kind:    llm.KeyExpired,
			message: "this key was valid until " + instant(k.Expires) + ": ask whoever runs this gateway for another",
		}
	}
	return nil
}

// unknownKey says what to use in the place of a key that is missing or unknown.
func (s *state) unknownKey() string {
	if len(s.issuers) > 0 {
		return "the key is missing or unknown: use a virtual key of this gateway, or a token of an issuer that it " +
			"trusts, not a key of the provider"
	}
	return "the key is missing or unknown: use a virtual key of this gateway, not one of the provider"
}

// refuseAddress returns why a key may not be used from an address, or nil.
func (k *Key) refuseAddress(client netip.Addr) *refusal {
	within := func(p netip.Prefix) bool { return p.Contains(client) }
	if len(k.Addresses) == 0 || slices.ContainsFunc(k.Addresses, within) {
		return nil
	}
	return &refusal{kind: llm.Forbidden, message: "this key may not be used from the address " + client.String()}
}

// refusePath returns why a key may not make calls of a path, or nil.
func (k *Key) refusePath(upstream, path string) *refusal {
	if len(k.Paths) == 0 || listed(k.Paths, upstream+path) {
		return nil
	}
	return &refusal{kind: llm.Forbidden, message: fmt.Sprintf("this key may not make calls of the path %.80q", path)}
}

// instant writes an instant for people.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// noticeBefore is how long before the end of a key the log says so.
const noticeBefore = 7 * 24 * time.Hour

// watchKeys has the log say, once and a week before, which keys of s end. It looks at notices after
// an instant: whoever reads the configuration knows which keys are nearer to their end by then.
func (h *Handler) watchKeys(s *state, after time.Time) {
	h.notice.Lock()
	defer h.notice.Unlock()
	if h.state.Load() != s || h.life.Err() != nil {
		return // another configuration is in force, or none any more
	}
	h.stopNotice()
	var next time.Time
	for i := range s.config.Keys {
		at := s.config.Keys[i].notice()
		if at.After(after) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if !next.IsZero() {
		h.noticeTimer = time.AfterFunc(time.Until(next), func() { h.notify(s, next) })
	}
}

// notice returns the instant at which the log speaks of a key's end; zero if never.
func (k *Key) notice() (at time.Time) {
	if end := k.end(); !end.IsZero() && !k.Disabled {
		at = end.Add(-noticeBefore)
	}
	return at
}

// notify logs the keys that end in a week, and waits for the next ones.
func (h *Handler) notify(s *state, at time.Time) {
	if h.state.Load() != s {
		return
	}
	for i := range s.config.Keys {
		if k := &s.config.Keys[i]; k.notice().Equal(at) {
			h.opts.Logger.Warn("a key ends in a week: give it a new secret, or a later end", "key", k.Name, "valid_until",
				instant(k.end()))
		}
	}
	h.watchKeys(s, at)
}

// stopNotice stops the timer. The caller holds h.notice.
func (h *Handler) stopNotice() {
	if h.noticeTimer != nil {
		h.noticeTimer.Stop()
		h.noticeTimer = nil
	}
}
