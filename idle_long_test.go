//go:build long && unix

package drawgate_test

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
)

const idleVar = "DRAWGATE_TEST_IDLE"

// TestThousandWaitersAreIdle: while a thousand wait, a hundred a second being served, their process
// does next to nothing, by its own account of processor time (getrusage): five per cent of the
// time, and no more than a thousand would use who ask every 20 ms, as this machine has just shown.
// It is a process of its own, so that no other test is on the bill. TestThousandWaiters counts what
// they ask.
// req: C5
func TestThousandWaitersAreIdle(t *testing.T) {
	t.Parallel()
	if os.Getenv(idleVar) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), idleVar+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
		return
	}
	l := untimedLimiter(t, remote(t), drawgate.Rate("rate", 100, time.Second, 1))
	ctx, cancel := context.WithCancel(t.Context())
	most := processorTime(t)
	for range 100 * thousand {
		_, _ = l.Allow(ctx, "another")
	}
	most = processorTime(t) - most
	var wg sync.WaitGroup
	var served atomic.Int64
	for range 4 * thousand { // more, so that a thousand are left
		wg.Go(func() {
			if _, err := l.Wait(ctx, "k"); err == nil {
				served.Add(1)
			} else if ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	for n := 0; n+int(served.Load()) < 4*thousand; n, _ = l.Waiting() {
		time.Sleep(time.Millisecond) // until all have come
	}
	start, cpu, before := time.Now(), processorTime(t), served.Load()
	took, n := time.Duration(0), int64(0)
	for took < 2*time.Second || n < 10 { // on a busy machine fewer are served
		time.Sleep(100 * time.Millisecond)
		took, n = time.Since(start), served.Load()-before
	}
	worked := processorTime(t) - cpu
	most = time.Duration(float64(most) * took.Seconds() / 2)
	if left, _ := l.Waiting(); left < thousand {
		t.Errorf("%d were served and %d are left: this shows nothing", n, left)
	}
	t.Logf("%v of processor time in %v, %d were served; to ask all the time would take %v", worked, took, n, most)
	if most = min(most, 5*took/100); worked > most {
		t.Errorf("%v of processor time in %v, want at most %v", worked, took, most)
	}
	cancel()
	wg.Wait()
}

// processorTime is what this process has used.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
