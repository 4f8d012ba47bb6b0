package redisstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// TestMissingPermissions are found out before the first take, which then has spent nothing, and by
// a ping. The error names the command, the store comes back once it is granted.
//
// req: E7
func TestMissingPermissions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := client(t, server)
	acl := func(words ...string) {
		t.Helper()
		if err := admin.Do(t.Context(), admin.B().Arbitrary("ACL", "SETUSER",
			"gate").Args(words...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	plan := day(t, 5)
	needed := []string{"time", "hset", "hget", "hmget", "hdel", "pexpire", "evalsha"}
	// as documented
	acl("reset", "on", ">secret", "~drawgate:*", "-@all", "+@connection", "+info", "+script|load", "+unlink", "+scan")
	for _, c := range needed {
		acl("+" + c)
	}
	for _, missing := range needed {
		acl("-" + missing)
		s, err := redisstore.Open("redis://gate:secret@"+server.Addr, nil)
		if err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"take": tryTake(t.Context(), s, takeOf(plan, "k", 1)),
			"ping": s.Ping(t.Context()),
		} {
			se, ok := errors.AsType[*store.Error](err)
			if !ok || se.Fault != store.FaultConfiguration || !errors.Is(err, redisstore.ErrMisconfigured) ||
				!strings.Contains(strings.ToLower(err.Error()), missing) || strings.Contains(err.Error(), "%probe") {
				t.Errorf("%s without %s: %v; want an error of the configuration that names it", what, missing, err)
			}
		}
		acl("+" + missing)
		if err := s.Ping(t.Context()); err != nil {
			t.Errorf("%s is granted again: %v", missing, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	s, err := redisstore.Open("redis://gate:secret@"+server.Addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if st := peek(t, s, takeOf(plan, "k", 1).Buckets[0]); st.States[0].Used != 0 {
		t.Errorf("%d used by takes that failed", st.States[0].Used)
	}
	for range 5 { // these commands are all that is needed
		take(t, s, takeOf(plan, "k", 1))
	}
	if err := s.Reset(t.Context(), []store.Key{{Policy: plan.Name(), Name: "k"}}); err != nil {
		t.Error(err)
	}
	if err := s.List(t.Context(), "", plan.Name(), func(store.Key) bool { return true }); err != nil {
		t.Error(err)
	}
	acl("-pexpire")
	if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "PEXPIRE") {
		t.Errorf("taken away while connected: %v", err)
	}
	acl("resetkeys", "~other:*", "+pexpire")
	if err := s.Ping(t.Context()); !errors.Is(err, redisstore.ErrMisconfigured) {
		t.Errorf("of other keys only: %v", err)
	}
	keys, err := admin.Do(t.Context(), admin.B().Keys().Pattern("*%probe*").Build()).AsStrSlice()
	if err != nil || len(keys) != 0 {
		t.Errorf("left behind: %q, %v", keys, err)
	}
}
