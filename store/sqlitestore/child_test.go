package sqlitestore_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// The tests with several processes start this test binary again, which then is one of these.
var children = map[string]func(path string, args []string) error{
	"crash":    crashChild,
	"disk":     diskChild,
	"hold":     holdChild,
	"queue":    queueChild,
	"refuse":   refuseChild,
	"repair":   repairChild,
	"share":    shareChild,
	"scribble": scribbleChild,
	"wait":     waitChild,
}

const childVar = "DRAWGATE_TEST_CHILD"

func TestMain(m *testing.M) {
	if kind := os.Getenv(childVar); kind != "" {
		if err := children[kind](os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(ctx context.Context, kind, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], append([]string{path}, args...)...)
	cmd.Env = append(os.Environ(), childVar+"="+kind)
	cmd.Stderr = os.Stderr
	return cmd
}

// tightPlan returns a limit that is exhausted sooner or later.
func tightPlan(amount int64) *store.Plan { return dayLong("tight", amount) }

// widePlan returns a limit that never is.
func widePlan() *store.Plan { return dayLong("wide", 1_000_000_000) }

func dayLong(name string, amount int64) *store.Plan {
	p, err := drawgate.Policy{Name: name, Limits: []drawgate.Limit{rolling(amount, 24*time.Hour)}}.Compile()
	if err != nil {
		panic(err)
	}
	return p.Plan
}

// crashChild takes and settles with 8 goroutines until it is killed, and writes a line for whatever
// was acknowledged: the name of the operation and what identifies it.
func crashChild(path string, args []string) error {
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		return err
	}
	amount, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	tight, wide := tightPlan(amount), widePlan()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := args[0] + "-" + strconv.Itoa(g) + "-" + strconv.Itoa(i)
				if err := crashStep(s, tight, wide, id, i); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
			}
		})
	}
	wg.Wait()
	return nil
}

func crashStep(s *sqlitestore.Store, tight, wide *store.Plan, id string, i int) error {
	ctx := context.Background()
	var d [1]store.Verdict
	plan := wide
	if i%4 == 0 {
		plan = tight
	}
	t := store.Take{Buckets: buckets(plan, "k", 1), Labels: []store.Label{{Name: "id", Value: id}}}
	if i%3 == 0 {
		t.ID, t.Hold, t.Buckets[0].N[0] = id, time.Hour, 3
	}
	if err := s.Take(ctx, []store.Take{t}, d[:]); err != nil {
		return err
	}
	if !d[0].Allowed {
		return ack(refused, id)
	}
	if err := ack("take", id); err != nil || t.ID == "" {
		return err
	}
	var o [1]store.Outcome
	if err := s.Settle(ctx, []store.Settlement{{Op: store.OpSettle, ID: id, Buckets: buckets(plan, "k", 2)}},
		o[:]); err != nil {
		return err
	}
	if o[0].Gone {
		return fmt.Errorf("%s is gone", id)
	}
	return ack("settle", id)
}

// refused is what the lines of takes begin with that were not granted.
const refused = "refused"

// ack writes a line at once: what the kernel has survives a kill.
func ack(op, id string) error {
	_, err := os.Stdout.WriteString(op + " " + id + "\n")
	return err
}

// dayPlan returns a calendar day of so many units, in a zone whose midnight is not near.
func dayPlan(amount int64, zone string) *store.Plan {
	p, err := drawgate.Policy{Name: "day", Limits: []drawgate.Limit{
		{Name: "day", Kind: drawgate.Calendar, Every: drawgate.Day, Zone: zone, Amount: amount},
	}}.Compile()
	if err != nil {
		panic(err)
	}
	return p.Plan
}

// dayZone returns a zone in which it is neither within a minute of midnight now nor soon.
func dayZone() string {
	if now := time.Now().UTC(); now.Hour() == 23 || now.Hour() == 0 {
		return "Asia/Tokyo" // its midnight is at 15:00 UTC
	}
	return "UTC"
}

// shareChild takes for a while with many goroutines, at least until the tight limit is exhausted,
// and prints how many it was granted of each plan.
func shareChild(path string, args []string) error {
	goroutines, _ := strconv.Atoi(args[0])
	d, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	s, err := sqlitestore.Open(path, &sqlitestore.Options{BusyTimeout: time.Minute})
	if err != nil {
		return err
	}
	amount, _ := strconv.ParseInt(args[2], 10, 64)
	tight := dayPlan(amount, args[3])
	wide := widePlan()
	var granted [2]atomic.Int64
	var failed atomic.Pointer[error]
	var slowest atomic.Int64
	var exhausted atomic.Bool
	var wg sync.WaitGroup
	end := time.Now().Add(d)
	last := end.Add(time.Minute)
	more := func() bool {
		now := time.Now()
		return failed.Load() == nil && (now.Before(end) || !exhausted.Load() && now.Before(last))
	}
	for range goroutines {
		wg.Go(func() {
			for i := 0; more(); i++ {
				plan := []*store.Plan{tight, wide}[i%2]
				start := time.Now()
				d, err := take(context.Background(), s, plan, "k", 1)
				if err != nil {
					failed.Store(&err)
				}
				if d.Allowed {
					granted[i%2].Add(1)
				} else if plan == tight {
					exhausted.Store(true)
				}
				slowest.Store(max(slowest.Load(), time.Since(start).Microseconds()))
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	fmt.Println(granted[0].Load(), granted[1].Load(), slowest.Load())
	return s.Close()
}

// scribbleChild overwrites what lies behind the first 8 KiB of a file. It is a process of its own
// because closing a file drops SQLite's locks on it.
func scribbleChild(path string, _ []string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	junk := []byte(strings.Repeat("junk", 1024))
	for at := int64(8 << 10); at < info.Size(); at += int64(len(junk)) {
		if _, err := f.WriteAt(junk, at); err != nil {
			return err
		}
	}
	return f.Close()
}

// repairChild repairs a file, and is killed after so many of its changes to the directory.
func repairChild(path string, args []string) error {
	left, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	_, err = sqlitestore.Repair(path, sqlitestore.Stepwise(func() {
		if left--; left > 0 {
			return
		}
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Kill()
		}
		select {} // it is not at once everywhere
	}))
	return err
}

// lines reads lines until the end.
func lines(t *testing.T, sc *bufio.Scanner, first chan<- struct{}) (all []string) {
	t.Helper()
	for sc.Scan() {
		if len(all) == 0 {
			close(first)
		}
		all = append(all, sc.Text())
	}
	if len(all) == 0 {
		close(first)
	}
	return all
}
