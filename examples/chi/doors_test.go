package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/go-chi/chi/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/grpclimit"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/rls"
	"github.com/drawgate/drawgate/server"
)

// file has a tier by class, another one by an override, a policy that may be in shadow, and
// requests that are exempt. The class gold is that of the API key "secret".
const file = `
policies:
  api: {limits: [{name: rph, rolling: 1h, amount: %d}], overrides: [{key: partner, limits: {rph: 4}}]}
  once: {shadow: %v, limits: [{name: rph, rolling: 1h, amount: 1}]}
rules:
  - {match: {path: /shop.Health/*}, exempt: true}
  - {match: {ips: 203.0.113.0/24}, exempt: true}
  - {match: {class: gold}, final: true, apply: [{policy: api, key: user, limits: {rph: 3}}]}
  - {apply: [{policy: api, key: user}, {policy: once, key: user}]}
api_keys:
  classes: {gold: ["sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"]}
`

// request is what every door is asked.
type request struct{ path, ip, user, key string }

// answer is what every door says: left is of the limit of which the least is left, notCounted if
// there is none.
type answer struct {
	allowed bool
	left    int64
}

const notCounted = -1

// door asks in one way.
type door func(t *testing.T, r request) answer

// doors are all ways to ask.
var doors = map[string]func(t *testing.T, c *config.Runtime) door{
	"/v1/take": takes, "forward-auth": forwards, "Envoy's rate limit service": describes,
	"gRPC interceptor": intercepts, "chi": routes,
}

// TestEveryDoorEnforcesTheFile asks the same of every door, whose answers are the same, before and
// after the file changes.
//
// req: B4, E3
func TestEveryDoorEnforcesTheFile(t *testing.T) {
	t.Parallel()
	const find, health = "/shop.Shop/Find", "/shop.Health/Check"
	before := []struct {
		request
		want answer
	}{
		{request{path: find, user: "ann"}, answer{true, 1}},
		{request{path: find, user: "ann"}, answer{true, 0}}, // the shadow would refuse
		{request{path: find, user: "ann"}, answer{false, 0}},
		{request{path: find, user: "partner"}, answer{true, 3}},
		{request{path: find, user: "ben", key: "secret"}, answer{true, 2}},
		// of the class default: the same bucket, another amount
		{request{path: find, user: "ben", key: "wrong"}, answer{true, 0}},
		{request{path: health, user: "ann"}, answer{true, notCounted}},
		{request{path: find, user: "ann", ip: "203.0.113.7"}, answer{true, notCounted}},
	}
	after := []struct {
		request
		want answer
	}{
		{request{path: find, user: "ann"}, answer{false, 0}}, // by what was in shadow, which has counted her
		{request{path: find, user: "ann", key: "secret"}, answer{true, 0}},
		{request{path: find, user: "cat"}, answer{true, 0}},
		{request{path: find, user: "cat"}, answer{false, 0}},
		{request{path: find, user: "partner", key: "secret"}, answer{true, 2}},
	}
	for name, open := range doors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "drawgate.yaml")
			write(t, path, 2, true)
			c, err := config.Open(t.Context(), path, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			ask := open(t, c)
			for i, step := range before {
				if got := ask(t, step.request); got != step.want {
					t.Errorf("request %d %+v: got %+v, want %+v", i+1, step.request, got, step.want)
				}
			}
			write(t, path, 3, false)
			reloaded(t, c)
			for i, step := range after {
				if got := ask(t, step.request); got != step.want {
					t.Errorf("after the reload, request %d %+v: got %+v, want %+v", i+1, step.request, got, step.want)
				}
			}
		})
	}
}

func write(t *testing.T, path string, amount int, shadow bool) {
	t.Helper()
	if err := os.WriteFile(path, fmt.Appendf(nil, file, amount, shadow), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reloaded waits until nothing is in shadow any more.
func reloaded(t *testing.T, c *config.Runtime) {
	t.Helper()
	for c.Config().Modes["once"].Shadow {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("the file was not read again")
		}
	}
}

// takes asks the HTTP API.
func takes(t *testing.T, c *config.Runtime) door {
	h, err := server.New(c.Engine, c.Store, &server.Options{Class: c.Class})
	if err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T, r request) answer {
		t.Helper()
		body, err := json.Marshal(api.Take{Attributes: &api.Attributes{
			Method: http.MethodPost, Path: r.path, IP: r.ip, User: r.user,
			Headers: map[string]string{"X-Api-Key": r.key},
		}})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/take", bytes.NewReader(body)))
		var a api.Answer
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		got := answer{a.Allowed, notCounted}
		for _, l := range a.Limits {
			if got.left == notCounted || l.Remaining < got.left {
				got.left = l.Remaining
			}
		}
		return got
	}
}

// forwards asks as a proxy does that passes requests on.
func forwards(t *testing.T, c *config.Runtime) door {
	h, err := server.New(c.Engine, c.Store, &server.Options{
		Class:       c.Class,
		ForwardAuth: &server.ForwardAuth{User: "X-User"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T, r request) answer {
		t.Helper()
		q := httptest.NewRequest(http.MethodGet, "/auth", http.NoBody)
		q.RemoteAddr = "127.0.0.1:1"
		for name, value := range map[string]string{
			"X-Forwarded-Method": http.MethodPost, "X-Forwarded-Uri": r.path, "X-Forwarded-For": r.address(),
			"X-User": r.user, "X-Api-Key": r.key,
		} {
			q.Header.Set(name, value)
		}
		return served(t, h, q)
	}
}

// served asks a handler that answers with headers.
func served(t *testing.T, h http.Handler, q *http.Request) answer {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q)
	if w.Code != http.StatusOK && w.Code != http.StatusTooManyRequests {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return answer{w.Code == http.StatusOK, left(t, w.Header().Get(httplimit.HeaderRemaining))}
}

func left(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(cmp.Or(text, strconv.Itoa(notCounted)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (r request) address() string { return cmp.Or(r.ip, "192.0.2.1") }

// describes asks as Envoy does, by a descriptor.
func describes(_ *testing.T, c *config.Runtime) door {
	s := rls.New(c.Engine, &rls.Options{Class: c.ClassOf})
	return func(t *testing.T, r request) answer {
		t.Helper()
		d := &common.RateLimitDescriptor{}
		for _, e := range [][2]string{
			{"method", http.MethodPost},
			{"path", r.path},
			{"remote_address", r.address()},
			{"user", r.user},
			{"x-api-key", r.key},
		} {
			if e[1] != "" {
				d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: e[0], Value: e[1]})
			}
		}
		a, err := s.ShouldRateLimit(t.Context(), &ratelimit.RateLimitRequest{
			Domain:      "edge",
			Descriptors: []*common.RateLimitDescriptor{d},
		})
		if err != nil {
			t.Fatal(err)
		}
		got := answer{a.GetOverallCode() == ratelimit.RateLimitResponse_OK, notCounted}
		if st := a.GetStatuses()[0]; st.GetCurrentLimit() != nil {
			got.left = int64(st.GetLimitRemaining())
		}
		return got
	}
}

// intercepts asks a gRPC service that has a method of whatever name.
func intercepts(t *testing.T, c *config.Runtime) door {
	limit, err := grpclimit.NewByRules(c.Engine, &grpclimit.RuleOptions{
		Class: c.Class, Proxies: loopback(t),
		User: func(ctx context.Context) string {
			return metadata.ValueFromIncomingContext(ctx, "x-user")[0]
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.StreamInterceptor(limit.Stream),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			var e emptypb.Empty
			if err := stream.RecvMsg(&e); err != nil {
				return err
			}
			return stream.SendMsg(&e)
		}))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return func(t *testing.T, r request) answer {
		t.Helper()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-user", r.user, "x-api-key", r.key, "x-forwarded-for",
			r.address())
		var header, trailer metadata.MD
		err := conn.Invoke(ctx, r.path, &emptypb.Empty{}, &emptypb.Empty{}, grpc.Header(&header),
			grpc.Trailer(&trailer))
		if code := status.Code(err); code != codes.OK && code != codes.ResourceExhausted {
			t.Fatal(err)
		}
		text := ""
		if v := metadata.Join(header, trailer)[grpclimit.MetadataRemaining]; len(v) > 0 {
			text = v[0]
		}
		return answer{err == nil, left(t, text)}
	}
}

// routes asks a service as in main.
func routes(t *testing.T, c *config.Runtime) door {
	limit, err := httplimit.NewByRules(c.Engine, &httplimit.RuleOptions{
		Class: c.Class, Proxies: loopback(t), User: func(r *http.Request) string { return r.Header.Get("X-User") },
	})
	if err != nil {
		t.Fatal(err)
	}
	router := chi.NewRouter()
	router.Use(limit.Handler)
	router.Post("/*", func(http.ResponseWriter, *http.Request) {})
	return func(t *testing.T, r request) answer {
		t.Helper()
		q := httptest.NewRequest(http.MethodPost, r.path, http.NoBody)
		q.RemoteAddr = "127.0.0.1:1"
		for name, value := range map[string]string{
			"X-Forwarded-For": r.address(), "X-User": r.user,
			"X-Api-Key": r.key,
		} {
			q.Header.Set(name, value)
		}
		return served(t, router, q)
	}
}

// loopback trusts this machine to say for whom it asks.
func loopback(t *testing.T) *httplimit.Proxies {
	t.Helper()
	p, err := httplimit.NewProxies([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestTheFileOfTheExample is one that the example can start with.
func TestTheFileOfTheExample(t *testing.T) {
	t.Parallel()
	c, err := config.Resolve(nil, config.Flags{Config: "drawgate.yaml"})
	if err != nil || len(c.Warnings) > 0 {
		t.Errorf("%v %v", err, c.Warnings)
	}
}
