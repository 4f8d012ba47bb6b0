package rls_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/rls"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

const (
	ok   = ratelimit.RateLimitResponse_OK
	over = ratelimit.RateLimitResponse_OVER_LIMIT
)

// config reads a configuration.
func config(tb testing.TB, text string) *rls.Config {
	tb.Helper()
	c, err := rls.ParseConfig("test.yaml", []byte(text), nil)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// slowStore gives a busy machine the time that it takes.
var slowStore = &engine.Options{StoreTimeout: 10 * time.Second}

// service returns a service over a store for a configuration; opts may be nil.
func service(tb testing.TB, store drawgate.Store, c *rls.Config, opts *rls.Options) (*rls.Service, *engine.Engine) {
	tb.Helper()
	var policies []engine.Policy
	if c != nil {
		policies = c.Policies()
	}
	e, err := engine.New(store, engine.Config{Policies: policies}, slowStore)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { e.Close() })
	o := rls.Options{}
	if opts != nil {
		o = *opts
	}
	o.Config = c
	return rls.New(e, &o), e
}

// serve serves a service on loopback and returns a client of it.
func serve(tb testing.TB, s *rls.Service) (ratelimit.RateLimitServiceClient, *grpc.ClientConn) {
	tb.Helper()
	c, conn, _ := serveHealth(tb, s)
	return c, conn
}

// serveHealth is serve for tests that change what is told of the server's health.
func serveHealth(tb testing.TB, s *rls.Service) (ratelimit.RateLimitServiceClient, *grpc.ClientConn, *health.Server) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	g := rls.NewServer(nil)
	h := rls.Register(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		conn.Close()
		g.Stop()
		<-done
	})
	return ratelimit.NewRateLimitServiceClient(conn), conn, h
}

// client serves a configuration from memory.
func client(tb testing.TB, text string, opts *rls.Options) ratelimit.RateLimitServiceClient {
	tb.Helper()
	s, _ := service(tb, memory(tb), config(tb, text), opts)
	c, _ := serve(tb, s)
	return c
}

func memory(tb testing.TB) drawgate.Store {
	tb.Helper()
	store := memstore.New(nil)
	tb.Cleanup(func() { store.Close() })
	return store
}

// request makes a request; a descriptor is "key=value,key=value".
func request(domain string, descriptors ...*common.RateLimitDescriptor) *ratelimit.RateLimitRequest {
	return &ratelimit.RateLimitRequest{Domain: domain, Descriptors: descriptors}
}

func descriptor(text string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for entry := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(entry, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

// hits gives a descriptor hits of its own.
func hits(d *common.RateLimitDescriptor, n uint64) *common.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

// answered asks and returns the answer.
func answered(t *testing.T, c ratelimit.RateLimitServiceClient,
	r *ratelimit.RateLimitRequest,
) *ratelimit.RateLimitResponse {
	t.Helper()
	a, err := c.ShouldRateLimit(t.Context(), r)
	if err != nil {
		t.Fatalf("%v: %v", r, err)
	}
	if len(a.GetStatuses()) != len(r.GetDescriptors()) {
		t.Fatalf("%v: %d statuses", r, len(a.GetStatuses()))
	}
	return a
}

// passes asks with one descriptor until it is refused, at most n+1 times, and says if it was not
// exactly after n.
func passes(t *testing.T, c ratelimit.RateLimitServiceClient, domain, text string, n int) {
	t.Helper()
	for i := range n {
		if a := answered(t, c, request(domain, descriptor(text))); a.GetOverallCode() != ok {
			t.Fatalf("%s: request %d was refused, want %d to pass: %v", text, i+1, n, a)
		}
	}
	if a := answered(t, c, request(domain, descriptor(text))); a.GetOverallCode() != over {
		t.Errorf("%s: request %d passed, want it refused: %v", text, n+1, a)
	}
}

// free asks n times and wants every answer to be OK.
func free(t *testing.T, c ratelimit.RateLimitServiceClient, domain, text string, n int) *ratelimit.RateLimitResponse {
	t.Helper()
	var a *ratelimit.RateLimitResponse
	for range n {
		if a = answered(t, c, request(domain, descriptor(text))); a.GetOverallCode() != ok {
			t.Fatalf("%s: refused: %v", text, a)
		}
	}
	return a
}

// limitOf is a limit that a descriptor carries.
func limitOf(tb testing.TB, unit string, n uint32) *common.RateLimitDescriptor_RateLimitOverride {
	tb.Helper()
	u, known := envoytype.RateLimitUnit_value[unit]
	if !known {
		tb.Fatalf("no unit %s", unit)
	}
	return &common.RateLimitDescriptor_RateLimitOverride{Unit: envoytype.RateLimitUnit(u), RequestsPerUnit: n}
}

// negative makes a descriptor one that gives hits back.
func negative(d *common.RateLimitDescriptor, n uint64) *common.RateLimitDescriptor {
	d.IsNegativeHits = true
	return hits(d, n)
}

// header returns a header that an answer asks to add.
func header(a *ratelimit.RateLimitResponse, name string) string {
	for _, h := range a.GetResponseHeadersToAdd() {
		if h.GetKey() == name {
			return h.GetValue()
		}
	}
	return ""
}

// put puts another configuration in force.
func put(t *testing.T, e *engine.Engine, s *rls.Service, c *rls.Config) {
	t.Helper()
	if err := e.Replace(engine.Config{Policies: c.Policies()}); err != nil {
		t.Fatal(err)
	}
	s.Use(c)
}

// marking is a store whose decisions are marked as a guard marks those that it makes itself.
type marking struct{ drawgate.Store }

func (m marking) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	err := m.Store.Take(ctx, batch, out)
	for i := range out {
		out[i].Fallback = true
	}
	return err
}

// broken is a store that decides nothing.
type broken struct{ drawgate.Store }

func (broken) Take(context.Context, []store.Take, []store.Verdict) error {
	return &drawgate.StoreError{Store: "test", Op: "take", Err: errors.New("secret.example:6379 is down")}
}

// descriptorOf returns a descriptor that leads to a rate of a file.
func descriptorOf(r *rls.Rule) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for _, s := range r.Path {
		value := s.Value
		if value == "" {
			value = "any"
		}
		stars := strings.NewReplacer("*", "any")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{
			Key:   stars.Replace(s.Key),
			Value: stars.Replace(value),
		})
	}
	return d
}
