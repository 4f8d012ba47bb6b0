package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/redisstore"
)

// openURL returns a store on some servers.
func openURL(tb testing.TB, url string, opts *redisstore.Options) *redisstore.Store {
	tb.Helper()
	s, err := redisstore.Open(url, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// nameOn returns the name of a bucket of a plan that is on a primary of a new cluster.
func nameOn(plan *store.Plan, primary int) string {
	for i := 0; ; i++ {
		name := fmt.Sprint("k", primary, "-", i)
		if slotOf(plan, name)*3/16384 == primary {
			return name
		}
	}
}

func slotOf(plan *store.Plan, name string) int {
	return redisstore.SlotOf(redisstore.KeyOf("drawgate", store.Key{Policy: plan.Name(), Name: name}))
}

// across returns a take of n units from a bucket on each of some primaries.
func across(plan *store.Plan, n int64, primaries ...int) (t store.Take) {
	for _, p := range primaries {
		t.Buckets = append(t.Buckets, takeOf(plan, nameOn(plan, p), n).Buckets...)
	}
	return t
}

// usedOn returns what is used of a plan's first limit on each primary, and how much of it is held.
func usedOn(tb testing.TB, s store.Store, plan *store.Plan) (used, held [3]int64) {
	tb.Helper()
	for p := range used {
		st := peek(tb, s, takeOf(plan, nameOn(plan, p)).Buckets[0])
		used[p], held[p] = st.States[0].Used, st.States[0].Held
	}
	return used, held
}

// TestSpreadNeverOver: callers take from three buckets in three slots, with and without an id. In
// no window is more taken than the limit of any of them.
//
// req: C1, C12, E10
func TestSpreadNeverOver(t *testing.T) {
	t.Parallel()
	const amount, window = 15, 50 * time.Millisecond
	url := redistest.StartCluster(t, false).URL()
	plan := compile(t, "p", drawgate.Limit{
		Name: "r", Kind: drawgate.Rolling, Window: window, Amount: amount, Precision: drawgate.Exact,
	})
	type taken struct{ at, n int64 }
	var mu sync.Mutex
	log := map[string][]taken{}
	sets := [][]int{{0, 1, 2}, {2, 1, 0}, {0, 1}, {1, 2}, {2, 0}, {0}, {1}}
	var all sync.WaitGroup
	for c := range 2 {
		s := openURL(t, url, nil)
		for g := range 8 {
			all.Go(func() {
				for i := range needs.Rounds(30, 60, 2000) {
					ask := across(plan, 1+int64(i%2), sets[(i+g)%len(sets)]...)
					if i%3 == 0 {
						ask = held(ask, fmt.Sprint(c, g, i), time.Minute)
						ask.Grant = store.NewGrant()
					}
					var d [1]store.Verdict
					err := s.Take(t.Context(), []store.Take{ask}, d[:])
					if errors.Is(d[0].Fail, store.ErrTooLate) { // as it may be on a slow machine
						continue
					}
					if err != nil || d[0].Fail != nil {
						t.Error(err, d[0].Fail)
						return
					}
					if !d[0].Allowed {
						continue
					}
					mu.Lock()
					for _, b := range ask.Buckets {
						log[b.Key.Name] = append(log[b.Key.Name], taken{d[0].At().UnixMicro(), b.N[0]})
					}
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	for name, ts := range log {
		slices.SortFunc(ts, func(a, b taken) int { return int(a.at - b.at) })
		most, units := int64(0), int64(0)
		for i, from := range ts {
			sum := int64(0)
			for _, to := range ts[i:] {
				if to.at-from.at >= window.Microseconds() {
					break
				}
				sum += to.n
			}
			most, units = max(most, sum), units+from.n
		}
		t.Logf("%s: %d units, at most %d of %d in a window", name, units, most, amount)
		if most > amount {
			t.Errorf("%s: %d units in a window, of %d", name, most, amount)
		}
	}
	if len(log) != 3 {
		t.Errorf("units were taken of %d buckets, want 3", len(log))
	}
}

// viaProxies leads a store's connections through a proxy per server.
func viaProxies(tb testing.TB, c *redistest.Cluster) (via func(string) string, of map[string]*redistest.Proxy) {
	tb.Helper()
	of = map[string]*redistest.Proxy{}
	for _, addr := range c.Addrs() {
		of[addr] = redistest.NewProxy(tb, addr)
	}
	return func(addr string) string { return of[addr].Addr }, of
}

// TestSpreadLostReplies loses an answer at each step of a take over three slots. The take fails; no
// unit is used twice, and once its taker has cancelled it, nothing of it is left but leases that
// end.
//
// req: A12, E10
func TestSpreadLostReplies(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, false)
	via, proxies := viaProxies(t, c)
	direct := openURL(t, c.URL(), nil)
	for _, withID := range []bool{false, true} {
		steps := []string{"reserve 0", "reserve 1", "reserve 2"}
		if withID {
			steps = append(steps, "convert 0", "convert 1")
		}
		for _, step := range steps {
			plan := compile(t, fmt.Sprint("p", withID, step), drawgate.Limit{
				Name: "r", Kind: drawgate.Rolling, Window: time.Hour, Amount: 10,
			})
			ask := across(plan, 1, 0, 1, 2)
			if withID {
				ask = held(ask, "id", time.Minute)
				ask.Grant = store.NewGrant()
			}
			s := openURL(t, c.URL(), (&redisstore.Options{}).Via(via))
			until(t, "it works", func() bool { return tryTake(t.Context(), s, across(plan, 0, 0, 1, 2)) == nil })
			lost := 0
			s.OnStep(func(at string, group int) {
				mute := fmt.Sprint(at, " ", group) == step && lost == 0
				if mute {
					lost++
				}
				for _, p := range proxies {
					p.Mute.Store(mute)
				}
			})
			err := tryTake(t.Context(), s, ask)
			for _, p := range proxies {
				p.Mute.Store(false)
			}
			if lost == 0 {
				t.Fatalf("%s, id %v: the step was not reached", step, withID)
			}
			failed(t, step, err, nil)
			used, _ := usedOn(t, direct, plan)
			for p, n := range used {
				if n > 1 {
					t.Errorf("%s, id %v: %d units are used of bucket %d, want at most one", step, withID, n, p)
				}
			}
			if !withID {
				continue
			}
			// its taker sends it again, and then cancels it: whatever was open is closed
			again := tryTake(t.Context(), direct, ask)
			if again != nil && !errors.Is(again, store.ErrIDReused) && !errors.Is(again, store.ErrStoreUnavailable) {
				t.Errorf("%s: sent again: %v", step, again)
			}
			settle(t, direct, store.Settlement{Op: store.OpCancel, ID: "id", Grant: ask.Grant, Buckets: ask.Buckets})
			used, held := usedOn(t, direct, plan)
			if used != held {
				t.Errorf("%s: after the cancellation %v units are used, but %v held", step, used, held)
			}
		}
	}
}

// envSpread makes this test binary a process that takes one unit over two slots, and never returns.
const envSpread = "DRAWGATE_TEST_SPREAD"

// takeSpread is that process.
func takeSpread(url string) {
	s, err := redisstore.Open(url, nil)
	if err != nil {
		panic(err)
	}
	p, err := drawgate.Policy{Name: "day", Limits: []drawgate.Limit{{
		Name: "d", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 10,
	}}}.Compile()
	if err != nil {
		panic(err)
	}
	s.OnStep(func(step string, group int) {
		if group == 1 {
			fmt.Println("between") // the first slot is reserved
			select {}
		}
	})
	var d [1]store.Verdict
	_ = s.Take(context.Background(), []store.Take{across(p.Plan, 1, 0, 1)}, d[:])
}

// TestKilledBetweenSlots: a process is killed when it has reserved in one slot of two. Its unit is
// held until the lease ends, and is used then; the rest can be taken meanwhile.
//
// req: A10, E10
func TestKilledBetweenSlots(t *testing.T) {
	t.Parallel()
	url := redistest.StartCluster(t, false).URL()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envSpread+"="+url)
	out := redistest.NewOutput("between")
	cmd.Stdout, cmd.Stderr = out, out
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-out.Shown():
	case <-time.After(patience):
		t.Error("it does not get there:", out)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	s, plan := openURL(t, url, nil), day(t, 10)
	used, held := usedOn(t, s, plan)
	ended := time.Since(began) > redisstore.LeaseHold && held == [3]int64{} // on a slow machine
	if sum := used[0] + used[1]; sum != 1 || held != used && !ended {
		t.Errorf("%v units are used, and %v of them held; want one, in one slot", used, held)
	}
	for range 9 {
		if d := take(t, s, across(plan, 1, 0, 1)); !d.Allowed {
			t.Error("nine are left, but a take is refused")
		}
	}
	if d := take(t, s, across(plan, 1, 0, 1)); d.Allowed {
		t.Error("eleven of ten were granted")
	}
	until(t, "the lease ends", func() bool {
		_, held := usedOn(t, s, plan)
		return held == [3]int64{}
	})
	used, _ = usedOn(t, s, plan)
	if used[0]+used[1] != 19 || max(used[0], used[1]) != 10 {
		t.Errorf("%v units are used, want 10 and 9", used)
	}
}

// TestShardLost: a shard that lost its data is reported once, and only that one. A store that
// requires the mark refuses there what it still grants elsewhere, until it is initialized.
//
// req: E5, A10, D10
func TestShardLost(t *testing.T) {
	t.Parallel()
	c, plan := redistest.StartCluster(t, false), day(t, 100)
	var h, required heard
	s := openURL(t, c.URL(), h.options(false))
	for p := range 3 {
		take(t, s, across(plan, 1, p))
	}
	if made, err := openURL(t, c.URL(), nil).Init(t.Context()); err != nil || !made {
		t.Fatalf("made %v, %v", made, err)
	}
	strict := openURL(t, c.URL(), required.options(true))
	take(t, strict, across(plan, 1, 0, 1, 2))
	c.Primaries[1].Do("FLUSHALL")
	until(t, "a store that requires the mark refuses", func() bool {
		return errors.Is(tryTake(t.Context(), strict, across(plan, 1, 1)), redisstore.ErrLost)
	})
	if err := tryTake(t.Context(), strict, across(plan, 1, 0, 1, 2)); !errors.Is(err, redisstore.ErrLost) {
		t.Errorf("a take over all shards: %v", err)
	}
	take(t, strict, across(plan, 1, 0, 2))
	until(t, "the loss is reported", func() bool {
		take(t, s, across(plan, 1, 1))
		return h.lost.Load() > 0
	})
	for p := range 3 {
		take(t, s, across(plan, 1, p))
	}
	h.want(t, "the other store", 1)
	required.want(t, "the store that requires the mark", 1)
	if made, err := openURL(t, c.URL(), nil).Init(t.Context()); err != nil || !made {
		t.Fatalf("again: made %v, %v", made, err)
	}
	until(t, "it grants again", func() bool { return tryTake(t.Context(), strict, across(plan, 1, 1)) == nil })
}

// TestSlotsMove: slots are moved between primaries while callers take from their buckets, and with
// them the marks. Each take is carried out once, none fails, and no loss is reported.
//
// req: C12, E5
func TestSlotsMove(t *testing.T) {
	t.Parallel()
	c, plan := redistest.StartCluster(t, false), day(t, 1_000_000)
	var h heard
	s := openURL(t, c.URL(), h.options(false))
	take(t, s, across(plan, 1, 0, 1, 2))
	var granted atomic.Int64
	granted.Store(1)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				ask := across(plan, 1, 0, 1, 2)
				if g == 0 {
					ask = held(ask, fmt.Sprint(g, " ", i), time.Hour)
					ask.Grant = store.NewGrant()
				}
				if err := tryTake(t.Context(), s, ask); err != nil {
					t.Error(err)
					return
				}
				granted.Add(1)
			}
		})
	}
	moved := 0
	for round := range needs.Rounds(1, 2, 20) {
		from, to := c.Primaries[0], c.Primaries[2]
		if round%2 == 1 {
			from, to = to, from
		}
		slots := []int{slotOf(plan, nameOn(plan, 0))}
		marks := c.Primaries[0].Do("KEYS", "*mark*") + "\n" + c.Primaries[2].Do("KEYS", "*mark*")
		for key := range strings.FieldsSeq(marks) {
			if slot := redisstore.SlotOf(key); slot < 16384/3 {
				slots = append(slots, slot)
			}
		}
		for _, slot := range slots {
			before := granted.Load()
			c.Move(slot, from, to, func() {
				until(t, "takes go on", func() bool { return granted.Load() > before+20 })
			})
			moved++
		}
		before := granted.Load()
		until(t, "takes go on", func() bool { return granted.Load() > before+20 })
	}
	close(stop)
	all.Wait()
	if used, held := usedOn(t, s, plan); used[0] != granted.Load() || used[1] != used[0] || used[2] != used[0] {
		t.Errorf("%d takes were granted, but %v units are used, %v of them held", granted.Load(), used, held)
	}
	t.Logf("%d slots moved, %d takes", moved, granted.Load())
	h.want(t, "afterwards", 0)
}

// TestMovingSlotHoldsNobodyUp: a take of several buckets waits until its slot has been moved, and
// takes of one of them do not wait for it.
//
// req: E7
func TestMovingSlotHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	c, plan := redistest.StartCluster(t, false), day(t, 100)
	s := openURL(t, c.URL(), &redisstore.Options{Prefix: "{drawgate}"})
	both := takeOf(plan, "a", 1)
	both.Buckets = append(both.Buckets, takeOf(plan, "b", 1).Buckets...)
	take(t, s, both)
	slot := redisstore.SlotOf("{drawgate}")
	from := slot * 3 / 16384
	var waits sync.WaitGroup
	source, target := c.Primaries[from], c.Primaries[(from+1)%3]
	c.Move(slot, source, target, func() {
		a, b := "{drawgate}::"+plan.Name()+":a", "{drawgate}::"+plan.Name()+":b"
		if here := source.Do("CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "9"); strings.Contains(here, a) &&
			strings.Contains(here, b) { // another key was moved: one of these has to be
			host, port, _ := net.SplitHostPort(target.Addr)
			source.Do("MIGRATE", host, port, a, "0", "60000")
		}
		waiting := make(chan struct{})
		var once sync.Once
		s.OnStep(func(step string, _ int) {
			if step == "wait" {
				once.Do(func() { close(waiting) })
			}
		})
		waits.Go(func() {
			if err := tryTake(t.Context(), s, both); err != nil {
				t.Error(err)
			}
		})
		<-waiting
		for _, name := range []string{"a", "b"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := tryTake(ctx, s, takeOf(plan, name, 1)); err != nil {
				t.Errorf("beside it: %v", err)
			}
			cancel()
		}
	})
	waits.Wait()
	for _, name := range []string{"a", "b"} {
		if got := peek(t, s, takeOf(plan, name).Buckets[0]).States[0].Used; got != 3 {
			t.Errorf("%s: %d units are used, want 3", name, got)
		}
	}
}

// TestCloseLetsTakesOverSlotsEnd: a take over several slots that is under way goes on when the
// store is closed, and leaves nothing reserved.
//
// req: E7, E10
func TestCloseLetsTakesOverSlotsEnd(t *testing.T) {
	t.Parallel()
	c, plan := redistest.StartCluster(t, false), day(t, 100)
	other := openURL(t, c.URL(), nil)
	granted := int64(0)
	for _, at := range []struct {
		step, id string
		group    int
	}{
		{"reserve", "", 1},
		{"settle", "", 0},
		{"reserve", "i", 2},
		{"convert", "j", 0},
		{"convert", "k", 1},
	} {
		s := openURL(t, c.URL(), nil)
		ask := across(plan, 1, 0, 1, 2)
		if at.id != "" {
			ask = held(ask, at.id, time.Hour)
			ask.Grant = store.NewGrant()
		}
		var closing sync.WaitGroup
		s.OnStep(func(step string, group int) {
			if step != at.step || group != at.group {
				return
			}
			closing.Go(func() { _ = s.Close() })
			until(t, "the store is closed", func() bool {
				return errors.Is(tryTake(t.Context(), s, takeOf(plan, "x", 1)), store.ErrClosed)
			})
		})
		if err := tryTake(t.Context(), s, ask); err != nil {
			t.Errorf("closed at %s %d: %v", at.step, at.group, err)
		}
		closing.Wait()
		granted++
		if used, held := usedOn(t, other, plan); used != [3]int64{granted, granted, granted} || held != [3]int64{} {
			t.Errorf("closed at %s %d: %v units are used and %v held, want %d and none", at.step, at.group, used, held, granted)
		}
		if err := s.Take(t.Context(), []store.Take{ask}, make([]store.Verdict, 1)); !errors.Is(err, store.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// TestPartOfATakeIsOpen: the time is over in which a reservation over several slots is made, when
// it is open in the first of them, and its taker goes on without it. It is soon there in all of
// them, and what is used of it counts once.
//
// req: A10, A12
func TestPartOfATakeIsOpen(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, false)
	p, err := drawgate.Policy{Name: "p", Fallback: drawgate.FallbackOpen, Limits: []drawgate.Limit{
		{Name: "units", Kind: drawgate.Rolling, Amount: 100, Window: 24 * time.Hour, Charge: drawgate.ChargeEnd},
		{Name: "slots", Kind: drawgate.Concurrency, Amount: 10},
	}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for _, early := range []bool{false, true} {
		const timeout = 300 * time.Millisecond
		s := openURL(t, c.URL(), &redisstore.Options{Prefix: fmt.Sprint("early", early)})
		var once sync.Once
		s.OnStep(func(step string, group int) {
			if step == "convert" && group == 1 {
				once.Do(func() { time.Sleep(timeout + timeout/2) }) // its context has ended then
			}
		})
		g := guard.New(s, &guard.Options{Instances: 1, Start: drawgate.StartFull, Timeout: timeout})
		ask := held(across(p.Plan, 10, 0, 1, 2), "id", time.Hour)
		ask.Grant = store.NewGrant()
		for i := range ask.Buckets {
			ask.Buckets[i].N[1] = 1
		}
		out := make([]store.Verdict, 1)
		if err := g.Take(t.Context(), []store.Take{ask}, out); err != nil || !out[0].Allowed || !out[0].Fallback {
			t.Fatalf("%+v, %v: want it allowed without the cluster", out[0], err)
		}
		want := func(when string, units, slots int64) {
			t.Helper()
			until(t, fmt.Sprintf("%s: %d units and %d slots are used (early: %v)", when, units, slots, early), func() bool {
				if st := g.State(); st.Unavailable || st.Pending > 0 {
					return false
				}
				for i := range ask.Buckets {
					st := peek(t, s, ask.Buckets[i])
					if st.States[0].Used != units || st.States[1].Used != slots || st.Open != int(slots) {
						return false
					}
				}
				return true
			})
		}
		if !early {
			want("while it goes on", 10, 1)
		}
		st := store.Settlement{Op: store.OpSettle, ID: ask.ID, Grant: ask.Grant, Buckets: slices.Clone(ask.Buckets)}
		for i := range st.Buckets {
			st.Buckets[i].N = store.Amounts{4, 1}
		}
		end := make([]store.Outcome, 1)
		if err := g.Settle(t.Context(), []store.Settlement{st}, end); err != nil || end[0].Err != nil || end[0].Gone {
			t.Errorf("it does not end: %+v, %v", end[0], err)
		}
		want("after its end", 4, 0)
		_ = g.Close()
	}
}

// TestShardDown: while a shard is down, takes that need it fail as unavailable, others go on, and
// nothing stays reserved.
//
// req: A10, E7
func TestShardDown(t *testing.T) {
	t.Parallel()
	c, plan := redistest.StartCluster(t, false), day(t, 1000)
	s := openURL(t, c.URL(), nil)
	take(t, s, across(plan, 1, 0, 1, 2))
	c.Primaries[1].Kill9()
	for i := range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		ask := across(plan, 1, 0, 1, 2)
		if i%2 == 1 {
			ask = held(ask, fmt.Sprint(i), time.Hour)
			ask.Grant = store.NewGrant()
		}
		failed(t, "a take that needs the shard", tryTake(ctx, s, ask), store.ErrNothingDone)
		cancel()
		if d := take(t, s, across(plan, 1, 0, 2)); !d.Allowed {
			t.Error("a take that does not need the shard is refused")
		}
	}
	for _, p := range []int{0, 2} {
		if st := peek(t, s, takeOf(plan, nameOn(plan, p)).Buckets[0]); st.Open != 0 || st.States[0].Used != 11 {
			t.Errorf("bucket %d: %d open, %d used; want none and 11", p, st.Open, st.States[0].Used)
		}
	}
	// the others of a batch are decided
	batch, ds := []store.Take{across(plan, 1, 1), across(plan, 1, 0), across(plan, 1, 2)}, make([]store.Verdict, 3)
	if err := s.Take(t.Context(), batch, ds); err != nil || ds[0].Fail == nil || !ds[1].Allowed || !ds[2].Allowed {
		t.Errorf("a batch: %v; %v, %v, %v", err, ds[0].Fail, ds[1].Fail, ds[2].Fail)
	}
	late := openURL(t, c.URL(), nil) // starts while the shard is down
	take(t, late, across(plan, 1, 0, 2))
	c.Primaries[1].Restart()
	until(t, "the shard is used again", func() bool { return tryTake(t.Context(), s, across(plan, 1, 0, 1, 2)) == nil })
}

// TestClusterFailOver: a primary dies, and its replica, which had not received the last writes,
// takes its place. The store goes on by itself, and admits no more than what was lost beyond the
// limit.
//
// req: A10, C12, E5
func TestClusterFailOver(t *testing.T) {
	t.Parallel()
	const amount, before, lost = 100, 30, 20
	c, plan := redistest.StartCluster(t, true), day(t, amount)
	var h heard
	s := openURL(t, c.URL(), h.options(false))
	for range before {
		take(t, s, across(plan, 1, 0, 1, 2))
	}
	replica := c.Replicas[1]
	key := redisstore.KeyOf("drawgate", store.Key{Policy: plan.Name(), Name: nameOn(plan, 1)})
	until(t, "the replica has received them", func() bool {
		return c.Primaries[1].Do("HGET", key, "h") == replica.Do("HGET", key, "h")
	})
	replica.Stop()
	c.Primaries[1].Do("CLIENT", "KILL", "TYPE", "replica") // what is written now, it never receives
	for range lost {
		take(t, s, across(plan, 1, 0, 1, 2))
	}
	c.Primaries[1].Kill9()
	replica.Continue()
	granted := int64(before + lost)
	until(t, "the store goes on", func() bool {
		err := tryTake(t.Context(), s, across(plan, 1, 0, 1, 2))
		if err == nil {
			granted++
		}
		return err == nil
	})
	for take(t, s, across(plan, 1, 1)).Allowed { // the others would refuse sooner
		granted++
	}
	t.Logf("%d of %d were granted of the bucket whose server was lost", granted, amount)
	if granted != amount+lost {
		t.Errorf("%d of %d were granted, want the %d that were lost in addition", granted, amount, lost)
	}
	h.want(t, "the replica had the mark", 0)
}

// TestSentinelFailOver: the same with Sentinels.
//
// req: A10, C12, E5
func TestSentinelFailOver(t *testing.T) {
	t.Parallel()
	const amount, before, lost = 100, 30, 20
	c, plan := redistest.StartSentinels(t, true), day(t, amount)
	var h heard
	s := openURL(t, c.URL(), h.options(false))
	ask := takeOf(plan, "k", 1)
	for range before {
		take(t, s, ask)
	}
	key := redisstore.KeyOf("drawgate", ask.Buckets[0].Key)
	until(t, "the replica has received them", func() bool {
		return c.Primary.Do("HGET", key, "h") == c.Replica.Do("HGET", key, "h")
	})
	c.Replica.Stop()
	c.Primary.Do("CLIENT", "KILL", "TYPE", "replica")
	for range lost {
		take(t, s, ask)
	}
	c.Primary.Kill9()
	c.Replica.Continue()
	granted := int64(before + lost)
	until(t, "the store goes on", func() bool {
		err := tryTake(t.Context(), s, ask)
		if err == nil {
			granted++
		}
		return err == nil
	})
	for take(t, s, ask).Allowed {
		granted++
	}
	t.Logf("%d of %d were granted", granted, amount)
	if granted != amount+lost {
		t.Errorf("%d of %d were granted, want the %d that were lost in addition", granted, amount, lost)
	}
	h.want(t, "the replica had the mark", 0)

	// a Sentinel that hangs keeps nobody from starting
	c.Watchers[0].Stop()
	late := openURL(t, c.URL(), nil)
	until(t, "a store that starts now", func() bool { return late.Ping(t.Context()) == nil })
	c.Watchers[0].Continue()
}

// TestScriptsOfACluster: each node gets the script again when it says that it does not know it.
func TestScriptsOfACluster(t *testing.T) {
	t.Parallel()
	c, plan := redistest.StartCluster(t, false), day(t, 1000)
	s := openURL(t, c.URL(), nil)
	for i := range 4 {
		for _, node := range c.Primaries {
			node.Do("SCRIPT", "FLUSH")
		}
		ask := across(plan, 1, 0, 1, 2)
		if i%2 == 1 {
			ask = held(ask, fmt.Sprint(i), time.Hour)
			ask.Grant = store.NewGrant()
		}
		take(t, s, ask)
	}
	if used, _ := usedOn(t, s, plan); used != [3]int64{4, 4, 4} {
		t.Errorf("%v units are used, want 4 of each", used)
	}
}

// rights returns the command that makes a user, with the password "hush", who has what the
// package's comment says behind each of some texts.
func rights(t *testing.T, user string, behind ...string) []string {
	t.Helper()
	source, err := os.ReadFile("redisstore.go")
	if err != nil {
		t.Fatal(err)
	}
	words := []string{"ACL", "SETUSER", user}
	for _, text := range behind {
		_, line, found := strings.Cut(string(source), text)
		line, _, _ = strings.Cut(line, "\n")
		if !found || line == "" {
			t.Fatalf("the package's comment does not name the rights behind %q", text)
		}
		words = append(words, strings.Fields(strings.ReplaceAll(line, "SECRET", "hush"))...)
	}
	return words
}

// TestRightsOfSentinels is the same for users of the server and of its Sentinels.
//
// req: E5
func TestRightsOfSentinels(t *testing.T) {
	t.Parallel()
	c, plan := redistest.StartSentinels(t, false), day(t, 1000)
	c.Primary.Do(append(rights(t, "drawgate", "//\tACL SETUSER drawgate"), "+role")...)
	for _, w := range c.Watchers {
		w.Do(append(rights(t, "watcher", "A user of the Sentinels needs there\n//\n//\t"), "on", ">hush2")...)
		w.Do("ACL", "SETUSER", "default", "off")
	}
	url := strings.Replace(c.URL(), "//", "//drawgate:hush@", 1)
	s := openURL(t, url+"?sentinel_user=watcher&sentinel_password=hush2", nil)
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	take(t, s, takeOf(plan, "k", 1))
	err := openURL(t, url+"?sentinel_user=watcher&sentinel_password=wrong", nil).Ping(t.Context())
	failed(t, "a wrong password of the Sentinels", err, redisstore.ErrMisconfigured)
	if strings.Contains(fmt.Sprint(err), "hush") {
		t.Errorf("the error shows a password: %v", err)
	}
}

// TestRightsOnACluster: a user with the rights that the package names can do all that the store
// does.
//
// req: E5
func TestRightsOnACluster(t *testing.T) {
	t.Parallel()
	c, plan := redistest.StartCluster(t, false), day(t, 1000)
	for _, node := range c.Primaries {
		node.Do(rights(t, "drawgate", "//\tACL SETUSER drawgate", "in a cluster also\n//\n//\t")...)
	}
	s := openURL(t, strings.Replace(c.URL(), "//", "//drawgate:hush@", 1), nil)
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Init(t.Context()); err != nil {
		t.Error(err)
	}
	take(t, s, across(plan, 1, 0, 1, 2))
	ask := held(across(plan, 1, 0, 1, 2), "id", time.Hour)
	take(t, s, ask)
	settle(t, s, store.Settlement{Op: store.OpSettle, ID: "id", Buckets: ask.Buckets})
	slot := slotOf(plan, nameOn(plan, 0))
	c.Move(slot, c.Primaries[0], c.Primaries[2], func() { take(t, s, across(plan, 1, 0, 1, 2)) })
	var keys []store.Key
	if err := s.List(t.Context(), "", plan.Name(), func(k store.Key) bool {
		keys = append(keys, k)
		return true
	}); err != nil || len(keys) != 3 {
		t.Errorf("listed %v, %v; want the buckets of three shards", keys, err)
	}
	if err := s.Reset(t.Context(), keys); err != nil {
		t.Error(err)
	}
	if used, _ := usedOn(t, s, plan); used != [3]int64{} {
		t.Errorf("%v units are used after a reset", used)
	}
}
