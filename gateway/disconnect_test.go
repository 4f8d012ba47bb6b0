package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/outbound"
)

// ways are how callers leave: by closing the connection as an HTTP client does that gives up, by
// closing it themselves, or by resetting it.
var ways = []string{"cancel", "close", "reset"}

// TestThousandDisconnects: callers leave at random points of their streams. Nothing stays held, no
// goroutine stays, and each call is charged for what was delivered until then: at least what its
// caller got and what the provider's usage says of it, and not all that it had reserved.
//
// req: C1 D12
func TestThousandDisconnects(t *testing.T) { // not parallel: it counts goroutines
	const atOnce = 20
	calls := needs.Rounds(200, 300, 1000)
	before := goroutines()
	b := newBench(t, func(s *setup) {
		s.policies = append(s.policies, hourly(), drawgate.Policy{Name: "caller", Limits: []drawgate.Limit{
			drawgate.ConcurrencyLimit("running", 1), drawgate.RollingLimit("output", reservedWords,
				time.Hour).Of("usd_micros"),
		}})
		s.rules = callerRule(`header("X-Call")`)
		s.config.Prices = &llm.Prices{Currency: "usd", Models: map[string]llm.Price{}}
		for _, a := range apis { // a token of output costs one millionth
			s.config.Prices.Models[a.model] = llm.Price{Output: 1_000_000}
		}
	})
	random := rand.New(rand.NewPCG(1, 2))
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(apis)), func(name string) bool {
		return slices.Contains(like, name) // any of their models may reason: what was reserved stands
	})
	jobs := make(chan [2]int)
	got := make([]int, calls) // words, by call
	var group sync.WaitGroup
	for range atOnce {
		group.Go(func() {
			for job := range jobs {
				name, header := names[job[0]%len(names)], fmt.Sprintf("X-Call: %d", job[0])
				got[job[0]] = words(name, b.leave(name, ways[job[0]%len(ways)], job[1], header))
			}
		})
	}
	for i := range calls {
		jobs <- [2]int{i, random.IntN(6000)} // a stream of 40 words has 2,000 to 9,000 bytes
	}
	close(jobs)
	group.Wait()
	b.settled()
	b.until("the provider knows who has left", func() bool {
		return !slices.ContainsFunc(b.sim.Calls(),
			func(c simulator.Call) bool { return c.Outcome == simulator.Running })
	})
	b.charged(calls)
	b.chargedEach(got)
	b.server.Close()
	b.behind.Close()
	b.h.Close()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	b.until("all goroutines have ended", func() bool { return goroutines() <= before })
}

// reservedWords is what the calls of the tests reserve for their answers: max_tokens in apis.
const reservedWords = 200

// words returns how many words are in the whole events of a part of a stream.
func words(name, stream string) int {
	return len(regexp.MustCompile(apis[name].word).FindAllString(stream[:strings.LastIndex(stream, "\n\n")+1], -1))
}

// chargedEach checks each call by what its caller got of it, in words.
func (b *bench) chargedEach(got []int) {
	b.Helper()
	below := 0
	for i, least := range got {
		st := b.status("caller", strconv.Itoa(i))
		running, output := st.States[0].Used, st.States[1].Used
		if running != 0 || st.Open != 0 {
			b.Errorf("call %d: %d slots and %d holds are open", i, running, st.Open)
		}
		if output < int64(least) || output > reservedWords {
			b.Errorf("call %d: %d tokens of output are charged; its caller got %d of at most %d", i, output, least,
				reservedWords)
		}
		if least > 0 && output < reservedWords {
			below++
		}
	}
	if st := b.status("upstream", "account"); st.Open != 0 {
		b.Errorf("%d holds of the quota are open", st.Open)
	}
	if below < len(got)/2 {
		b.Errorf("%d of %d calls that were left got some back, want most", below, len(got))
	}
}

// leave makes a call and leaves after so many bytes of its stream, with few perhaps before it
// begins. It returns what it got.
func (b *bench) leave(name, way string, bytes int, headers ...string) string {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	r := b.request(ctx, name, true, "Hello!\nsimulate: output=40 size=1 chunk=2ms", headers...)
	if way != "cancel" {
		return b.drop(r, way == "reset", bytes)
	}
	if bytes < 100 {
		go cancel()
	}
	resp, err := b.server.Client().Do(r)
	if err != nil {
		return "" // it left before
	}
	var got strings.Builder
	io.CopyN(&got, resp.Body, int64(bytes))
	cancel()
	resp.Body.Close()
	return got.String()
}

// drop sends a request over a connection of its own, reads so many bytes of the answer, and closes
// or resets the connection.
func (b *bench) drop(r *http.Request, reset bool, bytes int) string {
	conn, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", b.server.Listener.Addr().String())
	if err != nil {
		b.Error(err)
		return ""
	}
	defer conn.Close()
	if reset {
		defer conn.(*net.TCPConn).SetLinger(0) // before it is closed
	}
	if err := r.Write(conn); err != nil {
		b.Error(err)
	}
	var got strings.Builder
	if bytes >= 100 {
		resp, err := http.ReadResponse(bufio.NewReader(conn), r) //nolint:bodyclose // that would read on, to the end
		if err != nil {
			b.Error(err)
			return ""
		}
		io.CopyN(&got, resp.Body, int64(bytes))
	}
	return got.String()
}

// charged checks what became of calls that callers left.
func (b *bench) charged(calls int) {
	b.Helper()
	sent, left := b.sim.Calls(), 0
	var least, input, requests int64
	for _, c := range sent {
		if c.Outcome == simulator.Left {
			left++
		}
		requests++
		if slices.Contains(apis[string(c.Provider)].profile().Units, llm.UnitInputTokens) {
			input += c.Input
		}
		least += c.Delivered
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var output, held, unknown int64
	for _, e := range b.events {
		if e.Outcome != outbound.Succeeded && e.Outcome != outbound.GaveUp && e.Outcome != outbound.NotGranted {
			b.Errorf("a call %v: %v", e.Outcome, e.Err)
		}
		for _, u := range e.Used {
			if u.Unit == llm.UnitOutputTokens {
				output += u.N
			}
		}
		if e.Outcome == outbound.GaveUp && e.Used == nil {
			unknown += 200 // its caller left before the answer: the estimate stands if it was sent
		}
		for _, u := range e.Estimate {
			if u.Unit == llm.UnitOutputTokens && e.Outcome != outbound.NotGranted {
				held += u.N
			}
		}
	}
	used := b.used("upstream", "account")
	switch {
	case left < calls/10 || len(sent)-left < 1:
		b.Errorf("%d of %d callers left in the middle, want some of both", left, len(sent))
	case used["rpm"] < requests || used["rpm"] > int64(calls):
		b.Errorf("%d requests are charged, %d reached the provider", used["rpm"], requests)
	case used[llm.UnitInputTokens] < input:
		b.Errorf("%d tokens of input are charged, the provider counts %d", used[llm.UnitInputTokens], input)
	case used[llm.UnitOutputTokens] < output || used[llm.UnitOutputTokens] > output+unknown || output+unknown >= held:
		b.Errorf("%d tokens of output are charged; they were settled with %d, and reserved with %d",
			used[llm.UnitOutputTokens], output, held)
	}
	b.Logf("%d calls reached the provider, %d were left, %d words were delivered", len(sent), left, least)
}

// goroutines returns how many goroutines there are that serve or make calls.
func goroutines() int {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	n := 0
	for g := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(g, "net/http") || strings.Contains(g, "drawgate/gateway.") ||
			strings.Contains(g, "internal/hold") {
			n++
		}
	}
	return n
}

// TestOutputIsChargedAsDelivered: a caller that leaves is charged for no less than was written to
// it, whatever the provider has told until then.
//
// req: C1
func TestOutputIsChargedAsDelivered(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for bytes := 200; bytes < 5000; bytes += 400 {
		got := b.leave("anthropic", ways[bytes/400%len(ways)], bytes)
		b.settled()
		b.mu.Lock()
		e := b.events[len(b.events)-1]
		b.mu.Unlock()
		words := int64(0)
		for _, u := range e.Used {
			if u.Unit == llm.UnitOutputTokens {
				words = u.N
			}
		}
		// three events precede the words
		if least := int64(strings.Count(got, "}\n\n") - 3); words < least || words > max(200, int64(bytes)) {
			t.Errorf("%d tokens of output are charged, want %d that were delivered, and no more than bytes:\n%s", words,
				least, got)
		}
	}
}
