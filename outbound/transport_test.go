package outbound_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/memstore"
)

// api is how calls to one provider are written.
type api struct {
	profile func() *llm.Profile
	model   string
	path    string
	stream  string // path of a stream
	body    string // of a call; %s is the prompt
	more    string // what makes it a stream
}

var apis = withLike(map[string]api{
	"openai chat": {
		llm.OpenAI, "gpt-4o", "/v1/chat/completions", "/v1/chat/completions",
		`{"model":"gpt-4o","max_tokens":100,"messages":[{"role":"user","content":%q}]%s}`,
		`,"stream":true,"stream_options":{"include_usage":true}`,
	},
	"openai responses": {
		llm.OpenAI, "gpt-4o", "/v1/responses", "/v1/responses",
		`{"model":"gpt-4o","max_output_tokens":100,"input":%q%s}`, `,"stream":true`,
	},
	"anthropic": {
		llm.Anthropic, "claude-sonnet-4-5", "/v1/messages", "/v1/messages",
		`{"model":"claude-sonnet-4-5","max_tokens":100,"messages":[{"role":"user","content":%q}]%s}`, `,"stream":true`,
	},
	"gemini": {
		llm.Gemini, "gemini-2.5-flash", "/v1beta/models/gemini-2.5-flash:generateContent",
		"/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
		`{"contents":[{"role":"user","parts":[{"text":%q}]}],"generationConfig":{"maxOutputTokens":100}%s}`, ``,
	},
})

// withLike adds those whose API is OpenAI's with differences.
func withLike(apis map[string]api) map[string]api {
	for _, name := range []string{"xai", "mistral", "deepseek", "groq", "together", "vllm", "ollama"} {
		a := apis["openai chat"]
		a.profile = func() *llm.Profile {
			p, _ := llm.ByName(name)
			return p
		}
		if slices.Contains([]string{"mistral", "groq", "together"}, name) { // its streams tell their usage
			a.more = `,"stream":true`
		}
		a.path = map[bool]string{true: "/groq/openai", false: "/" + name}[name == "groq"] + a.path
		a.stream = a.path
		apis[name] = a
	}
	return apis
}

// Each provider has a call here.
func TestEachProvider(t *testing.T) {
	t.Parallel()
	for _, name := range llm.Names() {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(apis)), func(api string) bool {
			provider, _, _ := strings.Cut(api, " ")
			return provider == name
		}) {
			t.Errorf("there is no call of %s: add one to apis", name)
		}
	}
}

// request writes a call.
func (a *api) request(ctx context.Context, t *testing.T, stream bool, prompt string) *http.Request {
	t.Helper()
	path, more := a.path, ""
	if stream {
		path, more = a.stream, a.more
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://upstream.test"+path,
		strings.NewReader(fmt.Sprintf(a.body, prompt, more)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	return req
}

// units is a policy that counts everything that profiles do, generously.
func units(name string) drawgate.Policy {
	p := drawgate.Policy{Name: name, Limits: []drawgate.Limit{drawgate.RollingLimit("rpm", 1000, time.Minute)}}
	for _, u := range []string{llm.UnitTokens, llm.UnitInputTokens, llm.UnitOutputTokens} {
		p.Limits = append(p.Limits, drawgate.RollingLimit(u, 1_000_000, time.Minute).Of(u))
	}
	return p
}

// bench is a client of one provider, against the simulator.
type bench struct {
	*testing.T
	api    api
	sim    *simulator.Server
	store  *memstore.Store
	lim    *drawgate.Limiter
	client *outbound.Client
	rt     *outbound.Transport
	events []outbound.Event

	circuits []string // what the circuit became
}

// newBench makes one. base stands between the transport and the simulator; nil is nothing.
func newBench(t *testing.T, name string, p *drawgate.Policy, o outbound.Options,
	base func(http.RoundTripper) http.RoundTripper,
) *bench {
	t.Helper()
	b := &bench{T: t, api: apis[name], store: memstore.New(nil)}
	t.Cleanup(func() { b.store.Close() })
	var err error
	if b.sim, err = simulator.New(nil); err != nil {
		t.Fatal(err)
	}
	profile := b.api.profile()
	if p == nil {
		all := units(profile.Family(b.api.model).Name)
		p = &all
	}
	b.lim = b.limiter(*p)
	o.Observer = &outbound.Observer{
		Called:  func(e *outbound.Event) { b.events = append(b.events, *e) },
		Circuit: func(_ string, c *outbound.Circuit) { b.circuits = append(b.circuits, c.State) },
	}
	b.client = outbound.New(outbound.PerModel("project", b.lim), &o)
	to := &outbound.TransportOptions{Base: b.sim.Transport()}
	if base != nil {
		to.Base = base(to.Base)
	}
	b.rt = outbound.NewTransport(b.client, profile, to)
	return b
}

func (b *bench) limiter(p drawgate.Policy) *drawgate.Limiter {
	b.Helper()
	l, err := drawgate.New(b.store, p, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return l
}

// call makes a call and reads its answer.
func (b *bench) call(ctx context.Context, stream bool, prompt string) (status int, text string, err error) {
	b.Helper()
	resp, err := b.rt.RoundTrip(b.api.request(ctx, b.T, stream, prompt))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// last returns what was observed last.
func (b *bench) last() outbound.Event {
	b.Helper()
	if len(b.events) == 0 {
		b.Fatal("nothing was observed")
	}
	return b.events[len(b.events)-1]
}

// admitted returns how many calls the provider let pass.
func (b *bench) admitted() (n int) {
	for _, c := range b.sim.Calls() {
		if c.Admitted {
			n++
		}
	}
	return n
}

// nothingHeld reports holds that are open.
func (b *bench) nothingHeld() {
	b.Helper()
	st, err := b.lim.Status(b.Context(), "project", drawgate.Requests(0))
	if err != nil || st.Open != 0 || b.client.UnderWay() != 0 {
		b.Errorf("%d holds are open, %d calls under way, %v", st.Open, b.client.UnderWay(), err)
	}
}

// TestWhatWasUsedIsSettled: of each API, streamed or not, the quota counts what the provider
// counts.
//
// req: C5 C9
func TestWhatWasUsedIsSettled(t *testing.T) {
	t.Parallel()
	for name := range apis {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s stream=%v", name, stream), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, name, nil, outbound.Options{}, nil)
					status, text, err := b.call(t.Context(), stream, "Say something.\nsimulate: output=40 chunk=1s")
					if status != http.StatusOK || err != nil || text == "" {
						t.Fatalf("%d, %v", status, err)
					}
					e := b.last()
					if e.Outcome != outbound.Succeeded || !e.Usage.Final {
						t.Fatalf("%v, %v, usage %+v", e.Outcome, e.Err, e.Usage)
					}
					call := b.sim.Calls()[0]
					if e.Usage.Input != call.Input || e.Usage.Output != call.Output {
						t.Errorf("%d and %d tokens, the provider says %d and %d", e.Usage.Input, e.Usage.Output,
							call.Input, call.Output)
					}
					want := map[string]int64{
						"requests": call.Final.Requests, llm.UnitTokens: call.Final.Tokens,
						llm.UnitInputTokens: call.Final.InputTokens, llm.UnitOutputTokens: call.Final.OutputTokens,
					}
					for _, c := range e.Used {
						if c.N < want[c.Unit] || c.Unit != llm.UnitTokens && c.N > want[c.Unit] {
							t.Errorf("settled with %d %s, the provider counts %d", c.N, c.Unit, want[c.Unit])
						}
					}
					b.nothingHeld()
				})
			})
		}
	}
}

// TestLateCallsAreNotSent: a call that would reach the provider after its limits' margin is given
// back; what the provider sees is always within.
//
// req: C1
func TestLateCallsAreNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := drawgate.RollingLimit("rpm", 10, time.Minute)
		limit.Margin = 2 * time.Second
		slow := []time.Duration{3 * time.Second, time.Second}
		b := newBench(t, "gemini", &drawgate.Policy{Name: "gemini-2.5-flash", Limits: []drawgate.Limit{limit}},
			outbound.Options{}, func(rt http.RoundTripper) http.RoundTripper {
				return roundTrip(func(r *http.Request) (*http.Response, error) {
					time.Sleep(slow[0]) // until there is a connection
					if len(slow) > 1 {
						slow = slow[1:]
					}
					return rt.RoundTrip(r)
				})
			})
		if status, _, err := b.call(t.Context(), false, "x"); status != http.StatusOK || err != nil {
			t.Fatalf("%d, %v", status, err)
		}
		if n := b.admitted(); n != 1 || len(b.events) != 2 || b.events[0].Outcome != outbound.GaveUp {
			t.Errorf("the provider admitted %d calls, and %d were made, the first %v", n, len(b.events),
				b.events[0].Outcome)
		}
		wantUsed(t, b.lim, "one was given back", 1)
		slow = []time.Duration{3 * time.Second}
		if _, _, err := b.call(t.Context(), false, "x"); err == nil || b.admitted() != 1 {
			t.Errorf("%v; the provider admitted %d calls", err, b.admitted())
		}
		wantUsed(t, b.lim, "all were given back", 1)
		b.nothingHeld()
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestFaults: whatever goes wrong, the call ends as what it was, nothing stays held, and what may
// have been used counts.
//
// req: C4
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault   simulator.Fault
		stream  bool
		outcome outbound.Outcome
	}{
		{simulator.Fault{Kind: simulator.FaultLatency, Delay: time.Minute}, false, outbound.Succeeded},
		{simulator.Fault{Kind: simulator.FaultMinute}, false, outbound.Refused},
		{simulator.Fault{Kind: simulator.FaultDay}, true, outbound.Refused},
		{simulator.Fault{Kind: simulator.FaultOverload}, false, outbound.Failed},
		{simulator.Fault{Kind: simulator.FaultInternal}, true, outbound.Failed},
		{simulator.Fault{Kind: simulator.FaultBadGateway}, false, outbound.Failed},
		{simulator.Fault{Kind: simulator.FaultClose}, true, outbound.Failed},
		{simulator.Fault{Kind: simulator.FaultCut, After: 2}, true, outbound.Failed},
		{simulator.Fault{Kind: simulator.FaultCut}, false, outbound.Failed},
		{simulator.Fault{Kind: simulator.FaultErrorEvent, After: 2}, true, outbound.Failed},
		{simulator.Fault{Kind: simulator.FaultStall, After: 2, Delay: time.Minute}, true, outbound.Succeeded},
		{simulator.Fault{Kind: simulator.FaultNoUsage}, true, outbound.Succeeded},
		{simulator.Fault{Kind: simulator.FaultNoUsage}, false, outbound.Succeeded},
		{simulator.Fault{Kind: simulator.FaultGzip}, false, outbound.Succeeded},
	} {
		for name := range apis {
			t.Run(fmt.Sprintf("%s %s stream=%v", c.fault.Kind, name, c.stream), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, name, nil, outbound.Options{}, nil)
					if err := b.sim.Inject(c.fault); err != nil {
						t.Fatal(err)
					}
					b.call(t.Context(), c.stream, "Say something.\nsimulate: output=40")
					e := b.last()
					if e.Outcome != c.outcome {
						t.Fatalf("%v (%v, %+v), want %v", e.Outcome, e.Err, e.Refusal, c.outcome)
					}
					call := b.sim.Calls()[0]
					for _, u := range e.Used {
						if u.Unit == "requests" && u.N < call.Final.Requests ||
							u.Unit == llm.UnitInputTokens && u.N < call.Final.InputTokens ||
							u.Unit == llm.UnitTokens && u.N < call.Final.Tokens ||
							u.Unit == llm.UnitOutputTokens && u.N < call.Delivered {
							t.Errorf("settled with %v, the provider counts %+v and has delivered %d tokens", e.Used,
								call.Final, call.Delivered)
						}
					}
					b.nothingHeld()
				})
			})
		}
	}
}

// TestCallersWhoLeave: a stream that is closed early is settled with what was delivered, and ends
// at the provider.
//
// req: C5
func TestCallersWhoLeave(t *testing.T) {
	t.Parallel()
	for name := range apis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, name, nil, outbound.Options{Hold: time.Second}, nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				resp, err := b.rt.RoundTrip(b.api.request(ctx, t, true,
					"Say something.\nsimulate: output=90 chunk=10s size=1"))
				if err != nil {
					t.Fatal(err)
				}
				io.ReadFull(resp.Body, make([]byte, 2500))
				if name != "openai chat" { // how the caller leaves makes no difference
					cancel()
				}
				resp.Body.Close()
				synctest.Wait()
				call, e := b.sim.Calls()[0], b.last()
				if call.Outcome != simulator.Left || e.Outcome != outbound.GaveUp || call.Delivered == 0 ||
					call.Delivered > 80 {
					t.Fatalf("the call is %s at the provider after %d tokens, and %v here", call.Outcome,
						call.Delivered, e.Outcome)
				}
				for _, u := range e.Used {
					if u.Unit == llm.UnitOutputTokens && (u.N < call.Delivered || u.N > 100*call.Delivered) {
						t.Errorf("settled with %d output tokens, %d were delivered", u.N, call.Delivered)
					}
				}
				b.nothingHeld()
			})
		})
	}
}

// TestDayLimitStaysClosed: a limit per day stays closed in every process until the day ends in the
// provider's zone, whatever the provider's hint says.
//
// req: A14 C1
func TestDayLimitStaysClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "gemini", nil, outbound.Options{}, nil)
		other := outbound.NewTransport(outbound.New(outbound.PerModel("project", b.limiter(units("gemini-2.5-flash"))),
			nil), llm.Gemini(), &outbound.TransportOptions{Base: b.sim.Transport()})
		b.sim.Inject(simulator.Fault{Kind: simulator.FaultDay})
		if status, text, _ := b.call(t.Context(), false, "x"); status != http.StatusTooManyRequests ||
			!strings.Contains(text, "RESOURCE_EXHAUSTED") {
			t.Fatalf("%d %s", status, text)
		}
		zone, err := time.LoadLocation("America/Los_Angeles")
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now().In(zone)
		midnight := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, zone)
		resp, err := other.RoundTrip(b.api.request(t.Context(), t, false, "x"))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(err)
		}
		resp.Body.Close()
		if late := time.Since(midnight); late < 0 || late > time.Minute {
			t.Errorf("the next call was made %v after midnight in California", late)
		}
	})
}

// TestRefusedCallsAreTriedAgain: with retries a caller sees the answer, not the refusal, and the
// prompt arrives whole each time.
//
// req: C1 C8
func TestRefusedCallsAreTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "openai chat", nil, outbound.Options{Retries: 3}, nil)
		b.sim.Inject(simulator.Fault{Kind: simulator.FaultMinute}, simulator.Fault{Kind: simulator.FaultInternal},
			simulator.Fault{Kind: simulator.FaultClose})
		status, _, err := b.call(t.Context(), true, "x\nsimulate: output=7")
		if status != http.StatusOK || err != nil {
			t.Fatalf("%d, %v", status, err)
		}
		calls := b.sim.Calls()
		if len(calls) != 4 || calls[3].Output != 7 || calls[0].Input != calls[3].Input {
			t.Errorf("%+v", calls)
		}
		b.nothingHeld()
	})
}

// TestBodiesAreBounded: what is too large to be read is an error, and nothing is taken or sent.
func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "openai chat", nil, outbound.Options{}, nil)
		rt := outbound.NewTransport(b.client, llm.OpenAI(), &outbound.TransportOptions{
			Base:    b.sim.Transport(),
			MaxBody: 1000,
		})
		for _, known := range []bool{true, false} {
			req := b.api.request(t.Context(), t, false, strings.Repeat("long ", 1000))
			if !known {
				req.ContentLength = -1
			}
			if err := fails(rt, req); !errors.Is(err, outbound.ErrTooLarge) {
				t.Errorf("length known %v: %v", known, err)
			}
		}
		req := b.api.request(t.Context(), t, false, "x")
		req.Body = io.NopCloser(bytes.NewReader([]byte(`{"model":"gpt-4o","max_tokens":`)))
		if fails(rt, req) == nil {
			t.Error("a body that is no JSON was sent")
		}
		if n := len(b.sim.Calls()); n != 0 {
			t.Errorf("%d calls were made", n)
		}
		wantUsed(t, b.lim, "nothing was sent", 0, 0, 0, 0)
	})
}

// fails makes a call that must not get an answer.
func fails(rt http.RoundTripper, req *http.Request) error {
	resp, err := rt.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// TestModelsOfAFamilyShareTheirLimits: what the provider counts together is one bucket.
func TestModelsOfAFamilyShareTheirLimits(t *testing.T) {
	t.Parallel()
	p := llm.Anthropic()
	a, b := p.Family("claude-sonnet-4-5").Name, p.Family("claude-sonnet-4-20250514").Name
	if a != b || slices.Contains([]string{"claude-sonnet-4-5", ""}, a) {
		t.Errorf("families %q and %q", a, b)
	}
}

// TestThousandCallersWhoLeave: callers leave at random points of their streams. Nothing stays held,
// and at least what they were delivered counts. A goroutine that stayed would fail the bubble.
func TestThousandCallersWhoLeave(t *testing.T) {
	t.Parallel()
	callers := needs.Rounds(60, 250, 250) // of each API
	for name := range apis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(1, 2))
				b := newBench(t, name, new(units(apis[name].profile().Family(apis[name].model).Name)),
					outbound.Options{Hold: time.Second, Breaker: outbound.Breaker{Failures: -1}}, nil)
				for range callers {
					leave(b, random.IntN(30_000), time.Duration(random.IntN(6000))*time.Millisecond,
						random.IntN(2) == 0)
				}
				synctest.Wait()
				calls := b.sim.Calls()
				if len(calls) != callers || len(b.events) != callers {
					t.Fatalf("%d calls at the provider, %d ended here; want %d", len(calls), len(b.events), callers)
				}
				left := 0
				for i, call := range calls {
					if call.Outcome == simulator.Left {
						left++
					}
					for _, u := range b.events[i].Used {
						if u.Unit == llm.UnitOutputTokens && u.N < call.Delivered {
							t.Errorf("call %d: settled with %d output tokens, %d were delivered", i, u.N,
								call.Delivered)
						}
					}
				}
				if left < callers/5 || left == callers {
					t.Errorf("%d of %d callers left early", left, callers)
				}
				b.nothingHeld()
			})
		})
	}
}

// leave makes a stream and leaves it after some bytes or some time.
func leave(b *bench, bytes int, after time.Duration, cancels bool) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	if cancels {
		time.AfterFunc(after, cancel)
	}
	resp, err := b.rt.RoundTrip(b.api.request(ctx, b.T, true, "Say something.\nsimulate: output=60 chunk=100ms size=2"))
	if err != nil {
		return // it left before the answer began
	}
	io.ReadFull(resp.Body, make([]byte, bytes))
	resp.Body.Close()
}
