package gateway_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/outbound"
)

// ladder configures all steps, for a quota of one request a minute and another one for the other
// models.
func ladder(s *setup) {
	onePerMinute(s)
	s.options.Wait = 10 * time.Second
	spare := generous()
	spare.Name, spare.Limits[0].Amount = "spare", 2
	s.policies = append(s.policies, spare)
	for i := range s.config.Upstreams {
		u := &s.config.Upstreams[i]
		first := gateway.Model{
			Name: apis[u.Name].model, Policy: "upstream", Fallbacks: []string{apis[u.Name].other},
			Cache: gateway.Cache{TTL: time.Minute, Stale: time.Hour},
		}
		u.Models = []gateway.Model{first, {Name: apis[u.Name].other, Policy: "spare"}}
	}
}

// step makes a call and says what became of it.
func (b *bench) step(name string, stream bool, prompt string, headers ...string) string {
	b.Helper()
	before := len(b.sim.Calls())
	got := b.call(name, stream, prompt, headers...)
	text := fmt.Sprint(got.status)
	for _, h := range []string{gateway.HeaderCache, gateway.HeaderModel} {
		if v := got.header.Get(h); v != "" {
			text += " " + v
		}
	}
	if len(b.sim.Calls()) > before {
		text += ", sent as " + b.last().Model
	}
	return text
}

// TestLadder: a call that does not fit gets an answer from the cache, an older one, another
// model's, a place in the queue, and last a refusal. Each is labelled.
//
// req: C8
func TestLadder(t *testing.T) {
	t.Parallel()
	for name, a := range apis {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " stream ", stream), func(t *testing.T) {
				t.Parallel()
				inBubble(t, ladder, func(t *testing.T, b *bench) {
					other := a.other
					expect := func(what, prompt, want string, headers ...string) {
						t.Helper()
						if got := b.step(name, stream, prompt, headers...); got != want {
							t.Errorf("%s: got %s, want %s", what, got, want)
						}
					}
					sent := "200, sent as " + a.model
					expect("the first call", "Hello!", sent)
					expect("the same call", "Hello!", "200 hit")
					expect("another one", "Good morning!", "200 "+other+", sent as "+other)
					expect("one more", "Good evening!", "200 "+other+", sent as "+other)
					expect("all quotas are exhausted", "Good night!", "429")
					expect("another caller's", "Hello!", "429", "Authorization: Bearer "+bob)
					time.Sleep(55 * time.Second)
					expect("its turn comes soon", "Good night!", sent)
					time.Sleep(10 * time.Second)
					expect("the first answer is old, and the quota is exhausted", "Hello!", "200 stale")
					expect("the caller wants a fresh one", "Hello!", "200 "+other+", sent as "+other,
						"Cache-Control: max-age=0, no-cache")
					time.Sleep(time.Minute)
					expect("there is room again", "Hello!", sent)
					time.Sleep(2 * time.Minute)
					expect("one that is not to be kept", "Hello!", sent, "Cache-Control: no-store")
					time.Sleep(2 * time.Hour)
					expect("an answer that is too old", "Hello!", sent)
					if v := b.sim.Violations(); v.Total != 0 || b.h.UnderWay() != 0 {
						t.Errorf("%d violations, %d calls under way", v.Total, b.h.UnderWay())
					}
				})
			})
		}
	}
}

// TestCachedAnswersAreTheSame: an answer from the cache is that of the provider, byte for byte, and
// says how old it is.
//
// req: C8
func TestCachedAnswersAreTheSame(t *testing.T) {
	t.Parallel()
	for name := range apis {
		inBubble(t, ladder, func(t *testing.T, b *bench) {
			first := b.call(name, true, "Hello!")
			time.Sleep(7 * time.Second)
			again := b.call(name, true, "Hello!")
			if again.body != first.body || again.header.Get("Content-Type") != first.header.Get("Content-Type") ||
				again.header.Get("Age") != "7" {
				t.Errorf("%s: first %v\n%s\nthen %v\n%s", name, first.header, first.body, again.header, again.body)
			}
			if used := b.used("upstream", "account"); used["rpm"] != 1 {
				t.Errorf("%s: %v used, want one request", name, used)
			}
		})
	}
}

// TestWhatIsNotCached: answers that are errors, or not whole, or not of a call that is the same,
// are not given again.
//
// req: C8
func TestWhatIsNotCached(t *testing.T) {
	t.Parallel()
	kept := func(s *setup) {
		for i := range s.config.Upstreams {
			s.config.Upstreams[i].Models[0].Cache = gateway.Cache{TTL: time.Hour}
			s.config.Upstreams[i].Breaker = outbound.Breaker{Failures: -1}
		}
	}
	for _, fault := range []string{"500", "minute", "error_event after=2", "cut after=2", "close"} {
		for _, stream := range []bool{false, true} {
			inBubble(t, kept, func(t *testing.T, b *bench) {
				for range 2 {
					b.call("openai", stream, "Hello!\nsimulate: output=50 fault="+fault, gateway.HeaderTimeout+": 0")
				}
				want := 2
				if fault == "minute" {
					want = 1 // it pauses the quota
				}
				if n := len(b.sim.Calls()); n != want {
					t.Errorf("fault %q, stream %v: %d calls reached the provider, want %d", fault, stream, n, want)
				}
			})
		}
	}
	b := newBench(t, kept)
	for _, headers := range [][]string{{}, {"Authorization: Bearer " + bob}, {"OpenAI-Beta: x"}} {
		b.call("openai", false, "Hello!", headers...)
	}
	r := b.request(t.Context(), "openai", false, "Hello!")
	r.URL.RawQuery = "api-version=2"
	b.do(r)
	b.call("openai", false, "Hello")
	if n := len(b.sim.Calls()); n != 5 {
		t.Errorf("%d calls reached the provider, want 5 that differ", n)
	}
}

// TestSharedCache: with it, callers get each other's answers.
//
// req: C8
func TestSharedCache(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(s *setup) {
		s.config.Upstreams[0].Models[0].Cache = gateway.Cache{TTL: time.Hour, Shared: true}
	})
	b.call("openai", false, "Hello!")
	if got := b.call("openai", false, "Hello!",
		"Authorization: Bearer "+bob); got.header.Get(gateway.HeaderCache) != gateway.CacheHit {
		t.Errorf("got %v, want an answer from the cache", got.header)
	}
}

// TestCacheIsBounded: the answer that was not used for longest goes first, and one that is too
// large is not kept.
//
// req: C8
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		s.options.Cache = 40_000 // an answer of 50 words takes about 1000
		s.config.Upstreams[0].Models[0].Cache = gateway.Cache{TTL: time.Hour}
	}, func(t *testing.T, b *bench) {
		prompt := func(i int) string { return fmt.Sprintf("Hello %d!\nsimulate: output=50", i) }
		for i := range 100 {
			b.call("openai", false, prompt(i))
			if got := b.step("openai", false, prompt(0)); got != "200 hit" {
				t.Fatalf("after %d calls: got %s, want the answer that is used all the time", i, got)
			}
		}
		hits := 0
		for i := 99; i >= 0; i-- { // the latest first, before others take their place
			if b.call("openai", false, prompt(i),
				gateway.HeaderTimeout+": 0").header.Get(gateway.HeaderCache) == gateway.CacheHit {
				hits++
			}
		}
		if hits > 40_000/512 || hits < 5 {
			t.Errorf("%d answers were kept in 40,000 bytes", hits)
		}
		long := "Hello!\nsimulate: output=199 size=1"
		for range 2 {
			if got := b.step("openai", true, long); !strings.Contains(got, "sent") {
				t.Errorf("an answer that is more than an eighth of the cache: got %s", got)
			}
		}
	})
}

// TestFallbacksOfAKey: a key does not get a model that it may not use.
//
// req: C8
func TestFallbacksOfAKey(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		ladder(s)
		s.config.Keys[0].Models = []string{"openai/gpt-4o"}
	}, func(t *testing.T, b *bench) {
		for i, want := range []string{"200, sent as gpt-4o", "429"} {
			if got := b.step("openai", false, fmt.Sprint("Hello ", i)); got != want {
				t.Errorf("call %d: got %s, want %s", i, got, want)
			}
		}
	})
}

// TestFallbacksThatCannotAnswer: a fallback in whose quota the call never fits, which has no price
// or which fails, is passed over: the call waits for the model that was asked for.
//
// req: C8
func TestFallbacksThatCannotAnswer(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *setup){
		"never fits": func(s *setup) { s.policies[len(s.policies)-1].Limits[1].Amount = 10 },
		"no price": func(s *setup) {
			s.config.Prices = &llm.Prices{Currency: "usd", Models: map[string]llm.Price{"gpt-4o": {
				Input:  1,
				Output: 1,
			}}}
		},
		"fails": func(*setup) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(s *setup) {
				ladder(s)
				s.options.Wait = 2 * time.Minute
				change(s)
			}, func(t *testing.T, b *bench) {
				for i := range 2 {
					if name == "fails" && i == 1 {
						if err := b.sim.Inject(simulator.Fault{Kind: simulator.FaultInternal}); err != nil {
							t.Fatal(err)
						}
					}
					if got := b.call("openai", false, fmt.Sprint("Hello ", i)); got.status != http.StatusOK ||
						got.header.Get(gateway.HeaderModel) != "" {
						t.Errorf("call %d: got %d %v %s", i, got.status, got.header, got.body)
					}
				}
			})
		})
	}
}

// TestOpenCircuitIsDegraded: while the provider fails, an older answer or another model takes its
// place too.
//
// req: C4 C8
func TestOpenCircuitIsDegraded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		ladder(s)
		s.policies[0] = generous()
		s.config.Upstreams[0].Breaker = outbound.Breaker{Failures: 2, Open: time.Hour}
	}, func(t *testing.T, b *bench) {
		b.call("openai", false, "Hello!")
		time.Sleep(2 * time.Minute)
		for range 2 {
			b.call("openai", false, "Hi!\nsimulate: fault=500")
		}
		if got := b.step("openai", false, "Hello!"); got != "200 stale" {
			t.Errorf("got %s, want the older answer", got)
		}
		if got := b.step("openai", false, "Good morning!"); got != "200 gpt-4o-mini, sent as gpt-4o-mini" {
			t.Errorf("got %s, want another model: its circuit is closed", got)
		}
	})
}

// TestProvidersRefusalIsDegraded: so is a refusal by the provider itself.
//
// req: C8
func TestProvidersRefusalIsDegraded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		ladder(s)
		s.policies[0] = generous()
	}, func(t *testing.T, b *bench) {
		for _, kind := range []simulator.FaultKind{simulator.FaultMinute, simulator.FaultOverload} {
			if err := b.sim.Inject(simulator.Fault{Kind: kind, Model: "gpt-4o"}); err != nil {
				t.Fatal(err)
			}
			if got := b.step("openai", true, "Hi!"); got != "200 gpt-4o-mini, sent as gpt-4o-mini" {
				t.Errorf("%s: got %s, want another model", kind, got)
			}
			time.Sleep(2 * time.Minute)
		}
	})
}

// TestHeadersOfAProvidersRefusal: they are about the limits of the model that was asked for, also
// if a fallback was tried in between.
//
// req: C8
func TestHeadersOfAProvidersRefusal(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		ladder(s)
		s.policies[0] = generous()
	}, func(t *testing.T, b *bench) {
		err := b.sim.Inject(simulator.Fault{Kind: simulator.FaultMinute, Model: "gpt-4o"},
			simulator.Fault{Kind: simulator.FaultInternal, Model: "gpt-4o-mini"})
		if err != nil {
			t.Fatal(err)
		}
		got := b.call("openai", false, "Hi!")
		if policy := got.header.Get("RateLimit-Policy"); got.status != http.StatusTooManyRequests ||
			len(b.sim.Calls()) != 2 || !strings.Contains(policy, "1000000") {
			t.Errorf("got %d, RateLimit-Policy %q, after %d calls; want 429, the million requests a minute of gpt-4o, and 2 calls", got.status, policy, len(b.sim.Calls()))
		}
	})
}

// TestFailedFallbackIsLogged: callers see nothing of a fallback that its upstream refuses, so the
// log names the upstream, the status and the path.
func TestFailedFallbackIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	inBubble(t, func(s *setup) {
		ladder(s)
		s.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
		wrong := s.config.Upstreams[0]
		wrong.Name, wrong.URL = "wrong", &url.URL{Scheme: "http", Host: "provider.test", Path: "/v1/nowhere"}
		wrong.Models = []gateway.Model{{Name: "*", Policy: "spare"}}
		s.config.Upstreams[0].Models[0].Fallbacks = []string{"wrong/gpt-4o-mini"}
		s.config.Upstreams = append(s.config.Upstreams, wrong)
	}, func(t *testing.T, b *bench) {
		b.call("openai", false, "Hello!")
		if got := b.call("openai", false, "Good morning!",
			"Drawgate-Timeout: 0"); got.status != http.StatusTooManyRequests {
			t.Errorf("got %d, want that of the model that was asked for", got.status)
		}
		for _, want := range []string{
			"a fallback was refused", "upstream=wrong", "status=404",
			"path=/v1/nowhere/v1/chat/completions",
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log has no %q: %s", want, log.String())
			}
		}
	})
}
