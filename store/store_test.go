package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/storetest"
)

// mapped is the smallest store of this package: the bytes of each bucket in a map. Every call
// decodes them again and keeps only what Changed says must be kept.
type mapped struct {
	mu     sync.Mutex
	kept   map[drawgate.Key][]byte
	closed bool
}

func (s *mapped) begin(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return drawgate.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		s.mu.Unlock()
		return &drawgate.StoreError{Store: "map", Op: "begin", Err: errors.Join(store.ErrNothingDone, err)}
	}
	return nil
}

func (s *mapped) records(buckets []store.BucketCost) []*store.Record {
	recs := make([]*store.Record, len(buckets))
	for i := range buckets {
		r, err := store.Decode(s.kept[buckets[i].Key])
		if err != nil {
			panic(err)
		}
		recs[i] = r
	}
	return recs
}

func (s *mapped) keep(buckets []store.BucketCost, recs []*store.Record) {
	for i, r := range recs {
		if r.Changed() {
			s.kept[buckets[i].Key] = r.Append(nil)
		}
	}
}

func (s *mapped) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for i := range batch {
		recs := s.records(batch[i].Buckets)
		out[i] = store.Decide(&batch[i], recs, time.Now())
		s.keep(batch[i].Buckets, recs)
	}
	return nil
}

func (s *mapped) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for i := range batch {
		recs := s.records(batch[i].Buckets)
		out[i] = store.Apply(&batch[i], recs, time.Now())
		s.keep(batch[i].Buckets, recs)
	}
	return nil
}

func (s *mapped) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for i, r := range s.records(buckets) {
		out[i] = store.Describe(&buckets[i], r, priority, time.Now())
	}
	return nil
}

func (s *mapped) Reset(ctx context.Context, keys []drawgate.Key) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, k := range keys {
		delete(s.kept, k)
	}
	return nil
}

func (s *mapped) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// inBubble runs every case in a bubble of its own, whose clock moves when everybody sleeps.
func inBubble(open func() store.Store) storetest.Harness {
	return storetest.Harness{
		New:     func(*testing.T) store.Store { return open() },
		Advance: func(_ store.Store, d time.Duration) { time.Sleep(d) },
		Wrap:    synctest.Test,
	}
}

func newMapped() store.Store { return &mapped{kept: map[drawgate.Key][]byte{}} }

func TestStore(t *testing.T) {
	t.Parallel()
	h := inBubble(newMapped)
	h.Without = map[string]string{"too many open": "decoding a record with thousands of reservations for each of them takes minutes"}
	storetest.Run(t, h)
}

// TestSameAsModel compares it with the model that keeps records as bytes, on random histories: what
// is answered is the same, so Changed leaves nothing out that matters. Their clocks differ.
func TestSameAsModel(t *testing.T) {
	t.Parallel()
	records := func() store.Store {
		return model.NewRecords(func() int64 { return time.Now().Add(500 * 7 * 24 * time.Hour).UnixMicro() }, false)
	}
	storetest.Scripts(t, inBubble(newMapped), inBubble(records), 300)
}

// minute is a plan of 2 requests per minute.
func minute(t *testing.T) *drawgate.Plan {
	t.Helper()
	plan, err := drawgate.PerMinute("api", 2).Compile()
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestChangedOnlyByWhatMustBeKept(t *testing.T) {
	t.Parallel()
	r, now := &store.Record{}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	take := &store.Take{Buckets: []store.BucketCost{{
		Key: drawgate.Key{Policy: "api", Name: "k"}, Plan: minute(t).Plan,
		N: store.Amounts{2},
	}}}
	for i, want := range []bool{true, false} {
		d := store.Decide(take, []*store.Record{r}, now)
		if d.Allowed != want || r.Changed() != want {
			t.Errorf("take %d: allowed %v, changed %v; want both %v", i, d.Allowed, r.Changed(), want)
		}
		r.Append(nil)
	}
	if got, want := r.Until(), now.Add(time.Minute); !got.Equal(want) {
		t.Errorf("until %v, want %v", got, want)
	}
	take.ID, take.Grant, take.Hold = "id", 1, time.Hour
	if d := store.Decide(take, []*store.Record{r}, now.Add(time.Minute)); !d.Allowed || !r.Until().IsZero() {
		t.Errorf("a hold: allowed %v, until %v; want the zero time", d.Allowed, r.Until())
	}
}

func TestDecodeRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	r := &store.Record{}
	take := &store.Take{Buckets: []store.BucketCost{{
		Key: drawgate.Key{Policy: "api", Name: "k"}, Plan: minute(t).Plan,
		N: store.Amounts{1},
	}}}
	store.Decide(take, []*store.Record{r}, time.Now())
	b := r.Append(nil)
	newer := append([]byte{b[0] + 1}, b[1:]...)
	if _, err := store.Decode(newer); !errors.Is(err, store.ErrVersion) {
		t.Errorf("another version: %v, want %v", err, store.ErrVersion)
	}
	for i := 1; i < len(b); i++ {
		if _, err := store.Decode(b[:i]); err == nil {
			t.Errorf("the first %d of %d bytes were read", i, len(b))
		}
	}
	b[len(b)/2]++
	if _, err := store.Decode(b); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("another byte: %v, want %v", err, store.ErrDamaged)
	}
}

// What a store must not be asked is an answer, and changes nothing.
func TestDecideRefusesWhatNoStoreCanDecide(t *testing.T) {
	t.Parallel()
	b := store.BucketCost{Key: drawgate.Key{Policy: "api", Name: "k"}, Plan: minute(t).Plan, N: store.Amounts{1}}
	for name, take := range map[string]store.Take{
		"no bucket":           {},
		"no plan":             {Buckets: []store.BucketCost{{}}},
		"the same twice":      {Buckets: []store.BucketCost{b, b}},
		"an id, but no hold":  {Buckets: []store.BucketCost{b}, ID: "id", Grant: 1},
		"a hold, but no id":   {Buckets: []store.BucketCost{b}, Hold: time.Second},
		"priority 10":         {Buckets: []store.BucketCost{b}, Priority: 10},
		"a hold before it is": {Buckets: []store.BucketCost{b}, Hold: -time.Second},
	} {
		recs := []*store.Record{{}, {}}[:len(take.Buckets)]
		if d := store.Decide(&take, recs, time.Now()); !errors.Is(d.Fail, drawgate.ErrInvalid) || d.Allowed {
			t.Errorf("%s: allowed %v, %v; want %v", name, d.Allowed, d.Fail, drawgate.ErrInvalid)
		}
		for _, r := range recs {
			if r.Changed() {
				t.Errorf("%s changed a record", name)
			}
		}
	}
	if d := store.Decide(&store.Take{Buckets: []store.BucketCost{b}}, nil, time.Now()); !errors.Is(d.Fail,
		drawgate.ErrInvalid) {
		t.Errorf("no record: %v, want %v", d.Fail, drawgate.ErrInvalid)
	}
	if o := store.Apply(&store.Settlement{Op: store.OpCharge}, nil, time.Now()); !errors.Is(o.Err,
		drawgate.ErrInvalid) {
		t.Errorf("a settlement of no bucket: %v, want %v", o.Err, drawgate.ErrInvalid)
	}
	if st := store.Describe(&store.BucketCost{}, &store.Record{}, 0, time.Now()); !errors.Is(st.Fail,
		drawgate.ErrInvalid) {
		t.Errorf("a look without a plan: %v, want %v", st.Fail, drawgate.ErrInvalid)
	}
}

// A machine whose clock was not set starts in 1970, and its windows before.
func TestRecordsOfWindowsThatStartedBefore1970(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "America/New_York"} {
		plan, err := drawgate.Policy{Name: "api", Limits: []drawgate.Limit{drawgate.CalendarLimit("week", 2,
			drawgate.Week, zone)}}.Compile()
		if err != nil {
			t.Fatal(err)
		}
		take := &store.Take{Buckets: []store.BucketCost{{
			Key: drawgate.Key{Policy: "api", Name: "k"}, Plan: plan.Plan,
			N: store.Amounts{2},
		}}}
		r := &store.Record{}
		for _, now := range []time.Time{
			time.Unix(60, 0), time.Unix(120, 0),
			time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
		} {
			d := store.Decide(take, []*store.Record{r}, now)
			if want := now.Unix() != 120; d.Fail != nil || d.Allowed != want {
				t.Errorf("%s, %v: allowed %v, %v; want %v", zone, now, d.Allowed, d.Fail, want)
			}
			if r, err = store.Decode(r.Append(nil)); err != nil {
				t.Fatalf("%s, %v: %v", zone, now, err)
			}
		}
	}
}

// A clock that was set back does not make takes late that are in time by it, and one that is
// centuries ahead changes nothing.
func TestClocksThatAreWrong(t *testing.T) {
	t.Parallel()
	plan, err := drawgate.PerHour("api", 10).Compile()
	if err != nil {
		t.Fatal(err)
	}
	b := []store.BucketCost{{Key: drawgate.Key{Policy: "api", Name: "k"}, Plan: plan.Plan, N: store.Amounts{1}}}
	now, r := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), &store.Record{}
	if d := store.Decide(&store.Take{Buckets: b}, []*store.Record{r}, now.Add(time.Minute)); !d.Allowed {
		t.Fatal(d.Fail)
	}
	if d := store.Decide(&store.Take{
		ID: "x", Grant: 1, Hold: time.Hour, NotAfter: now.Add(2 * time.Second),
		Buckets: b,
	}, []*store.Record{r}, now); !d.Allowed {
		t.Errorf("with two seconds left: %v", d.Fail)
	}
	if d := store.Decide(&store.Take{Buckets: b}, []*store.Record{r}, now.AddDate(1000, 0, 0)); !errors.Is(d.Fail,
		drawgate.ErrInvalid) {
		t.Errorf("a thousand years later: %v", d.Fail)
	}
	if _, err := store.Decode(r.Append(nil)); err != nil {
		t.Error(err)
	}
}
