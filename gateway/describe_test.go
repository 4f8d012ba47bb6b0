package gateway_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	wire "github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/outbound"
)

// TestUpstreams: each upstream is described with its owner, its circuit, and the policies that
// count its models; a reload shows the new ones.
//
// req: C9
func TestUpstreams(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		s.config.Upstreams = s.config.Upstreams[:2]
		u := &s.config.Upstreams[0]
		u.Owner, u.Breaker = "", outbound.Breaker{Failures: 1, Open: time.Minute}
		u.Models = []gateway.Model{
			{Name: "gpt-4o", Policy: "upstream"},
			{Name: "o3", Policy: "other"},
			{Name: "*", Policy: "upstream"},
		}
	}, func(t *testing.T, b *bench) {
		b.call("openai", false, "Hello!\nsimulate: fault=500")
		time.Sleep(time.Second)
		got := b.h.Upstreams()
		if len(got) != 2 || got[0].Name != "openai" || got[0].Owner != "openai" || got[1].Owner != "account" ||
			got[1].Provider != "anthropic" {
			t.Fatalf("got %+v", got)
		}
		want := &wire.Calls{Circuit: wire.CircuitClosed, Circuits: []wire.Circuit{{
			Model:  "gpt-4o",
			Caller: "key alice", State: wire.CircuitOpen, RetryAfterMS: 59_000,
		}}}
		if !reflect.DeepEqual(got[0].Calls, want) || got[1].Calls.Circuit != wire.CircuitClosed ||
			got[1].Calls.Circuits != nil {
			t.Errorf("got %+v and %+v, want %+v and a closed one", got[0].Calls, got[1].Calls, want)
		}
		for _, key := range []string{bob, alice} { // alice's trial fails as well: it is not hers alone
			time.Sleep(time.Minute)
			b.call("openai", false, "Hello!\nsimulate: fault=500", "Authorization: Bearer "+key)
		}
		got = b.h.Upstreams()
		if c := got[0].Calls; c.Circuit != wire.CircuitOpen || len(c.Circuits) != 3 || c.Circuits[0].Caller != "" ||
			c.Circuits[0].Model != "gpt-4o" {
			t.Errorf("got %+v, want the model's circuit open", c)
		}
		text := fmt.Sprint(got[0].Quotas)
		if want := "[{upstream [gpt-4o *] <nil> <nil>} {other [o3] <nil> <nil>}]"; text != want {
			t.Errorf("quotas %s, want %s", text, want)
		}
		if s := b.h.States(); len(s) != 2 || s[0].Upstream != "openai" || s[0].Circuit != outbound.CircuitOpen {
			t.Errorf("states %+v", s)
		}
		if err := b.h.Use(gateway.Config{}); err != nil {
			t.Fatal(err)
		}
		if got := b.h.Upstreams(); got == nil || len(got) != 0 {
			t.Errorf("after a reload without upstreams: %+v", got)
		}
	})
}

// TestAnswered: every call that a quota counts is reported once, by how it was answered, and with
// the model as the configuration names it.
//
// req: C11
func TestAnswered(t *testing.T) {
	t.Parallel()
	var got []string
	inBubble(t, func(s *setup) {
		ladder(s)
		s.options.Answered = func(upstream, model, result string) { got = append(got, upstream+" "+model+" "+result) }
		s.config.Upstreams[0].Models = append(s.config.Upstreams[0].Models,
			gateway.Model{Name: "*", Policy: "upstream"})
	}, func(t *testing.T, b *bench) {
		expect := func(want ...string) {
			t.Helper()
			for i := range want {
				want[i] = "openai " + want[i]
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			got = nil
		}
		b.call("openai", false, "Hello!")
		b.call("openai", false, "Hello!")
		b.call("openai", false, "Good morning!")
		expect("gpt-4o answered", "gpt-4o cache_hit", "gpt-4o other_model")
		b.call("openai", false, "Good evening!")
		b.call("openai", false, "Good night!", "Drawgate-Timeout: 0")
		expect("gpt-4o other_model", "gpt-4o refused")
		time.Sleep(61 * time.Second)
		b.call("openai", false, "So long!\nsimulate: fault=500")
		expect("gpt-4o error")
		b.call("openai", false, "Hello!")
		expect("gpt-4o cache_stale")
		time.Sleep(61 * time.Second)
		b.call("openai", true, "So long!\nsimulate: output=30 fault=cut after=3")
		expect("gpt-4o cut")
		time.Sleep(61 * time.Second)
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, leave)
		b.do(b.request(ctx, "openai", true, "So long!\nsimulate: output=30 chunk=1s"))
		expect("gpt-4o left")
		b.do(b.raw(t.Context(), "POST", "/openai/v1/chat/completions", "nonsense", "Authorization: Bearer "+alice))
		b.do(b.raw(t.Context(), "GET", "/openai/v1/models", "", "Authorization: Bearer "+alice))
		expect() // no quota counts these
	})
}
