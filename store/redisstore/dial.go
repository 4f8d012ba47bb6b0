package redisstore

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// impatient makes o close a connection on which the server has said nothing when the call ends that
// dialled it.
//
// A client that gives up its first words to a server that stands still waits up to a second more
// for an answer to its farewell (rueidis, pipe.Close), and with it everybody who waits for the same
// connection: for them a deadline of 40 ms would be a second. A closed connection answers at once.
func impatient(o *rueidis.ClientOption, calls *atomic.Int64) {
	dial := o.DialCtxFn // set for a socket
	if dial == nil {
		dial = dialTCP
	}
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
		c, err := dial(ctx, addr, d, t)
		if err != nil {
			return nil, err
		}
		g := &greeted{Conn: c, calls: calls}
		g.stop = context.AfterFunc(ctx, func() { _ = c.Close() })
		return g, nil
	}
}

func dialTCP(ctx context.Context, addr string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
	if t != nil {
		return (&tls.Dialer{NetDialer: d, Config: t}).DialContext(ctx, "tcp", addr)
	}
	return d.DialContext(ctx, "tcp", addr)
}

// greeted is a connection that lasts once the server has said something on it.
type greeted struct {
	net.Conn
	stop  func() bool   // nil afterwards; only the reader uses it
	calls *atomic.Int64 // under way
}

func (g *greeted) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if n > 0 && g.stop != nil {
		g.stop()
		g.stop = nil
	}
	return n, err
}

// many is how many calls are under way when it is worth waiting for further ones before a write.
const many = 8

// Write lets other goroutines run first, if there are many calls: what they ask for meanwhile goes
// out together with the next write. So the calls of a connection are sent, carried out and answered
// in larger parts, the larger the busier the process is.
func (g *greeted) Write(b []byte) (int, error) {
	if g.calls.Load() >= many {
		runtime.Gosched()
	}
	return g.Conn.Write(b)
}
