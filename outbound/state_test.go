package outbound_test

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/outbound"
)

// TestState: a client says how many calls wait and how many are under way, and what its circuit
// does.
//
// req: C9
func TestState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, tokens("model", 1, 1000))
		c := outbound.New(outbound.PerModel("project", l), &outbound.Options{
			Upstream: "api",
			Breaker:  outbound.Breaker{Failures: 1, Open: time.Minute},
		})
		want := outbound.State{Upstream: "api", Circuit: outbound.CircuitClosed}
		check := func(when string) {
			t.Helper()
			if got := c.State(); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v, want %+v", when, got, want)
			}
		}
		check("before any call")
		end := make(chan struct{})
		for range 2 {
			go func() {
				_, _ = outbound.Do(t.Context(), c, outbound.Call{Model: "model"},
					func(context.Context) (int, []drawgate.Cost, error) {
						<-end
						return 0, nil, errBroken
					})
			}()
		}
		synctest.Wait()
		want.UnderWay, want.Waiting = 1, 1
		check("one call runs, and one waits")
		end <- struct{}{}
		synctest.Wait()
		want.UnderWay, want.Circuit, want.RetryAfter = 0, outbound.CircuitOpen, time.Minute
		want.Circuits = []outbound.Circuit{{
			Model: "model", Series: "model", State: outbound.CircuitOpen,
			RetryAfter: time.Minute,
		}}
		check("the first one failed")
		time.Sleep(time.Minute - time.Second)
		want.RetryAfter, want.Circuits[0].RetryAfter = time.Second, time.Second
		check("a second before a call may try")
		time.Sleep(time.Second)
		want.Circuit, want.RetryAfter = outbound.CircuitHalfOpen, 0
		want.Circuits[0].State, want.Circuits[0].RetryAfter = outbound.CircuitHalfOpen, 0
		time.Sleep(time.Second) // the other call leaves the queue, and tries
		synctest.Wait()
		want.Waiting, want.UnderWay = 0, 1
		check("after a minute")
		end <- struct{}{}
		synctest.Wait()
	})
}

// TestRefusedTrialClosesTheCircuit: an upstream that refuses a call for its quota is up, and
// observers hear that the circuit has closed.
func TestRefusedTrialClosesTheCircuit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		l := limiter(t, tokens("model", 10, 1000))
		c := outbound.New(outbound.PerModel("project", l), &outbound.Options{
			Breaker: outbound.Breaker{Failures: 1, Open: time.Minute, Successes: 1},
			Observer: &outbound.Observer{Circuit: func(_ string,
				c *outbound.Circuit,
			) {
				heard = append(heard, c.State)
			}},
		})
		_, _ = outbound.Do(t.Context(), c, outbound.Call{Model: "model"}, answer(nil, errBroken))
		time.Sleep(time.Minute)
		_, _ = outbound.Do(t.Context(), c, outbound.Call{Model: "model"}, answer(nil, &outbound.RefusedError{}))
		if want := []string{outbound.CircuitOpen, outbound.CircuitClosed}; !slices.Equal(heard, want) {
			t.Errorf("heard %q, want %q", heard, want)
		}
		if state := c.State().Circuit; state != outbound.CircuitClosed {
			t.Errorf("the circuit is %s", state)
		}
	})
}

// TestSpent: what a call is settled with, whatever was said about it.
func TestSpent(t *testing.T) {
	t.Parallel()
	held, used := []drawgate.Cost{drawgate.Tokens(100)}, []drawgate.Cost{drawgate.Tokens(30)}
	for name, c := range map[string]struct {
		e    outbound.Event
		want []drawgate.Cost
	}{
		"used":     {outbound.Event{Estimate: held, Used: used, Sent: time.Unix(1, 0)}, used},
		"not told": {outbound.Event{Estimate: held, Sent: time.Unix(1, 0)}, held},
		"not sent": {outbound.Event{Estimate: held}, nil},
		"told nothing": {
			outbound.Event{Estimate: held, Used: []drawgate.Cost{}, Sent: time.Unix(1, 0)},
			[]drawgate.Cost{},
		},
	} {
		if got := c.e.Spent(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
