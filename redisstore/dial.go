package redisstore

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/redis/rueidis"
)

// impatient makes o close a connection on which the server has said nothing when the call ends that dialled it.
//
// A client that gives up its first words to a server that stands still waits up to a second more for an answer to its farewell (rueidis, pipe.Close), and
// with it everybody who waits for the same connection: for them a deadline of 40 ms would be a second. A closed connection answers at once.
func impatient(o *rueidis.ClientOption) {
	dial := o.DialCtxFn // set for a socket
	if dial == nil {
		dial = dialTCP
	}
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
		c, err := dial(ctx, addr, d, t)
		if err != nil {
			return nil, err
		}
		g := &greeted{Conn: c}
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
	stop func() bool // nil afterwards; only the reader uses it
}

func (g *greeted) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if n > 0 && g.stop != nil {
		g.stop()
		g.stop = nil
	}
	return n, err
}
