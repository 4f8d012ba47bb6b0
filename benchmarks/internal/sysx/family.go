package sysx

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// familyTime is the CPU time of a process and its children, also of those that have ended, in ticks
// of 10 ms; 0 of process 0.
func familyTime(pid int) (all time.Duration) {
	if pid == 0 {
		return 0
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, path := range stats {
		b, err := os.ReadFile(path) //nolint:gosec // of the kernel
		if err != nil {
			continue // it has ended
		}
		if p, err := parseProcStat(string(b)); err == nil && p.parent == pid {
			all += p.own
		}
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return all
	}
	if p, err := parseProcStat(string(b)); err == nil {
		all += p.own + p.ended
	}
	return all
}

// procStat is what /proc/PID/stat says.
type procStat struct {
	parent     int
	own, ended time.Duration // CPU of the process; of its children that have ended
}

// parseProcStat reads a line of /proc/PID/stat (proc_pid_stat(5)). The second field is a name in
// parentheses that may have spaces and parentheses.
func parseProcStat(line string) (p procStat, err error) {
	const first, ppid, utime, cstime = 3, 4, 14, 17 // numbers of fields; after the name comes the third
	f := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(f) <= cstime-first {
		return p, fmt.Errorf("/proc/PID/stat has %d fields: %q", len(f), line)
	}
	if p.parent, err = strconv.Atoi(f[ppid-first]); err != nil {
		return p, err
	}
	for i := utime; i <= cstime; i++ {
		ticks, err := strconv.ParseInt(f[i-first], 10, 64)
		if err != nil {
			return p, err
		}
		d := time.Duration(ticks) * time.Second / userHz
		if i < utime+2 {
			p.own += d
		} else {
			p.ended += d
		}
	}
	return p, nil
}
