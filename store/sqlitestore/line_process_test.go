package sqlitestore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// slotPlan returns a limit of one slot.
func slotPlan() *store.Plan {
	p, err := drawgate.Policy{Name: "slot", Limits: []drawgate.Limit{
		{Name: "slots", Kind: drawgate.Concurrency, Unit: "slots", Amount: 1},
	}}.Compile()
	if err != nil {
		panic(err)
	}
	return p.Plan
}

func takeOne(s store.Store, t store.Take) (store.Verdict, error) {
	var out [1]store.Verdict
	err := s.Take(context.Background(), []store.Take{t}, out[:])
	return out[0], errors.Join(err, out[0].Fail)
}

func giveBack(s store.Store, t store.Take) error {
	var out [1]store.Outcome
	bs := slices.Clone(t.Buckets)
	bs[0].N = store.Amounts{}
	err := s.Settle(context.Background(), []store.Settlement{
		{Op: store.OpCancel, ID: t.ID, Grant: t.Grant, Buckets: bs},
	}, out[:])
	if err == nil && out[0].Gone {
		err = fmt.Errorf("%s is gone", t.ID)
	}
	return err
}

// waitChild waits for the slot. It says when it was refused for the first time, and when it was
// granted by the store's clock.
func waitChild(path string, args []string) error {
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return err
	}
	t := store.Take{
		ID: args[0], Grant: store.NewGrant(), Hold: time.Hour, Buckets: buckets(slotPlan(), "k", 1),
		Ticket: &store.Ticket{Number: number},
	}
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		t.Ticket.Waited = time.Since(start)
		v, err := takeOne(s, t)
		if err != nil {
			return err
		}
		if v.Allowed {
			if err := ack("granted", strconv.FormatInt(v.Now, 10)); err != nil {
				return err
			}
			return errors.Join(giveBack(s, t), s.Close())
		}
		if t.Ticket.Arrival == 0 {
			if err := ack(refused, strconv.FormatInt(v.Arrival, 10)); err != nil {
				return err
			}
		}
		t.Ticket.Arrival = v.Arrival
	}
}

// TestLineOfProcesses: several processes get a slot in the order in which they began to wait, and
// one that does not wait gets it after them, however often it asks.
//
// req: C5
func TestLineOfProcesses(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	held := store.Take{ID: "held", Grant: 1, Hold: time.Hour, Buckets: buckets(slotPlan(), "k", 1)}
	if v, err := takeOne(s, held); err != nil || !v.Allowed {
		t.Fatal(v, err)
	}
	const processes = 4
	var granted [processes]int64
	var all sync.WaitGroup
	for i := range processes {
		cmd := child(t.Context(), "wait", path, strconv.Itoa(100-i)) // the number does not decide
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waits := make(chan struct{})
		all.Go(func() {
			for sc := bufio.NewScanner(out); sc.Scan(); {
				switch word, number, _ := strings.Cut(sc.Text(), " "); word {
				case refused:
					close(waits)
				case "granted":
					granted[i], _ = strconv.ParseInt(number, 10, 64)
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("process %d: %v", i, err)
			}
		})
		select {
		case <-waits:
		case <-time.After(time.Minute):
			t.Fatal("it does not wait")
		}
	}
	if err := giveBack(s, held); err != nil {
		t.Fatal(err)
	}
	var late store.Verdict
	for late = range asks(t, s, store.Take{ID: "late", Grant: 1, Hold: time.Hour, Buckets: held.Buckets}) {
		if late.Allowed {
			break
		}
	}
	all.Wait()
	if order := append(granted[:], late.Now); granted[0] == 0 || !slices.IsSorted(order) {
		t.Errorf("granted at %v", order)
	}
}

// asks repeats a take.
func asks(t *testing.T, s store.Store, tk store.Take) func(yield func(store.Verdict) bool) {
	t.Helper()
	return func(yield func(store.Verdict) bool) {
		for {
			v, err := takeOne(s, tk)
			if err != nil {
				t.Error(err)
				return
			}
			if !yield(v) {
				return
			}
			time.Sleep(time.Millisecond) // others want the lock as well
		}
	}
}

// queueChild has eight goroutines wait for units of a limit, some of which give up, until it is
// killed. It says what it was granted.
func queueChild(path string, args []string) error {
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		return err
	}
	plan := dayLong("queue", 1_000_000)
	limit := bucketLimit(20, 10*time.Millisecond)
	short, err := drawgate.Policy{Name: "short", Limits: []drawgate.Limit{limit}}.Compile()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := args[0] + "-" + strconv.Itoa(g) + "-" + strconv.Itoa(i)
				some := buckets(short.Plan, strconv.Itoa(i%3), 1+rand.Int64N(10))
				if err := queueStep(s, id, append(buckets(plan, "k", 1), some...)); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// queueStep waits for a take, and sometimes gives up.
func queueStep(s *sqlitestore.Store, id string, bs []store.BucketCost) error {
	t := store.Take{
		Buckets: bs, Labels: []store.Label{{Name: "id", Value: id}},
		Ticket: &store.Ticket{Number: 1 + rand.Uint64N(1<<60)},
	}
	for {
		switch v, err := takeOne(s, t); {
		case err != nil:
			return err
		case v.Allowed:
			return ack("take", id)
		case rand.IntN(8) == 0:
			return s.Withdraw(context.Background(), t.Ticket.Number, []store.Key{bs[0].Key, bs[1].Key})
		default:
			t.Ticket.Arrival = v.Arrival
		}
	}
}

// TestKillInLine kills processes that write tickets, again and again: nothing that was granted is
// missing in the database, which is whole, and the file with the lines can be read.
//
// req: C5 D2 D11
func TestKillInLine(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	acked, lined := map[string]bool{}, false
	for round := range needs.Rounds(3, 10, 200) {
		var cmds []*exec.Cmd
		var all sync.WaitGroup
		output := make(chan string, 1<<16)
		for p := range 2 {
			cmd := child(t.Context(), "queue", path, fmt.Sprint(round, "/", p))
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			first := make(chan struct{})
			all.Go(func() {
				for _, line := range lines(t, bufio.NewScanner(out), first) {
					output <- line
				}
			})
			<-first
			cmds = append(cmds, cmd)
		}
		time.Sleep(rand.N(60 * time.Millisecond)) // any instant
		for _, cmd := range cmds {
			_ = cmd.Process.Kill()
		}
		all.Wait()
		for _, cmd := range cmds {
			if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
				t.Fatalf("a process ended by itself: %v", err)
			}
		}
		close(output)
		for line := range output {
			acked[line] = true
		}
		if err := sqlitestore.LinesIntact(path); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		lined = lined || exists(path+".line")
		if ok, err := sqlitestore.Pragma(path, "integrity_check"); err != nil || ok != "ok" {
			t.Fatal(ok, err)
		}
	}
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found, n := map[string]bool{}, int64(0)
	for _, e := range history(t, s, time.Time{}, time.Time{}) {
		if e.Key.Policy == "queue" {
			found["take "+e.Labels[0].Value] = true
			n++
		}
	}
	for line := range acked {
		if !found[line] {
			t.Errorf("acknowledged, but not in the history: %s", line)
		}
	}
	if used := used(t, s, dayLong("queue", 1_000_000), "k"); used != n || len(acked) == 0 || !lined {
		t.Errorf("%d used, %d in the history, %d acknowledged, tickets %v", used, n, len(acked), lined)
	}
}

// refuseChild is refused so often, with a ticket that differs each time.
func refuseChild(path string, args []string) error {
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	t := store.Take{Buckets: buckets(tightPlan(10), "k", 1)}
	for i := range n {
		t.Ticket = &store.Ticket{Number: 1 + uint64(i%40)}
		v, err := takeOne(s, t)
		if err != nil || v.Allowed || v.Arrival == 0 {
			return fmt.Errorf("allowed %v, arrival %d, %w", v.Allowed, v.Arrival, err)
		}
	}
	return s.Close()
}

// TestRefusalsSyncNothing: a hundred refusals with tickets make no sync more than none, and write
// nothing into the database or its log.
//
// req: C5
func TestRefusalsSyncNothing(t *testing.T) {
	strace := needs.Program(t, "strace")
	t.Parallel()
	path := dbPath(t)
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() // it keeps the log from being moved into the file
	takes(t, s, tightPlan(10), "k")
	calls := func(refusals string) (syncs, writes int) {
		t.Helper()
		// nothing is cleaned meanwhile
		execSQL(t, path, fmt.Sprintf("INSERT OR REPLACE INTO meta (name, value) VALUES ('swept', %d), ('cleaned', %[1]d)",
			time.Now().Add(time.Hour).UnixMicro()))
		trace := filepath.Join(t.TempDir(), "trace")
		cmd := exec.CommandContext(t.Context(), strace, "-f", "-y", "-o", trace, "-e",
			"trace=fsync,fdatasync,sync_file_range,msync,syncfs,sync,pwrite64,write", os.Args[0], path, refusals)
		cmd.Env = append(os.Environ(), childVar+"=refuse")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for line := range strings.Lines(string(content(t, trace))) {
			switch {
			case strings.Contains(line, "sync"):
				syncs++
			case strings.Contains(line, filepath.Base(path)+">"), strings.Contains(line, filepath.Base(path)+"-wal>"):
				writes++
			}
		}
		return syncs, writes
	}
	syncs, writes := calls("0")
	lineSyncs, lineWrites := calls("100")
	if syncs != lineSyncs || writes != lineWrites {
		t.Errorf("%d syncs and %d writes without refusals, %d and %d with", syncs, writes, lineSyncs, lineWrites)
	}
	if !exists(path + ".line") {
		t.Error("they left no ticket")
	}
}
