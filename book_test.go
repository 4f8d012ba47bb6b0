package drawgate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
)

// TestSmallBurstsAreUsed: of a bucket with a burst of one unit nothing is lost while callers wait,
// though every timer of theirs is 2 ms late.
// req: A5
func TestSmallBurstsAreUsed(t *testing.T) {
	t.Parallel()
	for _, rate := range []int64{40, 100, 300} {
		for _, waiters := range []int{1, 10} {
			t.Run(fmt.Sprintf("%d/s/%d waiters", rate, waiters), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					l := local(t, drawgate.Rate("rate", rate, time.Second, 1))
					l.WakeLate(2 * time.Millisecond)
					const span = 20 * time.Second
					ctx, cancel := context.WithTimeout(t.Context(), span)
					defer cancel()
					start := time.Now()
					var mu sync.Mutex
					var started []time.Duration
					var group sync.WaitGroup
					for range waiters {
						group.Go(func() {
							for {
								if _, err := l.Wait(ctx, "k"); err != nil {
									return
								}
								mu.Lock()
								started = append(started, time.Since(start))
								mu.Unlock()
							}
						})
					}
					group.Wait()
					allowed := rate*int64(span/time.Second) + 1
					if n := int64(len(started)); n < allowed*99/100 || n > allowed {
						t.Errorf("%d of %d units used", n, allowed)
					}
				})
			})
		}
	}
}

// booked is a take that starts at an instant.
type booked struct {
	at   time.Time
	n    int64
	over *drawgate.Booking
}

// TestBookingsStayWithin what each kind of limit admits, counted at the instants that were booked:
// random histories of bookings, cancellations, takes and waits, against the sum over every
// interval.
func TestBookingsStayWithin(t *testing.T) {
	needs.NoRace(t) // random histories; other tests book at once
	t.Parallel()
	for name, limit := range map[string]drawgate.Limit{
		"bucket":   leaky(7, time.Second, 3),
		"rolling":  rolling(5, 2*time.Second),
		"calendar": {Name: "m", Kind: drawgate.Calendar, Every: drawgate.Minute, Amount: 40},
	} {
		for seed := range uint64(needs.Rounds(10, 40, 40)) {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { bookAtRandom(t, limit, seed) })
			})
		}
	}
}

func bookAtRandom(t *testing.T, limit drawgate.Limit, seed uint64) {
	t.Helper()
	l, dice := local(t, policy(limit)), rand.New(rand.NewPCG(seed, 9))
	var mu sync.Mutex
	var all []*booked
	note := func(at time.Time, n int64, b *drawgate.Booking) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, &booked{at, n, b})
	}
	var group sync.WaitGroup
	for range 300 {
		time.Sleep(time.Duration(dice.Int64N(int64(400 * time.Millisecond))))
		n := 1 + dice.Int64N(3)
		cost, delay := drawgate.Cost{N: n}, time.Duration(dice.Int64N(int64(3*time.Second)))
		switch dice.IntN(8) {
		case 0, 1, 2, 3:
			b, err := l.Book(t.Context(), "k", delay, cost)
			if _, refused := errors.AsType[*drawgate.LimitedError](err); err != nil && !refused {
				t.Fatal(err)
			}
			if err == nil {
				if b.Delay() > delay {
					t.Errorf("booked %v ahead, at most %v were asked for", b.Delay(), delay)
				}
				note(b.Decision.At().Add(b.Decision.Delay()), n, b)
			}
		case 4:
			if d, err := l.Allow(t.Context(), "k", cost); err == nil && d.Allowed {
				note(d.At(), n, nil)
			}
		case 5:
			ctx, cancel := context.WithTimeout(t.Context(), delay)
			group.Go(func() {
				defer cancel()
				if d, err := l.Wait(ctx, "k", cost); err == nil {
					note(d.At().Add(d.Delay()), n, nil)
				}
			})
		default:
			mu.Lock()
			i := dice.IntN(len(all) + 1)
			var b *booked
			if i < len(all) {
				b = all[i]
			}
			mu.Unlock()
			if b == nil || b.over == nil {
				continue
			}
			started := b.over.Delay() == 0
			err := b.over.Cancel(t.Context())
			if err == nil {
				b.n = 0
			}
			if started && !errors.Is(err, drawgate.ErrGone) {
				t.Errorf("cancelled after its start: %v", err)
			}
		}
	}
	group.Wait()
	total, ahead := int64(0), 0
	for _, from := range all {
		total += from.n
		if from.over != nil && from.over.Decision.Delay() > 0 {
			ahead++
		}
		for _, to := range all {
			if to.at.Before(from.at) {
				continue
			}
			var sum, most int64
			for _, b := range all {
				if !b.at.Before(from.at) && !b.at.After(to.at) {
					sum += b.n
				}
			}
			span := to.at.Sub(from.at)
			switch limit.Kind {
			case drawgate.Bucket:
				most = limit.Burst + int64(span)*limit.Amount/int64(limit.Window)
			case drawgate.Rolling:
				if span >= limit.Window {
					continue
				}
				most = limit.Amount
			default:
				if to.at.Truncate(time.Minute) != from.at.Truncate(time.Minute) {
					continue
				}
				most = limit.Amount
			}
			if sum > most {
				t.Fatalf("%d units in %v, at most %d are allowed", sum, span, most)
			}
		}
	}
	if total < 30 || ahead == 0 && limit.Kind != drawgate.Calendar { // most minutes are not used up
		t.Errorf("%d units, %d bookings ahead: it shows too little", total, ahead)
	}
}

// TestBook says what it does at its edges.
func TestBook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.Rate("rate", 1, time.Second, 1))
		for i := range 3 {
			b, err := l.Book(t.Context(), "k", 2*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := b.Delay().Round(time.Millisecond), time.Duration(i)*time.Second; got != want {
				t.Errorf("booking %d: in %v, want %v", i, got, want)
			}
			if i == 2 {
				if err := b.Cancel(t.Context()); err != nil {
					t.Error(err)
				}
				wantErr(t, b.Cancel(t.Context()), drawgate.ErrGone)
			}
		}
		if _, err := l.Book(t.Context(), "k", 1500*time.Millisecond); err == nil {
			t.Error("booked further ahead than asked")
		} else {
			wantErr(t, err, drawgate.ErrLimited)
		}
		if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed {
			t.Errorf("what is booked is free: %v, %v", d.Allowed, err)
		}
		for name, c := range map[string]struct {
			f    func() error
			want error
		}{
			"too long": {
				func() error { _, err := l.Book(t.Context(), "k", drawgate.MaxHold+1); return err },
				drawgate.ErrInvalid,
			},
			"negative": {func() error { _, err := l.Book(t.Context(), "k", -1); return err }, drawgate.ErrInvalid},
			"never": {
				func() error { _, err := l.Book(t.Context(), "k", 0, drawgate.Cost{N: 2}); return err },
				drawgate.ErrNeverFits,
			},
			"slots": {func() error {
				_, err := local(t, policy(slots(1))).Book(t.Context(), "k", 0, drawgate.Cost{Unit: "slots", N: 1})
				return err
			}, drawgate.ErrNeedsReserve},
		} {
			t.Log(name)
			wantErr(t, c.f(), c.want)
		}
	})
}

// TestAShortHoldCountsOnce: a reservation whose answer was lost is not taken again after its hold:
// one too short for that is given back, the other is found.
func TestAShortHoldCountsOnce(t *testing.T) {
	t.Parallel()
	for _, hold := range []time.Duration{time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := remote(t)
			l := over(t, s, policy(rolling(10, time.Minute)))
			s.script(0, drops)
			_, err := l.Reserve(t.Context(), "k", hold, drawgate.Requests(3))
			lost, takes, used := hold < time.Second, int64(2), int64(3)
			if lost {
				takes, used = 1, 0
			}
			if lost != errors.Is(err, drawgate.ErrStoreUnavailable) || s.takes.Load() != takes {
				t.Errorf("held for %v: %v after %d takes, want %d", hold, err, s.takes.Load(), takes)
			}
			synctest.Wait() // for the cancellation, which nobody waits for
			wantUsed(t, l, "k", used)
		})
	}
}

// TestABookingWhoseAnswerIsLostCountsOnce: it is sent again, and is the same booking, also if it is
// for now.
func TestABookingWhoseAnswerIsLostCountsOnce(t *testing.T) {
	t.Parallel()
	for _, taken := range []int64{0, 10} {
		synctest.Test(t, func(t *testing.T) {
			s := remote(t)
			l := over(t, s, policy(rolling(10, time.Second)))
			if taken != 0 {
				take(t, l, "k", taken)
			}
			s.script(0, drops)
			if _, err := l.Book(t.Context(), "k", time.Minute, drawgate.Requests(3)); err != nil {
				t.Fatal(err)
			}
			wantUsed(t, l, "k", taken+3)
		})
	}
}
