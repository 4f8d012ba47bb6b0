package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/drawgate/drawgate/httplimit"
)

// A request allocates one slice and one string. A middleware that only writes the headers needs the
// slice, too.
func TestAllocations(t *testing.T) {
	w, r := &nowhere{h: http.Header{}}, httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	h := middleware(t, &httplimit.Options{Exempt: []string{"/health*"}},
		httplimit.Bucket{Limiter: plenty(t)}).Handler(done)
	got := testing.AllocsPerRun(100, func() {
		clear(w.h)
		h.ServeHTTP(w, r)
	})
	if got > 2 {
		t.Errorf("%v allocations for a request that passes, want at most 2", got)
	}
	refusing := one(t, nil, policy("p", rolling(1, time.Hour))).Handler(done)
	refusing.ServeHTTP(w, r)
	got = testing.AllocsPerRun(100, func() {
		clear(w.h)
		refusing.ServeHTTP(w, r)
	})
	if got > 40 {
		t.Errorf("%v allocations for a refusal, want at most 40", got)
	}
}
