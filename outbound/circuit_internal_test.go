package outbound

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// rounds begins calls and reads the state of a model's circuit, in a bubble.
type rounds struct {
	*testing.T
	*circuits
}

// begin begins a call of a model, and checks whether it is let through.
func (r rounds) begin(want bool, from ...string) attempt {
	r.Helper()
	call := &Call{Model: "m", From: from}
	if asked := r.ask(call, time.Now()) == nil; asked != want {
		r.Fatalf("asked: let through %v, want %v", asked, want)
	}
	a, stopped := r.circuits.begin(call, time.Now())
	if (stopped == nil) != want || stopped != nil && stopped.RetryAfter <= 0 {
		r.Fatalf("let through unless %+v, want %v", stopped, want)
	}
	return a
}

func (r rounds) fail(from ...string) []Circuit { return r.begin(true, from...).failed(time.Now()) }
func (r rounds) pass(from ...string) []Circuit { return r.begin(true, from...).succeeded(time.Now()) }

// is checks which circuits are not closed, such as "m alice open".
func (r rounds) is(want ...string) {
	r.Helper()
	var got []string
	for _, k := range r.list(time.Now()) {
		got = append(got, fmt.Sprintf("%s %s %s", k.Model, k.Caller, k.State))
	}
	if !slices.Equal(got, want) {
		r.Fatalf("not closed: %q, want %q", got, want)
	}
}

// TestCircuitGoesRound shows C4's four steps with its numbers: five failures open the circuit,
// after 60 s one call may try, and two that succeed close it.
//
// req: C4
func TestCircuitGoesRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := rounds{t, newCircuits(Breaker{})}
		for i := range 5 {
			r.is()
			if opened := r.fail(); (len(opened) > 0) != (i == 4) {
				t.Fatalf("failure %d opened %v", i+1, opened)
			}
		}
		r.is("m  open")
		r.begin(false)
		time.Sleep(60*time.Second - time.Microsecond)
		r.begin(false)
		time.Sleep(time.Microsecond)
		r.is("m  half-open")
		a := r.begin(true)
		r.begin(false) // one trial at a time
		if a.succeeded(time.Now()) != nil {
			t.Fatal("one success of two closed it")
		}
		r.is("m  half-open")
		r.fail()
		r.is("m  open")
		r.begin(false)
		time.Sleep(60 * time.Second)
		r.begin(true).dropped() // its caller left: another one may try
		if r.pass() != nil {
			t.Fatal("the success before the failed trial still counts")
		}
		if r.pass() == nil {
			t.Fatal("two successes in a row did not close it")
		}
		r.is()
	})
}

// TestCircuitAgainstAList compares the circuit with the plainest description of it: the list of
// what ended, on random histories of overlapping calls.
//
// req: C4
func TestCircuitAgainstAList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := Breaker{
			Failures: rapid.IntRange(1, 4).Draw(t, "failures"), Open: time.Minute,
			Successes: rapid.IntRange(1, 3).Draw(t, "successes"),
		}
		c := newCircuits(o)
		now := time.Unix(0, 0)
		type call struct {
			a     attempt
			phase int // how often the circuit had opened or closed when it began
			trial bool
		}
		var under []call
		phase, above, open, since, passed := 0, 0, false, time.Time{}, 0
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1:
				trying := false
				for _, u := range under {
					trying = trying || u.trial && u.phase == phase
				}
				want := !open || !now.Before(since.Add(o.Open)) && !trying
				a, stopped := c.begin(&Call{Model: "m"}, now)
				if (stopped == nil) != want {
					t.Fatalf("let through unless %+v, want %v", stopped, want)
				}
				if want {
					under = append(under, call{a, phase, open})
				}
			case 2, 3:
				if len(under) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(under)-1).Draw(t, "which")
				u := under[i]
				under = append(under[:i], under[i+1:]...)
				current := u.phase == phase
				switch rapid.IntRange(0, 2).Draw(t, "how") {
				case 0:
					closed := u.a.succeeded(now) != nil
					switch {
					case u.trial && current:
						if passed++; (passed == o.Successes) != closed {
							t.Fatalf("closed %v after %d of %d successes", closed, passed, o.Successes)
						} else if closed {
							open, passed, phase = false, 0, phase+1
						}
					case current && !open:
						above = max(0, above-1)
					}
				case 1:
					opened := u.a.failed(now) != nil
					switch {
					case u.trial && current:
						passed, since = 0, now
					case current && !open:
						if above++; (above == o.Failures) != opened {
							t.Fatalf("opened %v when failures outnumber successes by %d of %d", opened, above,
								o.Failures)
						} else if opened {
							open, since, passed, above, phase = true, now, 0, 0, phase+1
						}
					}
				default:
					u.a.dropped()
				}
			case 4:
				now = now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "seconds")) * time.Second)
			}
		}
	})
}

// TestLongTrials: a trial whose answer has begun keeps nobody waiting, however long it lasts. It
// counts when it ends, unless the circuit has closed or opened anew meanwhile.
//
// req: C4
func TestLongTrials(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := rounds{t, newCircuits(Breaker{Failures: 1, Open: time.Minute})}
		reopen := func() {
			r.fail()
			time.Sleep(time.Minute)
		}
		reopen()
		long := r.begin(true)
		r.begin(false)
		long.answered()
		second := r.begin(true)
		r.begin(false)
		long.dropped() // the second one is still under way
		r.begin(false)
		second.answered()
		third := r.begin(true)
		second.succeeded(time.Now())
		r.begin(false)
		if third.succeeded(time.Now()) == nil {
			t.Fatal("two successes did not close it")
		}

		reopen()
		long = r.begin(true)
		long.answered()
		for range 2 {
			r.pass()
		}
		reopen()
		if long.failed(time.Now()); r.pass() != nil {
			t.Fatal("one success of two closed it")
		}
		if r.pass() == nil {
			t.Fatal("a trial from before it closed still counts")
		}
	})
}

// TestOneCallerOpensItsOwnCircuit: the failures of one caller stop its own calls only, of that
// model; those of a team's keys stop the team. What all callers meet stops everybody.
//
// req: C4
func TestOneCallerOpensItsOwnCircuit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := rounds{t, newCircuits(Breaker{})}
		alice, anna, bob := []string{"alice", "red"}, []string{"anna", "red"}, []string{"bob", "blue"}
		for range 5 {
			r.fail(alice...)
		}
		r.is("m alice open")
		r.begin(false, alice...)
		if a, stopped := r.circuits.begin(&Call{Model: "other", From: alice}, time.Now()); stopped != nil {
			t.Errorf("another model of the same caller: %+v", stopped)
		} else {
			a.dropped()
		}
		r.fail(anna...)
		r.is("m alice open")
		r.fail(anna...)
		r.is("m alice open", "m red open")
		r.begin(false, "amy", "red")
		for range 2 {
			r.fail(bob...)
		}
		r.pass(bob...)
		r.fail(bob...)
		r.is("m alice open", "m red open")
		r.fail(bob...) // the tenth call that failed, but one
		r.is("m  open", "m alice open", "m red open")
	})
}

// TestDeadUpstreamGetsFewCalls: whoever calls an upstream that is dead, in whatever order, no more
// than twice as many calls are made as open a circuit.
//
// req: C4
func TestDeadUpstreamGetsFewCalls(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "failures")
		c := newCircuits(Breaker{Failures: n})
		calls, now := 0, time.Unix(0, 0)
		for range 200 {
			key := rapid.IntRange(0, 8).Draw(t, "key")
			a, stopped := c.begin(&Call{Model: "m", From: []string{strconv.Itoa(key), "team" + strconv.Itoa(key%3)}},
				now)
			if stopped == nil {
				a.failed(now)
				calls++
			}
		}
		if calls > max(3, 2*n) {
			t.Fatalf("%d calls were made, want at most %d", calls, 2*n)
		}
	})
}

// TestOthersMayTry: after the trial of one caller has failed the others need not wait for the next
// one, until as many have failed as open the circuit.
func TestOthersMayTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := rounds{t, newCircuits(Breaker{Failures: 3})}
		for i := range 3 {
			r.fail(strconv.Itoa(i))
		}
		r.is("m  open")
		time.Sleep(time.Minute)
		r.fail("a")
		r.begin(false, "a")
		r.fail("b")
		r.is("m  half-open")
		r.fail("c")
		r.is("m  open")
		time.Sleep(time.Minute)
		r.fail("a")
		r.pass("b")
		r.pass("b")
		r.is()
	})
}

// TestConnectionsHaveACircuitOfTheirOwn: calls for which there is no connection, whoever makes
// them, stop all calls; calls that failed otherwise show that there was one.
func TestConnectionsHaveACircuitOfTheirOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := rounds{t, newCircuits(Breaker{Failures: 3, Successes: 1})}
		for range 3 {
			r.begin(true, "alice").unreachable(time.Now())
		}
		r.is("  open")
		r.begin(false, "bob")
		time.Sleep(time.Minute)
		if closed := r.fail("bob"); len(closed) != 1 || closed[0].State != CircuitClosed || closed[0].Model != "" {
			t.Errorf("changed %+v, want the connections' circuit closed", closed)
		}
		r.is()
	})
}

// TestCircuitsAreBounded: however many models fail, not more than a number of them are remembered,
// and a failure is forgotten after an hour.
func TestCircuitsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCircuits(Breaker{Failures: 2})
		fail := func(model string) []Circuit {
			a, _ := c.begin(&Call{Model: model}, time.Now())
			return a.failed(time.Now())
		}
		fail("m")
		time.Sleep(time.Hour + 1)
		if opened := fail("m"); opened != nil {
			t.Errorf("a failure of an hour ago opened %v", opened)
		}
		for i := range 2 * maxCircuits {
			fail(strconv.Itoa(i))
		}
		if len(c.all) > maxCircuits {
			t.Errorf("%d circuits, want at most %d", len(c.all), maxCircuits)
		}
	})
}
