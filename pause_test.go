package drawgate_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
)

// TestPause stops takes, and nothing else, until it ends by itself or by a reset.
func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.Rate("rate", 10, time.Second, 10)) // of the form that is decided by a word
		same, err := l.With(l.Plan().Policy())
		if err != nil {
			t.Fatal(err)
		}
		take(t, l, "k", 1)
		res := reserve(t, l, drawgate.Request{
			Buckets: []drawgate.Ask{l.Ask("k")},
			Hold:    drawgate.Hold{For: time.Minute},
		})
		if err := l.Pause(t.Context(), "k", 30*time.Second, "the provider said 429"); err != nil {
			t.Fatal(err)
		}
		for _, l := range []*drawgate.Limiter{l, same} {
			d, err := l.Allow(t.Context(), "k")
			if err != nil || d.Allowed || d.Reason != drawgate.Paused || d.RetryAfter != 30*time.Second {
				t.Errorf("allowed %v, %v, retry after %v: %v", d.Allowed, d.Reason, d.RetryAfter, err)
			}
			if err := d.Err(); !strings.Contains(err.Error(), "is paused") {
				t.Error(err)
			}
		}
		if d, err := l.Allow(t.Context(), "other"); err != nil || !d.Allowed {
			t.Error("another key is paused, too")
		}
		if st, err := l.Status(t.Context(), "k"); err != nil || st.Pause.Reason != "the provider said 429" ||
			st.Pause.Until.Sub(st.At()) != 30*time.Second || st.Allowed {
			t.Errorf("%+v, %v", st.Pause, err)
		}
		// it stays paused for as long as it was
		if err := l.Pause(t.Context(), "k", time.Second, "shorter"); err != nil {
			t.Error(err)
		}
		if err := res.Renew(t.Context(), time.Hour); err != nil {
			t.Error("a renewal is no take:", err)
		}
		if err := res.Settle(t.Context(), drawgate.Cost{N: 1}); err != nil {
			t.Error("a settlement is no take:", err)
		}
		start := time.Now()
		if _, err := l.Wait(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		wantTook(t, start, 30*time.Second-time.Microsecond, time.Second)

		if _, err := l.Ask("k").Pause(t.Context(), drawgate.Pause{Until: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		take(t, l, "k", 10)

		// Of several buckets the one that is paused is named, and waited for.
		other := with(t, l, drawgate.PerMinute("other", 5))
		if err := other.Pause(t.Context(), "k", 10*time.Second, ""); err != nil {
			t.Fatal(err)
		}
		both := drawgate.Request{Buckets: []drawgate.Ask{l.Ask("free"), other.Ask("k")}}
		d, _, err := l.Take(t.Context(), both)
		if e, ok := errors.AsType[*drawgate.LimitedError](d.Err()); err != nil || !ok || e.Policy != "other" ||
			e.Limit != "" || e.RetryAfter != 10*time.Second {
			t.Errorf("%v, %v", d.Err(), err)
		}
		start = time.Now()
		both.Wait = true
		if _, _, err := l.Take(t.Context(), both); err != nil {
			t.Error(err)
		}
		wantTook(t, start, 10*time.Second-time.Microsecond, time.Second)

		asked := remote(t) // a store that is asked seldom meanwhile
		l = over(t, asked, drawgate.PerMinute("minute", 5))
		if err := l.Pause(t.Context(), "k", time.Minute, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Wait(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		if n := asked.takes.Load(); n > 15 {
			t.Errorf("asked %d times during a pause", n)
		}
		l = local(t, drawgate.PerMinute("minute", 5))

		wantErr(t, l.Pause(t.Context(), "k", 0, ""), drawgate.ErrInvalid)
		for _, p := range []drawgate.Pause{
			{},
			{Until: time.Now()},
			{For: time.Minute, Until: time.Now().Add(time.Minute)},
			{For: drawgate.MaxHold + 1},
		} {
			_, err := l.Ask("k").Pause(t.Context(), p)
			wantErr(t, err, drawgate.ErrInvalid)
		}
		wantErr(t, l.Pause(t.Context(), "k", time.Second, strings.Repeat("x", 257)), drawgate.ErrInvalid)
		if _, err := l.Book(t.Context(), "k", time.Hour); err != nil { // a booking is a take
			t.Error(err)
		}
	})
}

// TestUnpause ends the pause whose end it names, and no other. What was used still counts. Who
// waits is granted at once in this process, and soon in another one.
//
// req: A1
func TestUnpause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := remote(t) // it gives no hints
		l := over(t, shared, drawgate.PerHour("hour", 3))
		other := over(t, shared, drawgate.PerHour("hour", 3)) // of another process
		take(t, l, "k", 1)
		month := 31 * 24 * time.Hour
		if err := l.Pause(t.Context(), "k", month, "a typo"); err != nil {
			t.Fatal(err)
		}
		out, err := l.Ask("k").Pause(t.Context(), drawgate.Pause{For: time.Minute, Reason: "shorter"})
		if err != nil || !out.Kept || !out.Until.Equal(time.Now().Add(month)) {
			t.Errorf("a shorter pause: %+v, %v; want that it changed nothing", out, err)
		}
		took := make(chan time.Duration, 2)
		start := time.Now()
		for _, l := range []*drawgate.Limiter{l, other} {
			go func() {
				if _, err := l.Wait(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				took <- time.Since(start)
			}()
		}
		time.Sleep(12 * time.Second)
		st, err := l.Status(t.Context(), "k")
		if err != nil || st.Pause.Reason != "a typo" {
			t.Fatalf("%+v, %v", st.Pause, err)
		}
		for _, end := range []time.Time{st.Pause.Until.Add(-time.Second), time.Now()} {
			if left, err := l.Unpause(t.Context(), "k", end, ""); err != nil || !left.Equal(st.Pause.Until) {
				t.Errorf("another pause: %v is left, %v; want %v", left, err, st.Pause.Until)
			}
		}
		for range 2 {
			if left, err := l.Unpause(t.Context(), "k", st.Pause.Until, "it was a typo"); err != nil || !left.IsZero() {
				t.Errorf("its own pause: %v is left, %v; want none", left, err)
			}
		}
		if mine := <-took; mine != 12*time.Second {
			t.Errorf("who waits in this process was granted after %v, want 12s", mine)
		}
		if theirs := <-took; theirs != 15*time.Second {
			t.Errorf("who waits in another process was granted after %v, want 15s: it looks every five seconds", theirs)
		}
		if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed {
			t.Errorf("more than the limit: allowed %v, %v", d.Allowed, err)
		}

		_, err = l.Unpause(t.Context(), "k", time.Time{}, "")
		wantErr(t, err, drawgate.ErrInvalid)
		_, err = l.Unpause(t.Context(), "k", time.Now(), strings.Repeat("x", 257))
		wantErr(t, err, drawgate.ErrInvalid)
	})
}
