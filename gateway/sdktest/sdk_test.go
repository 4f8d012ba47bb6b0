package sdktest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
)

// sdk is an official SDK, and what its errors are called.
type sdk struct {
	name      string
	operation string
	start     func(*testing.T, string) client
	limited   string // a quota is exhausted
	denied    string // the key is wrong
	broken    string // 500
	overload  string // the provider is overloaded
	cut       string // a stream breaks off
	retries   int    // how often it tries again by itself
}

var sdks = []sdk{
	{
		"openai-go", chat, golang, "openai.Error", "openai.Error", "openai.Error", "openai.Error",
		"*ssestream.StreamError", 2,
	},
	{
		"openai-go responses", responses, golang, "openai.Error", "openai.Error", "openai.Error", "openai.Error",
		"*ssestream.StreamError", 2,
	},
	{
		"anthropic-sdk-go", messages, golang, "anthropic.Error", "anthropic.Error", "anthropic.Error",
		"anthropic.Error",
		"anthropic.Error", 2,
	},
	{
		"go-genai", generate, golang, "genai.APIError", "genai.APIError", "genai.APIError", "genai.APIError",
		"genai.APIError", 0,
	},
	{
		"openai for Python", chat, python, "RateLimitError", "AuthenticationError", "InternalServerError",
		"InternalServerError", "APIError", 2,
	},
	{
		"openai for Python responses", responses, python, "RateLimitError", "AuthenticationError",
		"InternalServerError",
		"InternalServerError", "APIError", 2,
	},
	{
		"anthropic for Python", messages, python, "RateLimitError", "AuthenticationError", "InternalServerError",
		"OverloadedError", "APIStatusError", 2,
	},
	{
		"google-genai for Python", generate, python, "ClientError", "ClientError", "ServerError", "ServerError",
		"ServerError", 0,
	},
	{
		"openai for TypeScript", chat, typescript, "RateLimitError", "AuthenticationError", "InternalServerError",
		"InternalServerError", "APIError", 2,
	},
	{
		"openai for TypeScript responses", responses, typescript, "RateLimitError", "AuthenticationError",
		"InternalServerError", "InternalServerError", "APIError", 2,
	},
	{
		"anthropic for TypeScript", messages, typescript, "RateLimitError", "AuthenticationError",
		"InternalServerError",
		"OverloadedError", "APIError", 2,
	},
	{"genai for TypeScript", generate, typescript, "ApiError", "ApiError", "ApiError", "ApiError", "ApiError", 0},
}

// trial is one scenario with one SDK.
type trial struct {
	*testing.T
	*sdk
	client client
	api    *api // nil: that of the operation
}

func (x *trial) bench(s setup) *bench {
	x.Helper()
	if x.api != nil {
		return newBench(x.T, *x.api, s)
	}
	return newBench(x.T, apis[x.operation], s)
}

// scenarios are what happens to a call, and what its caller must see.
var scenarios = []struct {
	name string
	run  func(*trial)
}{
	{"answer", (*trial).answer},
	{"stream", (*trial).stream},
	{"alias", (*trial).alias},
	{"held", (*trial).held},
	{"refused", (*trial).refused},
	{"comes back", (*trial).comesBack},
	{"wrong key", (*trial).wrongKey},
	{"cut", (*trial).cutOff},
	{"leaves", (*trial).leaves},
	{"broken", (*trial).failing},
	{"overloaded", (*trial).overloaded},
	{"broken once", (*trial).failingOnce},
}

// TestSDKs: the official SDKs work through the gateway as they do without it, with only the base
// URL and the key changed: answers and streams, calls that wait in the queue, refusals, failures.
//
// req: C5 C7 C8
func TestSDKs(t *testing.T) {
	t.Parallel()
	for i := range sdks {
		s := &sdks[i]
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			c := s.start(t, s.operation)
			for _, sc := range scenarios {
				t.Run(sc.name, func(t *testing.T) { sc.run(&trial{t, s, c, nil}) }) // c makes one call at a time
			}
		})
	}
}

// steer asks the simulator for an answer, and wholeWords is how many words and tokens that has.
const (
	steer      = "How high is the water?\nsimulate: output=30 size=2"
	wholeWords = 30
)

// checkUsage: what the SDK says was used is what the provider has counted, and what the gateway has
// settled.
func checkUsage(b *bench, got *result) {
	b.Helper()
	b.settled()
	call, used := b.last(), b.used()
	if call.Outcome != simulator.Answered || call.Key != "account" || len(b.sim.Calls()) != 1 {
		b.Errorf("the provider saw %+v", b.sim.Calls())
	}
	if got.Input != call.Input || got.Output != call.Output || got.Output != wholeWords {
		b.Errorf("the SDK says %d and %d tokens, the provider has counted %d and %d", got.Input, got.Output, call.Input,
			call.Output)
	}
	want := map[string]int64{
		drawgate.UnitRequests: 1, llm.UnitInputTokens: call.Final.InputTokens,
		llm.UnitOutputTokens: call.Final.OutputTokens, llm.UnitTokens: call.Final.Tokens,
		unitMoney: perInput*got.Input + perOutput*got.Output,
	}
	for unit, n := range used {
		if n != want[unit] {
			b.Errorf("%d %s are settled, want %d: %+v", n, unit, want[unit], call)
		}
	}
}

// checkWhole: the answer is the provider's, to its last word.
func checkWhole(b *bench, got *result) {
	b.Helper()
	if got.Error != nil || len(strings.Fields(got.Text)) != wholeWords {
		b.Fatalf("got %+v, %+v", got, got.Error)
	}
}

func (x *trial) answer() {
	b := x.bench(setup{})
	got := b.call(x.client, job{Prompt: steer})
	checkWhole(b, got)
	checkUsage(b, got)
}

func (x *trial) stream() {
	b := x.bench(setup{})
	got := b.call(x.client, job{Prompt: steer, Stream: true})
	checkWhole(b, got)
	if got.Pieces < wholeWords/2 {
		x.Errorf("the stream came in %d pieces, want as many as the provider sent", got.Pieces)
	}
	checkUsage(b, got)
}

// alias: a name that the gateway gives to a model works as the model's own.
func (x *trial) alias() {
	for _, stream := range []bool{false, true} {
		b := x.bench(setup{})
		got := b.call(x.client, job{Prompt: steer, Stream: stream, Model: alias})
		checkWhole(b, got)
		checkUsage(b, got)
		if model := b.last().Model; model != b.api.model {
			x.Errorf("stream %v: the provider got a call of %s, want %s", stream, model, b.api.model)
		}
	}
}

// held: a call for which there is no room waits in the queue, longer than the SDKs wait by
// themselves, and then succeeds.
func (x *trial) held() {
	const window, long = 9 * time.Second, 8 * time.Second
	limit := drawgate.RollingLimit(drawgate.UnitRequests, 1, window)
	var b *bench
	var began time.Time
	b = x.bench(setup{requests: &limit, arrived: func(int) {
		began = time.Now()
		b.spend(x.Context()) // from now on the window is full
	}})
	got := b.call(x.client, job{Prompt: steer})
	checkWhole(b, got)
	if waited := b.last().Arrived.Sub(began); waited < long {
		x.Errorf("the call was made after %v, and the quota had room only after %v", waited, window)
	}
	if n := b.sent(); n != 1 {
		x.Errorf("the SDK sent %d requests, want one that waits", n)
	}
	b.settled()
}

// refused: a call that would wait too long is refused at once, as the SDK's own error for that,
// which says when to come back. The SDK does not come back earlier.
func (x *trial) refused() {
	limit := drawgate.RollingLimit(drawgate.UnitRequests, 1, time.Hour)
	b := x.bench(setup{requests: &limit})
	b.spend(x.Context())
	for _, stream := range []bool{false, true} {
		before := b.sent()
		e := b.call(x.client, job{Prompt: steer, Stream: stream}).Error
		if e == nil || e.Type != x.limited || e.Status != http.StatusTooManyRequests ||
			!strings.Contains(e.Message, "requests") {
			x.Fatalf("stream %v: got %+v, want a %s", stream, e, x.limited)
		}
		if e.After <= 0 || e.After > time.Hour.Seconds() {
			x.Errorf("stream %v: the error says to come back after %v s, want up to an hour: %+v", stream, e.After, e)
		}
		if n := b.sent() - before; n != 1 {
			x.Errorf("stream %v: the SDK sent %d requests, want 1: another one is in vain", stream, n)
		}
	}
	b.settled()
	if used := b.used(); used[drawgate.UnitRequests] != 1 || used[unitMoney] != 0 || len(b.sim.Calls()) != 0 {
		x.Errorf("the refusals have cost something: %v", used)
	}
}

// comesBack: an SDK that tries again by itself does so when it was told to, and then gets its
// answer. The others have an error that says when.
func (x *trial) comesBack() {
	window := 3 * time.Second
	if x.retries == 0 {
		window = time.Hour
	}
	limit := drawgate.RollingLimit(drawgate.UnitRequests, 1, window)
	var b *bench
	var began time.Time
	b = x.bench(setup{requests: &limit, wait: time.Millisecond, arrived: func(n int) {
		if n == 1 {
			began = time.Now()
			b.spend(x.Context())
		}
	}})
	got := b.call(x.client, job{Prompt: steer})
	b.settled()
	if x.retries == 0 {
		if e := got.Error; e == nil || e.Type != x.limited || e.After <= 0 || e.After > window.Seconds() ||
			b.sent() != 1 {
			x.Errorf("got %+v after %d requests, want a %s that says when to come back", e, b.sent(), x.limited)
		}
		return
	}
	checkWhole(b, got)
	if after := b.last().Arrived.Sub(began); after < window {
		x.Errorf("the call was made after %v, and the quota had room only after %v", after, window)
	}
	if n := b.sent(); n > 1+x.retries {
		x.Errorf("the SDK sent %d requests, want at most %d", n, 1+x.retries)
	}
}

func (x *trial) wrongKey() {
	b := x.bench(setup{})
	e := b.call(x.client, job{Prompt: steer, Key: "vk-a-guess"}).Error
	if e == nil || e.Type != x.denied || e.Status != http.StatusUnauthorized ||
		strings.Contains(e.Message, "vk-a-guess") {
		x.Errorf("got %+v, want a %s", e, x.denied)
	}
	if n := b.sent(); n != 1 || len(b.sim.Calls()) != 0 {
		x.Errorf("the SDK sent %d requests, and %d reached the provider", n, len(b.sim.Calls()))
	}
}

// cutOff: a stream that the provider breaks off is an error, and not a short answer. What came of
// it counts.
func (x *trial) cutOff() {
	b := x.bench(setup{})
	got := b.call(x.client, job{Prompt: steer + " fault=cut after=4", Stream: true})
	if e := got.Error; e == nil || e.Type != x.cut || !strings.Contains(e.Message, "was lost") {
		x.Errorf("got %+v, %+v, want a %s that says that the connection was lost", got, e, x.cut)
	}
	b.settled()
	call, used := b.last(), b.used()
	if call.Outcome != simulator.Cut || b.sent() != 1 {
		x.Errorf("the SDK sent %d requests, and the provider saw %+v", b.sent(), call)
	}
	if least := perInput*call.Input + perOutput*call.Output; used[drawgate.UnitRequests] != 1 ||
		used[unitMoney] < least {
		x.Errorf("settled with %v, want %d %s or more, as was delivered", used, least, unitMoney)
	}
}

// leaves: a caller that stops reading ends the provider's answer too, and pays for what it got.
func (x *trial) leaves() {
	b := x.bench(setup{})
	got := b.call(x.client, job{
		Prompt: "How high?\nsimulate: size=1 chunk=2ms fault=endless", Stream: true, Leave: 3,
		Max: 2000,
	})
	if got.Error != nil || got.Pieces != 3 {
		x.Fatalf("got %+v, %+v", got, got.Error)
	}
	b.settled()
	call, used := b.last(), b.used()
	if call.Outcome != simulator.Left || used[drawgate.UnitRequests] != 1 || used[unitMoney] < perOutput*3 ||
		used[unitMoney] > perInput*call.Input+perOutput*2000 {
		x.Errorf("settled with %v, and the provider saw %+v", used, call)
	}
}

// checkFailure: a failure of the provider is the SDK's own error for it, after as many attempts as
// the SDK makes by itself.
func checkFailure(b *bench, s *sdk, e *failure, kind string, status int) {
	b.Helper()
	if e == nil || e.Type != kind || e.Status != status {
		b.Errorf("got %+v, want a %s with status %d", e, kind, status)
	}
	b.settled()
	if n := b.sent(); n != 1+s.retries || len(b.sim.Calls()) != n || b.used()[drawgate.UnitRequests] != int64(n) {
		b.Errorf("the SDK sent %d requests, the provider saw %d, and %v is settled; want %d of each", n,
			len(b.sim.Calls()), b.used(), 1+s.retries)
	}
	if b.used()[unitMoney] != 0 {
		b.Errorf("%v settled, want no money for failures", b.used())
	}
}

func (x *trial) failing() {
	b := x.bench(setup{})
	checkFailure(b, x.sdk, b.call(x.client, job{Prompt: steer + " fault=500"}).Error, x.broken,
		http.StatusInternalServerError)
}

func (x *trial) overloaded() {
	b := x.bench(setup{})
	status := http.StatusServiceUnavailable
	if x.operation == messages {
		status = 529 // Anthropic's own
	}
	checkFailure(b, x.sdk, b.call(x.client, job{Prompt: steer + " fault=overload"}).Error, x.overload, status)
}

// failingOnce: an SDK that tries again by itself succeeds when the provider does.
func (x *trial) failingOnce() {
	b := x.bench(setup{})
	if err := b.sim.Inject(simulator.Fault{Kind: simulator.FaultInternal}); err != nil {
		x.Fatal(err)
	}
	got := b.call(x.client, job{Prompt: steer})
	if x.retries == 0 {
		checkFailure(b, x.sdk, got.Error, x.broken, http.StatusInternalServerError)
		return
	}
	checkWhole(b, got)
	b.settled()
	if used := b.used(); b.sent() != 2 || used[drawgate.UnitRequests] != 2 ||
		used[unitMoney] != perInput*got.Input+perOutput*got.Output {
		x.Errorf("the SDK sent %d requests, and %v is settled", b.sent(), used)
	}
}
