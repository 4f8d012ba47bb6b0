package simulator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/llm/simulator"
)

// quota is one quota of a provider for all its models.
func quota(p simulator.Provider, limits ...simulator.Limit) []simulator.Quota {
	return []simulator.Quota{{Provider: p, Name: "all", Models: []string{"*"}, Limits: limits}}
}

func perMinute(d simulator.Dimension, amount int64) simulator.Limit {
	return simulator.Limit{Name: "per minute", Dimension: d, Amount: amount, Window: simulator.Rolling}
}

// TestFullLimitIsAViolation: the call that finds a limit full is refused and counted, and passes
// when the oldest call is as old as the window.
func TestFullLimitIsAViolation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &simulator.Options{Quotas: quota(simulator.Gemini, perMinute(simulator.Requests, 2))})
		for i, want := range []int{200, 200, 429} {
			if got := post(t, s, geminiPath, contents("x")); got.status != want {
				t.Fatalf("call %d: got %d %s, want %d", i, got.status, got.body, want)
			}
			time.Sleep(time.Second)
		}
		c := last(t, s)
		if len(c.Refusals) != 1 || c.Outcome != simulator.Refused || c.Admitted {
			t.Fatalf("the ledger has %+v", c)
		}
		want := simulator.Refusal{
			Limit: "per minute", Dimension: simulator.Requests, Window: simulator.Rolling,
			Amount: 2, Used: 2, Requested: 1, Over: 1, RetryAfter: 58 * time.Second,
		}
		if c.Refusals[0] != want {
			t.Errorf("got %+v, want %+v", c.Refusals[0], want)
		}
		v := s.Violations()
		if v.Total != 1 || v.ByDimension[simulator.Requests] != 1 || len(v.Calls) != 1 || v.Calls[0].ID != 3 {
			t.Errorf("violations: %+v", v)
		}
		time.Sleep(57*time.Second - 1)
		if got := post(t, s, geminiPath, contents("x")); got.status != 429 {
			t.Errorf("a nanosecond early: got %d", got.status)
		}
		time.Sleep(time.Nanosecond)
		if got := post(t, s, geminiPath, contents("x")); got.status != 200 {
			t.Errorf("at the end of the window: got %d %s", got.status, got.body)
		}
	})
}
