package main

import (
	"context"
	"time"

	"github.com/drawgate/drawgate"
)

// lostStore is a store that could not be opened and does not come back by itself: it answers every
// call with the reason. A server starts with it, so that the fallback decides, and says why.
type lostStore struct{ err error }

var (
	_ drawgate.Store    = (*lostStore)(nil)
	_ drawgate.Resetter = (*lostStore)(nil)
	_ drawgate.Lister   = (*lostStore)(nil)
	_ drawgate.Journal  = (*lostStore)(nil)
	_ drawgate.Pinger   = (*lostStore)(nil)
)

// Take implements [drawgate.Store].
func (s *lostStore) Take(context.Context, []drawgate.Take, []drawgate.Decision) error { return s.err }

// Settle implements [drawgate.Store].
func (s *lostStore) Settle(context.Context, []drawgate.Settlement, []drawgate.Outcome) error {
	return s.err
}

// Peek implements [drawgate.Store].
func (s *lostStore) Peek(context.Context, []drawgate.BucketCost, int8, []drawgate.Status) error {
	return s.err
}

// Reset implements [drawgate.Resetter].
func (s *lostStore) Reset(context.Context, []drawgate.Key) error { return s.err }

// List implements [drawgate.Lister].
func (s *lostStore) List(context.Context, string, string, func(drawgate.Key) bool) error {
	return s.err
}

// Read implements [drawgate.Journal].
func (s *lostStore) Read(context.Context, time.Time, time.Time, func(drawgate.Event) bool) error {
	return s.err
}

// Ping implements [drawgate.Pinger].
func (s *lostStore) Ping(context.Context) error { return s.err }

// Close implements [drawgate.Store].
func (s *lostStore) Close() error { return nil }
