package config_test

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store/redisstore"
)

// The keys of the presets in Redis are those in docs/configuration.md, configured by variables
// alone.
//
// req: B2, B8, E4
func TestPresetKeysInRedis(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		preset   string
		environ  []string
		requests []engine.Request
		want     []string
	}{
		{config.HTTPAPI, []string{"IP_BURST_SIZE=5"}, []engine.Request{
			{Attributes: &rules.Attributes{
				Method: "GET", Path: "/upload", IP: netip.MustParseAddr("192.0.2.1"),
				User: "ann",
			}},
			{Attributes: &rules.Attributes{Method: "GET", Path: "/health", IP: netip.MustParseAddr("192.0.2.2")}},
			{Asks: []engine.Ask{{Policy: "task", Key: "transcribe", Costs: []drawgate.Cost{{N: 1}}}}},
		}, []string{
			"ratelimit::api:global", "ratelimit::ip:192.0.2.1", "ratelimit::task:transcribe",
			"ratelimit::user:ann",
		}},
		{config.Global, []string{"ENABLE_DISTRIBUTED_RATE_LIMITING=true"}, []engine.Request{
			{Attributes: &rules.Attributes{Method: "GET", Path: "/", IP: netip.MustParseAddr("192.0.2.1")}},
			{Asks: []engine.Ask{{Policy: "global", Tenant: "acme", Key: "batch"}}},
		}, []string{"rl::global:192.0.2.1", "rl:acme:global:batch"}},
		{"global with a prefix of one's own", []string{
			"RATE_LIMIT_GLOBAL_CAPACITY=9",
			"ENABLE_DISTRIBUTED_RATE_LIMITING=true", "RATE_LIMIT_REDIS_PREFIX=mine",
		}, []engine.Request{
			{Attributes: &rules.Attributes{Method: "GET", Path: "/", IP: netip.MustParseAddr("192.0.2.1")}},
		}, []string{"mine::global:192.0.2.1"}},
	} {
		t.Run(c.preset, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			got, err := config.FromEnv(append(c.environ, "RATE_LIMIT_REDIS_URL="+redis.URL()))
			if err != nil {
				t.Fatal(err)
			}
			store, err := redisstore.Open(got.Store, &redisstore.Options{Prefix: got.Prefix})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { store.Close() })
			e, err := engine.New(store, got.Engine(), &engine.Options{StoreTimeout: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.Close() })
			for i := range c.requests {
				if res, err := e.Take(t.Context(), &c.requests[i]); err != nil || !res.Decision.Allowed {
					t.Fatalf("%+v: got %+v, %v, want it allowed", c.requests[i], res, err)
				}
			}
			if diff := cmp.Diff(c.want, redisKeys(t, redis.Addr)); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
}

// redisKeys returns the keys of a Redis server, sorted.
func redisKeys(t *testing.T, addr string) (keys []string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "KEYS *\r\n")
	in := bufio.NewScanner(conn)
	in.Scan() // "*4", then a length and a key for each
	n, err := strconv.Atoi(strings.TrimPrefix(in.Text(), "*"))
	for range n {
		in.Scan()
		in.Scan()
		if !strings.HasSuffix(in.Text(), ":%mark") { // the store's own
			keys = append(keys, in.Text())
		}
	}
	if err != nil || in.Err() != nil {
		t.Fatalf("reading the keys: got %v and %v, want no error", err, in.Err())
	}
	slices.Sort(keys)
	return keys
}
