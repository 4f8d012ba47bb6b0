package telemetry_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/guard"
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

// Each event that an observer can be told reaches each of those that were joined.
func TestJoinForgetsNoEvent(t *testing.T) {
	t.Parallel()
	forgetsNone(t, func(a, b *drawgate.Observer) *drawgate.Observer { return telemetry.Join(a, b) })
	forgetsNone(t, func(a, b *guard.Observer) *guard.Observer { return telemetry.JoinGuards(a, b) })
}

func forgetsNone[O any](t *testing.T, join func(a, b *O) *O) {
	t.Helper()
	calls := 0
	observer := func() *O {
		o := new(O)
		for _, f := range reflect.ValueOf(o).Elem().Fields() {
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { calls++; return nil }))
		}
		return o
	}
	joined := reflect.ValueOf(join(observer(), observer())).Elem()
	for field, f := range joined.Fields() {
		if f.IsNil() {
			t.Errorf("%T: %s is forgotten", *new(O), field.Name)
			continue
		}
		calls = 0
		f.Call([]reflect.Value{reflect.Zero(f.Type().In(0))})
		if calls != 2 {
			t.Errorf("%T: %s reaches %d observers, want 2", *new(O), field.Name, calls)
		}
	}
}
