package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/memstore"
)

// A paused bucket refuses whatever its limits have left; its status and the explanation say until when, and why; a reset ends the pause. A shorter pause
// changes nothing.
func TestPausedBucketRefuses(t *testing.T) {
	t.Parallel()
	f := setup{store: &pausing{Store: memstore.New(nil)}}.start(t)
	var p api.PauseAnswer
	before := time.Now()
	if got := f.do("POST", "/v1/pause", `{"policy":"llm","key":"k","for_ms":600000,"reason":"429 of <the> provider"}`, &p); got != 200 {
		t.Fatalf("pause: %d", got)
	}
	if left := p.Until.Sub(before); left < 10*time.Minute || left > 20*time.Minute {
		t.Errorf("paused until %v", p.Until)
	}
	var shorter api.PauseAnswer
	if got := f.do("POST", "/v1/pause", `{"policy":"llm","key":"k","for_ms":1000}`, &shorter); got != 200 || !shorter.Until.Equal(p.Until) {
		t.Errorf("a shorter pause: %d, %v", got, shorter.Until)
	}
	a := f.take(`{"policy":"llm","key":"k"}`)
	if a.Allowed || a.Reason != api.ReasonPaused || a.RefusedBy != nil || a.RetryAfterMS.Duration() < 9*time.Minute || !strings.HasPrefix(a.Message, `this key of policy "llm" is paused; try again in `) {
		t.Errorf("refused with %+v", a)
	}
	if h := f.take(`{"policy":"llm","key":"k","hold_ms":1000,"wait_ms":1000}`); h.Allowed || h.Reason != api.ReasonPaused {
		t.Errorf("a take that waits: %+v", h)
	}
	if other := f.take(`{"policy":"llm","key":"other"}`); !other.Allowed {
		t.Errorf("another key: %+v", other)
	}
	var st api.StatusAnswer
	f.do("GET", "/v1/status?policy=llm&key=k", "", &st)
	if st.Paused == nil || !st.Paused.Until.Equal(p.Until) || st.Paused.Reason != "429 of <the> provider" || st.Take.Allowed || st.Take.Reason != api.ReasonPaused {
		t.Errorf("status %+v", st)
	}
	var e api.ExplainAnswer
	f.do("POST", "/v1/explain", `{"policy":"llm","key":"k"}`, &e)
	if e.Allowed || len(e.Applied) != 1 || e.Applied[0].Status.Paused == nil {
		t.Errorf("explained %+v", e)
	}
	var r api.ResetAnswer
	f.do("POST", "/v1/reset", `{"policy":"llm","key":"k"}`, &r)
	if a := f.take(`{"policy":"llm","key":"k"}`); !a.Allowed {
		t.Errorf("after a reset: %+v", a)
	}
}

func TestPausesAreChecked(t *testing.T) {
	t.Parallel()
	f := plain(t)
	past, far := time.Now().Add(-time.Minute).Format(time.RFC3339), time.Now().Add(32*24*time.Hour).Format(time.RFC3339)
	for body, says := range map[string]string{
		`{"policy":"llm"}`: "one of for_ms and until",
		`{"policy":"llm","for_ms":1000,"until":"` + past + `"}`:                        "one of for_ms and until",
		`{"policy":"llm","for_ms":-1}`:                                                 "for_ms -1",
		`{"policy":"llm","for_ms":2678400001}`:                                         "for_ms 2678400001",
		`{"policy":"llm","until":"` + past + `"}`:                                      "does not end within",
		`{"policy":"llm","until":"` + far + `"}`:                                       "does not end within",
		`{"policy":"llm","for_ms":1000,"reason":"` + strings.Repeat("x", 257) + `"}`:   "257 bytes",
		`{"policy":"llm","for_ms":1000,"reason":"a\u001b[2J"}`:                         "control characters",
		`{"policy":"llm","for_ms":1000,"key":"` + strings.Repeat("k", 64<<10+1) + `"}`: "key has more than",
		`{"policy":"nope","for_ms":1000}`:                                              "nope",
	} {
		var p api.Problem
		if got := f.do("POST", "/v1/pause", body, &p); got != 422 || !strings.Contains(p.Detail, says) {
			t.Errorf("%.80s: %d %+v", body, got, p)
		}
	}
}

// At the door for proxies a paused bucket is a 429 with Retry-After.
func TestForwardAuthSaysPauses(t *testing.T) {
	t.Parallel()
	store := &pausing{Store: memstore.New(nil)}
	f := setup{store: store, config: ruled()}.start(t)
	var p api.PauseAnswer
	if got := f.do("POST", "/v1/pause", `{"policy":"api","key":"global","for_ms":600000}`, &p); got != 200 {
		t.Fatalf("pause: %d", got)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/auth", http.NoBody)
	r.RemoteAddr = "127.0.0.1:1"
	for name, v := range map[string]string{"X-Forwarded-Uri": "/x", "X-Forwarded-Method": "GET", "X-Forwarded-Host": "api.example.com", "X-Forwarded-For": "192.0.2.1"} {
		r.Header.Set(name, v)
	}
	w := httptest.NewRecorder()
	f.srv.ServeHTTP(w, r)
	if w.Code != 429 || w.Header().Get("Retry-After") != "600" || !strings.Contains(w.Body.String(), `"code":"paused"`) {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// pausing is a store that can pause buckets.
type pausing struct {
	drawgate.Store
	pauses map[drawgate.Key]drawgate.Pause
}

func (s *pausing) Take(ctx context.Context, takes []drawgate.Take, out []drawgate.Decision) error {
	for _, b := range takes[0].Buckets {
		if p, ok := s.pauses[b.Key]; ok {
			d, now := &out[0], time.Now()
			var st [1]drawgate.Status
			if err := s.Store.Peek(ctx, []drawgate.BucketCost{b}, 0, st[:]); err != nil {
				return err
			}
			*d = st[0].Decision
			d.Allowed, d.Reason, d.RetryAfter, d.Soonest = false, drawgate.Paused, p.Until.Sub(now), p.Until.Sub(now)
			return nil
		}
	}
	return s.Store.Take(ctx, takes, out)
}

func (s *pausing) Settle(ctx context.Context, list []drawgate.Settlement, out []drawgate.Outcome) error {
	if list[0].Op != drawgate.OpPause {
		return s.Store.Settle(ctx, list, out)
	}
	if s.pauses == nil {
		s.pauses = map[drawgate.Key]drawgate.Pause{}
	}
	key, p := list[0].Buckets[0].Key, drawgate.Pause{Until: list[0].At, Reason: list[0].Reason}
	if list[0].Hold > 0 {
		p.Until = time.Now().Add(list[0].Hold)
	}
	if old := s.pauses[key]; p.Until.Before(old.Until) {
		p = old
	}
	s.pauses[key] = p
	out[0] = drawgate.Outcome{End: p.Until}
	return nil
}

func (s *pausing) Peek(ctx context.Context, buckets []drawgate.BucketCost, priority int8, out []drawgate.Status) error {
	if err := s.Store.Peek(ctx, buckets, priority, out); err != nil {
		return err
	}
	if p, ok := s.pauses[buckets[0].Key]; ok {
		out[0].Pause, out[0].Allowed, out[0].Reason, out[0].RetryAfter = p, false, drawgate.Paused, time.Until(p.Until)
	}
	return nil
}

func (s *pausing) Reset(ctx context.Context, keys []drawgate.Key) error {
	for _, k := range keys {
		delete(s.pauses, k)
	}
	return s.Store.(drawgate.Resetter).Reset(ctx, keys)
}

func (s *pausing) List(ctx context.Context, tenant, policy string, yield func(drawgate.Key) bool) error {
	return s.Store.(drawgate.Lister).List(ctx, tenant, policy, yield)
}
