package gateway_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	wire "github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/internal/needs"
)

// The keys of the tests of teams: alice and anna are of red, bob and ben of blue.
var (
	redKeys  = []string{alice, "vk-anna-0123456789"}
	blueKeys = []string{bob, "vk-ben-0123456789"}
)

// troubles is a provider in front of which prompts go wrong as they say.
type troubles struct{}

// RoundTrip implements http.RoundTripper.
func (troubles) RoundTrip(r *http.Request) (*http.Response, error) {
	var tail []byte
	for buf, err := make([]byte, 64<<10), error(nil); err == nil; {
		var n int
		n, err = r.Body.Read(buf)
		tail = append(tail, buf[:n]...)
		tail = slices.Clone(tail[max(0, len(tail)-200):])
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the request: %w", err)
		}
	}
	prompt := string(tail)
	answer := func(status int, kind, text string) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Request: r, Header: http.Header{"Content-Type": {kind}},
			Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
		}, nil
	}
	_, trouble, _ := strings.Cut(prompt, "trouble: ")
	trouble, _, _ = strings.Cut(trouble, ".")
	switch trouble {
	case "500", "503", "429":
		resp, _ := answer(map[string]int{"500": 500, "503": 503, "429": 429}[trouble], "application/json",
			`{"error":{"message":"trouble","type":"requests","code":"rate_limit_exceeded"}}`)
		resp.Header.Set("Retry-After", "2")
		return resp, nil
	case "lost":
		return nil, syscall.ECONNRESET
	case "cut":
		resp, _ := answer(http.StatusOK, "text/event-stream", "")
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("data: {}\n\n"), breaking{}))
		return resp, nil
	case "slow", "hang-up":
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(90 * time.Second):
		}
	}
	prompt = `"` + strings.TrimSuffix(prompt[max(0, strings.LastIndex(prompt, "call ")):], "}]}")
	return answer(http.StatusOK, "application/json", `{"choices":[{"message":{"role":"assistant",`+
		`"content":`+prompt+`}}],"usage":{"prompt_tokens":5,"completion_tokens":5}}`)
}

type breaking struct{}

// Read implements io.Reader.
func (breaking) Read([]byte) (int, error) { return 0, syscall.ECONNRESET }

// historyStep is a call of a history.
type historyStep struct {
	key, trouble, model string
	after               time.Duration // the step before
	blue                bool
}

// history returns a random history of two teams: red's calls go wrong, blue's do not.
func history(rnd *rand.Rand) (list []historyStep) {
	kinds := []string{"500", "503", "429", "lost", "cut", "slow", "hang-up", "large", "many", "none"}
	favourite := kinds[rnd.IntN(len(kinds))]
	for range 20 + rnd.IntN(60) {
		s := historyStep{
			model: []string{"gpt-4o", "gpt-4o", "gpt-4.1"}[rnd.IntN(3)],
			after: []time.Duration{0, 0, time.Second, 30 * time.Second}[rnd.IntN(4)],
		}
		if s.blue = rnd.IntN(4) == 0; s.blue {
			s.key, s.trouble = blueKeys[rnd.IntN(2)], "none"
		} else if s.key, s.trouble = redKeys[rnd.IntN(2)], favourite; rnd.IntN(3) == 0 {
			s.trouble = kinds[rnd.IntN(len(kinds))]
		}
		list = append(list, s)
	}
	return list
}

// play plays a history, and returns the answers of blue, and how many of red's were in trouble.
func play(t *testing.T, list []historyStep, withRed bool, large int) (blue []reply, trouble int) {
	t.Helper()
	teams(t, func(s *setup) {
		s.options.Wait = 24 * time.Hour // a 429 closes the quota for everybody: what it refuses waits
		s.options.Base = troubles{}
		s.options.MaxBody, s.options.Bodies = int64(large)+4096, 4*(int64(large)+4096)
	}, func(b *bench) {
		filler := strings.Repeat("word ", large/5)
		bodies := map[string]string{} // they are large, and in use at once
		for _, model := range []string{"gpt-4o", "gpt-4.1"} {
			bodies["large"+model], bodies["many"+model] = chat(model, filler+"trouble: slow."), chat(model,
				filler[:large/8]+"trouble: slow.")
		}
		var group sync.WaitGroup
		var mu sync.Mutex
		blue = make([]reply, len(list))
		for i, s := range list {
			time.Sleep(s.after)
			if !s.blue && !withRed {
				continue
			}
			group.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				context.AfterFunc(t.Context(), cancel)
				body, calls := bodies[s.trouble+s.model], 1 // these wait long for their answers
				switch s.trouble {
				case "many": // they take all memory that they can get
					calls = 64
				case "hang-up":
					time.AfterFunc(time.Second, cancel)
				}
				if s.blue {
					got := b.do(b.raw(ctx, http.MethodPost, "/openai/v1/chat/completions",
						chat(s.model, filler[:50_000]+fmt.Sprintf("call %d", i)), "Authorization: Bearer "+s.key))
					blue[i] = reply{status: got.status, body: got.body, err: got.err}
					return
				}
				if body == "" {
					body = chat(s.model, "trouble: "+s.trouble+".")
				}
				for range calls {
					group.Go(func() {
						got := b.do(b.raw(ctx, http.MethodPost, "/openai/v1/chat/completions", body,
							"Authorization: Bearer "+s.key))
						if got.status != http.StatusOK || got.err != nil {
							mu.Lock()
							trouble++
							mu.Unlock()
						}
					})
				}
			})
		}
		group.Wait()
	})
	return blue, trouble
}

// teams runs a gateway for two teams with two keys each, in a bubble.
func teams(t *testing.T, change func(*setup), test func(b *bench)) {
	t.Helper()
	s := newSetup(func(s *setup) {
		s.config.Keys = []gateway.Key{
			{Name: "alice", Sum: sum(redKeys[0]), Team: "red"},
			{Name: "anna", Sum: sum(redKeys[1]), Team: "red"},
			{Name: "bob", Sum: sum(blueKeys[0]), Team: "blue"},
			{Name: "ben", Sum: sum(blueKeys[1]), Team: "blue"},
		}
		change(s)
	})
	b := &bench{T: t}
	b.build(s, "http://provider.test")
	test(b)
}

func sum(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }

func chat(model, prompt string) string {
	return fmt.Sprintf(`{"model":%q,"max_tokens":5,"messages":[{"role":"user","content":%q}]}`, model, prompt)
}

// TestOneTeamsTroubleIsItsOwn: in random histories of two teams over one upstream, whatever goes
// wrong with red's calls (errors, lost connections, refusals for the quota, callers that hang up,
// bodies of 30 MB), blue's are answered as without red, but for the quota.
//
// req: C4
func TestOneTeamsTroubleIsItsOwn(t *testing.T) {
	needs.NoRace(t) // which sees two teams' calls at once in other tests
	t.Parallel()
	// Some histories have bodies of 30 MB, the others smaller ones with as much less memory for
	// them.
	rounds, large := uint64(needs.Rounds(10, 40, 1000)), 300_000
	total := 0
	for seed := range rounds {
		size := large
		if seed%200 == 199 {
			size = 30_000_000
		}
		list := history(rand.New(rand.NewPCG(seed, 0)))
		var with, without []reply
		synctest.Test(t, func(t *testing.T) {
			var n int
			with, n = play(t, list, true, size)
			total += n
		})
		synctest.Test(t, func(t *testing.T) { without, _ = play(t, list, false, size) })
		for i := range list {
			same := with[i].status == without[i].status && with[i].body == without[i].body && with[i].err == nil
			if list[i].blue && (!same || with[i].status != http.StatusOK) {
				t.Errorf("seed %d: call %d of blue: got %d %s %v with red, %d %s without", seed, i, with[i].status,
					with[i].body, with[i].err, without[i].status, without[i].body)
			}
		}
	}
	t.Logf("%d of red's calls in %d histories went wrong", total, rounds)
	if total == 0 {
		t.Error("nothing went wrong with red's calls")
	}
}

// TestDeadUpstreamGetsTenCalls: an upstream that is really dead, in each way, gets no more than ten
// calls of two teams before its circuit is open. So does one model that fails, while others work.
//
// req: C4
func TestDeadUpstreamGetsTenCalls(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(r *http.Request) (*http.Response, error){
		"fails": func(r *http.Request) (*http.Response, error) {
			return status(r, http.StatusInternalServerError),
				nil
		},
		"lost": func(r *http.Request) (*http.Response, error) {
			io.Copy(io.Discard, r.Body)
			return nil, syscall.ECONNRESET
		},
		"cannot connect": func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED },
	} {
		for _, keys := range [][]string{
			{redKeys[0], blueKeys[0]},
			{redKeys[0], redKeys[1], redKeys[0], blueKeys[0], blueKeys[1]},
			{redKeys[0]},
		} {
			t.Run(fmt.Sprint(name, len(keys)), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					calls := 0
					teams(t, func(s *setup) {
						s.options.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
							calls++
							return answer(r)
						})
					}, func(b *bench) {
						for i := range 40 {
							b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/chat/completions",
								chat("gpt-4o", "Hello!"), "Authorization: Bearer "+keys[i%len(keys)]))
							time.Sleep(time.Second)
						}
						now := b.h.Upstreams()[0].Calls
						if calls > 10 || len(now.Circuits) == 0 || len(keys) > 1 && now.Circuit != wire.CircuitOpen {
							t.Errorf("%d calls were made, and the circuits are %+v", calls, now)
						}
						t.Logf("%d calls", calls)
					})
				})
			})
		}
	}
}

func status(r *http.Request, code int) *http.Response {
	return &http.Response{StatusCode: code, Request: r, Header: http.Header{}, Body: http.NoBody}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
