// Package dynamostore keeps buckets in one DynamoDB table, so that any number of processes share
// them without a server to run.
//
// Each bucket is one item. A decision reads the item, unless this process was the last to write it
// and still knows it, and writes it on the condition that nobody has changed it meanwhile. Callers
// of one process that ask for the same bucket share a write. A refusal writes nothing. While
// several processes write one bucket at the same time, each of them adds its takes and settlements
// to the item instead, in writes that do not exclude each other.
//
// # Unknown outcomes
//
// Each process leaves a mark of its last write in the item. If the answer to a write was lost, the
// store looks for the mark within the caller's deadline: so a write counts once, with an id or
// without. Only if there was no time left the error matches [store.ErrUnknownOutcome]: the units
// may be spent. If finding the mark takes longer than a second or two, the caller gets an error
// too, because its units count from an instant that is over.
//
// # Clocks
//
// DynamoDB has no clock that a write could use. Each process estimates the service's clock from the
// Date of its answers, to a second at first and better with each answer, and units count longer by
// the width of that estimate. A process that was suspended between reading its clock and the write
// gets an error, and what it took counts as spent.
//
// # Several buckets
//
// A take of several buckets reserves one after the other and cancels if one of them refuses; a
// process that dies in between leaves units that count as used.
package dynamostore

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/internal/storekey"
	"github.com/drawgate/drawgate/store"
)

// Store keeps buckets in a table. It is safe for concurrent use.
type Store struct {
	client *dynamodb.Client
	table  string
	prefix string
	logger *slog.Logger
	clock  *clock
	lane   string // the attribute with this process's mark
	called func(*Call)

	entries bool // for tests: every item has entries

	hasty sync.Once // the warning that takes have too little time

	oneByOne atomic.Bool // there is no right to read several items in one request

	mu      sync.Mutex
	lines   map[string]*line        // by key
	plans   map[planKey]*store.Plan // see variant
	texts   map[*store.Plan]string  // see limitsOf
	stored  map[string]*store.Plan  // see planOf
	lastSeq int64
	closed  bool
	calls   sync.WaitGroup // only added to while mu is held and the store is open
	working sync.WaitGroup // goroutines that work on lines
}

// planKey says which variant of a plan is wanted.
type planKey struct {
	plan   *store.Plan
	blur   int64 // of the clock, in µs
	atOnce bool  // for a plain take that is held for a moment
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Resetter = (*Store)(nil)
	_ store.Lister   = (*Store)(nil)
	_ store.Pinger   = (*Store)(nil)
	_ store.Timed    = (*Store)(nil)
)

// New returns a store that uses the caller's client, which must not retry by itself: see [Client].
// opts may be nil.
func New(client *dynamodb.Client, table string, opts *Options) *Store {
	s := &Store{
		client: client, table: table, prefix: "drawgate", logger: slog.New(slog.DiscardHandler), clock: newClock(),
		lane:  lanePrefix + store.NewGrant().String()[:8],
		lines: map[string]*line{}, plans: map[planKey]*store.Plan{}, texts: map[*store.Plan]string{},
		stored: map[string]*store.Plan{},
	}
	if opts != nil && opts.Prefix != "" {
		s.prefix = opts.Prefix
	}
	if opts != nil && opts.Logger != nil {
		s.logger = opts.Logger
	}
	s.called = func(*Call) {}
	if opts != nil && opts.Observer != nil && opts.Observer.Called != nil {
		s.called = opts.Observer.Called
	}
	return s
}

// begin counts a call as running.
func (s *Store) begin(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return failure(op, errors.Join(store.ErrNothingDone, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	s.calls.Add(1)
	return nil
}

// Close implements [store.Store]. Running calls finish first. The client stays open.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.calls.Wait()
	s.working.Wait()
	return nil
}

// next returns the mark of a write, later than all before it.
func (s *Store) next(now int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastSeq = max(s.lastSeq+1, now)
	return s.lastSeq
}

// mostPlans is how many plans are remembered.
const mostPlans = 1000

// variant returns a plan as it is to be used.
func (s *Store) variant(k planKey) *store.Plan {
	if k.blur == 0 && !k.atOnce {
		return k.plan
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.plans[k]
	if b == nil {
		if len(s.plans) >= mostPlans {
			clear(s.plans)
		}
		b = store.Internal.Variant(k.plan, k.blur, k.atOnce)
		s.plans[k] = b
	}
	return b
}

// name returns the key of a bucket's item, and what else says which bucket it is.
func (s *Store) name(b *store.BucketCost) (key, parts string) {
	return storekey.Format(s.prefix, b.Key)
}

// look reads a bucket.
func (s *Store) look(ctx context.Context, key string) (rec *record.Record, at instant, err error) {
	c, began := Call{Op: "peek"}, time.Now()
	defer func() {
		c.Took, c.Err = time.Since(began), err
		s.called(&c)
	}()
	for failed := 0; ; {
		img, err := s.read(ctx, key)
		c.sent(err)
		if err == nil {
			at, ok := s.clock.now()
			if ok {
				rec, err := s.bucket(img, at.early)
				return rec, at, err
			}
			if err := s.clock.problem(); failed+1 >= mostAttempts || errors.Is(err, ErrMisconfigured) {
				return nil, at, err
			}
			failed++
			continue
		}
		if failed++; !s.again(ctx, err, failed) {
			return nil, instant{}, s.explain(err)
		}
	}
}

// Ping checks that the table can be read.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.begin(ctx, "ping"); err != nil {
		return err
	}
	defer s.calls.Done()
	if _, err := s.read(ctx, s.prefix); err != nil {
		return failure("ping", s.explain(err))
	}
	return nil
}

// Reset implements [store.Resetter].
func (s *Store) Reset(ctx context.Context, keys []store.Key) error {
	if err := s.begin(ctx, "reset"); err != nil {
		return err
	}
	defer s.calls.Done()
	for _, k := range keys {
		key, _ := storekey.Format(s.prefix, k)
		if _, err := s.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &s.table, Key: primary(key)},
			plainBody); err != nil {
			return failure("reset", s.explain(err))
		}
	}
	return nil
}

// List implements [store.Lister]. It reads the whole table.
func (s *Store) List(ctx context.Context, tenant, policy string, yield func(store.Key) bool) error {
	if err := s.begin(ctx, "list"); err != nil {
		return err
	}
	defer s.calls.Done()
	return failure("list", s.list(ctx, tenant, policy, yield))
}
