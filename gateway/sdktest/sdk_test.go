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
	{"openai-go", chat, golang, "openai.Error", "openai.Error", "openai.Error", "openai.Error", "*ssestream.StreamError", 2},
	{"openai-go responses", responses, golang, "openai.Error", "openai.Error", "openai.Error", "openai.Error", "*ssestream.StreamError", 2},
	{"anthropic-sdk-go", messages, golang, "anthropic.Error", "anthropic.Error", "anthropic.Error", "anthropic.Error", "anthropic.Error", 2},
	{"go-genai", generate, golang, "genai.APIError", "genai.APIError", "genai.APIError", "genai.APIError", "genai.APIError", 0},
	{"openai for Python", chat, python, "RateLimitError", "AuthenticationError", "InternalServerError", "InternalServerError", "APIError", 2},
	{"openai for Python responses", responses, python, "RateLimitError", "AuthenticationError", "InternalServerError", "InternalServerError", "APIError", 2},
	{"anthropic for Python", messages, python, "RateLimitError", "AuthenticationError", "InternalServerError", "OverloadedError", "APIStatusError", 2},
	{"google-genai for Python", generate, python, "ClientError", "ClientError", "ServerError", "ServerError", "ServerError", 0},
	{"openai for TypeScript", chat, typescript, "RateLimitError", "AuthenticationError", "InternalServerError", "InternalServerError", "APIError", 2},
	{"openai for TypeScript responses", responses, typescript, "RateLimitError", "AuthenticationError", "InternalServerError", "InternalServerError", "APIError", 2},
	{"anthropic for TypeScript", messages, typescript, "RateLimitError", "AuthenticationError", "InternalServerError", "OverloadedError", "APIError", 2},
	{"genai for TypeScript", generate, typescript, "ApiError", "ApiError", "ApiError", "ApiError", "ApiError", 0},
}

// scenarios are what happens to a call, and what its caller must see.
var scenarios = []struct {
	name string
	run  func(*testing.T, *sdk, client)
}{
	{"answer", testAnswer},
	{"stream", testStream},
	{"held", testHeld},
	{"refused", testRefused},
	{"comes back", testComesBack},
	{"wrong key", testWrongKey},
	{"cut", testCut},
	{"leaves", testLeaves},
	{"broken", testBroken},
	{"overloaded", testOverloaded},
	{"broken once", testBrokenOnce},
}

// TestSDKs: the official SDKs work through the gateway as they do without it, with only the base URL
// and the key changed: answers and streams, calls that wait in the queue, refusals, failures.
//
// req: C5 C7 C12
func TestSDKs(t *testing.T) {
	t.Parallel()
	for i := range sdks {
		s := &sdks[i]
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			c := s.start(t, s.operation)
			for _, sc := range scenarios {
				t.Run(sc.name, func(t *testing.T) { sc.run(t, s, c) }) // one after another: c makes one call at a time
			}
		})
	}
}

// whole is what the simulator answers with, and steer asks for it.
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
		b.Errorf("the SDK says %d and %d tokens, the provider has counted %d and %d", got.Input, got.Output, call.Input, call.Output)
	}
	want := map[string]int64{
		drawgate.UnitRequests: 1, llm.UnitInputTokens: call.Final.InputTokens, llm.UnitOutputTokens: call.Final.OutputTokens, llm.UnitTokens: call.Final.Tokens,
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

func testAnswer(t *testing.T, s *sdk, c client) {
	b := newBench(t, apis[s.operation], setup{})
	got := b.call(c, job{Prompt: steer})
	checkWhole(b, got)
	checkUsage(b, got)
}

func testStream(t *testing.T, s *sdk, c client) {
	b := newBench(t, apis[s.operation], setup{})
	got := b.call(c, job{Prompt: steer, Stream: true})
	checkWhole(b, got)
	if got.Pieces < wholeWords/2 {
		t.Errorf("the stream came in %d pieces, want as many as the provider sent", got.Pieces)
	}
	checkUsage(b, got)
}

// testHeld: a call for which there is no room waits in the queue, longer than the SDKs wait by
// themselves, and then succeeds.
func testHeld(t *testing.T, s *sdk, c client) {
	const window, long = 9 * time.Second, 8 * time.Second
	limit := drawgate.RollingLimit(drawgate.UnitRequests, 1, window)
	var b *bench
	var began time.Time
	b = newBench(t, apis[s.operation], setup{requests: &limit, arrived: func(int) {
		began = time.Now()
		b.spend(t.Context()) // from now on the window is full
	}})
	got := b.call(c, job{Prompt: steer})
	checkWhole(b, got)
	if waited := b.last().Arrived.Sub(began); waited < long {
		t.Errorf("the call was made after %v, and the quota had room only after %v", waited, window)
	}
	if n := b.sent(); n != 1 {
		t.Errorf("the SDK sent %d requests, want one that waits", n)
	}
	b.settled()
}

// testRefused: a call that would wait too long is refused at once, as the SDK's own error for that,
// which says when to come back. The SDK does not come back earlier.
func testRefused(t *testing.T, s *sdk, c client) {
	limit := drawgate.RollingLimit(drawgate.UnitRequests, 1, time.Hour)
	b := newBench(t, apis[s.operation], setup{requests: &limit})
	b.spend(t.Context())
	for _, stream := range []bool{false, true} {
		before := b.sent()
		e := b.call(c, job{Prompt: steer, Stream: stream}).Error
		if e == nil || e.Type != s.limited || e.Status != http.StatusTooManyRequests || !strings.Contains(e.Message, "requests") {
			t.Fatalf("stream %v: got %+v, want a %s", stream, e, s.limited)
		}
		if e.After <= 0 || e.After > time.Hour.Seconds() {
			t.Errorf("stream %v: the error says to come back after %v s, want up to an hour: %+v", stream, e.After, e)
		}
		if n := b.sent() - before; n != 1 {
			t.Errorf("stream %v: the SDK sent %d requests, want 1: another one is in vain", stream, n)
		}
	}
	b.settled()
	if used := b.used(); used[drawgate.UnitRequests] != 1 || used[unitMoney] != 0 || len(b.sim.Calls()) != 0 {
		t.Errorf("the refusals have cost something: %v", used)
	}
}

// testComesBack: an SDK that tries again by itself does so when it was told to, and then gets its
// answer. The others have an error that says when.
func testComesBack(t *testing.T, s *sdk, c client) {
	const window = 3 * time.Second
	limit := drawgate.RollingLimit(drawgate.UnitRequests, 1, window)
	var b *bench
	b = newBench(t, apis[s.operation], setup{requests: &limit, wait: time.Millisecond, arrived: func(n int) {
		if n == 1 {
			b.spend(t.Context())
		}
	}})
	got := b.call(c, job{Prompt: steer})
	b.settled()
	if s.retries == 0 {
		if e := got.Error; e == nil || e.Type != s.limited || e.After <= 0 || e.After > window.Seconds() {
			t.Errorf("got %+v, want a %s that says to come back", e, s.limited)
		}
		return
	}
	checkWhole(b, got)
	if n := b.sent(); n < 2 || n > 1+s.retries {
		t.Errorf("the SDK sent %d requests", n)
	}
}

func testWrongKey(t *testing.T, s *sdk, c client) {
	b := newBench(t, apis[s.operation], setup{})
	e := b.call(c, job{Prompt: steer, Key: "vk-a-guess"}).Error
	if e == nil || e.Type != s.denied || e.Status != http.StatusUnauthorized || strings.Contains(e.Message, "vk-a-guess") {
		t.Errorf("got %+v, want a %s", e, s.denied)
	}
	if n := b.sent(); n != 1 || len(b.sim.Calls()) != 0 {
		t.Errorf("the SDK sent %d requests, and %d reached the provider", n, len(b.sim.Calls()))
	}
}

// testCut: a stream that the provider breaks off is an error, and not a short answer. What came of
// it counts.
func testCut(t *testing.T, s *sdk, c client) {
	b := newBench(t, apis[s.operation], setup{})
	got := b.call(c, job{Prompt: steer + " fault=cut after=4", Stream: true})
	if e := got.Error; e == nil || e.Type != s.cut || !strings.Contains(e.Message, "was lost") {
		t.Errorf("got %+v, %+v, want a %s that says that the connection was lost", got, e, s.cut)
	}
	b.settled()
	call, used := b.last(), b.used()
	if call.Outcome != simulator.Cut || b.sent() != 1 {
		t.Errorf("the SDK sent %d requests, and the provider saw %+v", b.sent(), call)
	}
	if least := perInput*call.Input + perOutput*call.Output; used[drawgate.UnitRequests] != 1 || used[unitMoney] < least {
		t.Errorf("settled with %v, want %d %s or more, as was delivered", used, least, unitMoney)
	}
}

// testLeaves: a caller that stops reading ends the provider's answer too, and pays for what it got.
func testLeaves(t *testing.T, s *sdk, c client) {
	b := newBench(t, apis[s.operation], setup{})
	got := b.call(c, job{Prompt: "How high?\nsimulate: size=1 chunk=2ms fault=endless", Stream: true, Leave: 3, Max: 2000})
	if got.Error != nil || got.Pieces != 3 {
		t.Fatalf("got %+v, %+v", got, got.Error)
	}
	b.settled()
	b.until("the provider knows that the caller has left", func() bool { return b.last().Outcome != simulator.Running })
	call, used := b.last(), b.used()
	if call.Outcome != simulator.Left || used[drawgate.UnitRequests] != 1 || used[unitMoney] < perOutput*3 || used[unitMoney] > perInput*call.Input+perOutput*2000 {
		t.Errorf("settled with %v, and the provider saw %+v", used, call)
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
		b.Errorf("the SDK sent %d requests, the provider saw %d, and %v is settled; want %d of each", n, len(b.sim.Calls()), b.used(), 1+s.retries)
	}
	if b.used()[unitMoney] != 0 {
		b.Errorf("%v settled, want no money for failures", b.used())
	}
}

func testBroken(t *testing.T, s *sdk, c client) {
	b := newBench(t, apis[s.operation], setup{})
	checkFailure(b, s, b.call(c, job{Prompt: steer + " fault=500"}).Error, s.broken, http.StatusInternalServerError)
}

func testOverloaded(t *testing.T, s *sdk, c client) {
	b := newBench(t, apis[s.operation], setup{})
	status := http.StatusServiceUnavailable
	if s.operation == messages {
		status = 529 // Anthropic's own
	}
	checkFailure(b, s, b.call(c, job{Prompt: steer + " fault=overload"}).Error, s.overload, status)
}

// testBrokenOnce: an SDK that tries again by itself succeeds when the provider does.
func testBrokenOnce(t *testing.T, s *sdk, c client) {
	b := newBench(t, apis[s.operation], setup{})
	if err := b.sim.Inject(simulator.Fault{Kind: simulator.FaultInternal}); err != nil {
		t.Fatal(err)
	}
	got := b.call(c, job{Prompt: steer})
	if s.retries == 0 {
		checkFailure(b, s, got.Error, s.broken, http.StatusInternalServerError)
		return
	}
	checkWhole(b, got)
	b.settled()
	if used := b.used(); b.sent() != 2 || used[drawgate.UnitRequests] != 2 || used[unitMoney] != perInput*got.Input+perOutput*got.Output {
		t.Errorf("the SDK sent %d requests, and %v is settled", b.sent(), used)
	}
}
