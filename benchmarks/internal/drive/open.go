package drive

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
)

// lead is how long callers have to get ready before the first call is due.
const lead = 5 * time.Millisecond

// Open makes rate calls a second for d, whatever the answers do, with at most n under way.
// Latencies count from the instant at which a call was due. late is how late the generator itself
// was.
func Open(rate float64, n int, d time.Duration, decide Decide) (r *Result, late *stat.Hist) {
	ctx := context.Background()
	calls := int(rate * d.Seconds())
	due := make(chan time.Time, calls)
	callers := make([]Result, n)
	var wg sync.WaitGroup
	for i := range callers {
		c := &callers[i]
		wg.Go(func() {
			rnd := seed()
			for at := range due {
				ok, err := decide(ctx, &rnd)
				c.add(ok, err, time.Since(at))
			}
		})
	}
	late = &stat.Hist{}
	start := time.Now().Add(lead)
	wg.Go(func() {
		// A thread of its own and nanosleep: Go's timers are good to a millisecond.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for i := range calls {
			at := start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
			if w := time.Until(at); w > 0 {
				ts := unix.NsecToTimespec(w.Nanoseconds())
				_ = unix.Nanosleep(&ts, nil) // late shows it
			}
			late.Add(time.Since(at))
			due <- at
		}
		close(due)
	})
	wg.Wait()
	r = &Result{Wall: time.Since(start)}
	for i := range callers {
		r.merge(&callers[i])
	}
	return r, late
}
