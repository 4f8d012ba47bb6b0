package redisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// hasFunctions reports whether a server has functions: Redis 6.2 does not.
func hasFunctions(s *redistest.Server) bool {
	return !strings.Contains(s.Do("INFO", "server"), "redis_version:6.")
}

// lacksFunctions checks what is said of a server that is too old.
func lacksFunctions(t *testing.T, url string) {
	t.Helper()
	s, err := redisstore.Open(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.Ping(t.Context())
	failed(t, "Redis 6.2", err, redisstore.ErrMisconfigured)
	if err == nil || !strings.Contains(err.Error(), "7.0") {
		t.Errorf("Redis 6.2: %v, want what functions need", err)
	}
}

// TestFunctions: takes and reservations by functions, which programs load where they are missing,
// on one server and on each primary of a cluster. No script is called.
//
// req: E5
func TestFunctions(t *testing.T) {
	t.Parallel()
	one := redistest.Start(t)
	for kind, servers := range map[string][]*redistest.Server{
		one.URL() + "?functions=load": {one},
		"":                            redistest.StartCluster(t, false).Primaries,
	} {
		if kind == "" {
			kind = "redis+cluster://" + servers[0].Addr + "?functions=load"
		}
		if !hasFunctions(servers[0]) {
			lacksFunctions(t, kind)
			continue
		}
		s, err := redisstore.Open(kind, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		plan := day(t, 10)
		for round := range 2 {
			for name := range map[string]bool{"a": true, "b": true, "c": true, "d": true} {
				held := held(takeOf(plan, name, 3), "id", time.Minute)
				if d := take(t, s, held); !d.Allowed {
					t.Errorf("%s: a reservation: %v", kind, d.Fail)
				}
				used := takeOf(plan, name, 2).Buckets
				o := settle(t, s, store.Settlement{Op: store.OpSettle, ID: "id", Buckets: used})
				if o.Gone || !take(t, s, takeOf(plan, name, 1)).Allowed {
					t.Errorf("%s: a settlement or a take after it fails", kind)
				}
				if got := peek(t, s, takeOf(plan, name).Buckets[0]).States[0].Used; got != int64(3*round+3) {
					t.Errorf("%s: %d units are used, want %d", kind, got, 3*round+3)
				}
			}
			both := takeOf(plan, "e", 1)
			both.Buckets = append(both.Buckets, takeOf(plan, "f", 1).Buckets...)
			if d := take(t, s, both); !d.Allowed {
				t.Errorf("%s: a take from two buckets: %v", kind, d.Fail)
			}
			for _, server := range servers {
				server.Do("FUNCTION", "FLUSH") // it is loaded again
			}
		}
		for _, server := range servers {
			if strings.Contains(server.Do("INFO", "commandstats"), "cmdstat_eval") {
				t.Errorf("%s: a script was called", kind)
			}
		}
	}
}

// TestFunctionsLoadedByHand: a program that may not load functions says what is missing, and who
// may.
//
// req: E5
func TestFunctionsLoadedByHand(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if !hasFunctions(server) {
		lacksFunctions(t, server.URL()+"?functions=use")
		return
	}
	server.Do("ACL", "SETUSER", "gate", "reset", "on", ">secret", "~drawgate:*", "-@all", "+@connection", "+info",
		"+time", "+fcall", "+hset", "+hget", "+hmget", "+hdel", "+pexpire")
	s, err := redisstore.Open("redis://gate:secret@"+server.Addr+"?functions=use", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plan := day(t, 10)
	err = tryTake(t.Context(), s, takeOf(plan, "k", 1))
	failed(t, "no functions", err, redisstore.ErrMisconfigured)
	if err == nil || !strings.Contains(err.Error(), "drawgate store functions") {
		t.Errorf("no functions: %v, want what loads them", err)
	}
	name := server.Do("FUNCTION", "LOAD", "REPLACE", redisstore.Library())
	if !strings.HasPrefix(redisstore.Library(), "#!lua name="+name+"\n") {
		t.Errorf("the library is called %q", name)
	}
	if d := take(t, s, takeOf(plan, "k", 1)); !d.Allowed {
		t.Errorf("with functions: %v", d.Fail)
	}
	server.Do("FUNCTION", "DELETE", name)
	if err := tryTake(t.Context(), s, takeOf(plan, "k", 1)); !errors.Is(err, redisstore.ErrMisconfigured) {
		t.Errorf("they were deleted: %v", err)
	}
	server.Do("FUNCTION", "LOAD", redisstore.Library())
	if d := take(t, s, takeOf(plan, "k", 1)); !d.Allowed {
		t.Errorf("with functions again: %v", d.Fail)
	}
	for _, url := range []string{"redis://h?functions=", "redis://h?functions=no"} {
		err := redisstore.CheckURL(url)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "functions=load") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
