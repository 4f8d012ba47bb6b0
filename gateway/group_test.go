package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/store/memstore"
)

// members are the accounts of the tests of groups.
var members = []string{"one", "two", "three"}

func secretKey(account string) string { return "sk-account-" + account }

// group makes fast stand for the same model at several accounts, as many as there are weights. Each
// grants so many requests a minute.
func group(amount int64, weights ...int) func(*setup) {
	return func(s *setup) {
		s.config.Upstreams, s.sim.Keys = nil, nil
		a := gateway.Alias{Name: fast}
		for i, weight := range weights {
			name := members[i]
			rpm := drawgate.RollingLimit("rpm", amount, time.Minute)
			rpm.Margin = 2 * time.Second
			s.policies = append(s.policies, drawgate.Policy{Name: name, Limits: []drawgate.Limit{rpm}})
			s.sim.Keys = append(s.sim.Keys, simulator.Key{
				Secret: secretKey(name), Name: name, Organization: "of " + name,
			})
			s.config.Upstreams = append(s.config.Upstreams, gateway.Upstream{
				Name: name, Profile: llm.OpenAI(), Key: gateway.Secret(secretKey(name)),
				Models: []gateway.Model{{Name: "*", Policy: name}},
			})
			a.Models = append(a.Models, gateway.Target{Upstream: name, Model: "gpt-4o", Weight: weight})
		}
		s.config.Aliases = []gateway.Alias{a}
		s.sim.Quotas = []simulator.Quota{{
			Provider: simulator.OpenAI, Name: "all", Models: []string{"*"},
			Limits: []simulator.Limit{{
				Name: "rpm", Dimension: simulator.Requests, Window: simulator.Rolling, Amount: amount,
			}},
		}}
		s.options.Wait = time.Hour
	}
}

// faulty is a provider of which some accounts are out of order.
type faulty struct {
	http.RoundTripper

	mu     sync.Mutex
	how    map[string]*fault // guarded by mu: by account
	called map[string]int    // guarded by mu: calls that did not reach the provider
}

// fault is what becomes of the calls of an account: an error, or an answer that is one.
type fault struct {
	err    error
	unread bool // nothing of the call is read: it was not sent
	status int
	after  string        // Retry-After
	slow   time.Duration // so long until anything is read of a call, which then is answered
}

// unreachable is an account at which nobody listens.
var unreachable = &fault{err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, unread: true}

// is lets the calls of an account go wrong from now on; nil mends it.
func (f *faulty) is(account string, how *fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.how[account] = how
}

func (f *faulty) calls(account string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.called[account]
}

// of returns what is wrong with the account of a call, or nil.
func (f *faulty) of(r *http.Request) *fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for account, how := range f.how {
		if how != nil && r.Header.Get("Authorization") == "Bearer "+secretKey(account) {
			f.called[account]++
			return how
		}
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (f *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	how := f.of(r)
	if how == nil || how.slow > 0 {
		if how != nil {
			time.Sleep(how.slow)
		}
		return f.RoundTripper.RoundTrip(r)
	}
	if !how.unread {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
	}
	if how.err != nil {
		return nil, how.err
	}
	return &http.Response{
		StatusCode: how.status, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}, "Retry-After": {how.after}},
		Body:   io.NopCloser(strings.NewReader(`{"error":{"message":"no","type":"x"}}`)),
	}, nil
}

// inGroup is inBubble with a provider of which accounts can be put out of order.
func inGroup(t *testing.T, change func(*setup), test func(t *testing.T, b *bench, f *faulty)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(change)
		b := &bench{T: t}
		b.simulate(s)
		f := &faulty{RoundTripper: b.sim.Transport(), called: map[string]int{}, how: map[string]*fault{}}
		s.options.Base = f
		b.build(s, "http://provider.test")
		test(t, b, f)
	})
}

// toGroup makes a call of the group. more are fields of its body.
func (b *bench) toGroup(ctx context.Context, key, more string, headers ...string) reply {
	b.Helper()
	return b.do(b.raw(ctx, http.MethodPost, "/one/v1/chat/completions",
		`{"model":"fast","max_tokens":20,"messages":[{"role":"user","content":"Hello!"}]`+more+`}`,
		append([]string{"Authorization: Bearer " + key}, headers...)...))
}

// account returns which account made a call.
func (r *reply) account() string {
	upstream, _, other := strings.Cut(r.header.Get(gateway.HeaderModel), "/")
	if !other {
		return "one" // the one in the path
	}
	return upstream
}

// each returns how many calls of each account the provider has seen since an instant.
func (b *bench) each(since time.Time) map[string]int {
	n := map[string]int{}
	for _, c := range b.sim.Calls() {
		if !c.Arrived.Before(since) {
			n[c.Key]++
		}
	}
	return n
}

// crowd lets eighty callers call for a time, as often as they can, and returns the refusals.
func (b *bench) crowd(long time.Duration) (bad []reply) {
	b.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	end := time.Now().Add(long)
	for i := range 80 {
		all.Go(func() {
			for time.Now().Before(end) {
				if got := b.toGroup(b.Context(), []string{alice, bob}[i%2], ""); got.status != http.StatusOK {
					mu.Lock()
					bad = append(bad, got)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return bad
}

// TestGroupUsesEachQuota: a group of accounts grants what all of them grant, and no account more
// than its own quota.
//
// req: C1
func TestGroupUsesEachQuota(t *testing.T) {
	t.Parallel()
	const amount, long = 20, 5 * time.Minute
	inGroup(t, group(amount, 1, 3, 0), func(t *testing.T, b *bench, _ *faulty) {
		start := time.Now()
		for _, got := range b.crowd(long) {
			t.Errorf("got %d %s", got.status, got.body)
		}
		if v := b.sim.Violations(); v.Total != 0 {
			t.Errorf("%d calls exceeded an account's quota", v.Total)
		}
		least := amount * int(long/time.Second) / 62 * 95 / 100
		calls := b.each(start)
		for _, account := range members {
			if calls[account] < least {
				t.Errorf("%v calls of each account, want %d of %s", calls, least, account)
			}
		}
		synctest.Wait()
		for _, account := range members {
			if st := b.status(account, account); st.Open != 0 {
				t.Errorf("%s: %d holds are open", account, st.Open)
			}
		}
	})
}

// TestGroupOfUnequalAccounts: so it does with accounts of different sizes, which call the model by
// different names and limit tokens as well, and with answers that take a while.
//
// req: C1
func TestGroupOfUnequalAccounts(t *testing.T) {
	t.Parallel()
	const long = 5 * time.Minute
	amounts, names := []int64{5, 20, 60}, []string{"gpt-4o", "gpt-4.1", "gpt-4o-mini"}
	inGroup(t, func(s *setup) {
		group(0, 1, 1, 1)(s)
		s.sim.Quotas, s.sim.Delay = nil, 3*time.Second
		for i, n := range amounts {
			tpm := drawgate.RollingLimit("tpm", n*100, time.Minute).Of(llm.UnitTokens)
			tpm.Margin, tpm.Charge = 2*time.Second, drawgate.ChargeEnd
			rpm := &s.policies[i].Limits[0]
			rpm.Amount = n
			s.policies[i].Limits = append(s.policies[i].Limits, tpm)
			s.config.Upstreams[i].Models[0].Name, s.config.Aliases[0].Models[i].Model = names[i], names[i]
			limit := simulator.Limit{Name: "rpm", Dimension: simulator.Requests, Window: simulator.Rolling, Amount: n}
			tokens := limit
			tokens.Name, tokens.Dimension, tokens.Amount = "tpm", simulator.Tokens, n*100
			s.sim.Quotas = append(s.sim.Quotas, simulator.Quota{
				Provider: simulator.OpenAI, Name: names[i], Models: names[i : i+1],
				Limits: []simulator.Limit{limit, tokens},
			})
		}
	}, func(t *testing.T, b *bench, _ *faulty) {
		start := time.Now()
		for _, got := range b.crowd(long) {
			t.Errorf("got %d %s", got.status, got.body)
		}
		if v := b.sim.Violations(); v.Total != 0 {
			t.Errorf("%d calls exceeded an account's quota", v.Total)
		}
		calls := b.each(start)
		for i, account := range members {
			if least := int(amounts[i]) * int(long/time.Second) / 62 * 95 / 100; calls[account] < least {
				t.Errorf("%v calls of each account, want %d of %s", calls, least, account)
			}
		}
	})
}

// TestGroupOfSeveralGateways: several gateways that share a store do so together.
//
// req: C1 E1
func TestGroupOfSeveralGateways(t *testing.T) {
	t.Parallel()
	const amount, long = 20, 5 * time.Minute
	shared := memstore.New(nil)
	inGroup(t, func(s *setup) {
		group(amount, 1, 1)(s)
		s.store = shared
	}, func(t *testing.T, b *bench, f *faulty) {
		s := newSetup(group(amount, 1, 1))
		s.store, s.options.Base = shared, f
		other := &bench{T: t, sim: b.sim}
		other.build(s, "http://provider.test")
		var both sync.WaitGroup
		start := time.Now()
		for _, gateway := range []*bench{b, other} {
			both.Go(func() {
				for _, got := range gateway.crowd(long) {
					t.Errorf("got %d %s", got.status, got.body)
				}
			})
		}
		both.Wait()
		if v := b.sim.Violations(); v.Total != 0 {
			t.Errorf("%d calls exceeded an account's quota", v.Total)
		}
		least := amount * int(long/time.Second) / 62 * 95 / 100
		calls := b.each(start)
		for _, account := range members[:2] {
			if calls[account] < least {
				t.Errorf("%v calls of each account, want %d of %s", calls, least, account)
			}
		}
	})
}

// TestDeadAccountOfAGroup: while no connection to an account can be made, the others make all calls
// that had not begun, those that waited in its queue as well; later it is used again.
//
// req: C4 C8
func TestDeadAccountOfAGroup(t *testing.T) {
	t.Parallel()
	const amount, long = 20, 5 * time.Minute
	inGroup(t, group(amount, 1, 1, 1), func(t *testing.T, b *bench, f *faulty) {
		bad := b.crowd(time.Minute)
		f.is("two", unreachable)
		time.Sleep(time.Second) // later than the calls that two has answered
		start := time.Now()
		bad = append(bad, b.crowd(long)...)
		for _, got := range bad {
			t.Errorf("got %d %s", got.status, got.body)
		}
		calls := b.each(start)
		least := amount * int(long/time.Second) / 62 * 95 / 100
		if calls["two"] != 0 || calls["one"] < least || calls["three"] < least {
			t.Errorf("%v calls, want %d of those that live", calls, least)
		}
		f.is("two", nil)
		time.Sleep(2 * time.Minute)
		start = time.Now()
		b.crowd(long)
		if n := b.each(start)["two"]; n < least/2 {
			t.Errorf("%d calls of the account that is back", n)
		}
		if v := b.sim.Violations(); v.Total != 0 {
			t.Errorf("%d calls exceeded an account's quota", v.Total)
		}
	})
}

// TestUnreachableAccountOfAGroup: over real connections a call moves on when none can be made.
//
// req: C8
func TestUnreachableAccountOfAGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(s *setup) {
		group(100, 1, 1)(s)
		s.config.Upstreams[0].URL = closedURL()
	})
	for i := range 20 {
		got := b.toGroup(t.Context(), alice, fmt.Sprintf(`,"prompt_cache_key":"%d"`, i))
		if got.status != http.StatusOK || got.account() != "two" {
			t.Errorf("call %d: got %d %s of %s", i, got.status, got.body, got.account())
		}
	}
	b.settled()
	if used := b.used("one", "one"); used["rpm"] != 0 {
		t.Errorf("%v used of the account that cannot be reached", used)
	}
}

// TestRefusedAccountOfAGroup: a call that an account's provider refuses for its quota, or because
// it is overloaded, is made by another account at once, and so are those after it.
//
// req: C8
func TestRefusedAccountOfAGroup(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, llm.StatusOverloaded} {
		var answered []string
		inGroup(t, func(s *setup) {
			group(100, 1, 1, 1)(s)
			s.options.Answered = func(upstream, model, result string) {
				answered = append(answered, upstream+" "+model+" "+result)
			}
		}, func(t *testing.T, b *bench, f *faulty) {
			first := b.toGroup(t.Context(), alice, "")
			bad := first.account()
			f.is(bad, &fault{status: code, after: "50"})
			start := time.Now()
			for range 10 {
				got := b.toGroup(t.Context(), alice, "")
				if got.status != http.StatusOK || got.account() == bad {
					t.Errorf("%d: got %d %s of %s", code, got.status, got.body, got.account())
				}
				if last := answered[len(answered)-1]; last != got.account()+" * answered" {
					t.Errorf("%d: reported %q, want an answer of %s", code, last, got.account())
				}
			}
			if waited := time.Since(start); waited != 0 {
				t.Errorf("%d: it took %v, want that nothing waits", code, waited)
			}
			if n := f.calls(bad); code == http.StatusTooManyRequests && n != 1 {
				t.Errorf("%d: the account got %d calls, want one", code, n)
			}
		})
	}
}

// TestWaitingCallsOfAGroup: a call that waits is made by the first account that has room, also if
// the one in whose queue it was first is paused meanwhile.
//
// req: C8
func TestWaitingCallsOfAGroup(t *testing.T) {
	t.Parallel()
	for _, retries := range []int{0, 2} {
		inGroup(t, func(s *setup) {
			group(1, 1, 1)(s)
			for i := range s.config.Upstreams {
				s.config.Upstreams[i].Retries = retries
			}
		}, func(t *testing.T, b *bench, f *faulty) {
			first := b.toGroup(t.Context(), alice, "")
			time.Sleep(10 * time.Second)
			second := b.toGroup(t.Context(), alice, "")
			if first.account() == second.account() {
				t.Fatalf("both calls were made by %s", first.account())
			}
			f.is(first.account(), &fault{status: http.StatusTooManyRequests, after: "3000"})
			start := time.Now()
			got := b.toGroup(t.Context(), alice, "")
			if waited := time.Since(start); got.status != http.StatusOK || got.account() != second.account() ||
				waited < time.Minute || waited > 63*time.Second {
				t.Errorf("%d retries: got %d %s of %s after %v, want that of %s when it has room", retries, got.status,
					got.body, got.account(), waited, second.account())
			}
			if queued := got.header.Get(gateway.HeaderQueued); len(queued) != 5 {
				t.Errorf("it was queued for %q ms", queued)
			}
		})
	}
}

// TestLateCallsOfAGroup: a call that was granted, and could not be sent within the limit's margin,
// waits again as long as it may, with all accounts: it has not begun.
//
// req: C1 C8
func TestLateCallsOfAGroup(t *testing.T) {
	t.Parallel()
	inGroup(t, group(2, 1, 1), func(t *testing.T, b *bench, f *faulty) {
		for range 4 {
			b.toGroup(t.Context(), alice, "")
		}
		for _, m := range members[:2] {
			f.is(m, &fault{slow: 3 * time.Second}) // longer than the margin
		}
		time.AfterFunc(3*time.Minute, func() {
			for _, m := range members[:2] {
				f.is(m, nil)
			}
		})
		var all sync.WaitGroup
		for range 12 {
			all.Go(func() {
				if got := b.toGroup(t.Context(), alice, ""); got.status != http.StatusOK {
					t.Errorf("got %d %s", got.status, got.body)
				}
			})
		}
		all.Wait()
		if f.calls("one") == 0 || f.calls("two") == 0 {
			t.Error("no call was late: this shows nothing")
		}
		if v := b.sim.Violations(); v.Total != 0 {
			t.Errorf("%d calls exceeded an account's quota", v.Total)
		}
	})
}

// TestBegunCallsAreNotRepeated: what an account has begun to answer, or may have, no other account
// is asked for.
//
// req: C1 C8
func TestBegunCallsAreNotRepeated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		how    fault
		status int
	}{
		"500":         {fault{status: http.StatusInternalServerError}, http.StatusInternalServerError},
		"400":         {fault{status: http.StatusBadRequest}, http.StatusBadRequest},
		"404":         {fault{status: http.StatusNotFound}, http.StatusNotFound},
		"401":         {fault{status: http.StatusUnauthorized}, http.StatusBadGateway},
		"a lost call": {fault{err: syscall.ECONNRESET}, http.StatusBadGateway},
	} {
		inGroup(t, group(100, 1, 1, 1), func(t *testing.T, b *bench, f *faulty) {
			for _, m := range members {
				f.is(m, &c.how)
			}
			got := b.toGroup(t.Context(), alice, "")
			n := 0
			for _, m := range members {
				n += f.calls(m)
			}
			if got.status != c.status || n != 1 {
				t.Errorf("%s: got %d after %d calls, want %d after one", name, got.status, n, c.status)
			}
		})
	}
}

// TestGroupThatIsFull: without any account that has room the refusal says when the first one has.
//
// req: C7
func TestGroupThatIsFull(t *testing.T) {
	t.Parallel()
	inGroup(t, group(1, 1, 1, 1), func(t *testing.T, b *bench, f *faulty) {
		for range members {
			b.toGroup(t.Context(), alice, "")
			time.Sleep(10 * time.Second)
		}
		got := b.toGroup(t.Context(), alice, "", gateway.HeaderTimeout+": 0")
		if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") != "32" {
			t.Errorf("got %d, Retry-After %q, want the 62 seconds of the first call less 30", got.status,
				got.header.Get("Retry-After"))
		}
		for _, m := range members {
			f.is(m, unreachable)
		}
		time.Sleep(2 * time.Minute)
		if got = b.toGroup(t.Context(), alice, ""); got.status != http.StatusBadGateway ||
			!strings.Contains(got.body, "nothing was sent") {
			t.Errorf("no account can be reached: got %d %s", got.status, got.body)
		}
		for _, m := range members {
			if used := b.used(m, m); used["rpm"] != 0 {
				t.Errorf("%s: %v used by calls that were not sent", m, used)
			}
		}
	})
}

// TestCallersStayAtTheirAccount: calls of the same key, or with the same key of a cache, are made
// by the same account while it has room.
func TestCallersStayAtTheirAccount(t *testing.T) {
	t.Parallel()
	inGroup(t, group(1000, 1, 1, 1), func(t *testing.T, b *bench, _ *faulty) {
		of := func(key, more string) string {
			got := b.toGroup(t.Context(), key, more)
			return got.account()
		}
		used := map[string]bool{}
		for i := range 30 {
			name := fmt.Sprintf(`,"prompt_cache_key":"conversation %d"`, i)
			first := of(alice, name)
			used[first] = true
			for range 3 {
				if got := of(alice, name); got != first {
					t.Errorf("%s: made by %s, and before by %s", name, got, first)
				}
			}
		}
		if len(used) != len(members) {
			t.Errorf("thirty conversations used %v", used)
		}
		for _, key := range []string{alice, bob} {
			first := of(key, "")
			for range 10 {
				if got := of(key, `,"temperature":0`); got != first {
					t.Errorf("%s: made by %s, and before by %s", key, got, first)
				}
			}
		}
	})
}

// TestKeysOfAGroup: a key that names the alias may use all accounts; any other one those whose
// model it may use.
//
// req: C12
func TestKeysOfAGroup(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		models []string
		want   []string
	}{
		{nil, members},
		{[]string{fast}, members},
		{[]string{"*"}, members},
		{[]string{"two/gpt-4o"}, []string{"two"}},
		{[]string{"two/*", "three/gpt-4*"}, []string{"two", "three"}},
		{[]string{"two/gpt-4o-mini"}, nil},
	} {
		inGroup(t, func(s *setup) {
			group(2, 1, 1, 1)(s)
			s.config.Keys[0].Models = c.models
		}, func(t *testing.T, b *bench, _ *faulty) {
			for range 7 {
				b.toGroup(t.Context(), alice, "", gateway.HeaderTimeout+": 0")
			}
			for _, m := range members {
				want := int64(0)
				if slices.Contains(c.want, m) {
					want = 2
				}
				if used := b.used(m, m); used["rpm"] != want {
					t.Errorf("a key of %q: %v used of %s, want %d", c.models, used, m, want)
				}
			}
		})
	}
}

// TestStoredAtOneAccount: what refers to something that only one account has is not for a group.
func TestStoredAtOneAccount(t *testing.T) {
	t.Parallel()
	for _, alone := range []bool{false, true} {
		inGroup(t, func(s *setup) {
			group(100, 1, 1)(s)
			if alone {
				s.config.Keys[0].Models = []string{"two/*"}
			}
		}, func(t *testing.T, b *bench, _ *faulty) {
			got := b.do(b.raw(t.Context(), http.MethodPost, "/one/v1/responses",
				`{"model":"fast","max_output_tokens":5,"input":"a","previous_response_id":"resp_1"}`,
				"Authorization: Bearer "+alice))
			refused := got.status == http.StatusBadRequest && strings.Contains(got.body, "several accounts")
			if refused == alone {
				t.Errorf("of one account %v: got %d %s", alone, got.status, got.body)
			}
		})
	}
}

// TestSlotsOfAGroup: a caller's own limits hold over all accounts, and a call that stands in
// several queues takes from them once.
//
// req: C1
func TestSlotsOfAGroup(t *testing.T) {
	t.Parallel()
	inGroup(t, func(s *setup) {
		group(1000, 1, 1, 1)(s)
		s.policies = append(s.policies, drawgate.Policy{Name: "caller", Limits: []drawgate.Limit{
			drawgate.ConcurrencyLimit("slots", 2), drawgate.RollingLimit("rpm", 100, 24*time.Hour),
		}})
		s.rules = callerRule(`attr("key")`)
		s.sim.Delay = time.Second
	}, func(t *testing.T, b *bench, _ *faulty) {
		var all sync.WaitGroup
		start := time.Now()
		for range 100 {
			all.Go(func() {
				if got := b.toGroup(t.Context(), alice, ""); got.status != http.StatusOK {
					t.Errorf("got %d %s", got.status, got.body)
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took < 50*time.Second {
			t.Errorf("100 calls of a second took %v in two slots", took)
		}
		if used := b.used("caller", "alice"); used["slots"] != 0 || used["rpm"] != 100 {
			t.Errorf("%v used, want the hundred requests", used)
		}
		if n := len(b.sim.Calls()); n != 100 {
			t.Errorf("the provider got %d calls, want 100", n)
		}
	})
}

// TestCallersThatLeaveAGroup: a call that is given up while it waits leaves no queue with anything
// of it.
//
// req: C12
func TestCallersThatLeaveAGroup(t *testing.T) {
	t.Parallel()
	inGroup(t, group(1, 1, 1), func(t *testing.T, b *bench, _ *faulty) {
		for range 2 {
			b.toGroup(t.Context(), alice, "")
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				ctx, leave := context.WithTimeout(t.Context(), 30*time.Second)
				defer leave()
				b.toGroup(ctx, alice, "")
			})
		}
		all.Wait()
		time.Sleep(2 * time.Minute)
		for _, m := range members[:2] {
			if st := b.status(m, m); st.Open != 0 || st.States[0].Used != 0 {
				t.Errorf("%s: %+v is left", m, st)
			}
		}
		if n := len(b.sim.Calls()); n != 2 || b.h.UnderWay() != 0 {
			t.Errorf("%d calls, %d under way", n, b.h.UnderWay())
		}
	})
}
