// Package pipetest has a network in memory. In a bubble of testing/synctest time stands still while
// nobody uses it, which a real connection would prevent.
package pipetest

import (
	"context"
	"errors"
	"net"
	"sync"
)

// Listener is a listener whose connections are in memory.
type Listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// Listen returns a listener. Close ends it.
func Listen() *Listener { return &Listener{conns: make(chan net.Conn), done: make(chan struct{})} }

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. It may be called more than once.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements [net.Listener]: a Unix socket, and so no address of this or another machine.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// DialContext connects, whatever the network and the address. It is for [net/http.Transport].
func (l *Listener) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
	case <-ctx.Done():
	}
	return nil, errors.Join(errors.New("nobody listens"), ours.Close(), theirs.Close())
}
