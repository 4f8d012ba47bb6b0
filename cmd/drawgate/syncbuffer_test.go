package main

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/sleep"
	"github.com/drawgate/drawgate/internal/syncbuffer"
)

// syncBuffer holds the output of a program, and can be read while the program writes.
type syncBuffer struct{ syncbuffer.Buffer }

// await waits for a pattern, and returns what its parentheses match.
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
			t.Fatalf("the output has no match for %s", pattern)
		}
	}
}
