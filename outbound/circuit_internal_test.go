package outbound

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestCircuitGoesRound shows C4's four steps with its numbers: five failures open the circuit,
// after 60 s one call may try, and two that succeed close it.
//
// req: C4
func TestCircuitGoesRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCircuit(Breaker{})
		begin := func(want bool) attempt {
			t.Helper()
			a, wait, ok := c.begin(time.Now())
			if ok != want || ok == (wait > 0) {
				t.Fatalf("let through %v, to wait %v; want %v", ok, wait, want)
			}
			return a
		}
		is := func(want string) {
			t.Helper()
			if got, _ := c.state(time.Now()); got != want {
				t.Fatalf("the circuit is %s, want %s", got, want)
			}
		}
		for i := range 5 {
			is(CircuitClosed)
			if opened := begin(true).failed(time.Now()); opened != (i == 4) {
				t.Fatalf("failure %d opened it: %v", i+1, opened)
			}
		}
		is(CircuitOpen)
		begin(false)
		time.Sleep(60*time.Second - time.Microsecond)
		begin(false)
		time.Sleep(time.Microsecond)
		is(CircuitHalfOpen)
		a := begin(true)
		begin(false) // one trial at a time
		if a.succeeded() {
			t.Fatal("one success of two closed it")
		}
		is(CircuitHalfOpen)
		begin(true).failed(time.Now())
		is(CircuitOpen)
		begin(false)
		time.Sleep(60 * time.Second)
		begin(true).dropped() // its caller left: another one may try
		if begin(true).succeeded() {
			t.Fatal("the success before the failed trial still counts")
		}
		if !begin(true).succeeded() {
			t.Fatal("two successes in a row did not close it")
		}
		is(CircuitClosed)
	})
}

// TestCircuitAgainstAList compares the circuit with the plainest description of it: the list of
// what ended, on random histories of overlapping calls.
//
// req: C4
func TestCircuitAgainstAList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := Breaker{Failures: rapid.IntRange(1, 4).Draw(t, "failures"), Open: time.Minute, Successes: rapid.IntRange(1, 3).Draw(t, "successes")}
		c := newCircuit(o)
		now := time.Unix(0, 0)
		type call struct {
			a     attempt
			phase int // how often the circuit had opened or closed when it began
			trial bool
		}
		var under []call
		phase, row, open, since, passed := 0, 0, false, time.Time{}, 0
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1:
				trying := false
				for _, u := range under {
					trying = trying || u.trial && u.phase == phase
				}
				want := !open || !now.Before(since.Add(o.Open)) && !trying
				a, _, ok := c.begin(now)
				if ok != want {
					t.Fatalf("let through %v, want %v", ok, want)
				}
				if ok {
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
					closed := u.a.succeeded()
					switch {
					case u.trial:
						if passed++; (passed == o.Successes) != closed {
							t.Fatalf("closed %v after %d of %d successes", closed, passed, o.Successes)
						} else if closed {
							open, passed, phase = false, 0, phase+1
						}
					case current && !open:
						row = 0
					}
				case 1:
					opened := u.a.failed(now)
					switch {
					case u.trial:
						passed, since = 0, now
					case current && !open:
						if row++; (row == o.Failures) != opened {
							t.Fatalf("opened %v after %d of %d failures", opened, row, o.Failures)
						} else if opened {
							open, since, passed, row, phase = true, now, 0, 0, phase+1
						}
					}
				default:
					u.a.dropped()
				}
			case 4:
				now = now.Add(time.Duration(rapid.IntRange(1, 70).Draw(t, "seconds")) * time.Second)
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
		c := newCircuit(Breaker{Failures: 1, Open: time.Minute})
		begin := func(want bool) attempt {
			t.Helper()
			a, _, ok := c.begin(time.Now())
			if ok != want {
				t.Fatalf("let through %v, want %v", ok, want)
			}
			return a
		}
		reopen := func() {
			begin(true).failed(time.Now())
			time.Sleep(time.Minute)
		}
		reopen()
		long := begin(true)
		begin(false)
		long.answered()
		second := begin(true)
		begin(false)
		long.dropped() // the second one is still under way
		begin(false)
		second.answered()
		third := begin(true)
		second.succeeded()
		begin(false)
		if !third.succeeded() {
			t.Fatal("two successes did not close it")
		}

		reopen()
		long = begin(true)
		long.answered()
		for range 2 {
			begin(true).succeeded()
		}
		reopen()
		if long.failed(time.Now()); begin(true).succeeded() {
			t.Fatal("one success of two closed it")
		}
		if !begin(true).succeeded() {
			t.Fatal("a trial from before it closed still counts")
		}
	})
}
