package drawgate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
)

// TestTimesInErrors: an error tells people how long to wait in whole seconds or milliseconds, and
// never less than they have to.
func TestTimesInErrors(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]string{
		41*time.Hour + time.Minute + 53*time.Second + 342_418*time.Microsecond: "retry after 41h1m54s,",
		10 * time.Second:                      "retry after 10s,",
		9*time.Second + 1001*time.Microsecond: "retry after 9.002s,",
		time.Microsecond:                      "retry after 1ms,",
		0:                                     "retry after 0s,",
		drawgate.Never - time.Nanosecond:      "retry after ",
		drawgate.Never:                        "it can never fit,",
	} {
		e := &drawgate.LimitedError{Policy: "p", Limit: "l", RetryAfter: after}
		if got := e.Error(); !strings.Contains(got, want) {
			t.Errorf("%v: %s", after, got)
		}
	}
}

// TestMoneyInErrors: refusals tell money in its currency, and everything else as it is counted.
func TestMoneyInErrors(t *testing.T) {
	t.Parallel()
	for unit, want := range map[string]string{
		"usd_micros": `0.25 usd can never fit limit "l" of policy "p", which grants at most 0.1 usd at this priority`,
		"tokens":     `250000 tokens can never fit limit "l" of policy "p", which grants at most 100000 at this priority`,
	} {
		e := &drawgate.NeverFitsError{Policy: "p", Limit: "l", Unit: unit, N: 250_000, Max: 100_000}
		if got := e.Error(); got != "drawgate: "+want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
