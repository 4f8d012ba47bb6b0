package redisstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/redisstore"
)

// trial is a run of a fault: servers, and processes that reach them through proxies of their
// own.
type trial struct {
	t     *testing.T
	fault *fault
	bound [faultKinds]int64
	rate  float64 // takes a second of all processes

	one       *redistest.Server // of these three, one is not nil
	sentinels *redistest.Sentinels
	cluster   *redistest.Cluster

	procs  []*process
	healed int64  // when what the fault took away was there again
	lost   []span // what was acknowledged meanwhile, servers may have forgotten
}

// process is one of the processes, and what it wrote.
type process struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	proxies map[string]*redistest.Proxy // by the address of the server
	read    chan struct{}               // closed when all it wrote was read
	stops   []span                      // when it stood still
	killed  bool

	mu     sync.Mutex
	acts   []act           // guarded by mu
	free   map[int64]int64 // guarded by mu: when slots were given back
	late   []span          // guarded by mu: when it should have been woken, and was
	errors []string        // guarded by mu
	said   int64           // guarded by mu: how many takes it sent
	back   [2]int64        // guarded by mu: units and reservations that servers lost, and have again
}

// nowMicro is the clock of the logs.
func nowMicro() int64 { return time.Now().UnixMicro() }

// open starts the servers of a fault.
func (f *trial) open() {
	f.t.Helper()
	switch f.fault.on {
	case "standalone":
		f.one = redistest.Start(f.t, f.fault.args...)
	case "sentinel":
		f.sentinels = redistest.StartSentinels(f.t, true, f.fault.args...)
	case "cluster":
		f.cluster = redistest.StartCluster(f.t, f.fault.replicas, f.fault.args...)
	}
}

func (f *trial) url() string {
	switch {
	case f.one != nil:
		return f.one.URL()
	case f.sentinels != nil:
		return f.sentinels.URL()
	}
	return f.cluster.URL()
}

// servers are all servers, the primaries first.
func (f *trial) servers() []*redistest.Server {
	switch {
	case f.one != nil:
		return []*redistest.Server{f.one}
	case f.sentinels != nil:
		return append([]*redistest.Server{f.sentinels.Primary, f.sentinels.Replica}, f.sentinels.Watchers...)
	}
	return f.cluster.All()
}

// primaries are those that have the buckets.
func (f *trial) primaries() []*redistest.Server {
	if f.cluster != nil {
		return f.cluster.Primaries
	}
	return f.servers()[:1]
}

// leastRate is how many takes a second want more than the limits allow.
const leastRate = 240

// start starts the processes, and waits until all goes well. If others use the machine so much that
// it does not, there is less to do.
func (f *trial) start() {
	f.t.Helper()
	f.rate = leastRate
	if long {
		f.rate = max(leastRate, 0.3*f.capacity())
	}
	for tries := 1; ; tries++ {
		f.launch()
		end := time.Now().Add(20 * time.Second)
		for time.Now().Before(end) {
			if f.settled() {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		if tries == 4 {
			f.t.Fatalf("at %.0f takes a second, the store does not decide the takes of all processes", f.rate)
		}
		f.stop()
		f.procs, f.rate = nil, max(leastRate, f.rate/2)
	}
}

// launch starts the processes, which share the rate.
func (f *trial) launch() {
	f.t.Helper()
	most, timeout := 40, time.Second // a slow machine sends fewer
	if long {
		most, timeout = 0, 0
	}
	for i := range faultProcesses {
		w := faultWorker{
			URL: f.url(), Most: most, Timeout: timeout,
			Every:  time.Duration(float64(time.Second) * faultProcesses / f.rate),
			Hoards: f.fault.hoards && i == 0, Window: f.fault.window(), Era: f.fault.era,
		}
		program := os.Args[0]
		if i == 0 && f.fault.shift != 0 {
			w.Shift, program = f.fault.shift, shifted(f.t, f.fault.shift)
		}
		f.procs = append(f.procs, f.spawn(program, &w))
	}
}

// capacity returns how many takes a second 64 callers are granted, by the way that the processes
// go.
func (f *trial) capacity() float64 {
	f.t.Helper()
	to := map[string]string{}
	for _, s := range f.servers() {
		to[s.Addr] = redistest.NewProxy(f.t, s.Addr).Addr
	}
	opts := (&redisstore.Options{}).Via(func(addr string) string { return to[addr] })
	g := guard.New(openURL(f.t, f.url(), opts), &guard.Options{Timeout: 10 * time.Second})
	defer g.Close()
	plan := day(f.t, 1e9)
	var taken atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range 64 {
		all.Go(func() {
			for i := 0; time.Since(start) < time.Second; i++ {
				ask := takeOf(plan, [...]string{"a", "b", "c"}[i%3], 1)
				if i%4 == 0 {
					ask.Buckets = append(ask.Buckets, takeOf(plan, "d", 1).Buckets...)
				}
				var d [1]store.Verdict
				if err := g.Take(f.t.Context(), []store.Take{ask}, d[:]); err != nil || !d[0].Allowed {
					f.t.Errorf("%+v, %v", d[0], err)
					return
				}
				taken.Add(1)
			}
		})
	}
	all.Wait()
	return float64(taken.Load()) / time.Since(start).Seconds()
}

// spawn starts a process.
func (f *trial) spawn(program string, w *faultWorker) *process {
	f.t.Helper()
	p := &process{
		proxies: map[string]*redistest.Proxy{}, free: map[int64]int64{}, said: -1, read: make(chan struct{}),
	}
	w.Via = map[string]string{}
	for _, s := range f.servers() {
		p.proxies[s.Addr] = redistest.NewProxy(f.t, s.Addr)
		w.Via[s.Addr] = p.proxies[s.Addr].Addr
	}
	spec, err := json.Marshal(w)
	if err != nil {
		f.t.Fatal(err)
	}
	p.cmd = exec.CommandContext(context.Background(), program) // stop and the cleanup end it
	p.cmd.Env = append(os.Environ(), envFaults+"="+string(spec))
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	p.stdin = stdin
	go func() { // ends with the process
		defer close(p.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.parse(lines.Text())
		}
	}()
	f.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended, unless the test failed
		<-p.read
		_ = p.cmd.Wait()
	})
	return p
}

// each calls a function with each proxy of some processes.
func each(procs []*process, do func(*redistest.Proxy)) {
	for _, p := range procs {
		for _, proxy := range p.proxies {
			do(proxy)
		}
	}
}

// settled reports whether the store decides the takes of each process, and each rolling limit has
// refused some.
func (f *trial) settled() bool {
	refused := map[bucketOf]bool{}
	for _, p := range f.procs {
		if _, ok := p.normal(0); !ok {
			return false
		}
		p.mu.Lock()
		for i := range p.acts {
			if a := &p.acts[i]; a.kind <= ofClosed && !a.allowed && !a.fallback {
				refused[bucketOf{a.kind, a.key % faultKeys}] = true
			}
		}
		p.mu.Unlock()
	}
	return len(refused) == 2*faultKeys
}

// more waits until the processes that run have made so many takes more, each.
func (f *trial) more(takes int) {
	f.t.Helper()
	for _, p := range f.procs {
		from := p.count()
		until(f.t, "takes go on", func() bool { return p.killed || p.count() >= from+takes })
	}
}

func (p *process) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.acts)
}

// lasts lets a fault last.
func (f *trial) lasts() {
	if long {
		time.Sleep(f.fault.lasts)
		return
	}
	f.more(30)
}

// heals notes that the fault is over.
func (f *trial) heals() { f.healed = nowMicro() }

// loses notes that the servers may have forgotten what they acknowledged in a span.
func (f *trial) loses(from, to int64) { f.lost = append(f.lost, span{from, to}) }

// ends waits until the store decides again, and lets it do so for a while. Then the processes end.
func (f *trial) ends() {
	f.t.Helper()
	until(f.t, "the store decides again", func() bool { return f.normalAfter() >= 0 })
	end := nowMicro() + rollingWindow.Microseconds()*int64(needs.Rounds(1, 1, 2))
	until(f.t, "a window passes", func() bool { return nowMicro() > end })
	f.stop()
	for _, p := range f.procs {
		for i, text := range p.errors {
			if i < 3 {
				f.t.Errorf("a caller was given an error: %s", text)
			}
		}
	}
}

// stop ends the processes.
func (f *trial) stop() {
	for _, p := range f.procs {
		_ = p.stdin.Close()
	}
	for _, p := range f.procs {
		<-p.read
	}
}

// hang makes a process stand still.
func (f *trial) hang(p *process) {
	from := nowMicro()
	redistest.Hang(f.t, p.cmd.Process.Pid)
	f.lasts()
	redistest.Resume(f.t, p.cmd.Process.Pid)
	p.stops = append(p.stops, span{from, nowMicro()})
}
