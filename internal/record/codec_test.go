package record_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// same compares records by what they say; how a ring lies in memory is not part of it.
var same = cmp.Options{
	cmpopts.IgnoreUnexported(record.Record{}, record.State{}, record.Open{}),
	cmpopts.IgnoreFields(record.Record{}, "Changes"),
	cmpopts.IgnoreFields(record.State{}, "Log"),
	cmpopts.EquateEmpty(),
	cmp.Transformer("entries", func(r record.Ring) (es []record.Entry) {
		for i := range r.Len() {
			es = append(es, *r.At(i))
		}
		return es
	}),
}

// allKinds returns a bucket with every kind of limit.
func allKinds(tb testing.TB) *bucket {
	tb.Helper()
	return newBucket(tb,
		drawgate.Limit{Kind: drawgate.Bucket, Window: time.Minute, Amount: 70},
		drawgate.Limit{Kind: drawgate.Rolling, Window: time.Minute, Amount: 100, Precision: drawgate.Exact},
		drawgate.Limit{Kind: drawgate.Rolling, Window: time.Hour, Amount: 1000, Margin: time.Second},
		drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Hour, Amount: 200, Margin: time.Second},
		drawgate.Limit{Kind: drawgate.Concurrency, Amount: 5},
		drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 5000, Unit: "usd_micros"},
	)
}

// lived returns a bucket after a random life.
func lived(tb testing.TB, t *rapid.T) *bucket {
	tb.Helper()
	b := allKinds(tb)
	if rapid.Bool().Draw(t, "tracked") {
		b.rec.Changes = &record.Changes{}
	}
	for i := range rapid.IntRange(0, 40).Draw(t, "steps") {
		b.now += rapid.Int64Range(0, 20*sec).Draw(t, "wait")
		n := rapid.Int64Range(0, 9).Draw(t, "n")
		id := fmt.Sprint(rapid.IntRange(0, i).Draw(t, "id"))
		switch rapid.IntRange(0, 5).Draw(t, "op") {
		case 0, 1:
			b.take(record.Take{}, n, n, n, n, 0, n)
		case 2:
			b.hold(id, rapid.Int64Range(1, mnt).Draw(t, "hold"), n, n, n, n, 1, n)
		case 3:
			b.take(record.Take{ID: id, Hold: mnt, Lease: true}, 5, 5, 5, 5, 0, 5)
		case 4:
			b.settle(id, n, record.KeepEstimate, n, n, 0, n)
		case 5:
			b.cancel(id)
		}
	}
	b.rec.Advance(b.specs, b.now)
	return b
}

// req: D2
func TestCodecRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := lived(t, rt)
		got, form, err := record.Decode(record.Append([]byte(nil), b.rec, record.Whole))
		if err != nil || form != record.Whole {
			rt.Fatalf("form %d, %v", form, err)
		}
		if diff := cmp.Diff(b.rec, got, same); diff != "" {
			rt.Fatalf("the record changed:\n%s", diff)
		}
		if got.Until() != b.rec.Until() || got.NextEnd() != b.rec.NextEnd() {
			rt.Fatalf("until %d, next end %d; want %d, %d", got.Until(), got.NextEnd(), b.rec.Until(), b.rec.NextEnd())
		}
	})
}

// parted writes a record in parts and puts it together again, but for what is to be lost.
func parted(r *record.Record, loseEntry, loseOpen bool) (*record.Record, error) {
	got, _, err := record.Decode(record.Append(nil, r, record.Header))
	if err != nil {
		return nil, err
	}
	for i := range got.Limits {
		for k := range r.Limits[i].Entries.Len() {
			if loseEntry {
				loseEntry = false
				continue
			}
			got.Limits[i].Entries.Push(*r.Limits[i].Entries.At(k))
		}
	}
	got.Open = map[string]*record.Open{}
	for id, o := range r.Open {
		if loseOpen {
			loseOpen = false
			continue
		}
		if got.Open[id], err = record.DecodeOpen(record.AppendOpen(nil, o)); err != nil {
			return nil, err
		}
	}
	return got, got.Complete()
}

// req: D2
func TestCodecHeader(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := lived(t, rt)
		got, err := parted(b.rec, false, false)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(b.rec, got, same); diff != "" {
			rt.Fatalf("the record changed:\n%s", diff)
		}
		if _, err := parted(b.rec, false, true); len(b.rec.Open) > 0 && !errors.Is(err, record.ErrDamaged) {
			rt.Fatalf("a lost reservation: %v", err)
		}
	})
}

func TestCodecFindsLostEntry(t *testing.T) {
	t.Parallel()
	b := newBucket(t, drawgate.Limit{
		Kind: drawgate.Rolling, Window: time.Minute, Amount: 100,
		Precision: drawgate.Exact,
	})
	for range 3 {
		b.now += sec
		b.allow(2)
	}
	if _, err := parted(b.rec, true, false); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("got %v, want ErrDamaged", err)
	}
}

func TestCodecRefusesOtherVersions(t *testing.T) {
	t.Parallel()
	b := record.Append(nil, &record.Record{}, record.Whole)
	b[0]++
	if _, _, err := record.Decode(b); !errors.Is(err, record.ErrVersion) {
		t.Errorf("got %v, want ErrVersion", err)
	}
	if _, err := record.DecodeOpen(b); !errors.Is(err, record.ErrVersion) {
		t.Errorf("got %v, want ErrVersion", err)
	}
}

func TestCodecFindsEveryFlippedBit(t *testing.T) {
	t.Parallel()
	b := newBucket(t, drawgate.Limit{Kind: drawgate.Bucket, Window: time.Minute, Amount: 100},
		drawgate.Limit{Kind: drawgate.Concurrency, Amount: 3})
	b.hold("x", mnt, 5, 1)
	whole := record.Append(nil, b.rec, record.Whole)
	for i := range whole {
		for bit := range 8 {
			whole[i] ^= 1 << bit
			if _, _, err := record.Decode(whole); err == nil {
				t.Errorf("bit %d of byte %d: no error", bit, i)
			}
			whole[i] ^= 1 << bit
		}
		if _, _, err := record.Decode(whole[:i]); err == nil {
			t.Errorf("cut off after %d bytes: no error", i)
		}
	}
}

// sealed returns bytes with the right checksum.
func sealed(b ...byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// TestCodecRefusesImpossibleContent: bytes with a right checksum that say no record are an error,
// too, and never a smaller record.
//
// req: D2
func TestCodecRefusesImpossibleContent(t *testing.T) {
	t.Parallel()
	b := allKinds(t)
	b.hold("x", mnt, 5, 1, 1, 1, 1, 1)
	b.now += sec
	b.allow(1, 1, 1, 1, 0, 1)
	whole := record.Append(nil, b.rec, record.Whole)
	open := record.AppendOpen(nil, b.rec.Open["x"])
	whole, open = whole[:len(whole)-4:len(whole)-4], open[:len(open)-4:len(open)-4]
	bad := map[string][]byte{
		"one byte more": append(whole, 0),
		"unknown form":  append([]byte{whole[0], 3}, whole[2:]...),
	}
	for i := 1; i < len(whole); i++ {
		bad[fmt.Sprintf("only %d bytes", i)] = whole[:i:i]
	}
	for name, body := range bad {
		if r, _, err := record.Decode(sealed(body...)); !errors.Is(err, record.ErrDamaged) {
			t.Errorf("record, %s: %+v, %v", name, r, err)
		}
	}
	bad = map[string][]byte{"one byte more": append(open, 0)}
	for i := 1; i < len(open); i++ {
		bad[fmt.Sprintf("only %d bytes", i)] = open[:i:i]
	}
	for name, body := range bad {
		if o, err := record.DecodeOpen(sealed(body...)); !errors.Is(err, record.ErrDamaged) {
			t.Errorf("reservation, %s: %+v, %v", name, o, err)
		}
	}
	if _, _, err := record.Decode(sealed(whole...)); err != nil {
		t.Error(err)
	}
}

// TestCodecRefusesImpossibleRates of a bucket: whoever divided by them would panic.
//
// req: D2
func TestCodecRefusesImpossibleRates(t *testing.T) {
	t.Parallel()
	const window, rate = 60, 6
	for _, c := range []struct {
		window, rate, scale int64
		ok                  bool
	}{
		{window, rate, 10, true},
		{window, rate, 0, false},
		{window, rate, 7, false}, // the window is no multiple of it
		{0, rate, 10, false},
		{window, 0, 10, false},
		{window, rate + 1, 10, false}, // no whole number of parts drains in a µs
	} {
		r := &record.Record{Limits: []record.State{{
			ID: 1, Kind: record.Bucket, Window: c.window, Rate: c.rate,
			Scale: c.scale,
		}}}
		if _, _, err := record.Decode(record.Append(nil, r, record.Whole)); (err == nil) != c.ok ||
			err != nil && !errors.Is(err, record.ErrDamaged) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestChanges shows that a store which writes only what Changes, Dirty and Popped name has
// everything.
func TestChanges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := allKinds(t)
		b.rec.Changes = &record.Changes{}
		entries, open := map[int64]record.Entry{}, map[string]record.Open{}
		for i := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			b.now += rapid.Int64Range(0, 40*sec).Draw(rt, "wait")
			id := fmt.Sprint(rapid.IntRange(0, i).Draw(rt, "id"))
			switch rapid.IntRange(0, 4).Draw(rt, "op") {
			case 0, 1:
				b.allow(1, 1, 1, 1, 0, 1)
			case 2:
				b.hold(id, rapid.Int64Range(1, mnt).Draw(rt, "hold"), 3, 3, 3, 3, 1, 3)
			case 3:
				b.settle(id, 1, 5, 1, 1, 0, 1)
			case 4:
				record.Renew([]record.Ask{{Rec: b.rec, Specs: b.specs}}, id, 0, mnt, b.now)
			}
			write(b.rec, entries, open)
			check(rt, b.rec, entries, open)
		}
	})
}

// write is what a store does. It keeps the entries of the limit at position 1 of the specs, the
// exact one.
func write(r *record.Record, entries map[int64]record.Entry, open map[string]record.Open) {
	for i := range r.Limits {
		st := &r.Limits[i]
		if st.Kind != record.Rolling || st.Window != mnt {
			continue
		}
		for first := range entries {
			if first <= st.Log.Popped {
				delete(entries, first)
			}
		}
		for _, first := range st.Log.Dirty {
			if e := st.Entries.Find(first); e != nil {
				entries[first] = *e
			}
		}
		*st.Log = record.Log{}
	}
	for _, id := range r.Changes.Touched {
		delete(open, id)
		if o := r.Open[id]; o != nil {
			open[id] = *o
		}
	}
	*r.Changes = record.Changes{}
}

func check(t *rapid.T, r *record.Record, entries map[int64]record.Entry, open map[string]record.Open) {
	n := 0
	for i := range r.Limits {
		st := &r.Limits[i]
		if st.Kind != record.Rolling || st.Window != mnt {
			continue
		}
		n += st.Entries.Len()
		for k := range st.Entries.Len() {
			e := *st.Entries.At(k)
			if entries[e.First] != e {
				t.Fatalf("entry %+v is stored as %+v", e, entries[e.First])
			}
		}
	}
	if n != len(entries) || len(open) != len(r.Open) {
		t.Fatalf("%d entries and %d reservations are stored, of %d and %d", len(entries), len(open), n, len(r.Open))
	}
	for id, o := range r.Open {
		if diff := cmp.Diff(*o, open[id], same); diff != "" {
			t.Fatalf("reservation %q:\n%s", id, diff)
		}
	}
}

// FuzzDecode feeds bytes with a right checksum, which is what is left to get wrong.
func FuzzDecode(f *testing.F) {
	b := newBucket(f, drawgate.Limit{Kind: drawgate.Bucket, Window: time.Minute, Amount: 100},
		drawgate.Limit{Kind: drawgate.Rolling, Window: time.Minute, Amount: 100},
		drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 100},
		drawgate.Limit{Kind: drawgate.Concurrency, Amount: 3})
	b.hold("x", mnt, 5, 1, 1, 1)
	for _, form := range []record.Form{record.Whole, record.Header} {
		s := record.Append(nil, b.rec, form)
		f.Add(s[:len(s)-4])
	}
	s := record.AppendOpen(nil, b.rec.Open["x"])
	f.Add(s[:len(s)-4])
	f.Fuzz(func(t *testing.T, data []byte) {
		data = sealed(data...)
		if o, err := record.DecodeOpen(data); err == nil {
			again, err := record.DecodeOpen(record.AppendOpen(nil, o))
			if err != nil || !cmp.Equal(o, again, same) {
				t.Fatalf("%+v became %+v, %v", o, again, err)
			}
		}
		r, form, err := record.Decode(data)
		if err != nil {
			return
		}
		again, _, err := record.Decode(record.Append(nil, r, form))
		if err != nil || !cmp.Equal(r, again, same) {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
		if form == record.Header && r.Complete() != nil {
			return
		}
		r.Until()
		r.Advance(nil, r.Last+hour) // must not panic, whatever was stored
		r.Until()
	})
}
