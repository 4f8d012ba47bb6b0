package main

import (
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/rls"
)

// resolved reads a configuration, without any environment.
func resolved(t *testing.T, path string) *config.Config {
	t.Helper()
	c, err := config.Resolve(nil, config.Flags{Config: path})
	if err != nil {
		t.Fatal(err)
	}
	(&serveFlags{}).merge(c)
	return c
}

// wired returns what serve runs, without its listeners.
func wired(t *testing.T, text string) *service {
	t.Helper()
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := newService(t.Context(), &app{out: io.Discard, errOut: io.Discard}, settings{Config: resolved(t, path)},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.close(); err != nil {
			t.Error(err)
		}
	})
	return v
}

// asked sends a forward-auth request from an address.
func asked(v *service, peer string, headers ...string) (code int, body string) {
	r := httptest.NewRequest(http.MethodGet, "/auth", nil)
	r.RemoteAddr = peer
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	v.http.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// A server listens only on loopback by default. Flags take precedence over the file.
func TestServeListensOnLoopback(t *testing.T) {
	t.Parallel()
	const off = config.ListenOff
	for name, c := range map[string]struct {
		flags serveFlags
		file  config.Server
		want  [3]string
	}{
		"nothing": {want: [3]string{"127.0.0.1:7878", "127.0.0.1:7879", off}},
		"free ports": {
			flags: serveFlags{listen: "127.0.0.1:0"},
			want:  [3]string{"127.0.0.1:0", "127.0.0.1:0", off},
		},
		"for everybody": {
			flags: serveFlags{listen: "0.0.0.0:80"},
			want:  [3]string{"0.0.0.0:80", "127.0.0.1:7879", off},
		},
		"of everybody": {flags: serveFlags{listen: "0.0.0.0:0"}, want: [3]string{"0.0.0.0:0", "127.0.0.1:0", off}},
		"the file": {
			file: config.Server{Listen: "a:1", Admin: "b:2", GRPC: "c:3"},
			want: [3]string{"a:1", "b:2", "c:3"},
		},
		"flags and file": {
			serveFlags{listen: "x:1", admin: "y:2", grpc: "z:3"},
			config.Server{Listen: "a:1", Admin: "b:2", GRPC: "c:3"},
			[3]string{"x:1", "y:2", "z:3"},
		},
		"no": {flags: serveFlags{listen: off, admin: off}, want: [3]string{off, off, off}},
		"file's own port": {
			file: config.Server{Listen: "127.0.0.1:0"},
			want: [3]string{"127.0.0.1:0", "127.0.0.1:0", off},
		},
	} {
		all := config.Config{Server: c.file}
		c.flags.merge(&all)
		if got := [3]string{all.Server.Listen, all.Server.Admin, all.Server.GRPC}; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if all.Server.Insecure {
			t.Errorf("%s: it is insecure", name)
		}
	}
}

// Without tokens or client certificates a server listens only on loopback addresses. Envoy's
// service has no tokens, so it needs certificates.
func TestServeRefusesOpenAddressesWithoutAccessControl(t *testing.T) {
	t.Parallel()
	outside, inside := &net.TCPAddr{IP: net.IPv4zero}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	for name, c := range map[string]struct {
		server    config.Server
		http, rpc bool
	}{
		"nothing":  {config.Server{}, false, false},
		"tokens":   {config.Server{Tokens: make([]config.Token, 1)}, true, false},
		"TLS":      {config.Server{TLS: config.TLS{Cert: "c", Key: "k"}}, false, false},
		"mTLS":     {config.Server{TLS: config.TLS{Cert: "c", Key: "k", ClientCA: "a"}}, true, true},
		"insecure": {config.Server{Insecure: true}, true, true},
	} {
		for flag, want := range map[string]bool{"--listen": c.http, "--admin": c.http, "--grpc": c.rpc} {
			if err := mayListen(&c.server, flag, outside); (err == nil) != want {
				t.Errorf("%s, %s on an outside address: got %v, want it allowed: %v", name, flag, err, want)
			}
			if err := mayListen(&c.server, flag, inside); err != nil {
				t.Errorf("%s, %s on loopback: got %v, want no error", name, flag, err)
			}
		}
	}
}

// edge asks Envoy's service for one descriptor of the domain edge.
type edge struct {
	t *testing.T
	v *service
}

func (e edge) asks(change func(*common.RateLimitDescriptor)) (*ratelimit.RateLimitResponse, error) {
	d := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: "ip", Value: "192.0.2.1"}}}
	if change != nil {
		change(d)
	}
	return e.v.envoy.ShouldRateLimit(e.t.Context(), &ratelimit.RateLimitRequest{
		Domain:      "edge",
		Descriptors: []*common.RateLimitDescriptor{d},
	})
}

// hits asks with the descriptor's own number of hits, and reports whether the request passes, and
// whether the descriptor is over its limit.
func (e edge) hits(n uint64, back bool) (passes, over bool) {
	e.t.Helper()
	a, err := e.asks(func(d *common.RateLimitDescriptor) {
		d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(n),
			back
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return a.GetOverallCode() == ratelimit.RateLimitResponse_OK,
		a.GetStatuses()[0].GetCode() == ratelimit.RateLimitResponse_OVER_LIMIT
}

// says returns the names of the headers and the fields of the metadata of an answer when the limit
// is used up.
func (e edge) says() (headers, metadata string) {
	e.t.Helper()
	e.hits(2, false)
	a, err := e.asks(nil)
	if err != nil {
		e.t.Fatal(err)
	}
	var names []string
	for _, h := range a.GetResponseHeadersToAdd() {
		names = append(names, h.GetKey())
	}
	fields := slices.Sorted(maps.Keys(a.GetDynamicMetadata().GetFields()))
	return strings.Join(names, " "), strings.Join(fields, " ")
}

// aligned reports whether windows follow the calendar.
func (e edge) aligned() bool {
	return slices.ContainsFunc(e.v.run.Engine.Policies(),
		func(p engine.Info) bool { return p.Policy.Limits[0].Kind == drawgate.Calendar })
}

// A server answers Envoy as its configuration says: each option shows in an answer.
func TestServeAnswersEnvoy(t *testing.T) {
	t.Parallel()
	limits := filepath.Join(t.TempDir(), "limits.yaml")
	text := "domain: edge\ndescriptors: [{key: ip, rate_limit: {unit: day, requests_per_unit: 2}}]\n"
	if err := os.WriteFile(limits, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for option, check := range map[string]func(t *testing.T, e edge){
		"": func(t *testing.T, e edge) {
			if _, err := e.asks(func(d *common.RateLimitDescriptor) { d.IsNegativeHits = true }); err == nil {
				t.Error("hits were given back, want them to stay counted")
			}
			if passes, _ := e.hits(3, false); passes {
				t.Error("the descriptor's own hits were treated as a report, want a take")
			}
			if headers, metadata := e.says(); headers != "Retry-After" || metadata != "" {
				t.Errorf("headers %q, metadata %q", headers, metadata)
			}
			if e.aligned() {
				t.Error("got a day of the calendar, want a rolling day")
			}
		},
		"windows: aligned": func(t *testing.T, e edge) {
			if !e.aligned() {
				t.Error("got a rolling day, want a day of the calendar")
			}
		},
		"refunds: true": func(t *testing.T, e edge) {
			e.hits(2, false)
			e.hits(1, true)
			if passes, _ := e.hits(1, false); !passes {
				t.Error("a hit that was given back is missing")
			}
		},
		"shadow: true": func(t *testing.T, e edge) {
			e.hits(2, false)
			if passes, over := e.hits(1, false); !passes || !over {
				t.Errorf("passes %v, over %v", passes, over)
			}
		},
		"reports: own-hits": func(t *testing.T, e edge) {
			e.hits(3, false)
			if a, err := e.asks(nil); err != nil || a.GetOverallCode() != ratelimit.RateLimitResponse_OVER_LIMIT {
				t.Errorf("a report was not counted: %v %v", err, a)
			}
		},
		"headers: none":   says("", ""),
		"headers: legacy": says("Retry-After RateLimit-Limit RateLimit-Remaining RateLimit-Reset", ""),
		"headers: x":      says("Retry-After X-RateLimit-Limit X-RateLimit-Remaining X-RateLimit-Reset", ""),
		"headers: draft":  says("Retry-After Ratelimit Ratelimit-Policy", ""),
		"headers: legacy, limit_header: L, remaining_header: M, reset_header: N": says("Retry-After L M N", ""),
		"metadata: true": says("Retry-After", "descriptors domain quotaModeEnabled"),
	} {
		t.Run(option, func(t *testing.T) {
			t.Parallel()
			v := wired(t, "store: \"memory:\"\nserver: {grpc: \"127.0.0.1:0\"}\nenvoy: {configs: "+limits+", "+option+"}\n")
			check(t, edge{t, v})
		})
	}
}

// says checks what an answer has beside its codes.
func says(headers, metadata string) func(*testing.T, edge) {
	return func(t *testing.T, e edge) {
		t.Helper()
		if h, m := e.says(); h != headers || m != metadata {
			t.Errorf("headers %q, want %q; metadata %q, want %q", h, headers, m, metadata)
		}
	}
}

// A server tells Envoy about shadows if it is configured to.
//
// req: E9
func TestServeTellsEnvoyOfShadows(t *testing.T) {
	t.Parallel()
	const text = `
store: "memory:"
policies:
  api: {limits: [{name: rpd, rolling: 24h, amount: 9}]}
  next: {shadow: true, limits: [{name: rpd, rolling: 24h, amount: 1}]}
rules: [{apply: [{policy: api, key: '"all"'}, {policy: next, key: '"all"'}]}]
server: {grpc: "127.0.0.1:0"}
envoy: {shadow_header: true}
`
	for option, want := range map[string]bool{"true": true, "false": false} {
		e := edge{t, wired(t, strings.Replace(text, "true}\n", option+"}\n", 1))}
		e.hits(1, false)
		if a, err := e.asks(nil); err != nil || (len(a.GetResponseHeadersToAdd()) == 1) != want {
			t.Errorf("shadow_header: %s: %v %v", option, err, a)
		}
	}
}

// A server merges Envoy's files if it is configured to. Otherwise two files of one domain are a
// mistake.
func TestServeMergesEnvoysFiles(t *testing.T) {
	t.Parallel()
	var files []string
	for _, key := range []string{"ip", "user"} {
		path := filepath.Join(t.TempDir(), key+".yaml")
		if err := os.WriteFile(path,
			[]byte("domain: edge\ndescriptors: [{key: "+key+", rate_limit: {unit: day, requests_per_unit: 2}}]\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	for _, merge := range []bool{false, true} {
		if _, err := loadEnvoy(&config.Config{Envoy: config.Envoy{
			Configs: files,
			Merge:   merge,
		}}); (err == nil) != merge {
			t.Errorf("merge: %v: %v", merge, err)
		}
	}
}

// What "drawgate init envoy" writes fits deploy/envoy: it is valid and without warnings, and the
// limits for Envoy are those that limits.yaml describes.
func TestDeployedConfigurationsAreValid(t *testing.T) {
	t.Parallel()
	const path, limits = "starter/envoy.yaml", "../../deploy/envoy/limits.yaml"
	c := resolved(t, path)
	if len(c.Warnings) > 0 || len(c.Policies) != 2 || c.Server.GRPC == config.ListenOff {
		t.Errorf("got warnings %v and %+v, want no warning, two policies and a gRPC address", c.Warnings, c)
	}
	if _, err := rls.Load([]string{limits}, nil); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	abs, err := filepath.Abs(limits)
	if err != nil {
		t.Fatal(err)
	}
	v := wired(t, strings.Replace(string(text), "store: sqlite:drawgate.db",
		"store: \"memory:\"\nenvoy: {configs: "+abs+"}", 1))
	a, err := v.envoy.ShouldRateLimit(t.Context(), &ratelimit.RateLimitRequest{
		Domain: "site",
		Descriptors: []*common.RateLimitDescriptor{
			{Entries: []*common.RateLimitDescriptor_Entry{{Key: "remote_address", Value: "192.0.2.1"}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if l := a.GetStatuses()[0].GetCurrentLimit(); l.GetRequestsPerUnit() != 50 ||
		l.GetUnit() != ratelimit.RateLimitResponse_RateLimit_SECOND {
		t.Errorf("got %v, want a limit of 50 per second", a)
	}
}
