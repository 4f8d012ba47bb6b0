package dynamostore

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// NewWithClock returns a store that takes the service's clock in Unix µs from a function, exactly.
func NewWithClock(client *dynamodb.Client, table string, opts *Options, clock func() int64) *Store {
	s := New(client, table, opts)
	s.clock.fixed = func() instant { return instant{early: clock()} }
	return s
}

// NewWithError returns a store whose clock is behind by that much, and knows that it may be.
func NewWithError(client *dynamodb.Client, table string, opts *Options, behind, most time.Duration) *Store {
	s := New(client, table, opts)
	s.clock.fixed = func() instant { return instant{early: time.Now().Add(-behind).UnixMicro(), blur: most.Microseconds()} }
	return s
}

// Prefix returns what its keys start with.
func (s *Store) Prefix() string { return s.prefix }

// NewWithWallClock returns a store on a machine whose wall clock is ahead by that much.
func NewWithWallClock(client *dynamodb.Client, table string, opts *Options, ahead time.Duration) *Store {
	s := New(client, table, opts)
	s.clock.zero += ahead.Microseconds()
	return s
}

// Blur returns by how much its clock may be behind the service's.
func (s *Store) Blur() time.Duration {
	at, _ := s.clock.now()
	return microseconds(at.blur)
}
