package httplimit_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// While the store is unavailable a request is refused only if this process's own limiter is used
// up, which is a 429 like any other. If a policy does not decide without the store, the answer is
// 503. All these answers are marked. req: E7.
func TestStoreUnavailableBehindAGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{Store: memstore.New(nil)}
		g := guard.New(f, &guard.Options{Instances: 1, Start: drawgate.StartFull})
		t.Cleanup(func() { _ = g.Close() })
		share := policy("share", rolling(2, time.Hour))
		share.Fallback = drawgate.FallbackShare
		closed := policy("closed", rolling(2, time.Hour))
		closed.Fallback = drawgate.FallbackClosed
		l, err := drawgate.New(g, share, nil)
		if err != nil {
			t.Fatal(err)
		}
		all := httplimit.Fixed("all")
		sharing, closing := middleware(t, nil, httplimit.Bucket{Limiter: l, Key: all}),
			middleware(t, nil, httplimit.Bucket{Limiter: with(t, l, closed), Key: all})
		h, _ := ask(sharing)
		wantHeaders(t, h, "X-RateLimit-Remaining", "1", "X-RateLimit-Fallback", "")
		f.down.Store(true)
		h, p := ask(sharing)
		wantHeaders(t, h, "X-RateLimit-Remaining", "0", "X-RateLimit-Fallback", "true")
		if p.Problem != nil {
			t.Errorf("refused with %+v", p.Problem)
		}
		h, p = ask(sharing)
		wantHeaders(t, h, "X-RateLimit-Remaining", "0", "X-RateLimit-Fallback", "true")
		if p.Problem == nil || p.Problem.Status != http.StatusTooManyRequests ||
			p.Problem.Code != httplimit.CodeLimited {
			t.Errorf("used up: %+v", p.Problem)
		}
		h, p = ask(closing)
		wantHeaders(t, h, "X-RateLimit-Fallback", "true", "Retry-After", "1")
		if p.Problem == nil || p.Problem.Status != http.StatusServiceUnavailable ||
			p.Problem.Code != httplimit.CodeStoreUnavailable || p.Problem.Scope != "" ||
			!strings.HasSuffix(p.Problem.Type, "#temporary-reduced-capacity") {
			t.Errorf("closed: %+v", p.Problem)
		}
	})
}
