package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/memstore"
	"github.com/drawgate/drawgate/server"
)

// policies are those of most tests: windows so long that nothing comes back while a test runs.
func policies() []drawgate.Policy {
	return []drawgate.Policy{
		{Name: "tiers", Limits: []drawgate.Limit{
			{Name: "minute", Kind: drawgate.Rolling, Window: time.Hour, Amount: 3},
			{Name: "day", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 5},
		}},
		{Name: "llm", Limits: []drawgate.Limit{
			{Name: "rpm", Kind: drawgate.Rolling, Window: time.Hour, Amount: 10},
			{Name: "tpm", Unit: "tokens", Kind: drawgate.Rolling, Window: time.Hour, Amount: 1000},
		}},
		{Name: "slots", Limits: []drawgate.Limit{{Name: "slots", Kind: drawgate.Concurrency, Amount: 1}}},
	}
}

// fixture is a server on a real listener.
type fixture struct {
	t   *testing.T
	url string
	srv *server.Server
}

func start(t *testing.T, store drawgate.Store, ps []drawgate.Policy, opts *server.Options) fixture {
	t.Helper()
	s, err := server.New(store, ps, opts)
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(s)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		ts.Close()
	})
	return fixture{t, ts.URL, s}
}

func plain(t *testing.T) fixture {
	t.Helper()
	return start(t, memstore.New(nil), policies(), nil)
}

// do sends a request and decodes the answer into out. It returns the status.
func (f fixture) do(method, path, body string, out any) int {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := json.Unmarshal(got, out); err != nil {
		f.t.Fatalf("%s %s %s: %v in %q", method, path, body, err, got)
	}
	return res.StatusCode
}

func (f fixture) take(body string) api.Answer {
	f.t.Helper()
	var a api.Answer
	if got := f.do("POST", "/v1/take", body, &a); got != 200 {
		f.t.Fatalf("take %s: %d, want 200", body, got)
	}
	return a
}

func (f fixture) settle(body string) api.SettleAnswer {
	f.t.Helper()
	var a api.SettleAnswer
	if got := f.do("POST", "/v1/settle", body, &a); got != 200 {
		f.t.Fatalf("settle %s: %d, want 200", body, got)
	}
	return a
}

// used returns the units that count, per limit.
func (f fixture) used(policy, key string) map[string]int64 {
	f.t.Helper()
	var st api.StatusAnswer
	if got := f.do("GET", "/v1/status?policy="+policy+"&key="+key, "", &st); got != 200 {
		f.t.Fatalf("status: %d", got)
	}
	out := map[string]int64{}
	for _, l := range st.Limits {
		out[l.Name] = l.Used
	}
	return out
}

// req: D1
func TestRefusalNamesTheLimitThatRefused(t *testing.T) {
	t.Parallel()
	f := plain(t)
	for range 3 {
		if a := f.take(`{"policy":"tiers","key":"u"}`); !a.Allowed || a.Reason != "" || a.RefusedBy != nil || a.RetryAfterMS != 0 {
			t.Fatalf("got %+v", a)
		}
	}
	a := f.take(`{"policy":"tiers","key":"u"}`)
	if a.Allowed || a.Reason != api.ReasonLimited || a.RetryAfterMS < 3_590_000 || a.RetryAfterMS > 3_600_000 || a.Remaining != 0 {
		t.Errorf("got %+v", a)
	}
	if diff := cmp.Diff(&api.LimitName{Policy: "tiers", Limit: "minute"}, a.RefusedBy); diff != "" {
		t.Error(diff)
	}
	if want := `limit "minute" of policy "tiers" (3 requests per rolling 1h) has 0 left; this take fits in `; !strings.Contains(a.Message, want) {
		t.Errorf("message %q does not say %q", a.Message, want)
	}
	if len(a.Limits) != 2 || !a.Limits[0].Refused || a.Limits[1].Refused || a.Limits[1].Remaining != 2 {
		t.Errorf("limits: %+v", a.Limits)
	}
	if a := f.take(`{"policy":"tiers","key":"other"}`); !a.Allowed {
		t.Error("another key was refused")
	}
}

func TestOmittedKeyAndPolicyHaveDefaults(t *testing.T) {
	t.Parallel()
	f := start(t, memstore.New(nil), policies()[:1], nil)
	f.take(`{}`)
	if got := f.used("tiers", api.DefaultKey); got["minute"] != 1 {
		t.Errorf("used %v, want 1", got)
	}
}

func TestSeveralBucketsAreAllOrNothing(t *testing.T) {
	t.Parallel()
	f := plain(t)
	body := `{"buckets":[{"policy":"llm","key":"p","costs":{"tokens":400}},{"policy":"tiers","key":"u","costs":{"requests":2}}]}`
	if a := f.take(body); !a.Allowed || len(a.Limits) != 4 || a.Limits[3].Bucket != 1 {
		t.Fatalf("got %+v", a)
	}
	if a := f.take(body); a.Allowed || a.RefusedBy.Policy != "tiers" {
		t.Errorf("got %+v", a)
	}
	if got := f.used("llm", "p"); got["tpm"] != 400 || got["rpm"] != 1 {
		t.Errorf("a refused take left %v used", got)
	}
}

func TestBatchIsDecidedInOrderEachForItself(t *testing.T) {
	t.Parallel()
	f := plain(t)
	var got api.TakeAnswer
	f.do("POST", "/v1/take", `{"takes":[{"policy":"tiers","costs":{"requests":2}},{"policy":"tiers","costs":{"requests":2}},{"policy":"tiers"},
		{"policy":"tiers","costs":{"tokens":1}}]}`, &got)
	var allowed []bool
	for _, a := range got.Answers {
		allowed = append(allowed, a.Allowed)
	}
	if diff := cmp.Diff([]bool{true, false, true, false}, allowed); diff != "" {
		t.Fatal(diff)
	}
	if e := got.Answers[3].Error; e == nil || e.Code != api.CodeUnknownUnit {
		t.Errorf("error %v, want unknown_unit", e)
	}
}

// req: A2
func TestSettleCreditsOnce(t *testing.T) {
	t.Parallel()
	f := plain(t)
	a := f.take(`{"policy":"llm","key":"k","costs":{"tokens":600},"hold_ms":60000}`)
	if !a.Allowed || a.Reservation == "" || a.HoldEnd == nil {
		t.Fatalf("got %+v", a)
	}
	if r := f.take(`{"policy":"llm","key":"k","costs":{"tokens":600},"hold_ms":60000}`); r.Allowed || r.RefusedBy.Limit != "tpm" || len(r.Limits) != 2 {
		t.Errorf("a held take was refused with %+v", r)
	}
	settle := `{"reservation":"` + a.Reservation + `","used":{"tokens":100}}`
	for i, want := range []string{api.OutcomeSettled, api.OutcomeGone, api.OutcomeGone} {
		if got := f.settle(settle).Outcome; got != want {
			t.Errorf("settle %d: %q, want %q", i, got, want)
		}
	}
	if got := f.used("llm", "k"); got["tpm"] != 100 || got["rpm"] != 1 {
		t.Errorf("used %v, want 100 tokens and 1 request", got)
	}
}

func TestCancelGivesEverythingBack(t *testing.T) {
	t.Parallel()
	f := plain(t)
	a := f.take(`{"policy":"llm","key":"k","costs":{"tokens":600},"hold_ms":60000}`)
	if got := f.settle(`{"reservation":"` + a.Reservation + `","cancel":true}`).Outcome; got != api.OutcomeCancelled {
		t.Errorf("got %q", got)
	}
	if got := f.used("llm", "k"); got["tpm"] != 0 || got["rpm"] != 0 {
		t.Errorf("used %v, want nothing", got)
	}
}

func TestTokenAloneSettlesAsEstimated(t *testing.T) {
	t.Parallel()
	f := plain(t)
	a := f.take(`{"policy":"llm","costs":{"tokens":600},"hold_ms":60000}`)
	if got := f.settle(`{"reservation":"` + a.Reservation + `"}`).Outcome; got != api.OutcomeSettled {
		t.Errorf("got %q", got)
	}
	if got := f.used("llm", api.DefaultKey); got["tpm"] != 600 {
		t.Errorf("used %v, want 600", got)
	}
}

func TestRenewAnswersTheNextToken(t *testing.T) {
	t.Parallel()
	f := plain(t)
	a := f.take(`{"policy":"slots","hold_ms":5000}`)
	r := f.settle(`{"reservation":"` + a.Reservation + `","renew_ms":600000}`)
	if r.Outcome != api.OutcomeRenewed || r.HoldEnd == nil || r.HoldEnd.Sub(*a.HoldEnd) < 5*time.Minute || r.Reservation == a.Reservation {
		t.Fatalf("got %+v after %v", r, a.HoldEnd)
	}
	if got := f.settle(`{"reservation":"` + r.Reservation + `"}`).Outcome; got != api.OutcomeSettled {
		t.Errorf("got %q", got)
	}
	if got := f.settle(`{"reservation":"` + r.Reservation + `","renew_ms":1000}`).Outcome; got != api.OutcomeGone {
		t.Errorf("renewing what was settled: %q, want gone", got)
	}
}

// Another process has the same store, and nothing of the first one's memory.
func TestAnyReplicaSettles(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	one, two := start(t, store, policies(), nil), start(t, store, policies(), nil)
	a := one.take(`{"buckets":[{"policy":"llm","key":"a/b:c","costs":{"tokens":600}},{"policy":"tiers","key":"ü"}],"hold_ms":60000}`)
	if got := two.settle(`{"reservation":"` + a.Reservation + `","used":{"tokens":1200}}`).Outcome; got != api.OutcomeSettled {
		t.Fatalf("got %q", got)
	}
	if got := one.used("llm", "a/b:c"); got["tpm"] != 1200 {
		t.Errorf("used %v, want 1200", got)
	}
}

// What was used beyond the estimate is charged after the end of the hold, once, and only to what this process gave out.
func TestExcessIsChargedOnce(t *testing.T) {
	t.Parallel()
	f := plain(t)
	hold := func(key string, ms int) string {
		return f.take(fmt.Sprintf(`{"policy":"llm","key":%q,"costs":{"tokens":10},"hold_ms":%d}`, key, ms)).Reservation
	}
	gone := func(token, key string, want int64) {
		t.Helper()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if got := f.settle(`{"reservation":"` + token + `","used":{"tokens":30}}`).Outcome; got != api.OutcomeGone {
					t.Errorf("%s: got %q", key, got)
				}
			})
		}
		wg.Wait()
		if got := f.used("llm", key)["tpm"]; got != want {
			t.Errorf("%s: %d used, want %d", key, got, want)
		}
	}
	late, settled, cancelled := hold("late", 1), hold("settled", 500), hold("cancelled", 500)
	f.settle(`{"reservation":"` + settled + `","used":{"tokens":20}}`)
	f.settle(`{"reservation":"` + cancelled + `","cancel":true}`)
	time.Sleep(600 * time.Millisecond)
	gone(late, "late", 30)
	gone(settled, "settled", 20)
	gone(cancelled, "cancelled", 0)
	gone(server.NewToken("made-up", time.Now().Add(-time.Hour), []api.Bucket{{Policy: "llm", Key: "victim"}}), "victim", 0)
	gone(server.NewToken("made-up", time.Now().Add(time.Hour), []api.Bucket{{Policy: "llm", Key: "victim"}}), "victim", 0)
	// The same id is another reservation once the first one has ended.
	for i := range int64(2) {
		token := f.take(`{"policy":"llm","key":"id","costs":{"tokens":10},"hold_ms":1,"id":"job"}`).Reservation
		time.Sleep(20 * time.Millisecond)
		gone(token, "id", (i+1)*30)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	if got := server.Remembered(4, []string{"a", "b", "a", "c", "d", "e", "f"}, []string{"a", "b", "c", "d", "e", "f", "f"}); got != "cdef" {
		t.Errorf("of six the newest four: got %q", got)
	}
}

// A token that was given out can be given back.
func TestTokenFitsIntoABody(t *testing.T) {
	t.Parallel()
	f := start(t, memstore.New(nil), policies(), &server.Options{StoreTimeout: -1})
	var a struct {
		api.Answer
		api.Problem
	}
	for _, n := range []int{100_000, 300_000, 390_000, 400_000, 900_000} {
		for _, c := range []string{"<", "k", "\u2028"} {
			key := strings.Repeat(c, n/len(c))
			a.Reservation, a.Code = "", ""
			status := f.do("POST", "/v1/take", `{"policy":"llm","key":"`+key+`","hold_ms":60000}`, &a)
			if status != 200 {
				if n == 900_000 && (status != 413 || a.Code != api.CodeTooLarge) {
					t.Errorf("%d %q: %d %s", n, c, status, a.Code)
				}
				continue
			}
			if got := f.settle(`{"reservation":"` + a.Reservation + `","cancel":true}`).Outcome; got != api.OutcomeCancelled {
				t.Errorf("%d %q: %q", n, c, got)
			}
		}
	}
}

// leaving is a store during whose answer the client goes away.
type leaving struct {
	drawgate.Store
	leave func()
}

func (s leaving) Take(ctx context.Context, takes []drawgate.Take, out []drawgate.Decision) error {
	err := s.Store.Take(ctx, takes, out)
	s.leave()
	return err
}

func TestClientThatWentAwayHoldsNothing(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int64{
		`{"policy":"slots","hold_ms":600000}`:                             0,
		`{"policy":"slots","hold_ms":600000,"wait_ms":1000}`:              0,
		`{"takes":[{"policy":"slots","hold_ms":600000}]}`:                 0,
		`{"policy":"slots","hold_ms":600000,"id":"it may ask once more"}`: 1,
	} {
		store := memstore.New(nil)
		ctx, cancel := context.WithCancel(t.Context())
		gone := start(t, leaving{store, cancel}, policies(), nil)
		w := httptest.NewRecorder()
		gone.srv.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/take", strings.NewReader(body)).WithContext(ctx))
		if got := start(t, store, policies(), nil).used("slots", api.DefaultKey)["slots"]; got != want {
			t.Errorf("%s: %d slots held, want %d; answered %d %s", body, got, want, w.Code, w.Body)
		}
	}
}

func TestIDReplaysWhileOpen(t *testing.T) {
	t.Parallel()
	f := plain(t)
	body := `{"policy":"llm","costs":{"tokens":600},"hold_ms":60000,"id":"job-1"}`
	first, again := f.take(body), f.take(body)
	if !again.Allowed || !again.Replayed || first.Replayed {
		t.Fatalf("first %+v, again %+v", first, again)
	}
	if got := f.used("llm", api.DefaultKey); got["tpm"] != 600 {
		t.Errorf("used %v, want 600", got)
	}
	var p api.Problem
	if got := f.do("POST", "/v1/take", strings.Replace(body, "600", "601", 1), &p); got != 409 || p.Code != api.CodeIDReused {
		t.Errorf("got %d %v", got, &p)
	}
	if id, n, err := server.ParseToken(first.Reservation); id != "job-1" || n != 1 || err != nil {
		t.Errorf("token: %q %d %v", id, n, err)
	}
}

func TestWaitingTakeIsWokenBySettle(t *testing.T) {
	t.Parallel()
	f := plain(t)
	a := f.take(`{"policy":"slots","hold_ms":600000}`)
	done := make(chan api.Answer)
	go func() { done <- f.take(`{"policy":"slots","hold_ms":1000,"wait_ms":60000}`) }()
	f.waitFor(func(h api.Health) bool { return h.Waiting == 1 })
	f.settle(`{"reservation":"` + a.Reservation + `"}`)
	if b := <-done; !b.Allowed {
		t.Errorf("got %+v", b)
	}
}

// waitFor asks for the health until it is as it should be.
func (f fixture) waitFor(ok func(api.Health) bool) {
	f.t.Helper()
	for {
		var h api.Health
		f.do("GET", "/healthz", "", &h)
		if ok(h) {
			return
		}
		if f.t.Context().Err() != nil {
			f.t.Fatal("it did not happen")
		}
	}
}

// req: B7
func TestWaitThatCannotEndInTimeIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	f := plain(t)
	for range 3 {
		f.take(`{"policy":"tiers"}`)
	}
	sent := time.Now()
	a := f.take(`{"policy":"tiers","wait_ms":600000}`)
	if a.Allowed || a.Reason != api.ReasonLimited || a.RefusedBy == nil || a.RefusedBy.Limit != "minute" {
		t.Errorf("got %+v", a)
	}
	if d := time.Since(sent); d > time.Minute {
		t.Errorf("it took %v", d)
	}
}

// A slot may come free at any time, so such a take waits as long as it may.
func TestWaitEndsWithItsTime(t *testing.T) {
	t.Parallel()
	f := plain(t)
	f.take(`{"policy":"slots","hold_ms":1}`) // gone at once: the next one gets the slot
	f.take(`{"policy":"slots","hold_ms":600000,"wait_ms":60000}`)
	a := f.take(`{"policy":"slots","hold_ms":1000,"wait_ms":50}`)
	if a.Allowed || a.RefusedBy == nil || a.RefusedBy.Limit != "slots" || a.RetryAfterMS < 1 {
		t.Errorf("got %+v", a)
	}
}

func TestClientThatGoesAwayLeavesTheQueue(t *testing.T) {
	t.Parallel()
	f := plain(t)
	f.take(`{"policy":"slots","hold_ms":600000}`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/v1/take", strings.NewReader(`{"policy":"slots","hold_ms":1000,"wait_ms":600000}`))
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		done <- err
	}()
	f.waitFor(func(h api.Health) bool { return h.Waiting == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	f.waitFor(func(h api.Health) bool { return h.Waiting == 0 })
}

func TestProblems(t *testing.T) {
	t.Parallel()
	f := plain(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		code               api.Code
		says               string
	}{
		{"POST", "/v1/take", ``, 400, api.CodeBadJSON, "empty"},
		{"POST", "/v1/take", `{`, 400, api.CodeBadJSON, "too early"},
		{"POST", "/v1/take", `[]`, 400, api.CodeBadJSON, "an object"},
		{"POST", "/v1/take", `{"polici":"llm"}`, 400, api.CodeBadJSON, `unknown field "polici"`},
		{"POST", "/v1/take", `{"policy":"llm"} {}`, 400, api.CodeBadJSON, "follows"},
		{"POST", "/v1/take", `{"policy":"llm","costs":{"tokens":1.5}}`, 400, api.CodeBadJSON, "an integer"},
		{"POST", "/v1/take", `{"policy":"llm","costs":{"tokens":null}}`, 400, api.CodeBadJSON, "^costs.tokens must be an integer, not null"},
		{"POST", "/v1/take", `{"takes":[{"policy":"llm","costs":{"tokens":"5"}}]}`, 400, api.CodeBadJSON, "^takes.costs.tokens must be an integer, not string"},
		{"POST", "/v1/take", `{"policy":"llm","costs":{"tokens":1,"tokens":2}}`, 400, api.CodeBadJSON, `"tokens" is named twice`},
		{"POST", "/v1/take", `{"policy":"llm","costs":[]}`, 400, api.CodeBadJSON, "costs must be an object, not array"},
		{"POST", "/v1/settle", `{"reservation":"e30","used":{"tokens":null}}`, 400, api.CodeBadJSON, "used.tokens must be an integer, not null"},
		{"POST", "/v1/take", `{"policy":"llm","wait_ms":"5s"}`, 400, api.CodeBadJSON, "^wait_ms must be an integer, not string"},
		{"POST", "/v1/take", `{}`, 422, api.CodeUnknownPolicy, "the policy is missing: one of llm, slots, tiers"},
		{"POST", "/v1/take", `{"policy":"gpt"}`, 422, api.CodeUnknownPolicy, `"gpt"`},
		{"POST", "/v1/take", `{"policy":"llm","costs":{"bytes":1}}`, 422, api.CodeUnknownUnit, `"bytes"`},
		{"POST", "/v1/take", `{"policy":"llm","costs":{"tokens":-1}}`, 422, api.CodeInvalid, "-1"},
		{"POST", "/v1/take", `{"policy":"llm","costs":{"tokens":1001}}`, 422, api.CodeNeverFits, "at most 1000"},
		{"POST", "/v1/take", `{"policy":"llm","priority":10}`, 422, api.CodeInvalid, "priority 10"},
		{"POST", "/v1/take", `{"policy":"llm","wait_ms":-1}`, 422, api.CodeInvalid, "wait_ms -1"},
		{"POST", "/v1/take", `{"policy":"llm","hold_ms":9223372036854775807}`, 422, api.CodeInvalid, "hold_ms"},
		{"POST", "/v1/take", `{"policy":"llm","id":"x"}`, 422, api.CodeInvalid, "hold_ms"},
		{"POST", "/v1/take", `{"policy":"slots"}`, 422, api.CodeNeedsHold, "hold_ms"},
		{"POST", "/v1/take", `{"policy":"llm","buckets":[{"policy":"llm"}]}`, 422, api.CodeInvalid, "either"},
		{"POST", "/v1/take", `{"buckets":[]}`, 422, api.CodeInvalid, "empty"},
		{"POST", "/v1/take", `{"buckets":[{"policy":"llm"},{"policy":"llm"}]}`, 422, api.CodeInvalid, "twice"},
		{"POST", "/v1/take", `{"takes":[]}`, 422, api.CodeInvalid, "1 to 100"},
		{"POST", "/v1/take", `{"key":"k","takes":[{"policy":"llm"}]}`, 422, api.CodeInvalid, "no other field"},
		{"POST", "/v1/take", `{"key":"` + strings.Repeat("k", api.MaxBody) + `"}`, 413, api.CodeTooLarge, "1048576"},
		{"GET", "/v1/take", ``, 405, api.CodeBadMethod, "POST"},
		{"POST", "/v1/settle", `{}`, 422, api.CodeInvalid, "reservation is missing"},
		{"POST", "/v1/settle", `{"reservation":"x!"}`, 422, api.CodeBadToken, "unchanged"},
		{"POST", "/v1/settle", `{"reservation":"e30"}`, 422, api.CodeBadToken, "unchanged"},
		{"POST", "/v1/settle", `{"reservation":"e30","cancel":true,"used":{}}`, 422, api.CodeInvalid, "one of"},
		{"POST", "/v1/settle", `{"reservation":"e30","renew_ms":-5}`, 422, api.CodeInvalid, "renew_ms"},
		{"DELETE", "/v1/status", ``, 405, api.CodeBadMethod, "GET and POST"},
		{"GET", "/v1/status?polici=llm", ``, 422, api.CodeInvalid, "polici"},
		{"GET", "/v1/status?policy=llm&priority=x", ``, 422, api.CodeInvalid, "not a number"},
		{"GET", "/v2/take", ``, 404, api.CodeNotFound, "/v1/take"},
	} {
		var p api.Problem
		status := f.do(c.method, c.path, c.body, &p)
		if status != c.status || p.Status != c.status || p.Code != c.code || !strings.Contains("^"+p.Detail, c.says) || p.Title == "" {
			t.Errorf("%s %s %.80s: %d %+v, want %d %s with %q", c.method, c.path, c.body, status, p, c.status, c.code, c.says)
		}
	}
}

// What no text can say is not a key: two of them would be the same.
func TestKeysAreText(t *testing.T) {
	t.Parallel()
	f := plain(t)
	for _, key := range []string{"\xff", "a\xc3", `\ud800`, `\ud800x`, `\udc00`, `\uDBFF\u0041`, `\\\ud800`, `\udc00\ud800`, `\ud83d\ude00\ud83d`} {
		var p api.Problem
		if got := f.do("POST", "/v1/take", `{"policy":"llm","key":"`+key+`"}`, &p); got != 400 || p.Code != api.CodeBadJSON || !strings.Contains(p.Detail, "UTF-8") {
			t.Errorf("%q: %d %+v", key, got, p)
		}
	}
	for _, key := range []string{`\ud83d\ude00`, "😀", `\\ud800`, `\u00fc`, `\uFFFD`, `\"\n`} {
		if a := f.take(`{"policy":"llm","key":"` + key + `"}`); !a.Allowed {
			t.Errorf("%q: %+v", key, a)
		}
	}
}

// A page that a user of this machine visits must not spend its units.
func TestWebPagesOfOtherOriginsAreNotServed(t *testing.T) {
	t.Parallel()
	f := plain(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/v1/take", strings.NewReader(`{"policy":"llm"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("got %d", res.StatusCode)
	}
}

// req: B3
func TestStatusDescribesWithoutSpending(t *testing.T) {
	t.Parallel()
	f := start(t, memstore.New(nil), []drawgate.Policy{{Name: "p", Limits: []drawgate.Limit{
		{Name: "b", Kind: drawgate.Bucket, Window: time.Hour, Amount: 10, Burst: 5},
		{Name: "d", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 100, Headroom: drawgate.Share{Percent: 20}},
	}}}, nil)
	f.take(`{"key":"k"}`)
	f.take(`{"key":"k","hold_ms":60000}`)
	var first, again api.StatusAnswer
	f.do("GET", "/v1/status?key=k", "", &first)
	f.do("POST", "/v1/status", `{"key":"k","costs":{"requests":4}}`, &again)
	b, d := first.Limits[0], first.Limits[1]
	if b.Kind != "bucket" || b.Used != 2 || b.Remaining != 3 || b.Burst != 5 || b.WindowMS != 3_600_000 || first.Open != 1 || first.At.IsZero() {
		t.Errorf("got %+v", first)
	}
	if d.Every != "day" || d.Zone != "UTC" || d.Most != 80 || d.Used != 2 || d.Remaining != 78 || d.WindowEnd == nil || !d.WindowEnd.Equal(d.ResetAt) {
		t.Errorf("got %+v", d)
	}
	if again.Take.Allowed || again.Take.RefusedBy.Limit != "b" || again.Limits[0].Used != 2 || !first.Take.Allowed {
		t.Errorf("got %+v", again)
	}
	var never api.StatusAnswer
	f.do("POST", "/v1/status", `{"key":"k","costs":{"requests":6}}`, &never)
	if !never.Take.NeverFits {
		t.Errorf("got %+v", never.Take)
	}
}

// away is a store that does not answer.
type away struct{ drawgate.Store }

func (away) err() error {
	return &drawgate.StoreError{Store: "test", Op: "take", Err: errors.New("secret-host: connection refused")}
}
func (s away) Take(context.Context, []drawgate.Take, []drawgate.Decision) error { return s.err() }
func (s away) Ping(context.Context) error                                       { return s.err() }

// req: D8
func TestStoreAway(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := start(t, away{}, policies(), &server.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	var p api.Problem
	if got := f.do("POST", "/v1/take", `{"policy":"llm","key":"secret-key"}`, &p); got != 503 || p.Code != api.CodeStoreAway || strings.Contains(p.Detail, "secret") {
		t.Errorf("got %d %+v", got, p)
	}
	var h api.Health
	if got := f.do("GET", "/readyz", "", &h); got != 503 || h.Status != "away" || h.Store.Status != "away" || len(h.Policies) != 3 {
		t.Errorf("got %d %+v", got, h)
	}
	if got := f.do("GET", "/healthz", "", &h); got != 200 {
		t.Errorf("a process whose store is away is alive: got %d", got)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "connection refused") || strings.Contains(text, "secret-key") {
		t.Errorf("log: %s", text)
	}
}

// req: D8
func TestReady(t *testing.T) {
	t.Parallel()
	f := plain(t)
	var h api.Health
	if got := f.do("GET", "/readyz", "", &h); got != 200 || h.Status != "ok" || h.Store.Status != "ok" {
		t.Errorf("got %d %+v", got, h)
	}
}

// serve runs Serve on a port of its own.
func serve(t *testing.T, s *server.Server) (f fixture, stop func() error) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	return fixture{t, "http://" + ln.Addr().String(), s}, func() error { cancel(); return <-done }
}

func TestStoppingLetsWaitersGo(t *testing.T) {
	t.Parallel()
	s, err := server.New(memstore.New(nil), policies(), nil)
	if err != nil {
		t.Fatal(err)
	}
	f, stop := serve(t, s)
	f.take(`{"policy":"slots","hold_ms":600000}`)
	type result struct {
		status int
		p      api.Problem
	}
	done := make(chan result, 1)
	go func() {
		var r result
		r.status = f.do("POST", "/v1/take", `{"policy":"slots","hold_ms":1000,"wait_ms":600000}`, &r.p)
		done <- r
	}()
	f.waitFor(func(h api.Health) bool { return h.Waiting == 1 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if r := <-done; r.status != 503 || r.p.Code != api.CodeClosing {
		t.Errorf("got %d %+v", r.status, r.p)
	}
	if res, err := http.Get(f.url + "/healthz"); err == nil {
		_ = res.Body.Close()
		t.Error("it still listens")
	}
}

// Requests that do not arrive neither keep a server that has to stop, nor are they a failure; those that have arrived are finished.
func TestStoppingDoesNotWaitForWhatIsNotSent(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s, err := server.New(slow{memstore.New(nil)}, policies(), &server.Options{StoreTimeout: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	f, stop := serve(t, s)
	for _, text := range []string{"", "POST /v1/ta", "POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"} {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan api.Answer, 1)
	go func() { done <- f.take(`{"policy":"llm"}`) }()
	time.Sleep(200 * time.Millisecond)
	begin := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > 6*time.Second {
		t.Errorf("it took %v", d)
	}
	if a := <-done; !a.Allowed {
		t.Errorf("got %+v", a)
	}
	if !strings.Contains(log.String(), "had not arrived") {
		t.Errorf("log: %s", &log)
	}
}

// slow is a store that needs longer than requests have to arrive.
type slow struct{ drawgate.Store }

func (s slow) Take(ctx context.Context, takes []drawgate.Take, out []drawgate.Decision) error {
	time.Sleep(3 * time.Second)
	return s.Store.Take(ctx, takes, out)
}

// A page whose own name points at this machine must not spend its units.
func TestOtherNamesOfALoopbackAddressAreNotServed(t *testing.T) {
	t.Parallel()
	s, err := server.New(memstore.New(nil), policies(), nil)
	if err != nil {
		t.Fatal(err)
	}
	f, stop := serve(t, s)
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:7878": 200, "127.0.0.1:1": 200, "127.9.9.9": 200, "[::1]:7878": 200, "[::1]": 200,
		"rebound.example": 403, "rebound.example:7878": 403, "localhost.example": 403, "192.0.2.1": 403, "127.0.0.1.example:80": 403,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != want || want == 403 && !strings.Contains(string(body), "localhost") {
			t.Errorf("%s: %d %s", host, res.StatusCode, body)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// The time to send a request must not end the wait of one that was sent.
func TestWaitOutlivesTheReadTimeout(t *testing.T) {
	t.Parallel()
	s, err := server.New(memstore.New(nil), policies(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const short = 100 * time.Millisecond
	s.SetReadTimeout(short)
	f, stop := serve(t, s)
	f.take(`{"policy":"slots","hold_ms":400}`)
	sent := time.Now()
	if a := f.take(`{"policy":"slots","hold_ms":1000,"wait_ms":60000}`); !a.Allowed {
		t.Errorf("got %+v", a)
	}
	if d := time.Since(sent); d < 2*short {
		t.Errorf("it waited only %v: this shows nothing", d)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestNewReportsBadPolicies(t *testing.T) {
	t.Parallel()
	for name, ps := range map[string][]drawgate.Policy{
		"none":  nil,
		"twice": {drawgate.PerMinute(1), drawgate.PerMinute(2)},
		"bad":   {{Name: "x"}},
	} {
		if _, err := server.New(memstore.New(nil), ps, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0ms", time.Microsecond: "1ms", 450 * time.Millisecond: "450ms", time.Second: "1s", 12340 * time.Millisecond: "12.4s", 59950 * time.Millisecond: "1m",
		time.Minute: "1m", 61 * time.Second: "1m1s", time.Hour - time.Millisecond: "1h", time.Hour: "1h", 3*time.Hour + 5*time.Minute: "3h5m",
		24 * time.Hour: "1d", 24*time.Hour - time.Second: "1d", 148 * time.Hour: "6d4h", 720 * time.Hour: "30d", drawgate.Never: "ever",
	} {
		if got := server.Duration(d); got != want {
			t.Errorf("%v: got %q, want %q", int64(d), got, want)
		}
	}
}
