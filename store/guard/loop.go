package guard

import (
	"context"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// run is the guard's goroutine. During an outage it tries the store; otherwise it delivers what is
// pending. It ends when quit is closed.
func (s *Store) run() {
	defer close(s.done)
	for !s.closed.Load() {
		if s.open.Load() {
			s.mu.Lock()
			pause := s.brk.Pause(s.opts.random())
			s.mu.Unlock()
			if !s.sleep(pause) {
				return
			}
			s.mu.Lock()
			s.ledger.Expire(s.clock.now())
			s.mu.Unlock()
			s.probe()
			continue
		}
		if s.pendingNow() {
			if s.deliver() && !s.open.Load() {
				s.pause()
			}
			continue
		}
		s.rest()
	}
}

// rest waits until something is due for delivery.
func (s *Store) rest() {
	s.mu.Lock()
	us := s.ledger.Wait(s.clock.now())
	s.mu.Unlock()
	if us < 0 {
		select {
		case <-s.woken:
		case <-s.quit:
		}
		return
	}
	t := time.NewTimer(time.Duration(us) * time.Microsecond)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.woken:
	case <-s.quit:
	}
}

// sleep reports whether the guard is still open after d.
func (s *Store) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.quit:
		return false
	}
}

// pause waits before a failed delivery is tried again, less if a caller waits for it.
func (s *Store) pause() {
	t := time.NewTimer(lastPause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.woken:
		_ = s.sleep(firstPause / 10) // the same caller may wake it again and again
	case <-s.quit:
	}
}

// probe checks whether the store can be written, and whether it decides.
func (s *Store) probe() {
	start := time.Now()
	err := s.try()
	took := time.Since(start)
	s.mu.Lock()
	closed := s.brk.Probed(err == nil)
	if err != nil {
		s.fault = asStoreError("ping", err)
	}
	if closed {
		s.publishBreaker()
	}
	pending := s.ledger.Pending()
	s.mu.Unlock()
	s.news.probed(&Probe{Err: err, Took: took})
	if closed {
		s.news.closed(pending)
		s.hints.all()
	}
}

// probeKey is a bucket that nobody uses. Peeking at it takes the same path as any other call.
var probeKey = store.Key{Policy: "drawgate.guard", Name: "probe"}

// A check of a store writes, and may first connect and load a script: several round trips, which
// have the time of pingTrips calls together, but no more than pingTime if one call has less. The
// look that follows has the time of one call, as takes have.
const (
	pingTrips = 6
	pingTime  = time.Second
)

func (s *Store) try() error {
	inner := s.store()
	if p, ok := inner.(store.Pinger); ok {
		ctx, cancel := context.WithTimeout(context.Background(), max(s.timeout, min(pingTrips*s.timeout, pingTime)))
		defer cancel()
		if err := p.Ping(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	plan, err := drawgate.PerSecond(probeKey.Policy, 1).Compile()
	if err != nil {
		return err
	}
	var out [1]store.State
	if err := inner.Peek(ctx, []store.BucketCost{{Key: probeKey, Plan: plan.Plan}}, 0, out[:]); err != nil {
		return err
	}
	return out[0].Fail
}

// Ping implements [store.Pinger]. During an outage it returns the reason without asking the
// store.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if s.open.Load() {
		return s.unavailable("ping")
	}
	p, ok := s.store().(store.Pinger)
	if !ok {
		return nil
	}
	actx, cancel, fair := s.limit(ctx)
	defer cancel()
	return s.attempt(actx, ctx, "ping", fair, p.Ping)
}
