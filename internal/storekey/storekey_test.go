package storekey

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/store"
)

// req: E4
func TestKeysAreReadable(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 101)
	for _, c := range []struct {
		key  store.Key
		want string
	}{
		{store.Key{Tenant: "acme", Policy: "per-ip", Name: "192.0.2.1"}, "rl:acme:per-ip:192.0.2.1"},
		{store.Key{Policy: "p", Name: "2001:db8::1"}, "rl::p:2001%3Adb8%3A%3A1"},
		{store.Key{Tenant: "a{b}", Policy: "50%", Name: "é \x00"}, "rl:a%7Bb%7D:50%25:%C3%A9%20%00"},
		{store.Key{Policy: "p", Name: "*?[]\\"}, "rl::p:%2A%3F%5B%5D%5C"},
		{store.Key{Policy: "p", Name: long}, "rl::p:%~PxUeQZ2NjabISX68mlz-5OAa_CnG2lI4iCfRpPLrYUM"},
	} {
		got, raw := Format("rl", c.key)
		if c.key.Name == long {
			if len(got) != len(c.want) || raw == "" {
				t.Errorf("a long name gives %q, stored %q", got, raw)
			}
		} else if got != c.want || raw != "" {
			t.Errorf("%+v gives %q, want %q", c.key, got, c.want)
		}
		if len(got) > 200 {
			t.Errorf("%q has %d bytes", got, len(got))
		}
		if back, err := Parse("rl", got, raw); err != nil || back != c.key {
			t.Errorf("%q is read as %+v, %v", got, back, err)
		}
	}
}

// TestKeysDoNotCollide tries what joins to the same text without escapes (a peer's failure: parts
// joined by "_" or ":").
//
// req: E4
func TestKeysDoNotCollide(t *testing.T) {
	t.Parallel()
	seen := map[string]store.Key{}
	parts := []string{
		"", "a", "b", "a:b", ":", "a:", ":a", "a%3Ab", "%", "%3A", "a_b", "%~", "%~PxUe",
		strings.Repeat("a", 41), strings.Repeat(":", 14), strings.Repeat("a", 101),
	}
	for _, tenant := range parts {
		for _, policy := range parts {
			for _, name := range parts {
				k := store.Key{Tenant: tenant, Policy: policy, Name: name}
				key, raw := Format("drawgate", k)
				if other, ok := seen[key]; ok {
					t.Fatalf("%+v and %+v are both %q", k, other, key)
				}
				seen[key] = k
				if back, err := Parse("drawgate", key, raw); err != nil || back != k {
					t.Fatalf("%q is read as %+v, %v; want %+v", key, back, err, k)
				}
			}
		}
	}
}

func FuzzKeys(f *testing.F) {
	f.Add("", "p", "n", "", "p", "n:")
	f.Add("a", "b:c", "d", "a:b", "c", "d")
	f.Add("%~x", strings.Repeat("%", 30), "\x00\xff", "{t}", "*", strings.Repeat("é", 60))
	f.Fuzz(func(t *testing.T, t1, p1, n1, t2, p2, n2 string) {
		a, b := store.Key{Tenant: t1, Policy: p1, Name: n1}, store.Key{Tenant: t2, Policy: p2, Name: n2}
		ka, ra := Format("x", a)
		kb, _ := Format("x", b)
		if (ka == kb) != (a == b) {
			t.Fatalf("%+v is %q, %+v is %q", a, ka, b, kb)
		}
		if back, err := Parse("x", ka, ra); err != nil || back != a {
			t.Fatalf("%q is read as %+v, %v; want %+v", ka, back, err, a)
		}
		if len(ka) > 200 || strings.ContainsAny(ka, "{}*?[]\\ \x00\n") {
			t.Fatalf("%q", ka)
		}
	})
}

// FuzzParse reads what other programs may have left behind.
func FuzzParse(f *testing.F) {
	f.Add("x:a:b:c", "")
	f.Add("x:%~a:b:%C3", "\x01a\x01b\x01c")
	f.Fuzz(func(t *testing.T, key, raw string) {
		if k, err := Parse("x", key, raw); err == nil {
			if again, _ := Format("x", k); raw != "" && again != key {
				t.Fatalf("%q with %q is %+v, which is %q", key, raw, k, again)
			}
		}
	})
}
