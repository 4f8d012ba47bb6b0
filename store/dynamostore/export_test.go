package dynamostore

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/drawgate/drawgate/internal/record"
)

// NewWithClock returns a store that takes the service's clock in Unix µs from a function, exactly.
func NewWithClock(client *dynamodb.Client, table string, opts *Options, clock func() int64) *Store {
	s := New(client, table, opts)
	s.clock.fixed = func() instant { return instant{early: clock()} }
	return s
}

// NewWithError returns a store whose clock is behind by that much, and knows that it may be.
func NewWithError(client *dynamodb.Client, table string, opts *Options, behind, most time.Duration) *Store {
	return NewWithErrorOf(client, table, opts, behind, most, func() int64 { return time.Now().UnixMicro() })
}

// NewWithErrorOf is NewWithError for a service whose clock is a function, in Unix µs.
func NewWithErrorOf(client *dynamodb.Client, table string, opts *Options, behind, most time.Duration,
	clock func() int64,
) *Store {
	s := New(client, table, opts)
	s.clock.fixed = func() instant { return instant{early: clock() - behind.Microseconds(), blur: most.Microseconds()} }
	return s
}

// Contest makes a store write every item as if other processes did so at the same time.
func (s *Store) Contest() { s.entries = true }

// Prefix returns what its keys start with.
func (s *Store) Prefix() string { return s.prefix }

// Entries returns examples of what entries say.
func Entries() [][]byte {
	e := entry{at: 1_700_000_000_000_000, blur: 10_000, ops: []op{
		{kind: opTake, n: record.Amounts{1, 0, 1_000_000}},
		{kind: opTake, id: "id", grant: 7, content: 9, hold: 30_000_000, n: record.Amounts{1}},
		{kind: opSettle, id: "id", grant: 7, n: record.Amounts{record.KeepEstimate, 5}},
		{kind: opCancel, id: "another", grant: 1 << 63},
	}}
	var list [][]byte
	for i := range e.ops {
		one := entry{at: e.at, ops: e.ops[i : i+1]}
		list = append(list, inside(one.bytes()))
	}
	return append(list, inside(e.bytes()))
}

// inside returns an entry without its version and its checksum.
func inside(b []byte) []byte { return b[1 : len(b)-crc32.Size] }

// Reread reads what an entry says, and writes it again.
func Reread(b []byte) ([]byte, error) {
	b = append([]byte{entryVersion}, b...)
	e, err := readEntry(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
	if err != nil {
		return nil, err
	}
	return inside(e.bytes()), nil
}

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

// Clock is a store's clock on a machine whose own clocks a test sets.
type Clock struct{ clock *clock }

// NewClock returns one. The functions say what the machine's clocks say, in µs.
func NewClock(monotonic, wall func() int64) *Clock {
	c := newClock()
	c.real = func() reading { return reading{monotonic: monotonic(), wall: wall()} }
	c.zero = wall() - monotonic()
	return &Clock{c}
}

// Ask learns from a call, whose answer has the Date that call returns.
func (c *Clock) Ask(call func() time.Time) error {
	sent := c.clock.real()
	date := call()
	return c.clock.learn(sent, c.clock.real(), date)
}

// Now returns the earliest and the latest instant that the service's clock may say, in Unix µs, or
// false if that is not known.
func (c *Clock) Now() (early, late int64, known bool) {
	at, ok := c.clock.now()
	return at.early, at.early + at.blur, ok
}
