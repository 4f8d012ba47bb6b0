package outbox_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/internal/outbox"
)

var errLost = errors.New("lost")

// What has no room is not accepted; the rest is sent in order, one after the other. Flush waits for
// it, no longer than its context, and says how much was lost since the last Flush.
func TestOutbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent []int
		o := outbox.New(2, func(_ context.Context, i int) error {
			time.Sleep(time.Second)
			sent = append(sent, i)
			if i == 1 {
				return errLost
			}
			return nil
		})
		flush := func(ctx context.Context, lost int, err error) {
			t.Helper()
			if n, e := o.Flush(ctx); n != lost || !errors.Is(e, err) {
				t.Errorf("Flush: %d lost, %v, want %d, %v", n, e, lost, err)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		flush(ended, 0, nil) // nothing waits
		first, err := o.Add(0)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // it is being sent
		second, _ := o.Add(1)
		_, _ = o.Add(2)
		if s, err := o.Add(3); s != nil || !errors.Is(err, outbox.ErrFull) {
			t.Errorf("without room: %v, %v", s, err)
		}
		flush(ended, 0, context.Canceled)
		if ok, err := first.Wait(t.Context()); !ok || err != nil || o.Last() == nil {
			t.Errorf("the first: %v, %v", ok, err)
		}
		flush(t.Context(), 1, nil)
		if ok, err := second.Wait(ended); !ok || !errors.Is(err, errLost) || o.Last() != nil {
			t.Errorf("the second: %v, %v", ok, err)
		}
		flush(t.Context(), 0, nil)
		if lost, late := o.Close(ended); lost+late != 0 {
			t.Errorf("nothing waits, and Close says %d, %d", lost, late)
		}
		if _, err := o.Add(4); !errors.Is(err, outbox.ErrClosed) || !slices.Equal(sent, []int{0, 1, 2}) {
			t.Errorf("after Close: %v; sent were %v", err, sent)
		}
		flush(t.Context(), 0, nil)
	})
}

// Close goes on until its deadline, and says how many were lost, and how many because of it.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := outbox.New(10, func(ctx context.Context, i int) error {
			select {
			case <-time.After(2 * time.Second):
				if i == 1 {
					return errLost
				}
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		for i := range 5 {
			_, _ = o.Add(i)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		if lost, late := o.Close(ctx); lost != 4 || late != 3 || time.Since(start) != 5*time.Second {
			t.Errorf("%d lost, %d late, after %v; want 4, 3, 5 s", lost, late, time.Since(start))
		}
		if lost, late := o.Close(ctx); lost+late != 0 {
			t.Errorf("the second time: %d, %d", lost, late)
		}
	})
}

// Attempts end with the first that succeeds, whose failure is final or that is the last. Pauses
// double, with jitter; a receiver may ask for more, up to the maximum.
func TestRetry(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, c := range map[string]struct {
		after  []time.Duration // of attempts that fail; the next one succeeds
		least  []time.Duration // pauses
		result outbox.Result   // of the last attempt
	}{
		"at once": {nil, nil, outbox.Delivered},
		"in time": {[]time.Duration{0, 0, 0}, []time.Duration{s / 2, s, 2 * s}, outbox.Delivered},
		"asked":   {[]time.Duration{15 * s, time.Hour, 0}, []time.Duration{15 * s, 20 * s, 2 * s}, outbox.Delivered},
		"final":   {[]time.Duration{0, outbox.Never, 0}, []time.Duration{s / 2}, outbox.Rejected},
		"too late": {
			make([]time.Duration, 8), []time.Duration{s / 2, s, 2 * s, 4 * s, 8 * s, 10 * s, 10 * s}, outbox.GaveUp,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var at []time.Time
				results := map[outbox.Result]int{}
				r := outbox.Retry{MaxBackoff: 20 * s}.WithDefaults()
				err := r.Do(t.Context(), func(ctx context.Context) (time.Duration, error) {
					if d, ok := ctx.Deadline(); !ok || time.Until(d) != 5*s {
						t.Errorf("an attempt has until %v", d)
					}
					if at = append(at, time.Now()); len(at) > len(c.after) {
						return 0, nil
					}
					return c.after[len(at)-1], errLost
				}, func(r outbox.Result, _ error) { results[r]++ })
				want := map[outbox.Result]int{c.result: 1}
				if n := len(c.least); n > 0 {
					want[outbox.Retried] = n
				}
				if (err == nil) != (c.result == outbox.Delivered) || !maps.Equal(results, want) ||
					len(at) != len(c.least)+1 {
					t.Errorf("%v, %v after %d attempts, want %v", err, results, len(at), want)
				}
				for i, least := range c.least {
					if d := at[i+1].Sub(at[i]); d < least || d > max(3*least, 15*s) || d > 20*s {
						t.Errorf("pause %d is %v, want at least %v", i, d, least)
					}
				}
			})
		})
	}
}

// When the process ends, what is under way and what pauses is dropped.
func TestRetryEnds(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration][]outbox.Result{
		0:           {outbox.Retried, outbox.Dropped}, // it ends in the pause
		time.Minute: {outbox.Dropped},                 // it ends in the attempt
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
			defer cancel()
			var results []outbox.Result
			err := outbox.Retry{}.WithDefaults().Do(ctx, func(ctx context.Context) (time.Duration, error) {
				select {
				case <-ctx.Done():
				case <-time.After(took):
				}
				return 0, errLost
			}, func(r outbox.Result, _ error) { results = append(results, r) })
			if !errors.Is(err, errLost) || !slices.Equal(results, want) {
				t.Errorf("%v, %v, want %v", err, results, want)
			}
		})
	}
}
