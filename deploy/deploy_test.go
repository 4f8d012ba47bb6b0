package deploy_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/drawgate/drawgate/internal/needs"
)

// one limits a site to that many requests of all clients together in any second.
func one(amount int) string {
	return fmt.Sprintf(`
store: sqlite:drawgate.db
store_timeout: 30s
policies:
  site: {limits: [{name: rps, rolling: 1s, amount: %d}]}
rules:
  - {name: everybody, apply: [{policy: site, key: '"all"'}]}
server: {listen: 127.0.0.1:7878, grpc: 127.0.0.1:7880, admin: off}
envoy: {headers: draft}
`, amount)
}

// proxies are the tested proxies, with funcs that start them in front of a testbed.
var proxies = []struct {
	name  string
	start func(s *testbed) *process
	draft bool // the IETF draft's headers reach the client too
	down  int  // status while Drawgate is down
	ends  int  // status while Drawgate is stopping, if it answers
	store int  // status while Drawgate's store is unavailable, and its fallback refuses
}{
	{"nginx", func(s *testbed) *process {
		s.copied("nginx/nginx.conf")
		return s.start("nginx", "-p", s.dir, "-c", s.dir+"/nginx.conf")
	}, false, http.StatusOK, http.StatusOK, http.StatusServiceUnavailable},
	{"caddy", func(s *testbed) *process {
		s.copied("caddy/Caddyfile")
		return s.start("caddy", "run", "--config", "Caddyfile", "--adapter", "caddyfile")
	}, true, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusServiceUnavailable},
	{"haproxy", func(s *testbed) *process {
		s.copied("haproxy/drawgate.lua")
		s.copied("haproxy/haproxy.cfg")
		return s.start("haproxy", "-f", "haproxy.cfg")
	}, false, http.StatusServiceUnavailable, http.StatusServiceUnavailable, http.StatusServiceUnavailable},
	{"envoy", func(s *testbed) *process {
		s.copied("envoy/envoy.yaml")
		return s.start("envoy", "-c", "envoy.yaml", "--concurrency", "2", "--use-dynamic-base-id", "--log-level",
			"error")
	}, true, http.StatusInternalServerError, http.StatusInternalServerError, http.StatusTooManyRequests},
}

// flooded is how long a proxy is flooded, and rest how long a connection rests between two
// requests. siteRate is how many requests per second may pass from all clients together, and
// perClient from each. In the long form they are realistic, and clients ask as fast as they are
// answered; otherwise the rates are so low that a busy machine exceeds them, too, and a few times
// as many requests show it as well as all that it can send.
var flooded, rest, siteRate, perClient = rates()

func rates() (d, rest time.Duration, site, client int) {
	if needs.Long() {
		return 10 * time.Second, 0, 300, 20
	}
	return 3 * time.Second, 20 * time.Millisecond, 60, 4
}

// Through each proxy a single client with many connections gets what a second allows, and no more.
// It is not refused before it has got that.
//
// req: B4, E1
func TestOneClientGetsExactlyItsLimit(t *testing.T) {
	t.Parallel()
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := newTestbed(t, one(siteRate))
			p.start(s)
			described(t, s.await("http://"+s.proxy+"/", http.StatusOK), p.draft)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var all crowd
			var wg sync.WaitGroup
			begun := time.Now()
			wg.Go(func() { s.flood(ctx, 32, false, &all) })
			described(t, s.await("http://"+s.proxy+"/", http.StatusTooManyRequests), p.draft)
			time.Sleep(flooded - time.Since(begun))
			cancel()
			wg.Wait()
			at := s.admitted("site")["all"]
			within(t, "the site", at, siteRate, time.Second)
			n := all.refused(t, func(a asked) bool { return full(a, at, siteRate) })
			t.Logf("%d admitted, %.4f of the limit, %d refusals looked at", len(at),
				used(at[1:], int(flooded.Seconds())), n)
		})
	}
}

// described checks the headers of an answer that went through a proxy.
func described(t *testing.T, res *reply, draft bool) {
	t.Helper()
	headers := []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
	if draft {
		headers = append(headers, "RateLimit", "RateLimit-Policy")
	}
	if res.StatusCode == http.StatusTooManyRequests {
		headers = append(headers, "Retry-After")
	}
	for _, h := range headers {
		if res.Header.Get(h) == "" {
			t.Errorf("%s has no %s: %v", res.Status, h, res.Header)
		}
	}
}

// No client gets more than its own limit per second, and all together get no more than the site's.
// No client is refused before one of the two is used up.
//
// req: B2, B4
func TestManyClientsGetExactlyTheLimits(t *testing.T) {
	config := strings.Replace(one(siteRate), "policies:\n",
		fmt.Sprintf("policies:\n  per-ip: {limits: [{name: rps, rolling: 1s, amount: %d}]}\n", perClient), 1)
	t.Parallel()
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			key := "ip"
			if p.name == "envoy" {
				key = `attr("remote_address")`
			}
			s := newTestbed(t, strings.Replace(config, "apply: [", "apply: [{policy: per-ip, key: '"+key+"'}, ", 1))
			p.start(s)
			s.await("http://"+s.proxy+"/", http.StatusOK)
			ctx, cancel := context.WithTimeout(t.Context(), flooded)
			defer cancel()
			var all crowd
			s.flood(ctx, 30, true, &all)
			clients := s.admitted("per-ip")
			if len(clients) < 30 {
				t.Errorf("%d clients were told apart, want 30 and this one", len(clients))
			}
			for ip, at := range clients {
				within(t, ip, at, perClient, time.Second)
			}
			at := s.admitted("site")["all"]
			within(t, "the site", at, siteRate, time.Second)
			n := all.refused(t, func(a asked) bool {
				return full(a, at, siteRate) ||
					full(a, clients[a.from], perClient)
			})
			t.Logf("%d admitted, %.4f of the limit, %d clients, %d refusals looked at", len(at),
				used(at[1:], int(flooded.Seconds())), len(clients), n)
		})
	}
}

// When Drawgate is killed or stopped while a proxy is flooded, the proxy answers as its
// configuration says, and no request hangs. When Drawgate is back, the proxy asks it again.
//
// req: B11
func TestDrawgateUnavailable(t *testing.T) {
	t.Parallel()
	for _, p := range proxies {
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			t.Run(fmt.Sprint(p.name, ", ", sig), func(t *testing.T) {
				t.Parallel()
				s := newTestbed(t, one(20)) // which is soon used
				p.start(s)
				s.await("http://"+s.proxy+"/", http.StatusOK)
				ctx, cancel := context.WithCancel(t.Context())
				var all crowd
				var wg sync.WaitGroup
				wg.Go(func() { s.flood(ctx, 8, true, &all) })
				defer wg.Wait()
				defer cancel()
				s.await("http://"+s.proxy+"/", http.StatusTooManyRequests) // the limit is used
				s.hurry.Store(true)
				all.await(50, func(asked) bool { return true })
				begun := time.Now()
				s.daemon.stop(sig)
				ended := time.Now()
				s.hurry.Store(false)
				gap := func(a asked) bool { return a.began.After(ended) }
				all.await(20, gap)
				back := time.Now()
				afterwards := func(a asked) bool { return gap(a) && !a.ended.Before(back) }
				s.startGate()
				s.asks()
				s.await("http://"+s.proxy+"/", http.StatusTooManyRequests)
				all.await(1, afterwards)
				cancel()
				wg.Wait()
				answered(t, "before", all.of(func(a asked) bool { return a.ended.Before(begun) }), http.StatusOK,
					http.StatusTooManyRequests)
				answered(t, "while it ended", all.of(func(a asked) bool { return !a.ended.Before(begun) && !gap(a) }),
					http.StatusOK, http.StatusTooManyRequests, p.down, p.ends)
				answered(t, "while it was down", all.of(func(a asked) bool { return gap(a) && a.ended.Before(back) }),
					p.down)
				answered(t, "afterwards", all.of(afterwards), http.StatusOK, http.StatusTooManyRequests, p.down)
			})
		}
	}
}

// asks waits until the proxy asks Drawgate again.
func (s *testbed) asks() {
	s.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		res := s.await("http://"+s.proxy+"/", http.StatusOK)
		if res.Header.Get("X-RateLimit-Remaining") != "" {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("it is not asked again: %v", res.Header)
		}
	}
}

// answered checks that all requests were answered with one of those statuses.
func answered(t *testing.T, when string, some []asked, may ...int) {
	t.Helper()
	counts, slowest := map[int]int{}, time.Duration(0)
	for _, a := range some {
		counts[a.status]++
		slowest = max(slowest, a.ended.Sub(a.began))
	}
	t.Logf("%s: %v (status: how often), the slowest after %v", when, counts, slowest.Round(time.Millisecond))
	if len(some) == 0 {
		t.Errorf("%s: nothing was asked", when)
	}
	for status := range counts {
		if !slices.Contains(may, status) {
			t.Errorf("%s: %d were answered with %d, want one of %v (0 is no answer)", when, counts[status], status, may)
		}
	}
}

// While the store is unavailable and the fallback refuses, each proxy refuses. Proxies that can do
// so answer with another status than 429, and pass on the text of the refusal.
//
// req: A11
func TestStoreUnavailable(t *testing.T) {
	t.Parallel()
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := newTestbed(t, strings.NewReplacer("amount: 300}]}", "amount: 300}], fallback: closed}",
				"store_timeout: 30s\n", "").Replace(one(300)))
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
			for _, h := range []string{
				"Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining",
				"X-RateLimit-Reset",
			} {
				if refusal.Header.Get(h) == "" {
					t.Errorf("%s has no %s: %v", refusal.Status, h, refusal.Header)
				}
			}
		})
	}
}

// Traefik's file is checked even without a binary: see hasTraefik.
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
	if f := c.HTTP.Middlewares["drawgate"].ForwardAuth; f.Address != "http://"+gateAddr+"/auth" ||
		f.TrustForwardHeader {
		t.Errorf("got %+v, want the address of /auth and no trust in headers", f)
	}
}
