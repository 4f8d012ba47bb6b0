package virtualkey_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/sqlitestore"
	"github.com/drawgate/drawgate/virtualkey"
)

// TestChangesAreInForceWithinASecond: what one process changes is in force in another one within a
// second, and a process that sees no change reads one small document about once a second.
func TestChangesAreInForceWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShared(t)
		a, b := open(t, s), open(t, s)
		secret := a.create(t, "alice")
		if !a.valid(secret) {
			t.Error("the process that made a key does not have it")
		}
		within := func(what string, is func() bool) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if !is() {
				t.Errorf("%s is not in force in the other process after a second", what)
			}
		}
		within("a new key", func() bool { return b.valid(secret) })
		k, err := b.Change(t.Context(), "ops", "alice", b.has("alice").Version, api.KeySettings{Team: "blue"})
		if err != nil {
			t.Fatal(err)
		}
		within("a change", func() bool { return a.has("alice").Team == "blue" && a.has("alice").Version == k.Version })
		if _, err := a.SetDisabled(t.Context(), "ops", "alice", true); err != nil {
			t.Fatal(err)
		}
		within("that it is disabled", func() bool { return b.has("alice").Disabled && b.has("alice").Team == "blue" })
		if _, err := b.SetDisabled(t.Context(), "ops", "alice", false); err != nil {
			t.Fatal(err)
		}
		within("that it is enabled", func() bool { return !a.has("alice").Disabled })
		_, newer, err := a.Rotate(t.Context(), "ops", "alice", time.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		within("another secret", func() bool { return b.valid(newer) && b.valid(secret) })
		if _, err := a.Delete(t.Context(), "ops", "alice"); err != nil {
			t.Fatal(err)
		}
		within("that it is gone", func() bool { return b.has("alice") == nil })

		s.reads.Store(0)
		s.others.Store(0)
		time.Sleep(time.Minute)
		if n := s.reads.Load(); n > 2*70 || n < 2*60 || s.others.Load() > 0 {
			t.Errorf("two processes read %d times in a minute, %d times more than the head", n, s.others.Load())
		}
	})
}

// TestKeysSurviveARestart: keys, their versions and their history are in the store.
func TestKeysSurviveARestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	reopen := func() (*process, func()) {
		t.Helper()
		s, err := sqlitestore.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		p := open(t, s)
		return p, func() {
			p.Close()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	p, end := reopen()
	expires := time.Date(2030, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	want := api.KeySettings{
		Team: "blue", User: "u", Class: "c", Priority: 3, Models: []string{"openai/*"},
		Others: []string{"openai/v1/files"},
		Paths:  []string{"openai/v1/*"}, Addresses: []string{
			"10.0.0.0/8", "192.0.2.7",
			"2001:db8::/32",
		}, Expires: &expires,
	}
	k, secret, err := p.Create(t.Context(), "ops", "alice", want)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.SetDisabled(t.Context(), "night shift", "alice", true); err != nil {
		t.Fatal(err)
	}
	end()
	p, end = reopen()
	defer end()
	got, err := p.Key(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	want.Disabled = true
	if asJSON(t, got.KeySettings) != strings.Replace(asJSON(t, want), "2030-01-02T03:04:05+01:00",
		"2030-01-02T02:04:05Z", 1) {
		t.Errorf("after a restart: %s", asJSON(t, got.KeySettings))
	}
	if !p.valid(secret) || got.Version != k.Version+1 || got.By != "night shift" || len(got.Networks()) != 3 {
		t.Errorf("after a restart: %+v", got)
	}
	events, err := p.Events(t.Context(), "", 10)
	if err != nil || len(events) != 2 || events[0].Op != api.KeyDisabled || events[0].By != "night shift" ||
		events[1].Op != api.KeyCreated || events[1].By != "ops" || events[1].Key != "alice" || events[0].Version != 2 {
		t.Errorf("the history: %+v, %v", events, err)
	}
	if f := events[0].Fields; len(f) != 1 || f[0] != (api.KeyField{Field: "disabled", Before: "false", After: "true"}) {
		t.Errorf("what was changed: %+v", f)
	}
}

// TestAStoreThatIsAwayLeavesTheKeysInForce: what is known stays, and others may exist, until the
// store answers again; that is so whether it refuses or is silent.
func TestAStoreThatIsAwayLeavesTheKeysInForce(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(s *shared, on bool){
		"refuses": func(s *shared, on bool) { s.down.Store(on) },
		"silent":  func(s *shared, on bool) { s.silent.Store(on) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newShared(t)
				p := open(t, s)
				secret := p.create(t, "alice")
				if !p.Current() {
					t.Error("the store answers, and others may exist")
				}
				fault(s, true)
				time.Sleep(2 * time.Second)
				if p.Current() || !p.valid(secret) {
					t.Errorf("without the store: all known %v, alice %v", p.Current(), p.valid(secret))
				}
				_, _, err := p.Create(t.Context(), "ops", "bob", api.KeySettings{})
				wantCode(t, "create", err, api.CodeStoreUnavailable)
				_, err = p.List(t.Context())
				wantCode(t, "list", err, api.CodeStoreUnavailable)
				time.Sleep(time.Hour)
				if p.Current() || !p.valid(secret) || p.count() != 1 {
					t.Error("an hour without the store changed the keys")
				}
				if n := strings.Count(p.log.String(), "cannot be read"); n < 50 || n > 65 {
					t.Errorf("%d lines in the log of an hour", n)
				}
				fault(s, false)
				time.Sleep(3 * time.Second)
				if !p.Current() {
					t.Error("the store is back, and nobody has looked")
				}
				if n := strings.Count(p.log.String(), "can be read again"); n != 1 {
					t.Errorf("the log says %d times that the keys can be read again", n)
				}
			})
		})
	}
}

// TestAProcessStartsWithoutTheStore, and has the keys when it answers.
func TestAProcessStartsWithoutTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShared(t)
		secret := open(t, s).create(t, "alice")
		s.down.Store(true)
		p := open(t, s)
		if p.Current() || p.count() != 0 {
			t.Error("keys are known without a store")
		}
		s.down.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if !p.Current() || !p.valid(secret) {
			t.Error("the store is back, and the key is not known")
		}
	})
}

// TestAStoreThatLostItsKeys: those that are known stay in force, and nothing is changed, since a
// change would make the loss that of all processes.
func TestAStoreThatLostItsKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShared(t)
		p := open(t, s)
		secret := p.create(t, "alice")
		saved := s.all(t)
		s.set(t, nil)
		time.Sleep(time.Second)
		if p.Current() || !p.valid(secret) {
			t.Errorf("all known %v, alice %v", p.Current(), p.valid(secret))
		}
		_, _, err := p.Create(t.Context(), "ops", "bob", api.KeySettings{})
		wantCode(t, "create", err, api.CodeStoreUnavailable)
		if len(s.all(t)) > 0 {
			t.Error("something was written")
		}
		s.set(t, saved)
		time.Sleep(time.Second)
		if !p.Current() {
			t.Error("the keys are back, and nobody has looked")
		}
		p.create(t, "bob")
	})
}

// TestAStoreThatGoesBack: a fail-over may undo the last changes, and others get their numbers. All
// processes then have what the store has, and the log says so.
func TestAStoreThatGoesBack(t *testing.T) {
	t.Parallel()
	for later := range 4 { // how many changes there are after it
		t.Run(fmt.Sprint(later), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newShared(t)
				a, b := open(t, s), open(t, s)
				a.create(t, "alice")
				a.create(t, "bob")
				saved := s.all(t)
				time.Sleep(time.Second)
				if _, err := a.SetDisabled(t.Context(), "ops", "alice", true); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if !b.has("alice").Disabled {
					t.Fatal("it is not disabled")
				}
				s.set(t, saved)
				c := open(t, s)
				for i := range later {
					if _, err := c.SetDisabled(t.Context(), "ops", "bob", i%2 == 0); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Second)
				synctest.Wait()
				for _, p := range []*process{a, b} {
					if p.has("alice").Disabled || p.has("bob").Disabled != (later%2 == 1) ||
						p.has("bob").Version != c.has("bob").Version {
						t.Error("a process has other keys than the store")
					}
					if n := strings.Count(p.log.String(), "has lost changes of keys"); n != 1 {
						t.Errorf("the log says %d times that changes were lost", n)
					}
				}
				if strings.Contains(c.log.String(), "has lost changes of keys") {
					t.Error("the log of a process that knew nothing of them says that changes were lost")
				}
			})
		})
	}
}

// TestManyChangesAtOnce: a process that was away for long, or misses pages of the history, reads
// everything again.
func TestManyChangesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShared(t)
		a := open(t, s)
		a.create(t, "first")
		b := open(t, s)
		for round, n := range []int{1, 63, 70, 150, 400} {
			for i := range n {
				a.create(t, fmt.Sprint("key ", round, " ", i))
				if i%10 == 3 {
					if _, err := a.Delete(t.Context(), "ops", fmt.Sprint("key ", round, " ", i)); err != nil {
						t.Fatal(err)
					}
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if a.count() != b.count() {
				t.Errorf("%d changes: %d keys, but %d in the other process", n, a.count(), b.count())
			}
		}
		if n := a.count(); n != 1+684-(6+7+15+40) {
			t.Errorf("%d keys", n)
		}
	})
}

// TestWhatIsNotUnderstoodIsNotInForce: a key with a setting that this version does not know may
// forbid something, so that no call of it passes. Whoever has its secret is not told that there is
// no such key.
func TestWhatIsNotUnderstoodIsNotInForce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShared(t)
		p := open(t, s)
		p.create(t, "alice")
		p.create(t, "bob")
		good := string(s.all(t)["key:alice"])
		for what, text := range map[string]string{
			"a new setting":     strings.Replace(good, `{`, `{"budget":5,`, 1),
			"no JSON":           "{",
			"another's":         strings.Replace(good, `"alice"`, `"bob"`, 1),
			"no secret":         `{"name":"alice","version":1,"secrets":[],"created":"2026-01-01T00:00:00Z","changed":"2026-01-01T00:00:00Z"}`,
			"a priority of 10":  strings.Replace(good, `{`, `{"priority":10,`, 1),
			"half of a secret":  strings.Replace(good, `"sha256":"`, `"sha256":"ab`, 1),
			"text behind it":    good + "{}",
			"no network":        strings.Replace(good, `{`, `{"addresses":["nowhere"],`, 1),
			"a name of a token": strings.Replace(good, `"alice"`, `"corp#alice"`, 1),
		} {
			s.put(t, "key:alice", text)
			if _, err := p.SetDisabled(t.Context(), "ops", "bob", true); err != nil { // the log names bob alone
				t.Fatal(err)
			}
			c := open(t, s)
			if c.has("alice") != nil || c.Current() || c.has("bob") == nil {
				t.Errorf("%s: alice %v, all known %v", what, c.has("alice"), c.Current())
			}
			_, err := c.Key(t.Context(), "alice")
			wantCode(t, what, err, api.CodeStoreUnavailable)
			_, _, err = c.Create(t.Context(), "ops", "alice", api.KeySettings{})
			wantCode(t, what, err, api.CodeKeyExists)
			c.Close()
		}
		c := open(t, s)
		if _, err := c.Delete(t.Context(), "ops", "alice"); err != nil || !c.Current() {
			t.Errorf("it was not deleted: %v", err)
		}
		c.create(t, "alice")
		s.put(t, "head", `{"n":-1,"stamp":"x"}`)
		time.Sleep(time.Second)
		if c.Current() || c.has("alice") == nil {
			t.Error("a head that is not understood")
		}
	})
}

// TestAHeadThatIsLost: the keys are there all the same, and numbers go on.
func TestAHeadThatIsLost(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	p := open(t, s)
	p.create(t, "alice")
	p.create(t, "bob")
	p.Close()
	all := s.all(t)
	delete(all, "head")
	s.set(t, all)
	p = open(t, s)
	if p.count() != 2 || !p.Current() {
		t.Errorf("%d keys, all known %v", p.count(), p.Current())
	}
	k, _, err := p.Create(t.Context(), "ops", "carol", api.KeySettings{})
	if err != nil || k.Version != 3 {
		t.Errorf("%+v, %v", k, err)
	}
}

// TestASecretIsKeptNowhere: the store and the log have the SHA-256 at most.
func TestASecretIsKeptNowhere(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	p := open(t, s)
	first := p.create(t, "alice")
	_, second, err := p.Rotate(t.Context(), "ops", "alice", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	k, err := p.Key(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	events, err := p.Events(t.Context(), "alice", 10)
	if err != nil {
		t.Fatal(err)
	}
	shown := asJSON(t, k.Show()) + asJSON(t, events) + p.log.String()
	stored := fmt.Sprintf("%s", s.all(t))
	for _, secret := range []string{first, second} {
		if strings.Contains(shown+stored, secret) {
			t.Error("a secret is stored, shown or logged")
		}
		sum := sha256.Sum256([]byte(secret))
		digits := hex.EncodeToString(sum[:])
		if strings.Contains(shown, digits) || !strings.Contains(stored, digits) {
			t.Error("a hash is shown or logged, or not stored")
		}
	}
}

// TestAStoreWithoutDocuments has no keys.
func TestAStoreWithoutDocuments(t *testing.T) {
	t.Parallel()
	if _, err := virtualkey.Open(t.Context(), struct{ store.Store }{memstore.New(nil)}, secret, nil); err == nil {
		t.Error("a store that keeps no documents has keys")
	}
}

// TestTenThousandKeys are read at once, and no more are made.
func TestTenThousandKeys(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	at := time.Now().UTC()
	for i := range api.MaxKeys {
		name := fmt.Sprint("key ", i)
		text := fmt.Sprintf(`{"name":%q,"team":"t","models":["openai/gpt-4.1*"],"version":%d,"secrets":[{"sha256":"%x","made":%q}],"created":%[4]q,"changed":%[4]q}`,
			name, i+1, sha256.Sum256([]byte(name)), at.Format(time.RFC3339))
		if _, err := s.Store.WriteDocuments(t.Context(), "keys", store.Document{Name: "key:" + name},
			[]store.Document{{Name: "key:" + name, Value: []byte(text)}}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	p := open(t, s)
	t.Logf("%d keys were read in %v", p.count(), time.Since(began))
	if p.count() != api.MaxKeys {
		t.Fatalf("%d keys", p.count())
	}
	_, _, err := p.Create(t.Context(), "ops", "one more", api.KeySettings{})
	wantCode(t, "one more", err, api.CodeInvalid)
	if _, err := p.Delete(t.Context(), "ops", "key 7"); err != nil {
		t.Fatal(err)
	}
	p.create(t, "one more")
	if list, err := p.List(context.WithoutCancel(t.Context())); err != nil || len(list) != api.MaxKeys {
		t.Errorf("%d keys are listed, %v", len(list), err)
	}
}
