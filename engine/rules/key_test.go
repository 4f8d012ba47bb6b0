package rules

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPeers21JoinedPartsNeverCollide: two different clients never share a counter because of what
// they are called.
func TestPeers21JoinedPartsNeverCollide(t *testing.T) {
	t.Parallel()
	s := compile(t, Rule{Apply: apply("p", "join(user, path)")})
	seen := map[string]string{}
	for _, user := range []string{"a", "a|", "a|/b", "a%7C", "a%", "", "|", "%25", "a_b", "a:b"} {
		for _, path := range []string{"/b", "/b|/b", "|/b", "", "/%7C", "7C"} {
			got := counted(t, s, &Attributes{User: user, Path: path})
			if before, ok := seen[got]; ok {
				t.Errorf("(%q, %q) and %s share the key %q", user, path, before, got)
			}
			seen[got] = user + " and " + path
		}
	}
	part := rapid.StringOfN(rapid.SampledFrom([]rune("a|%2567C")), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SliceOfN(part, 1, 4).Draw(t, "a"), rapid.SliceOfN(part, 1, 4).Draw(t, "b")
		if (Join(a...) == Join(b...)) != slices.Equal(a, b) {
			t.Fatalf("%q and %q: %q, %q", a, b, Join(a...), Join(b...))
		}
	})
}

// TestHashedKeysHideSecrets, and stay the same for good: buckets are found by them, and
// administrators make them with sha256sum.
func TestHashedKeysHideSecrets(t *testing.T) {
	t.Parallel()
	const foo = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
	s := compile(t, Rule{
		When: `hash(header("X-Api-Key")) != "` + strings.Repeat("0", 64) + `"`, Tenant: `hash(attr("team"))`,
		Apply: apply("p", `hash(header("X-Api-Key"))`, "q", `join(user, hash(header("X-Api-Key")))`, "r",
			`hash(lower(header("X-Api-Key")))`),
	})
	a := &Attributes{User: "u", Headers: http.Header{"X-Api-Key": {"foo"}}}
	if got, want := counted(t, s, a), "p="+foo+" q=u|"+foo+" r="+foo; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	a.Headers, a.Extra = nil, map[string]string{"team": "foo"}
	if got, want := counted(t, s, a), foo+"/p= "+foo+"/q=u| "+foo+"/r="; got != want {
		t.Errorf("what is missing stays empty: got %q, want %q", got, want)
	}
	for _, key := range []string{
		`hash()`, `hash(user, path)`, `hash(hour)`, `hash(nothing)`,
		`hash(user) + hash(path)`,
	} {
		if _, err := Compile([]Rule{{Apply: apply("p", key)}}, nil); err == nil {
			t.Errorf("%s is no key", key)
		}
	}
}

// TestPeers21ConcatenatedKeysAreRefused: who puts a key together with + is told what to use.
func TestPeers21ConcatenatedKeysAreRefused(t *testing.T) {
	t.Parallel()
	for _, key := range []string{`user + path`, `user + "_" + path`, `"x" + (user + ":" + header("X-A"))`} {
		_, err := Compile([]Rule{{Apply: apply("p", key)}}, nil)
		if err == nil || !strings.Contains(err.Error(), "join") {
			t.Errorf("%s: error %v", key, err)
		}
	}
	if got, want := counted(t, compile(t, Rule{Apply: apply("p", `"user:" + user`)}), &Attributes{User: "u"}),
		"p=user:u"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestPeers21NetworksOfIPv6AreOneClient: who has a /64 cannot have as many buckets as addresses.
func TestPeers21NetworksOfIPv6AreOneClient(t *testing.T) {
	t.Parallel()
	s := compile(t, Rule{Apply: apply("p", "ip", "q", "address")})
	for ip, want := range map[string]string{
		"2001:db8:1:2::1":         "p=2001:db8:1:2::/64 q=2001:db8:1:2::1",
		"2001:db8:1:2:ffff::9":    "p=2001:db8:1:2::/64 q=2001:db8:1:2:ffff::9",
		"2001:db8:1:3::1":         "p=2001:db8:1:3::/64 q=2001:db8:1:3::1",
		"fe80::1%eth0":            "p=fe80::/64 q=fe80::1",
		"192.0.2.9":               "p=192.0.2.9 q=192.0.2.9",
		"::ffff:192.0.2.9":        "p=192.0.2.9 q=192.0.2.9",
		"::ffff:192.0.2.9%zone":   "p=192.0.2.9 q=192.0.2.9",
		"64:ff9b::c000:209":       "p=64:ff9b::/64 q=64:ff9b::c000:209",
		"2001:db8:1:2:3:4:5:6%en": "p=2001:db8:1:2::/64 q=2001:db8:1:2:3:4:5:6",
	} {
		for range 2 { // the second time from memory
			if got := counted(t, s, &Attributes{IP: netip.MustParseAddr(ip)}); got != want {
				t.Errorf("%s: got %q, want %q", ip, got, want)
			}
		}
	}
}
