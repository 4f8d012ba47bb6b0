package dynamostore_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store"
)

// TestLateAnswerOfTheLastBucket: the caller of a take leaves while its last bucket is written, and
// somebody sends the take again. If it was written, whoever is told that the take is granted has
// units that count: the first sending takes nothing back. If it was not, nothing stays reserved.
//
// req: A12
func TestLateAnswerOfTheLastBucket(t *testing.T) {
	t.Parallel()
	for name, lands := range map[string]bool{"written": true, "not written": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reached, continueRun := make(chan struct{}), make(chan struct{})
			var sends atomic.Int64
			bad, good := on(t, empty(t), func(op string, send func() (*http.Response, error)) (*http.Response, error) {
				if !writes(op) {
					return send()
				}
				switch n := sends.Add(1); {
				case n == 1 || n > 6:
					return send()
				case n > 2:
					return answer(nil, http.StatusBadRequest, exception("ThrottlingException", "too much")), nil
				case lands:
					resp, err := send()
					close(reached)
					<-continueRun
					return resp, err
				}
				close(reached)
				<-continueRun
				return answer(nil, http.StatusBadRequest, exception("ThrottlingException", "too much")), nil
			}, nil)
			plan := planOf(t, 100)
			sent := store.Take{
				ID: "id", Grant: store.NewGrant(), Hold: time.Minute,
				Buckets: bucketsOf(plan, 10, "a", "b"),
			}
			leaves(t, bad, sent, reached)
			again := func() bool {
				d, err := take(t.Context(), good, sent)
				if err != nil && lands {
					t.Error(err)
				}
				return d.Allowed
			}
			allowed := lands && again()
			close(continueRun)
			if err := bad.Close(); err != nil { // waits for what is under way
				t.Fatal(err)
			}
			a, b := used(t, good, plan, "a"), used(t, good, plan, "b")
			switch {
			case lands && (!allowed || a != 10 || b != 10):
				t.Errorf("granted again: %v, with %d and %d used, want 10 and 10", allowed, a, b)
			case !lands && (a != 0 || b != 0):
				t.Errorf("%d and %d stay reserved, want nothing", a, b)
			case !lands && !again():
				t.Error("the take is not granted when it is sent again")
			}
		})
	}
}

// TestLateAnswerOfTheFirstBucket: the caller of a take leaves while its first bucket is written,
// and somebody sends the take again, and is faster. The first sending takes nothing back of what
// the second one was granted; what it has reserved itself, it does.
//
// req: A12
func TestLateAnswerOfTheFirstBucket(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"sent again": true, "not sent again": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reached, continueRun := make(chan struct{}), make(chan struct{})
			var sends atomic.Int64
			bad, good := on(t, empty(t), func(op string, send func() (*http.Response, error)) (*http.Response, error) {
				if writes(op) && sends.Add(1) == 1 {
					close(reached)
					<-continueRun
				}
				return send()
			}, nil)
			plan := planOf(t, 100)
			sent := store.Take{
				ID: "id", Grant: store.NewGrant(), Hold: time.Minute, Buckets: bucketsOf(plan, 10, "a", "b", "c"),
			}
			leaves(t, bad, sent, reached)
			want := int64(0)
			if again {
				if d, err := take(t.Context(), good, sent); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				want = 10
			}
			close(continueRun)
			if err := bad.Close(); err != nil { // waits for what is under way
				t.Fatal(err)
			}
			for _, bucket := range []string{"a", "b", "c"} {
				if n := used(t, good, plan, bucket); n != want {
					t.Errorf("%d units are used of %s, want %d", n, bucket, want)
				}
			}
		})
	}
}

// leaves sends a take whose caller leaves once it has got so far.
func leaves(t *testing.T, s store.Store, sent store.Take, reached <-chan struct{}) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	first := make(chan error)
	go func() {
		_, err := take(ctx, s, sent)
		first <- err
	}()
	<-reached
	leave()
	if err := <-first; err == nil {
		t.Fatal("whoever left has an answer")
	}
}
