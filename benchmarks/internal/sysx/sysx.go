// Package sysx reads CPU times and starts child processes. Linux only.
package sysx

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const userHz = 100 // ticks a second in /proc/stat

// busy is the CPU time of the whole machine since boot, without niced processes, which give way.
func busy() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(line) // cpu user nice system idle iowait irq softirq …
	var ticks int64
	for _, i := range []int{1, 3, 6, 7} {
		if i < len(f) {
			v, _ := strconv.ParseInt(f[i], 10, 64)
			ticks += v
		}
	}
	return time.Duration(ticks) * time.Second / userHz
}

// cpuTime is the CPU time of a process, all threads, in the scheduler's nanoseconds (/proc/PID/stat
// has ticks of 10 ms).
func cpuTime(pid int) time.Duration {
	const sched = 2 // CPUCLOCK_SCHED in the kernel's include/linux/posix-timers_types.h
	var ts unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|sched), &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// ownTime is the CPU time of this process and of the children that it waited for.
func ownTime() time.Duration {
	var children unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &children) != nil {
		return 0
	}
	return cpuTime(os.Getpid()) + time.Duration(children.Utime.Nano()+children.Stime.Nano())
}

// Meter measures CPU times over an interval.
type Meter struct {
	start     time.Time
	busy, own time.Duration
	pids      []int
	cpu       []time.Duration
	server    int // 0: none
	serverCPU time.Duration
}

// Reading is what a Meter saw.
type Reading struct {
	Own   time.Duration   // CPU of this process and the children that ended
	Procs []time.Duration // CPU of each pid
	// Server is that of the server with all of its processes.
	Server time.Duration
	Other  float64 // CPU of everybody else, in cores
}

// Start begins an interval; pids are the processes that belong to the measurement.
func Start(pids ...int) *Meter { return StartWith(0, pids...) }

// StartWith is Start with a server whose child processes belong to the measurement as well.
func StartWith(server int, pids ...int) *Meter {
	m := &Meter{pids: pids, server: server, serverCPU: familyTime(server)}
	for _, p := range pids {
		m.cpu = append(m.cpu, cpuTime(p))
	}
	m.own, m.busy, m.start = ownTime(), busy(), time.Now()
	return m
}

// Stop ends the interval.
func (m *Meter) Stop() Reading {
	wall, b := time.Since(m.start), busy()
	r := Reading{Own: ownTime() - m.own}
	other := b - m.busy - r.Own
	for i, p := range m.pids {
		d := cpuTime(p) - m.cpu[i]
		r.Procs = append(r.Procs, d)
		other -= d
	}
	r.Server = familyTime(m.server) - m.serverCPU
	other -= r.Server
	r.Other = max(0, other.Seconds()/wall.Seconds())
	return r
}

// Gate keeps cells apart from other people's work.
type Gate struct {
	MaxOther float64       // cores that others may use
	Patience time.Duration // how long to wait for that before each cell
	Tries    int           // how often to run a cell at most
	Server   int           // the process id of a server that is measured with its children; 0: none
}

// Run waits until the machine is quiet and runs the cell; it runs it again if others used more than
// MaxOther meanwhile. The last reading is returned whatever it is.
func (g Gate) Run(cell func(), pids ...int) Reading {
	for try := 1; ; try++ {
		g.wait(pids)
		runtime.GC()
		m := StartWith(g.Server, pids...)
		cell()
		if r := m.Stop(); r.Other <= g.MaxOther || try >= g.Tries {
			return r
		}
	}
}

func (g Gate) wait(pids []int) {
	const look = 400 * time.Millisecond
	for end := time.Now().Add(g.Patience); time.Now().Before(end); {
		m := StartWith(g.Server, pids...)
		time.Sleep(look)
		if m.Stop().Other < g.MaxOther {
			return
		}
	}
}
