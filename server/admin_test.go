package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

func TestPoliciesAreListed(t *testing.T) {
	t.Parallel()
	f := setup{config: ruled()}.start(t)
	var got api.PoliciesAnswer
	f.do("GET", "/v1/policies", "", &got)
	var names []string
	for _, p := range got.Policies {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff([]string{"api", "candidate", "llm", "per-ip", "slots"}, names); diff != "" {
		t.Error(diff)
	}
	if !got.Policies[1].Shadow || got.Policies[2].Limits[1].Unit != "tokens" ||
		got.Policies[2].Limits[1].WindowMS != 3_600_000 {
		t.Errorf("got %+v", got)
	}
}

func TestBucketsAreListedPageByPage(t *testing.T) {
	t.Parallel()
	f := plain(t)
	var want []string
	for i := range 23 {
		key := fmt.Sprintf("k%02d", i)
		want = append(want, key)
		f.take(`{"policy":"llm","key":"` + key + `"}`)
		f.take(`{"policy":"tiers","key":"other-` + key + `"}`)
	}
	for _, limit := range []int{1, 7, 22, 23, 24, 1000} {
		var got []string
		for after, pages := "", 0; ; pages++ {
			var b api.BucketsAnswer
			f.do("GET", fmt.Sprintf("/v1/buckets?policy=llm&limit=%d&after=%s", limit, after), "", &b)
			if len(b.Keys) > limit || pages > 23 {
				t.Fatalf("limit %d: %+v", limit, b)
			}
			got = append(got, b.Keys...)
			if after = b.After; after == "" {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limit %d: %s", limit, diff)
		}
	}
	var p api.Problem
	for _, query := range []string{
		"policy=nope", "policy=llm&limit=1001", "policy=llm&limit=x", "policy=llm&after=*",
		"policy=llm&page=2", "",
	} {
		if got := f.do("GET", "/v1/buckets?"+query, "", &p); got != 422 {
			t.Errorf("%s: %d %+v", query, got, p)
		}
	}
}

// TestBucketsOfRulesInShadowAreListed under the policy's name and ~shadow, and those of the policy
// without them.
func TestBucketsOfRulesInShadowAreListed(t *testing.T) {
	t.Parallel()
	f := setup{config: ruled()}.start(t)
	f.take(`{"attributes":{"host":"api.example.com","path":"/x","ip":"192.0.2.1"}}`)
	for policy, key := range map[string]string{"api": "global", "api~shadow": "192.0.2.1"} {
		var b api.BucketsAnswer
		f.do("GET", "/v1/buckets?policy="+policy, "", &b)
		if b.Policy != policy || !slices.Equal(b.Keys, []string{key}) {
			t.Errorf("%s: %+v, want %s", policy, b, key)
		}
	}
	var p api.Problem
	if got := f.do("GET", "/v1/buckets?policy=nope~shadow", "", &p); got != 422 || p.Code != api.CodeUnknownPolicy {
		t.Errorf("%d %+v", got, p)
	}
}

// A page of long keys has fewer of them, and no two pages go through the store at once.
func TestPagesOfBucketsAreBounded(t *testing.T) {
	t.Parallel()
	st := &listed{Store: memstore.New(nil)}
	f := setup{store: st}.start(t)
	var want []string
	all := policies()
	plan, err := all[slices.IndexFunc(all, func(p drawgate.Policy) bool { return p.Name == "llm" })].Compile()
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]store.Take, 20)
	for i := range batch { // past a limiter, which would cut them
		want = append(want, string(rune('a'+i))+strings.Repeat("k", drawgate.MaxKey-1))
		batch[i].Buckets = []store.BucketCost{{
			Key: drawgate.Key{Policy: plan.Name(), Name: want[i]}, Plan: plan.Plan,
			N: store.Amounts{1},
		}}
	}
	if err := st.Take(t.Context(), batch, make([]store.Verdict, len(batch))); err != nil {
		t.Fatal(err)
	}
	var got []string
	pages, after := 0, ""
	for more := true; more; pages++ {
		var b api.BucketsAnswer
		f.do("GET", "/v1/buckets?policy=llm&limit=1000&after="+after, "", &b)
		if n := len(b.Keys); n < 1 || n > 16 {
			t.Fatalf("a page of %d keys", n)
		}
		got, after, more = append(got, b.Keys...), b.After, b.After != ""
	}
	if !slices.Equal(got, want) || pages != 2 {
		t.Errorf("%d keys on %d pages", len(got), pages)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { ask(f.srv.AdminHandler(), "GET", "/v1/buckets?policy=llm", "") })
	}
	if wg.Wait(); st.most.Load() != 1 {
		t.Errorf("%d at once", st.most.Load())
	}
}

// listed is a store that knows how often it was listed at once.
type listed struct {
	*memstore.Store
	now, most atomic.Int64
}

func (s *listed) List(ctx context.Context, tenant, policy string, yield func(drawgate.Key) bool) error {
	s.most.Store(max(s.most.Load(), s.now.Add(1)))
	defer s.now.Add(-1)
	return s.Store.List(ctx, tenant, policy, yield)
}

// Who waits for a bucket gets its turn when the bucket is reset.
func TestResetForgetsAndWakes(t *testing.T) {
	t.Parallel()
	f := plain(t)
	held := f.take(`{"policy":"slots","hold_ms":600000}`)
	done := make(chan api.Answer)
	go func() { done <- f.take(`{"policy":"slots","hold_ms":1000,"wait_ms":60000}`) }()
	f.waitFor(func(h api.Health) bool { return h.Waiting == 1 })
	var r api.ResetAnswer
	if got := f.do("POST", "/v1/reset", `{"policy":"slots"}`, &r); got != 200 || r.Reset != 1 {
		t.Errorf("got %d %+v", got, r)
	}
	if a := <-done; !a.Allowed {
		t.Errorf("got %+v", a)
	}
	if got := f.settle(`{"reservation":"` + held.Reservation + `"}`).Outcome; got != api.OutcomeGone {
		t.Errorf("got %q", got)
	}
	for range 3 {
		f.take(`{"policy":"tiers","tenant":"t","key":"a"}`)
	}
	f.do("POST", "/v1/reset", `{"policy":"tiers","tenant":"t","keys":["a","b"]}`, &r)
	if a := f.take(`{"policy":"tiers","tenant":"t","key":"a"}`); !a.Allowed || r.Reset != 2 {
		t.Errorf("%+v after %+v", a, r)
	}
	var p api.Problem
	for _, body := range []string{
		`{"policy":"nope"}`, `{"policy":"llm","key":"k","keys":["k"]}`, `{"policy":"llm","keys":[]}`,
		`{"policy":"llm","keys":["` + strings.Repeat("k", drawgate.MaxKey+1) + `"]}`,
	} {
		if got := f.do("POST", "/v1/reset", body, &p); got != 422 {
			t.Errorf("%.80s: %d %+v", body, got, p)
		}
	}
}

// bare is a store that can only what every store can.
type bare struct{ drawgate.Store }

func TestWhatTheStoreCannot(t *testing.T) {
	t.Parallel()
	f := setup{store: bare{memstore.New(nil)}}.start(t)
	var p api.Problem
	for _, c := range [][3]string{
		{"GET", "/v1/buckets?policy=llm", ""},
		{"POST", "/v1/reset", `{"policy":"llm"}`},
		{"POST", "/v1/reload", ""},
		{"GET", "/v1/history", ""},
	} {
		if got := f.do(c[0], c[1], c[2], &p); got != 501 || p.Code != api.CodeNotSupported {
			t.Errorf("%s: %d %+v", c[1], got, p)
		}
	}
}

func TestReloadSaysWhatChanged(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	e, err := engine.New(store, engine.Config{Policies: enforced(policies()...)}, slowStore)
	if err != nil {
		t.Fatal(err)
	}
	next := ruled()
	next.Policies = append(next.Policies, enforced(policies()[0])...)
	next.Policies[3].Limits[0].Amount = 11
	var fail error
	restart := []string{"server", "store"}
	s, err := server.New(e, store, &server.Options{Reload: func(context.Context) ([]string, error) {
		if fail != nil {
			return nil, fail
		}
		return restart, e.Replace(next)
	}})
	if err != nil {
		t.Fatal(err)
	}
	h := s.AdminHandler()
	decode(t, ask(h, "POST", "/v1/take", `{"policy":"llm","costs":{"tokens":400}}`), &api.Answer{})
	var got api.ReloadAnswer
	decode(t, ask(h, "POST", "/v1/reload", ""), &got)
	if len(got.Changes) == 0 || got.Changes[0] != `policy "llm", limit "rpm": changed: amount 10 → 11` {
		t.Errorf("changes: %q", got.Changes)
	}
	got.Changes = nil
	if diff := cmp.Diff(api.ReloadAnswer{
		Added: []string{"api", "candidate", "per-ip"}, Changed: []string{"llm"},
		Rules: true, Restart: restart,
	}, got); diff != "" {
		t.Error(diff)
	}
	var a api.Answer
	decode(t, ask(h, "POST", "/v1/take", `{"policy":"llm","costs":{"tokens":400}}`), &a)
	if a.Remaining != 200 || a.Limits[0].Amount != 11 {
		t.Errorf("what was counted is lost: %+v", a)
	}
	fail = errors.New("drawgate.yaml:3:5: amount must be at least 1")
	if w := ask(h, "POST", "/v1/reload", ""); w.Code != 422 || !strings.Contains(w.Body.String(), "3:5") ||
		!strings.Contains(w.Body.String(), "stays in force") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	fail, restart = nil, nil
	got = api.ReloadAnswer{}
	if decode(t, ask(h, "POST", "/v1/reload", ""), &got); !cmp.Equal(got, api.ReloadAnswer{}) {
		t.Errorf("nothing changed, and it says %+v", got)
	}
}

// What is held when the policies change is settled under the new ones.
func TestReservationOutlivesAReload(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	e, err := engine.New(store, ruled(), slowStore)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(e, store, nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			key := fmt.Sprintf("u%d", i)
			for range 20 {
				var a api.Answer
				decode(t, ask(s, "POST", "/v1/take",
					`{"attributes":{"path":"/model","user":"`+key+`"},"hold_ms":60000}`), &a)
				var out api.SettleAnswer
				decode(t, ask(s, "POST", "/v1/settle", `{"reservation":"`+a.Reservation+`","cancel":true}`), &out)
				if out.Outcome != api.OutcomeCancelled {
					t.Errorf("got %+v of %+v", out, a)
				}
			}
		})
	}
	for i := range int64(50) {
		next := ruled()
		next.Policies[3].Limits[0].Amount = 10 + i%7
		if err := e.Replace(next); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
}
