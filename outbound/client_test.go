package outbound_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/memstore"
)

// limiter returns one of a model's policy, on a store of its own.
func limiter(t *testing.T, p drawgate.Policy) *drawgate.Limiter {
	t.Helper()
	s := memstore.New(nil)
	t.Cleanup(func() { s.Close() })
	l, err := drawgate.New(s, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// tokens is a policy of requests and tokens a minute.
func tokens(name string, rpm, tpm int64) drawgate.Policy {
	return drawgate.Policy{Name: name, Limits: []drawgate.Limit{
		drawgate.RollingLimit("rpm", rpm, time.Minute),
		drawgate.RollingLimit("tpm", tpm, time.Minute).Of("tokens"),
	}}
}

// used returns what is used of each limit of the bucket that calls of l's model are counted in.
func used(t *testing.T, l *drawgate.Limiter) (all []int64) {
	t.Helper()
	st, err := l.Status(t.Context(), "project", drawgate.Requests(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range st.States {
		all = append(all, s.Used) // what is held included
	}
	return all
}

func wantUsed(t *testing.T, l *drawgate.Limiter, what string, want ...int64) {
	t.Helper()
	got := used(t, l)
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v used, want %v", what, got, want)
	}
}

// answer returns a function that succeeds, or fails, having used some tokens.
func answer(used []drawgate.Cost, err error) func(context.Context) (string, []drawgate.Cost, error) {
	return func(context.Context) (string, []drawgate.Cost, error) { return "answer", used, err }
}

var errBroken = errors.New("the upstream is broken")

// TestDoSettlesWhatWasUsed: a call holds its estimate, and counts as what it used.
//
// req: C5 C6
func TestDoSettlesWhatWasUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, tokens("model", 10, 2000))
		c := outbound.New(outbound.PerModel("project", l), nil)
		call := outbound.Call{Model: "model", Costs: []drawgate.Cost{
			drawgate.Tokens(300),
			drawgate.Units("characters", 5),
		}}
		v, err := outbound.Do(t.Context(), c, call, func(context.Context) (string, []drawgate.Cost, error) {
			wantUsed(t, l, "while it runs", 1, 300)
			if n := c.UnderWay(); n != 1 {
				t.Errorf("%d calls are under way, want 1", n)
			}
			return "answer", []drawgate.Cost{drawgate.Tokens(120), drawgate.Units("characters", 4)}, nil
		})
		if v != "answer" || err != nil {
			t.Fatalf("%q, %v", v, err)
		}
		wantUsed(t, l, "afterwards", 1, 120)
		if _, err := outbound.Do(t.Context(), c, call, answer(nil, nil)); err != nil {
			t.Fatal(err)
		}
		wantUsed(t, l, "a call that does not say what it used", 2, 420)
		if _, err := outbound.Do(t.Context(), c, call, answer(nil, errBroken)); !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		wantUsed(t, l, "a call that failed", 3, 720)
		none := []drawgate.Cost{drawgate.Requests(0), drawgate.Tokens(0)}
		if _, err := outbound.Do(t.Context(), c, call, answer(none, errBroken)); !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		wantUsed(t, l, "a call that was never sent", 3, 720)
	})
}

// TestUnknownModelIsNotCalled: what no policy counts is an error.
//
// req: C2
func TestUnknownModelIsNotCalled(t *testing.T) {
	t.Parallel()
	c := outbound.New(outbound.PerModel("project", limiter(t, drawgate.PerMinute("model", 1))), nil)
	_, err := outbound.Do(t.Context(), c, outbound.Call{Model: "other"},
		func(context.Context) (int, []drawgate.Cost, error) {
			t.Error("it was called")
			return 0, nil, nil
		})
	if err == nil {
		t.Error("no error")
	}
}

// TestCallersWaitInsteadOfFailing: a call that does not fit waits for its slot, and then runs. The
// function is wrapped in the form that names the model.
//
// req: C5 C6
func TestCallersWaitInsteadOfFailing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, drawgate.PerMinute("gemini-2.5-flash", 2))
		c := outbound.New(outbound.PerModel("project", l), nil)
		var mu sync.Mutex
		var at []time.Duration
		start := time.Now()
		invoke := outbound.Limited(c, "gemini-2.5-flash", func(_ context.Context, in int) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(start).Truncate(time.Second))
			return in + 1, nil
		})
		var group sync.WaitGroup
		for i := range 5 {
			group.Go(func() {
				if out, err := invoke(t.Context(), i); out != i+1 || err != nil {
					t.Errorf("%d, %v", out, err)
				}
			})
		}
		group.Wait()
		if want := []time.Duration{0, 0, time.Minute, time.Minute, 2 * time.Minute}; len(at) != 5 || at[2] != want[2] ||
			at[3] != want[3] || at[4] != want[4] {
			t.Errorf("calls ran at %v, want %v", at, want)
		}
	})
}

// TestOpenCircuitSpendsNothing: while the circuit is open no call is made, and nothing is taken.
//
// req: C4 C7
func TestOpenCircuitSpendsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, drawgate.PerMinute("model", 100))
		var states []string
		c := outbound.New(outbound.PerModel("project", l), &outbound.Options{
			Upstream: "api", Observer: &outbound.Observer{Circuit: func(name string,
				k *outbound.Circuit,
			) {
				states = append(states, name+" "+k.State)
			}},
		})
		for range 5 {
			outbound.Do(t.Context(), c, outbound.Call{Model: "model"}, answer(nil, errBroken))
		}
		wantUsed(t, l, "five calls", 5)
		called := false
		_, err := outbound.Do(t.Context(), c, outbound.Call{Model: "model"},
			func(context.Context) (int, []drawgate.Cost, error) {
				called = true
				return 0, nil, nil
			})
		open, ok := errors.AsType[*outbound.CircuitOpenError](err)
		if called || !ok || !errors.Is(err, outbound.ErrCircuitOpen) || open.Upstream != "api" ||
			open.RetryAfter != time.Minute || !open.Recovery.Equal(time.Now().Add(time.Minute)) {
			t.Fatalf("called %v, error %v", called, err)
		}
		wantUsed(t, l, "a call that was turned away", 5)
		time.Sleep(time.Minute)
		for range 2 {
			if _, err := outbound.Do(t.Context(), c, outbound.Call{Model: "model"}, answer(nil, nil)); err != nil {
				t.Fatal(err)
			}
		}
		if state, _ := c.Circuit(); state != outbound.CircuitClosed || len(states) != 2 || states[0] != "api open" ||
			states[1] != "api closed" {
			t.Errorf("the circuit is %s, events %q", state, states)
		}
	})
}

// TestCircuitOpensWhileCallersWait: what waited in the queue is not sent to an upstream that failed
// meanwhile, and its units go back.
//
// req: C4
func TestCircuitOpensWhileCallersWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, drawgate.PerMinute("model", 1))
		c := outbound.New(outbound.PerModel("project", l), &outbound.Options{Breaker: outbound.Breaker{
			Failures: 1,
			Open:     time.Hour,
		}})
		done := make(chan error)
		go func() {
			_, err := outbound.Do(t.Context(), c, outbound.Call{Model: "model"},
				func(context.Context) (int, []drawgate.Cost, error) {
					time.Sleep(30 * time.Second)
					return 0, nil, errBroken
				})
			done <- err
		}()
		synctest.Wait()
		_, err := outbound.Do(t.Context(), c, outbound.Call{Model: "model"},
			func(context.Context) (int, []drawgate.Cost, error) {
				t.Error("it was sent")
				return 0, nil, nil
			})
		if !errors.Is(err, outbound.ErrCircuitOpen) {
			t.Errorf("%v, want the circuit to be open", err)
		}
		if err := <-done; !errors.Is(err, errBroken) {
			t.Error(err)
		}
		wantUsed(t, l, "both", 0) // the first has left the window, the second was given back
	})
}

// TestRefusalPausesEverybody: what the upstream says of the quota holds for all clients of the
// store, until the instant that it means.
//
// req: C1
func TestRefusalPausesEverybody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		defer s.Close()
		clients := make([]*outbound.Client, 2)
		for i := range clients {
			l, err := drawgate.New(s, drawgate.PerMinute("model", 100), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			clients[i] = outbound.New(outbound.PerModel("project", l), nil)
		}
		start := time.Now()
		for what, until := range map[string]time.Time{"an hour": start.Add(time.Hour), "nothing": {}} {
			refusal := &outbound.RefusedError{Until: until, Reason: "requests per day"}
			if _, err := outbound.Do(t.Context(), clients[0], outbound.Call{Model: "model"},
				answer(nil, refusal)); !errors.Is(err, outbound.ErrRefused) {
				t.Fatal(err)
			}
			if until.IsZero() {
				until = time.Now().Add(time.Minute)
			}
			ctx, stop := context.WithDeadline(t.Context(), until.Add(-time.Second))
			if _, err := outbound.Do(ctx, clients[1], outbound.Call{Model: "model"}, answer(nil, nil)); !errors.Is(err,
				drawgate.ErrDeadline) {
				t.Errorf("a call of another client, before the end of %s: %v", what, err)
			}
			stop()
			if _, err := outbound.Do(t.Context(), clients[1], outbound.Call{Model: "model"},
				answer(nil, nil)); err != nil || time.Now().Before(until) {
				t.Errorf("after %s: %v, at %v", what, err, time.Since(start))
			}
		}
		if state, _ := clients[0].Circuit(); state != outbound.CircuitClosed {
			t.Error("a refusal for the quota opened the circuit")
		}
	})
}

// TestRetriesTakeAgain: each attempt is counted, and waits for its turn as any other call.
//
// req: C1
func TestRetriesTakeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, drawgate.PerMinute("model", 2))
		c := outbound.New(outbound.PerModel("project", l), &outbound.Options{
			Retries: 4,
			Breaker: outbound.Breaker{Failures: -1},
		})
		start := time.Now()
		calls := 0
		_, err := outbound.Do(t.Context(), c, outbound.Call{Model: "model"},
			func(context.Context) (int, []drawgate.Cost, error) {
				calls++
				return 0, nil, errBroken
			})
		if calls != 5 || !errors.Is(err, errBroken) || time.Since(start) < 2*time.Minute {
			t.Errorf("%d calls in %v, error %v; want 5 in 2 minutes or more", calls, time.Since(start), err)
		}
		calls = 0
		_, err = outbound.Do(t.Context(), c, outbound.Call{Model: "model"},
			func(context.Context) (int, []drawgate.Cost, error) {
				if calls++; calls < 3 {
					return 0, nil, errBroken
				}
				return 0, nil, nil
			})
		if calls != 3 || err != nil {
			t.Errorf("%d calls, %v; want the third to succeed", calls, err)
		}
	})
}

// TestWhoLeavesIsNoFailure: a caller that cancels says nothing about the upstream; one whose time
// was over while it was called does.
//
// req: C4
func TestWhoLeavesIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, drawgate.PerMinute("model", 100))
		c := outbound.New(outbound.PerModel("project", l), &outbound.Options{Breaker: outbound.Breaker{Failures: 2}})
		slow := func(ctx context.Context) (int, []drawgate.Cost, error) {
			<-ctx.Done()
			return 0, nil, ctx.Err()
		}
		for range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if _, err := outbound.Do(ctx, c, outbound.Call{Model: "model"}, slow); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		if state, _ := c.Circuit(); state != outbound.CircuitClosed {
			t.Fatal("callers that left opened the circuit")
		}
		wantUsed(t, l, "what they left", 5)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := outbound.Do(ctx, c, outbound.Call{Model: "model"}, slow); !errors.Is(err,
				context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
		}
		if state, _ := c.Circuit(); state != outbound.CircuitOpen {
			t.Error("time-outs did not open the circuit")
		}
	})
}

// TestHoldsLastAsLongAsTheCall: a slot stays held while its call runs, however long that is, and is
// free afterwards, also after a panic.
//
// req: D12
func TestHoldsLastAsLongAsTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, drawgate.Policy{Name: "model", Limits: []drawgate.Limit{drawgate.ConcurrencyLimit("slots", 1)}})
		c := outbound.New(outbound.PerModel("project", l), &outbound.Options{Hold: time.Second})
		_, err := outbound.Do(t.Context(), c, outbound.Call{Model: "model"},
			func(ctx context.Context) (int, []drawgate.Cost, error) {
				time.Sleep(time.Hour)
				wantUsed(t, l, "after an hour", 1)
				return 0, nil, ctx.Err()
			})
		if err != nil {
			t.Fatal(err)
		}
		wantUsed(t, l, "afterwards", 0)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was lost")
				}
			}()
			outbound.Do(t.Context(), c, outbound.Call{Model: "model"},
				func(context.Context) (int, []drawgate.Cost, error) { panic("a bug") })
		}()
		wantUsed(t, l, "after a panic", 0)
		_, err = outbound.Do(t.Context(), c, outbound.Call{Model: "model"},
			func(ctx context.Context) (int, []drawgate.Cost, error) {
				if err := l.Reset(ctx, "project"); err != nil {
					t.Error(err)
				}
				<-ctx.Done()
				return 0, nil, ctx.Err()
			})
		if !errors.Is(err, outbound.ErrHoldLost) {
			t.Errorf("%v, want that the hold was lost", err)
		}
	})
}

// TestWaitingIsNoTrial: after the circuit's pause, a call that waits for the quota keeps nobody
// from trying; once one tries, what is granted to others goes back.
//
// req: C4
func TestWaitingIsNoTrial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		full, free := limiter(t, drawgate.PerHour("full", 1)), limiter(t, drawgate.PerHour("free", 100))
		quota := outbound.Buckets(func(c *outbound.Call) ([]drawgate.Ask, error) {
			return []drawgate.Ask{{
				Limiter: map[string]*drawgate.Limiter{"full": full, "free": free}[c.Series],
				Key:     "project",
			}}, nil
		})
		c := outbound.New(quota,
			&outbound.Options{Breaker: outbound.Breaker{Failures: 1, Open: time.Minute, Successes: 1}})
		do := func(series string, f func(context.Context) (string, []drawgate.Cost, error)) error {
			_, err := outbound.Do(t.Context(), c, outbound.Call{Model: "model", Series: series}, f)
			return err
		}
		if err := do("full", answer(nil, errBroken)); !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		if err := do("free", answer(nil, nil)); !errors.Is(err, outbound.ErrCircuitOpen) {
			t.Fatalf("%v, want that the circuit is open", err)
		}
		wantUsed(t, free, "while the circuit is open", 0)
		time.Sleep(time.Minute)
		waited := make(chan error, 1)
		go func() { waited <- do("full", answer(nil, nil)) }()
		synctest.Wait()
		err := do("free", func(context.Context) (string, []drawgate.Cost, error) { // the trial
			if err := do("free", answer(nil, nil)); !errors.Is(err, outbound.ErrCircuitOpen) {
				t.Errorf("a second trial: %v, want that the circuit is open", err)
			}
			time.Sleep(time.Hour) // the other call is granted meanwhile
			if err := <-waited; !errors.Is(err, outbound.ErrCircuitOpen) {
				t.Errorf("a call that was granted during a trial: %v, want that the circuit is open", err)
			}
			return "", nil, nil
		})
		if err != nil {
			t.Errorf("the trial: %v", err)
		}
		wantUsed(t, full, "the call that waited", 0) // the first has left the window, the second was given back
		if state, _ := c.Circuit(); state != outbound.CircuitClosed {
			t.Errorf("the circuit is %s after the trial", state)
		}
	})
}
