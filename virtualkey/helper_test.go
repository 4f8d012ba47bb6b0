package virtualkey_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/syncbuffer"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/virtualkey"
)

var errDown = errors.New("connection refused")

// shared is a store of several books that can be made to fail.
type shared struct {
	*memstore.Store
	down      atomic.Bool // nothing answers
	silent    atomic.Bool // calls answer only when their time is over
	lostReply atomic.Bool // what is written next is written, but its answer is lost
	reads     atomic.Int64
	others    atomic.Int64 // reads of more than the head
}

func newShared(t *testing.T) *shared {
	t.Helper()
	s := &shared{Store: memstore.New(nil)}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (s *shared) fault(ctx context.Context) error {
	if s.silent.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if s.down.Load() {
		return &store.Error{Store: "test", Op: "read", Err: errDown}
	}
	return nil
}

func (s *shared) ReadDocuments(ctx context.Context, collection string, names []string) ([]store.Document, error) {
	s.reads.Add(1)
	if !slices.Equal(names, []string{"head"}) {
		s.others.Add(1)
	}
	if err := s.fault(ctx); err != nil {
		return nil, err
	}
	return s.Store.ReadDocuments(ctx, collection, names)
}

func (s *shared) WriteDocuments(ctx context.Context, collection string, was store.Document, docs []store.Document,
) (bool, error) {
	if err := s.fault(ctx); err != nil {
		return false, err
	}
	done, err := s.Store.WriteDocuments(ctx, collection, was, docs)
	if done && s.lostReply.CompareAndSwap(true, false) {
		return false, &store.Error{Store: "test", Op: "write", Err: errDown}
	}
	return done, err
}

// all returns what is stored.
func (s *shared) all(t *testing.T) map[string][]byte {
	t.Helper()
	docs, err := s.Store.ReadDocuments(t.Context(), "keys", nil)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string][]byte{}
	for _, d := range docs {
		m[d.Name] = d.Value
	}
	return m
}

// set replaces everything that is stored.
func (s *shared) set(t *testing.T, all map[string][]byte) {
	t.Helper()
	now := s.all(t)
	names := maps.Clone(now)
	maps.Copy(names, all)
	for name := range names {
		done, err := s.Store.WriteDocuments(t.Context(), "keys", store.Document{Name: name, Value: now[name]},
			[]store.Document{{Name: name, Value: all[name]}})
		if err != nil || !done {
			t.Fatal(name, done, err)
		}
	}
}

// put replaces one document.
func (s *shared) put(t *testing.T, name, value string) {
	t.Helper()
	all := s.all(t)
	all[name] = []byte(value)
	s.set(t, all)
}

// process is a book, and what it has told of its keys.
type process struct {
	*virtualkey.Book
	log *syncbuffer.Buffer

	mu   sync.Mutex
	keys map[string]*virtualkey.Key
}

var made atomic.Int64

// secret makes a secret of a test.
func secret() string { return fmt.Sprintf("dg_secret_number_%d", made.Add(1)) }

func open(t *testing.T, s store.Store, check ...func(string, *api.KeySettings) error) *process {
	t.Helper()
	p := &process{keys: map[string]*virtualkey.Key{}, log: &syncbuffer.Buffer{}}
	o := &virtualkey.Options{Changed: p.changed, Logger: slog.New(slog.NewTextHandler(p.log, nil))}
	if len(check) > 0 {
		o.Check = check[0]
	}
	b, err := virtualkey.Open(t.Context(), s, secret, o)
	if err != nil {
		t.Fatal(err)
	}
	p.Book = b
	t.Cleanup(b.Close)
	return p
}

func (p *process) changed(put []*virtualkey.Key, gone []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range gone {
		delete(p.keys, name)
	}
	for _, k := range put {
		p.keys[k.Name] = k
	}
}

// has returns a key as the process was told of it; nil if it was not.
func (p *process) has(name string) *virtualkey.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys[name]
}

func (p *process) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.keys)
}

// valid reports whether a secret is one of alice's.
func (p *process) valid(secret string) bool {
	k := p.has("alice")
	return k != nil && slices.ContainsFunc(k.Secrets, func(s virtualkey.Secret) bool {
		return s.Sum == sha256.Sum256([]byte(secret)) && (s.Until == nil || time.Now().Before(*s.Until))
	})
}

func (p *process) create(t *testing.T, name string) (secret string) {
	t.Helper()
	_, secret, err := p.Create(t.Context(), "ops", name, api.KeySettings{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// wantCode checks that an error is a problem with a code.
func wantCode(t *testing.T, what string, err error, code api.Code) {
	t.Helper()
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != code {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(text))
}
