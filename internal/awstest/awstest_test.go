package awstest

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Both answer ListTables, and end with the test.
func TestServers(t *testing.T) {
	for _, start := range []func(testing.TB) *Server{Dynalite, Moto} {
		var s *Server
		t.Run("", func(t *testing.T) {
			s = start(t)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/x-amz-json-1.0")
			req.Header.Set("X-Amz-Target", "DynamoDB_20120810.ListTables")
			req.Header.Set("X-Amz-Date", "20260101T000000Z")
			req.Header.Set("Authorization",
				"AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=00")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK ||
				string(body) != `{"TableNames":[]}` && string(body) != `{"TableNames": []}` {
				t.Errorf("%s: %d %s %v", s.Name, resp.StatusCode, body, err)
			}
		})
		if s == nil {
			continue
		}
		select {
		case <-s.done:
		default:
			t.Errorf("%s still runs", s.Name)
		}
	}
}
