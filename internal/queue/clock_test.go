package queue

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestClockIsBounded: what it says of another clock is never less than that shows, and more by no
// more than the quickest question was under way. Once a clock was set, it is less by no more than
// the quickest answer since then, and more by no more than the slowest question.
func TestClockIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		journey := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(0, int(time.Second)).Draw(t, "journey"))
		})
		var c Clock
		if _, known := c.Latest(0); known {
			t.Fatal("it knows a clock that nobody has asked for")
		}
		ahead, now := time.Duration(rapid.Int64Range(-1e18, 1e18).Draw(t, "ahead")), time.Duration(0)
		wasSet, first := false, true // since it was
		var least, most, short time.Duration
		for range rapid.IntRange(1, 20).Draw(t, "answers") {
			if rapid.IntRange(0, 4).Draw(t, "is set") == 0 {
				ahead += time.Duration(rapid.Int64Range(-1e10, 1e10).Draw(t, "by"))
				wasSet, first = true, true
			}
			there, back := journey.Draw(t, "there"), journey.Draw(t, "back")
			c.Add(now, now+there+ahead, now+there+back)
			now += there + back
			if first {
				least, most, short = there, there, back
			}
			least, most, short, first = min(least, there), max(most, there), min(short, back), false
			early, late := time.Duration(0), least
			if wasSet {
				early, late = short, most
			}
			at, known := c.Latest(now)
			if off := at - now - ahead; !known || off < -early || off > late {
				t.Fatalf("off by %v, want %v to %v", off, -early, late)
			}
		}
	})
}
