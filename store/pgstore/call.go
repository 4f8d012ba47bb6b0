package pgstore

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/drawgate/drawgate/internal/storekey"
	"github.com/drawgate/drawgate/store"
)

// call is one caller's request. Its arguments are copies, and the caller copies its results,
// because a caller leaves when its ctx ends.
type call struct {
	op      string // "take", "settle", "reset" or "withdraw"
	started bool   // its transaction has begun; guarded by Store.mu
	left    bool   // its caller has left; guarded by Store.mu
	done    chan struct{}
	err     error

	takes       []store.Take
	settlements []store.Settlement
	number      uint64 // of the ticket to withdraw
	keys        []keyed
	rows        []string // the keys of its rows, each once

	verdicts []store.Verdict
	outcomes []store.Outcome
}

// keyed is a bucket's key, and that of its row.
type keyed struct {
	key   store.Key
	row   string
	parts string // what the row keeps of the key
}

// rowOf returns the key of a bucket's row.
func rowOf(k store.Key) keyed {
	row, parts := storekey.Format("", k)
	return keyed{k, row, parts}
}

func newCall(op string) *call { return &call{op: op, done: make(chan struct{}, 1)} }

// size returns for how many takes or settlements a call counts in a transaction.
func (c *call) size() int { return max(1, len(c.takes), len(c.settlements)) }

func (c *call) setTakes(batch []store.Take) {
	c.takes, c.verdicts = slices.Clone(batch), make([]store.Verdict, len(batch))
	for i := range c.takes {
		t := &c.takes[i]
		t.Buckets, t.Labels = c.setBuckets(t.Buckets), slices.Clone(t.Labels)
		if t.Ticket != nil {
			ticket := *t.Ticket
			ticket.Next = slices.Clone(ticket.Next)
			t.Ticket = &ticket
		}
	}
	c.setRows()
}

func (c *call) setSettlements(batch []store.Settlement) {
	c.settlements, c.outcomes = slices.Clone(batch), make([]store.Outcome, len(batch))
	for i := range c.settlements {
		st := &c.settlements[i]
		st.Buckets, st.Labels = c.setBuckets(st.Buckets), slices.Clone(st.Labels)
	}
	c.setRows()
}

func (c *call) setBuckets(buckets []store.BucketCost) []store.BucketCost {
	for i := range buckets {
		c.keys = append(c.keys, rowOf(buckets[i].Key))
	}
	return slices.Clone(buckets)
}

func (c *call) setKeys(keys []store.Key) {
	for _, k := range keys {
		c.keys = append(c.keys, rowOf(k))
	}
	c.setRows()
}

// setRows lists the rows of the keys, each once.
func (c *call) setRows() {
	c.rows = make([]string, 0, len(c.keys))
	for i := range c.keys {
		c.rows = append(c.rows, c.keys[i].row)
	}
	if len(c.rows) > 1 {
		slices.Sort(c.rows)
		c.rows = slices.Compact(c.rows)
	}
}

// do hands a call to the lanes and waits until it is answered or ctx ends.
func (s *Store) do(ctx context.Context, c *call) error {
	if err := ctx.Err(); err != nil {
		return nothingDone(c.op, err)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return store.ErrClosed
	}
	if len(c.rows) == 0 {
		s.mu.Unlock()
		(&step{s: s, calls: []*call{c}}).decide() // of no bucket, nothing can be decided
		return nil
	}
	s.queue = append(s.queue, c)
	held := slices.ContainsFunc(c.rows, func(r string) bool { return s.busy[r] }) // by a lane that comes back for it
	if !held && s.lanes < s.link.lanes() {
		s.lanes++
		s.running.Go(s.lane)
	}
	s.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		if !s.leave(c) {
			return nothingDone(c.op, ctx.Err())
		}
		select {
		case <-c.done: // just in time
		default:
			return storeError(c.op, fmt.Errorf("%w: %w", store.ErrUnknownOutcome, ctx.Err()))
		}
	}
	return storeError(c.op, c.err)
}

// leave withdraws a call unless its transaction has begun, and reports whether it has.
func (s *Store) leave(c *call) (started bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.left = true
	if c.started {
		return true
	}
	if i := slices.Index(s.queue, c); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	return false
}

// The largest transaction.
const (
	mostCalls = 512 // takes and settlements
	mostRows  = 512
)

// lane carries out transactions until there is nothing that it can begin.
func (s *Store) lane() {
	for {
		batch := s.gather()
		if len(batch) == 0 {
			return
		}
		s.transact(batch)
		runtime.Gosched() // callers that were just answered run first: their next calls then join the next batch
		s.release(batch)
	}
}

// gather removes calls from the queue for one transaction, in order. A call waits if one of its
// rows is part of a transaction that is under way, or belongs to a call that waits before it. If
// there is none, the lane ends.
func (s *Store) gather() (batch []*call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, rows := 0, 0
	blocked := map[string]bool{} // of the calls that stay
	rest := s.queue[:0]
	for i, c := range s.queue {
		full := size > 0 && (size+c.size() > mostCalls || rows+len(c.rows) > mostRows)
		if full {
			rest = append(rest, s.queue[i:]...)
			break
		}
		if slices.ContainsFunc(c.rows, func(r string) bool { return s.busy[r] || blocked[r] }) {
			for _, r := range c.rows {
				blocked[r] = true
			}
			rest = append(rest, c)
			continue
		}
		c.started = true
		size += c.size()
		rows += len(c.rows)
		batch = append(batch, c)
	}
	clear(s.queue[len(rest):])
	s.queue = rest
	for _, c := range batch {
		for _, r := range c.rows {
			s.busy[r] = true
		}
	}
	if len(batch) == 0 {
		s.lanes--
	}
	return batch
}

// release ends a transaction: its rows are free for the next one.
func (s *Store) release(batch []*call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range batch {
		for _, r := range c.rows {
			delete(s.busy, r)
		}
	}
}

// waiting returns those calls of a batch whose callers have not left.
func (s *Store) waiting(batch []*call) (left []*call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range batch {
		if !c.left {
			left = append(left, c)
		}
	}
	return left
}
