package guard_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// pause pauses a bucket for so long, and returns the end.
func pause(t *testing.T, s store.Store, plan *store.Plan, d time.Duration) time.Time {
	t.Helper()
	var out [1]store.Outcome
	st := store.Settlement{
		Op: store.OpPause, Hold: d, Reason: "the upstream said 429",
		Buckets: []store.BucketCost{cost(plan, "k")},
	}
	if err := s.Settle(t.Context(), []store.Settlement{st}, out[:]); err != nil || out[0].Err != nil {
		t.Fatal(err, out[0].Err)
	}
	return out[0].End
}

func look(t *testing.T, s store.Store, plan *store.Plan) store.State {
	t.Helper()
	var out [1]store.State
	if err := s.Peek(t.Context(), []store.BucketCost{cost(plan, "k")}, 0, out[:]); err != nil || out[0].Fail != nil {
		t.Fatal(err, out[0].Fail)
	}
	return out[0]
}

// wantPaused fails unless a take is refused because of a pause until then, by the guard (here) or
// the store.
func wantPaused(t *testing.T, s store.Store, plan *store.Plan, until time.Time, here bool) {
	t.Helper()
	d := take(t, s, plan, "k", 1)
	if d.Allowed || d.Reason != store.Paused || d.Fallback != here || !d.At().Add(d.RetryAfter).Equal(until) {
		t.Errorf("allowed %v, reason %v, fallback %v, until %v, want a pause until %v", d.Allowed, d.Reason, d.Fallback,
			d.At().Add(d.RetryAfter), until)
	}
}

// TestPausesAreHonoured: pauses hold during an outage, whatever the fallback: those that this
// process set, and those that it learned from the store's answers. Takes are refused until the
// pause ends; holds can be settled.
func TestPausesAreHonoured(t *testing.T) {
	t.Parallel()
	for _, fallback := range []drawgate.Fallback{
		drawgate.FallbackClosed, drawgate.FallbackShare,
		drawgate.FallbackOpen,
	} {
		for _, learned := range []string{"made", "take", "look"} {
			bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
				plan := policy(t, fallback, rolling(100, time.Hour))
				hold(t, g, "id", time.Hour, plan, "k", 1)
				by := inner.Store // somebody else
				if learned == "made" {
					by = g
				}
				until := pause(t, by, plan, time.Minute)
				switch learned {
				case "take":
					wantPaused(t, g, plan, until, false)
				case "look":
					look(t, g, plan)
				}
				inner.set(refuses)
				wantPaused(t, g, plan, until, true)
				if st := look(t, g, plan); !st.Pause.Until.Equal(until) || st.Allowed || st.Reason != store.Paused {
					t.Errorf("a look says %+v, want a pause until %v", st.Pause, until)
				}
				if o := end(t, g, store.OpSettle, "id", plan, "k", 1); o.Err != nil || o.Gone {
					t.Errorf("settled while paused: %+v", o)
				}
				time.Sleep(time.Minute)
				if d := take(t, g, plan, "k", 1); d.Allowed != (fallback != drawgate.FallbackClosed) ||
					d.Reason == store.Paused {
					t.Errorf("after the pause: allowed %v, reason %v", d.Allowed, d.Reason)
				}
			})
		}
	}
}

// TestAPauseMadeWhileTheStoreIsUnavailable: it is delivered before the store decides again.
func TestAPauseMadeWhileTheStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, m := range []mood{refuses, mute, stalls} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, store *faulty) {
			plan := policy(t, 0, rolling(100, time.Hour), slots(5))
			store.set(m)
			if d := hold(t, g, "id", time.Hour, plan, "k", 1, 1); !d.Allowed {
				t.Fatal("refused")
			}
			until := pause(t, g, plan, time.Minute)
			if later := pause(t, g, plan, time.Second); !later.Equal(until) {
				t.Errorf("a shorter pause ends the longer one: %v, want %v", later, until)
			}
			wantPaused(t, g, plan, until, true)
			if d := hold(t, g, "id", time.Hour, plan, "k", 1, 1); !d.Allowed || !d.Replayed {
				t.Errorf("a replay is refused: allowed %v, replayed %v", d.Allowed, d.Replayed)
			}
			store.set(well)
			for g.State().Unavailable {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(5 * time.Second)
			if st := look(t, store.Store, plan); !st.Pause.Until.Equal(until) ||
				st.Pause.Reason != "the upstream said 429" {
				t.Errorf("the store knows of %+v, want a pause until %v", st.Pause, until)
			}
			time.Sleep(2 * time.Minute)
			wantBack(t, g, 2*time.Second)
			if got := used(t, store.Store, plan, "k"); got[1] != 1 {
				t.Errorf("%v used after the pause, want the slot that was given meanwhile", got)
			}
			if d := take(t, g, plan, "k", 1); !d.Allowed || d.Fallback {
				t.Errorf("after the pause: allowed %v, fallback %v", d.Allowed, d.Fallback)
			}
		})
	}
}

// TestAResetEndsAPause: in the guard too, and so does an answer of the store without a pause.
func TestAResetEndsAPause(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"reset", "look", "take"} {
		synctest.Test(t, func(t *testing.T) {
			mem := memstore.New(nil)
			inner := &faulty{Store: mem}
			g := guarded(t, struct {
				*faulty
				store.Resetter
			}{inner, mem}, full(1))
			plan := policy(t, 0, rolling(100, time.Hour))
			pause(t, g, plan, time.Minute)
			keys := []store.Key{cost(plan, "k").Key}
			time.Sleep(time.Millisecond)
			switch by {
			case "reset":
				if err := g.Full().(store.Resetter).Reset(t.Context(), keys); err != nil {
					t.Fatal(err)
				}
			default:
				if err := mem.Reset(t.Context(), keys); err != nil { // somebody else
					t.Fatal(err)
				}
				if by == "look" {
					look(t, g, plan)
				} else {
					take(t, g, plan, "k", 1)
				}
			}
			inner.set(refuses)
			if d := take(t, g, plan, "k", 1); !d.Allowed || !d.Fallback {
				t.Errorf("%s: allowed %v, reason %v", by, d.Allowed, d.Reason)
			}
		})
	}
}

// TestNoRoomForAPause: it is an error, because the guard cannot keep the pause.
func TestNoRoomForAPause(t *testing.T) {
	t.Parallel()
	bubble(t, &guard.Options{Instances: 1, Start: drawgate.StartFull, MaxBuckets: 1},
		func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(10, time.Hour))
			take(t, g, plan, "other", 1)
			inner.set(refuses)
			st := store.Settlement{Op: store.OpPause, Hold: time.Minute, Buckets: []store.BucketCost{cost(plan, "k")}}
			var out [1]store.Outcome
			if err := g.Settle(t.Context(), []store.Settlement{st}, out[:]); err != nil ||
				!errors.Is(out[0].Err, store.ErrStoreUnavailable) {
				t.Errorf("%v, %v, want the store's failure", err, out[0].Err)
			}
		})
}

// TestUnitsThatWereBookedAheadCountFromTheirInstant: they do not leave their window in the guard
// before they do in the store.
func TestUnitsThatWereBookedAheadCountFromTheirInstant(t *testing.T) {
	t.Parallel()
	for _, l := range []drawgate.Limit{
		rolling(1, time.Minute), leaky(1, time.Minute, 0),
		{Kind: drawgate.Calendar, Amount: 1, Every: drawgate.Minute},
	} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, l)
			take(t, g, plan, "k", 1)
			d := send(t, g, store.Take{Buckets: []store.BucketCost{cost(plan, "k", 1)}, Ahead: 2 * time.Minute})
			if !d.Allowed || d.Delay() == 0 {
				t.Fatalf("%v: allowed %v, with a delay of %v, want to be booked", l.Kind, d.Allowed, d.Delay())
			}
			inner.set(refuses)
			time.Sleep(d.Delay() + time.Minute - 2*time.Second)
			if take(t, g, plan, "k", 1).Allowed {
				t.Errorf("%v: allowed within a minute of what was booked", l.Kind)
			}
			time.Sleep(4 * time.Second)
			if !take(t, g, plan, "k", 1).Allowed {
				t.Errorf("%v: refused a minute after what was booked", l.Kind)
			}
		})
	}
}

// unpause ends the pause that ends at until, and returns the end of the pause that is left.
func unpause(t *testing.T, s store.Store, plan *store.Plan, until time.Time) time.Time {
	t.Helper()
	var out [1]store.Outcome
	st := store.Settlement{
		Op: store.OpUnpause, At: until, Reason: "a mistake",
		Buckets: []store.BucketCost{cost(plan, "k")},
	}
	if err := s.Settle(t.Context(), []store.Settlement{st}, out[:]); err != nil || out[0].Err != nil {
		t.Fatal(err, out[0].Err)
	}
	return out[0].End
}

// TestAPauseIsEndedWhileTheStoreIsUnavailable: in this process at once, at the store when it is
// back. A pause that somebody else made at the store meanwhile stays, and so does the same pause if
// it is made again.
func TestAPauseIsEndedWhileTheStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, m := range []mood{refuses, mute, stalls} {
		for _, when := range []string{"before the outage", "in the outage", "replaced meanwhile", "made again"} {
			bubble(t, full(1), func(t *testing.T, g *guard.Store, store *faulty) {
				plan := policy(t, 0, rolling(100, time.Hour))
				take(t, g, plan, "k", 1)
				if when == "in the outage" || when == "made again" {
					store.set(m)
				}
				until := pause(t, g, plan, time.Hour)
				store.set(m)
				wantPaused(t, g, plan, until, true)
				if left := unpause(t, g, plan, until.Add(time.Microsecond)); !left.Equal(until) {
					t.Errorf("%s: another end: the pause until %v is left, want %v", when, left, until)
				}
				wantPaused(t, g, plan, until, true)
				if left := unpause(t, g, plan, until); !left.IsZero() {
					t.Errorf("%s: paused until %v, want no pause", when, left)
				}
				if d := take(t, g, plan, "k", 1); !d.Allowed || !d.Fallback {
					t.Errorf("%s: allowed %v, reason %v, want it allowed here", when, d.Allowed, d.Reason)
				}
				var want time.Time
				switch when {
				case "replaced meanwhile":
					want = pause(t, store.Store, plan, 2*time.Hour)
				case "made again":
					want = pause(t, g, plan, time.Until(until))
					if !want.Equal(until) {
						t.Fatalf("paused until %v, want %v", want, until)
					}
				}
				store.set(well)
				for g.State().Unavailable {
					time.Sleep(time.Millisecond)
				}
				time.Sleep(5 * time.Second)
				if st := look(t, store.Store, plan); !st.Pause.Until.Equal(want) {
					t.Errorf("%s: the store knows of a pause until %v, want %v", when, st.Pause.Until, want)
				}
				if d := take(t, g, plan, "k", 1); d.Allowed != want.IsZero() || d.Fallback {
					t.Errorf("%s: allowed %v, fallback %v", when, d.Allowed, d.Fallback)
				}
			})
		}
	}
}

// TestUnpauseIsRemembered: a pause that was ended at the store does not come back in an outage.
func TestUnpauseIsRemembered(t *testing.T) {
	t.Parallel()
	bubble(t, full(1), func(t *testing.T, g *guard.Store, store *faulty) {
		plan := policy(t, 0, rolling(100, time.Hour))
		until := pause(t, g, plan, time.Hour)
		if left := unpause(t, g, plan, until); !left.IsZero() {
			t.Errorf("paused until %v, want no pause", left)
		}
		store.set(refuses)
		if d := take(t, g, plan, "k", 1); !d.Allowed || !d.Fallback {
			t.Errorf("allowed %v, reason %v, want it allowed here", d.Allowed, d.Reason)
		}
	})
}
