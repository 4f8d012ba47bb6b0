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
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/redisstore"
	"github.com/drawgate/drawgate/rules"
)

// The keys of the preset http-api in Redis are those that docs/configuration.md names, as its variables alone make them.
//
// req: B2, B8
func TestHTTPAPIKeysInRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	c, err := config.FromEnv([]string{"IP_BURST_SIZE=5", "RATE_LIMIT_REDIS_URL=" + redis.URL()})
	if err != nil {
		t.Fatal(err)
	}
	store, err := redisstore.Open(c.Store, &redisstore.Options{Prefix: c.Prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	e, err := engine.New(store, c.Engine(), &engine.Options{StoreTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	for _, r := range []engine.Request{
		{Attributes: &rules.Attributes{Method: "GET", Path: "/upload", IP: netip.MustParseAddr("192.0.2.1"), User: "ann"}},
		{Attributes: &rules.Attributes{Method: "GET", Path: "/health", IP: netip.MustParseAddr("192.0.2.2")}},
		{Asks: []engine.Ask{{Policy: "task", Key: "transcribe", Costs: []drawgate.Cost{{N: 1}}}}},
	} {
		if res, err := e.Take(t.Context(), &r); err != nil || !res.Decision.Allowed {
			t.Fatalf("%+v: %+v, %v", r, res, err)
		}
	}
	want := []string{"ratelimit::api:global", "ratelimit::ip:192.0.2.1", "ratelimit::task:transcribe", "ratelimit::user:ann"}
	if diff := cmp.Diff(want, redisKeys(t, redis.Addr)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
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
		keys = append(keys, in.Text())
	}
	if err != nil || in.Err() != nil {
		t.Fatal(err, in.Err())
	}
	slices.Sort(keys)
	return keys
}
