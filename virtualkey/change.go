package virtualkey

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/store"
)

// The history is in pages, of which the oldest is removed when there are too many.
const (
	pageSize = 64 // changes
	maxPages = 160
)

func pageOf(n int64) int64 { return (n - 1) / pageSize }

// change is a change of a key as it is stored.
type change struct {
	api.KeyEvent

	Stamp string `json:"stamp"`
}

const (
	changeTime  = 5 * time.Second
	changeTries = 20
)

func problem(code api.Code, format string, args ...any) *api.Problem {
	return present.Problemf(code, format, args...)
}

// unavailable returns the problem for an error of the store, by which nothing was changed.
func unavailable(err error) error {
	if errors.Is(err, errLost) {
		return &failed{problem(api.CodeStoreUnavailable, "%v", err), err}
	}
	return asProblem(err, "the store did not answer, or has what this version does not understand; nothing was changed, and the server's log says why")
}

// unknown returns the problem for a change whose outcome is not known.
func unknown(err error) error {
	if errors.Is(err, store.ErrNothingDone) {
		return unavailable(err)
	}
	return asProblem(err, "the store's answer is missing, so that it is not known whether the change was made: look at the key before you try again")
}

func asProblem(err error, text string) error {
	switch p := present.Problem(err); p.Code {
	case api.CodeClosing, api.CodeCancelled:
		return p
	}
	return &failed{problem(api.CodeStoreUnavailable, "%s", text), err}
}

// failed is a problem and its cause, for the log.
type failed struct {
	*api.Problem
	cause error
}

func (f *failed) Error() string { return f.Detail + ": " + f.cause.Error() }

func (f *failed) Unwrap() []error { return []error{f.Problem, f.cause} }

// Create makes a key, and returns it with its secret, which nobody can see again. by is who wants
// it.
func (b *Book) Create(ctx context.Context, by, name string, s api.KeySettings) (k *Key, secret string, err error) {
	if err := b.check(name, &s); err != nil {
		return nil, "", err
	}
	secret = b.newSecret()
	k, err = b.change(ctx, by, api.KeyCreated, name, func(st *state, now time.Time) (*Key, error) {
		if st.keys[name] != nil || st.bad[name] {
			return nil, problem(api.CodeKeyExists, "the store has a key %q already", name)
		}
		if len(st.keys)+len(st.bad) >= api.MaxKeys {
			return nil, problem(api.CodeInvalid, "the store has %d keys, which is the maximum: delete one first", api.MaxKeys)
		}
		return &Key{
			Name: name, KeySettings: s, Created: now,
			Secrets: []Secret{{Sum: sha256.Sum256([]byte(secret)), Made: now}},
		}, nil
	})
	if err != nil {
		return nil, "", err
	}
	return k, secret, nil
}

// Change replaces the settings of a key, if its version is still this one.
func (b *Book) Change(ctx context.Context, by, name string, version int64, s api.KeySettings) (*Key, error) {
	if err := b.check(name, &s); err != nil {
		return nil, err
	}
	return b.change(ctx, by, api.KeyChanged, name, func(st *state, _ time.Time) (*Key, error) {
		k, err := st.key(name)
		if err != nil {
			return nil, err
		}
		if k.Version != version {
			return nil, problem(api.CodeKeyConflict,
				"key %q has changed: its version is %d, not %d; look at it again", name, k.Version, version)
		}
		k = k.copied()
		k.KeySettings = s
		return k, nil
	})
}

// SetDisabled disables a key, or enables it, whatever its version is.
func (b *Book) SetDisabled(ctx context.Context, by, name string, disabled bool) (*Key, error) {
	op := api.KeyEnabled
	if disabled {
		op = api.KeyDisabled
	}
	return b.change(ctx, by, op, name, func(st *state, _ time.Time) (*Key, error) {
		k, err := st.key(name)
		if err == nil {
			k = k.copied()
			k.Disabled = disabled
		}
		return k, err
	})
}

// Rotate gives a key another secret, and returns it. Those so far are valid before until, or the
// end that they have, if that is earlier.
func (b *Book) Rotate(ctx context.Context, by, name string, until time.Time) (k *Key, secret string, err error) {
	until = until.UTC()
	if y := until.Year(); y < 2000 || y > 9999 {
		return nil, "", problem(api.CodeInvalid, "until is not an instant in the years 2000 to 9999")
	}
	secret = b.newSecret()
	k, err = b.change(ctx, by, api.KeyRotated, name, func(st *state, now time.Time) (*Key, error) {
		k, err := st.key(name)
		if err != nil {
			return nil, err
		}
		k = k.copied()
		for i := range k.Secrets {
			if old := &k.Secrets[i]; old.Until == nil || until.Before(*old.Until) {
				old.Until = &until
			}
		}
		// Of those that are over, the latest one is kept: whoever uses it learns why it is refused.
		over := func(s Secret) bool { return !now.Before(*s.Until) }
		for i := 0; i < len(k.Secrets)-1; {
			if over(k.Secrets[i]) {
				k.Secrets = slices.Delete(k.Secrets, i, i+1)
			} else {
				i++
			}
		}
		if len(k.Secrets) >= maxSecrets {
			return nil, problem(api.CodeInvalid, "key %q has %d secrets that are still valid, which is the maximum: give until an earlier instant",
				name, len(k.Secrets))
		}
		k.Secrets = append(k.Secrets, Secret{Sum: sha256.Sum256([]byte(secret)), Made: now})
		return k, nil
	})
	if err != nil {
		return nil, "", err
	}
	return k, secret, nil
}

// Delete removes a key, also one that is not understood, and returns it as far as it is known. Its
// history stays.
func (b *Book) Delete(ctx context.Context, by, name string) (gone *Key, err error) {
	_, err = b.change(ctx, by, api.KeyDeleted, name, func(st *state, _ time.Time) (*Key, error) {
		if st.bad[name] {
			gone = &Key{Name: name}
			return nil, nil //nolint:nilnil // there is no key then
		}
		var err error
		gone, err = st.key(name)
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	return gone, nil
}

// check returns what is wrong with a key that somebody wants.
func (b *Book) check(name string, s *api.KeySettings) error {
	_, err := check(name, s)
	if err == nil && b.opts.Check != nil {
		err = b.opts.Check(name, s)
	}
	if err == nil && s.Expires != nil {
		at := s.Expires.UTC()
		s.Expires = &at
	}
	if err != nil {
		return problem(api.CodeInvalid, "%v", err)
	}
	return nil
}

// change makes a change: edit returns the key as it is to be, by what is in force, or nil if it is
// to be gone.
func (b *Book) change(ctx context.Context, by, op, name string, edit func(*state, time.Time) (*Key, error)) (*Key,
	error,
) {
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	done, err := b.take(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	defer done()
	c := &change{Stamp: rand.Text(), KeyEvent: api.KeyEvent{Op: op, Key: name, By: shown(by)}}
	for range changeTries {
		k, made, err := b.tryChange(ctx, c, edit)
		if made || err != nil {
			if made {
				b.opts.Logger.Warn("a key in the store was changed", "key", name, "op", op, "by", by, "version", c.Version)
			}
			return k, err
		}
	}
	return nil, problem(api.CodeStoreUnavailable, "too many others change keys: nothing was changed; try again")
}

// tryChange is one attempt of a change. made is false without an error if somebody else was faster.
func (b *Book) tryChange(ctx context.Context, c *change, edit func(*state, time.Time) (*Key, error)) (k *Key, made bool,
	err error,
) {
	if err := b.look(ctx); err != nil {
		return nil, false, unavailable(err)
	}
	known := b.state.Load()
	now := time.Now().UTC().Truncate(time.Millisecond)
	if k, err = edit(known, now); err != nil {
		return nil, false, err
	}
	c.Version, c.At = known.next(), now
	before := &api.KeySettings{}
	if old := known.keys[c.Key]; old != nil {
		before = &old.KeySettings
	}
	if k != nil {
		k.Version, k.Changed, k.By = c.Version, now, c.By
		if k.networks, err = networksOf(k.Addresses); err != nil {
			return nil, false, problem(api.CodeInvalid, "%v", err)
		}
		c.Fields = differences(before, &k.KeySettings)
		if i := len(k.Secrets) - 2; c.Op == api.KeyRotated && i >= 0 { // the last one is new
			c.Fields = append(c.Fields, api.KeyField{Field: "until", After: k.Secrets[i].Until.Format(time.RFC3339)})
		}
	}
	h := head{c.Version, c.Stamp}
	docs, raw, err := b.documents(ctx, h, c, k)
	if err != nil {
		return nil, false, err
	}
	made, err = b.store.WriteDocuments(ctx, collection, store.Document{Name: headName, Value: known.raw}, docs)
	if err != nil && !errors.Is(err, store.ErrNothingDone) && b.wasMade(ctx, c) {
		made, err = true, nil
	}
	if err != nil {
		return nil, false, unknown(err)
	}
	if !made {
		return nil, false, nil
	}
	next := known.after(raw, h)
	delete(next.keys, c.Key)
	delete(next.bad, c.Key)
	if k != nil {
		next.keys[c.Key] = k
	}
	b.use(known, next, map[string]bool{c.Key: true})
	return k, true, nil
}

// next returns the number of the next change. A store that has lost its head still has keys with
// numbers.
func (s *state) next() int64 {
	n := s.head.N
	if s.raw == nil {
		for _, k := range s.keys {
			n = max(n, k.Version)
		}
	}
	return n + 1
}

// documents returns what a change writes, and the head of it.
func (b *Book) documents(ctx context.Context, h head, c *change, k *Key) (docs []store.Document, raw []byte,
	err error,
) {
	p := pageOf(h.N)
	page, err := b.readPages(ctx, p)
	if err != nil {
		return nil, nil, unavailable(err)
	}
	page = slices.DeleteFunc(page, func(old change) bool { return old.Version >= h.N }) // the store had lost its head
	text, err := encode(append(page, *c))
	if err != nil {
		return nil, nil, err
	}
	if raw, err = encode(h); err != nil {
		return nil, nil, err
	}
	docs = []store.Document{
		{Name: headName, Value: raw}, {Name: pageName(p), Value: text}, {Name: keyPrefix + c.Key},
	}
	if k != nil {
		if docs[2].Value, err = encode(k); err != nil {
			return nil, nil, err
		}
		if len(docs[2].Value) > maxKey {
			return nil, nil, problem(api.CodeInvalid, "the key has more than %d bytes", maxKey)
		}
	}
	if len(page) == 0 && p >= maxPages {
		docs = append(docs, store.Document{Name: pageName(p - maxPages)})
	}
	return docs, raw, nil
}

// wasMade reports whether a change was made whose answer was lost.
func (b *Book) wasMade(ctx context.Context, c *change) bool {
	changes, err := b.readPages(ctx, pageOf(c.Version))
	return err == nil && slices.ContainsFunc(changes, func(made change) bool { return made.Stamp == c.Stamp })
}

// readPages reads pages of the history. One that is not there has no changes.
func (b *Book) readPages(ctx context.Context, pages ...int64) (changes []change, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	var names []string
	for _, p := range pages {
		names = append(names, pageName(p))
	}
	docs, err := b.store.ReadDocuments(ctx, collection, names)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what failed
	}
	for i := range docs {
		var page []change
		if err := json.Unmarshal(docs[i].Value, &page); err != nil {
			return nil, fmt.Errorf("virtualkey: a part of the history is not understood: %w", err)
		}
		changes = append(changes, page...)
	}
	return changes, nil
}

// Events returns the latest changes, the newest first, of a key or, if the name is "", of all.
func (b *Book) Events(ctx context.Context, name string, most int) (list []api.KeyEvent, err error) {
	if err := b.Look(ctx); err != nil {
		return nil, unavailable(err)
	}
	n := b.state.Load().head.N
	if n == 0 {
		return nil, nil
	}
	for p, oldest := pageOf(n), max(0, pageOf(n)-maxPages+1); p >= oldest && len(list) < most; p-- {
		changes, err := b.readPages(ctx, p)
		if err != nil {
			return nil, unavailable(err)
		}
		for _, c := range slices.Backward(changes) {
			if (name == "" || c.Key == name) && len(list) < most {
				list = append(list, c.KeyEvent)
			}
		}
	}
	return list, nil
}
