package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/redisstore"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// usage asks for the buckets in use.
func (f fixture) usage(query string) api.UsageAnswer {
	f.t.Helper()
	var u api.UsageAnswer
	if got := f.do("GET", "/v1/usage?"+query, "", &u); got != 200 {
		f.t.Fatalf("usage: %d, want 200", got)
	}
	return u
}

// named returns the names of buckets.
func named(u api.UsageAnswer) (names []string) {
	for i := range u.Buckets {
		names = append(names, u.Buckets[i].Policy+" "+u.Buckets[i].Key)
	}
	return names
}

// req: A13
func TestUsageOfEveryStore(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) (drawgate.Store, error){
		"memory": func(*testing.T) (drawgate.Store, error) { return memstore.New(nil), nil },
		"sqlite": func(t *testing.T) (drawgate.Store, error) {
			t.Helper()
			return sqlitestore.Open(filepath.Join(t.TempDir(), "counts.db"), nil)
		},
		"redis": func(t *testing.T) (drawgate.Store, error) {
			t.Helper()
			return redisstore.Open(redistest.Start(t).URL(), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			f := setup{store: store}.start(t)
			f.take(`{"policy":"llm","key":"a","costs":{"tokens":900}}`)
			f.take(`{"policy":"llm","key":"B","costs":{"tokens":250},"hold_ms":600000}`)
			f.take(`{"policy":"tiers","key":"a"}`)
			f.take(`{"policy":"slots","key":"only","hold_ms":600000}`)
			f.take(`{"policy":"tiers","tenant":"other","key":"a"}`)
			var paused api.PauseAnswer
			f.do("POST", "/v1/pause", `{"policy":"tiers","key":"paused","for_ms":600000}`, &paused)
			u := f.usage("")
			for u.Partial { // a slow machine: a reading is bounded in time
				u = f.usage("")
			}
			if since := time.Since(u.At); since < 0 || since > time.Hour || u.More || u.Partial {
				t.Errorf("got %+v", u)
			}
			u.At = time.Time{}
			want := api.UsageAnswer{Total: 5, Buckets: []api.BucketUsage{
				{Policy: "slots", Key: "only", Open: 1, Limits: []api.LimitUse{{
					Name: "slots", Unit: "requests",
					Used: 1, Max: 1, Held: 1,
				}}},
				{Policy: "llm", Key: "a", Limits: []api.LimitUse{
					{Name: "rpm", Unit: "requests", Used: 1, Max: 10},
					{Name: "tpm", Unit: "tokens", Used: 900, Max: 1000},
				}},
				{Policy: "tiers", Key: "a", Limits: []api.LimitUse{
					{Name: "minute", Unit: "requests", Used: 1, Max: 3},
					{Name: "day", Unit: "requests", Used: 1, Max: 5},
				}},
				{Policy: "llm", Key: "B", Open: 1, Limits: []api.LimitUse{{
					Name: "rpm", Unit: "requests", Used: 1,
					Max: 10,
				}, {Name: "tpm", Unit: "tokens", Used: 250, Max: 1000}}},
				{
					Policy: "tiers", Key: "paused", PausedUntil: &paused.Until,
					Limits: []api.LimitUse{
						{Name: "minute", Unit: "requests", Max: 3},
						{Name: "day", Unit: "requests", Max: 5},
					},
				},
			}}
			for i := range u.Buckets { // a record may say that the units of an open reservation do not age
				for k := range u.Buckets[i].Limits {
					if l := &u.Buckets[i].Limits[k]; u.Buckets[i].Policy == "llm" {
						l.Held = 0
					}
				}
			}
			if diff := cmp.Diff(want, u); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if got := named(f.usage("tenant=other")); !slices.Equal(got, []string{"tiers a"}) {
				t.Errorf("of another tenant: %q", got)
			}
		})
	}
}

func TestUsageIsChosen(t *testing.T) {
	t.Parallel()
	f := setup{config: ruled()}.start(t)
	f.take(`{"attributes":{"host":"api.example.com","path":"/x","ip":"192.0.2.1"}}`)
	for i := range 4 {
		for range i + 1 {
			f.take(fmt.Sprintf(`{"policy":"llm","key":"User-%d","costs":{"tokens":1}}`, i))
		}
	}
	for _, c := range []struct {
		query string
		want  []string
		more  bool
	}{
		{"policy=llm", []string{"llm User-3", "llm User-2", "llm User-1", "llm User-0"}, false},
		{"policy=llm&limit=3", []string{"llm User-3", "llm User-2", "llm User-1"}, true},
		{"policy=llm&limit=4", []string{"llm User-3", "llm User-2", "llm User-1", "llm User-0"}, false},
		{"match=uSER-2", []string{"llm User-2"}, false},
		{"match=LL&limit=1", []string{"llm User-3"}, true},
		{"match=nobody", nil, false},
		{"policy=api~shadow", []string{"api~shadow 192.0.2.1"}, false},
		{"policy=api&match=192", nil, false},
		{"match=192.0.2.1&policy=llm", nil, false},
	} {
		if u := f.usage(c.query); !slices.Equal(named(u), c.want) || u.More != c.more || u.Partial {
			t.Errorf("%s: %q, more %v, partial %v, want %q, %v", c.query, named(u), u.More, u.Partial, c.want, c.more)
		}
	}
	var p api.Problem
	for _, query := range []string{"policy=nope", "policy=nope~shadow", "limit=0", "limit=1001", "limit=x", "after=x"} {
		if got := f.do("GET", "/v1/usage?"+query, "", &p); got != 422 {
			t.Errorf("%s: %d %+v", query, got, p)
		}
	}
}

func TestUsageIsForAdministrators(t *testing.T) {
	t.Parallel()
	token := func(letter string, role server.Role, tenant string) server.Token {
		return server.Token{Secret: strings.Repeat(letter, 16), Roles: []server.Role{role}, Tenant: tenant}
	}
	store := memstore.New(nil)
	h := setup{store: store, options: &server.Options{Tokens: []server.Token{
		token("r", server.RoleRead, ""), token("a", server.RoleAdmin, ""), token("b", server.RoleAdmin, "bound"),
	}}}.make(t).AdminHandler()
	askAs := func(letter, path string, out any) int {
		w := ask(h, "GET", path, "", bearer(strings.Repeat(letter, 16)))
		if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
			t.Fatal(err)
		}
		return w.Code
	}
	var p api.Problem
	if got := askAs("r", "/v1/usage", &p); got != 403 || p.Code != api.CodeForbidden {
		t.Errorf("role read: %d %+v", got, p)
	}
	if got := askAs("b", "/v1/usage?tenant=other", &p); got != 403 || p.Code != api.CodeForbidden {
		t.Errorf("another tenant: %d %+v", got, p)
	}
	for _, tenant := range []string{"", "bound"} {
		ask(h, "POST", "/v1/take", `{"policy":"llm","tenant":"`+tenant+`","key":"of-`+tenant+`"}`,
			bearer(strings.Repeat("a", 16)))
	}
	for letter, want := range map[string]string{"a": "llm of-", "b": "llm of-bound"} {
		var u api.UsageAnswer
		if got := askAs(letter, "/v1/usage", &u); got != 200 || !slices.Equal(named(u), []string{want}) {
			t.Errorf("%s: %d %+v, want %s", letter, got, u, want)
		}
	}
}

func TestUsageWhereItCannotBeRead(t *testing.T) {
	t.Parallel()
	var p api.Problem
	if got := (setup{store: bare{memstore.New(nil)}}).start(t).do("GET", "/v1/usage", "", &p); got != 501 ||
		p.Code != api.CodeNotSupported {
		t.Errorf("a store that cannot list: %d %+v", got, p)
	}
	f := setup{store: &reluctant{
		Store: memstore.New(nil),
		fail:  errors.New("secret-host: connection refused"),
	}}.start(t)
	if got := f.do("GET", "/v1/usage", "", &p); got != 503 || p.Code != api.CodeStoreUnavailable ||
		strings.Contains(p.Detail, "secret") {
		t.Errorf("a store that fails: %d %+v", got, p)
	}
}

// reluctant is a store that lists and describes slowly, or fails.
type reluctant struct {
	*memstore.Store
	fail                  error
	list, peek            time.Duration
	lists, peeks, largest atomic.Int64
}

// linger takes its time, unless the caller leaves first.
func linger(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return &drawgate.StoreError{Store: "test", Op: "list", Err: ctx.Err()}
	}
}

func (s *reluctant) List(ctx context.Context, tenant, policy string, yield func(drawgate.Key) bool) error {
	if s.fail != nil {
		return &drawgate.StoreError{Store: "test", Op: "list", Err: s.fail}
	}
	s.lists.Add(1)
	if err := s.Store.List(ctx, tenant, policy, yield); err != nil {
		return err
	}
	return linger(ctx, s.list)
}

func (s *reluctant) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	s.peeks.Add(1)
	s.largest.Store(max(s.largest.Load(), int64(len(buckets))))
	if err := linger(ctx, s.peek); err != nil {
		return err
	}
	return s.Store.Peek(ctx, buckets, priority, out)
}

// However many ask, the buckets are read once a second, and less often if that takes long. Those
// who ask meanwhile get the last reading.
func TestUsageIsReadOnceForAll(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		list  time.Duration // for each of the three policies
		every time.Duration
		want  int64 // readings in 20 s
	}{
		{0, 0, 20},
		{200 * time.Millisecond, 0, 7}, // of 0.6 s, each followed by 2.4 s
		{0, 5 * time.Second, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &reluctant{Store: memstore.New(nil), list: c.list}
			f := setup{store: store, options: &server.Options{UsageEvery: c.every}}.inBubble(t)
			f.take(`{"policy":"llm","key":"a"}`)
			store.peeks.Store(0)
			end := time.Now().Add(20 * time.Second)
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					for time.Now().Before(end) {
						if u := f.usage(""); len(u.Buckets) != 1 || u.Partial {
							t.Errorf("got %+v", u)
						}
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
			wg.Wait()
			if got := store.lists.Load() / 3; got != c.want {
				t.Errorf("%d readings of %v, at most every %v, want %d", got, 3*c.list, c.every, c.want)
			}
			_ = f.srv.Close()
		})
	}
}

// Who types a text to look for does not wait for a reading.
func TestUsageIsFoundWhileItIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &reluctant{Store: memstore.New(nil), list: 300 * time.Millisecond}
		f := setup{store: store}.inBubble(t)
		f.take(`{"policy":"llm","key":"a"}`)
		for i, c := range []struct {
			query string
			sleep time.Duration // before
			want  time.Duration // how long it takes
		}{
			{"match=a", 0, 900 * time.Millisecond},                // the first reading
			{"match=a", 5 * time.Second, 20 * time.Millisecond},   // the last one was good until a moment ago
			{"", 0, 880 * time.Millisecond},                       // the next one
			{"match=a", 10 * time.Second, 900 * time.Millisecond}, // too old
		} {
			time.Sleep(c.sleep)
			began := time.Now()
			if u := f.usage(c.query); len(u.Buckets) != 1 || time.Since(began) != c.want {
				t.Errorf("%d: %d buckets after %v, want 1 after %v", i, len(u.Buckets), time.Since(began), c.want)
			}
		}
		_ = f.srv.Close()
	})
}

// A reading that takes too long has what was read by then, and says so. It does not look like a
// failure of the store.
func TestUsageIsReadInLimitedTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &reluctant{Store: memstore.New(nil)}
		f := setup{store: store}.inBubble(t)
		for i := range 250 {
			f.take(fmt.Sprintf(`{"policy":"llm","key":"k%03d"}`, i))
		}
		store.list, store.peek = time.Hour, 2*time.Second
		began := time.Now()
		u := f.usage("limit=1000")
		if took := time.Since(began); len(u.Buckets) != 100 || !u.More || !u.Partial || took != 5*time.Second ||
			store.largest.Load() != 100 {
			t.Errorf("%d buckets in %v, %d at once, more %v, partial %v", len(u.Buckets), took, store.largest.Load(),
				u.More, u.Partial)
		}
		_ = f.srv.Close()
	})
}

// A closing server ends a reading.
func TestUsageEndsWithTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup{store: &reluctant{Store: memstore.New(nil), list: time.Hour}}.inBubble(t)
		began := time.Now()
		time.AfterFunc(time.Second, func() { _ = f.srv.Close() })
		var p api.Problem
		for range 2 {
			if got := f.do("GET", "/v1/usage", "", &p); got != 503 || p.Code != api.CodeClosing ||
				time.Since(began) != time.Second {
				t.Errorf("%d %+v after %v", got, p, time.Since(began))
			}
		}
	})
}

// However many tenants are asked about at once, few readings are begun.
func TestUsageOfManyTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &reluctant{Store: memstore.New(nil), list: 500 * time.Millisecond}
		f := setup{store: store}.inBubble(t)
		var answered, refused atomic.Int64
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				var p api.Problem
				switch got := f.do("GET", fmt.Sprintf("/v1/usage?tenant=t%d", i), "", &p); {
				case got == 200:
					answered.Add(1)
				case got == 503 && p.Code == api.CodeStoreUnavailable && strings.Contains(p.Detail, "8 other tenants"):
					refused.Add(1)
				case got != 503 || !strings.Contains(p.Detail, "takes more than"):
					t.Errorf("%d: %d %+v", i, got, p)
				}
			})
		}
		synctest.Wait()
		if n := refused.Load(); n != 1000-8 {
			t.Errorf("%d of 1000 were refused at once, want all but 8", n)
		}
		wg.Wait()
		if answered.Load() == 0 {
			t.Error("nobody was answered")
		}
		time.Sleep(5 * time.Minute)
		if got := f.usage("tenant=t0"); got.Partial {
			t.Errorf("afterwards: %+v", got)
		}
		_ = f.srv.Close()
	})
}

// Of very many buckets each policy has a share. In the bubble no time passes: a reading is also
// bounded by that.
func TestUsageIsBounded(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(nil)
		f := setup{store: st}.inBubble(t)
		all := policies()
		for _, p := range all[:2] {
			plan, err := p.Compile()
			if err != nil {
				t.Fatal(err)
			}
			batch := make([]store.Take, 40_000)
			for i := range batch {
				batch[i].Buckets = []store.BucketCost{{
					Key:  drawgate.Key{Policy: p.Name, Name: fmt.Sprint(i)},
					Plan: plan.Plan, N: store.Amounts{1},
				}}
			}
			if err := st.Take(t.Context(), batch, make([]store.Verdict, len(batch))); err != nil {
				t.Fatal(err)
			}
		}
		u := f.usage("policy=tiers&limit=1000")
		if len(u.Buckets) != 1000 || !u.More || !u.Partial {
			t.Errorf("%d buckets, more %v, partial %v", len(u.Buckets), u.More, u.Partial)
		}
		if got := len(f.usage("policy=llm&limit=1").Buckets); got != 1 {
			t.Errorf("%d buckets of the other policy", got)
		}
		_ = f.srv.Close()
	})
}

// A page that is open for hours asks once a second: only the latest reading stays in memory.
func TestOldReadingsAreForgotten(t *testing.T) {
	t.Parallel()
	if n := server.ReadingsInMemory(30); n > 2 {
		t.Errorf("%d of 30 readings are in memory", n)
	}
}
