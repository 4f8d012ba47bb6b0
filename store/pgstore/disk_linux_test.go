package pgstore_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/store"
)

// TestFullDisk: takes fail while a file of the history cannot grow, and say that the disk is full.
// What failed is not spent, and with room the store goes on by itself.
//
// The disk is a limit on the size of the files that the server's processes write. It ends within a
// page of 8 kB, of which a half is written then, as on a disk that is full. From version 16 on the
// server tries to write the rest, and reports that the file is too large.
//
// req: D2, D10, E7
func TestFullDisk(t *testing.T) {
	needs.NoRace(t) // the others are for goroutines
	t.Parallel()
	prlimit := needs.Program(t, "prlimit")
	server := pgtest.Start(t)
	url := server.Schema(t)
	s, plan := open(t, url, nil), hourly(t, many)
	mustTake(t, s, takeOf(plan, "k"))
	server.Do("INSERT INTO " + schemaOf(t, url) + ".drawgate_history (at, op, takes, tenant, policy, name, units, labels) " +
		"SELECT 1, 0, 1, '', '', '', '', ARRAY[repeat(md5(random()::text), 40)] FROM generate_series(1, 2000)")
	largest := func() int64 { // of the files, of which the history's grow
		t.Helper()
		size, err := strconv.ParseInt(server.Do("SELECT max(pg_relation_size(oid)) FROM pg_class"), 10, 64)
		if err != nil || size < 2<<20 {
			t.Fatalf("the largest file has %d bytes, %v: want more than a segment of the log", size, err)
		}
		return size
	}
	limit := func(bytes string) {
		t.Helper()
		pids := server.Do("SELECT pid FROM pg_stat_activity")
		for _, pid := range append(strings.Fields(pids), strconv.Itoa(server.PID())) { // its children have the same
			of, err := os.Stat("/proc/" + pid)
			if err != nil {
				continue // it has ended
			}
			cmd := exec.CommandContext(t.Context(), prlimit, "--pid", pid, "--fsize="+bytes+":unlimited")
			// Root may not have this right, but the server's user has.
			if own := of.Sys().(*syscall.Stat_t); os.Geteuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: own.Uid, Gid: own.Gid}}
			}
			if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(string(out), "No such process") {
				t.Fatalf("%v: %s", err, out)
			}
		}
	}
	units := int64(1)
	for range 2 { // a disk may be full again and again
		limit(fmt.Sprint(largest()/8192*8192 + 4096)) // it may end with half a page
		var err error
		for err == nil {
			var v store.Verdict
			take := takeOf(plan, "k")
			take.Labels = []store.Label{{Name: "pad", Value: strings.Repeat(fmt.Sprint(units, " "), 200)}}
			if v, err = takeOne(t, s, take); err == nil && v.Allowed {
				units++
			}
		}
		if version, _ := strconv.Atoi(server.Do("SHOW server_version_num")); version < 160000 {
			fails(t, err, store.FaultConfiguration)
			if !strings.Contains(err.Error(), "disk is full") {
				t.Errorf("%v does not say that the disk is full", err)
			}
		}
		if got := used(t, s, plan, "k"); got != units {
			t.Errorf("%d units are used, and %d were granted", got, units)
		}
		limit("unlimited")
		mustTake(t, s, takeOf(plan, "k"))
		units++
	}
	if got := used(t, s, plan, "k"); got != units {
		t.Errorf("%d units are used, and %d were granted", got, units)
	}
}
