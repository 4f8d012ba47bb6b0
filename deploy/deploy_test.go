package deploy_test

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// one limits a site to 300 requests in any second, whoever asks.
const one = `
store: sqlite:drawgate.db
policies:
  site: {limits: [{name: rps, rolling: 1s, amount: 300}]}
rules:
  - {name: everybody, apply: [{policy: site, key: '"all"'}]}
server: {listen: 127.0.0.1:7878, grpc: 127.0.0.1:7880, admin: off}
`

// proxies are those that can be run. Each starts, in front of a stand.
var proxies = []struct {
	name  string
	start func(s *stand) *process
	away  int // status while Drawgate is away
	store int // status while Drawgate's store is away, and its fallback refuses
}{
	{"nginx", func(s *stand) *process {
		s.copied("nginx/nginx.conf")
		return s.start("nginx", "-p", s.dir, "-c", s.dir+"/nginx.conf")
	}, http.StatusOK, http.StatusServiceUnavailable},
	{"caddy", func(s *stand) *process {
		s.copied("caddy/Caddyfile")
		return s.start("caddy", "run", "--config", "Caddyfile", "--adapter", "caddyfile")
	}, http.StatusBadGateway, http.StatusServiceUnavailable},
	{"haproxy", func(s *stand) *process {
		s.copied("haproxy/drawgate.lua")
		s.copied("haproxy/haproxy.cfg")
		return s.start("haproxy", "-f", "haproxy.cfg")
	}, http.StatusServiceUnavailable, http.StatusServiceUnavailable},
	{"envoy", func(s *stand) *process {
		s.copied("envoy/envoy.yaml")
		return s.start("envoy", "-c", "envoy.yaml", "--concurrency", "2", "--use-dynamic-base-id", "--log-level", "error")
	}, http.StatusInternalServerError, http.StatusTooManyRequests},
}

// flooded is how long a proxy is asked as fast as it answers, and how much of a limit must be used meanwhile. A machine that does other things as well
// asks and answers late.
func flooded() (d time.Duration, least float64) {
	if os.Getenv("DRAWGATE_LONG") != "" {
		return 10 * time.Second, 0.98
	}
	return 4 * time.Second, 0.85
}

// TestOneClient: a single client that asks as fast as it can gets 300 in every second, and no more, through each proxy.
//
// req: B4, E1
func TestOneClient(t *testing.T) {
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			s := newStand(t, one)
			p.start(s)
			res := s.await("http://"+s.proxy+"/", http.StatusOK)
			described(t, res)
			d, least := flooded()
			s.flood(d)
			if res, err := s.get("http://"+s.proxy+"/", ""); err != nil {
				t.Error(err)
			} else if res.StatusCode == http.StatusTooManyRequests {
				described(t, res)
			}
			at := s.admitted("site")["all"]
			within(t, "the site", at, siteRate, time.Second)
			if u := used(at[1:]); u < least {
				t.Errorf("%.3f of the limit was used", u)
			}
			t.Logf("%d admitted, %.3f of the limit", len(at), used(at[1:]))
		})
	}
}

// described checks the headers of an answer that went through a proxy.
func described(t *testing.T, res *reply) {
	t.Helper()
	for _, h := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		if res.Header.Get(h) == "" {
			t.Errorf("%s has no %s: %v", res.Status, h, res.Header)
		}
	}
	if refused := res.StatusCode == http.StatusTooManyRequests; refused && res.Header.Get("Retry-After") == "" {
		t.Errorf("a refusal has no Retry-After: %v", res.Header)
	}
}

// TestManyClients: no client gets more than its share of 20 a second, and all together no more than 300.
//
// req: B2, B4
func TestManyClients(t *testing.T) {
	const perClient = 20
	config := strings.Replace(one, "policies:\n", "policies:\n  per-ip: {limits: [{name: rps, rolling: 1s, amount: 20}]}\n", 1)
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			key := "ip"
			if p.name == "envoy" {
				key = `attr("remote_address")`
			}
			s := newStand(t, strings.Replace(config, "apply: [", "apply: [{policy: per-ip, key: '"+key+"'}, ", 1))
			p.start(s)
			s.await("http://"+s.proxy+"/", http.StatusOK)
			d, least := flooded()
			s.floodFrom(30, d)
			clients := s.admitted("per-ip")
			if len(clients) < 30 {
				t.Errorf("%d clients were told apart, want 30 and this one", len(clients))
			}
			for ip, at := range clients {
				within(t, ip, at, perClient, time.Second)
			}
			at := s.admitted("site")["all"]
			within(t, "the site", at, siteRate, time.Second)
			if u := used(at[1:]); u < least {
				t.Errorf("%.3f of the limit was used", u)
			}
			t.Logf("%d admitted, %.3f of the limit, %d clients", len(at), used(at[1:]), len(clients))
		})
	}
}

// TestAway: when Drawgate is killed, each proxy does what its configuration says, and when it is back, too.
//
// req: B11
func TestAway(t *testing.T) {
	t.Parallel()
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, one)
			p.start(s)
			s.await("http://"+s.proxy+"/", http.StatusOK)
			s.daemon.stop(syscall.SIGKILL)
			s.await("http://"+s.proxy+"/", p.away)
			s.startGate()
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				res := s.await("http://"+s.proxy+"/", http.StatusOK)
				if res.Header.Get("X-RateLimit-Remaining") != "" {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("it is not asked again: %v", res.Header)
				}
			}
		})
	}
}

// TestStoreAway: while the store is away and the fallback refuses, each proxy refuses, and those that can say so do not call it too many requests, and pass
// on what the refusal says.
//
// req: A11
func TestStoreAway(t *testing.T) {
	t.Parallel()
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, strings.Replace(one, "amount: 300}]}", "amount: 300}], fallback: closed}", 1))
			p.start(s)
			s.await("http://"+s.proxy+"/", http.StatusOK)
			for _, end := range []string{"", "-wal", "-shm"} {
				if err := os.Remove(s.db + end); err != nil {
					t.Fatal(err)
				}
			}
			refusal := s.await("http://"+s.proxy+"/", p.store)
			if p.name == "envoy" {
				return // what it is told is in docs/envoy.md
			}
			for _, h := range []string{"Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
				if refusal.Header.Get(h) == "" {
					t.Errorf("%s has no %s: %v", refusal.Status, h, refusal.Header)
				}
			}
		})
	}
}

// TestTraefik, of which there is no binary to test with, is given YAML.
func TestTraefik(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("traefik/dynamic.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		HTTP struct {
			Middlewares map[string]struct {
				ForwardAuth struct {
					Address            string `yaml:"address"`
					TrustForwardHeader bool   `yaml:"trustForwardHeader"`
				} `yaml:"forwardAuth"`
			} `yaml:"middlewares"`
		} `yaml:"http"`
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	if f := c.HTTP.Middlewares["drawgate"].ForwardAuth; f.Address != "http://"+gateAddr+"/auth" || f.TrustForwardHeader {
		t.Errorf("%+v", f)
	}
}
