package server_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/server"
)

// A paused bucket refuses whatever its limits have left; its status and the explanation say until
// when, and why; a reset ends the pause. A shorter pause changes nothing.
func TestPausedBucketRefuses(t *testing.T) {
	t.Parallel()
	f := plain(t)
	var p api.PauseAnswer
	before := time.Now()
	if got := f.do("POST", "/v1/pause", `{"policy":"llm","key":"k","for_ms":600000,"reason":"429 of <the> provider"}`,
		&p); got != 200 {
		t.Fatalf("pause: %d", got)
	}
	if left := p.Until.Sub(before); left < 10*time.Minute || left > 20*time.Minute {
		t.Errorf("paused until %v", p.Until)
	}
	var shorter api.PauseAnswer
	if got := f.do("POST", "/v1/pause", `{"policy":"llm","key":"k","for_ms":1000}`, &shorter); got != 200 ||
		!shorter.Until.Equal(p.Until) {
		t.Errorf("a shorter pause: %d, %v", got, shorter.Until)
	}
	if !shorter.Kept || !strings.Contains(shorter.Message,
		"nothing was changed: this key is already paused for longer") {
		t.Errorf("a shorter pause: %+v", shorter)
	}
	a := f.take(`{"policy":"llm","key":"k"}`)
	if a.Allowed || a.Reason != api.ReasonPaused || a.RefusedBy != nil || a.RetryAfterMS.Duration() < 9*time.Minute ||
		!strings.HasPrefix(a.Message, `this key of policy "llm" is paused; try again in `) {
		t.Errorf("refused with %+v", a)
	}
	if b := f.take(`{"buckets":[{"policy":"llm","key":"k"},{"policy":"tiers","key":"k"}]}`); b.Allowed ||
		b.Reason != api.ReasonPaused || !strings.HasPrefix(b.Message, "one of the buckets is paused") {
		t.Errorf("several buckets: refused with %+v", b)
	}
	if h := f.take(`{"policy":"llm","key":"k","hold_ms":1000,"wait_ms":1000}`); h.Allowed ||
		h.Reason != api.ReasonPaused {
		t.Errorf("a take that waits: %+v", h)
	}
	if other := f.take(`{"policy":"llm","key":"other"}`); !other.Allowed {
		t.Errorf("another key: %+v", other)
	}
	var st api.StatusAnswer
	f.do("GET", "/v1/status?policy=llm&key=k", "", &st)
	if st.Paused == nil || !st.Paused.Until.Equal(p.Until) || st.Paused.Reason != "429 of <the> provider" ||
		st.Take.Allowed || st.Take.Reason != api.ReasonPaused {
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

// An unpause ends the pause whose end it names, and no other, and waiting takes pass at once. The
// history and the log say by whom and why.
func TestUnpause(t *testing.T) {
	t.Parallel()
	list := append(tokens(), server.Token{
		Name: "on call", Secret: "secret-of-on-call",
		Roles: []server.Role{server.RoleAdmin},
	})
	var log bytes.Buffer
	h := setup{options: &server.Options{Tokens: list, Logger: slog.New(slog.NewTextHandler(&log,
		nil))}}.make(t).AdminHandler()
	var p api.PauseAnswer
	decode(t, ask(h, "POST", "/v1/pause", `{"policy":"llm","key":"k","for_ms":2678400000,"reason":"a typo"}`,
		bearer("secret-of-on-call")), &p)
	unpause := func(until time.Time) (a api.UnpauseAnswer) {
		body := `{"policy":"llm","key":"k","reason":"it was a typo","until":"` + until.Format(time.RFC3339Nano) + `"}`
		decode(t, ask(h, "POST", "/v1/unpause", body, bearer("secret-of-on-call")), &a)
		return a
	}
	if a := unpause(p.Until.Add(-time.Microsecond)); a.Until == nil || !a.Until.Equal(p.Until) ||
		!strings.HasPrefix(a.Message, "nothing was changed: ") {
		t.Errorf("another end: %+v, want the pause until %v", a, p.Until)
	}
	if strings.Contains(log.String(), "pause was ended") {
		t.Errorf("log: %s", &log)
	}
	for range 2 { // the second is a resend
		if a := unpause(p.Until); a != (api.UnpauseAnswer{}) {
			t.Errorf("ended: %+v, want nothing left", a)
		}
	}
	var a api.Answer
	if decode(t, ask(h, "POST", "/v1/take", `{"policy":"llm","key":"k"}`, bearer("secret-of-on-call")),
		&a); !a.Allowed {
		t.Errorf("after the pause: %+v", a)
	}
	for _, want := range []string{`by="on call"`, `reason="it was a typo"`, "a bucket's pause was ended"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, &log)
		}
	}
}

func TestPausesAreChecked(t *testing.T) {
	t.Parallel()
	f := plain(t)
	past, far := time.Now().Add(-time.Minute).Format(time.RFC3339), time.Now().Add(32*24*time.Hour).Format(time.RFC3339)
	for body, says := range map[string]string{
		`{"policy":"llm"}`: "one of for_ms and until",
		`{"policy":"llm","for_ms":1000,"until":"` + past + `"}`:                      "only one of for_ms and until",
		`{"policy":"llm","for_ms":-1}`:                                               "for_ms -1",
		`{"policy":"llm","for_ms":2678400001}`:                                       "for_ms 2678400001",
		`{"policy":"llm","until":"` + past + `"}`:                                    "a pause ends in the future",
		`{"policy":"llm","until":"` + far + `"}`:                                     "a pause ends in the future",
		`{"policy":"llm","for_ms":1000,"reason":"` + strings.Repeat("x", 257) + `"}`: "257 bytes",
		`{"policy":"llm","for_ms":1000,"reason":"a\u001b[2J"}`:                       "control characters",
		`{"policy":"llm","for_ms":1000,"key":"` + strings.Repeat("k", 64<<10+1) +
			`"}`: "key has 65537 bytes, more than 65536",
		`{"policy":"nope","for_ms":1000}`: "nope",
	} {
		var p api.Problem
		if got := f.do("POST", "/v1/pause", body, &p); got != 422 || !strings.Contains(p.Detail, says) {
			t.Errorf("%.80s: %d %+v", body, got, p)
		}
	}
}

// At /auth a paused bucket is a 429 with Retry-After.
func TestForwardAuthSaysPauses(t *testing.T) {
	t.Parallel()
	f := setup{config: ruled()}.start(t)
	var p api.PauseAnswer
	if got := f.do("POST", "/v1/pause", `{"policy":"api","key":"global","for_ms":600000}`, &p); got != 200 {
		t.Fatalf("pause: %d", got)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/auth", http.NoBody)
	r.RemoteAddr = "127.0.0.1:1"
	for name, v := range map[string]string{
		"X-Forwarded-Uri": "/x", "X-Forwarded-Method": "GET",
		"X-Forwarded-Host": "api.example.com", "X-Forwarded-For": "192.0.2.1",
	} {
		r.Header.Set(name, v)
	}
	w := httptest.NewRecorder()
	f.srv.ServeHTTP(w, r)
	if w.Code != 429 || w.Header().Get("Retry-After") != "600" ||
		!strings.Contains(w.Body.String(), `"code":"paused"`) {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
