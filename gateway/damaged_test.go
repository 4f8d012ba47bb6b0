package gateway_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/drawgate/drawgate/gateway"
)

// log is a log that several goroutines write.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestDamagedAnswers: an answer that is none is a clear error, which sends the caller nowhere, and
// the provider's key is in no answer and in no log, whatever the answer quotes. The call counts.
//
// req: C12
func TestDamagedAnswers(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, `{"error":{"message":"the key `+upstreamKey+` may not do this"}}`)
	z.Close()
	for name, c := range map[string]struct {
		answer string
		status int
	}{
		"quotes the key as its status": {upstreamKey + " " + upstreamKey + "\r\n\r\n", http.StatusBadGateway},
		"quotes the key as its header": {"HTTP/1.1 200 OK\r\n" + upstreamKey + "\r\n\r\n", http.StatusBadGateway},
		"quotes the key as its encoding": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + upstreamKey + "\r\n\r\n",
			http.StatusBadGateway,
		},
		"quotes the key, compressed": {fmt.Sprintf("HTTP/1.1 403 No\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", packed.Len(), packed.String()), http.StatusForbidden},
		"a trailer with the key":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Key\r\n\r\n2\r\n{}\r\n0\r\nX-Key: " + upstreamKey + "\r\n\r\n", http.StatusOK},
		"no status":                  {"HTTP/1.1 000 OK\r\nContent-Length: 2\r\n\r\n{}", http.StatusBadGateway},
		"another protocol":           {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhello", http.StatusBadGateway},
		"moved for a time":           {"HTTP/1.1 307 Moved\r\nLocation: http://elsewhere.test/\r\nContent-Length: 0\r\n\r\n", http.StatusBadGateway},
		"moved for ever": {
			"HTTP/1.1 301 Moved\r\nLocation: /v2\r\nContent-Length: 0\r\n\r\n",
			http.StatusBadGateway,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, results := &log{}, &log{}
			b := newBench(t, func(s *setup) {
				s.policies = append(s.policies, hourly())
				s.options.Logger = slog.New(slog.NewTextHandler(text, nil))
				s.options.Answered = func(_, _, result string) { io.WriteString(results, result) }
				s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					conn, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					io.WriteString(conn, c.answer)
				})
			})
			got := b.call("openai", false, "Hello!")
			if got.status != c.status || got.err != nil || got.header.Get("Location") != "" {
				t.Errorf("got %d %v %v %s, want %d", got.status, got.err, got.header, got.body, c.status)
			}
			b.settled()
			if all := fmt.Sprint(got.header, got.body, text); strings.Contains(all, upstreamKey) {
				t.Errorf("the key is in %s", all)
			}
			if n := b.used("upstream", "account")["rpm"]; n != 1 {
				t.Errorf("%d requests counted, want 1", n)
			}
			want := map[int]string{
				http.StatusOK: gateway.ResultAnswered, http.StatusForbidden: gateway.ResultError,
				http.StatusBadGateway: gateway.ResultRefused,
			}[c.status]
			if got := results.String(); got != want {
				t.Errorf("reported as %q, want %q", got, want)
			}
		})
	}
}
