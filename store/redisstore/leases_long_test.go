//go:build long

package redisstore_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
)

// TestLeasesServerClockLong sets the server's clock back by seconds, twice, while processes decide
// by leases. By the machine's clock nothing is over. When it is set forward again, windows end
// early, as docs/semantics.md says: by how much is printed.
//
// req: E1, A10
func TestLeasesServerClockLong(t *testing.T) {
	set, env := serverClock(t)
	f := &leaseTrial{t: t, server: redistest.StartWith(t, env), spec: leaseSpec{
		Processes: 8, Callers: 16, Pause: 10 * time.Millisecond, Timeout: time.Second, Scale: 2, Keys: 100,
		Window: 4 * time.Second,
	}}
	f.startAll()
	for _, back := range []time.Duration{3 * time.Second, 4 * time.Second} {
		time.Sleep(6 * time.Second)
		set(-back)
	}
	time.Sleep(8 * time.Second)
	forward := nowMicro()
	set(0)
	time.Sleep(8 * time.Second)
	f.ends()
	t.Log(f)
	f.work()
	before := f.grants()
	for b, list := range before {
		before[b] = nil
		for _, g := range list {
			if g.got < forward {
				before[b] = append(before[b], g)
			}
		}
	}
	f.neverOver(before, false)
	hot := f.grants()[leaseBucket{ofHot, 0}]
	t.Logf("when it was set forward by 4 s, a window: at most %d of %d in a window",
		mostIn(hot, f.spec.Window.Microseconds()), f.spec.amounts()[ofHot])
}

// TestLeasesCalmLong: what is used of the same limits when nothing happens.
//
// req: E2
func TestLeasesCalmLong(t *testing.T) {
	f := &leaseTrial{t: t, server: redistest.Start(t, kept...), spec: longLeases}
	f.startAll()
	f.began = nowMicro()
	time.Sleep(time.Minute)
	end := nowMicro()
	f.ends()
	all := f.grants()
	t.Log(f)
	f.work()
	f.neverOver(all, true)
	f.wellUsed(all, end)
	f.missing(all)
}

// clockSource is a library that gives a program another wall clock: the machine's, and the
// microseconds that are in a file.
const clockSource = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long none, *shift = &none;

__attribute__((constructor)) static void start(void) {
	int f = open(getenv("DRAWGATE_TEST_CLOCK"), O_RDONLY);
	void *p = mmap(0, sizeof *shift, PROT_READ, MAP_SHARED, f, 0);
	if (f < 0 || p == MAP_FAILED) abort();
	shift = p;
}

int clock_gettime(clockid_t id, struct timespec *t) {
	int r = syscall(SYS_clock_gettime, id, t);
	if (r == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		long long ns = t->tv_sec * 1000000000LL + t->tv_nsec + *shift * 1000;
		t->tv_sec = ns / 1000000000, t->tv_nsec = ns % 1000000000;
	}
	return r;
}

int gettimeofday(struct timeval *t, void *zone) {
	struct timespec s;
	(void)zone;
	int r = clock_gettime(CLOCK_REALTIME, &s);
	t->tv_sec = s.tv_sec, t->tv_usec = s.tv_nsec / 1000;
	return r;
}

time_t time(time_t *t) {
	struct timespec s;
	clock_gettime(CLOCK_REALTIME, &s);
	if (t) *t = s.tv_sec;
	return s.tv_sec;
}
`

// serverClock returns the environment of a program whose wall clock can be set, and what sets it.
func serverClock(t *testing.T) (set func(by time.Duration), env []string) {
	t.Helper()
	cc, dir := needs.Program(t, "cc"), t.TempDir()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, []byte(clockSource), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), cc, "-shared", "-fPIC", "-O2", "-o", library, source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	file, err := os.Create(filepath.Join(dir, "shift"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	set = func(by time.Duration) {
		t.Helper()
		b := binary.NativeEndian.AppendUint64(nil, uint64(by.Microseconds()))
		if _, err := file.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	set(0)
	return set, []string{"LD_PRELOAD=" + library, "DRAWGATE_TEST_CLOCK=" + file.Name()}
}
