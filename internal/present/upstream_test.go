package present_test

import (
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/present"
)

// Upstreams are shown as tables, with what the tables do not show below them, and without
// characters that would control a terminal.
//
// req: C9
func TestWriteUpstreams(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 9, 30, 0, 0, time.UTC)
	limit := api.LimitStatus{Limit: api.Limit{
		Name: "rpm", Unit: "requests", Most: 8, Remaining: 5,
		ResetAt: now.Add(41 * time.Second),
	}, Used: 3, Held: 1}
	day := api.LimitStatus{Limit: api.Limit{
		Name: "rpd", Unit: "requests", Most: 200, Remaining: 143,
		ResetAt: now.Add(time.Hour),
	}, Used: 57}
	var out strings.Builder
	present.WriteUpstreams(&out, []api.Upstream{
		{
			Name: "gemini", Provider: "gemini", Owner: "project-1",
			Calls: &api.Calls{
				Circuit: api.CircuitOpen, RetryAfterMS: 58_000, UnderWay: 1, Waiting: 2,
				Circuits: []api.Circuit{
					{State: api.CircuitOpen, RetryAfterMS: 58_000},
					{Model: "flash\x1b", Caller: "key alice", State: api.CircuitHalfOpen},
				},
			},
			Quotas: []api.Quota{
				{Policy: "flash", Models: []string{"a", "b*"}, Status: &api.StatusAnswer{
					At: now, Limits: []api.LimitStatus{limit, day},
					Paused: &api.Pause{Until: now.Add(time.Minute), Reason: "day"},
				}},
				{Policy: "gone\x1b", Models: []string{"*"}, Error: &api.Problem{Detail: "unknown policy"}},
			},
		},
		{Name: "openai", Provider: "openai", Owner: "me"},
	})
	const want = `upstream gemini (gemini), owner project-1: circuit open, a call may try in 58s, 1 call under way, 2 waiting
connections: circuit open, a call may try in 58s
calls of flash\x1b by key alice: circuit half-open
MODELS  POLICY    LIMIT  UNIT      USED  MOST  LEFT  HELD  RESETS
a b*    flash     rpm    requests  3     8     5     1     in 41s (2026-11-22 09:30:41Z)
                  rpd    requests  57    200   143   0     in 1h (2026-11-22 10:30:00Z)
*       gone\x1b  ?
policy flash: paused, ends in 1m (2026-11-22 09:31:00Z): day
policy gone\x1b: unknown policy

upstream openai (openai), owner me
MODELS  POLICY  LIMIT  UNIT  USED  MOST  LEFT  HELD  RESETS
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	out.Reset()
	present.WriteUpstreams(&out, nil)
	if got := out.String(); got != "there are no upstreams\n" {
		t.Errorf("without any: %q", got)
	}
}
