// Package breaker decides when callers may use something that may be unavailable.
//
// It is a pure state machine: no clock, no goroutine, no randomness and no lock, so that the code
// that ships also runs in simulation. Callers in several goroutines must lock it.
package breaker

import "time"

// Breaker is closed while callers may pass, and open while only probes may.
//
// Attempts overlap: one that began before the breaker opened may end after it has closed again, and
// then says nothing about the present. So each attempt only counts in the epoch in which it began;
// see [Breaker.Epoch].
type Breaker struct {
	failures    int           // this many in a row open it
	first, last time.Duration // bounds of the pauses between probes

	failed int           // in a row, in this epoch
	open   bool          //
	epoch  uint64        //
	pause  time.Duration // before the next probe, without jitter
	proven bool          // an attempt succeeded since it last closed
}

// New returns a closed breaker that opens after so many failures in a row, at least 1. While it is
// open, pauses between probes grow from first to last.
func New(failures int, first, last time.Duration) *Breaker {
	return &Breaker{failures: max(1, failures), first: first, last: last, pause: first}
}

// Open reports whether only probes may pass.
func (b *Breaker) Open() bool { return b.open }

// Epoch returns a number that changes whenever the breaker opens or closes.
func (b *Breaker) Epoch() uint64 { return b.epoch }

// Failed counts a failed attempt of an epoch, and reports whether that opened the breaker.
func (b *Breaker) Failed(epoch uint64) (opened bool) {
	if b.open || epoch != b.epoch {
		return false
	}
	b.failed++
	return b.failed >= b.failures && b.turn()
}

// Trip opens the breaker at once, after an attempt of an epoch that leaves no doubt.
func (b *Breaker) Trip(epoch uint64) (opened bool) {
	return !b.open && epoch == b.epoch && b.turn()
}

// turn opens the breaker. If nothing has succeeded since it closed, the probe was misleading: the
// pauses continue to grow.
func (b *Breaker) turn() bool {
	b.open, b.failed = true, 0
	b.epoch++
	if b.proven {
		b.pause = b.first
	}
	return true
}

// Succeeded counts a successful attempt of an epoch.
func (b *Breaker) Succeeded(epoch uint64) {
	if !b.open && epoch == b.epoch {
		b.failed, b.proven = 0, true
	}
}

// Probed records the result of a probe, and reports whether that closed the breaker.
func (b *Breaker) Probed(ok bool) (closed bool) {
	if !b.open || !ok {
		return false
	}
	b.open, b.failed, b.proven = false, 0, false
	b.epoch++
	return true
}

// Pause returns how long to wait before the next probe: the upper half of a pause that doubles each
// time. random is in [0, 1).
func (b *Breaker) Pause(random float64) time.Duration {
	d := b.pause/2 + time.Duration(random*float64(b.pause/2))
	b.pause = min(2*b.pause, b.last)
	return d
}
