package record_test

import (
	"encoding/binary"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/calendar"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// bytesOf draws choices from the input of a fuzz test; when it is used up, the smallest.
type bytesOf struct{ rest []byte }

func (b *bytesOf) pick(_ string, from, to int64) int64 {
	var raw [8]byte
	width := 1
	for span := uint64(to - from); width < 8 && span>>(8*width) != 0; {
		width++
	}
	b.rest = b.rest[copy(raw[:width], b.rest):]
	return from + int64(binary.LittleEndian.Uint64(raw[:])%uint64(to-from+1))
}

// extreme draws any limit that compiles: amounts to 10^12, windows from a millisecond to a year.
func extreme(c chooser) (drawgate.Limit, bool) {
	l := drawgate.Limit{
		Name: "l", Kind: drawgate.Kind(c.pick("kind", 1, 4)),
		Amount: c.pick("amount", 1, drawgate.MaxAmount),
	}
	if c.pick("few", 0, 1) == 1 {
		l.Amount = 1 + l.Amount%1000
	}
	switch l.Kind {
	case drawgate.Bucket:
		l.Window, l.Burst = dur(c.pick("window", 1000, 366*day)), c.pick("burst", 0, drawgate.MaxAmount)
		if c.pick("round", 0, 1) == 1 {
			l.Window = dur(max(1000, min(366*day, l.Amount*c.pick("times", 1, 1000))))
		}
		if l.Burst%3 == 0 {
			l.Burst = 0
		}
	case drawgate.Rolling:
		l.Window = dur(c.pick("window", 1000, 366*day))
		l.Precision = int(c.pick("precision", 99, store.MaxPrecision))
		if l.Precision == 99 {
			l.Precision = drawgate.Exact
		}
	case drawgate.Calendar:
		l.Every = drawgate.Every(c.pick("every", 1, int64(calendar.End)-1))
	}
	l.Charge = drawgate.Charge(c.pick("charge", 1, 2))
	return l, l.Check() == nil
}

// FuzzArithmetic plays scripts with extreme limits and numbers, and compares every answer with the
// model, which counts in big integers. Once more is owed than 2^53 holds, record may only be
// stricter or equal, so the script ends there.
func FuzzArithmetic(f *testing.F) {
	f.Add([]byte{1, 255, 255, 255, 255, 255, 255, 255, 255, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	f.Add([]byte("2rolling limits with joined entries and late settlements, many of them, in no order whatever"))
	f.Add([]byte("3a calendar limit: its window's edge is crossed; what was held counts in the next one as well"))
	f.Fuzz(func(t *testing.T, in []byte) { extremes(t, &bytesOf{in}, len(in)/8) })
}

func extremes(t *testing.T, c chooser, steps int) {
	t.Helper()
	l, ok := extreme(c)
	if !ok {
		return
	}
	w := newTwin(c, []record.Spec{spec(t, l)})
	w.span = max(spanOf(l), 1000)
	for range min(steps, 200) {
		if w.step(); w.err != "" {
			t.Fatalf("%+v: %s", l, w.story())
		}
		for i := range w.recs[0].Limits {
			if st := &w.recs[0].Limits[i]; st.Used > 1<<53-1-4*drawgate.MaxAmount ||
				st.Kind == record.Bucket && st.Used > 1<<52 {
				return
			}
		}
	}
}

// TestExtremes is FuzzArithmetic on random input.
// req: E10
func TestExtremes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(scale(2000)) {
		d := newDice(seed)
		extremes(t, d, 80)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
