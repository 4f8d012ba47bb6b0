package snsnotify_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/telemetry/snsnotify"
)

const (
	region   = "eu-central-1"
	patience = 5 * time.Minute // for what must happen
)

// client returns a client of SNS at an address, with an access key.
func client(url, id, secret string, with ...func(*sns.Options)) *sns.Client {
	return sns.New(sns.Options{
		Region: region, BaseEndpoint: &url,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: id, SecretAccessKey: secret}, nil
		}),
	}, with...)
}

// topic is one of a moto.
type topic struct {
	t    *testing.T
	moto *awstest.Server
	sns  *sns.Client
	arn  string
}

func newTopic(t *testing.T) *topic {
	t.Helper()
	m := awstest.Moto(t)
	c := client(m.URL, "test", "test")
	out, err := c.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: aws.String("drawgate")})
	if err != nil {
		t.Fatal(err)
	}
	return &topic{t, m, c, *out.TopicArn}
}

// notification is what SNS posts to subscribers. Message is an incident.
type notification struct{ Type, TopicArn, Subject, Message string }

// incident returns the incident in a notification.
func (n *notification) incident(t *testing.T) (in api.Incident) {
	t.Helper()
	if err := json.Unmarshal([]byte(n.Message), &in); err != nil {
		t.Fatalf("%v: %s", err, n.Message)
	}
	return in
}

// subscribe subscribes an HTTP server. filter is the policy of the subscription; "": none.
func (p *topic) subscribe(filter string) <-chan notification {
	p.t.Helper()
	got := make(chan notification, 100)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var n notification
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &n)
		}
		if err != nil || n.Type != "Notification" {
			p.t.Errorf("a subscriber got %s, %v", body, err)
			return
		}
		got <- n
	}))
	p.t.Cleanup(s.Close)
	in := &sns.SubscribeInput{TopicArn: &p.arn, Protocol: aws.String("http"), Endpoint: aws.String(s.URL)}
	if filter != "" {
		in.Attributes = map[string]string{"FilterPolicy": filter}
	}
	if _, err := p.sns.Subscribe(p.t.Context(), in); err != nil {
		p.t.Fatal(err)
	}
	return got
}

// open returns a Notifier of the topic. opts may be nil. Unless opts say otherwise, an attempt may
// take long: one that is cut off is made again, and a subscriber may get two messages.
func (p *topic) open(opts *snsnotify.Options) *snsnotify.Notifier {
	p.t.Helper()
	if opts == nil {
		opts = &snsnotify.Options{}
	}
	if opts.Timeout == 0 {
		opts.Timeout = patience
	}
	return notifier(p.t, p.sns, p.arn, opts)
}

func notifier(t *testing.T, c *sns.Client, arn string, opts *snsnotify.Options) *snsnotify.Notifier {
	t.Helper()
	n, err := snsnotify.New(c, arn, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// next waits for a notification.
func next(t *testing.T, c <-chan notification) notification {
	t.Helper()
	select {
	case n := <-c:
		return n
	case <-time.After(patience):
		t.Fatal("no notification")
		panic("unreachable")
	}
}

// results counts how attempts ended. It is safe for concurrent use.
type results struct {
	mu  sync.Mutex
	all map[snsnotify.Result]int
	on  map[snsnotify.Result]chan struct{} // a token for each
}

func newResults() *results {
	r := &results{all: map[snsnotify.Result]int{}, on: map[snsnotify.Result]chan struct{}{}}
	for _, k := range []snsnotify.Result{
		snsnotify.Delivered, snsnotify.Retried, snsnotify.Rejected, snsnotify.GaveUp,
		snsnotify.Dropped,
	} {
		r.on[k] = make(chan struct{}, 1000)
	}
	return r
}

func (r *results) add(k snsnotify.Result) {
	r.mu.Lock()
	r.all[k]++
	r.mu.Unlock()
	r.on[k] <- struct{}{}
}

func (r *results) of(k snsnotify.Result) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[k]
}

func (r *results) await(t *testing.T, k snsnotify.Result) {
	t.Helper()
	select {
	case <-r.on[k]:
	case <-time.After(patience):
		t.Fatalf("nothing was %s", k)
	}
}
