package breaker_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/internal/breaker"
)

func TestOpensAfterFailuresInARow(t *testing.T) {
	t.Parallel()
	b := breaker.New(3, time.Second, time.Second)
	for i, c := range []struct{ fails, opened bool }{
		{true, false},
		{true, false},
		{false, false},
		{true, false},
		{true, false},
		{true, true},
		{true, false},
	} {
		opened := false
		if c.fails {
			opened = b.Failed(b.Epoch())
		} else {
			b.Succeeded(b.Epoch())
		}
		if opened != c.opened {
			t.Fatalf("attempt %d: opened %v, want %v", i, opened, c.opened)
		}
	}
	if !b.Open() || b.Probed(false) || !b.Probed(true) || b.Open() || b.Probed(true) {
		t.Error("a probe that fails leaves it open, one that succeeds closes it, once")
	}
	if !b.Trip(b.Epoch()) || b.Trip(b.Epoch()) {
		t.Error("it is tripped once")
	}
}

// TestStragglersDoNotCount: an attempt that began before the breaker closed says nothing about what
// came after.
func TestStragglersDoNotCount(t *testing.T) {
	t.Parallel()
	b := breaker.New(1, time.Second, time.Second)
	early := b.Epoch()
	if !b.Failed(early) || !b.Probed(true) {
		t.Fatal("it does not open and close")
	}
	if b.Failed(early) || b.Trip(early) || b.Open() {
		t.Error("an attempt of an earlier epoch opened it")
	}
	if !b.Failed(b.Epoch()) {
		t.Error("one of this epoch did not")
	}
}

func TestPausesGrow(t *testing.T) {
	t.Parallel()
	b := breaker.New(1, 100*time.Millisecond, time.Second)
	pauses := func(want ...int64) {
		t.Helper()
		for i, w := range want {
			if got := b.Pause(1).Milliseconds(); got != w {
				t.Errorf("pause %d is %d ms, want %d", i, got, w)
			}
		}
	}
	b.Failed(b.Epoch())
	pauses(100, 200, 400, 800, 1000, 1000)
	// The probe was wrong: nothing succeeded after it.
	b.Probed(true)
	b.Failed(b.Epoch())
	pauses(1000)
	// The store was there for a while.
	b.Probed(true)
	b.Succeeded(b.Epoch())
	b.Failed(b.Epoch())
	pauses(100, 200)
	if d := b.Pause(0); d != 200*time.Millisecond {
		t.Errorf("the shortest pause is %v, want half of 400 ms", d)
	}
}

// TestAgainstCounting compares the breaker with a count of the failures since the last success, on
// random histories of overlapping attempts.
func TestAgainstCounting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 5).Draw(t, "failures")
		b := breaker.New(most, time.Millisecond, time.Second)
		row, open := 0, false
		var began []uint64
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				if !open {
					began = append(began, b.Epoch())
				}
			case 1, 2:
				if len(began) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(began)-1).Draw(t, "attempt")
				now := began[i] == b.Epoch()
				if rapid.Bool().Draw(t, "ok") {
					if b.Succeeded(began[i]); now {
						row = 0
					}
				} else {
					if now {
						row++
					}
					if opened := b.Failed(began[i]); opened != (now && row == most) {
						t.Fatalf("opened %v after %d failures in a row of %d", opened, row, most)
					} else if opened {
						open, row = true, 0
					}
				}
				began = append(began[:i], began[i+1:]...)
			case 3:
				ok := rapid.Bool().Draw(t, "probe")
				if closed := b.Probed(ok); closed != (ok && open) {
					t.Fatalf("closed %v by a probe that is %v while open is %v", closed, ok, open)
				} else if closed {
					open = false
				}
			}
			if b.Open() != open {
				t.Fatalf("open %v, want %v", b.Open(), open)
			}
		}
	})
}
