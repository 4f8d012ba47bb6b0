package guard

import (
	"context"
	"time"

	"github.com/drawgate/drawgate"
)

// run is the guard's goroutine. While the store is unavailable it tries it; while it is not it
// delivers what is pending. It ends with quit.
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

// rest waits until something is to be delivered.
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

// sleep reports whether the guard is still there.
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

// pause waits until what could not be delivered may be tried again, or somebody waits for it.
func (s *Store) pause() {
	t := time.NewTimer(lastPause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.woken:
		_ = s.sleep(firstPause / 10) // the same may be wanted again and again
	case <-s.quit:
	}
}

// probe tries the store: whether it can be written, and whether it decides.
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
		s.turned()
	}
	pending := s.ledger.Pending()
	s.mu.Unlock()
	s.news.probed(&Probe{Err: err, Took: took})
	if closed {
		s.news.closed(pending)
		s.hints.all()
	}
}

// probeKey is a bucket that nobody uses: a look at it is a call like any other, but for what it
// costs.
var probeKey = drawgate.Key{Policy: "drawgate.guard", Name: "probe"}

func (s *Store) try() error {
	store := s.store()
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	if p, ok := store.(drawgate.Pinger); ok {
		if err := p.Ping(ctx); err != nil {
			return err
		}
	}
	plan, err := drawgate.PerSecond(probeKey.Policy, 1).Compile()
	if err != nil {
		return err
	}
	var out [1]drawgate.Status
	if err := store.Peek(ctx, []drawgate.BucketCost{{Key: probeKey, Plan: plan}}, 0, out[:]); err != nil {
		return err
	}
	return out[0].Fail
}

// Ping implements [drawgate.Pinger]. While callers are not sent to the store it says why, and does
// not ask.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if s.open.Load() {
		return s.unavailable("ping")
	}
	p, ok := s.store().(drawgate.Pinger)
	if !ok {
		return nil
	}
	actx, cancel, whole := s.limit(ctx)
	defer cancel()
	return s.attempt(actx, ctx, "ping", whole, p.Ping)
}
