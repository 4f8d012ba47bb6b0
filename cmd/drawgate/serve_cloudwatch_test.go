package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// serve and gateway write the lines of CloudWatch to the standard output: of takes and of the
// provider's refusals. No key is in them.
//
// req: A13, A14
func TestServeWritesLinesForCloudWatch(t *testing.T) {
	t.Parallel()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"error": {"message": "Rate limit reached for requests per min", "type": "requests", "code": "rate_limit_exceeded"}}`)
	}))
	defer provider.Close()
	text := fmt.Sprintf(proxied, provider.URL, `[{model: "*", policy: quota}]`, sha256.Sum256([]byte("a key"))) +
		"telemetry: {cloudwatch: {emf: true}}\n"
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	v, err := newService(t.Context(), &app{out: &out, errOut: io.Discard}, settings{Config: resolved(t, path)},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(v.gateway)
	defer front.Close()
	if code, _, body := chat(t, front.URL, "gpt-4o", "a key"); code != http.StatusTooManyRequests {
		t.Errorf("got %d %s, want the provider's refusal", code, body)
	}
	if err := v.close(); err != nil {
		t.Error(err)
	}
	lines := out.String()
	for _, want := range []string{
		`"RateLimiterProviderRefusals":1`,
		`"BucketType":"RPM","Policy":"quota","RateLimiterTokensAcquired":`, `"Namespace":"Drawgate"`,
	} {
		if !strings.Contains(lines, want) {
			t.Errorf("the lines have no %s:\n%s", want, lines)
		}
	}
	for _, secret := range []string{"alice", "project", "a key"} {
		if strings.Contains(lines, secret) {
			t.Errorf("the lines have %q:\n%s", secret, lines)
		}
	}
}
