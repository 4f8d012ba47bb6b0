package drawgate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
)

func tokens(n int64) drawgate.Cost { return drawgate.Cost{Unit: "tokens", N: n} }

func reserve(t *testing.T, l *drawgate.Limiter, r drawgate.Request) *drawgate.Reservation {
	t.Helper()
	r.Wait = true
	res, err := takeHeld(t.Context(), l, r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestReserve holds an estimate until it is settled, cancelled, or its hold ends. req: A1, A3, D5
func TestReserve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, policy(of("tokens", rolling(5000, time.Hour))))
		ctx := t.Context()
		res, err := l.Reserve(ctx, "k", time.Minute, tokens(3750))
		if err != nil || !res.Decision.Allowed || res.Decision.Remaining() != 1250 ||
			res.Decision.Granted(0)[0] != 3750 || res.ID() == "" {
			t.Fatalf("%+v, %v", res, err)
		}
		_, err = takeHeld(ctx, l, drawgate.Request{
			Buckets: []drawgate.Ask{l.Ask("k", tokens(1251))},
			Hold:    drawgate.Hold{For: time.Minute},
		})
		wantErr(t, err, drawgate.ErrLimited)
		if err := res.Settle(ctx, tokens(1000)); err != nil {
			t.Error(err)
		}
		wantUsed(t, l, "k", 1000)
		for range 2 { // a second one changes nothing
			wantErr(t, res.Settle(ctx, tokens(4000)), drawgate.ErrGone)
			wantErr(t, res.Cancel(ctx), drawgate.ErrGone)
			wantErr(t, res.Renew(ctx, time.Hour), drawgate.ErrGone)
		}
		wantUsed(t, l, "k", 1000)

		res = reserve(t, l, drawgate.Request{
			Buckets: []drawgate.Ask{l.Ask("k", tokens(500))},
			Hold:    drawgate.Hold{For: time.Minute},
		})
		if err := res.Settle(ctx); err != nil { // nothing is named: it stands
			t.Error(err)
		}
		wantUsed(t, l, "k", 1500)
		res = reserve(t, l, drawgate.Request{
			Buckets: []drawgate.Ask{l.Ask("k", tokens(500))},
			Hold:    drawgate.Hold{For: time.Minute},
		})
		if err := res.Cancel(ctx); err != nil {
			t.Error(err)
		}
		wantUsed(t, l, "k", 1500)
		res = reserve(t, l, drawgate.Request{
			Buckets: []drawgate.Ask{l.Ask("k", tokens(500))},
			Hold:    drawgate.Hold{For: time.Minute},
		})
		time.Sleep(time.Minute)
		wantErr(t, res.Cancel(ctx), drawgate.ErrGone)
		wantUsed(t, l, "k", 2000)
	})
}

// TestReserveSeveralBuckets settles each by the units that it knows. req: D5
func TestReserveSeveralBuckets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := local(t, drawgate.Policy{Name: "a", Limits: []drawgate.Limit{
			rolling(10, time.Hour),
			of("tokens", rolling(1000, time.Hour)),
		}})
		b := with(t, a, drawgate.Policy{Name: "b", Limits: []drawgate.Limit{
			slots(1),
			of("tokens", leaky(1000, 1000*time.Hour, 1000)),
		}})
		ask := []drawgate.Ask{a.Ask("k", tokens(300)), b.Ask("k", drawgate.Cost{Unit: "slots", N: 1}, tokens(400))}
		res := reserve(t, a, drawgate.Request{
			Buckets: ask, Labels: []drawgate.Label{{Name: "task", Value: "1"}},
			Hold: drawgate.Hold{For: time.Hour},
		})
		wantUsed(t, a, "k", 1, 300)
		wantUsed(t, b, "k", 1, 400)
		wantErr(t, res.Settle(t.Context(), drawgate.Cost{Unit: "wishes", N: 1}), drawgate.ErrUnknownUnit)
		if err := res.Settle(t.Context(), tokens(50)); err != nil {
			t.Error(err)
		}
		wantUsed(t, a, "k", 1, 50)
		wantUsed(t, b, "k", 0, 50)

		// All or nothing: the second bucket refuses, and the first is not charged.
		res = reserve(t, a, drawgate.Request{Buckets: ask[1:], Hold: drawgate.Hold{For: time.Hour}})
		_, err := takeHeld(t.Context(), a, drawgate.Request{Buckets: ask, Hold: drawgate.Hold{For: time.Hour}})
		wantErr(t, err, drawgate.ErrLimited)
		wantUsed(t, a, "k", 1, 50)
		if err := res.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestIDs: an id that is open is answered again at no cost, and refused for anything else. req: A12
func TestIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.PerHour("hour", 10))
		r := drawgate.Request{
			Buckets: []drawgate.Ask{l.Ask(secret, drawgate.Cost{N: 4})},
			Hold:    drawgate.Hold{For: time.Minute, ID: "job-7", Grant: drawgate.NewGrant()},
		}
		first := reserve(t, l, r)
		time.Sleep(10 * time.Second)
		again := reserve(t, l, r)
		if first.Decision.Replayed || !again.Decision.Replayed || again.ID() != "job-7" {
			t.Errorf("replayed %v and %v", first.Decision.Replayed, again.Decision.Replayed)
		}
		if !again.Deadline().Equal(first.Deadline().Add(time.Minute/1000 - 50*time.Second/1000)) {
			t.Errorf("the deadlines are %v apart", again.Deadline().Sub(first.Deadline()))
		}
		wantUsed(t, l, secret, 4)
		other := r
		other.Buckets = []drawgate.Ask{l.Ask(secret, drawgate.Cost{N: 5})}
		_, err := takeHeld(t.Context(), l, other)
		if wantErr(t, err, drawgate.ErrIDReused); err == nil ||
			!strings.Contains(err.Error(), "with different content") {
			t.Error(err)
		}
		wantUsed(t, l, secret, 4)
		another := r
		another.Hold.Grant = 0 // a number of its own
		_, err = takeHeld(t.Context(), l, another)
		wantErr(t, err, drawgate.ErrIDOpen)
		wantUsed(t, l, secret, 4)
		if err := again.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		wantErr(t, first.Cancel(t.Context()), drawgate.ErrGone)
		// The id is free; a settlement of its earlier use changes nothing, wherever it comes from.
		other.Hold.Grant = 0
		reserve(t, l, other)
		wantErr(t, again.Settle(t.Context(), drawgate.Cost{N: 0}), drawgate.ErrGone)
		late, err := l.Resume("job-7", first.Grant(), first.Deadline(), l.Ask(secret, drawgate.Cost{N: 4}))
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, late.Cancel(t.Context()), drawgate.ErrGone)
		wantErr(t, late.Renew(t.Context(), time.Hour), drawgate.ErrGone)
		wantUsed(t, l, secret, 5)
	})
}

// TestDeadlineLiesBeforeTheEnd that the store knows, however slow the reply was. req: C1
func TestDeadlineLiesBeforeTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, slow := range []time.Duration{0, 500 * time.Millisecond, 1900 * time.Millisecond} {
			s := remote(t)
			l := over(t, s, policy(slots(1)))
			slot := drawgate.Cost{Unit: "slots", N: 1}
			s.script(slow)
			start := time.Now()
			res, err := l.Reserve(t.Context(), "k", 10*time.Second, slot)
			if err != nil {
				t.Fatal(err)
			}
			// The clock of a holder may be wrong by a thousandth.
			if want := start.Add(9990 * time.Millisecond); !res.Deadline().Equal(want) ||
				!res.Decision.HoldEnd().Equal(start.Add(10*time.Second)) {
				t.Errorf("reply after %v: the deadline is %v after the question, the end %v", slow,
					res.Deadline().Sub(start), res.Decision.HoldEnd().Sub(start))
			}
			time.Sleep(time.Second)
			renewed := time.Now()
			if err := res.Renew(t.Context(), 20*time.Second); err != nil {
				t.Error(err)
			}
			if want := renewed.Add(19980 * time.Millisecond); !res.Deadline().Equal(want) {
				t.Errorf("renewed: %v after it was asked for", res.Deadline().Sub(renewed))
			}
			if err := res.Renew(t.Context(), time.Second); err != nil { // never earlier than it did
				t.Error(err)
			}
			if want := renewed.Add(19980 * time.Millisecond); !res.Deadline().Equal(want) {
				t.Errorf("renewed for less: %v", res.Deadline().Sub(renewed))
			}
			s.script(0)
			time.Sleep(time.Until(res.Deadline()))
			_, err = takeHeld(t.Context(), l, drawgate.Request{
				Buckets: []drawgate.Ask{l.Ask("k", slot)},
				Hold:    drawgate.Hold{For: time.Second},
			})
			wantErr(t, err, drawgate.ErrLimited) // nobody else has it while the holder may rely on it
			time.Sleep(20 * time.Millisecond)
			wantErr(t, res.Renew(t.Context(), time.Minute), drawgate.ErrGone)
			if _, err := l.Reserve(t.Context(), "k", time.Second, slot); err != nil {
				t.Error(err)
			}
		}
		l := local(t, drawgate.PerHour("hour", 10))
		res, _ := l.Reserve(t.Context(), "k", time.Minute)
		wantErr(t, res.Renew(t.Context(), 0), drawgate.ErrInvalid)
		wantErr(t, res.Renew(t.Context(), drawgate.MaxHold+1), drawgate.ErrInvalid)
	})
}

// TestResume: another process settles, cancels or renews, with nothing but the id and what was
// asked. req: E1
func TestResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memory(t)
		p := policy(drawgate.Limit{
			Name: "tokens", Unit: "tokens", Kind: drawgate.Rolling, Window: time.Hour, Amount: 1000,
			Precision: drawgate.Exact,
			// a resumed reservation has been granted, whatever its priority
			ReservedByPriority: map[int]drawgate.Share{5: {Units: 1000}},
		})
		one, two := over(t, s, p), over(t, s, p)
		for i, end := range []func(*drawgate.Reservation) error{
			func(r *drawgate.Reservation) error { return r.Settle(t.Context(), tokens(30)) },
			func(r *drawgate.Reservation) error { return r.Cancel(t.Context()) },
			func(r *drawgate.Reservation) error {
				return errors.Join(r.Renew(t.Context(), time.Hour), r.Settle(t.Context(), tokens(130)))
			},
		} {
			key := fmt.Sprint(i)
			res := reserve(t, one, drawgate.Request{
				Buckets: []drawgate.Ask{one.Ask(key, tokens(100))}, Priority: 5,
				Hold: drawgate.Hold{For: time.Minute},
			})
			same, err := two.Resume(res.ID(), res.Grant(), res.Deadline(), two.Ask(key, tokens(100)))
			if err != nil {
				t.Fatal(err)
			}
			if err := end(same); err != nil {
				t.Error(err)
			}
			wantUsed(t, one, key, []int64{30, 0, 130}[i])
			wantErr(t, res.Cancel(t.Context()), drawgate.ErrGone)
		}
		// After the end, what was used beyond the estimate is charged.
		res := reserve(t, one, drawgate.Request{
			Buckets: []drawgate.Ask{one.Ask("k", tokens(100))}, Priority: 5,
			Hold: drawgate.Hold{For: time.Minute},
		})
		time.Sleep(2 * time.Minute)
		same, _ := two.Resume(res.ID(), res.Grant(), res.Deadline(), two.Ask("k", tokens(100)))
		wantErr(t, same.Settle(t.Context(), tokens(250)), drawgate.ErrGone)
		wantUsed(t, one, "k", 250)
	})
}

// TestExcessAfterTheEnd is charged once: not again by a second call, nor if the reservation had
// been settled in time. req: A12, C1
func TestExcessAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, policy(rolling(10, time.Hour), of("tokens", rolling(1000, time.Hour))))
		ctx := t.Context()
		hold := func(key string) *drawgate.Reservation {
			return reserve(t, l, drawgate.Request{
				Buckets: []drawgate.Ask{l.Ask(key, tokens(100))},
				Hold:    drawgate.Hold{For: time.Minute},
			})
		}
		late, less, unnamed, cancelled, settled, at := hold("late"), hold("less"), hold("unnamed"), hold("cancelled"),
			hold("settled"), hold("at")
		if err := settled.Settle(ctx, tokens(150)); err != nil {
			t.Error(err)
		}
		if err := cancelled.Cancel(ctx); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		wantErr(t, at.Settle(ctx, tokens(150)), drawgate.ErrGone)
		wantUsed(t, l, "at", 1, 150)
		time.Sleep(time.Minute)
		for range 3 {
			wantErr(t, late.Settle(ctx, tokens(150)), drawgate.ErrGone)
			wantErr(t, less.Settle(ctx, tokens(50)), drawgate.ErrGone)
			wantErr(t, unnamed.Settle(ctx), drawgate.ErrGone)
			wantErr(t, cancelled.Settle(ctx, tokens(150)), drawgate.ErrGone)
			wantErr(t, settled.Settle(ctx, tokens(150)), drawgate.ErrGone)
		}
		wantUsed(t, l, "late", 1, 150)
		wantUsed(t, l, "less", 1, 100)
		wantUsed(t, l, "unnamed", 1, 100)
		wantUsed(t, l, "cancelled", 0, 0)
		wantUsed(t, l, "settled", 1, 150)
	})
}

// TestLease may be granted in part; what is used beyond the part is charged. req: C1
func TestLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.PerHour("hour", 10))
		take(t, l, "k", 6)
		lease := func() *drawgate.Reservation {
			return reserve(t, l, drawgate.Request{
				Buckets: []drawgate.Ask{l.Ask("k", drawgate.Cost{N: 20})},
				Hold:    drawgate.Hold{For: time.Minute, Lease: true},
			})
		}
		res := lease()
		if g := res.Decision.Granted(0)[0]; g != 4 {
			t.Errorf("granted %d of 4", g)
		}
		if err := res.Settle(t.Context(), drawgate.Cost{N: 1}); err != nil {
			t.Error(err)
		}
		wantUsed(t, l, "k", 7)
		res = lease()
		time.Sleep(2 * time.Minute)
		wantErr(t, res.Settle(t.Context(), drawgate.Cost{N: 5}), drawgate.ErrGone)
		wantUsed(t, l, "k", 12) // 3 were granted, 5 used
		start := time.Now()
		if res = lease(); res.Decision.Granted(0)[0] < 1 {
			t.Error("nothing granted")
		}
		wantTook(t, start, 58*time.Minute, time.Second)
	})
}

// TestSlots come free by themselves. req: D12
func TestSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, policy(slots(5)))
		slot := drawgate.Cost{Unit: "slots", N: 1}
		for range 5 {
			if _, err := l.Reserve(t.Context(), "k", time.Minute, slot); err != nil { // and its holder dies
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := l.Reserve(ctx, "k", time.Minute, slot)
		wantErr(t, err, context.DeadlineExceeded)
		start := time.Now()
		if _, err := l.Reserve(t.Context(), "k", time.Minute, slot); err != nil {
			t.Error(err)
		}
		wantTook(t, start, 30*time.Second, 0)
	})
}
