package dynamostore_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/storekey"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/guard"
	cw "github.com/drawgate/drawgate/telemetry/cloudwatch"
)

// site is a dynalite with a table, behind a proxy that can cut connections. Processes reach it from
// a bubble.
type site struct {
	url   string // of the proxy
	cut   atomic.Bool
	out   *outside
	admin *dynamodb.Client // goes past the proxy
}

func newSite(t *testing.T) *site {
	t.Helper()
	server := empty(t)
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{out: newOutside(t)}
	s.admin = tableClient(server.URL, s.out)
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.cut.Load() {
			panic(http.ErrAbortHandler) // closes the connection
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	s.url = proxy.URL
	return s
}

// counted is a process that counts the others, and reports to CloudWatch.
type counted struct {
	store.Store

	guard   *guard.Store
	metrics *cw.Metrics
	emf     *bytes.Buffer
	opened  chan struct{} // an outage was found
	closed  chan struct{} // it has ended
	charged atomic.Int64  // units of the first limit that were reported to the store

	mu sync.Mutex
}

func (p *counted) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.emf.Write(b)
}

// process starts one.
func (s *site) process(t *testing.T, prefix string) *counted {
	t.Helper()
	p := &counted{emf: &bytes.Buffer{}, opened: make(chan struct{}, 10), closed: make(chan struct{}, 10)}
	var err error
	if p.metrics, err = cw.New(&cw.Options{EMF: p, Interval: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.metrics.Close(t.Context()) })
	o := p.metrics.Guard()
	tell := o.Opened
	o.Opened = func(e *guard.Opened) {
		tell(e)
		p.opened <- struct{}{}
	}
	o.Closed = func(*guard.Closed) { p.closed <- struct{}{} }
	o.Charged = func(e *guard.Charged) {
		for _, b := range e.Buckets {
			p.charged.Add(b.N[0])
		}
	}
	store := dynamostore.NewWithClock(tableClient(s.url, s.out), "drawgate", &dynamostore.Options{Prefix: prefix},
		func() int64 { return time.Now().UnixMicro() })
	p.guard = guard.New(store, &guard.Options{CountInstances: true, CountInCalls: true, Observer: o})
	t.Cleanup(func() { _ = p.guard.Close() })
	p.Store = p.guard.Full()
	return p
}

// fallbacks returns how often RateLimiterFallbackActivated was reported so far.
func (p *counted) fallbacks(t *testing.T) (n float64) {
	t.Helper()
	if err := p.metrics.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.emf.String()) {
		var doc map[string]any
		if err := json.Unmarshal([]byte(line), &doc); err != nil {
			t.Fatal(err)
		}
		switch v := doc[cw.FallbackActivated].(type) {
		case nil:
		case float64:
			n += v
		default:
			t.Fatalf("%s is %v", cw.FallbackActivated, v)
		}
	}
	return n
}

// drain takes until one is refused, and returns how many units it got. All must be decided by the
// store, or all without it.
func (p *counted) drain(t *testing.T, plan *store.Plan, most int64, fallback bool) (n int64) {
	t.Helper()
	for n < most {
		d, err := takeOf(t.Context(), p, plan, "k", 1)
		if err != nil || d.Fallback != fallback {
			t.Fatalf("after %d: by the fallback %v, %v", n, d.Fallback, err)
		}
		if !d.Allowed {
			return n
		}
		n++
	}
	return n
}

// tokens returns what the item says is left of a limit.
func (s *site) tokens(t *testing.T, prefix string, plan *store.Plan, limit string) string {
	t.Helper()
	key, _ := storekey.Format(prefix, store.Key{Policy: plan.Name(), Name: "k"})
	out, err := s.admin.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: aws.String("drawgate"), ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{dynamostore.KeyAttribute: &types.AttributeValueMemberS{Value: key}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item["tokens"].(*types.AttributeValueMemberM).Value[limit].(*types.AttributeValueMemberN).Value
}

// TestOutage cuts the connections of two processes that count each other, twice: each admits its
// half of the limit, says once in an outage that it does, and tells DynamoDB afterwards what it
// admitted.
//
// req: A10, A11, B11
func TestOutage(t *testing.T) {
	t.Parallel()
	s, prefix := newSite(t), prefix()
	synctest.Test(t, func(t *testing.T) {
		const amount, before = 60, 5
		plan, err := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{
			{
				Name: "few", Kind: drawgate.Rolling, Amount: amount, Window: 5 * time.Minute, Precision: drawgate.Exact,
				Fallback: drawgate.FallbackShare,
			},
		}}.Compile()
		if err != nil {
			t.Fatal(err)
		}
		processes := []*counted{s.process(t, prefix), s.process(t, prefix)}
		for _, p := range processes { // what is used when a process first sees a bucket counts in its share
			p.drain(t, plan.Plan, 1, false)
		}
		time.Sleep(6 * time.Minute)
		for outage := range 2 {
			for _, p := range processes {
				if st := p.guard.State(); st.Instances != 2 || !st.MayShare || st.Unavailable {
					t.Fatalf("outage %d: %+v, want 2 instances that may share", outage, st)
				}
				if got := p.drain(t, plan.Plan, before, false); got != before {
					t.Fatalf("outage %d: %d were admitted by DynamoDB, want %d", outage, got, before)
				}
			}
			s.cut.Store(true)
			for i, p := range processes {
				if got := p.drain(t, plan.Plan, amount, true); got != amount/2-before {
					t.Errorf("outage %d: process %d was admitted %d, want its half of %d less %d", outage, i, got,
						amount, before)
				}
				<-p.opened
			}
			late := s.process(t, prefix)
			if got := late.drain(t, plan.Plan, amount, true); got != 0 {
				t.Errorf("outage %d: a process that nobody has counted was admitted %d", outage, got)
			}
			time.Sleep(2 * time.Minute)
			for i, p := range processes {
				if got := p.drain(t, plan.Plan, amount, true); got != 0 {
					t.Errorf("outage %d: process %d was admitted %d more in the same window", outage, i, got)
				}
			}
			s.cut.Store(false)
			for i, p := range processes {
				<-p.closed
				time.Sleep(time.Second) // what is pending is delivered in the background
				if got, want := p.charged.Load(), int64(outage+1)*(amount/2-before); got != want ||
					p.guard.State().Pending != 0 {
					t.Errorf("outage %d: process %d told DynamoDB of %d units, want %d; %d are pending", outage, i, got,
						want, p.guard.State().Pending)
				}
				if got := p.drain(t, plan.Plan, amount, false); got != 0 {
					t.Errorf("outage %d: process %d was admitted %d by DynamoDB beyond the limit", outage, i, got)
				}
				if got, want := p.fallbacks(t), float64(outage+1); got != want {
					t.Errorf("outage %d: process %d reported %s %v times, want %v", outage, i, cw.FallbackActivated,
						got, want)
				}
			}
			if left := s.tokens(t, prefix, plan.Plan, "few"); left != "0" {
				t.Errorf("outage %d: the item has %s units left, want 0: %d were admitted", outage, left, amount)
			}
			if err := late.guard.Close(); err != nil {
				t.Error(err)
			}
			time.Sleep(6 * time.Minute)
		}
	})
}
