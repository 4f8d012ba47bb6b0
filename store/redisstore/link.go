package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// link is the connection to the server. The first call makes the client and checks the server; if
// that fails, the next call tries again.
type link struct {
	dial  func() (rueidis.Client, error)
	check func(context.Context, rueidis.Client) error
	owned bool // the client is ours to close

	ready atomic.Pointer[rueidis.Client]

	mu      sync.Mutex
	attempt *attempt // in progress, nil if none
	raw     rueidis.Client
}

// attempt is one attempt to connect, shared by all callers. err is set before done is closed.
type attempt struct {
	done chan struct{}
	err  error
}

// checkTimeout bounds the first check of the server.
var checkTimeout = 2 * time.Second

// client returns the client, or why there is none. It waits no longer than ctx.
func (l *link) client(ctx context.Context) (rueidis.Client, error) {
	for {
		if c := l.ready.Load(); c != nil {
			return *c, nil
		}
		a := l.try()
		select {
		case <-a.done:
			if a.err != nil {
				return nil, a.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// try returns the current attempt, and starts one if there is none.
func (l *link) try() *attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.attempt != nil {
		return l.attempt
	}
	a := &attempt{done: make(chan struct{})}
	l.attempt = a
	go func() { // ends by its timeouts; close waits for it
		a.err = l.connect()
		l.mu.Lock()
		l.attempt = nil
		l.mu.Unlock()
		close(a.done)
	}()
	return a
}

func (l *link) connect() error {
	if l.ready.Load() != nil {
		return nil
	}
	if l.raw == nil { // only one attempt runs at a time
		c, err := l.dial()
		if err != nil {
			return err
		}
		l.raw = c
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	if err := l.check(ctx, l.raw); err != nil {
		return err
	}
	l.ready.Store(&l.raw)
	return nil
}

// close is called once, when no call is running.
func (l *link) close() {
	l.mu.Lock()
	a := l.attempt
	l.mu.Unlock()
	if a != nil {
		<-a.done
	}
	if l.owned && l.raw != nil {
		l.raw.Close()
	}
}
