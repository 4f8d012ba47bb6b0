package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	wire "github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// aboutKey asks what a key is told about itself.
func (b *bench) aboutKey(secret string) (me wire.MeAnswer) {
	b.Helper()
	got := b.do(b.raw(b.Context(), http.MethodGet, wire.PathMe, "", "Authorization: Bearer "+secret))
	if got.status != http.StatusOK || got.header.Get("Cache-Control") != "no-store" {
		b.Fatalf("got %d %v %s", got.status, got.header, got.body)
	}
	if err := json.Unmarshal([]byte(got.body), &me); err != nil {
		b.Fatal(err)
	}
	return me
}

// budgets are limits of a key, of its team and of everybody, in that order.
func budgets(s *setup) {
	s.config.Prices = priced()
	of := func(name string, l drawgate.Limit) drawgate.Policy {
		return drawgate.Policy{Name: name, Limits: []drawgate.Limit{l}}
	}
	s.policies = append(s.policies,
		of("caller", drawgate.CalendarLimit("budget", 1_000_000, drawgate.Month, "UTC").Of("eur_micros")),
		of("team", drawgate.RollingLimit("rpm", 5, time.Minute)),
		of("all", drawgate.RollingLimit("everybody", 1000, time.Minute)),
	)
	s.rules = []rules.Rule{
		{When: `attr("key") != ""`, Apply: []rules.Apply{
			{Policy: "caller", Key: `attr("key")`}, {Policy: "team", Key: `attr("team")`},
		}},
		{Apply: []rules.Apply{{Policy: "all", Key: `"all"`}}},
	}
	for i := range s.rules {
		for j := range s.rules[i].Apply {
			s.rules[i].Apply[j].Costs = map[string]int64{}
		}
	}
	s.rules[0].Apply[0].Costs = map[string]int64{"eur_micros": 0}
}

// TestMe: a key learns what it may use, what is used of its limits and its team's, what it spent
// this month, which of its calls wait, and what was refused and why.
//
// req: D7
func TestMe(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		budgets(s)
		s.config.Keys[0].Models = []string{"openai/gpt-4o*", "claude"}
		s.config.Keys[0].Expires = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		s.config.Aliases = []gateway.Alias{
			{Name: "claude", Models: []gateway.Target{{Upstream: "anthropic", Model: "claude-sonnet-4"}}},
			{Name: "smart", Models: []gateway.Target{{Upstream: "anthropic", Model: "claude-sonnet-4"}}},
		}
	}, func(t *testing.T, b *bench) {
		for i := range 3 {
			if got := b.call("openai", false, "Hello!"); got.status != http.StatusOK {
				t.Fatalf("call %d: %d %s", i, got.status, got.body)
			}
		}
		if got := b.call("gemini", false, "Hello!"); got.status == http.StatusOK {
			t.Fatal("a model that the key may not use answers")
		}
		me := b.aboutKey(alice)
		if me.Key != "alice" || me.Team != "red" || me.Priority != 7 || me.Until == nil || me.Until.Year() != 2030 {
			t.Errorf("who: %+v", me)
		}
		usable := []wire.MeUpstream{{Name: "openai", Provider: "openai", Models: []string{"gpt-4o*"}}}
		if diff := cmp.Diff(usable, me.Upstreams); diff != "" {
			t.Errorf("upstreams: -want +got\n%s", diff)
		}
		if !slices.Equal(me.Aliases, []string{"claude"}) {
			t.Errorf("aliases %q, want claude", me.Aliases)
		}
		cost := b.spent()[b.meter("alice", "red", "openai", "gpt-4o")].Micros
		if len(me.Limits) != 2 || me.Limits[0].Name != "budget" || me.Limits[0].Used != cost || me.Limits[0].Team ||
			me.Limits[0].ResetAt == nil ||
			me.Limits[1].Name != "rpm" || me.Limits[1].Used != 3 || !me.Limits[1].Team || me.Limits[1].Most != 5 {
			t.Errorf("limits %+v, want %d millionths of a budget, and 3 of 5 requests of the team", me.Limits, cost)
		}
		if me.Spend == nil || len(me.Spend.Rows) != 1 || me.Spend.Rows[0].Used.CostMicros != cost || cost == 0 ||
			me.Spend.Rows[0].Model != "gpt-4o" || me.Spend.Currency != "eur" {
			t.Errorf("spend %+v, want %d millionths of gpt-4o", me.Spend, cost)
		}
		if len(me.Refusals) != 1 || me.Refusals[0].Upstream != "gemini" ||
			me.Refusals[0].Status != http.StatusNotFound {
			t.Errorf("refusals %+v, want that of a model", me.Refusals)
		}
		for range 2 { // of the same team, and it may use everything
			b.call("openai", false, "Hello!")
		}
		go b.call("openai", false, "Hello!")
		time.Sleep(3 * time.Second)
		me = b.aboutKey(alice)
		if len(me.Waiting) != 1 || me.Waiting[0].Model != "gpt-4o" || me.Waiting[0].WaitedMS != 3000 ||
			me.Limits[1].Remaining != 0 {
			t.Errorf("waiting %+v, want one call for 3 s: %+v", me.Waiting, me.Limits[1])
		}
		if me := b.aboutKey(bob); len(me.Waiting) > 0 || len(me.Refusals) > 0 || len(me.Spend.Rows) > 0 ||
			me.Limits[0].Used > 0 || me.Limits[1].Used > 0 || len(me.Upstreams) != len(b.conf.Upstreams) ||
			len(me.Aliases) != 2 {
			t.Errorf("another key: %+v", me)
		}
		time.Sleep(2 * time.Minute)
		if me := b.aboutKey(alice); len(me.Waiting) > 0 {
			t.Errorf("%+v still wait", me.Waiting)
		}
	})
}

// TestMeIsForKeysAlone: who shows no key that is in force learns nothing.
func TestMeIsForKeysAlone(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		s.config.Keys[0].Disabled = true
		s.config.Keys[1].Addresses = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	}, func(t *testing.T, b *bench) {
		for _, c := range []struct {
			method, secret string
			status         int
			code           wire.Code
		}{
			{http.MethodGet, "", http.StatusUnauthorized, wire.CodeUnauthorized},
			{http.MethodGet, "vk-unknown", http.StatusUnauthorized, wire.CodeUnauthorized},
			{http.MethodGet, alice, http.StatusUnauthorized, wire.CodeUnauthorized},
			{http.MethodGet, bob, http.StatusForbidden, wire.CodeForbidden},
			{http.MethodPost, alice, http.StatusUnauthorized, wire.CodeUnauthorized},
		} {
			got := b.do(b.raw(t.Context(), c.method, wire.PathMe, "", "Authorization: Bearer "+c.secret))
			var p wire.Problem
			if err := json.Unmarshal([]byte(got.body), &p); err != nil || got.status != c.status || p.Code != c.code ||
				strings.Contains(got.body, "alice") {
				t.Errorf("%s with %q: %d %s, want %d %s", c.method, c.secret, got.status, got.body, c.status, c.code)
			}
		}
	})
	inBubble(t, nil, func(t *testing.T, b *bench) {
		got := b.do(b.raw(t.Context(), http.MethodPost, wire.PathMe, "", "Authorization: Bearer "+alice))
		if got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("POST: %d %v", got.status, got.header)
		}
	})
}

// TestMeSaysNothingOfOthers: whatever other keys do, a key's answer stays the same, but for what
// its team uses together; and it has no name of another key or team.
func TestMeSaysNothingOfOthers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		inBubble(t, func(s *setup) {
			budgets(s)
			s.config.Keys[1].Name, s.config.Keys[1].Team = "somebody-else", "another-team"
			s.options.Wait = time.Second
		}, func(t *testing.T, b *bench) {
			rng := rand.New(rand.NewPCG(seed, 9))
			for range rng.IntN(3) {
				b.call("openai", false, "Hello!")
			}
			time.Sleep(time.Hour)
			text := func() string {
				me := b.aboutKey(alice)
				me.At = time.Time{}
				for i := range me.Limits {
					me.Limits[i].ResetAt = nil
				}
				out, err := json.Marshal(me)
				if err != nil {
					t.Fatal(err)
				}
				return string(out)
			}
			before := text()
			for range 10 {
				name := []string{"openai", "gemini", "anthropic"}[rng.IntN(3)]
				head, _, _ := strings.Cut(apis[name].key, ": ")
				prefix := strings.TrimPrefix(apis[name].key, head+": ")
				prompt := strings.Repeat("word ", 1+rng.IntN(50))
				b.do(b.request(t.Context(), name, rng.IntN(2) == 0, prompt, head+": "+prefix+bob))
				time.Sleep(2 * time.Second)
				after := text()
				if after != before || strings.Contains(after, "somebody") || strings.Contains(after, "another") {
					t.Fatalf("seed %d: another key's calls show:\n%s\n%s", seed, before, after)
				}
			}
			if me := b.aboutKey(bob); len(me.Spend.Rows) == 0 {
				t.Error("the other key did nothing")
			}
		})
	}
}

// peeking counts what is read of a store, which may be down.
type peeking struct {
	store.Store
	peeks atomic.Int64
	down  atomic.Bool
}

func (c *peeking) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	c.peeks.Add(1)
	if c.down.Load() {
		return &store.Error{Store: "test", Op: "peek", Err: errors.New("away")}
	}
	return c.Store.Peek(ctx, buckets, priority, out)
}

// TestMeAsksTheStoreSeldom: a key that asks again and again reads the store every two seconds.
// While the store is away it is told so, and when that is over it gets numbers again.
func TestMeAsksTheStoreSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &peeking{Store: memstore.New(nil)}
		s := newSetup(func(s *setup) {
			budgets(s)
			s.store = inner
		})
		b := &bench{T: t}
		b.build(s, "http://provider.test")
		defer b.h.Close()
		for range 1000 {
			b.aboutKey(alice)
			time.Sleep(10 * time.Millisecond)
		}
		if n := inner.peeks.Load(); n > 6*2 {
			t.Errorf("%d reads in 10 s, want two buckets every 2 s", n)
		}
		inner.down.Store(true)
		time.Sleep(2 * time.Second)
		got := b.do(b.raw(t.Context(), http.MethodGet, wire.PathMe, "", "Authorization: Bearer "+alice))
		if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
			t.Errorf("a store that is away: %d %s", got.status, got.body)
		}
		inner.down.Store(false)
		time.Sleep(2 * time.Second) // as the other one, this answer is given again for so long
		if me := b.aboutKey(alice); len(me.Limits) != 2 {
			t.Errorf("%+v", me)
		}
	})
}

// TestMeRemembersTheLatestRefusals: of each key the latest twenty, with the latest first.
func TestMeRemembersTheLatestRefusals(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		for i := range 30 {
			time.Sleep(time.Second)
			path := fmt.Sprintf("/openai/v1/path%d", i)
			b.do(b.raw(t.Context(), http.MethodPost, path, "{}", "Authorization: Bearer "+alice))
		}
		me := b.aboutKey(alice)
		if len(me.Refusals) != 20 || !me.Refusals[0].At.After(me.Refusals[19].At) {
			t.Errorf("%d refusals: %+v", len(me.Refusals), me.Refusals)
		}
	})
}

// TestNoAnswerIsAPage: what a provider sends as HTML, or without saying what it is, is no page of
// the gateway's origin, where a tab may have a key. An answer in JSON, or a stream, is as it was.
func TestNoAnswerIsAPage(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"application/json\ntext/html", "text/html", "image/svg+xml", "application/xhtml+xml", "", "nonsense/;;", "application/json; charset=utf-8", "text/event-stream"} {
		synctest.Test(t, func(t *testing.T) {
			b := &bench{T: t}
			b.build(newSetup(func(s *setup) { s.options.Base = pages(kind) }), "http://provider.test")
			defer b.h.Close()
			got := b.call("openai", false, "Hello!")
			harmless := strings.HasPrefix(kind, "application/json;") || kind == "text/event-stream"
			sandbox := got.header.Get("Content-Security-Policy") == "sandbox"
			if is := sandbox && got.header.Get("X-Content-Type-Options") == "nosniff"; is == harmless {
				t.Errorf("%q: the answer may be a page: %v", kind, got.header)
			}
		})
	}
}

// pages is a provider that answers with a page of some type.
type pages string

// RoundTrip implements http.RoundTripper.
func (p pages) RoundTrip(r *http.Request) (*http.Response, error) {
	h := http.Header{"Content-Type": strings.Split(string(p), "\n")}
	return &http.Response{
		StatusCode: http.StatusOK, Request: r, Header: h, Body: io.NopCloser(strings.NewReader("<script>1</script>")),
	}, nil
}

// TestPageForKeys: the page is served where no upstream is asked, and nothing else of its files.
func TestPageForKeys(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		for path, status := range map[string]int{
			"/": http.StatusOK, "/v1/page/me.js": http.StatusOK, "/v1/page/style.css": http.StatusOK,
			"/v1/page/../me.html": http.StatusNotFound, "/v1/page/": http.StatusNotFound,
			"/v1/page/none.js": http.StatusNotFound, "/v1/me.html": http.StatusNotFound,
		} {
			if got := b.do(b.raw(t.Context(), http.MethodGet, path, "")); got.status != status {
				t.Errorf("%s: got %d, want %d", path, got.status, status)
			}
		}
	})
}

// TestMeSaysNothingOfAClass: a limit that counts a class is not shown to a key of it: keys of other
// teams are in the class, too.
func TestMeSaysNothingOfAClass(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		s.config.Keys[0].Class, s.config.Keys[1].Class = "batch", "batch"
		for _, name := range []string{"class", "both"} {
			s.policies = append(s.policies, drawgate.Policy{
				Name: name, Limits: []drawgate.Limit{drawgate.RollingLimit("rpm", 50, time.Hour)},
			})
		}
		s.rules = []rules.Rule{
			{When: `class != ""`, Apply: []rules.Apply{{Policy: "class", Key: "class"}}},
			{When: `attr("team") in ["red", "blue"]`, Apply: []rules.Apply{{Policy: "both", Key: `"both"`}}},
		}
	}, func(t *testing.T, b *bench) {
		b.call("openai", false, "Hello!", "Authorization: Bearer "+bob)
		if me := b.aboutKey(alice); len(me.Limits) > 0 {
			t.Errorf("a key is told what other teams use: %+v", me.Limits)
		}
	})
}

// hanging is a store that does not answer.
type hanging struct{ store.Store }

func (hanging) Peek(ctx context.Context, _ []store.BucketCost, _ int8, _ []store.State) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestMeWithAStoreThatHangs: each request of a key is answered within five seconds, however many
// there are.
func TestMeWithAStoreThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t}
		b.build(newSetup(func(s *setup) {
			budgets(s)
			s.store = hanging{memstore.New(nil)}
		}), "http://provider.test")
		defer b.h.Close()
		began := time.Now()
		var all sync.WaitGroup
		for range 12 {
			all.Go(func() {
				got := b.do(b.raw(t.Context(), http.MethodGet, wire.PathMe, "", "Authorization: Bearer "+alice))
				if got.status < 500 {
					t.Errorf("got %d %s", got.status, got.body)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the last answer came after %v", took)
		}
	})
}
