package cells

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/internal/record"
)

// room returns how many cells an index has room for.
func room(x *index) (n int) {
	x.eachPage(func(p *page) { n += len(p.cells) }, func() bool { return true })
	return n
}

// TestMemoryComesBack: when many buckets have expired their memory is given up though nobody asks
// for anything, words and records alike; what still limits stays.
func TestMemoryComesBack(t *testing.T) {
	t.Parallel()
	rolling := []record.Spec{{ID: 1, Kind: record.Rolling, Window: 1_000_000, Join: 10_000}}
	for p := range rolling[0].Effective {
		rolling[0].Effective[p] = 5
	}
	for name, specs := range map[string][]record.Spec{"words": leaky(5, time.Second), "records": rolling} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := New(1_000_000)
				defer s.Close()
				short, long := s.Space("t", "short").Bind(specs), s.Space("t", "long").Bind(leaky(5, time.Hour))
				const n = 50_000
				for i := range n {
					if ok, _, err := take(short, fmt.Sprint("k", i), 1); !ok || err != nil {
						t.Fatal(ok, err)
					}
				}
				if ok, _, err := take(long, "k", 5); !ok || err != nil {
					t.Fatal(ok, err)
				}
				if got := room(s.index); got < n {
					t.Fatalf("room for %d of %d buckets", got, n)
				}
				time.Sleep(2 * sweepSoon)
				synctest.Wait()
				if got := room(s.index); got > 8 || s.Len() != 1 {
					t.Errorf("room for %d buckets is kept, and %d are", got, s.Len())
				}
				if ok, _, err := take(long, "k", 1); ok || err != nil {
					t.Errorf("what limits was given up: %v %v", ok, err)
				}
			})
		})
	}
}

// TestATimerKeepsNoStore: a store that was dropped without being closed is collected, however many
// buckets it has.
func TestATimerKeepsNoStore(t *testing.T) {
	t.Parallel()
	gone := make(chan bool)
	func() {
		s := New(1_000_000)
		b := s.Space("t", "p").Bind(leaky(5, time.Hour))
		for i := range 2 * firstSweep {
			if ok, _, err := take(b, fmt.Sprint("k", i), 1); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		s.running.Wait() // for the sweep that their number started
		runtime.AddCleanup(s, func(c chan bool) { close(c) }, gone)
	}()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Error("it is kept")
}
