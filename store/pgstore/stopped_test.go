package pgstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore"
)

// holder is a child that takes a unit, and listens while it has the row locked.
type holder struct{ URL string }

func (h *holder) work(listen func()) {
	o := &pgstore.Options{}
	var held atomic.Bool
	o.Between(func(_ context.Context, step string) {
		if step == "locked" && !held.Swap(true) {
			tell("locked")
			listen()
		}
	})
	s, err := pgstore.Open(h.URL, o)
	if err != nil {
		panic(err)
	}
	p, err := hourlyPolicy(many).Compile()
	if err != nil {
		panic(err)
	}
	var v [1]store.Verdict
	err = s.Take(context.Background(), []store.Take{takeOf(p.Plan, "k")}, v[:])
	tell(v[0].Allowed, err, v[0].Fail)
	listen()
}

// TestStoppedHolder stops a process while it has a row locked. The server ends its transaction
// after two seconds; who waits for the row decides with a clock that is not earlier. If the
// stopped process goes on, its take is made again, and counted once.
//
// req: A10, A12, E1, E7
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	for what, units := range map[string]int64{"goes on": 3, "is killed": 2} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Shared(t)
			url, name := server.Schema(t), strings.ReplaceAll(what, " ", "_")
			s, plan := open(t, named(t, url, "waits_"+name), nil), hourly(t, many)
			mustTake(t, s, takeOf(plan, "k"))
			c := startChild(t, job{Holder: &holder{named(t, url, "holds_"+name)}})
			c.expect("locked")
			redistest.Hang(t, c.cmd.Process.Pid)
			var v store.Verdict
			waited := make(chan error, 1)
			go func() {
				var err error
				v, err = takeOne(t, s, takeOf(plan, "k"))
				waited <- err
			}()
			until(t, "another take waits", func() bool { return waitingForLock(server, "waits_"+name) })
			var alive int64 // when the holder's transaction was seen last, in µs
			until(t, "the holder's transaction is ended", func() bool {
				// The clock is read first: the transaction's locks are held still later. (What a
				// server says of its activity may be older than that.)
				now, locks, _ := strings.Cut(server.Do("SELECT (extract(epoch FROM clock_timestamp()) * 1e6)::bigint; "+
					"SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND granted "+
					"AND pid IN (SELECT pid FROM pg_stat_activity WHERE application_name = 'holds_"+name+"')"), "\n")
				if locks == "1" {
					alive, _ = strconv.ParseInt(now, 10, 64)
				}
				return locks == "0"
			})
			if alive == 0 {
				t.Error("the holder's transaction was never seen")
			}
			if err := <-waited; err != nil || !v.Allowed {
				t.Fatalf("the one that waited: allowed %t, %v", v.Allowed, err)
			}
			if v.Now < alive {
				t.Errorf("it decided with a clock of %d, and waited until %d or later", v.Now, alive)
			}
			if what == "goes on" {
				redistest.Resume(t, c.cmd.Process.Pid)
				c.proceed()
				c.expect(fmt.Sprint(true, nil, nil))
			}
			if err := c.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if got := used(t, s, plan, "k"); got != units {
				t.Errorf("%d units are used, want %d", got, units)
			}
		})
	}
}
