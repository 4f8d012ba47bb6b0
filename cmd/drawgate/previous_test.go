//go:build unix && long

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/redistest"
)

// previousCommit is the version that users upgrade from. A release puts its own commit here.
const previousCommit = "820faaf59e2daa49e7bab11302e29f2773ceee56"

// TestPreviousVersion runs the previous version's program beside today's: what docs/upgrade.md
// promises. Only "make long" does so, because the program has to be built.
func TestPreviousVersion(t *testing.T) {
	t.Parallel()
	p := buildPrevious(t)
	for name, on := range map[string]func(*testing.T, previous) string{
		"redis": onRedis, "sqlite": onSQLite, "dynamodb": onDynamoDB,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startBoth(t, p, on(t, p))
			for _, check := range []func(){
				b.commands, b.counts, b.windows, b.slots, b.waits, b.replays, b.renewals, b.pauses, b.adjustments,
			} {
				check()
			}
			if name == "redis" {
				for _, s := range b.sides() {
					s.shows("drawgate_instances", 2)
				}
			}
			b.restarts()
		})
	}
	for name, check := range map[string]func(*testing.T, previous){
		"go client": newClientOldServer, "command line": commandLines, "python": pythonPackages,
		"interfaces": interfaces, "configuration": configurations,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, p)
		})
	}
}

// previous is the previous version.
type previous struct{ source, program string }

func buildPrevious(t *testing.T) previous {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	run := func(dir string, command ...string) error {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%q: %w\n%s", command, err, out)
		}
		return nil
	}
	if err := run(root, "git", "cat-file", "-e", previousCommit+"^{commit}"); err != nil {
		t.Fatalf("the previous version is not here: this test needs the repository with its whole history "+
			"(git fetch --unshallow): %v", err)
	}
	dir := t.TempDir()
	p := previous{source: filepath.Join(dir, "source"), program: filepath.Join(dir, "drawgate")}
	if err := os.Mkdir(p.source, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir     string
		command []string
	}{
		{root, []string{"git", "archive", "--output=" + dir + "/source.tar", previousCommit}},
		{p.source, []string{"tar", "-xf", dir + "/source.tar"}},
		{p.source, []string{"go", "build", "-trimpath", "-o", p.program, "./cmd/drawgate"}},
	} {
		if err := run(c.dir, c.command...); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// bench is a bench of the previous program.
func (p previous) bench(t *testing.T, env ...string) bench {
	t.Helper()
	b := newBench(t, env...)
	b.program = p.program
	return b
}

func onRedis(t *testing.T, _ previous) string {
	t.Helper()
	return redistest.Start(t).URL()
}

func onSQLite(t *testing.T, _ previous) string {
	t.Helper()
	return "sqlite://" + filepath.Join(t.TempDir(), "state.db")
}

// onDynamoDB returns a table that the previous program made.
func onDynamoDB(t *testing.T, p previous) string {
	t.Helper()
	url := "dynamodb://shared?region=local&endpoint=" + awstest.Dynalite(t).URL
	if out, code := p.bench(t, awsEnv...).do("table", "create", "--store", url); code != 0 {
		t.Fatalf("the table was not made: %d, %s", code, out)
	}
	return url
}

// Amounts of the policies of both servers.
const (
	countedAmount = 240
	windowAmount  = 40
	slotsAmount   = 3
	window        = 2 * time.Second
)

// bothPolicies are in force at both servers. No window ends while a test runs but the one that is
// there for that.
func bothPolicies() string {
	return fmt.Sprintf(`
policies:
  rolling: {limits: [{name: rolling, rolling: 24h, amount: %[1]d}]}
  exact: {limits: [{name: exact, rolling: 24h, amount: %[1]d, precision: exact}]}
  daily: {limits: [{name: daily, calendar: day, zone: %[2]s, amount: %[1]d}]}
  bucket: {limits: [{name: bucket, bucket: 30d, amount: %[1]d}]}
  later: {limits: [{name: later, unit: output_tokens, rolling: 24h, amount: %[1]d}]}
  several:
    limits:
      - {name: requests, rolling: 24h, amount: 10000}
      - {name: tokens, unit: tokens, calendar: day, zone: %[2]s, amount: %[1]d}
  window: {limits: [{name: window, rolling: %[3]v, amount: %[4]d}]}
  slots: {limits: [{name: slots, concurrency: %[5]d}]}
  one: {limits: [{name: slot, concurrency: 1}], wait: {up_to: 2m}}
store: %%s
`, countedAmount, dayZone(), window, windowAmount, slotsAmount)
}

// oneServer is a server of one version.
type oneServer struct {
	*daemon
	bench         bench
	version       string
	client, admin *client.Client
}

// both are a server of each version on one store.
type both struct {
	t          *testing.T
	p          previous
	config     string
	old, today oneServer
}

func startBoth(t *testing.T, p previous, url string) *both {
	t.Helper()
	b := &both{t: t, p: p, config: fmt.Sprintf(bothPolicies(), url)}
	b.old, b.today = b.start(true), b.start(false)
	return b
}

func (b *both) start(old bool) oneServer {
	b.t.Helper()
	s := oneServer{bench: newBench(b.t, awsEnv...), version: "today"}
	if old {
		s.bench, s.version = b.p.bench(b.t, awsEnv...), "previous"
	}
	s.bench.write("drawgate.yaml", b.config)
	s.daemon = s.bench.daemon()
	s.connect()
	return s
}

// connect makes its clients.
func (s *oneServer) connect() {
	s.t.Helper()
	for url, c := range map[string]**client.Client{s.public: &s.client, s.daemon.admin: &s.admin} {
		var err error
		if *c, err = client.New(url, &client.Options{Timeout: time.Minute}); err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup((*c).Close)
	}
}

func (b *both) sides() []oneServer { return []oneServer{b.old, b.today} }

// directions calls f for both.
func (b *both) directions(f func(from, to oneServer)) {
	f(b.old, b.today)
	f(b.today, b.old)
}

// of returns a take from a bucket.
func of(policy, key string, n int64) api.Take {
	unit := map[string]string{"later": "output_tokens", "several": "tokens"}[policy]
	if unit == "" {
		unit = "requests"
	}
	return api.Take{Bucket: api.Bucket{Policy: policy, Key: key, Costs: api.Costs{unit: n}}}
}

// must takes, and fails the test if nothing was decided, or without the store.
func (s oneServer) take(ctx context.Context, t api.Take) api.Answer {
	a, err := s.client.Take(ctx, t)
	if err != nil || a.Fallback {
		s.t.Errorf("%s: %+v: %v, fallback %v", s.version, t, err, a.Fallback)
	}
	return a
}

// reserve is take for one that is held. It returns nil if it is refused.
func (s oneServer) reserve(ctx context.Context, t api.Take) *client.Reservation {
	t.HoldMS = time.Hour.Milliseconds()
	res, a, err := s.client.Reserve(ctx, t)
	if err != nil || a.Fallback {
		s.t.Errorf("%s: %+v: %v, fallback %v", s.version, t, err, a.Fallback)
		return nil
	}
	return res
}

// used returns what a bucket's last limit has used, and how many reservations are open.
func (s oneServer) used(policy, key string) (used int64, open int) {
	s.t.Helper()
	st, err := s.client.Status(s.t.Context(), api.StatusRequest{Bucket: api.Bucket{Policy: policy, Key: key}})
	if err != nil {
		s.t.Fatalf("%s: %v", s.version, err)
	}
	return st.Limits[len(st.Limits)-1].Used, st.Open
}

// counts fills a limit of each kind by plain takes and reservations of both servers, each settled
// at the other one: exactly the amount is used in the end, and never more.
func (b *both) counts() {
	b.t.Helper()
	ctx := b.t.Context()
	for _, policy := range []string{"rolling", "exact", "daily", "bucket", "later", "several"} {
		var used, most atomic.Int64
		add := func(n int64) {
			for now := used.Add(n); ; {
				if m := most.Load(); now <= m || most.CompareAndSwap(m, now) {
					return
				}
			}
		}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				from, to := b.old, b.today
				if i%2 == 1 {
					from, to = to, from
				}
				for j := range 24 {
					n := 1 + rand.Int64N(4)
					if j%2 == 0 {
						if from.take(ctx, of(policy, "k", n)).Allowed {
							add(n)
						}
						continue
					}
					res := from.reserve(ctx, of(policy, "k", n))
					if res == nil {
						continue
					}
					add(n)
					less := rand.Int64N(n + 1)
					used.Add(less - n) // before anybody else can have it
					if err := to.client.Resume(res.Token()).Settle(ctx, of(policy, "k", less).Costs); err != nil {
						b.t.Errorf("%s: a reservation of %s settled by %s: %v", policy, from.version, to.version, err)
					}
				}
			})
		}
		all.Wait()
		for refused := 0; refused < 2; {
			s := b.sides()[rand.IntN(2)]
			if s.take(ctx, of(policy, "k", 1)).Allowed {
				add(1)
				refused = 0
			} else {
				refused++
			}
		}
		slack := int64(0)
		if policy == "bucket" {
			slack = 1 // of what drains meanwhile
		}
		if n := used.Load(); n < countedAmount-slack || most.Load() > countedAmount+slack {
			b.t.Errorf("%s: %d were used in the end, and %d at most, of %d", policy, n, most.Load(), countedAmount)
		}
		for _, s := range b.sides() {
			if n, open := s.used(policy, "k"); n < countedAmount-slack || n > countedAmount || open != 0 {
				b.t.Errorf("%s: %s says that %d are used and %d open", policy, s.version, n, open)
			}
		}
	}
}

// windows takes all the time for a few windows: none has more than the amount.
func (b *both) windows() {
	b.t.Helper()
	type grant struct{ sent, answered time.Time }
	var mu sync.Mutex
	var grants []grant
	var all sync.WaitGroup
	ctx, cancel := context.WithTimeout(b.t.Context(), 4*window)
	defer cancel()
	for i := range 6 {
		all.Go(func() {
			for s := b.sides()[i%2]; ; {
				g := grant{sent: time.Now()}
				a, err := s.client.Take(ctx, of("window", "k", 1))
				switch g.answered = time.Now(); {
				case ctx.Err() != nil:
					return
				case err != nil || a.Fallback:
					b.t.Errorf("%s: %v, fallback %v", s.version, err, a.Fallback)
					return
				case a.Allowed:
					mu.Lock()
					grants = append(grants, g)
					mu.Unlock()
				default:
					time.Sleep(min(a.RetryAfterMS.Duration(), window) / 4)
				}
			}
		})
	}
	all.Wait()
	if len(grants) < 2*windowAmount {
		b.t.Errorf("only %d were granted in four windows of %d", len(grants), windowAmount)
	}
	for _, first := range grants {
		n := 0
		for _, g := range grants {
			if !g.sent.Before(first.sent) && g.answered.Before(first.sent.Add(window)) {
				n++
			}
		}
		if n > windowAmount {
			b.t.Errorf("%d were granted within %v, of %d", n, window, windowAmount)
			break
		}
	}
}

// slots has no more holders than slots, whoever gave and freed them.
func (b *both) slots() {
	b.t.Helper()
	ctx := b.t.Context()
	var holders, most, granted atomic.Int64
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			from, to := b.old, b.today
			if i%2 == 1 {
				from, to = to, from
			}
			for range 20 {
				res := from.reserve(ctx, of("slots", "k", 1))
				if res == nil {
					continue
				}
				granted.Add(1)
				for n := holders.Add(1); ; {
					if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
						break
					}
				}
				time.Sleep(time.Millisecond)
				holders.Add(-1)
				if err := to.client.Resume(res.Token()).Cancel(ctx); err != nil {
					b.t.Errorf("a slot of %s freed by %s: %v", from.version, to.version, err)
				}
			}
		})
	}
	all.Wait()
	if most.Load() > slotsAmount || granted.Load() < slotsAmount {
		b.t.Errorf("%d held %d slots; %d were granted", most.Load(), slotsAmount, granted.Load())
	}
}

// waits has a caller of one server wait for a slot that a caller of the other one frees.
func (b *both) waits() {
	b.t.Helper()
	ctx := b.t.Context()
	b.directions(func(from, to oneServer) {
		res := from.reserve(ctx, of("one", "k", 1))
		if res == nil {
			b.t.Fatalf("%s: no slot is free", from.version)
		}
		waiting := make(chan struct{})
		got := make(chan *client.Reservation)
		go func() {
			var once sync.Once
			ctx := client.WithProgress(ctx, func(api.Progress) { once.Do(func() { close(waiting) }) })
			t := of("one", "k", 1)
			t.WaitMS = time.Minute.Milliseconds()
			got <- to.reserve(ctx, t)
		}()
		<-waiting
		if err := res.Settle(ctx, nil); err != nil {
			b.t.Error(err)
		}
		next := <-got
		if next == nil {
			b.t.Fatalf("who waited at %s did not get the slot that %s freed", to.version, from.version)
		}
		if err := next.Settle(ctx, nil); err != nil {
			b.t.Error(err)
		}
	})
}

// replays sends a take again, to the other server: it gets the same answer, and costs nothing more.
func (b *both) replays() {
	b.t.Helper()
	b.directions(func(from, to oneServer) {
		t := of("several", "again "+from.version, 7)
		t.ID, t.Grant, t.HoldMS = "again", "5a0d3f9be8c41726", time.Hour.Milliseconds()
		first := from.take(b.t.Context(), t)
		second := to.take(b.t.Context(), t)
		if !first.Allowed || !second.Allowed || first.Replayed || !second.Replayed {
			b.t.Errorf("%s, then %s: %+v, %+v", from.version, to.version, first, second)
		}
		if used, open := to.used(t.Policy, t.Key); used != 7 || open != 1 {
			b.t.Errorf("%s, then %s: %d are used, %d open", from.version, to.version, used, open)
		}
	})
}

// renewals has a reservation go from one server to the other and back.
func (b *both) renewals() {
	b.t.Helper()
	b.directions(func(from, to oneServer) {
		key := "renewed " + from.version
		res := from.reserve(b.t.Context(), of("later", key, 9))
		there := to.client.Resume(res.Token())
		if err := there.Renew(b.t.Context(), 2*time.Hour); err != nil {
			b.t.Fatalf("%s renews what %s gave: %v", to.version, from.version, err)
		}
		if err := from.client.Resume(there.Token()).Settle(b.t.Context(), of("later", key, 4).Costs); err != nil {
			b.t.Errorf("%s settles what %s renewed: %v", from.version, to.version, err)
		}
		if err := there.Settle(b.t.Context(), nil); client.Code(err) != "" || err == nil {
			b.t.Errorf("%s settles it once more: %v, want that it is gone", to.version, err)
		}
		for _, s := range b.sides() {
			if used, open := s.used("later", key); used != 4 || open != 0 {
				b.t.Errorf("%s: %d are used, %d open", s.version, used, open)
			}
		}
	})
}

// pauses and ends each pause at the other server.
func (b *both) pauses() {
	b.t.Helper()
	ctx := b.t.Context()
	b.directions(func(from, to oneServer) {
		key := "paused " + from.version
		made, err := from.admin.Pause(ctx, api.PauseRequest{
			Policy: "rolling", Key: key, ForMS: time.Hour.Milliseconds(), Reason: "a test",
		})
		if err != nil {
			b.t.Fatal(err)
		}
		if a := to.take(ctx, of("rolling", key, 1)); a.Allowed || a.Reason != api.ReasonPaused {
			b.t.Errorf("%s during a pause of %s: %+v", to.version, from.version, a)
		}
		_, err = to.admin.Unpause(ctx, api.UnpauseRequest{Policy: "rolling", Key: key, Until: &made.Until})
		if err != nil {
			b.t.Fatal(err)
		}
		if a := from.take(ctx, of("rolling", key, 1)); !a.Allowed {
			b.t.Errorf("%s after %s has ended the pause: %+v", from.version, to.version, a)
		}
	})
}

// adjustments of one server count at the other one.
func (b *both) adjustments() {
	b.t.Helper()
	b.directions(func(from, to oneServer) {
		key := "adjusted " + from.version
		for _, want := range []int64{120, 30} {
			_, err := from.admin.Adjust(b.t.Context(), api.AdjustRequest{
				Policy: "rolling", Key: key, Limit: "rolling", Used: &want, Reason: "a test",
			})
			if err != nil {
				b.t.Fatal(err)
			}
			if used, _ := to.used("rolling", key); used != want {
				b.t.Errorf("%s: %d are used, %s has set %d", to.version, used, from.version, want)
			}
		}
	})
}

// commands open the store themselves, beside both servers.
func (b *both) commands() {
	b.t.Helper()
	for _, s := range slices.Repeat(b.sides(), 2) {
		for _, args := range [][]string{
			{"take", "--policy", "rolling", "--key", "commands", "-n", "5"},
			{"run", "--policy", "rolling", "--key", "commands", "--", "true"},
			{"run", "--policy", "one", "--key", "commands", "--", "true"},
		} {
			if out, code := s.bench.do(slices.Insert(args, 1, "--config", "drawgate.yaml")...); code != 0 {
				b.t.Errorf("%s: %q: %d, %s", s.version, args, code, out)
			}
		}
	}
	for _, s := range b.sides() {
		if used, open := s.used("rolling", "commands"); used != 24 || open != 0 {
			b.t.Errorf("%s: %d are used, %d open, want 24 and 0", s.version, used, open)
		}
	}
}

// restarts replaces each server by one of the other version while it holds something. It comes
// last.
func (b *both) restarts() {
	b.t.Helper()
	b.directions(func(from, _ oneServer) {
		key := "restarted " + from.version
		res := from.reserve(b.t.Context(), of("several", key, 8))
		from.kill()
		next := b.start(from.version == b.today.version)
		if used, open := next.used("several", key); used != 8 || open != 1 {
			b.t.Errorf("%s after %s: %d are used, %d open", next.version, from.version, used, open)
		}
		if err := next.client.Resume(res.Token()).Settle(b.t.Context(), of("several", key, 3).Costs); err != nil {
			b.t.Errorf("%s settles what %s gave before it ended: %v", next.version, from.version, err)
		}
		if used, open := next.used("several", key); used != 3 || open != 0 {
			b.t.Errorf("%s after %s: %d are used, %d open", next.version, from.version, used, open)
		}
	})
}
