package telemetry_test

import (
	"fmt"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/telemetry"
)

// Join calls each observer that has the func, in order, and is nil if there is none.
func TestJoinCallsEachObserverInOrder(t *testing.T) {
	t.Parallel()
	var calls []string
	note := func(who string) *drawgate.Observer {
		return &drawgate.Observer{
			Taken:   func(*drawgate.Taken) { calls = append(calls, who+" taken") },
			Settled: func(*drawgate.Settled) { calls = append(calls, who+" settled") },
		}
	}
	a, b := note("a"), note("b")
	b.Settled = nil
	if telemetry.Join() != nil || telemetry.Join(nil, nil) != nil || telemetry.Join(nil, a) != a {
		t.Error("got a new observer for none or one, want them as they are")
	}
	o := telemetry.Join(a, nil, b)
	o.Taken(nil)
	o.Settled(nil)
	if got := fmt.Sprint(calls); got != "[a taken b taken a settled]" || o.Called != nil {
		t.Errorf("%s, called %v", got, o.Called == nil)
	}
}
