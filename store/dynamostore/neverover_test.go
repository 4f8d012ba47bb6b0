//go:build unix

package dynamostore_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// kinds are the policies of the workers.
var kinds = []string{"rolling", "exact", "bucket", "minute", "three"}

// size is how much a worker's limits admit.
type size struct {
	Amount int64 // per window, or calendar minute
	Window time.Duration
	Minute int64 // units per calendar minute where that is one of three limits
	Ledger bool  // another limit counts all units of a day
}

// limits returns the limits of a policy.
func (z size) limits(kind string) (limits []drawgate.Limit) {
	rolling := drawgate.RollingLimit("rolling", z.Amount, z.Window)
	exact := rolling
	exact.Name, exact.Precision = "exact", drawgate.Exact
	bucket := drawgate.BucketLimit("bucket", z.Amount, z.Window, max(3, z.Amount/4))
	minute := drawgate.CalendarLimit("minute", z.Amount, drawgate.Minute, "")
	switch kind {
	case "rolling":
		limits = []drawgate.Limit{rolling}
	case "exact":
		limits = []drawgate.Limit{exact}
	case "bucket":
		limits = []drawgate.Limit{bucket}
	case "minute":
		limits = []drawgate.Limit{minute}
	case "three":
		bucket.Amount, bucket.Burst, minute.Amount = 2*z.Amount, max(3, z.Amount/2), z.Minute
		limits = []drawgate.Limit{rolling, bucket, minute}
	default:
		panic(kind)
	}
	if z.Ledger {
		limits = append(limits, drawgate.RollingLimit("all", store.MaxAmount, 24*time.Hour).Of("units"))
	}
	return limits
}

// use is what a worker did with a take that it sent.
type use struct {
	kind           string
	item           int
	sent, answered int64 // µs; an answered of 0: it was not granted
	used           int64 // units, at some instant between sent and answered
	least, most    int64 // units that may be in the item
}

// readLog returns the takes of a worker. open is how many reservations it held when it was killed.
func readLog(t *testing.T, name string) (uses []*use, open int) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	all, held := map[string]*use{}, map[string]bool{}
	for l := bufio.NewScanner(f); l.Scan(); {
		w := strings.Fields(l.Text())
		u := all[w[1]]
		switch w[0] {
		case "take":
			u = &use{kind: w[2], item: int(number(w[3])), most: number(w[4]), sent: number(w[6])}
			all[w[1]], uses = u, append(uses, u)
			held[w[1]] = w[5] == "true"
		case "refused", "undone":
			u.most = 0
		case "unknown":
		case "granted":
			u.answered, u.used, u.least = number(w[2]), u.most, u.most
			if held[w[1]] {
				open++
			}
		case "end":
			u.used, u.least = number(w[2]), number(w[2])
		case "ended":
			open--
			switch w[2] {
			case "done":
				u.most = u.used
			case "undone":
				u.least = u.most
			}
		default:
			t.Fatalf("%s: %q", name, l.Text())
		}
	}
	return uses, open
}

// certain returns the largest part of what a limit admits that was used for certain, wherever
// between its sending and its answer each take was granted: more than 1 is over the limit.
func certain(uses []*use, l drawgate.Limit) (most float64) {
	uses = slices.DeleteFunc(slices.Clone(uses), func(u *use) bool { return u.answered == 0 || u.used == 0 })
	slices.SortFunc(uses, func(a, b *use) int { return int(a.answered - b.answered) })
	for _, first := range uses {
		sum := int64(0)
		for _, u := range uses {
			if u.sent < first.sent {
				continue
			}
			apart, admitted := u.answered-first.sent, float64(l.Amount)
			switch l.Kind {
			case drawgate.Rolling:
				if apart >= l.Window.Microseconds() {
					continue
				}
			case drawgate.Bucket:
				admitted = float64(l.Burst) + float64(l.Amount)*float64(apart)/float64(l.Window.Microseconds())
			default:
				if minute := time.Minute.Microseconds(); u.answered/minute != first.sent/minute {
					continue
				}
			}
			sum += u.used
			most = max(most, float64(sum)/admitted)
		}
	}
	return most
}

// neverOver is a run of workers on the same buckets.
type neverOver struct {
	*testing.T
	server  *awstest.Server
	worker  worker // what all of them have
	workers int
	f       fleet
	uses    map[string][][]*use // by kind and item
}

// newNeverOver prepares a run on items of some kinds.
func newNeverOver(t *testing.T, server *awstest.Server, items int, z size, kinds ...string) *neverOver {
	t.Helper()
	return &neverOver{
		T: t, server: server, workers: 8, f: fleet{t: t, dir: t.TempDir()},
		worker: worker{
			URL: server.URL, Prefix: prefix(), Log: "yes", Kinds: kinds, Items: items, Every: 1, Size: z,
			Stores: 1, Callers: 32, Most: 1, Patience: 1, Timeout: 20 * time.Second,
		},
	}
}

// run starts the workers, each with what is wrong with it, and waits for them. meanwhile runs at
// the same time, until its context ends; the first of them may end the test.
func (n *neverOver) run(d time.Duration, wrong func(i int, w *worker), meanwhile ...func(context.Context)) report {
	n.Helper()
	n.worker.Begin = time.Now().Add(time.Second)
	n.worker.End = n.worker.Begin.Add(d)
	for i := range n.workers {
		w := n.worker
		wrong(i, &w)
		n.f.start(i, w)
	}
	ctx, cancel := context.WithDeadline(n.Context(), n.worker.End)
	defer cancel()
	var wg sync.WaitGroup
	for i, f := range meanwhile {
		if i > 0 {
			wg.Go(func() { f(ctx) })
		}
	}
	if len(meanwhile) > 0 {
		meanwhile[0](ctx)
	}
	wg.Wait()
	sum := total(n.f.wait())
	n.read()
	return sum
}

// read reads what the workers have done.
func (n *neverOver) read() {
	n.Helper()
	n.uses = map[string][][]*use{}
	for _, k := range n.worker.Kinds {
		n.uses[k] = make([][]*use, n.worker.Items)
	}
	held := 0
	for _, name := range n.f.logs {
		uses, open := readLog(n.T, name)
		held += open
		for _, u := range uses {
			n.uses[u.kind][u.item] = append(n.uses[u.kind][u.item], u)
		}
	}
	if killed := len(n.f.all) - n.workers; killed > 0 {
		n.Logf("%d workers were killed; they held %d reservations", killed, held)
	}
}

// judge checks that no limit was exceeded, and with a ledger that each unit counts once.
func (n *neverOver) judge() {
	n.Helper()
	s := dynamostore.New(through(n.server, direct), "drawgate", &dynamostore.Options{Prefix: n.worker.Prefix})
	defer func() { _ = s.Close() }()
	for _, k := range n.worker.Kinds {
		limits := n.worker.Size.limits(k)
		plan, err := drawgate.Policy{Name: k, Limits: limits}.Compile()
		if err != nil {
			n.Fatal(err)
		}
		var most float64
		var granted, units, least, used, possible int64
		var slowness []int64
		for item, uses := range n.uses[k] {
			low, high := int64(0), int64(0)
			for _, u := range uses {
				low, high = low+u.least, high+u.most
				if u.answered != 0 {
					granted, units, slowness = granted+1, units+u.used, append(slowness, u.answered-u.sent)
				}
			}
			for _, l := range limits {
				c := certain(uses, l)
				if c > 1 {
					n.Errorf("%s, item %d: %.2f times what limit %q admits was granted for certain", k, item, c, l.Name)
				}
				if l.Name != "all" {
					most = max(most, c)
				}
			}
			if !n.worker.Size.Ledger {
				continue
			}
			got := n.ledger(s, plan.Plan, item)
			if got < low || got > high {
				n.Errorf("%s, item %d: %d units are in the item, but %d to %d were taken: each must count exactly once",
					k, item, got, low, high)
			}
			least, used, possible = least+low, used+got, possible+high
		}
		slices.Sort(slowness)
		line := fmt.Sprintf("%-7s %6d grants, %6d units used", k, granted, units)
		if granted > 0 {
			at := func(percent int) time.Duration {
				return time.Duration(slowness[(len(slowness)-1)*percent/100]) * time.Microsecond
			}
			line += fmt.Sprintf("; at most %.1f %% of a limit for certain", 100*most)
			if !n.worker.Leap {
				line += fmt.Sprintf(", calls took %v (p99 %v)", at(50), at(99))
			}
		}
		if n.worker.Size.Ledger {
			line += fmt.Sprintf("; units in the items %d, by the callers %d to %d", used, least, possible)
		}
		n.Log(line)
	}
}

// ledger returns what the last limit of a bucket counts.
func (n *neverOver) ledger(s *dynamostore.Store, plan *store.Plan, item int) int64 {
	n.Helper()
	st := make([]store.State, 1)
	b := store.BucketCost{Key: store.Key{Policy: plan.Name(), Name: fmt.Sprint(item)}, Plan: plan}
	if err := s.Peek(n.Context(), []store.BucketCost{b}, 0, st); err != nil || st[0].Fail != nil {
		n.Fatal(err, st[0].Fail)
	}
	return st[0].States[len(st[0].States)-1].Used
}

// faults is what is wrong with the workers: all of them lose answers and are throttled; two have a
// clock that is wrong, and know it only to blur; the wall clocks of the others are wrong, one by
// 20 s, but they ask the service for the time; and one is slow.
func faults(i int, w *worker, blur time.Duration) {
	w.Most, w.Holds, w.Patience, w.Timeout = 3, true, 0.5, 3*time.Second
	w.Lose, w.Throttle = 0.05, 0.2
	switch i {
	case 0, 1:
		w.Behind, w.Blur = time.Duration(i)*blur, blur
	case 2:
		w.Wrong = 20 * time.Second
	case 3:
		w.Wrong = time.Second
	case 4:
		w.Wrong = -time.Second
	case 5:
		w.Slow = 300 * time.Millisecond
	}
}

// kills kills one worker after another while it holds reservations, and starts others in their
// places.
func (n *neverOver) kills(every time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		n.Helper()
		for i, next := 0, time.Now().Add(every); ctx.Err() == nil; i++ {
			pause(ctx, max(20*time.Millisecond, time.Until(next)))
			victim := i % (n.workers - 1) // the last one is for freeze
			if _, open := readLog(n.T, n.f.procs[victim].worker.Log); open > 0 && ctx.Err() == nil {
				n.f.restart(victim) //nolint:contextcheck // a process lives longer than this
				next = time.Now().Add(every)
			}
		}
	}
}

// pause sleeps until ctx ends at most.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// freeze stops a worker for a while.
func (n *neverOver) freeze(after, d time.Duration) func(context.Context) {
	return func(context.Context) {
		time.Sleep(after)
		_ = n.f.procs[n.workers-1].cmd.Process.Signal(syscall.SIGSTOP) // if it has ended, wait says so
		time.Sleep(d)
		_ = n.f.procs[n.workers-1].cmd.Process.Signal(syscall.SIGCONT)
	}
}

// expire deletes expired items as DynamoDB does, which dynalite does not do, and counts them.
func (n *neverOver) expire(deleted *atomic.Int64) func(context.Context) {
	client := through(n.server, direct)
	return func(ctx context.Context) {
		for ctx.Err() == nil {
			out, err := client.Scan(n.Context(), &dynamodb.ScanInput{TableName: aws.String("drawgate"), ConsistentRead: aws.Bool(true)}) //nolint:contextcheck // a round that was begun is finished
			if err != nil {
				n.Error(err)
				return
			}
			var wg sync.WaitGroup
			now := n.worker.micros() / 1_000_000
			for _, item := range out.Items {
				ttl, ok := item[dynamostore.TTLAttribute].(*types.AttributeValueMemberN)
				if !ok {
					n.Errorf("an item without a %s", dynamostore.TTLAttribute)
					return
				}
				if expires, err := strconv.ParseInt(ttl.Value, 10, 64); err != nil || expires >= now {
					continue
				}
				wg.Go(func() { //nolint:contextcheck // as above
					_, err := client.DeleteItem(n.Context(), &dynamodb.DeleteItemInput{
						TableName: aws.String("drawgate"),
						Key: map[string]types.AttributeValue{
							dynamostore.KeyAttribute: item[dynamostore.KeyAttribute],
						},
						ConditionExpression:       aws.String("#ttl = :ttl"),
						ExpressionAttributeNames:  map[string]string{"#ttl": dynamostore.TTLAttribute},
						ExpressionAttributeValues: map[string]types.AttributeValue{":ttl": ttl},
					})
					if err == nil {
						deleted.Add(1)
					}
				})
			}
			wg.Wait()
			pause(ctx, 20*time.Millisecond)
		}
	}
}

// TestNeverOverInProcesses lets processes share buckets while everything goes wrong that can:
// answers are lost after the write, calls are throttled, clocks are wrong, processes are killed
// while they hold reservations, one is stopped for a while, and items expire, are deleted and made
// again. No limit may be exceeded, and each unit counts exactly once. Without faults nearly all is
// used.
//
// The referee knows when each take was sent and answered, by the clock of this machine. A limit was
// exceeded if what lies within one of its windows, from sending to answer, is more than it admits.
//
// With DRAWGATE_LONG it is eight processes with 32 callers each, for a minute in each of 11 runs
// with faults and 10 without; otherwise a few seconds, which show that nothing is over.
//
// req: A1, A3, A8, A9, A11, A12
func TestNeverOverInProcesses(t *testing.T) { //nolint:tparallel // the long runs need the machine for themselves
	if long {
		longNeverOver(t)
		return
	}
	t.Parallel()
	t.Run("faults", func(t *testing.T) {
		t.Parallel()
		n := newNeverOver(t, empty(t), 1, size{40, 2 * time.Second, 60, true}, kinds...)
		n.worker.URL, n.workers, n.worker.Callers = shield(t, n.server), 3, 8
		n.run(3*time.Second, func(i int, w *worker) { faults(i, w, 300*time.Millisecond) }, n.kills(time.Second),
			n.freeze(500*time.Millisecond, time.Second))
		n.judge()
	})
	t.Run("expired items", func(t *testing.T) {
		t.Parallel()
		n := newNeverOver(t, empty(t), 2, size{20, time.Second, 60, false}, kinds...)
		n.worker.URL, n.worker.Leap, n.workers, n.worker.Callers = shield(t, n.server), true, 3, 8
		var deleted atomic.Int64
		n.run(5*time.Second, expiring, n.kills(2*time.Second), n.expire(&deleted))
		n.Logf("%d items were deleted", deleted.Load())
		n.judge()
	})
}

// expiring is faults with an exact clock.
func expiring(i int, w *worker) {
	faults(i, w, 0)
	w.Wrong, w.Behind, w.Blur, w.Patience = 0, 0, 0, 0.3
}

// longRun is how long each of the long runs takes, and how many items those with many have.
const (
	longRun   = time.Minute
	manyItems = 1000
)

func longNeverOver(t *testing.T) {
	t.Helper()
	server := empty(t)
	// Where nothing goes wrong the first of three limits is the tightest.
	one, many := size{200, 10 * time.Second, 900, true}, size{4, 20 * time.Second, 9, true}
	oneUsed, manyUsed := size{200, 10 * time.Second, 1500, true}, size{2, 20 * time.Second, 10, true}
	for _, kind := range kinds {
		t.Run("faults/"+kind+"/1", func(t *testing.T) { longFaults(t, newNeverOver(t, server, 1, one, kind)) })
		t.Run(fmt.Sprintf("faults/%s/%d", kind, manyItems), func(t *testing.T) {
			longFaults(t,
				newNeverOver(t, server, manyItems, many, kind))
		})
	}
	t.Run("expired items", func(t *testing.T) {
		n := newNeverOver(t, empty(t), 4, size{20, 2 * time.Second, 400, false}, kinds...)
		n.worker.URL, n.worker.Leap = shield(t, n.server), true
		var deleted atomic.Int64
		sum := n.run(longRun, expiring, n.kills(7*time.Second), n.freeze(10*time.Second, 20*time.Second),
			n.expire(&deleted))
		n.Logf("items expired every %v: the service deleted %d, and others were written again before it did", leapEvery,
			deleted.Load())
		n.logReport(sum)
		n.judge()
	})
	for _, kind := range kinds {
		t.Run("all is used/"+kind+"/1", func(t *testing.T) { longUse(t, newNeverOver(t, server, 1, oneUsed, kind)) })
		t.Run(fmt.Sprintf("all is used/%s/%d", kind, manyItems),
			func(t *testing.T) { longUse(t, newNeverOver(t, server, manyItems, manyUsed, kind)) })
	}
}

// longFaults is a run with all faults.
func longFaults(t *testing.T, n *neverOver) {
	t.Helper()
	n.worker.URL = shield(t, n.server)
	sum := n.run(longRun, func(i int, w *worker) { faults(i, w, 2*time.Second) }, n.kills(7*time.Second),
		n.freeze(10*time.Second, 20*time.Second))
	n.logReport(sum)
	n.judge()
}

func (n *neverOver) logReport(r report) {
	n.Helper()
	n.Logf("workers that were not killed sent %d reads and %d writes, of which %d met a conflict; %d answers were lost, %d calls throttled", r.Reads, r.Writes, r.Failed, r.Lost, r.Throttled)
}

// longUse is a run without faults, in which all but 1 % must be used.
func longUse(t *testing.T, n *neverOver) {
	t.Helper()
	if n.worker.Kinds[0] == "minute" { // its edge lies in the run
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(95*time.Second)) % time.Minute)
	}
	sum := n.run(longRun, func(i int, w *worker) {
		if w.Items > 1 { // each is asked for by two workers, because a stand-in is soon busy with refusals
			w.Every, w.Rest = 4, i%4
		}
	})
	n.logReport(sum)
	n.judge()
	part := n.used(sum.Blur)
	n.Logf("%.2f %% of what the limit allows was used; the clocks are known to %v", 100*part, sum.Blur)
	if part < 0.99 {
		n.Errorf("only %.2f %% was used", 100*part)
	}
}

// used returns the part of the first limit's amount that was used, per window and what is added to
// it, after the first amount.
func (n *neverOver) used(blur time.Duration) float64 {
	n.Helper()
	l := n.worker.Size.limits(n.worker.Kinds[0])[0]
	var units, allowed float64
	few := 0
	for _, uses := range n.uses[n.worker.Kinds[0]] {
		var at []int64 // when each unit was granted
		for _, u := range uses {
			for range u.used {
				at = append(at, u.answered)
			}
		}
		slices.Sort(at)
		if l.Kind == drawgate.Calendar {
			allowed += 2 * float64(l.Amount) // a run lies in two minutes
			units += float64(len(at))
			continue
		}
		period := l.Window
		if l.Kind == drawgate.Rolling {
			period += blur
			if l.Precision == 0 {
				period += l.Window / 128
			}
		}
		first, last := int(l.Amount), len(at)-1 // before that the clocks were not yet known well
		if l.Kind == drawgate.Rolling {         // whole amounts, because they may be granted all at once
			last = first + (last-first)/int(l.Amount)*int(l.Amount)
		}
		if last <= first { // calls that the stand-in answered too late: their units count, but nobody used them
			few++
			continue
		}
		units += float64(last - first)
		allowed += float64(at[last]-at[first]) / float64(period.Microseconds()) * float64(l.Amount)
	}
	if few > 0 {
		n.Logf("of %d items too little was granted to judge", few)
	}
	if all := len(n.uses[n.worker.Kinds[0]]); 50*few > all {
		n.Fatalf("too little was granted to judge: %d of %d items", few, all)
	}
	return units / allowed
}
