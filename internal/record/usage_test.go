package record_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// TestUsableToTheLimit: under a steady demand of several times the limit nearly all of what it
// allows is granted: 99.9 % where nothing is counted together, otherwise 99 %, of amount per window
// and margin.
// req: A5, E10
func TestUsableToTheLimit(t *testing.T) {
	t.Parallel()
	rolling := func(precision int, amount, margin int64) drawgate.Limit {
		return drawgate.Limit{
			Kind: drawgate.Rolling, Window: dur(mnt), Precision: precision, Amount: amount,
			Margin: dur(margin),
		}
	}
	for name, c := range map[string]struct {
		l     drawgate.Limit
		share float64
	}{
		"rolling exact":              {rolling(drawgate.Exact, 1000, 0), 0.999},
		"rolling exact, few":         {rolling(drawgate.Exact, 7, 0), 0.999},
		"rolling exact, margin":      {rolling(drawgate.Exact, 1000, 2*sec), 0.999},
		"rolling joined 100":         {rolling(100, 1000, 0), 0.99},
		"rolling joined 128, margin": {rolling(0, 1000, 2*sec), 0.99},
		"rolling joined 10000":       {rolling(10_000, 1000, 0), 0.999},
		"rolling joined, few":        {rolling(100, 7, 0), 0.99},
		"bucket": {
			drawgate.Limit{Kind: drawgate.Bucket, Window: dur(mnt), Amount: 1000, Burst: 20},
			0.999,
		},
		"bucket, no common divisor": {
			drawgate.Limit{Kind: drawgate.Bucket, Window: dur(mnt), Amount: 997, Burst: 3},
			0.999,
		},
		"calendar": {
			drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Minute, Amount: 1000},
			0.999,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const windows = 40
			d, b := newDice(1), newBucket(t, c.l)
			per := mnt + c.l.Margin.Microseconds()
			gap := per / 1000 / 4 // four takes for each unit
			granted := int64(0)
			for b.now < epoch+windows*per {
				if b.allow(1) {
					granted++
				}
				b.now += d.between(0, 2*gap)
			}
			if most := c.l.Amount * windows; float64(granted) < c.share*float64(most) {
				t.Errorf("%d granted in %d windows of %d, less than %.1f %%", granted, windows, c.l.Amount, 100*c.share)
			}
		})
	}
}

// TestUsableWithRetryAfter: a caller that sleeps exactly as long as it is told gets all that the
// limit allows.
// req: A5
func TestUsableWithRetryAfter(t *testing.T) {
	t.Parallel()
	for name, f := range families {
		if name == "concurrency" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(scale(50)) {
				l := f(newDice(seed))
				l.ReservedByPriority, l.Margin, l.Headroom = nil, 0, drawgate.Share{}
				b := newBucket(t, l)
				for range 500 {
					for b.allow(1) {
					}
					v, _ := b.take(record.Take{}, 1)
					b.now += v.RetryAfter
					if !b.allow(1) {
						t.Fatalf("seed %d: %+v: refused after its own retry-after of %d", seed, l, v.RetryAfter)
					}
				}
				if l.Kind == drawgate.Bucket && b.used(0).Used < l.Burst {
					t.Fatalf("seed %d: %+v: only %d used", seed, l, b.used(0).Used)
				}
			}
		})
	}
}

// TestWaitIsExact probes refused takes: refused at every probed instant before retry-after, granted
// at it, and never before earliest whatever is given back.
// req: A6, B7
func TestWaitIsExact(t *testing.T) {
	t.Parallel()
	for name, f := range families {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused := 0
			for seed := range uint64(scale(3000)) {
				d := newDice(seed)
				l := f(d)
				s := newStorm(t, seed+1_000_000, func(chooser) drawgate.Limit { return l })
				for range 30 {
					s.pass()
					if msg := s.take(); msg != "" {
						t.Fatalf("seed %d: %s", seed, msg)
					}
				}
				n := d.between(1, s.spec.Effective[0]+1)
				b := &bucket{rec: s.rec, specs: []record.Spec{s.spec}, now: s.rec.Last}
				v, _ := b.peek(n)
				if v.Allowed || v.RetryAfter == record.Never {
					continue
				}
				refused++
				for _, dt := range probes(d, v.RetryAfter) {
					b.now = v.Now + dt
					if w, _ := b.peek(n); w.Allowed != (dt >= v.RetryAfter) ||
						w.Now+w.RetryAfter != v.Now+v.RetryAfter {
						t.Fatalf("seed %d: %+v: retry after %d; %d µs later %+v", seed, l, v.RetryAfter, dt, w)
					}
				}
				if w, _ := b.take(record.Take{ID: "x", Hold: 1}, n); !w.Allowed {
					t.Fatalf("seed %d: %+v: refused at retry-after: %+v", seed, l, w)
				}
			}
			if refused < scale(300) {
				t.Errorf("only %d refusals", refused)
			}
		})
	}
}

// probes returns some waits up to r, in order, r the last.
func probes(d dice, r int64) []int64 {
	p := []int64{0, d.between(0, r/2), r/2 + d.between(0, r/3), r - 1, r}
	if p[2] > p[3] {
		p[2] = p[3]
	}
	return p
}

// TestEarliestRetryIsALowerBound gives everything back at once: nothing fits before earliest.
func TestEarliestRetryIsALowerBound(t *testing.T) {
	t.Parallel()
	for name, f := range families {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(scale(3000)) {
				d := newDice(seed)
				l := f(d)
				s := newStorm(t, seed, func(chooser) drawgate.Limit { return l })
				for range 30 {
					s.pass()
					if msg := s.take(); msg != "" {
						t.Fatalf("seed %d: %s", seed, msg)
					}
				}
				n := d.between(1, max(1, s.spec.Effective[0]))
				b := &bucket{rec: s.rec, specs: []record.Spec{s.spec}, now: s.rec.Last}
				v, _ := b.peek(n)
				for id := range b.rec.Open {
					b.cancel(id)
				}
				if w, _ := b.peek(n); v.EarliestRetry > w.RetryAfter || v.EarliestRetry > v.RetryAfter {
					t.Fatalf("seed %d: %+v: earliest %d, retry after %d; all given back: retry after %d", seed, l,
						v.EarliestRetry, v.RetryAfter, w.RetryAfter)
				}
			}
		})
	}
}

// TestRefusalChangesNothing plays a script on two records, one of which never sees the takes that
// are refused: every later answer is the same.
// req: A2
func TestRefusalChangesNothing(t *testing.T) {
	t.Parallel()
	for name, f := range families {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(scale(1000)) {
				d := newDice(seed)
				l := f(d)
				a, b := newBucket(t, l), newBucket(t, l)
				for step := range 80 {
					a.now += d.upTo(spanOf(l) / 8)
					b.now = a.now
					n := d.between(1, a.specs[0].Effective[9])
					tk := record.Take{Priority: int8(d.IntN(10))}
					if d.one(2) || l.Kind == drawgate.Concurrency {
						tk.ID, tk.Hold = string(rune('a'+step)), d.between(1, spanOf(l))
					}
					v, out := a.take(tk, n)
					if !v.Allowed {
						continue
					}
					if w, other := b.take(tk, n); !cmp.Equal(w, v) || other != out {
						t.Fatalf("seed %d, step %d: %+v %v with refusals, %+v %v without", seed, step, v, out, w, other)
					}
					if d.one(3) && tk.ID != "" {
						k := d.between(0, n)
						a.settle(tk.ID, k)
						b.settle(tk.ID, k)
					}
				}
			}
		})
	}
}
