package drawgate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// lossy is a store at the end of a slow network that loses one message in five: half of them on
// their way there, half on their way back. A message that is on its way arrives although its sender
// has left.
type lossy struct {
	drawgate.Store
	mu      sync.Mutex
	dice    *rand.Rand // guarded by mu
	granted int64      // guarded by mu: units of takes that the store allowed

	// How many messages of an id were lost in a row: a settlement gets through at the third
	// attempt, because a cancellation is given up after a few.
	losses map[string]int // guarded by mu
}

// travel returns how long a message is on its way, there and back, and whether it is lost there, or
// its answer is.
func (s *lossy) travel(id string) (there, back time.Duration, lost, unanswered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	there, back = time.Duration(s.dice.Int64N(int64(40*time.Millisecond))),
		time.Duration(s.dice.Int64N(int64(40*time.Millisecond)))
	if s.dice.IntN(50) == 0 {
		there += 1900 * time.Millisecond // a long way round, and yet in time
	}
	n := s.dice.IntN(10)
	lost, unanswered = n == 0, n == 1
	if id == "" {
		return there, back, lost, unanswered
	}
	if s.losses == nil {
		s.losses = map[string]int{}
	}
	if s.losses[id]++; !lost && !unanswered || s.losses[id] > 2 {
		s.losses[id], lost, unanswered = 0, false, false
	}
	return there, back, lost, unanswered
}

// call carries a message; id is that of a settlement.
func (s *lossy) call(ctx context.Context, op, id string, f func(context.Context) error) error {
	there, back, lost, unanswered := s.travel(id)
	answer := make(chan error, 1)
	if !lost {
		go func() { // ends within two seconds
			time.Sleep(there)
			err := f(context.WithoutCancel(ctx))
			time.Sleep(back)
			if !unanswered {
				answer <- err
			}
		}()
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return &drawgate.StoreError{Store: "lossy", Op: op, Err: ctx.Err()}
	}
}

func (s *lossy) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	own := make([]store.Verdict, len(batch))
	batch = slices.Clone(batch) // it may arrive when its sender has long left
	sent := time.Now().Add(store.SendLife)
	for i := range batch {
		batch[i].Buckets = slices.Clone(batch[i].Buckets)
		if batch[i].ID != "" {
			batch[i].NotAfter = sent
		}
	}
	err := s.call(ctx, "take", "", func(ctx context.Context) error {
		err := s.Store.Take(ctx, batch, own)
		for i := range own {
			if err == nil && own[i].Allowed && !own[i].Replayed {
				s.mu.Lock()
				s.granted += batch[i].Buckets[0].N[0]
				s.mu.Unlock()
			}
		}
		return err
	})
	if err == nil {
		copy(out, own)
	}
	return err
}

func (s *lossy) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	own := make([]store.Outcome, len(batch))
	batch = slices.Clone(batch)
	for i := range batch {
		batch[i].Buckets = slices.Clone(batch[i].Buckets)
	}
	err := s.call(ctx, "settle", batch[0].ID, func(ctx context.Context) error {
		return s.Store.Settle(ctx, batch,
			own)
	})
	if err == nil {
		copy(out, own)
	}
	return err
}

func (s *lossy) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	return s.Store.Peek(ctx, buckets, priority, out)
}

// TestGivingUpLeavesNothing: 1,000 reservations and 1,000 waits are given up at random points, one
// message in five being lost. After the longest attempt and the time in which a message may arrive
// late nothing is open that nobody owns; what is spent lies between what was granted to somebody
// who knows, and that and what errors said may be spent. req: A12
func TestGivingUpLeavesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &lossy{Store: memory(t), dice: rand.New(rand.NewPCG(1, 2))}
		rest := rand.New(rand.NewPCG(3, 4))
		held := over(t, st, policy(rolling(5000, 24*time.Hour)))
		plain := over(t, st, drawgate.PerDay("day", 1_000_000))
		var mu sync.Mutex
		owned, spent, may, gaveUp := map[*drawgate.Reservation]bool{}, int64(0), int64(0), 0
		note := func(err error) {
			if e, ok := errors.AsType[*drawgate.GaveUpError](err); ok {
				gaveUp++
				if e.MaySpend {
					may++
				}
				if !errors.Is(err, context.Canceled) {
					t.Errorf("not the context's: %v", err)
				}
			} else if errors.Is(err, drawgate.ErrStoreUnavailable) {
				may++
			}
		}
		var group sync.WaitGroup
		for i := range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			after := time.Duration(rest.Int64N(int64(150 * time.Millisecond)))
			time.AfterFunc(after, cancel)
			key := fmt.Sprint("k", i%5)
			group.Go(func() {
				res, err := held.Reserve(ctx, key, time.Hour)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					owned[res] = true
				} else if e, ok := errors.AsType[*drawgate.GaveUpError](err); ok && e.MaySpend {
					t.Error("what has an id is cancelled")
				}
			})
			group.Go(func() {
				d, err := plain.Wait(ctx, key)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && d.Allowed {
					spent++
				}
				note(err)
			})
			time.Sleep(time.Duration(rest.Int64N(int64(5 * time.Millisecond))))
		}
		group.Wait()
		time.Sleep(3*2*time.Second + store.SendLife + time.Second) // of three attempts to cancel, each in 2 s
		for _, l := range []*drawgate.Limiter{held, plain} {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(2 * store.SendLife) // for what is still on its way
		open, used, taken := 0, int64(0), int64(0)
		for i := range 5 {
			key := fmt.Sprint("k", i)
			for _, l := range []*drawgate.Limiter{held, plain} {
				st, err := l.Status(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				if l == held {
					open, used = open+st.Open, used+st.States[0].Used
				} else {
					taken += st.States[0].Used
				}
			}
		}
		if open != len(owned) || used != int64(len(owned)) {
			t.Errorf("%d reservations of %d units are open, and %d have an owner", open, used, len(owned))
		}
		if taken < spent || taken > spent+may {
			t.Errorf("%d units are spent; %d callers know of theirs, and %d were told that theirs may be", taken, spent,
				may)
		}
		if gaveUp < 100 || len(owned) < 100 || taken == spent {
			t.Errorf("%d gave up while they asked, %d reserved, %d units were lost: it shows too little", gaveUp,
				len(owned), taken-spent)
		}
		t.Logf("%d of 1000 reserved, %d waits passed, %d gave up while they asked, %d units spent that nobody knows of",
			len(owned), spent, gaveUp, taken-spent)
	})
}

// TestCloseCancelsWhatIsLost: a reservation whose answer is lost when the limiter has been closed
// meanwhile is cancelled nevertheless, once and at once.
func TestCloseCancelsWhatIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := over(t, s, drawgate.PerHour("hour", 10))
		s.script(0, loses)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := l.Reserve(ctx, "k", time.Hour)
			done <- err
		}()
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-done; err == nil {
			t.Fatal("reserved")
		}
		again := over(t, s, drawgate.PerHour("hour", 10))
		if st, err := again.Status(t.Context(), "k"); err != nil || st.Open != 0 {
			t.Errorf("%d are open, %v", st.Open, err)
		}
	})
}

// TestCancelledAgainAfterFailures: however often a cancellation failed before, one that comes
// before its take is sent again after it.
func TestCancelledAgainAfterFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := over(t, &slowTake{s, 1900 * time.Millisecond}, drawgate.PerHour("hour", 10))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		s.script(0, fails, fails, fails, fails)
		if _, err := l.Reserve(ctx, "k", time.Hour); err == nil {
			t.Fatal("reserved")
		}
		time.Sleep(10 * time.Second)
		if st, err := l.Status(t.Context(), "k"); err != nil || st.Open != 0 {
			t.Errorf("%d are open, %v", st.Open, err)
		}
	})
}

// slowTake is a store to which takes are on their way for long, though their senders have left.
type slowTake struct {
	*faulty
	by time.Duration
}

func (s *slowTake) Take(ctx context.Context, batch []store.Take, _ []store.Verdict) error {
	batch = slices.Clone(batch)
	go func() { // ends after by
		time.Sleep(s.by)
		_ = s.Store.Take(context.WithoutCancel(ctx), batch, make([]store.Verdict, len(batch)))
	}()
	<-ctx.Done()
	return &drawgate.StoreError{Store: "slow", Op: "take", Err: ctx.Err()}
}

// TestALeaseThatIsPausedKeepsItsDeadline: its holder is told.
func TestALeaseThatIsPausedKeepsItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.PerMinute("a", 10))
		other := with(t, l, drawgate.PerMinute("b", 10))
		res := reserve(t, l, drawgate.Request{
			Buckets: []drawgate.Ask{l.Ask("k"), other.Ask("k")},
			Hold:    drawgate.Hold{For: time.Second, Lease: true},
		})
		if err := l.Pause(t.Context(), "k", time.Minute, ""); err != nil {
			t.Fatal(err)
		}
		was := res.Deadline()
		wantErr(t, res.Renew(t.Context(), time.Hour), drawgate.ErrPaused)
		if !res.Deadline().Equal(was) {
			t.Errorf("the deadline moved by %v", res.Deadline().Sub(was))
		}
		time.Sleep(time.Second)
		wantErr(t, res.Renew(t.Context(), time.Hour), drawgate.ErrGone)
	})
}
