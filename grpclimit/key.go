package grpclimit

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/drawgate/drawgate/engine/rules"
)

// Key says under which key a bucket counts a call, by its context and its full method. ok is false
// for a call that the bucket does not count.
//
// It is called by many goroutines at once, for every call that is not exempt, and must be quick.
// Stores keep keys as they are: see [Hashed] for secrets.
type Key func(ctx context.Context, method string) (key string, ok bool)

// Proxies finds the address of a client behind trusted proxies, which send it in metadata of
// the name that Header returns ("" for none). An *httplimit.Proxies is one.
type Proxies interface {
	Client(peer netip.Addr, lines []string) netip.Addr
	Header() string
}

// ByPeer counts by the address of the client: IPv4 by address (192.0.2.1), IPv6 by network
// (2001:db8:1:2::/64). Without proxies, which may be nil, that is who opened the connection,
// whatever the metadata says. Clients without an IP address share a bucket.
func ByPeer(proxies Proxies) Key {
	return func(ctx context.Context, _ string) (string, bool) { return rules.Network(client(ctx, proxies)), true }
}

// client returns the address of the client; the zero Addr if it has none.
func client(ctx context.Context, proxies Proxies) netip.Addr {
	addr := peerAddr(ctx)
	if proxies == nil || proxies.Header() == "" {
		return addr
	}
	return proxies.Client(addr, metadata.ValueFromIncomingContext(ctx, proxies.Header()))
}

// peerAddr returns the address that opened the connection; the zero Addr if it has none.
func peerAddr(ctx context.Context) netip.Addr {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return netip.Addr{}
	}
	if tcp, ok := p.Addr.(*net.TCPAddr); ok {
		addr, _ := netip.AddrFromSlice(tcp.IP)
		return addr.Unmap()
	}
	ap, err := netip.ParseAddrPort(p.Addr.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// ByMetadata counts by the value of a metadata key; of several the first one counts. Calls without
// it share a bucket, so that nobody escapes the limit by leaving it out: see [Given]. A client that
// can choose the value freely can also choose a fresh bucket, so it should be a key that is checked
// behind the limit, or in front of it.
func ByMetadata(name string) Key {
	name = strings.ToLower(name)
	return func(ctx context.Context, _ string) (string, bool) {
		if v := metadata.ValueFromIncomingContext(ctx, name); len(v) > 0 {
			return v[0], true
		}
		return "", true
	}
}

// ByMethod counts by the full method.
func ByMethod() Key {
	return func(_ context.Context, method string) (string, bool) { return method, true }
}

// ByUser counts by the result of user: typically what an authentication interceptor before this one
// has put into its context. Calls for which it is "" share a bucket: see [Given].
func ByUser(user func(ctx context.Context) string) Key {
	return func(ctx context.Context, _ string) (string, bool) { return user(ctx), true }
}

// Fixed counts all calls under one key.
func Fixed(key string) Key {
	return func(context.Context, string) (string, bool) { return key, true }
}

// When leaves out the calls for which cond is false.
func When(cond func(ctx context.Context, method string) bool, key Key) Key {
	return func(ctx context.Context, method string) (string, bool) {
		if !cond(ctx, method) {
			return "", false
		}
		return key(ctx, method)
	}
}

// Given leaves out calls whose key is empty: those without a user, or without the metadata.
func Given(key Key) Key {
	return func(ctx context.Context, method string) (string, bool) {
		k, ok := key(ctx, method)
		return k, ok && k != ""
	}
}

// Join counts by several keys together. The parts are escaped, so that no two
// combinations share a bucket. A call that one of the keys leaves out is left out.
func Join(keys ...Key) Key {
	return func(ctx context.Context, method string) (string, bool) {
		parts := make([]string, len(keys))
		for i, key := range keys {
			k, ok := key(ctx, method)
			if !ok {
				return "", false
			}
			parts[i] = k
		}
		return rules.Join(parts...), true
	}
}

// Hashed counts by the SHA-256 of a key, for keys that are secrets: what is stored and shown is not
// the key. Empty keys stay empty.
func Hashed(key Key) Key {
	return func(ctx context.Context, method string) (string, bool) {
		k, ok := key(ctx, method)
		return rules.Hash(k), ok
	}
}
