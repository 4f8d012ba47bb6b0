package virtualkey

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/sampler"
	"github.com/drawgate/drawgate/store"
)

// Names of what is stored.
const (
	collection = "keys"
	headName   = "head"
	keyPrefix  = "key:"
	pagePrefix = "page:"
)

const (
	lookEvery = 900 * time.Millisecond // so that a change is in force within a second
	lookTime  = time.Second            // for the head
	loadTime  = 10 * time.Second       // for the keys that have changed, which may be all
	freshFor  = 2 * time.Second        // after a look began, what is known is all there is
	logEvery  = time.Minute
)

// Options holds what a [Book] can do without. The zero value is ready to use.
type Options struct {
	// Changed is called with keys that are new or others now, and the names of those that are gone:
	// with all of them before [Open] returns, and then with each change, one after the other. nil:
	// nobody needs them.
	Changed func(put []*Key, gone []string)
	// Check returns what speaks against a key that an administrator wants, beyond what every key
	// must be, such as a name of the configuration file; nil: nothing.
	Check  func(name string, s *api.KeySettings) error
	Logger *slog.Logger // nil discards
}

// Book is the keys of the store, as one process knows them. It is safe for concurrent use. Close it
// before the store.
type Book struct {
	store     store.Documents
	newSecret func() string
	opts      Options
	turn      chan struct{} // held by whoever looks at the store or changes it
	failing   bool          // the log says that the keys cannot be read; of whoever has the turn
	state     atomic.Pointer[state]
	good      atomic.Int64 // when the latest look began that succeeded, in Unix ns; 0: none since one has failed
	logged    sampler.Sampler
	stop      context.CancelFunc
	ended     chan struct{}
}

// state is what is known. It is not changed.
type state struct {
	raw  []byte // the head as it is stored; nil: there is none
	head head
	keys map[string]*Key
	bad  map[string]bool // names of keys that are not understood: none of their calls pass
}

// head is the number of the latest change, and its stamp.
type head struct {
	N     int64  `json:"n"`
	Stamp string `json:"stamp"`
}

// errLost means that the store has no keys any more, but had.
var errLost = errors.New("virtualkey: the store has lost all keys: those that are known stay in force here; restore the store, or restart the gateways to begin without any")

// Open returns the keys of a store. newSecret makes a random secret. opts may be nil.
//
// A store that does not answer is no error: no key is known then until it does. A store that keeps
// no documents is one.
func Open(ctx context.Context, s store.Store, newSecret func() string, opts *Options) (*Book, error) {
	docs, ok := s.(store.Documents)
	if !ok || !docs.KeepsDocuments() {
		return nil, errors.New("virtualkey: this store keeps no keys: use SQLite, Redis, PostgreSQL or DynamoDB, or leave them in the file")
	}
	b := &Book{store: docs, newSecret: newSecret, turn: make(chan struct{}, 1), ended: make(chan struct{})}
	if opts != nil {
		b.opts = *opts
	}
	if b.opts.Logger == nil {
		b.opts.Logger = slog.New(slog.DiscardHandler)
	}
	if b.opts.Changed == nil {
		b.opts.Changed = func([]*Key, []string) {}
	}
	b.state.Store(&state{keys: map[string]*Key{}, bad: map[string]bool{}})
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	_ = b.Look(ctx) // it is logged
	go b.run(life)
	return b, nil
}

// Close ends the looks. Then nothing of the book uses the store any more, but for calls of its
// methods.
func (b *Book) Close() {
	b.stop()
	<-b.ended
}

// run looks again and again.
func (b *Book) run(ctx context.Context) {
	defer close(b.ended)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = b.Look(ctx) // it is logged
		}
	}
}

// Current reports whether the keys that are known are all that there are. Otherwise the store did
// not answer lately, or has something that is not understood.
func (b *Book) Current() bool {
	began := b.good.Load()
	return began != 0 && time.Now().UnixNano()-began < int64(freshFor) && len(b.state.Load().bad) == 0
}

// take waits for the turn.
func (b *Book) take(ctx context.Context) (done func(), err error) {
	select {
	case b.turn <- struct{}{}:
		return func() { <-b.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err() //nolint:wrapcheck // the caller has left
	}
}

// Look reads from the store what has changed.
func (b *Book) Look(ctx context.Context) error {
	done, err := b.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	return b.look(ctx)
}

// look is Look for who has the turn.
func (b *Book) look(ctx context.Context) error {
	began := time.Now()
	err := b.refresh(ctx)
	switch {
	case err == nil:
		b.good.Store(began.UnixNano())
		if b.failing {
			b.failing = false
			b.opts.Logger.Info("the keys in the store can be read again", "known", len(b.state.Load().keys))
		}
	case errors.Is(ctx.Err(), context.Canceled): // it says nothing about the store
	default:
		b.good.Store(0)
		if skipped, ok := b.logged.Pass(time.Now(), logEvery, 1); ok {
			b.failing = true
			b.opts.Logger.Warn("the keys in the store cannot be read: those that are known stay in force, and calls with others are answered with 503",
				"known", len(b.state.Load().keys), "error", err, "not_logged", skipped)
		}
	}
	return err
}

func (b *Book) refresh(ctx context.Context) error {
	known := b.state.Load()
	raw, err := b.readHead(ctx)
	switch {
	case err != nil:
		return err
	case bytes.Equal(raw, known.raw):
		if raw == nil && known.head.N == 0 && b.good.Load() == 0 {
			return b.load(ctx, known, nil, head{}) // perhaps the head alone is lost
		}
		return nil
	case raw == nil:
		return errLost
	}
	var h head
	if err := json.Unmarshal(raw, &h); err != nil || h.N <= 0 || h.Stamp == "" {
		return errors.New("virtualkey: what the store says of the latest change is not understood")
	}
	names, lost, err := b.changedSince(ctx, known.head, h)
	if err != nil {
		return err
	}
	if lost {
		b.opts.Logger.Error("the store has lost changes of keys: the keys are as it has them now; look whether one is valid that was disabled",
			"known_version", known.head.N, "version", h.N)
	}
	if names == nil {
		return b.load(ctx, known, raw, h)
	}
	return b.loadSome(ctx, known, raw, h, names)
}

// readHead reads the head as it is stored; nil: there is none.
func (b *Book) readHead(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	docs, err := b.store.ReadDocuments(ctx, collection, []string{headName})
	if err != nil || len(docs) == 0 {
		return nil, err //nolint:wrapcheck // it says what failed
	}
	return docs[0].Value, nil
}

// changedSince returns the names of the keys that changed between two heads; nil if that is not
// known. lost reports that the store does not have the older one any more.
func (b *Book) changedSince(ctx context.Context, from, to head) (names map[string]bool, lost bool, err error) {
	const mostPages = 3
	switch {
	case from.N == 0:
		return nil, false, nil
	case to.N <= from.N:
		return nil, true, nil
	case pageOf(to.N)-pageOf(from.N) >= mostPages:
		return nil, false, nil
	}
	var pages []int64
	for p := pageOf(from.N); p <= pageOf(to.N); p++ {
		pages = append(pages, p)
	}
	changes, err := b.readPages(ctx, pages...)
	if err != nil {
		return nil, false, err
	}
	stampOf := map[int64]string{}
	names = map[string]bool{}
	for i := range changes {
		c := &changes[i]
		stampOf[c.Version] = c.Stamp
		if c.Version > from.N {
			names[c.Key] = true
		}
	}
	if stampOf[from.N] != from.Stamp {
		return nil, true, nil
	}
	for n := from.N + 1; n <= to.N; n++ {
		if stampOf[n] == "" {
			return nil, false, nil
		}
	}
	if stampOf[to.N] != to.Stamp { // it has gone back since
		return nil, false, nil
	}
	return names, false, nil
}

// loadSome reads some keys again.
func (b *Book) loadSome(ctx context.Context, known *state, raw []byte, h head, names map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	var want []string
	for name := range names {
		want = append(want, keyPrefix+name)
	}
	docs, err := b.store.ReadDocuments(ctx, collection, want)
	if err != nil {
		return err //nolint:wrapcheck // it says what failed
	}
	next := known.after(raw, h)
	for name := range names {
		delete(next.keys, name)
		delete(next.bad, name)
	}
	b.read(next, docs)
	b.use(known, next, names)
	return nil
}

// load reads all keys.
func (b *Book) load(ctx context.Context, known *state, raw []byte, h head) error {
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	docs, err := b.store.ReadDocuments(ctx, collection, nil) // after the head: they are not older
	if err != nil {
		return err //nolint:wrapcheck // it says what failed
	}
	next := &state{raw: raw, head: h, keys: map[string]*Key{}, bad: map[string]bool{}}
	b.read(next, docs)
	names := map[string]bool{}
	for name := range known.keys {
		names[name] = true
	}
	for name := range next.keys {
		names[name] = true
	}
	b.use(known, next, names)
	return nil
}

// after returns a copy of a state, with another head.
func (s *state) after(raw []byte, h head) *state {
	return &state{raw: raw, head: h, keys: maps.Clone(s.keys), bad: maps.Clone(s.bad)}
}

// read adds keys, as they are stored, to a state.
func (b *Book) read(s *state, docs []store.Document) {
	for i := range docs {
		name, ok := strings.CutPrefix(docs[i].Name, keyPrefix)
		if !ok {
			continue
		}
		k, err := readKey(name, docs[i].Value)
		if err != nil {
			s.bad[name] = true
			b.opts.Logger.Error("a key in the store is not understood, perhaps because a newer version wrote it: none of its calls pass, and calls with unknown keys are answered with 503",
				"key", name, "error", err)
			continue
		}
		s.keys[name] = k
	}
}

// use puts a state in force, in which some keys may differ from the one before.
func (b *Book) use(known, next *state, names map[string]bool) {
	var put []*Key
	var gone []string
	for name := range names {
		was, is := known.keys[name], next.keys[name]
		switch {
		case is == nil && was != nil:
			gone = append(gone, name)
		case is != nil && is != was:
			put = append(put, is)
		}
	}
	b.state.Store(next)
	if len(put)+len(gone) > 0 {
		b.opts.Changed(put, gone)
	}
}

// Known returns a key as this process knows it; nil if it does not.
func (b *Book) Known(name string) *Key { return b.state.Load().keys[name] }

// List returns the keys of the store, by their names.
func (b *Book) List(ctx context.Context) ([]*Key, error) {
	if err := b.Look(ctx); err != nil {
		return nil, unavailable(err)
	}
	return slices.SortedFunc(maps.Values(b.state.Load().keys),
			func(x, y *Key) int { return cmp.Compare(x.Name, y.Name) }),
		nil
}

// Key returns a key of the store.
func (b *Book) Key(ctx context.Context, name string) (*Key, error) {
	if err := b.Look(ctx); err != nil {
		return nil, unavailable(err)
	}
	return b.state.Load().key(name)
}

// key returns a key, or why there is none.
func (s *state) key(name string) (*Key, error) {
	if s.bad[name] {
		return nil, problem(api.CodeStoreUnavailable, "this version does not understand what the store has of key %q: use a newer one, or delete the key", name)
	}
	if k := s.keys[name]; k != nil {
		return k, nil
	}
	return nil, problem(api.CodeUnknownKey, "the store has no key %.100q: those of the configuration file are changed there", name)
}

func pageName(p int64) string { return fmt.Sprintf("%s%d", pagePrefix, p) }
