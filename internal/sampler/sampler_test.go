package sampler_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/sampler"
)

func TestSampler(t *testing.T) {
	t.Parallel()
	var s sampler.Sampler
	start := time.Now()
	for i, c := range []struct {
		at   time.Duration
		held int64
		ok   bool
	}{
		{0, 0, true},
		{1, 0, true},
		{2, 0, false},
		{9, 0, false}, // two per interval
		{10, 2, true},
		{11, 0, true},
		{12, 0, false},
		{50, 1, true},
	} {
		if held, ok := s.Pass(start.Add(c.at), 10, 2); held != c.held || ok != c.ok {
			t.Errorf("event %d: %d, %v, want %d, %v", i, held, ok, c.held, c.ok)
		}
	}
	for range 3 {
		s.Pass(start.Add(51), 10, 1)
	}
	s.Reported()
	if n := s.Rest(start.UnixNano() + 59); n != 0 {
		t.Errorf("%d before the end of the interval", n)
	}
	if n := s.Rest(start.UnixNano() + 60); n != 2 {
		t.Errorf("%d are left, want 2", n)
	}
}

func TestSamplerUnderLoad(t *testing.T) {
	t.Parallel()
	const events = 1000
	var s sampler.Sampler
	var passed atomic.Int64
	var wg sync.WaitGroup
	now := time.Now()
	s.Pass(now, time.Hour, 5)
	for range 4 {
		wg.Go(func() {
			for range events {
				if _, ok := s.Pass(now, time.Hour, 5); ok {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := s.Rest(now.Add(time.Hour).UnixNano()); passed.Load() != 4 || n != 4*events-4 {
		t.Errorf("%d passed and %d were held, want 4 and %d", passed.Load(), n, 4*events-4)
	}
}
