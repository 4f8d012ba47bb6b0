package deploy_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// descriptors makes Envoy send so many descriptors with each request, each with a key of its own.
func descriptors(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\n                              - actions: [{generic_key: {descriptor_key: part%d, descriptor_value: x}}]", i)
	}
	return b.String()
}

// A request that more than eight limits count is refused by the one that is used up, although Envoy
// lets undecided requests pass.
//
// req: B2, E1
func TestEnvoyWithNineLimitedDescriptors(t *testing.T) {
	t.Parallel()
	limits := "domain: site\ndescriptors:\n"
	for i := range 9 {
		amount := 100
		if i == 8 {
			amount = 2
		}
		limits += fmt.Sprintf("  - {key: part%d, rate_limit: {unit: day, requests_per_unit: %d}}\n", i, amount)
	}
	path := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(path, []byte(limits), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newTestbed(t, strings.Replace(one(1), "headers: draft", "headers: draft, configs: "+path, 1))
	text, err := os.ReadFile("envoy/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	envoy := strings.NewReplacer("\n                              - actions: [{remote_address: {}}]", descriptors(9),
		"failure_mode_deny: true", "failure_mode_deny: false").
		Replace(longer.Replace(string(text)))
	if !strings.Contains(envoy, "part8") || !strings.Contains(envoy, "failure_mode_deny: false") {
		t.Fatalf("the configuration has another form: %s", envoy)
	}
	s.write("envoy.yaml", envoy)
	s.start("envoy", "-c", "envoy.yaml", "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "error")
	s.asks() // the first answer
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusTooManyRequests} {
		res, err := s.get("http://"+s.proxy+"/", "")
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != want {
			t.Errorf("%s, want %d: %v", res.Status, want, res.Header)
		}
	}
}

// With on_store_failure: error, Envoy's failure_mode_deny decides what passes, not the fallback,
// which would refuse.
//
// req: B11
func TestEnvoyDecidesWhileTheStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	for deny, want := range map[string]int{"true": http.StatusInternalServerError, "false": http.StatusOK} {
		t.Run("failure_mode_deny: "+deny, func(t *testing.T) {
			t.Parallel()
			s := newTestbed(t, strings.NewReplacer("amount: 300}]}", "amount: 300}], fallback: closed}",
				"store_timeout: 30s\n", "",
				"headers: draft", "headers: draft, on_store_failure: error").Replace(one(300)))
			text, err := os.ReadFile("envoy/envoy.yaml")
			if err != nil {
				t.Fatal(err)
			}
			s.write("envoy.yaml", strings.Replace(longer.Replace(string(text)), "failure_mode_deny: true",
				"failure_mode_deny: "+deny, 1))
			s.start("envoy", "-c", "envoy.yaml", "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "error")
			s.asks()
			for _, end := range []string{"", "-wal", "-shm"} {
				if err := os.Remove(s.db + end); err != nil {
					t.Fatal(err)
				}
			}
			undecided := func(res *reply) bool {
				return res.StatusCode == want &&
					res.Header.Get("X-RateLimit-Remaining") == ""
			}
			res := s.await("http://"+s.proxy+"/", want)
			for end := time.Now().Add(patience); !undecided(res) &&
				time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				res = s.await("http://"+s.proxy+"/", want)
			}
			if !undecided(res) {
				t.Errorf("%s, want %d without a decision: %v", res.Status, want, res.Header)
			}
		})
	}
}
