package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
)

// This function is in docs/httplimit.md: TestPage compares them.

func limited(store drawgate.Store, site http.Handler) (http.Handler, error) {
	perIP, err := drawgate.New(store, drawgate.Policy{Name: "per-ip", Limits: []drawgate.Limit{
		drawgate.BucketLimit("rate", 10, time.Minute, 5),
	}}, nil)
	if err != nil {
		return nil, err
	}
	api, err := perIP.With(drawgate.Policy{Name: "api", Limits: []drawgate.Limit{
		drawgate.BucketLimit("rate", 100, time.Minute, 20),
	}})
	if err != nil {
		return nil, err
	}
	proxies, err := httplimit.NewProxies(httplimit.PrivateNetworks(), nil) // whose X-Forwarded-For header is trusted
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.New([]httplimit.Bucket{
		{Limiter: perIP, Key: httplimit.ByIP(proxies)},
		{Limiter: api, Key: httplimit.Fixed("global"), Shared: true},
	}, &httplimit.Options{Exempt: []string{"/health*"}})
	if err != nil {
		return nil, err
	}
	return limit.Handler(site), nil
}

// The page shows the code that was compiled and run, and explains every header and code.
func TestPage(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page := read("../docs/httplimit.md")
	_, code, _ := strings.Cut(read("example_docs_test.go"), "\nfunc limited(")
	code, _, _ = strings.Cut(code, "\n}\n")
	if !strings.Contains(page, "\n```go\nfunc limited("+code+"\n}\n```\n") {
		t.Error("docs/httplimit.md does not show the function limited as it is here")
	}
	for _, c := range []httplimit.Code{
		httplimit.CodeLimited, httplimit.CodeQueued, httplimit.CodeQueueFull, httplimit.CodeNeverFits,
		httplimit.CodeStoreUnavailable, httplimit.CodeClosing, httplimit.CodeInvalid, httplimit.CodeCancelled,
	} {
		if !strings.Contains(page, "`"+string(c)+"`") {
			t.Errorf("docs/httplimit.md does not explain the code %s", c)
		}
	}
	h, err := limited(limiterStore(t), hello)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "RateLimit", "RateLimit-Policy"} {
		if line := fmt.Sprintf("%s: %s\n", name, w.Header().Get(name)); !strings.Contains(page, line) {
			t.Errorf("docs/httplimit.md does not show %q", line)
		}
	}
}
