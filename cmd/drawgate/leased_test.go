package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/drawgate/drawgate/internal/redistest"
)

// With leases, which configuration alone turns on, a server decides without the store: by
// forward-auth and rules, and by Envoy's service and files in its format.
//
// req: C12, E1
func TestLeasesByConfiguration(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	files := filepath.Join(t.TempDir(), "rates.yaml")
	rates := "domain: d\ndescriptors: [{key: all, rate_limit: {unit: minute, requests_per_unit: 4000000}}]\n"
	if err := os.WriteFile(files, []byte(rates), 0o600); err != nil {
		t.Fatal(err)
	}
	v := wired(t, `
store: `+redis.URL()+`
store_timeout: 30s
instances: 1
policies: {site: {leased: true, limits: [{name: minute, rolling: 1m, amount: 4000000}]}}
rules: [{name: all, apply: [{policy: site, key: ip}]}]
server: {grpc: "127.0.0.1:0"}
envoy: {leased: true, configs: `+files+`}
`)
	request := &ratelimit.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "all"}}},
	}}
	for what, ask := range map[string]func() bool{
		"forward-auth": func() bool {
			code, _ := asked(v, "127.0.0.1:5", "X-Forwarded-Method: GET", "X-Forwarded-Uri: /",
				"X-Forwarded-For: 192.0.2.1")
			return code == http.StatusOK
		},
		"envoy": func() bool {
			a, err := v.envoy.ShouldRateLimit(t.Context(), request)
			return err == nil && a.GetOverallCode() == ratelimit.RateLimitResponse_OK
		},
	} {
		const callers, takes = 8, 2000
		before := scriptCalls(t, redis)
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range takes {
					if !ask() {
						t.Errorf("%s: it was refused", what)
						return
					}
				}
			})
		}
		wg.Wait()
		calls := scriptCalls(t, redis) - before
		if t.Logf("%s: %d calls of the store for %d takes", what, calls, callers*takes); calls > callers*takes/4 {
			t.Errorf("%s: %d calls of the store for %d takes", what, calls, callers*takes)
		}
	}
}

var scriptStats = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`)

// scriptCalls returns how many scripts a server has run.
func scriptCalls(t *testing.T, s *redistest.Server) (n int) {
	t.Helper()
	if m := scriptStats.FindStringSubmatch(s.Do("INFO", "commandstats")); m != nil {
		n, _ = strconv.Atoi(m[1])
	}
	return n
}
