package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
)

// The sentences for people are true, and say what to do.
func TestSentences(t *testing.T) {
	t.Parallel()
	calendar := func(every drawgate.Every) drawgate.Limit {
		return drawgate.Limit{Name: "c", Kind: drawgate.Calendar, Every: every, Amount: 1}
	}
	tokens := drawgate.Limit{
		Name: "t", Unit: "output_tokens", Kind: drawgate.Rolling, Amount: 1000,
		Window: 90 * time.Second,
	}
	for _, c := range []struct {
		limit drawgate.Limit
		cost  drawgate.Cost
		want  string
	}{
		{
			bucket(10, time.Minute, 1),
			drawgate.Cost{N: 1},
			"Your limit has been reached: 10 requests per minute, and at most 1 in a burst. Try again in 6 s.",
		},
		{
			bucket(1, time.Second, 0),
			drawgate.Cost{N: 1},
			"Your limit has been reached: 1 request per second. Try again in 1 s.",
		},
		{
			rolling(1, time.Hour),
			drawgate.Cost{N: 1},
			"Your limit has been reached: 1 request per hour. Try again in 3600 s.",
		},
		{
			rolling(1, 24*time.Hour),
			drawgate.Cost{N: 1},
			"Your limit has been reached: 1 request per day. Try again in 86400 s.",
		},
		{
			rolling(1, 36*time.Hour),
			drawgate.Cost{N: 1},
			"Your limit has been reached: 1 request per 36h. Try again in 129600 s.",
		},
		{
			rolling(1, 5*time.Minute),
			drawgate.Cost{N: 1},
			"Your limit has been reached: 1 request per 5m. Try again in 300 s.",
		},
		{
			tokens,
			drawgate.Cost{Unit: "output_tokens", N: 600},
			"Your limit has been reached: 1000 output tokens per 1m30s. Try again in 90 s.",
		},
		{
			calendar(drawgate.Hour),
			drawgate.Cost{N: 1},
			"Your limit has been reached: 1 request per hour. Try again in 3600 s.",
		},
		// it is Saturday
		{
			calendar(drawgate.Week),
			drawgate.Cost{N: 1},
			"Your limit has been reached: 1 request per week. Try again in 172800 s.",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := costing(t, policy("p", c.limit), c.cost)
			ask(m)
			_, p := ask(m)
			if p.Problem == nil || p.Problem.Detail != c.want {
				t.Errorf("got  %+v\nwant %s", p.Problem, c.want)
			}
		})
	}
	m := one(t, nil, policy("p", slots(1)))
	_, first := ask(m)
	defer first.End()
	_, p := ask(m)
	if want := "You have reached the maximum number of running requests: 1 at once. Try again when one of them has ended."; p.Problem == nil || p.Problem.Detail != want {
		t.Errorf("got  %+v\nwant %s", p.Problem, want)
	}
}

// If a limit of the caller and one of the API refuse, the sentence is about the caller's own, and
// both are named.
func TestOwnLimitsComeFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := limiter(t, policy("api", rolling(1, time.Hour)))
		own := with(t, api, policy("own", rolling(1, time.Minute)))
		shared := httplimit.Bucket{Limiter: api, Key: httplimit.Fixed("all"), Shared: true}
		for _, buckets := range [][]httplimit.Bucket{{shared, {Limiter: own}}, {{Limiter: own}, shared}} {
			m := middleware(t, nil, buckets...)
			ask(m)
			_, p := ask(m)
			slices.Sort(p.Problem.Violated)
			if p.Problem.Scope != httplimit.ScopeCaller || !slices.Equal(p.Problem.Violated, []string{"api", "own"}) ||
				p.Problem.After != 3600 {
				t.Errorf("got %+v, want the scope caller, the policies api and own, and a wait of 3600 s", p.Problem)
			}
		}
	})
}

// A request that no bucket counts passes, without headers.
func TestNobodyIsCounted(t *testing.T) {
	t.Parallel()
	nobody := httplimit.Given(httplimit.ByHeader("X-User"))
	a := limiter(t, policy("a", rolling(1, time.Hour)))
	for _, buckets := range [][]httplimit.Bucket{
		{{Limiter: a, Key: nobody}},
		{{Limiter: a, Key: nobody}, {Limiter: with(t, a, policy("b", slots(1))), Key: nobody}},
	} {
		m := middleware(t, nil, buckets...)
		for range 3 {
			if h, p := ask(m); p.Problem != nil || len(h) != 0 || p.Held() {
				t.Errorf("%+v, headers %v", p.Problem, h)
			}
		}
	}
}

// A problem keeps headers that were set before, except those that it sets itself.
func TestProblemsKeepWhatWasSet(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	w.Header().Set("Cache-Control", "private")
	w.Header().Set("X-Request-Id", "17")
	(&httplimit.Problem{Status: http.StatusTooManyRequests, Code: httplimit.CodeLimited, After: 3}).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	wantHeaders(t, w.Header(), "Cache-Control", "private", "X-Request-Id", "17", "Retry-After", "3", "Content-Type",
		"application/problem+json", "X-Content-Type-Options", "nosniff")
	if w.Code != http.StatusTooManyRequests {
		t.Errorf("status %d", w.Code)
	}
}

// A paused bucket gives a 429 with its own code, whose Retry-After is the end of the pause, also
// with concurrency limits. It names no limit.
func TestPauseIsSaid(t *testing.T) {
	t.Parallel()
	d := drawgate.Decision{
		Reason: drawgate.Paused, RetryAfter: 29_500 * time.Millisecond,
		EarliestRetry: 29_500 * time.Millisecond,
	}
	p := httplimit.Refused(&d, nil)
	if p.Status != http.StatusTooManyRequests || p.Code != httplimit.CodePaused || p.After != 30 || p.Scope != "" ||
		p.Violated != nil ||
		p.Detail != "Requests like this one are paused at the moment. Try again in 30 s." {
		t.Errorf("got %+v", p)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "30" {
		t.Errorf("got %d %v, want 429 with Retry-After: 30", w.Code, w.Header())
	}
}
