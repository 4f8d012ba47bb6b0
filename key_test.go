package drawgate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestBoundedKey: what a key is cut to is short, valid where the key is, nobody else's, and stays
// as it is.
func TestBoundedKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SampledFrom([]string{"a", "b", "\x00", "\xa9", "é", "sha256:"})
		draw := func(name string) string {
			return strings.Repeat(part.Draw(t, name), rapid.IntRange(0, 300).Draw(t, name)) +
				strings.Join(rapid.SliceOfN(part, 0, 3).Draw(t, name), "")
		}
		a, b := draw("a"), draw("b")
		x, y := drawgate.BoundedKey(a), drawgate.BoundedKey(b)
		if (a == b) != (x == y) {
			t.Fatalf("%q and %q become %q and %q", a, b, x, y)
		}
		if len(x) > 256 || len(a) <= 256 && x != a || drawgate.BoundedKey(x) != x ||
			utf8.ValidString(a) && !utf8.ValidString(x) {
			t.Fatalf("%q of %d bytes becomes %q", a, len(a), x)
		}
	})
}

// TestLongKeys: every method of a limiter counts a long key in one bucket, whose name is short in
// the store, and which is nobody else's.
func TestLongKeys(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	l := over(t, store, policy(rolling(10, time.Hour)))
	long := strings.Repeat("k", drawgate.MaxKey)
	for i, take := range []func() error{
		func() error { _, err := l.Allow(t.Context(), long); return err },
		func() error { _, err := l.Wait(t.Context(), long); return err },
		func() error {
			_, _, err := l.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{l.Ask(long)}})
			return err
		},
		func() error { _, err := l.Reserve(t.Context(), long, time.Hour); return err },
		func() error { return l.Key(long).Wait(t.Context()) },
		func() error { _, err := l.Allow(t.Context(), drawgate.BoundedKey(long)); return err },
	} {
		if err := take(); err != nil {
			t.Fatal(err)
		}
		wantUsed(t, l, long, int64(i+1))
	}
	if err := l.Ask(long).Refund(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantUsed(t, l, long, 5)
	wantUsed(t, l, long[1:], 0)
	wantUsed(t, l, long[:256], 0)
	if err := store.List(t.Context(), "", l.Plan().Name(), func(k drawgate.Key) bool {
		if k.Name != drawgate.BoundedKey(long) {
			t.Errorf("the store has a key of %d bytes", len(k.Name))
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if err := l.Reset(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	wantUsed(t, l, long, 0)
}

// TestLongTenants are refused: they are a part of every key.
func TestLongTenants(t *testing.T) {
	t.Parallel()
	l := over(t, memory(t), policy(rolling(10, time.Hour)))
	for n, ok := range map[int]bool{256: true, 257: false} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			ask := drawgate.Ask{Limiter: l, Tenant: strings.Repeat("t", n), Key: "k"}
			_, _, taken := l.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{ask}})
			_, looked := ask.Status(t.Context(), 0)
			_, made := drawgate.New(memory(t), policy(rolling(10, time.Hour)), &drawgate.Options{Tenant: ask.Tenant})
			for what, err := range map[string]error{
				"take": taken, "status": looked, "refund": ask.Refund(t.Context()),
				"New": made,
			} {
				if ok != (err == nil) || !ok && !errors.Is(err, drawgate.ErrInvalid) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}
