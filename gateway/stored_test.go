package gateway_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	wire "github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/gateway"
)

// Secrets of keys of the store.
const (
	ofCarol = "dg_carol-0123456789abcdef"
	ofDave  = "dg_dave-0123456789abcdef"
)

func storedKey(name, secret string, change ...func(*gateway.Key)) *gateway.Key {
	k := &gateway.Key{Name: name, Secrets: []gateway.KeySecret{{Sum: sha256.Sum256([]byte(secret))}}}
	for _, f := range change {
		f(k)
	}
	return k
}

// withStored gives a gateway keys of a store that answers as long as up is set.
func withStored(up *atomic.Bool, more func(*setup)) func(*setup) {
	up.Store(true)
	return func(s *setup) {
		s.options.Stored = up.Load
		if more != nil {
			more(s)
		}
	}
}

func (b *bench) useStored(gone []string, put ...*gateway.Key) {
	b.Helper()
	if err := b.h.UseStored(put, gone); err != nil {
		b.Error(err)
	}
}

// TestStoredKeys: keys of the store are put in force, changed and removed while the gateway runs,
// and a reload of the file leaves them in force.
func TestStoredKeys(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	inBubble(t, withStored(&up, nil), func(_ *testing.T, b *bench) {
		b.wantStatus("before it is there", http.StatusUnauthorized, ofCarol)
		b.useStored(nil, storedKey("carol", ofCarol), storedKey("dave", ofDave))
		b.wantStatus("a key of the store", http.StatusOK, ofCarol)
		b.wantStatus("another one", http.StatusOK, ofDave)
		b.wantStatus("a key of the file", http.StatusOK, alice)
		if err := b.h.Use(b.conf); err != nil {
			b.Fatal(err)
		}
		b.wantStatus("after a reload", http.StatusOK, ofCarol)
		b.useStored(nil, storedKey("carol", newSecret))
		b.wantStatus("the secret that it had", http.StatusUnauthorized, ofCarol)
		b.wantStatus("the secret that it has", http.StatusOK, newSecret)
		b.useStored(nil, storedKey("carol", newSecret, func(k *gateway.Key) { k.Disabled = true }))
		if got := b.call("openai", false, "Hello!", bearer(newSecret)); !strings.Contains(got.body, "disabled") {
			b.Errorf("disabled: %d %s", got.status, got.body)
		}
		b.useStored(nil, storedKey("carol", newSecret, func(k *gateway.Key) {
			k.Secrets[0].Until = time.Now().Add(time.Minute)
			k.Secrets = append(k.Secrets, gateway.KeySecret{Sum: sha256.Sum256([]byte(lastSecret))})
			k.Expires = time.Now().Add(2 * time.Minute)
		}))
		b.wantStatus("the old secret, before its end", http.StatusOK, newSecret)
		b.wantStatus("the new secret", http.StatusOK, lastSecret)
		time.Sleep(time.Minute)
		b.wantStatus("the old secret, at its end", http.StatusUnauthorized, newSecret)
		b.wantStatus("the new secret", http.StatusOK, lastSecret)
		time.Sleep(time.Minute)
		b.wantStatus("the key, at its end", http.StatusUnauthorized, lastSecret)
		b.useStored([]string{"dave", "nobody"})
		b.wantStatus("a key that is gone", http.StatusUnauthorized, ofDave)
		b.useStored(nil, storedKey("dave", ofCarol, func(k *gateway.Key) {
			k.Models = []string{"openai/gpt-9"}
			k.Addresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}
		}))
		b.wantStatus("a model that it may not use", http.StatusNotFound, ofCarol)
		b.useStored(nil, storedKey("dave", ofCarol, func(k *gateway.Key) {
			k.Addresses = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		}))
		b.wantStatus("another address", http.StatusForbidden, ofCarol)
	})
}

// TestUnknownKeysWhileTheStoreIsAway: a key that is not known may be one of the store. It is told
// to try again, and nobody is told that the key is wrong. Keys that are known go on.
func TestUnknownKeysWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	var wrong atomic.Int64
	inBubble(t, withStored(&up, func(s *setup) { s.options.WrongKey = func(string) { wrong.Add(1) } }),
		func(t *testing.T, b *bench) {
			b.useStored(nil, storedKey("carol", ofCarol),
				storedKey("off", lastSecret, func(k *gateway.Key) { k.Disabled = true }))
			up.Store(false)
			b.wantStatus("a key of the store", http.StatusOK, ofCarol)
			b.wantStatus("a key of the file", http.StatusOK, alice)
			b.wantStatus("a disabled key", http.StatusUnauthorized, lastSecret)
			before := wrong.Load()
			for name, a := range apis {
				got := b.call(name, false, "Hello!", a.key+ofDave)
				if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" {
					t.Errorf("%s: an unknown key got %d %v %s", name, got.status, got.header, got.body)
				}
			}
			me := b.do(b.raw(b.Context(), http.MethodGet, wire.PathMe, "", "Authorization: Bearer "+ofDave))
			if me.status != http.StatusServiceUnavailable || me.header.Get("Retry-After") != "1" {
				t.Errorf("about itself: %d %v %s", me.status, me.header, me.body)
			}
			if wrong.Load() != before {
				t.Error("a key that may be right was counted as a wrong one")
			}
			b.wantStatus("no key", http.StatusUnauthorized, "")
			up.Store(true)
			b.wantStatus("an unknown key when the store is back", http.StatusUnauthorized, ofDave)
		})
}

// TestTheFileWins: where file and store have a key of the same name, or the same secret, that of
// the file is in force; if either one is disabled or has expired, neither is.
func TestTheFileWins(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		file    func(*gateway.Key)
		stored  func() *gateway.Key
		alice   int // with the file's secret
		ofCarol int // with the store's
	}{
		"same name":          {nil, func() *gateway.Key { return storedKey("alice", ofCarol) }, 200, 401},
		"same name, same":    {nil, func() *gateway.Key { return storedKey("alice", alice) }, 200, 401},
		"disabled in store":  {nil, func() *gateway.Key { return storedKey("alice", ofCarol, disabled) }, 401, 401},
		"disabled in file":   {disabled, func() *gateway.Key { return storedKey("alice", ofCarol) }, 401, 401},
		"secret of another":  {nil, func() *gateway.Key { return storedKey("eve", alice) }, 200, 401},
		"secret is disabled": {nil, func() *gateway.Key { return storedKey("eve", alice, disabled) }, 401, 401},
		"expired in store": {nil, func() *gateway.Key {
			return storedKey("alice", ofCarol, func(k *gateway.Key) { k.Expires = time.Now() })
		}, 401, 401},
		"not yet": {nil, func() *gateway.Key {
			return storedKey("alice", ofCarol, func(k *gateway.Key) { k.Expires = time.Now().Add(time.Second) })
		}, 200, 401},
		"others": {nil, func() *gateway.Key { return storedKey("carol", ofCarol) }, 200, 200},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var up atomic.Bool
			inBubble(t, withStored(&up, func(s *setup) {
				if c.file != nil {
					c.file(&s.config.Keys[0])
				}
			}), func(_ *testing.T, b *bench) {
				b.useStored(nil, c.stored())
				b.wantStatus("the file's secret", c.alice, alice)
				b.wantStatus("the store's secret", c.ofCarol, ofCarol)
			})
		})
	}
}

// TestStoredKeysThatAreNotValid give nobody access, and the others are in force all the same.
func TestStoredKeysThatAreNotValid(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	inBubble(t, withStored(&up, nil), func(t *testing.T, b *bench) {
		b.useStored(nil, storedKey("carol", ofCarol))
		for what, k := range map[string]*gateway.Key{
			"a token's name":   storedKey("corp#alice", ofDave),
			"no name":          storedKey("", ofDave),
			"another's secret": storedKey("dave", ofCarol),
			"no secret":        {Name: "dave"},
			"a priority of 10": storedKey("dave", ofDave, func(k *gateway.Key) { k.Priority = 10 }),
			"a network of zeros": storedKey("dave", ofDave,
				func(k *gateway.Key) { k.Addresses = make([]netip.Prefix, 1) }),
		} {
			if err := b.h.UseStored([]*gateway.Key{k, storedKey("last", lastSecret)}, nil); err == nil {
				t.Errorf("%s: no error", what)
			} else if strings.Contains(err.Error(), "dg_") {
				t.Errorf("%s: the error has a secret: %v", what, err)
			}
			b.wantStatus(what, http.StatusUnauthorized, ofDave)
			b.wantStatus("the one before", http.StatusOK, ofCarol)
			b.wantStatus("the one after", http.StatusOK, lastSecret)
			b.useStored([]string{"last"})
		}
	})
	b := newBench(t, nil)
	if err := b.h.UseStored([]*gateway.Key{storedKey("carol", ofCarol)}, nil); err == nil {
		t.Error("a gateway without Options.Stored takes keys of a store")
	}
	b.wantStatus("its key", http.StatusUnauthorized, ofCarol)
}

// TestStoredKeysLearnOfThemselves: a key of the store learns of its own limits, and another team
// of the store is a stranger.
func TestStoredKeysLearnOfThemselves(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	inBubble(t, withStored(&up, budgets), func(t *testing.T, b *bench) {
		team := func(name string) func(*gateway.Key) { return func(k *gateway.Key) { k.Team = name } }
		b.useStored(nil, storedKey("carol", ofCarol, team("green")), storedKey("dave", ofDave, team("yellow")))
		b.wantStatus("a call", http.StatusOK, ofCarol)
		me := b.aboutKey(ofCarol)
		names := ""
		for _, l := range me.Limits {
			names += fmt.Sprint(" ", l.Policy, ".", l.Name)
		}
		if me.Key != "carol" || me.Team != "green" || !strings.Contains(names, "caller") ||
			strings.Contains(names, "everybody") {
			t.Errorf("%+v:%s", me, names)
		}
	})
}

// TestStoredKeysChangeUnderLoad: while other keys come and go, and the file is read again, every
// call with a key that stays passes, and none with one that was never there.
func TestStoredKeysChangeUnderLoad(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	b := newBench(t, withStored(&up, nil))
	b.useStored(nil, storedKey("carol", ofCarol))
	var group sync.WaitGroup
	stop := make(chan struct{})
	group.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := fmt.Sprint("key ", i%50)
			if err := b.h.UseStored([]*gateway.Key{storedKey(name, "dg_"+name)},
				[]string{fmt.Sprint("key ", (i+25)%50)}); err != nil {
				t.Error(err)
			}
			if i%10 == 0 {
				if err := b.h.Use(b.conf); err != nil {
					t.Error(err)
				}
			}
		}
	})
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for range 25 {
				b.wantStatus("a key that stays", http.StatusOK, ofCarol)
				b.wantStatus("no key", http.StatusUnauthorized, ofDave)
			}
		})
	}
	calls.Wait()
	close(stop)
	group.Wait()
}
