package telemetry_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/telemetry"
)

// A program with metrics, and a log of what operators should know.
func Example() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: onlyWhatStays}))
	store := memstore.New(nil)

	reg := prometheus.NewRegistry()
	hide := telemetry.NewHasher([]byte("one secret for all processes")) // nil: a random one
	m, err := telemetry.NewMetrics(reg, &telemetry.Options{Hasher: hide, Store: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	w := telemetry.NewWarner(&telemetry.WarnerOptions{Hasher: hide, Metrics: m}, telemetry.Log(logger))
	lim, err := drawgate.New(store, drawgate.PerMinute("api", 2),
		&drawgate.Options{Observer: telemetry.Join(m.Observer(), w.Observer())})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 4 {
		d, err := lim.Allow(context.Background(), "203.0.113.9")
		if err != nil {
			fmt.Println(err)
		}
		_ = d.Allowed
	}
	w.Close()

	scrape := httptest.NewRecorder()
	telemetry.Handler(reg).ServeHTTP(scrape, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for line := range strings.Lines(scrape.Body.String()) {
		if strings.HasPrefix(line, "rate_limit_hits_total") || strings.HasPrefix(line, "rate_limit_current_usage") {
			fmt.Print(line)
		}
	}
	// Output:
	// level=INFO msg="a bucket has used 50% of limit \"minute\" of policy \"api\": 1 of 2 requests" identifier=c984f2b44716
	// level=WARN msg="a bucket has used 100% of limit \"minute\" of policy \"api\": 2 of 2 requests" identifier=c984f2b44716
	// level=WARN msg="limit \"minute\" of policy \"api\" refused a take of 1 requests: 2 of 2 are used" identifier=c984f2b44716
	// level=WARN msg="limit \"minute\" of policy \"api\" refused takes; 1 more since the last report"
	// rate_limit_current_usage{identifier="c984f2b44716",limit="minute",period="minute",policy="api"} 2
	// rate_limit_hits_total{identifier="c984f2b44716",type="api"} 2
	// rate_limit_hits_total{identifier="other",type="api"} 0
}

// onlyWhatStays leaves out what is different each time, and what the message says anyway.
func onlyWhatStays(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case slog.LevelKey, slog.MessageKey, "identifier":
		return a
	}
	return slog.Attr{}
}

// A program that receives webhook calls checks that they are Drawgate's.
func ExampleVerify() {
	secret, body := []byte("a secret of at least 16 bytes"), []byte(`{"version":1,"kind":"milestone"}`)
	header := telemetry.Sign(secret, body, time.Now()) // as it arrives in telemetry.SignatureHeader

	fmt.Println(telemetry.Verify(secret, body, header, time.Now(), 5*time.Minute))
	fmt.Println(telemetry.Verify(secret, []byte(`{}`), header, time.Now(), 5*time.Minute))
	// Output:
	// <nil>
	// telemetry: the signature of the webhook call is not valid: it was made with a different secret, or for a different body
}
