package grpclimit_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/drawgate/drawgate/grpclimit"
	"github.com/drawgate/drawgate/httplimit"
)

// A caller has the same key over gRPC and over HTTP, so both packages must build it in the same
// way.
func TestKeysAreThoseOfHTTP(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"192.0.2.1", "::ffff:192.0.2.1", "2001:db8:1:2:3:4:5:6", "::1"} {
		for _, user := range []string{"", "a|b%c", "ü\x00", strings.Repeat("long ", 100)} {
			r := &http.Request{
				RemoteAddr: net.JoinHostPort(addr, "1234"),
				Header:     http.Header{"X-User": []string{user}},
			}
			ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(addr), Port: 1234}})
			ctx = metadata.NewIncomingContext(ctx, metadata.MD{"x-user": []string{user}})
			for name, keys := range map[string]struct {
				http httplimit.Key
				grpc grpclimit.Key
			}{
				"address": {httplimit.ByIP(nil), grpclimit.ByPeer(nil)},
				"user":    {httplimit.ByHeader("X-User"), grpclimit.ByMetadata("x-user")},
				"joined": {
					httplimit.Join(httplimit.ByHeader("X-User"), httplimit.ByIP(nil)),
					grpclimit.Join(grpclimit.ByMetadata("x-user"), grpclimit.ByPeer(nil)),
				},
				"hashed": {
					httplimit.Hashed(httplimit.ByHeader("X-User")),
					grpclimit.Hashed(grpclimit.ByMetadata("x-user")),
				},
			} {
				byHTTP, _ := keys.http(r)
				if byGRPC, _ := keys.grpc(ctx, "/s/m"); byGRPC != byHTTP {
					t.Errorf("%s of %s, %q: %q over gRPC, %q over HTTP", name, addr, user, byGRPC, byHTTP)
				}
			}
		}
	}
}
