package gateway_test

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/syncbuffer"
)

// Secrets of keys that change, or end.
const (
	oldSecret  = "dg_old-0123456789abcdef"
	newSecret  = "dg_new-0123456789abcdef"
	lastSecret = "dg_last-0123456789abcdef"
)

func secretUntil(secret string, until time.Time) gateway.KeySecret {
	return gateway.KeySecret{Sum: sha256.Sum256([]byte(secret)), Until: until}
}

// TestSecretsChangeUnderLoad: while a key gets a new secret, and others end, 10,000 calls come
// within 5 microseconds around these instants, at them and a nanosecond before and after. None is
// refused that should pass, and none passes that should not.
//
// req: E3
func TestSecretsChangeUnderLoad(t *testing.T) {
	t.Parallel()
	const each, step = 500, 10 * time.Nanosecond
	callers := needs.Rounds(8, 20, 20)
	if needs.Race {
		callers = 4 // each of the times at which they call
	}
	var passed, refused atomic.Int64
	inBubble(t, func(s *setup) { s.config.Keys[0].Sum = sha256.Sum256([]byte(oldSecret)) },
		func(t *testing.T, b *bench) {
			conf := newSetup(nil).config
			conf.Upstreams = b.conf.Upstreams
			start := time.Now()
			at := func(steps int) time.Time { return start.Add(time.Duration(steps) * step) }
			// Reloads come between calls: those of the same instant may see them, or not.
			const half = step / 2
			added, removed := at(100).Add(half), at(400).Add(half)
			oldEnds, lastEnds, keyEnds := at(200), at(300), at(350)
			change := func(at time.Time, key gateway.Key) {
				time.Sleep(time.Until(at))
				next := conf
				next.Keys = []gateway.Key{
					key,
					{
						Name: "bob", Team: "blue", Expires: keyEnds,
						Secrets: []gateway.KeySecret{secretUntil(bob, time.Time{}), secretUntil(lastSecret, lastEnds)},
					},
				}
				if err := b.h.Use(next); err != nil {
					t.Error(err)
				}
			}
			valid := func(secret string, now time.Time) bool {
				switch secret {
				case oldSecret:
					return now.Before(oldEnds)
				case newSecret:
					return now.After(added)
				case lastSecret:
					return now.After(added) && now.Before(lastEnds)
				case bob:
					return now.Before(keyEnds)
				}
				return false
			}
			var group sync.WaitGroup
			group.Go(func() {
				change(added, gateway.Key{Name: "alice", Secrets: []gateway.KeySecret{
					secretUntil(oldSecret, oldEnds), secretUntil(newSecret, time.Time{}),
				}})
				change(removed, gateway.Key{Name: "alice", Sum: sha256.Sum256([]byte(newSecret))})
			})
			secrets := []string{oldSecret, newSecret, lastSecret, bob, "dg_guess-0123456789abcdef"}
			for c := range callers {
				off := []time.Duration{-1, 0, 0, 1}[c%4]
				group.Go(func() {
					for i := range each {
						time.Sleep(time.Until(at(i + 1).Add(off)))
						secret := secrets[(c+i)%len(secrets)]
						want, now := http.StatusUnauthorized, time.Now()
						if valid(secret, now) {
							want = http.StatusOK
						}
						got := b.call("openai", false, "Hello!", "Authorization: Bearer "+secret)
						if got.status != want || got.err != nil {
							t.Errorf("%s at %v: got %d %v %s, want %d", secret, now.Sub(start), got.status, got.err,
								got.body, want)
						}
						if got.status == http.StatusOK {
							passed.Add(1)
						} else {
							refused.Add(1)
						}
					}
				})
			}
			group.Wait()
			if n := len(b.sim.Calls()); int64(n) != passed.Load() {
				t.Errorf("%d calls reached the provider, and %d passed", n, passed.Load())
			}
		})
	t.Logf("%d calls passed, %d were refused", passed.Load(), refused.Load())
	all := int64(callers * each)
	if passed.Load()+refused.Load() != all || min(passed.Load(), refused.Load()) < all*3/10 {
		t.Errorf("want %d calls, and many of each kind", all)
	}
}

// TestRefusalsByKeys: whoever has the secret of a key learns why it is refused, in the provider's
// form and by a code. Nobody else learns anything: not whether there is such a key, and not whether
// it is disabled, has ended, or is for other addresses.
func TestRefusalsByKeys(t *testing.T) {
	t.Parallel()
	states := map[string]struct {
		change func(k *gateway.Key)
		status int
		code   string // "" passes
	}{
		"valid":    {func(*gateway.Key) {}, http.StatusOK, ""},
		"later":    {func(k *gateway.Key) { k.Expires = time.Now().Add(time.Hour) }, http.StatusOK, ""},
		"expired":  {func(k *gateway.Key) { k.Expires = time.Now() }, http.StatusUnauthorized, "key_expired"},
		"disabled": {func(k *gateway.Key) { k.Disabled = true }, http.StatusUnauthorized, "key_disabled"},
		"both": {func(k *gateway.Key) {
			k.Disabled, k.Expires = true, time.Now().Add(-time.Hour)
		}, http.StatusUnauthorized, "key_disabled"},
		"its secrets have ended": {func(k *gateway.Key) {
			k.Secrets = []gateway.KeySecret{secretUntil(oldSecret, time.Now()), {Sum: k.Sum, Until: time.Now()}}
			k.Sum = [sha256.Size]byte{}
		}, http.StatusUnauthorized, "key_expired"},
		"an old secret of a disabled key": {func(k *gateway.Key) {
			k.Secrets = []gateway.KeySecret{secretUntil(newSecret, time.Time{}), {Sum: k.Sum, Until: time.Now()}}
			k.Sum, k.Disabled = [sha256.Size]byte{}, true
		}, http.StatusUnauthorized, "key_expired"},
		"other addresses": {func(k *gateway.Key) {
			k.Addresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.2/31"), netip.MustParsePrefix("2001:db8::/32")}
		}, http.StatusForbidden, "192.0.2.1"},
		"its address": {func(k *gateway.Key) {
			k.Addresses = []netip.Prefix{netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("192.0.2.0/31")}
		}, http.StatusOK, ""},
	}
	guesses := []string{
		alice + "x", alice[:len(alice)-1], strings.ToUpper(alice), "vk-", "alice", "",
		fmt.Sprintf("%x", sha256.Sum256([]byte(alice))),
	}
	for state, c := range states {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(s *setup) { c.change(&s.config.Keys[0]) }, func(t *testing.T, b *bench) {
				for name, a := range apis {
					got := b.call(name, false, "Hello!")
					if got.status != c.status || !strings.Contains(strings.ToLower(got.body), c.code) {
						t.Errorf("%s: got %d %s, want %d with %q", name, got.status, got.body, c.status, c.code)
					}
					if c.status != http.StatusOK && got.header.Get("X-Should-Retry") != "false" {
						t.Errorf("%s: the SDK tries again", name)
					}
					if c.code == "key_expired" && strings.Contains(got.body, "disabled") {
						t.Errorf("%s: whoever has an old secret learns about the key: %s", name, got.body)
					}
					stranger := b.call(name, false, "Hello!", a.key+"dg_of-nobody-0123456789")
					for _, guess := range guesses {
						got := b.call(name, false, "Hello!", a.key+guess)
						diff := cmp.Diff([]any{stranger.status, stranger.body, stranger.header},
							[]any{got.status, got.body, got.header})
						if diff != "" || got.status != http.StatusUnauthorized {
							t.Errorf("%s: with %q it is not the answer to an unknown key:\n%s", name, guess, diff)
						}
					}
				}
				want := 0
				if c.status == http.StatusOK {
					want = len(apis)
				}
				if n := len(b.sim.Calls()); n != want {
					t.Errorf("%d calls reached the provider, want %d", n, want)
				}
				if used := b.used("upstream", "account"); used["rpm"] != int64(want) {
					t.Errorf("%v used, want %d calls", used, want)
				}
			})
		})
	}
}

// TestEndsOfKeysAreLogged: once, a week before, however often the configuration is read again; and
// each call that a key refuses, though not every time. No line has a secret.
func TestEndsOfKeysAreLogged(t *testing.T) {
	t.Parallel()
	const week = 7 * 24 * time.Hour
	var log syncbuffer.Buffer
	var counted atomic.Int64
	inBubble(t, func(s *setup) {
		now := time.Now()
		s.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s.options.WrongKey = func(string) { counted.Add(1) }
		key := func(name string, change func(k *gateway.Key)) {
			k := gateway.Key{Name: name, Sum: sha256.Sum256([]byte(name + "'s secret"))}
			change(&k)
			s.config.Keys = append(s.config.Keys, k)
		}
		s.config.Keys = nil
		key("expires", func(k *gateway.Key) { k.Expires = now.Add(week + time.Hour) })
		key("same", func(k *gateway.Key) { k.Expires = now.Add(week + time.Hour) })
		key("secrets", func(k *gateway.Key) {
			k.Secrets = []gateway.KeySecret{
				secretUntil(oldSecret, now.Add(week+time.Hour)), {Sum: k.Sum, Until: now.Add(week + 2*time.Hour)},
			}
			k.Sum = [sha256.Size]byte{}
		})
		key("both", func(k *gateway.Key) {
			k.Secrets = []gateway.KeySecret{{Sum: k.Sum, Until: now.Add(week + 2*time.Hour)}}
			k.Sum, k.Expires = [sha256.Size]byte{}, now.Add(week+time.Hour)
		})
		key("one stays", func(k *gateway.Key) {
			k.Secrets = []gateway.KeySecret{secretUntil(newSecret, now.Add(week+time.Hour)), {Sum: k.Sum}}
			k.Sum = [sha256.Size]byte{}
		})
		key("soon", func(k *gateway.Key) { k.Expires = now.Add(week - time.Hour) }) // the start said so
		key("disabled", func(k *gateway.Key) { k.Disabled, k.Expires = true, now.Add(week+time.Hour) })
		key("gone", func(k *gateway.Key) { k.Expires = now.Add(week + 3*time.Hour) })
	}, func(t *testing.T, b *bench) {
		for i := range 5 {
			time.Sleep(30*time.Minute + time.Duration(i)) // never at a notice
			conf := b.conf
			if i == 4 {
				conf.Keys = conf.Keys[:len(conf.Keys)-1]
			}
			if err := b.h.Use(conf); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * week)
		said := log.Take()
		if lines := strings.Count(said, "\n"); lines != 4 {
			t.Errorf("%d lines, want 4:\n%s", lines, said)
		}
		for _, key := range []string{"expires", "same", "secrets", "both"} {
			if n := strings.Count(said, `msg="`+endsSoon+`" key=`+key+" "); n != 1 {
				t.Errorf("key %s: %d lines, want 1:\n%s", key, n, said)
			}
		}
		if !strings.Contains(said, `key=secrets valid_until="2000-01-08 02:00:00Z"`) {
			t.Errorf("it does not say when a key ends:\n%s", said)
		}
		for range 50 {
			b.call("openai", false, "Hello!", "Authorization: Bearer expires's secret")
		}
	})
	said := log.String()
	if lines := strings.Count(said, "\n"); lines < 1 || lines > 5 || counted.Load() != 50 ||
		!strings.Contains(said, `msg="a call was refused: its key does not allow it" upstream=openai key=expires client=192.0.2.1`) {
		t.Errorf("%d calls counted, want 50, and the log says\n%s", counted.Load(), said)
	}
	if strings.Contains(said, "expires's") {
		t.Errorf("the log has a secret:\n%s", said)
	}
}

// endsSoon is what the log says of a key.
const endsSoon = "a key ends in a week: give it a new secret, or a later end"
