// Package instances counts the processes that share a store, so that each knows its share of a
// limit during an outage.
//
// Each process holds a slot of a concurrency bucket in the store, and learns with each renewal how
// many slots are open. [Machine] is the rule, and [Counter] carries it out. docs/fallback.md states
// the rule and its bound; models/instances.py shows why each part of it is needed.
package instances

import "time"

// The times of a slot.
const (
	Hold   = 10 * time.Minute // lifetime of a slot without renewal
	Retry  = 2 * time.Second  // between attempts while the store is unavailable
	Memory = 5 * time.Minute  // the largest number in this time of contact counts

	mature = 2 // renewals in unbroken contact after which a process may admit a share
)

// Pace says how often a slot is renewed.
type Pace struct {
	Every time.Duration // between renewals, at least
	late  time.Duration // a renewal later than this does not prove that contact was unbroken
}

var (
	// Steady is for processes that always run.
	Steady = Pace{20 * time.Second, 25 * time.Second}
	// InCalls is for processes that may be stopped between calls, for as long as it pleases.
	InCalls = Pace{time.Minute, 2 * time.Minute}
)

// stale is the longest time without any attempt: others may have become mature in a longer one.
func (p Pace) stale() time.Duration { return mature * p.Every }

// Machine decides which share of a limit a process may admit during an outage. A new one has
// no slot yet.
//
// It is a pure state machine: no clock, no goroutine, no lock and no I/O. Callers in several
// goroutines must lock it. Call [Machine.Tried] before every attempt to open or renew the slot, and
// one of Counted, Refused and Unavailable after it.
//
// The sum of 1/D over all processes that may admit a share is at most 1 as long as the store is
// unavailable for all of them or for none.
type Machine struct {
	Pace    Pace // must be set
	AtLeast int  // the least number of processes that is assumed

	counted  bool          // there has been an answer
	renewals int           // in unbroken contact since the slot was opened, or since the first answer after a loss
	mature   bool          // these were enough, and the slot has stayed open
	lost     bool          // the store was unavailable since the last answer
	missed   bool          // what happened since the last answer is unknown
	tried    time.Time     // when the last attempt was sent
	gap      time.Duration // time between it and the one before
	contact  time.Duration // sum of the times between answers without a loss in between
	seen     []sample      // numbers seen: the older, the larger
}

type sample struct {
	at time.Duration // of contact
	n  int
}

// Tried says that an attempt is being sent.
func (m *Machine) Tried(now time.Time) {
	m.gap = since(now, m.tried)
	m.missed = m.missed || m.gap > m.Pace.stale()
	m.tried = now
}

// Counted says that the slot is open, and how many are. opened says that the last attempt opened
// it, so that it was not open before.
func (m *Machine) Counted(n int, opened bool) {
	unbroken := m.counted && !m.lost
	if unbroken {
		m.contact += min(m.gap, m.Pace.late)
	}
	m.learn(n)
	switch {
	case opened:
		m.renewals, m.mature = 0, false
	case !unbroken || m.gap > m.Pace.late:
		m.renewals = 0
	case m.gap >= m.Pace.Every: // otherwise it is too early to count
		m.renewals++
		m.mature = m.mature || m.renewals >= mature
	}
	m.counted, m.lost, m.missed = true, false, false
}

// learn remembers a number. A newer number replaces older ones that are not larger.
func (m *Machine) learn(n int) {
	for len(m.seen) > 0 && m.seen[len(m.seen)-1].n <= n {
		m.seen = m.seen[:len(m.seen)-1]
	}
	if last := len(m.seen) - 1; last < 0 || m.seen[last].at < m.contact {
		m.seen = append(m.seen, sample{m.contact, n})
	}
	for m.contact-m.seen[0].at >= Memory {
		m.seen = append(m.seen[:0], m.seen[1:]...)
	}
}

// Refused says that the store answered, and that there is no slot for this process.
func (m *Machine) Refused() {
	m.renewals, m.mature, m.lost = 0, false, true
}

// Unavailable says that the last attempt failed, or that another caller found that the store does
// not answer.
func (m *Machine) Unavailable() { m.lost = true }

// Due reports whether it is time to renew the slot.
func (m *Machine) Due(now time.Time) bool { return since(now, m.tried) >= m.Pace.Every }

// Instances returns the number of processes that a limit is divided by: the largest number seen
// recently, and at least 1.
func (m *Machine) Instances() int {
	n := max(1, m.AtLeast)
	if len(m.seen) > 0 {
		n = max(n, m.seen[0].n)
	}
	return n
}

// MayShare reports whether the process may admit its share if the store is unavailable. A process
// that was paused does not know what it missed, and may not until the store has answered.
func (m *Machine) MayShare(now time.Time) bool {
	return m.mature && !m.missed && since(now, m.tried) <= m.Pace.stale()
}

// since returns the time from then to now on the wall clock or the monotonic clock, whichever is
// longer: the monotonic clock stands still while a machine is suspended.
func since(now, then time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}
