//go:build !race

package server_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A take costs net/http some 25 allocations; the server must not add as many again.
func TestTakeAllocatesLittle(t *testing.T) {
	s := setup{config: benched()}.make(t)
	for _, c := range []struct {
		path, body string
		most       float64
	}{
		{"/v1/take", benchTake, 4},
		{"/v1/take", `{"attributes":{"method":"GET","path":"/v1/items","ip":"192.0.2.7"}}`, 12},
		{"/auth", "", 10},
	} {
		r := httptest.NewRequest(http.MethodPost, c.path, http.NoBody)
		r.RemoteAddr = "127.0.0.1:1"
		r.Header.Set("X-Forwarded-Uri", "/v1/items")
		r.Header.Set("X-Forwarded-Method", "GET")
		in, w := &body{}, discard{http.Header{}}
		got := testing.AllocsPerRun(200, func() {
			in.Reset(c.body)
			r.Body = in
			clear(w.h)
			s.ServeHTTP(w, r)
		})
		if got > c.most {
			t.Errorf("%s %s: %v allocations, more than %v", c.path, c.body, got, c.most)
		}
	}
}
