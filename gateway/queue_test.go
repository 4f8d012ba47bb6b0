package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// onePerMinute makes the quota one request a minute.
func onePerMinute(s *setup) {
	p := generous()
	p.Limits[0].Amount = 1
	s.policies = append(s.policies, p)
	s.options.Wait = time.Hour
}

// TestWaitingCalls: calls that do not fit wait, the more urgent ones in front, and say how long
// they did.
//
// req: C5 C8 D12
func TestWaitingCalls(t *testing.T) {
	t.Parallel()
	inBubble(t, onePerMinute, func(t *testing.T, b *bench) {
		b.call("openai", false, "first")
		var group sync.WaitGroup
		var mu sync.Mutex
		var order []string
		for i, headers := range [][]string{
			{"Authorization: Bearer " + bob, gateway.HeaderPriority + ": 9"}, // at most bob's, 0
			{gateway.HeaderPriority + ": 3"},
			{}, // alice's, 7
		} {
			group.Go(func() {
				got := b.call("openai", false, "hello", headers...)
				mu.Lock()
				defer mu.Unlock()
				ms, _ := strconv.Atoi(got.header.Get(gateway.HeaderQueued))
				order = append(order, fmt.Sprintf("caller %d: %d after %d minutes", i, got.status, (ms+30_000)/60_000))
			})
			synctest.Wait() // it waits in the queue
			time.Sleep(time.Second)
		}
		group.Wait()
		want := "caller 2: 200 after 1 minutes, caller 1: 200 after 2 minutes, caller 0: 200 after 3 minutes"
		if got := strings.Join(order, ", "); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		if v := b.sim.Violations(); v.Total != 0 {
			t.Errorf("%d violations", v.Total)
		}
	})
}

// TestDeadlinesInTheQueue: a call waits as long as its caller says, and not longer than the gateway
// lets it; one whose turn would come later is refused at once.
//
// req: C7 C8
func TestDeadlinesInTheQueue(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]struct {
		status int
		after  time.Duration
	}{
		"":      {http.StatusTooManyRequests, 0}, // the gateway's own 45s
		"0":     {http.StatusTooManyRequests, 0},
		"10":    {http.StatusTooManyRequests, 0},
		"1h":    {http.StatusTooManyRequests, 0},
		"1m30s": {http.StatusTooManyRequests, 0},
	} {
		inBubble(t, func(s *setup) {
			onePerMinute(s)
			s.options.Wait = 45 * time.Second
		}, func(t *testing.T, b *bench) {
			b.call("anthropic", false, "first")
			began := time.Now()
			var headers []string
			if header != "" {
				headers = []string{gateway.HeaderTimeout + ": " + header}
			}
			got := b.call("anthropic", false, "second", headers...)
			if got.status != want.status || time.Since(began) != want.after {
				t.Errorf("%q: got %d after %v, want %d after %v", header, got.status, time.Since(began), want.status,
					want.after)
			}
			if got.header.Get("Retry-After") != "60" {
				t.Errorf("%q: Retry-After is %q, want 60", header, got.header.Get("Retry-After"))
			}
			time.Sleep(20 * time.Second) // now its turn comes in time
			if got := b.call("anthropic", false, "third"); got.status != http.StatusOK ||
				time.Since(began) < time.Minute {
				t.Errorf("%q: got %d after %v, want an answer after a minute", header, got.status, time.Since(began))
			}
		})
	}
}

// TestFullQueue: callers that find the queue full are told to come back.
//
// req: C8
func TestFullQueue(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		onePerMinute(s)
		s.policies[0].Wait.Queue = 1
	}, func(t *testing.T, b *bench) {
		b.call("openai", false, "first")
		done := make(chan reply)
		go func() { done <- b.call("openai", false, "second") }()
		synctest.Wait()
		if got := b.call("openai", false, "third"); got.status != http.StatusServiceUnavailable ||
			got.header.Get("Retry-After") == "" {
			t.Errorf("got %d %v %s, want 503 with Retry-After", got.status, got.header, got.body)
		}
		if got := <-done; got.status != http.StatusOK {
			t.Errorf("the one in the queue: got %d %s", got.status, got.body)
		}
	})
}

// TestStoppingGateway: calls in the queue are refused when the gateway stops.
func TestStoppingGateway(t *testing.T) {
	t.Parallel()
	inBubble(t, onePerMinute, func(t *testing.T, b *bench) {
		b.call("openai", false, "first")
		done := make(chan reply)
		go func() { done <- b.call("openai", false, "second") }()
		synctest.Wait()
		b.h.Close()
		if got := <-done; got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "stopping") {
			t.Errorf("got %d %s, want 503", got.status, got.body)
		}
		if used := b.used("upstream", "account"); used["rpm"] != 1 {
			t.Errorf("%v used, want the first call alone", used)
		}
	})
}

// TestBudgets: what calls cost in money limits a key, and the answer's usage decides what is spent.
//
// req: B12 D12
func TestBudgets(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		s.config.Prices = &llm.Prices{Currency: "usd", Models: map[string]llm.Price{
			"gpt-4o":          {Input: 2_500_000, Output: 10_000_000},
			"claude-sonnet-4": {Input: 3_000_000, CacheRead: 300_000, CacheWrite: 3_750_000, Output: 15_000_000},
		}}
		s.policies = append(s.policies, drawgate.Policy{Name: "caller", Limits: []drawgate.Limit{
			drawgate.CalendarLimit("budget", 20_000, drawgate.Day, "UTC").Of("usd_micros"), // two cents
		}})
		s.rules = callerRule(`attr("key")`)
		s.rules[0].Apply[0].Costs = map[string]int64{"usd_micros": 0} // calls say what they cost
	}, func(t *testing.T, b *bench) {
		spent, warned := int64(0), int64(0)
		for i := range 20 {
			name := []string{"openai", "anthropic"}[i%2]
			got := b.call(name, i%3 == 0, "Hello!\nsimulate: output=200", gateway.HeaderTimeout+": 0")
			if got.status != http.StatusOK {
				if got.status != http.StatusTooManyRequests || !strings.Contains(got.body, "budget") || i < 5 {
					t.Errorf("call %d: got %d %s", i, got.status, got.body)
				}
				if got.header.Get(gateway.HeaderBudget) == "" {
					t.Error("the refusal does not say how much is used")
				}
				break
			}
			call, before := b.last(), spent
			if name == "openai" {
				spent += (call.Input*25 + call.Output*100 + 9) / 10
			} else {
				spent += call.Input*3 + call.Output*15
			}
			if used := b.used("caller", "alice"); used["budget"] != spent {
				t.Fatalf("call %d: %d millionths are spent, want %d", i, used["budget"], spent)
			}
			reported, _ := strconv.ParseInt(got.header.Get(gateway.HeaderBudget), 10, 64) // with what the call held
			if before >= 16_000 && reported < before/200 || spent < 12_000 && reported > 0 && reported < 80 ||
				reported > 100 {
				t.Errorf("call %d: told that %d %% are used of 20,000, %d before and %d after it", i, reported, before, spent)
			}
			warned += min(reported, 1)
		}
		if warned == 0 {
			t.Error("no answer said that the budget is nearly used up")
		}
		if spent > 20_000 || spent < 15_000 {
			t.Errorf("%d millionths were spent of 20,000, want nearly all, and no more", spent)
		}
		if got := b.call("openai", false, "Hello!", gateway.HeaderTimeout+": 0",
			"Authorization: Bearer "+bob); got.status != http.StatusOK {
			t.Errorf("another key: got %d %s", got.status, got.body)
		}
		got := b.call("gemini", false, "Hello!")
		if got.status != http.StatusNotFound || !strings.Contains(got.body, "price") {
			t.Errorf("a model without a price: got %d %s", got.status, got.body)
		}
	})
}

// TestConcurrency: so many calls of a team run at once, however they end, and the next one waits.
//
// req: D12
func TestConcurrency(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		s.options.Wait = time.Hour
		s.policies = append(s.policies, drawgate.Policy{
			Name:   "caller",
			Limits: []drawgate.Limit{drawgate.ConcurrencyLimit("running", 2)},
		})
		s.rules = callerRule(`attr("team")`)
	}, func(t *testing.T, b *bench) {
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				how := []string{"output=20", "output=20 chunk=10s", "fault=500", "fault=cut after=2"}[i%4]
				if i == 7 {
					time.AfterFunc(5*time.Second, leave)
				}
				b.do(b.request(ctx, "openai", true, "Hello!\nsimulate: delay=3s "+how))
			})
		}
		for running := true; running; time.Sleep(time.Second) {
			synctest.Wait()
			n := b.used("caller", "red")["running"]
			if n > 2 {
				t.Errorf("%d calls of the team run at once, want at most 2", n)
			}
			running = n > 0
		}
		group.Wait()
		if n := b.h.UnderWay(); n != 0 || len(b.sim.Calls()) < 7 {
			t.Errorf("%d calls are under way, and %d reached the provider", n, len(b.sim.Calls()))
		}
	})
}

// failing is a store that does not answer.
type failing struct {
	drawgate.Store

	mu   sync.Mutex
	down bool
}

func (f *failing) Take(ctx context.Context, takes []store.Take, out []store.Verdict) error {
	f.mu.Lock()
	down := f.down
	f.mu.Unlock()
	if down {
		return &drawgate.StoreError{Store: "test", Op: "take", Err: errors.New("connection refused")}
	}
	return f.Store.Take(ctx, takes, out)
}

// TestStoreUnavailable: without the store nothing is sent, unless a fallback grants it.
//
// req: C7 C12
func TestStoreUnavailable(t *testing.T) {
	t.Parallel()
	store := &failing{Store: memstore.New(nil)}
	b := newBench(t, func(s *setup) { s.store = store })
	store.mu.Lock()
	store.down = true
	store.mu.Unlock()
	for name := range apis {
		got := b.call(name, false, "Hello!", gateway.HeaderTimeout+": 0")
		if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" ||
			strings.Contains(got.body, "connection refused") {
			t.Errorf("%s: got %d %v %s, want 503", name, got.status, got.header, got.body)
		}
	}
	if n := len(b.sim.Calls()); n != 0 {
		t.Errorf("%d calls reached the provider, want none", n)
	}
}

// tardy is a store that takes a while.
type tardy struct{ drawgate.Store }

// Take implements drawgate.Store.
func (s tardy) Take(ctx context.Context, takes []store.Take, out []store.Verdict) error {
	select {
	case <-time.After(20 * time.Millisecond):
		return s.Store.Take(ctx, takes, out)
	case <-ctx.Done():
		return &drawgate.StoreError{Store: "test", Op: "take", Err: ctx.Err()}
	}
}

// TestTinyWaits: a caller that waits for less time than the store may need is asked for at once,
// rather than refused because the store did not answer.
//
// req: C7
func TestTinyWaits(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) { s.store = tardy{memstore.New(nil)} }, func(t *testing.T, b *bench) {
		for _, wait := range []string{"0", "0.000001", "1ms", "49ms", "50ms"} {
			if got := b.call("openai", false, "Hello!", gateway.HeaderTimeout+": "+wait); got.status != http.StatusOK {
				t.Errorf("waiting for %s: got %d %s", wait, got.status, got.body)
			}
		}
	})
}

// TestFallbackGrants: without the store a fallback may grant calls, and the answer says so.
//
// req: C7 C12
func TestFallbackGrants(t *testing.T) {
	t.Parallel()
	for fallback, want := range map[drawgate.Fallback]int{
		drawgate.FallbackClosed: http.StatusServiceUnavailable,
		drawgate.FallbackOpen:   http.StatusOK,
	} {
		inBubble(t, func(s *setup) {
			p := generous()
			p.Fallback = fallback
			s.policies, s.store = append(s.policies, p), guard.New(&failing{Store: memstore.New(nil), down: true},
				&guard.Options{}).Full()
		}, func(t *testing.T, b *bench) {
			for _, wait := range []string{"0", "60ms"} {
				got := b.call("openai", true, "Hello!", gateway.HeaderTimeout+": "+wait)
				if got.status != want || want == http.StatusOK && got.header.Get("X-RateLimit-Fallback") != "true" {
					t.Errorf("fallback %v, after %s: got %d %v %s, want %d that says so", fallback, wait, got.status,
						got.header, got.body, want)
				}
			}
			b.settled()
		})
	}
}

// TestCallersThatLeaveTheQueue: a caller that leaves while it waits leaves nothing behind.
func TestCallersThatLeaveTheQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t, onePerMinute)
	b.call("openai", false, "first")
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan reply)
	go func() { done <- b.do(b.request(ctx, "openai", true, "second")) }()
	b.until("it waits", func() bool { n, _ := b.engine.Waiting(); return n == 1 })
	leave()
	if got := <-done; got.err == nil {
		t.Errorf("got %d %s", got.status, got.body)
	}
	b.until("nobody waits", func() bool { n, _ := b.engine.Waiting(); return n == 0 })
	b.settled()
	if used := b.used("upstream", "account"); used["rpm"] != 1 || len(b.sim.Calls()) != 1 {
		t.Errorf("%v used by %d calls, want the first alone", used, len(b.sim.Calls()))
	}
}
