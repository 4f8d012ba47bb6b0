package deploy_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// descriptors has Envoy send so many descriptors with each request: each is a key of its own.
func descriptors(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\n                              - actions: [{generic_key: {descriptor_key: part%d, descriptor_value: x}}]", i)
	}
	return b.String()
}

// TestEnvoyWithNineLimitedDescriptors: a request that more than eight limits count is refused by the one that is used, though Envoy lets requests pass
// that are not decided.
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
	s := newStand(t, strings.Replace(one(1), "headers: draft", "headers: draft, configs: "+path, 1))
	text, err := os.ReadFile("envoy/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	envoy := strings.NewReplacer("\n                              - actions: [{remote_address: {}}]", descriptors(9), "failure_mode_deny: true", "failure_mode_deny: false").
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
