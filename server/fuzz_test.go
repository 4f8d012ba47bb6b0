package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/api"
)

// FuzzTake sends bodies to /v1/take: each is answered with an answer or a problem that says something, and never both.
func FuzzTake(f *testing.F) {
	for _, seed := range []string{
		`{"policy":"llm","key":"k","costs":{"requests":1,"tokens":500},"priority":3,"labels":{"task":"embed"}}`,
		`{"policy":"llm","hold_ms":1000,"id":"a"}`, `{"takes":[{"policy":"tiers"},{"policy":"slots"}]}`,
		`{"buckets":[{"policy":"llm","costs":{"tokens":9}},{"policy":"tiers"}]}`, `{"policy":"llm","wait_ms":1}`, `{"takes":null}`, `null`, `{`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if strings.Contains(body, "wait_ms") {
			return // it would wait
		}
		s := setup{}.make(t)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/take", strings.NewReader(body)))
		if w.Code == 200 {
			var a api.TakeAnswer
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || a.Answer == nil && a.Answers == nil {
				t.Fatalf("%q: %v in %s", body, err, w.Body)
			}
			return
		}
		var p api.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || p.Code == "" || p.Detail == "" || w.Code >= 500 {
			t.Fatalf("%q: %d, %v in %s", body, w.Code, err, w.Body)
		}
	})
}

// FuzzToken settles with tokens that nobody gave out.
func FuzzToken(f *testing.F) {
	f.Add("e30")
	f.Add("eyJ2IjoxLCJpIjoiYSIsImUiOjEsImIiOlt7InBvbGljeSI6ImxsbSJ9XX0")
	f.Fuzz(func(t *testing.T, text string) {
		s := setup{}.make(t)
		body, err := json.Marshal(api.SettleRequest{Reservation: text})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/settle", strings.NewReader(string(body))))
		if w.Code != 200 && w.Code != 422 || w.Code == 200 && !strings.Contains(w.Body.String(), api.OutcomeGone) {
			t.Fatalf("%q: %d %s", text, w.Code, w.Body)
		}
	})
}
