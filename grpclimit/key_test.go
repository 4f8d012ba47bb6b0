package grpclimit_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/drawgate/drawgate/grpclimit"
)

// caller is who calls, and the metadata.
type caller struct {
	addr net.Addr
	md   []string
}

func (c caller) context(t *testing.T) context.Context {
	t.Helper()
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(c.md...))
	if c.addr == nil {
		return ctx
	}
	return peer.NewContext(ctx, &peer.Peer{Addr: c.addr})
}

type text string

func (a text) Network() string { return "test" }
func (a text) String() string  { return string(a) }

// req: PEERS 21.
func TestKeys(t *testing.T) {
	t.Parallel()
	four, six := &net.TCPAddr{IP: net.ParseIP("192.0.2.1")}, &net.TCPAddr{IP: net.ParseIP("2001:db8:1:2:3::4")}
	user := grpclimit.ByUser(func(context.Context) string { return "ann" })
	named := grpclimit.ByMetadata("X-Key")
	for name, c := range map[string]struct {
		key  grpclimit.Key
		from caller
		want string
		ok   bool
	}{
		"IPv4":            {grpclimit.ByPeer(nil), caller{addr: four}, "192.0.2.1", true},
		"IPv4 in IPv6":    {grpclimit.ByPeer(nil), caller{addr: text("[::ffff:192.0.2.1]:80")}, "192.0.2.1", true},
		"IPv6 by its /64": {grpclimit.ByPeer(nil), caller{addr: six}, "2001:db8:1:2::/64", true},
		"with a zone":     {grpclimit.ByPeer(nil), caller{addr: text("[fe80::1%eth0]:80")}, "fe80::/64", true},
		"a Unix socket": {
			grpclimit.ByPeer(nil),
			caller{addr: &net.UnixAddr{Name: "/run/s", Net: "unix"}},
			"",
			true,
		},
		"no peer": {grpclimit.ByPeer(nil), caller{}, "", true},
		"whatever it says": {
			grpclimit.ByPeer(nil),
			caller{four, []string{"x-forwarded-for", "198.51.100.1"}},
			"192.0.2.1", true,
		},
		"metadata":    {named, caller{four, []string{"x-key", "a", "x-key", "b"}}, "a", true},
		"no metadata": {named, caller{addr: four}, "", true},
		"given":       {grpclimit.Given(named), caller{addr: four}, "", false},
		"method":      {grpclimit.ByMethod(), caller{}, "/s/m", true},
		"joined": {
			grpclimit.Join(user, named),
			caller{four, []string{"x-key", "b|c%"}},
			"ann|b%7Cc%25",
			true,
		},
		"joined, left out": {grpclimit.Join(user, grpclimit.Given(named)), caller{addr: four}, "", false},
		"hashed": {
			grpclimit.Hashed(grpclimit.Fixed("abc")),
			caller{},
			"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", true,
		},
		"hashed, empty": {grpclimit.Hashed(named), caller{addr: four}, "", true},
		"when it is not": {
			grpclimit.When(func(_ context.Context, m string) bool { return m != "/s/m" }, user),
			caller{},
			"", false,
		},
		"when it is": {
			grpclimit.When(func(_ context.Context, m string) bool { return m == "/s/m" }, user),
			caller{},
			"ann", true,
		},
		"names know no case": {grpclimit.ByMetadata("x-KEY"), caller{four, []string{"X-key", "a"}}, "a", true},
	} {
		if got, ok := c.key(c.from.context(t), "/s/m"); got != c.want || ok != c.ok {
			t.Errorf("%s: %q, %v, want %q, %v", name, got, ok, c.want, c.ok)
		}
	}
	if a, _ := grpclimit.Join(grpclimit.Fixed("a|b"), grpclimit.Fixed("c"))(t.Context(), ""); !strings.HasPrefix(a,
		"a%7C") {
		t.Errorf("a|b and c are %q, as a and b|c are", a)
	}
}
