package telemetry

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Bounds of reading metrics, so that a reader cannot keep the process busy.
const (
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
)

// Handler serves the metrics of g, a [prometheus.Registry], for GET /metrics. At most four callers
// are served at once; others get 503. What cannot be collected is left out, and the rest is served.
func Handler(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout,
	})
}
