package pgstore_test

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store"
)

// TestServerThatFallsSilent has a server accept connections, and then say nothing. A connection of
// which nothing is heard does not stay in the pool: the server's return would not be noticed.
func TestServerThatFallsSilent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var all, alive atomic.Int64 // connections
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Add(1)
			alive.Add(1)
			go func() {
				defer alive.Add(-1)
				defer c.Close()
				// The role is accepted, and the server ready.
				_, _ = io.WriteString(c, "R\x00\x00\x00\x08\x00\x00\x00\x00Z\x00\x00\x00\x05I")
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	s := open(t, "postgres://postgres@"+l.Addr().String()+"/postgres?sslmode=disable&pool_max_conns=2", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var v [1]store.Verdict
	if err := s.Take(ctx, []store.Take{takeOf(hourly(t, many), "k")}, v[:]); err == nil {
		t.Error("a take was answered")
	}
	if all.Load() == 0 {
		t.Fatal("there was no connection")
	}
	until(t, "the connection is closed", func() bool { return alive.Load() == 0 })
}
