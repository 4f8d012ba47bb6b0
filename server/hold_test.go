package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/redisstore"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// req: A2
func TestSettleCreditsOnce(t *testing.T) {
	t.Parallel()
	f := plain(t)
	a := f.take(`{"policy":"llm","key":"k","costs":{"tokens":600},"hold_ms":60000}`)
	if !a.Allowed || a.Reservation == "" || a.HoldEnd == nil {
		t.Fatalf("got %+v", a)
	}
	if r := f.take(`{"policy":"llm","key":"k","costs":{"tokens":600},"hold_ms":60000}`); r.Allowed ||
		r.RefusedBy.Limit != "tpm" || len(r.Limits) != 2 {
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

// The length of a hold counts from when the request came, also of one that waited, or that repeats
// an earlier one: so no clock is needed to know its end.
func TestLengthOfAHold(t *testing.T) {
	t.Parallel()
	f := plain(t)
	const take = `{"policy":"slots","hold_ms":60000,"id":"a","grant":"00000000000000a1"}`
	first := f.take(take)
	if first.HoldMS > 60_000 || first.HoldMS < 30_000 {
		t.Errorf("a hold of a minute lasts %d ms", first.HoldMS)
	}
	if again := f.take(take); !again.Replayed || again.HoldMS > first.HoldMS {
		t.Errorf("a hold that began %d ms before its end, asked for again: %+v", first.HoldMS, again)
	}
	var waited api.Answer
	done := make(chan struct{})
	go func() {
		defer close(done)
		waited = f.take(`{"policy":"slots","hold_ms":60000,"wait_ms":60000}`)
	}()
	f.waitFor(func(h api.Health) bool { return h.Waiting == 1 })
	began := time.Now()
	time.Sleep(100 * time.Millisecond)
	// Clocks run at different rates, so it is a little less than was asked for.
	least := 59_900 + time.Since(began).Milliseconds()
	f.settle(`{"reservation":"` + first.Reservation + `"}`)
	<-done
	if most := waited.HoldEnd.Sub(began).Milliseconds() + 60_000; waited.HoldMS < least || waited.HoldMS > most {
		t.Errorf("after a wait the hold lasts %d ms, want %d to %d", waited.HoldMS, least, most)
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
	if r.Outcome != api.OutcomeRenewed || r.HoldEnd == nil || r.HoldEnd.Sub(*a.HoldEnd) < 5*time.Minute ||
		r.Reservation == a.Reservation {
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
	one, two := setup{store: store}.start(t), setup{store: store}.start(t)
	a := one.take(`{"buckets":[{"policy":"llm","key":"a/b:c","costs":{"tokens":600}},{"policy":"tiers","key":"ü"}],"hold_ms":60000}`)
	if got := two.settle(`{"reservation":"` + a.Reservation +
		`","used":{"tokens":1200}}`).Outcome; got != api.OutcomeSettled {
		t.Fatalf("got %q", got)
	}
	if got := one.used("llm", "a/b:c"); got["tpm"] != 1200 {
		t.Errorf("used %v, want 1200", got)
	}
}

// What was used beyond the estimate is charged after the end of the hold, once, and only to what
// this process gave out.
func TestExcessIsChargedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup{}.inBubble(t)
		hold := func(key string, ms int) string {
			return f.take(fmt.Sprintf(`{"policy":"llm","key":%q,"costs":{"tokens":10},"hold_ms":%d}`, key,
				ms)).Reservation
		}
		gone := func(token, key string, want int64) {
			t.Helper()
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					if got := f.settle(`{"reservation":"` + token +
						`","used":{"tokens":30}}`).Outcome; got != api.OutcomeGone {
						t.Errorf("%s: got %q", key, got)
					}
				})
			}
			wg.Wait()
			if got := f.used("llm", key)["tpm"]; got != want {
				t.Errorf("%s: %d used, want %d", key, got, want)
			}
		}
		late, settled, cancelled := hold("late", 1), hold("settled", 2000), hold("cancelled", 2000)
		f.settle(`{"reservation":"` + settled + `","used":{"tokens":20}}`)
		f.settle(`{"reservation":"` + cancelled + `","cancel":true}`)
		time.Sleep(2100 * time.Millisecond)
		gone(late, "late", 30)
		gone(settled, "settled", 20)
		gone(cancelled, "cancelled", 0)
		gone(server.NewToken("made-up", time.Now().Add(-time.Hour), []api.Bucket{{Policy: "llm", Key: "victim"}}),
			"victim", 0)
		gone(server.NewToken("made-up", time.Now().Add(time.Hour), []api.Bucket{{Policy: "llm", Key: "victim"}}),
			"victim", 0)
		// The same id is another reservation once the first one has ended.
		for i := range int64(2) {
			token := f.take(`{"policy":"llm","key":"id","costs":{"tokens":10},"hold_ms":1,"id":"job"}`).Reservation
			time.Sleep(20 * time.Millisecond)
			gone(token, "id", (i+1)*30)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	if got := server.Remembered(4, []string{"a", "b", "a", "c", "d", "e", "f"},
		[]string{"a", "b", "c", "d", "e", "f", "f"}); got != "cdef" {
		t.Errorf("of six the newest four: got %q", got)
	}
}

// A token that was given out can be given back.
func TestTokenFitsIntoABody(t *testing.T) {
	t.Parallel()
	f := setup{engine: &engine.Options{StoreTimeout: -1}}.start(t)
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
			if got := f.settle(`{"reservation":"` + a.Reservation +
				`","cancel":true}`).Outcome; got != api.OutcomeCancelled {
				t.Errorf("%d %q: %q", n, c, got)
			}
		}
	}
}

// leaving is a store that its client leaves before it decides, or after.
type leaving struct {
	store.Store
	before bool
	leave  func()
}

func (s leaving) Take(ctx context.Context, takes []store.Take, out []store.Verdict) error {
	if s.before {
		s.leave()
		return s.Store.Take(ctx, takes, out)
	}
	err := s.Store.Take(ctx, takes, out)
	s.leave()
	return err
}

// Whoever hangs up while the store decides leaves nothing held, unless it chose the grant: then it
// may be asking again.
func TestClientThatWentAwayHoldsNothing(t *testing.T) {
	t.Parallel()
	bodies := map[string]int64{
		`{"policy":"slots","hold_ms":600000}`:                                     0,
		`{"policy":"slots","hold_ms":600000,"wait_ms":60000}`:                     0,
		`{"takes":[{"policy":"slots","hold_ms":600000}]}`:                         0,
		`{"policy":"slots","hold_ms":600000,"id":"a"}`:                            0,
		`{"policy":"slots","hold_ms":600000,"id":"a","grant":"00000000000000a1"}`: 1,
	}
	for name, open := range map[string]func(t *testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return memstore.New(nil) },
		"sqlite": func(t *testing.T) store.Store {
			t.Helper()
			store, err := sqlitestore.Open(filepath.Join(t.TempDir(), "counts.db"), nil)
			if err != nil {
				t.Fatal(err)
			}
			return store
		},
		"redis": func(t *testing.T) store.Store {
			t.Helper()
			store, err := redisstore.Open(redistest.Start(t).URL(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return store
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := open(t)
			t.Cleanup(func() { _ = store.Close() })
			for body, want := range bodies {
				for _, before := range []bool{true, false} {
					ctx, cancel := context.WithCancel(t.Context())
					gone := setup{store: leaving{store, before, cancel}}.make(t)
					w := httptest.NewRecorder()
					gone.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/take",
						strings.NewReader(body)).WithContext(ctx))
					_ = gone.Close() // it waits for what is given back
					f := setup{store: store}.start(t)
					// then the store may not even be asked
					if got := f.used("slots", api.DefaultKey)["slots"]; got != want && (!before || got != 0) {
						t.Errorf("%s: %d slots held, want %d; answered %d %s", body, got, want, w.Code, w.Body)
					}
					var r api.ResetAnswer
					f.do("POST", "/v1/reset", `{"policy":"slots"}`, &r)
				}
			}
		})
	}
}
