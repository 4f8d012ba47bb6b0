package gateway_test

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/gateway"
)

// TestKeysThatEndInTheQueue: a call that waits is refused, when its turn comes, as a new one would
// be if its key, its secret or its token is not valid any more. It is not sent, and gives back what
// it was granted; those behind it lose nothing.
//
// req: C12
func TestKeysThatEndInTheQueue(t *testing.T) {
	t.Parallel()
	p, conf := corp(corpURL)
	// change gives the bench another configuration.
	change := func(f func(*gateway.Config)) func(*bench) {
		return func(b *bench) {
			conf := b.conf
			conf.Keys, conf.Tokens = slices.Clone(conf.Keys), slices.Clone(conf.Tokens)
			f(&conf)
			if err := b.h.Use(conf); err != nil {
				b.Error(err)
			}
		}
	}
	keyOf := func(f func(*gateway.Key)) func(*bench) {
		return change(func(c *gateway.Config) { f(&c.Keys[0]) })
	}
	var up atomic.Bool
	for name, c := range map[string]struct {
		secret string // alice's, if it is ""
		change func(b *bench)
		want   string // "" if the call passes
	}{
		"nothing":                 {"", func(*bench) {}, ""},
		"another key is disabled": {"", change(func(c *gateway.Config) { c.Keys[1].Disabled = true }), ""},
		"disabled":                {"", keyOf(func(k *gateway.Key) { k.Disabled = true }), "key_disabled"},
		"expired": {
			"", keyOf(func(k *gateway.Key) { k.Expires = time.Now().Add(time.Second) }),
			"key_expired",
		},
		"its secret": {"", keyOf(func(k *gateway.Key) {
			k.Secrets, k.Sum = []gateway.KeySecret{{Sum: k.Sum, Until: time.Now().Add(time.Second)}}, [32]byte{}
		}), "key_expired"},
		"deleted":                 {"", change(func(c *gateway.Config) { c.Keys = c.Keys[1:] }), "invalid_api_key"},
		"its secret is another's": {"", keyOf(func(k *gateway.Key) { k.Name = "carol" }), "invalid_api_key"},
		"its namesake of the store": {
			"", func(b *bench) { b.useStored(nil, storedKey("alice", ofDave, disabled)) },
			"key_disabled",
		},
		"disabled in the store": {ofCarol, func(b *bench) {
			b.useStored(nil,
				storedKey("carol", ofCarol, disabled))
		}, "key_disabled"},
		"deleted in the store": {ofCarol, func(b *bench) { b.useStored([]string{"carol"}) }, "invalid_api_key"},
		"a token":              {"token", func(*bench) {}, ""},
		"a token that ends":    {"short", func(*bench) {}, "key_expired"},
		"its issuer is disabled": {
			"token", change(func(c *gateway.Config) { c.Tokens[0].Key.Disabled = true }),
			"key_disabled",
		},
		"its issuer is gone": {"token", change(func(c *gateway.Config) { c.Tokens = nil }), "invalid_api_key"},
	} {
		inBubble(t, withStored(&up, withTokens(p, conf, onePerMinute)), func(t *testing.T, b *bench) {
			b.useStored(nil, storedKey("carol", ofCarol))
			secret := cmp.Or(c.secret, alice)
			switch secret {
			case "token":
				secret = valid()
			case "short":
				secret = valid("exp", time.Now().Unix()+10) // and 30 s more
			}
			b.wantStatus(name+": the first call", http.StatusOK, bob)
			done := make(chan reply)
			go func() { done <- b.call("openai", false, "x", bearer(secret)) }()
			synctest.Wait() // it waits in the queue
			c.change(b)
			got, calls := <-done, len(b.sim.Calls())
			if c.want == "" {
				if got.status != http.StatusOK {
					t.Errorf("%s: got %d %s", name, got.status, got.body)
				}
				return
			}
			if got.status != http.StatusUnauthorized || !strings.Contains(got.body, c.want) {
				t.Errorf("%s: got %d %s, want %s", name, got.status, got.body, c.want)
			}
			if used := b.used("upstream", "account")["rpm"]; calls != 1 || used > 1 {
				t.Errorf("%s: %d calls were sent, and %d are counted", name, calls, used)
			}
			began := time.Now()
			if b.wantStatus(name+": the next call", http.StatusOK, bob); time.Since(began) > time.Second {
				t.Errorf("%s: the next call waited %v", name, time.Since(began))
			}
		})
	}
}

func disabled(k *gateway.Key) { k.Disabled = true }

// TestKeysThatEndInTheQueuesOfAGroup: a call that waits at several accounts is refused as soon as
// one of them would grant it.
//
// req: C12
func TestKeysThatEndInTheQueuesOfAGroup(t *testing.T) {
	t.Parallel()
	inGroup(t, group(1, 1, 1), func(t *testing.T, b *bench, _ *faulty) {
		b.toGroup(t.Context(), alice, "")
		time.Sleep(30 * time.Second)
		b.toGroup(t.Context(), alice, "")
		start, done := time.Now(), make(chan reply)
		go func() { done <- b.toGroup(t.Context(), alice, "") }()
		synctest.Wait() // it waits in both queues
		conf := b.conf
		conf.Keys = slices.Clone(conf.Keys)
		conf.Keys[0].Disabled = true
		if err := b.h.Use(conf); err != nil {
			t.Fatal(err)
		}
		got := <-done
		if waited := time.Since(start); got.status != http.StatusUnauthorized ||
			!strings.Contains(got.body, "key_disabled") ||
			waited > 40*time.Second {
			t.Errorf("got %d %s after %v", got.status, got.body, waited)
		}
		for _, m := range members[:2] {
			if used := b.used(m, m)["rpm"]; used > 1 {
				t.Errorf("%s counts %d calls", m, used)
			}
		}
	})
}
