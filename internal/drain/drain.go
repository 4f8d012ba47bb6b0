// Package drain lets callers leave a server that stops, so that it loses none of their requests.
//
// [http.Server.Shutdown] closes each idle connection at once, and any other one when its answer has
// ended, even if the caller could not be told in the answer's header. A request that is on its way
// over such a connection is lost, and its caller cannot know whether it was carried out.
package drain

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// grace is how long callers have to use a connection once more. Connections that are used more
// seldom are closed without that: a request is rarely on its way over them.
const grace = 500 * time.Millisecond

// Conns are the connections of a server.
type Conns struct {
	open    atomic.Int64
	running atomic.Int64 // requests
	ending  atomic.Bool
	changed chan struct{} // capacity 1: while it ends, a connection was closed, or a request began or ended
}

// Watch begins to watch the connections of a server that does not serve yet. It wraps the server's
// handler, and sets its ConnState.
func Watch(srv *http.Server) *Conns {
	c := &Conns{changed: make(chan struct{}, 1)}
	next := srv.Handler
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.running.Add(1)
		c.tell()
		defer func() {
			c.tell() // before: nobody must see that nothing runs, and not that something has ended
			c.running.Add(-1)
		}()
		if c.ending.Load() {
			w.Header().Set("Connection", "close") // over HTTP/2 net/http says it in a frame instead
		}
		next.ServeHTTP(w, r)
	})
	srv.ConnState = c.state
	return c
}

func (c *Conns) state(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		c.open.Add(-1)
		c.tell()
	case http.StateActive, http.StateIdle:
	}
}

// tell wakes End.
func (c *Conns) tell() {
	if c.ending.Load() {
		select {
		case c.changed <- struct{}{}:
		default:
		}
	}
}

// End asks the callers to leave: from now on each answer closes its connection. It calls deaf,
// after which nobody may connect any more, within half a second, and returns when no connection is
// open, when none has been used for that long, or when ctx ends. A connection is in use while its
// handler runs; busy, if it is not nil, knows better whether one is. Call it before Shutdown.
func (c *Conns) End(ctx context.Context, deaf func(), busy func() bool) {
	if busy == nil {
		busy = func() bool { return c.running.Load() > 0 }
	}
	c.ending.Store(true)
	t := time.NewTimer(grace)
	defer t.Stop()
	for quiet := true; c.open.Load() > 0; {
		select {
		case <-c.changed:
			quiet = false
			continue
		case <-t.C:
		case <-ctx.Done():
			return
		}
		if deaf != nil {
			deaf()
			deaf = nil
		}
		select {
		case <-c.changed:
			quiet = false
		default:
		}
		running := busy()
		if quiet && !running {
			return
		}
		quiet = !running // what has just ended, and did not tell so yet, has half a second more
		t.Reset(grace)
	}
}
