//go:build unix

package cloudwatch_test

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/telemetry/cloudwatch"
)

// While CloudWatch does not answer, nobody who takes waits, and Close waits no longer than its
// context. What was not sent is dropped and counted.
func TestCloudWatchThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := awstest.Moto(t)
	if err := syscall.Kill(s.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	m, err := cloudwatch.New(&cloudwatch.Options{Put: client(s), Interval: 1, InCall: true}) // each take is reported
	if err != nil {
		t.Fatal(err)
	}
	l := limiter(t, drawgate.PerMinute("p", 1_000_000), m.Observer())
	const points = 1 + 2*4 // of each report: the latency of all takes, and four metrics of a policy's limit
	for range 600 {        // more than may wait to be sent
		if _, err := l.Allow(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if n := m.Dropped(); n < 100*points || n > 600*points {
		t.Errorf("%d data points are dropped, want those of the reports that have no room", n)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if n := m.Dropped(); n < 400*points || n%points != 0 {
		t.Errorf("%d data points are dropped, want those of all reports", n)
	}
	if _, err := l.Allow(t.Context(), "a"); err != nil { // after Close takes go on
		t.Error(err)
	}
}
