package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

func wantFault(t *testing.T, what string, err error, want store.Fault) {
	t.Helper()
	if se, ok := errors.AsType[*store.Error](err); !ok || se.Fault != want {
		t.Errorf("%s: %v, want a fault that is %v", what, err, want)
	}
}

// TestKindsOfFaults provokes a real server to say what is wrong: whoever decides in the store's
// place must know whether it passes by itself, whether somebody must act, and whether it is one
// bucket only.
//
// req: A11, E7
func TestKindsOfFaults(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "right")
	s, err := redisstore.Open("redis://default:right@"+server.Addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr}, Password: "right",
		ForceSingleClient: true, DisableCache: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	do := func(words ...string) {
		t.Helper()
		if err := c.Do(t.Context(), c.B().Arbitrary(words...).Build()).Error(); err != nil {
			t.Fatal(words, err)
		}
	}
	plan := day(t, 5)
	take(t, s, takeOf(plan, "k", 1))

	do("SET", "drawgate::d:string", "x")
	do("HSET", "drawgate::d:newer", "h", "\x02\x00xxxxxxxxxxxxxxxxxxxx")
	do("HSET", "drawgate::d:short", "h", "\x01")
	for _, name := range []string{"string", "newer", "short"} {
		wantFault(t, name, tryTake(t.Context(), s, takeOf(compile(t, "d", drawgate.Limit(plan.Policy().Limits[0])),
			name, 1)), store.FaultBucket)
	}

	do("CONFIG", "SET", "maxmemory", "1")
	wantFault(t, "a full server", tryTake(t.Context(), s, takeOf(plan, "k", 1)), store.FaultConfiguration)
	do("CONFIG", "SET", "maxmemory", "0")
	do("CONFIG", "SET", "min-replicas-to-write", "1")
	wantFault(t, "no replicas", tryTake(t.Context(), s, takeOf(plan, "k", 1)), store.FaultTransient)
	do("CONFIG", "SET", "min-replicas-to-write", "0")
	do("REPLICAOF", "127.0.0.1", "1")
	wantFault(t, "a replica", tryTake(t.Context(), s, takeOf(plan, "k", 1)), store.FaultConfiguration)
	do("REPLICAOF", "NO", "ONE")
	do("ACL", "SETUSER", "default", "-hset", "-hmset")
	wantFault(t, "no permission in the script", tryTake(t.Context(), s, takeOf(plan, "k", 1)), store.FaultConfiguration)
	do("ACL", "SETUSER", "default", "+@all")

	server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	wantFault(t, "no answer", tryTake(ctx, s, takeOf(plan, "k", 1)), store.FaultTransient)
	server.Continue()

	wrong, err := redisstore.Open("redis://default:wrong@"+server.Addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	wantFault(t, "a wrong password", tryTake(t.Context(), wrong, takeOf(plan, "k", 1)), store.FaultConfiguration)
}
