package model

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Records is the simplest store.Store that decides with package record: the bytes of one record
// per bucket. It is the reference for what a store must keep: what was admitted or settled, and how
// a record was advanced if others would advance it differently ([record.Record.MustPersist]). What
// any other refusal or a peek did to a record is discarded.
//
// It decides with the code that ships and is compared with [Store], and is fast enough for real
// stores to be compared with it.
type Records struct {
	now   func() int64 // Unix µs
	exact bool
	all   bool // see Keeping

	mu    sync.Mutex
	kept  map[store.Key][]byte
	lines map[store.Key][]byte // nil: it keeps none
	done  bool
}

var (
	_ store.Store    = (*Records)(nil)
	_ store.Resetter = (*Records)(nil)
)

// NewRecords returns an empty store with a clock, in Unix microseconds. exact says that a rolling
// limit without a precision is exact.
func NewRecords(now func() int64, exact bool) *Records {
	return &Records{now: now, exact: exact, kept: map[store.Key][]byte{}}
}

// Keeping makes a store keep what every take and settlement did to a record, whatever was decided,
// and returns the store.
func (s *Records) Keeping() *Records {
	s.all = true
	return s
}

// InLine makes a store keep the lines of its buckets, and returns the store.
func (s *Records) InLine() *Records {
	s.lines = map[store.Key][]byte{}
	return s
}

// PastLines returns a program's view of the same buckets that knows nothing of their lines. Only
// one of both may be in use at a time.
func (s *Records) PastLines() *Records {
	return &Records{now: s.now, exact: s.exact, all: s.all, kept: s.kept}
}

func (s *Records) begin(ctx context.Context) (end func(), err error) {
	s.mu.Lock()
	switch {
	case s.done:
		err = store.ErrClosed
	case ctx.Err() != nil:
		err = &store.Error{Store: "records", Op: "begin", Err: ctx.Err()}
	}
	if err != nil {
		s.mu.Unlock()
	}
	return s.mu.Unlock, err
}

// opened holds the records of some buckets during one step.
type opened struct {
	s       *Records
	buckets []store.BucketCost
	recs    []*record.Record
	lines   []*record.Line // nil: the store keeps none
	now     int64          // of the step
	keep    []bool         // the record is to be written back
}

func (s *Records) open(buckets []store.BucketCost) *opened {
	o := &opened{s: s, buckets: buckets, now: s.now(), keep: make([]bool, len(buckets))}
	for i := range buckets {
		rec := s.record(buckets[i].Key)
		rec.Changes = &record.Changes{}
		o.recs, o.now = append(o.recs, rec), max(o.now, rec.Last)
		if s.lines != nil {
			o.lines = append(o.lines, record.DecodeLine(s.lines[buckets[i].Key]))
		}
	}
	for i := range buckets {
		specs := store.Internal.Specs(buckets[i].Plan, s.exact)
		if o.keep[i] = s.all || o.recs[i].MustPersist(specs, o.now); s.all {
			o.recs[i].Advance(specs, o.now) // even if nothing is decided, for example in a refund of nothing
		}
	}
	return o
}

func (s *Records) record(k store.Key) *record.Record {
	b, ok := s.kept[k]
	if !ok {
		return &record.Record{}
	}
	rec, _, err := record.Decode(b)
	if err != nil {
		panic(err)
	}
	return rec
}

func (o *opened) close() {
	for i, keep := range o.keep {
		if keep {
			o.s.kept[o.buckets[i].Key] = record.Append(nil, o.recs[i], record.Whole)
		}
	}
	for i, l := range o.lines {
		if l.Changed {
			o.s.lines[o.buckets[i].Key] = l.Append(nil)
		}
	}
}

// Take implements store.Store.
func (s *Records) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for i := range batch {
		t := &batch[i]
		if err := t.Check(); err != nil {
			out[i] = store.Verdict{Fail: err}
			continue
		}
		o := s.open(t.Buckets)
		d := store.Internal.DecideInLine(t, o.recs, o.lines, s.exact, o.now)
		for k := range o.keep {
			// A replay that does not take its units anew changes nothing, though a hold may have
			// ended.
			moved := slices.Contains(o.recs[k].Changes.Touched, t.ID)
			o.keep[k] = o.keep[k] || d.Allowed && (moved || !d.Replayed) &&
				(t.Hold > 0 || t.Buckets[k].N != store.Amounts{})
		}
		o.close()
		out[i] = d
	}
	return nil
}

// Settle implements store.Store.
func (s *Records) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for i := range batch {
		b := &batch[i]
		if out[i].Err = b.Check(); out[i].Err != nil {
			continue
		}
		o := s.open(b.Buckets)
		for k, rec := range o.recs {
			if b.Op == store.OpCharge {
				for j, l := range b.Buckets[k].Plan.Policy().Limits {
					o.keep[k] = o.keep[k] || l.Kind != store.Concurrency && b.Buckets[k].N[j] > 0
				}
			} else if open := rec.Open[b.ID]; open != nil && open.Grant == uint64(b.Grant) && open.End > o.now ||
				b.Op == store.OpPause || b.Op == store.OpUnpause {
				o.keep[k] = true
			}
		}
		out[i] = store.Internal.ApplyInLine(b, o.recs, o.lines, s.exact, o.now)
		for k, back := range out[i].Back {
			o.keep[k] = o.keep[k] || back != store.Amounts{}
		}
		for k, corrected := range out[i].Corrected {
			o.keep[k] = o.keep[k] || corrected
		}
		o.close()
	}
	return nil
}

// Peek implements store.Store.
func (s *Records) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for i := range buckets {
		if err := buckets[i].Check(priority); err != nil {
			out[i] = store.State{Verdict: store.Verdict{Fail: err}}
			continue
		}
		var line *record.Line
		if s.lines != nil {
			line = record.DecodeLine(s.lines[buckets[i].Key])
		}
		out[i] = store.Internal.Describe(&buckets[i], s.record(buckets[i].Key), line, priority, s.exact, s.now())
	}
	return nil
}

// Reset implements store.Resetter.
func (s *Records) Reset(ctx context.Context, keys []store.Key) error {
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for _, k := range keys {
		delete(s.kept, k)
	}
	return nil
}

// Withdraw implements store.Liner.
func (s *Records) Withdraw(ctx context.Context, number uint64, keys []store.Key) error {
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for _, k := range keys {
		l := record.DecodeLine(s.lines[k])
		if l.Remove(number) {
			s.lines[k] = l.Append(nil)
		}
	}
	return nil
}

// KeepsLine implements store.Liner.
func (s *Records) KeepsLine() bool { return s.lines != nil }

// Line returns the line of a bucket.
func (s *Records) Line(k store.Key) *record.Line {
	s.mu.Lock()
	defer s.mu.Unlock()
	return record.DecodeLine(s.lines[k])
}

// All calls yield with the record of every bucket that was kept.
func (s *Records) All(yield func(store.Key, *record.Record) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.kept {
		if !yield(k, s.record(k)) {
			return
		}
	}
}

// Fork returns a copy with another clock.
func (s *Records) Fork(now func() int64) *Records {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Records{now: now, exact: s.exact, all: s.all, kept: maps.Clone(s.kept), lines: maps.Clone(s.lines)}
}

// Equal reports whether two stores have the same content.
func (s *Records) Equal(o *Records) bool { return maps.EqualFunc(s.kept, o.kept, bytes.Equal) }

// Close implements store.Store.
func (s *Records) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	return nil
}
