package redisstore_test

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/redistest"
)

// longLeases is the long form.
var longLeases = leaseSpec{
	Processes: 8, Callers: 64, Pause: 40 * time.Millisecond, Timeout: 500 * time.Millisecond, Scale: 8, Keys: 10_000,
	Window: 4 * time.Second,
}

// TestLeasesNeverOver lets processes decide by leases from the same buckets, while holders of
// leases are killed and replaced, stand still and go on, have clocks that are wrong and jump, and
// the server is away. In no window of any limit is more admitted than it allows, by the processes'
// own logs on the machine's clock. DRAWGATE_LONG makes it 8 processes of 64 goroutines for a
// minute; then the limits have to be used as well.
//
// req: E1, E2, A10, C12
func TestLeasesNeverOver(t *testing.T) {
	if !long { // then nothing else of this package runs at the same time
		t.Parallel()
	}
	f := &leaseTrial{t: t, server: redistest.Start(t, kept...), spec: leaseSpec{
		Processes: 4, Callers: 8, Pause: 5 * time.Millisecond, Timeout: time.Second, Scale: 1, Keys: 20,
		Window: 2 * time.Second,
	}}
	if long {
		f.spec = longLeases
		f.longFaults()
	} else {
		f.shortFaults()
	}
	end := nowMicro()
	f.ends()
	all := f.grants()
	t.Log(f)
	f.work()
	f.neverOver(all, true)
	if long {
		f.wellUsed(all, end)
		f.missing(all)
	}
}

// shortFaults lets each fault happen once, one after the other.
func (f *leaseTrial) shortFaults() {
	f.t.Helper()
	f.startAll()
	f.kill(0)
	f.more()
	p := f.hang(1)
	time.Sleep(600 * time.Millisecond) // more than the life of any lease
	p.resume()
	f.more()
	f.without(f.server.Kill9, f.server.Restart)
	f.more()
	f.kill(2)
	end := nowMicro() + f.spec.Window.Microseconds()
	until(f.t, "a window passes", func() bool { return nowMicro() > end })
	f.more()
}

// longFaults lets many faults happen in a minute, some of them at the same time.
func (f *leaseTrial) longFaults() {
	f.t.Helper()
	f.start(jumping(f.t), time.Hour) // while nothing else runs: it is compiled
	f.startAll()
	f.began = nowMicro()
	start := time.Now()
	at := func(seconds int) { time.Sleep(time.Until(start.Add(time.Duration(seconds) * time.Second))) }
	at(5)
	f.kill(1)
	at(8)
	first := f.hang(2)
	at(11)
	first.resume()
	at(12)
	second := f.hang(3)
	at(15)
	f.kill(4)
	at(20)
	f.without(f.server.Kill9, func() { at(23); f.server.Restart() })
	at(30)
	f.kill(1)
	at(34)
	f.without(f.server.Stop, func() { at(37); f.server.Continue() })
	at(42)
	second.resume()
	at(48)
	f.kill(4)
	at(52)
	third := f.hang(1)
	at(55)
	third.resume()
	at(60)
}
