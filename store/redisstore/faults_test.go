package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store/redisstore"
)

// fault is what happens to servers, or to the processes that share limits on them.
type fault struct {
	name     string
	on       string        // the kind of servers
	args     []string      // of the servers
	replicas bool          // of a cluster
	lasts    time.Duration // in the long form
	hoards   bool          // the first process keeps its slots until their holds end
	shift    time.Duration // how far the first process's clock is ahead
	era      time.Duration // how long the same buckets are used; 0: always
	short    bool          // it has a short form
	happens  func(f *trial)
}

// rollingWindow is the window of the rolling limits, unless their buckets are used for an era only.
const rollingWindow = 2 * time.Second

// window returns that of the rolling limits. It is longer than an era, so that what was admitted
// before a fail-over still counts after it.
func (f *fault) window() time.Duration { return max(rollingWindow, 2*f.era) }

// faults are in the order of the table in docs/reliability.md.
var faults = []fault{
	{name: "none", on: "standalone", lasts: 5 * time.Second, happens: func(f *trial) { f.heals(); f.lasts() }},
	{name: "replies are lost after the write", on: "standalone", lasts: 3 * time.Second, happens: repliesLost},
	{
		name: "connections are cut in the middle of a reply", on: "standalone", lasts: 3 * time.Second, short: true,
		happens: cutInReplies,
	},
	{name: "connections are held without a reset", on: "standalone", lasts: 3 * time.Second, happens: connectionsHeld},
	{name: "one process is cut off", on: "standalone", lasts: 5 * time.Second, short: true, happens: oneCutOff},
	{name: "`CLIENT KILL`, ten times", on: "standalone", happens: clientsKilled},
	{name: "`FLUSHALL`", on: "standalone", happens: flushed},
	{name: "all live buckets are evicted", on: "standalone", short: true, happens: evicted},
	{
		name: "`kill -9` of a process that holds reservations", on: "standalone", hoards: true, happens: holderKilled,
	},
	{name: "a process stands still for 3 s", on: "standalone", lasts: 3 * time.Second, happens: processHangs},
	{name: "a process stands still for 30 s", on: "standalone", lasts: 30 * time.Second, happens: processHangs},
	{name: "the server stands still for 3 s", on: "standalone", lasts: 3 * time.Second, happens: serverHangs},
	{name: "the server stands still for 30 s", on: "standalone", lasts: 30 * time.Second, happens: serverHangs},
	{
		name: "the clock of a process is an hour ahead", on: "standalone", lasts: 5 * time.Second, shift: time.Hour,
		happens: cutShifted,
	},
	{
		name: "the clock of a process is an hour behind", on: "standalone", lasts: 5 * time.Second, shift: -time.Hour,
		happens: cutShifted,
	},

	{
		name: "fail-over that loses writes", on: "sentinel", lasts: time.Second, era: 20 * time.Second,
		happens: failsOver,
	},
	{name: "the server stands still for 3 s", on: "sentinel", lasts: 3 * time.Second, happens: serverHangs},
	{name: "the server stands still for 30 s", on: "sentinel", lasts: 30 * time.Second, happens: serverHangs},
	{name: "one process is cut off", on: "sentinel", lasts: 5 * time.Second, happens: oneCutOff},
	{name: "connections are held without a reset", on: "sentinel", lasts: 3 * time.Second, happens: connectionsHeld},

	{
		name: "fail-over that loses writes", on: "cluster", replicas: true, lasts: time.Second, era: 20 * time.Second,
		happens: failsOver,
	},
	{name: "slots are moved", on: "cluster", lasts: 3 * time.Second, happens: slotsMoved},
	{
		name: "a shard is down", on: "cluster", args: []string{"--appendonly", "yes", "--appendfsync", "always"},
		lasts: 5 * time.Second, happens: shardDown,
	},
	{name: "a shard stands still for 3 s", on: "cluster", lasts: 3 * time.Second, happens: serverHangs},
	{name: "replies are lost after the write", on: "cluster", lasts: 3 * time.Second, happens: repliesLost},
	{name: "connections are cut in the middle of a reply", on: "cluster", lasts: 3 * time.Second, happens: cutInReplies},
	{name: "connections are held without a reset", on: "cluster", lasts: 3 * time.Second, happens: connectionsHeld},
	{name: "one process is cut off", on: "cluster", lasts: 5 * time.Second, happens: oneCutOff},
	{name: "`kill -9` of a process that holds reservations", on: "cluster", hoards: true, happens: holderKilled},
	{name: "`FLUSHALL` of a shard", on: "cluster", happens: flushed},
}

// TestFaults: whatever happens to servers, or to one of the processes that share them, each take is
// answered, and no more is admitted than the limits allow, what an outage may add (the printed
// bound), and what the servers forgot. DRAWGATE_LONG makes each fault, at 30 % of what the servers
// can do, and writes the table of docs/reliability.md.
//
// req: A10, A11, A12, B11, C12, E1, E7
func TestFaults(t *testing.T) {
	if !long { // then nothing else of this package runs at the same time
		t.Parallel()
	}
	bound, err := faultBounds()
	if err != nil {
		t.Fatal(err)
	}
	for i := range faults {
		if !long && !faults[i].short {
			continue
		}
		t.Run(faults[i].name+", "+faults[i].on, func(t *testing.T) {
			f := &trial{t: t, fault: &faults[i], bound: bound}
			f.open()
			f.start()
			f.fault.happens(f)
			f.ends()
			v := f.judge()
			t.Log(v)
			if !v.kept() {
				t.Errorf("the promise is not kept")
			}
			if long && !t.Failed() {
				note(t, v)
			}
		})
	}
}

// during sets something of all proxies of some processes, and takes it back.
func (f *trial) during(of []*process, begin, end func(*redistest.Proxy)) {
	each(of, begin)
	f.lasts()
	each(of, end)
	f.heals()
}

func repliesLost(f *trial) {
	f.during(f.procs, func(p *redistest.Proxy) { p.Mute.Store(true) }, func(p *redistest.Proxy) { p.Mute.Store(false) })
}

func cutInReplies(f *trial) {
	f.during(f.procs, func(p *redistest.Proxy) { p.Half.Store(true) }, func(p *redistest.Proxy) { p.Half.Store(false) })
}

func connectionsHeld(f *trial) {
	f.during(f.procs, (*redistest.Proxy).Hold, (*redistest.Proxy).Release)
}

func oneCutOff(f *trial) {
	f.during(f.procs[:1], (*redistest.Proxy).Hold, (*redistest.Proxy).Release)
}

// cutShifted cuts off the process whose clock is wrong, for half of the time: then it decides by
// itself.
func cutShifted(f *trial) {
	f.lasts()
	oneCutOff(f)
}

func clientsKilled(f *trial) {
	for range 10 {
		f.more(20)
		for _, s := range f.primaries() {
			s.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		}
	}
	f.heals()
}

// forgets makes servers forget what they acknowledged so far.
func (f *trial) forgets(how func()) {
	from := nowMicro() - max(rollingWindow, faultHold).Microseconds()
	how()
	f.loses(from, nowMicro())
	f.heals()
	f.more(50)
}

func flushed(f *trial) {
	f.forgets(func() { f.primaries()[len(f.primaries())/2].Do("FLUSHALL") })
}

// evicted removes all buckets, as a server does that is full and may.
func evicted(f *trial) {
	f.forgets(func() {
		f.one.Do("EVAL", `for _, k in ipairs(redis.call('KEYS', '*')) do
			if not string.find(k, '%mark', 1, true) then redis.call('UNLINK', k) end end`, "0")
	})
}

// holderKilled waits until one process has slots of each key, and kills it. They are free again
// when their holds have ended, and not before.
func holderKilled(f *trial) {
	f.t.Helper()
	p := f.procs[0]
	until(f.t, "it has slots", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		of := map[int]bool{}
		for i := range p.acts {
			if a := &p.acts[i]; a.kind == ofSlots && a.allowed {
				of[a.key] = true
			}
		}
		return len(of) == faultSlotKeys
	})
	p.killed = true
	_ = p.cmd.Process.Kill()
	<-p.read
	f.heals()
	end := f.healed + faultHold.Microseconds()
	until(f.t, "its slots are given to others", func() bool {
		of := map[int]bool{}
		for _, p := range f.procs[1:] {
			p.mu.Lock()
			for i := range p.acts {
				if a := &p.acts[i]; a.kind == ofSlots && a.allowed && a.sent > end {
					of[a.key] = true
				}
			}
			p.mu.Unlock()
		}
		return len(of) == faultSlotKeys
	})
}

func processHangs(f *trial) {
	f.hang(f.procs[0])
	f.heals()
}

// lag is how much a replica may not have received when its connection is cut.
const lag = 100 * time.Millisecond

// serverHangs makes a primary stand still. If another server takes its place meanwhile, what was
// on its way to that one is lost, and so is what the old one acknowledges before it learns of it.
func serverHangs(f *trial) {
	s := f.primaries()[len(f.primaries())/2]
	from := nowMicro() - lag.Microseconds()
	s.Stop()
	f.lasts()
	s.Continue()
	f.heals()
	if f.sentinels != nil {
		until(f.t, "the servers agree who has the data", func() bool {
			now := f.sentinels.Watchers[0].Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", redistest.Master)
			_, port, _ := strings.Cut(s.Addr, ":")
			return strings.HasSuffix(now, "\n"+port) == (role(s) == "master")
		})
		f.loses(from, nowMicro())
	}
}

// role returns what a server of Sentinels is: "master" or "slave", or "" if it does not say so,
// because it is about to become the other.
func role(s *redistest.Server) string {
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableRetry: true, DisableCache: true,
	})
	if err != nil {
		return ""
	}
	defer c.Close()
	list, err := c.Do(context.Background(), c.B().Role().Build()).ToArray()
	if err != nil || len(list) == 0 {
		return ""
	}
	name, _ := list[0].ToString()
	return name
}

// newEra waits for buckets of which nothing has been used yet.
func (f *trial) newEra() {
	f.t.Helper()
	now := func() int64 { return nowMicro() / f.fault.era.Microseconds() }
	before := now()
	until(f.t, "the next era begins", func() bool { return now() > before })
}

// failsOver cuts a replica off, lets its primary acknowledge writes that are lost, and kills it.
func failsOver(f *trial) {
	f.t.Helper()
	primary, replica := f.primaries()[0], f.servers()[1]
	if f.cluster != nil {
		primary, replica = f.cluster.Primaries[1], f.cluster.Replicas[1]
	}
	f.newEra()
	from := nowMicro() - lag.Microseconds()
	replica.Stop()
	primary.Do("CLIENT", "KILL", "TYPE", "replica") // what is written now, it never receives
	f.lasts()
	primary.Kill9()
	f.loses(from, nowMicro())
	f.heals()
	replica.Continue()
}

// slotsMoved moves the slots of all buckets from one primary to another, and back.
func slotsMoved(f *trial) {
	c := f.cluster
	moved := 0
	for start := time.Now(); time.Since(start) < f.fault.lasts || moved == 0; {
		for key := range strings.FieldsSeq(c.Primaries[0].Do("KEYS", "*")) {
			slot := redisstore.SlotOf(key)
			c.Move(slot, c.Primaries[0], c.Primaries[2], func() { f.more(10) })
			c.Move(slot, c.Primaries[2], c.Primaries[0], func() { f.more(10) })
			moved += 2
		}
	}
	f.t.Logf("%d slots were moved", moved)
	f.heals()
}

// shardDown kills a primary without a replica. It comes back with what it had.
func shardDown(f *trial) {
	s := f.cluster.Primaries[1]
	s.Kill9()
	f.lasts()
	s.Restart()
	f.heals()
}
