package main

import (
	"bytes"
	"context"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/sleep"
)

// syncBuffer is what a program prints, to be read while it does.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// await returns what the parentheses of a pattern match, once it is there.
func (s *syncBuffer) await(t *testing.T, pattern string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	re := regexp.MustCompile(pattern)
	for {
		if m := re.FindStringSubmatch(s.String()); m != nil {
			return m[1]
		}
		if !sleep.For(ctx, 10*time.Millisecond) {
			t.Fatalf("%s is not printed", pattern)
		}
	}
}
