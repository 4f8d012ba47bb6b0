package pgstore

import (
	"context"
	"sync/atomic"
	"time"
)

// Clock is a clock that stands still until it is moved.
type Clock struct{ us atomic.Int64 }

// NewClock returns a clock that stands at an instant in 2023.
func NewClock() *Clock {
	c := &Clock{}
	c.us.Store(1_700_000_000_000_000)
	return c
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) { c.us.Add(d.Microseconds()) }

// Use has a store use the clock instead of the server's.
func (c *Clock) Use(o *Options) { o.clock = c.us.Load }

// Between has f called at the steps of each transaction.
func (o *Options) Between(f func(ctx context.Context, step string)) { o.between = f }

// Sweep removes what is unused, as cleaning does, except for what was used in the last time.
func (s *Store) Sweep(ctx context.Context, grace time.Duration) error {
	now, err := s.clock(ctx)
	for after, more := "", true; more && err == nil; {
		after, more, err = s.sweep(ctx, after, now-grace.Microseconds())
	}
	return err
}

// Now returns the clock's time in Unix µs.
func (c *Clock) Now() int64 { return c.us.Load() }

// Pass removes what is unused, as cleaning does from time to time.
func (s *Store) Pass(ctx context.Context) error { return s.pass(ctx) }

// Setting returns a setting of one of the store's connections.
func (s *Store) Setting(ctx context.Context, name string) (value string, err error) {
	conn, err := s.link.acquire(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Release()
	err = conn.QueryRow(ctx, []any{&value}, "SELECT current_setting($1)", name)
	return value, err
}

// Queued returns how many calls wait for their transaction to begin.
func (s *Store) Queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// Listens reports whether notifications arrive.
func (s *Store) Listens() bool { return s.watchers.listens.Load() }

// Plain reports whether a pooler keeps the store from preparing statements.
func (s *Store) Plain() bool {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	return s.link.plain
}
