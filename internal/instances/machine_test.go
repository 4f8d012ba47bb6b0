package instances_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/internal/instances"
)

var epoch = time.Unix(1_000_000, 0)

// obvious is the rule in its obvious form: it keeps all that happened, and looks through all of it.
type obvious struct {
	atLeast  int
	attempts []attempt
	lost     bool // since the last attempt
}

type attempt struct {
	at     time.Time
	answer string // "counted", "opened", "refused" or "failed"
	n      int
	lost   bool // the store was found to be unavailable since the attempt before
}

func (a *attempt) counted() bool { return a.answer == "counted" || a.answer == "opened" }

// unbroken reports whether attempt i and the answer before it were in contact with the store, with
// no loss between them.
func (o *obvious) unbroken(i int) bool {
	return i > 0 && o.attempts[i].counted() && o.attempts[i-1].counted() && !o.attempts[i].lost
}

func (o *obvious) gap(i int) time.Duration { return o.attempts[i].at.Sub(o.attempts[i-1].at) }

// instances returns the largest number of the last five minutes of contact.
func (o *obvious) instances() int {
	most, contact := max(1, o.atLeast), time.Duration(0)
	for i := len(o.attempts) - 1; i >= 0 && contact < instances.Memory; i-- {
		if o.attempts[i].counted() {
			most = max(most, o.attempts[i].n)
		}
		if o.unbroken(i) {
			contact += min(o.gap(i), instances.Steady.Every*5/4)
		}
	}
	return most
}

// ready reports whether the slot was open for two renewals in time in unbroken contact, and is
// still that slot; and whether there was never a time of more than two renewals without any attempt
// since the last answer.
func (o *obvious) ready(now time.Time) bool {
	renewals, mature, known := 0, false, false
	for i := range o.attempts {
		a := &o.attempts[i]
		if i > 0 && o.gap(i) > 2*instances.Steady.Every {
			known = false
		}
		switch {
		case a.answer == "failed":
			continue
		case a.answer == "refused":
			renewals, mature = 0, false
			continue
		case a.answer == "opened":
			renewals, mature = 0, false
		case o.unbroken(i) && o.gap(i) < instances.Steady.Every: // too early to count
		case o.unbroken(i) && o.gap(i) <= instances.Steady.Every*5/4:
			renewals++
		default:
			renewals = 0
		}
		mature, known = mature || renewals >= 2, true
	}
	return mature && known && now.Sub(o.attempts[len(o.attempts)-1].at) <= 2*instances.Steady.Every
}

// TestMachineFollowsTheObviousRule plays random attempts and losses to a machine and to the rule in
// its obvious form.
func TestMachineFollowsTheObviousRule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.IntRange(0, 3).Draw(t, "at least")
		m, o := &instances.Machine{Pace: instances.Steady, AtLeast: least}, &obvious{atLeast: least}
		now := epoch
		pauses := rapid.SampledFrom([]int{2, 20, 20, 20, 25, 26, 40, 41, 90})
		answers := rapid.SampledFrom([]string{
			"counted", "counted", "counted", "counted", "opened", "refused",
			"failed",
		})
		for range rapid.IntRange(1, 40).Draw(t, "attempts") {
			now = now.Add(time.Duration(pauses.Draw(t, "s")) * time.Second)
			a := attempt{at: now, answer: answers.Draw(t, "answer"), n: rapid.IntRange(1, 9).Draw(t, "n"), lost: o.lost}
			if len(o.attempts) == 0 && a.answer == "counted" {
				a.answer = "opened"
			}
			o.attempts, o.lost = append(o.attempts, a), false
			m.Tried(now)
			switch a.answer {
			case "failed":
				m.Unavailable()
			case "refused":
				m.Refused()
			default:
				m.Counted(a.n, a.answer == "opened")
			}
			if !rapid.Bool().Draw(t, "loss") {
				continue
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "later")) * time.Second)
			o.lost = true
			m.Unavailable()
			n, ok := m.Instances(), m.MayShare(now)
			if wantN, wantOK := o.instances(), o.ready(now); n != wantN || ok != wantOK {
				t.Fatalf("a share of one in %d (%v), want one in %d (%v), after %+v", n, ok, wantN, wantOK, o.attempts)
			}
		}
	})
}

// world is a store that is there for all processes or for none, and processes that count themselves
// in it. One step is five seconds.
type world struct {
	now   time.Time
	up    bool
	procs []*process
}

type process struct {
	instances.Machine

	ends    time.Time // of its slot in the store
	next    time.Time // when it is its turn
	paused  time.Time // until then
	lost    bool
	started bool
}

const step = 5 * time.Second

func newWorld(k int) *world {
	w := &world{now: epoch, up: true}
	for range k {
		w.procs = append(w.procs, &process{Machine: instances.Machine{Pace: instances.Steady}})
	}
	return w
}

func (w *world) open() (n int) {
	for _, p := range w.procs {
		if w.now.Before(p.ends) {
			n++
		}
	}
	return n
}

// pass lets five seconds pass. late says of a process that is cut off that it does not try now.
func (w *world) pass(late func(i int) bool) {
	w.now = w.now.Add(step)
	for i, p := range w.procs {
		if !p.started || w.now.Before(p.paused) || w.now.Before(p.next) ||
			p.lost && w.now.Sub(p.next) < 10*time.Second && late(i) {
			continue
		}
		p.Tried(w.now)
		if !w.up {
			p.Unavailable()
			p.lost, p.next = true, w.now
			continue
		}
		opened := !w.now.Before(p.ends)
		p.ends = w.now.Add(instances.Hold)
		p.Counted(w.open(), opened)
		p.lost, p.next = false, w.now.Add(instances.Steady.Every)
	}
}

// worth returns the sum of what all processes may admit now, in parts of a limit, as a fraction of
// 2520.
func (w *world) worth() (sum int) {
	for _, p := range w.procs {
		if p.started && !w.now.Before(p.paused) {
			if p.MayShare(w.now) {
				sum += 2520 / p.Instances()
			}
		}
	}
	return sum
}

// TestSharesAreOneLimitAtMost: processes start at any time, are paused, lose their slots, and
// notice a loss early or late; the store comes and goes. As long as it is unavailable for all or
// for none, their shares together are one limit at most. models/instances.py explores the same in
// coarser steps.
func TestSharesAreOneLimitAtMost(t *testing.T) {
	t.Parallel()
	shared := 0
	for seed := range uint64(5000) {
		shared += play(t, rand.New(rand.NewPCG(seed, 1)), seed)
	}
	if shared < 20_000 {
		t.Errorf("a share might be admitted %d times, want many", shared)
	}
}

// play plays one history, and returns how often a share might be admitted.
func play(t *testing.T, r *rand.Rand, seed uint64) (shared int) {
	t.Helper()
	w := newWorld(2 + r.IntN(2))
	late := func(int) bool { return r.IntN(2) == 0 }
	for range 8 {
		steps := 1 + r.IntN(12)
		if w.up = !w.up; !w.up {
			steps = 6 + r.IntN(4) // everybody notices that the store is unavailable, by a renewal that is not late
			if r.IntN(8) == 0 {
				steps += 120
			}
		}
		for range steps {
			w.pass(late)
			if w.up && r.IntN(200) == 0 { // somebody resets the bucket
				for _, p := range w.procs {
					p.ends = time.Time{}
				}
			}
			for _, p := range w.procs {
				switch {
				case !p.started:
					p.started = r.IntN(12) == 0
				case w.now.Before(p.paused):
				case r.IntN(40) == 0:
					p.paused = w.now.Add(time.Duration(5+r.IntN(120)) * time.Second)
				case !w.up && r.IntN(4) == 0:
					p.Unavailable()
					p.lost, p.next = true, w.now
				}
			}
			if w.up {
				continue
			}
			sum := w.worth()
			if sum > 2520 {
				t.Fatalf("seed %d: %.3f limits may be admitted, %v after the start", seed, float64(sum)/2520,
					w.now.Sub(epoch))
			}
			if sum > 0 {
				shared++
			}
		}
	}
	return shared
}

// TestEveryScheduleOfTheStore: two processes, each of which starts at any of 12 instants ten
// seconds apart, and a store that is there or not in each of 12 times of 30 seconds: together they
// may never admit more than one limit, and one that has been in contact for 40 seconds may admit
// its share.
func TestEveryScheduleOfTheStore(t *testing.T) {
	t.Parallel()
	const times = 10
	shared := 0
	for bits := range 1 << times {
		for first := range 6 {
			for second := first; second < 6; second++ {
				w := newWorld(2)
				for k := range times * 6 {
					w.up = k < 2 || bits>>(k/6)&1 == 1
					w.procs[0].started = w.procs[0].started || k >= 2*first
					w.procs[1].started = w.procs[1].started || k >= 2*second
					w.pass(func(int) bool { return false })
					if w.up {
						continue
					}
					sum := w.worth()
					if sum > 2520 {
						t.Fatalf("starts at %d and %d, store %0*b: %.3f limits after %v", first, second, times, bits,
							float64(sum)/2520, w.now.Sub(epoch))
					}
					if sum > 0 {
						shared++
					}
				}
			}
		}
	}
	if shared < 10_000 {
		t.Errorf("a share was admitted %d times, want many", shared)
	}
}

// TestAProcessOfItsOwnHasTheWholeLimit, after 40 seconds of contact, and with at least n assumed
// the nth part.
func TestAProcessOfItsOwnHasTheWholeLimit(t *testing.T) {
	t.Parallel()
	for least, want := range []int{1, 1, 2, 3} {
		m, now := instances.Machine{Pace: instances.Steady, AtLeast: least}, epoch
		for k := range 3 {
			if m.Instances() != want || k == 0 && m.MayShare(now) {
				t.Errorf("at least %d, before renewal %d: one in %d, %v", least, k, m.Instances(), m.MayShare(now))
			}
			m.Tried(now)
			m.Counted(1, k == 0)
			if got := m.MayShare(now); got != (k == 2) {
				t.Errorf("after %d renewals: ready %v", k, got)
			}
			now = now.Add(instances.Steady.Every)
		}
		if n := m.Instances(); n != want {
			t.Errorf("at least %d: one in %d", least, n)
		}
	}
}

// TestAPauseEndsTheShare: a process that was paused for more than 40 seconds does not know who has
// come since. When the store has answered, it does.
func TestAPauseEndsTheShare(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{20 * time.Second, 40 * time.Second, 41 * time.Second, time.Minute} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprint(pause, lost), func(t *testing.T) {
				t.Parallel()
				m, now := instances.Machine{Pace: instances.Steady}, epoch
				answer := func(opened bool) {
					m.Tried(now)
					m.Counted(1, opened)
					now = now.Add(instances.Steady.Every)
				}
				answer(true)
				answer(false)
				answer(false)
				if lost {
					m.Tried(now)
					m.Unavailable()
				} else {
					now = now.Add(-instances.Steady.Every)
				}
				now = now.Add(pause)
				want := pause <= 40*time.Second
				if ok := m.MayShare(now); ok != want {
					t.Errorf("admits a share: %v, want %v", ok, want)
				}
				m.Tried(now)
				m.Unavailable()
				if ok := m.MayShare(now); ok != want {
					t.Errorf("after another failure: %v, want %v", ok, want)
				}
				answer(false)
				if !m.MayShare(now) {
					t.Error("the store has answered, and no share is admitted")
				}
			})
		}
	}
}

// TestSharesOfProcessesThatRunInCalls: processes that are called at random instants, and stand
// still between calls. The store is there, or not, for at least two minutes at a time. Their shares
// together are one limit at most.
func TestSharesOfProcessesThatRunInCalls(t *testing.T) {
	t.Parallel()
	shared := 0
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 2))
		w, seldom := &world{now: epoch}, make([]int, 2+r.IntN(2)) // seldom: of so many steps one has a call
		for range seldom {
			w.procs = append(w.procs, &process{Machine: instances.Machine{Pace: instances.InCalls}})
		}
		for range 10 {
			w.up = !w.up
			for i := range seldom {
				seldom[i] = 1 + r.IntN(20)
			}
			for range 24 + r.IntN(120) {
				sum := w.call(func(i int) bool { return r.IntN(seldom[i]) == 0 })
				if sum > 2520 {
					t.Fatalf("seed %d: %.3f limits may be admitted, %v after the start", seed, float64(sum)/2520,
						w.now.Sub(epoch))
				}
				if sum > 0 {
					shared++
				}
			}
		}
	}
	if shared < 5_000 {
		t.Errorf("a share might be admitted %d times, want many", shared)
	}
}

// call lets five seconds pass, in which some processes are called. If the store is unavailable it
// returns the sum of what all may admit from then on until it is back, if they are called again.
func (w *world) call(called func(i int) bool) (sum int) {
	w.now = w.now.Add(step)
	for i, p := range w.procs {
		if !called(i) {
			continue
		}
		if !w.up {
			p.Unavailable() // the take of this call fails
		}
		if p.Due(w.now) {
			p.Tried(w.now)
			if w.up {
				opened := !w.now.Before(p.ends)
				p.ends = w.now.Add(instances.Hold)
				p.Counted(w.open(), opened)
			}
		}
	}
	for _, p := range w.procs {
		if !w.up && p.MayShare(w.now) {
			sum += 2520 / p.Instances()
		}
	}
	return sum
}
