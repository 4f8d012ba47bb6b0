package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/storetest"
)

// jsonStore keeps the records of all buckets in one JSON file, which belongs to this process.
type jsonStore struct {
	path string
	now  func() time.Time

	mu     sync.Mutex
	closed bool
}

// step reads the records of some buckets, and writes those that decide has changed.
func (s *jsonStore) step(ctx context.Context, op string, buckets []store.BucketCost,
	decide func([]*store.Record),
) error {
	all := map[string][]byte{}
	text, err := os.ReadFile(s.path)
	if err == nil {
		err = json.Unmarshal(text, &all)
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		return &store.Error{Store: "json", Op: op, Err: errors.Join(store.ErrNothingDone, err)}
	}
	recs, names := make([]*store.Record, len(buckets)), make([]string, len(buckets))
	for i, b := range buckets {
		names[i] = fmt.Sprintf("%q", [...]string{b.Key.Tenant, b.Key.Policy, b.Key.Name})
		if recs[i], err = store.Decode(all[names[i]]); errors.Is(err, store.ErrVersion) ||
			errors.Is(err, store.ErrDamaged) {
			return &store.Error{Store: "json", Op: op, Err: err, Fault: store.FaultBucket}
		}
	}
	decide(recs)
	write := false
	for i, r := range recs {
		if r.Changed() {
			all[names[i]], write = r.Append(nil), true
		}
		if until := r.Until(); write && !until.IsZero() && !until.After(s.now()) { // it means the same as none
			delete(all, names[i])
		}
	}
	if !write {
		return nil
	}
	text, err = json.Marshal(all)
	if err == nil {
		err = os.WriteFile(s.path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(s.path+".new", s.path)
	}
	if err != nil {
		return &store.Error{Store: "json", Op: op, Err: err} // it may have been written
	}
	return nil
}

// begin is called by every method, with s.mu held.
func (s *jsonStore) begin(ctx context.Context) error {
	if s.closed {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Take implements [store.Store].
func (s *jsonStore) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin(ctx); err != nil {
		return err
	}
	for i := range batch {
		err := s.step(ctx, "take", batch[i].Buckets, func(recs []*store.Record) {
			out[i] = store.Decide(&batch[i], recs,
				s.now())
		})
		if err != nil {
			out[i] = store.Verdict{Fail: err}
		}
	}
	return nil
}

// Settle implements [store.Store].
func (s *jsonStore) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin(ctx); err != nil {
		return err
	}
	for i := range batch {
		err := s.step(ctx, batch[i].Op.String(), batch[i].Buckets,
			func(recs []*store.Record) { out[i] = store.Apply(&batch[i], recs, s.now()) })
		if err != nil {
			out[i] = store.Outcome{Err: err}
		}
	}
	return nil
}

// Peek implements [store.Store].
func (s *jsonStore) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin(ctx); err != nil {
		return err
	}
	for i := range buckets {
		err := s.step(ctx, "peek", buckets[i:i+1], func(recs []*store.Record) {
			out[i] = store.Describe(&buckets[i],
				recs[0], priority, s.now())
		})
		if err != nil {
			out[i] = store.State{Verdict: store.Verdict{Fail: err}}
		}
	}
	return nil
}

// Close implements [store.Store].
func (s *jsonStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// A store that keeps records in a JSON file.
func Example() {
	dir, err := os.MkdirTemp("", "drawgate")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	s := &jsonStore{path: filepath.Join(dir, "buckets.json"), now: time.Now}
	lim, err := drawgate.New(s, drawgate.PerHour("login", 2), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for range 3 {
		d, err := lim.Allow(ctx, "user-17")
		fmt.Println(d.Allowed, d.Remaining(), err)
	}
	// What a limiter asks a store for.
	bucket := store.BucketCost{Key: store.Key{Policy: "login", Name: "user-17"}, Plan: lim.Plan().Plan}
	out := make([]store.State, 1)
	if err := s.Peek(ctx, []store.BucketCost{bucket}, 0, out); err != nil {
		fmt.Println(err)
		return
	}
	show := func(u store.LimitUsage, r store.Result) { fmt.Println("used", u.Used, "remaining", r.Remaining) }
	show(out[0].States[0], out[0].First.Limits[0])
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
	// used 2 remaining 0
}

// TestJSONStore: the example keeps what a store promises.
func TestJSONStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{New: func(t *testing.T) store.Store {
		return &jsonStore{path: filepath.Join(t.TempDir(), "buckets.json"), now: time.Now}
	}})
}
