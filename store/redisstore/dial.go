package redisstore

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// impatient makes o close a connection when the call that dialled it ends before the server has
// answered anything on it. It asks the server which it is,
// and names it in all calls (see namer).
//
// A client that gives up its handshake with a server that hangs waits up to another second for the
// answer to its last command (rueidis, pipe.Close), and so does everybody who waits for the same
// connection: a deadline of 40 ms would become a second. A closed connection fails at once.
func (s *Store) impatient(o *rueidis.ClientOption) {
	dial, user, password := o.DialCtxFn, o.Username, o.Password // set for a Unix socket
	if dial == nil {
		dial = dialTCP
	}
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
		c, err := dial(ctx, addr, d, t)
		if err != nil {
			return nil, err
		}
		s.dials.Add(1)
		g := &greeted{Conn: c, calls: &s.calls}
		g.stop = context.AfterFunc(ctx, func() { _ = c.Close() })
		g.namer.marker = s.place[:placeMarker]
		if d.Resolver == ofSentinels {
			return g, nil
		}
		if g.early, err = g.namer.ask(c, user, password, true); err != nil {
			_ = c.Close()
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
		}
		life, end := context.WithCancel(context.WithoutCancel(ctx))
		g.asker = asker{every: s.asksAgain, asked: time.Now(), end: end, ask: func() {
			if o, err := dial(life, addr, d, t); err == nil {
				stop := context.AfterFunc(life, func() { _ = o.Close() })
				_, _ = g.namer.ask(o, user, password, false)
				stop()
				_ = o.Close()
			}
		}}
		return g, nil
	}
}

func dialTCP(ctx context.Context, addr string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
	if t != nil {
		return (&tls.Dialer{NetDialer: d, Config: t}).DialContext(ctx, "tcp", addr)
	}
	return d.DialContext(ctx, "tcp", addr)
}

// greeted is a connection that stays open once the server has answered on it.
type greeted struct {
	net.Conn
	stop  func() bool   // nil afterwards; only used by the reader
	calls *atomic.Int64 // running calls
	early []byte        // what was read before the client asked; only used by the reader
	namer namer         // only used by the writer, but for what it asks
	asker asker
}

// Close closes the connection, and ends what asks for it.
func (g *greeted) Close() error {
	err := g.Conn.Close()
	g.asker.close()
	return err
}

func (g *greeted) Read(b []byte) (int, error) {
	if len(g.early) > 0 {
		n := copy(b, g.early)
		g.early = g.early[n:]
		return n, nil
	}
	n, err := g.Conn.Read(b)
	if n > 0 && g.stop != nil {
		g.stop()
		g.stop = nil
	}
	return n, err
}

// many is the number of running calls from which it pays to wait for more before a write.
const many = 8

// Write lets other goroutines run first if there are many calls: their requests then join the next
// write. So the busier the process is, the larger are the batches in which calls are sent, carried
// out and answered.
func (g *greeted) Write(b []byte) (int, error) {
	if g.calls.Load() >= many {
		runtime.Gosched()
	}
	g.asker.again()
	if err := g.namer.name(b); err != nil {
		return 0, err
	}
	return g.Conn.Write(b)
}
