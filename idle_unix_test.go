//go:build unix

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

// TestThousandWaitersAreIdle: while a thousand wait, a hundred a second being served, their process does next to nothing, by its own account of processor
// time (getrusage). It is a process of its own, so that no other test is on the bill. The bound is generous: it is a few per cent really, and with
// DRAWGATE_LONG at most five.
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
	l := over(t, remote(t), drawgate.Rate(100, time.Second, 1))
	ctx, cancel := context.WithCancel(t.Context())
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
	for n, end := 0, time.Now().Add(20*time.Second); n < thousand+thousand/2; n, _ = l.Waiting() {
		if time.Now().After(end) {
			t.Fatalf("only %d wait", n)
		}
		time.Sleep(time.Millisecond)
	}
	start, cpu, before := time.Now(), processorTime(t), served.Load()
	time.Sleep(2 * time.Second)
	took, worked, n := time.Since(start), processorTime(t)-cpu, served.Load()-before
	if left, _ := l.Waiting(); left < thousand || n < 10 {
		t.Errorf("%d were served and %d are left: this shows nothing", n, left)
	}
	t.Logf("%v of processor time in %v, %d were served", worked, took, n)
	most := 20 * took / 100
	if long {
		most = 5 * took / 100
	}
	if worked > most {
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
