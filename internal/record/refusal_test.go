package record_test

import (
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// TestRefusalsStay compares what is said again of a take that was refused with what is decided
// then.
// req: D1, D5
func TestRefusalsStay(t *testing.T) {
	t.Parallel()
	again, asked := 0, 0
	for seed := range uint64(scale(400)) {
		d := newDice(seed)
		w := busy(t, d)
		specs, rec := w.specs[0], w.recs[0]
		for range 20 {
			for range 15 {
				w.busyStep()
			}
			n, prio := w.cost(0), int8(d.IntN(10))
			v, out := w.plainAs(n, prio)
			if v.Allowed || v.Paused || rec.Held() || !inOrder(rec, specs) { // not answered by record.One
				continue
			}
			f := rec.Refusal(specs, &n, prio, v.Now, v.RetryAfter, out[:])
			for range 10 {
				w.now += d.upTo(w.span / 1000)
				var said [record.MaxLimits]record.Result
				asked++
				if f == nil {
					continue
				} else if at, after, ok := f.Again(specs, &n, prio, w.now, said[:]); ok {
					again++
					if v, out := w.plainAs(n, prio); v.Allowed || v.Now != at || v.RetryAfter != after || out != said {
						w.fail("said: at %d, wait %d, %+v; is: %+v, %+v", at-epoch, after, said, v, out)
					}
				}
			}
			if w.err != "" {
				t.Fatalf("seed %d: %s", seed, w.story())
			}
		}
	}
	if again < asked/10 {
		t.Errorf("%d of %d refusals were known: the test shows too little", again, asked)
	}
}

func inOrder(rec *record.Record, specs []record.Spec) bool {
	for i := range specs {
		if i == len(rec.Limits) || rec.Limits[i].ID != specs[i].ID {
			return false
		}
	}
	return true
}

// TestRefusalEnds: whoever asks otherwise, or when it may be over, is not told that he is refused.
func TestRefusalEnds(t *testing.T) {
	t.Parallel()
	b := inRun(t)
	n := amounts(1, 0, 41)
	b.specs, b.rec.Limits = b.specs[:1:1], b.rec.Limits[:1] // a bucket drains: see below
	b.rec.FlushRun()
	n[0] = 81
	var out [record.MaxLimits]record.Result
	at, after, ok := record.DecidePlain(b.rec, b.specs, &n, 0, b.now, out[:])
	f := b.rec.Refusal(b.specs, &n, 0, at, after, out[:])
	if !ok || after <= 0 || f == nil {
		t.Fatal(ok, after, f)
	}
	// a minute and the margin after the first take; and after the last that joined it
	first, end := epoch+10+sec+mnt, at+after
	for name, c := range map[string]struct {
		specs []record.Spec
		n     record.Amounts
		prio  int8
		now   int64
		out   int
		ok    bool
	}{
		"the same":       {b.specs, n, 0, b.now, 6, true},
		"later":          {b.specs, n, 0, first - 1, 6, true},
		"before it":      {b.specs, n, 0, b.now - hour, 6, true},
		"over":           {b.specs, n, 0, end, 6, false},
		"another number": {b.specs, amounts(80), 0, b.now, 6, false},
		"a priority":     {b.specs, n, 1, b.now, 6, false},
		"another policy": {append([]record.Spec(nil), b.specs...), n, 0, b.now, 6, false},
		"no room":        {b.specs, n, 0, b.now, 0, false},
	} {
		got, wait, ok := f.Again(c.specs, &c.n, c.prio, c.now, out[:c.out])
		if ok != c.ok || ok && (got != max(c.now, at) || wait != end-got || out[0].RetryAfter != wait ||
			out[0].Remaining != 80) {
			t.Errorf("%s: %v at %d, wait %d, %+v", name, ok, got-epoch, wait, out[0])
		}
	}
	b = inRun(t)
	n = amounts(0, 61, 0)
	at, after, ok = record.DecidePlain(b.rec, b.specs, &n, 0, b.now, out[:])
	if f := b.rec.Refusal(b.specs, &n, 0, at, after, out[:]); !ok || after <= 0 || f != nil {
		t.Errorf("a bucket drains all the time: %v %d %v", ok, after, f)
	}
}

// TestRefusalAtEdges: near a window's end a unit counts in the next one too, and of a limit that is
// not used it is said that it will be so from now on.
func TestRefusalAtEdges(t *testing.T) {
	t.Parallel()
	var out [record.MaxLimits]record.Result
	refusal := func(b *bucket, n record.Amounts) *record.Refusal {
		t.Helper()
		at, after, ok := record.DecidePlain(b.rec, b.specs, &n, 0, b.now, out[:])
		if !ok || after == 0 {
			t.Fatal("not refused:", ok, after)
		}
		return b.rec.Refusal(b.specs, &n, 0, at, after, out[:])
	}
	b := newBucket(t, drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Minute, Amount: 5, Margin: dur(sec)})
	n := amounts(1)
	b.allow(5)
	for _, span := range [][2]int64{{0, mnt - sec}, {mnt - sec, mnt}} {
		b.now = epoch + span[0]
		f := refusal(b, n)
		for at, want := range map[int64]bool{span[0]: true, span[1] - 1: true, span[1]: false} {
			if _, after, ok := f.Again(b.specs, &n, 0, epoch+at, out[:]); ok != want || ok && after != mnt-at {
				t.Errorf("refused at %d: %v at %d, wait %d", span[0], ok, at, after)
			}
		}
	}
	for name, f := range map[string]func(b *bucket){
		"over": func(b *bucket) { b.now += mnt },
		"given back": func(b *bucket) {
			record.Refund([]record.Ask{{Rec: b.rec, Specs: b.specs, N: amounts(1)}}, 0,
				b.now)
		},
	} {
		b := newBucket(t, drawgate.Limit{Kind: drawgate.Rolling, Window: dur(mnt), Amount: 5},
			drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 5})
		b.allow(1, 5)
		f(b)
		if refusal(b, amounts(0, 1)) != nil {
			t.Errorf("%s: what is said of a limit that is not used would not stay so", name)
		}
	}
}
