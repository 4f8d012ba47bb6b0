package config_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/awstest"
)

// A program's incidents reach the configured topic by the time that Flush returns; it says if they
// do not, because the topic is wrong. Without a topic there is nothing to wait for.
//
// req: A14
func TestIncidentsAreFlushed(t *testing.T) { //nolint:paralleltest // credentials come from the environment
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	m := awstest.Moto(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.URL,
		strings.NewReader("Action=CreateTopic&Version=2010-03-31&Name=right"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Authorization",
		"AWS4-HMAC-SHA256 Credential=test/20260101/eu-central-1/sns/aws4_request, SignedHeaders=host, Signature=00")
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	for topic, want := range map[string]string{
		"right": "",
		"wrong": "snsnotify: incidents that were not sent: 1; see the log", "": "",
	} {
		incidents := ""
		if topic != "" {
			incidents = fmt.Sprintf(", incidents: {sns: {topic: 'arn:aws:sns:eu-central-1:123456789012:%s', endpoint: '%s'}}", topic, m.URL)
		}
		c, problems := config.Parse("drawgate.yaml",
			[]byte("store: 'memory:'\npolicies: {q: {limits: [{name: rpm, rolling: 1m, amount: 1}]}}\n"+
				"gateway: {upstreams: {openai: {models: [{model: '*', policy: q}]}}, keys: [{name: a, secret_env: A}]"+incidents+"}"))
		if problems != nil {
			t.Fatal(problems)
		}
		run, err := config.Start(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		run.Incident(&api.Incident{ID: "ID", Summary: "refused"})
		got := ""
		if err := run.Flush(t.Context()); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("topic %q: got %q, want %q", topic, got, want)
		}
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	}
}

// While SNS does not answer, Close reports the metrics and closes the store before it gives up on
// SNS. Here SNS answers only when the metrics were written.
func TestCloseDoesNotWaitForSNSFirst(t *testing.T) { //nolint:paralleltest // credentials come from the environment
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	written := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-written:
			_, _ = io.WriteString(w,
				"<PublishResponse><PublishResult><MessageId>1</MessageId></PublishResult></PublishResponse>")
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	c, problems := config.Parse("drawgate.yaml",
		[]byte("store: 'memory:'\npolicies: {q: {limits: [{name: rpm, rolling: 1m, amount: 1}]}}\ntelemetry: {cloudwatch: {emf: true}}\n"+
			"gateway: {upstreams: {openai: {models: [{model: '*', policy: q}]}}, keys: [{name: a, secret_env: A}], "+
			"incidents: {sns: {topic: 'arn:aws:sns:eu-central-1:123456789012:t', endpoint: '"+s.URL+"'}}}"))
	if problems != nil {
		t.Fatal(problems)
	}
	run, err := config.Start(t.Context(), c, &config.OpenOptions{EMF: writer(func(p []byte) (int, error) {
		close(written)
		return len(p), nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	run.CloudWatch.Observer().Called(&drawgate.StoreCall{Took: 1})
	run.Incident(&api.Incident{ID: "ID", Summary: "refused"})
	if err := run.Close(); err != nil {
		t.Errorf("SNS did not answer within its time to close: %v", err)
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// What the webhook is told, such as an incident, is delivered by the time that Flush returns; or it
// says that it was not.
//
// req: A14
func TestWebhookIsFlushed(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusNoContent, http.StatusNotFound} {
		var calls atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			w.WriteHeader(code)
		}))
		t.Cleanup(s.Close)
		path := filepath.Join(t.TempDir(), "drawgate.yaml")
		text := fmt.Sprintf("store: 'memory:'\npolicies: {q: {limits: [{name: rpm, rolling: 1m, amount: 1}]}}\ntelemetry: {webhook: {url: %q, secret_env: SECRET}}\n", s.URL)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Resolve([]string{"SECRET=0123456789abcdef"}, config.Flags{Config: path})
		if err != nil {
			t.Fatal(err)
		}
		run, err := config.Start(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		run.Incident(&api.Incident{ID: "ID", Summary: "refused"})
		err = run.Flush(t.Context())
		if lost := err != nil && strings.Contains(err.Error(),
			"1 events were not delivered to 127.0.0.1"); lost != (code == http.StatusNotFound) || calls.Load() != 1 {
			t.Errorf("answered with %d: %d calls, %v", code, calls.Load(), err)
		}
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Incidents are kept where the file says, relative to its folder; without that beside the SQLite
// store, and nowhere with another store.
func TestIncidentsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const gateway = "policies: {q: {limits: [{name: rpm, rolling: 1m, amount: 1}]}}\ngateway: {upstreams: {openai: {models: [{model: '*', policy: q}]}}, keys: [{name: a, secret_env: A}]"
	for text, want := range map[string]string{
		"store: sqlite:x/q.db\n" + gateway + ", incidents: {file: i.jsonl}}": filepath.Join(dir, "i.jsonl"),
		"store: sqlite:x/q.db\n" + gateway + "}": filepath.Join(dir, "x",
			"q.db-incidents.jsonl"),
		"store: 'memory:'\n" + gateway + "}":                        "",
		"store: 'memory:'\n" + gateway + ", incidents: {file: /i}}": "/i",
	} {
		path := filepath.Join(dir, "drawgate.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.IncidentsFile(); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
