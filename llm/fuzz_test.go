package llm_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
)

// apis are paths that cover the operations of each provider.
var apis = []struct{ profile, path string }{
	{"openai", "/v1/chat/completions"},
	{"openai", "/v1/completions"},
	{"openai", "/v1/responses"},
	{"openai", "/v1/embeddings"},
	{"anthropic", "/v1/messages"},
	{"gemini", "/v1beta/models/gemini-2.5-flash:generateContent"},
	{"gemini", "/v1beta/models/gemini-2.5-flash:streamGenerateContent"},
	{"gemini", "/v1beta/models/e:batchEmbedContents"},
}

// FuzzParse: a body is an error or a call that costs something, within bounds; and what is accepted
// is JSON.
func FuzzParse(f *testing.F) {
	for i, body := range []string{
		`{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"text","text":"a\ud83d\ude00"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}],"max_tokens":5,"n":2,"stream":true}`,
		`{"prompt":["a",[1,2]],"best_of":3}`,
		`{"input":[{"content":[{"type":"input_file","file_id":"f"}]}],"tools":[{"type":"web_search"}],"previous_response_id":"r"}`,
		`{"input":[[1,2],"x"]}`,
		`{"messages":[{"content":[{"type":"document","source":{"type":"text","data":"x"}},{"type":"tool_result","content":[{"source":{"type":"base64","data":"A","media_type":"image/png"}}]}]}],"max_tokens":1e2}`,
		`{"contents":{"parts":[{"inline_data":{"mime_type":"audio/mp3","data":"AA"}}]},"generation_config":{"max_output_tokens":1}}`,
		`{"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT"}}]}]}`,
		`{"requests":[{"content":{"parts":[{"text":"a"}]}}]}`,
	} {
		f.Add(uint8(i), []byte(body))
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		api := apis[int(which)%len(apis)]
		p, _ := llm.ByName(api.profile)
		c, err := p.Parse(http.MethodPost, api.path, nil, body)
		if err != nil {
			if len(err.Error()) > 300 {
				t.Fatalf("the error is long: %v", err)
			}
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q was accepted", body)
		}
		upper, likely := p.Upper(c), new(llm.Estimator).Likely(p, c)
		if likely.Input < 1 || likely.Input > upper.Input || upper.Input > drawgate.MaxAmount || upper.Output < 0 ||
			upper.Output > drawgate.MaxAmount {
			t.Fatalf("%q: likely %+v, upper %+v", body, likely, upper)
		}
		for _, e := range []llm.Estimate{upper, likely} {
			checkCosts(t, p.Admission(c, e))
			checkCosts(t, p.Settlement(c, e, llm.Usage{}))
			checkCosts(t, p.Failed(c, e))
		}
		if c.NeedsUsage() {
			out, err := c.WithUsage(body)
			if err != nil || !json.Valid(out) {
				t.Fatalf("%q became %q: %v", body, out, err)
			}
			if again, err := p.Parse(http.MethodPost, api.path, nil, out); err != nil || !again.IncludeUsage {
				t.Fatalf("%q became %q, which does not ask: %v", body, out, err)
			}
		}
	})
}

func checkCosts(t *testing.T, costs []drawgate.Cost) {
	t.Helper()
	if len(costs) == 0 {
		t.Fatal("a call costs nothing")
	}
	for _, c := range costs {
		if c.N < 0 || c.N > drawgate.MaxAmount || c.Unit == drawgate.UnitRequests && c.N < 1 {
			t.Fatalf("costs %v", costs)
		}
	}
}

// FuzzStream: whatever an answer is, and in whatever pieces it comes, the same is read; numbers are
// within bounds; and text that was delivered costs something.
func FuzzStream(f *testing.F) {
	for i, a := range answers {
		for k, api := range apis {
			if api.profile == a.profile {
				f.Add(uint8(k), uint64(i), []byte(a.answer))
				break
			}
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, seed uint64, answer []byte) {
		api := apis[int(which)%len(apis)]
		p, _ := llm.ByName(api.profile)
		c, err := p.Parse(http.MethodPost, api.path, nil, []byte(`{"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		var cuts []int
		for at := 0; at < len(answer); at += 1 + rng.IntN(30) {
			cuts = append(cuts, at)
		}
		one, many := read(p, c, string(answer)), read(p, c, string(answer), cuts...)
		u := one.Usage()
		if u != many.Usage() || one.Ended() != many.Ended() || one.Delivered() != many.Delivered() {
			t.Fatalf("%q: %+v in one piece, %+v in pieces", answer, u, many.Usage())
		}
		for _, n := range []int64{u.Input, u.Output, u.CacheRead, u.CacheWrite, u.Reasoning, u.Total} {
			if n < 0 || n > drawgate.MaxAmount {
				t.Fatalf("%q: %+v", answer, u)
			}
		}
		if d := one.Delivered(); d.Bytes > 0 && u.Output == 0 {
			t.Fatalf("%q: %d bytes were delivered, and cost nothing", answer, d.Bytes)
		}
		now := time.Unix(1_800_000_000, 0)
		r1, ok1 := one.Refusal(now)
		if r2, ok2 := many.Refusal(now); r1 != r2 || ok1 != ok2 {
			t.Fatalf("%q: refused with %+v in one piece, with %+v in pieces", answer, r1, r2)
		}
		checkCosts(t, p.Settlement(c, p.Upper(c), u))
	})
}

// FuzzHeaders: no header makes a limit that is out of bounds.
func FuzzHeaders(f *testing.F) {
	f.Add("60", "59", "1s")
	f.Add("30,000", "-1", "6m0s")
	f.Add("0", "0", "2026-01-15T20:00:00Z")
	f.Add("1e9", "٣", "99999999h")
	f.Fuzz(func(t *testing.T, limit, remaining, reset string) {
		now := time.Unix(1_800_000_000, 0)
		for _, p := range llm.Profiles() {
			h := http.Header{}
			for _, name := range []string{"X-Ratelimit-Limit-Tokens", "Anthropic-Ratelimit-Input-Tokens-Limit"} {
				h.Set(name, limit)
				h.Set(strings.Replace(name, "Limit-Tokens", "Remaining-Tokens", 1), remaining)
				h.Set(strings.Replace(name, "Limit-Tokens", "Reset-Tokens", 1), reset)
				h.Set(strings.Replace(name, "-Limit", "-Remaining", 1), remaining)
				h.Set(strings.Replace(name, "-Limit", "-Reset", 1), reset)
				h.Set(name, limit)
			}
			h.Set("Retry-After", reset)
			for _, o := range p.Observed(h, now) {
				if o.Limit < 1 || o.Limit > drawgate.MaxAmount || o.Remaining < -1 || o.Remaining > o.Limit ||
					o.Step < 1 {
					t.Fatalf("%v: %+v", h, o)
				}
				if far := o.ResetAt.Sub(now); !o.ResetAt.IsZero() && (far > 32*24*time.Hour || far < -32*24*time.Hour) {
					t.Fatalf("%v: %+v", h, o)
				}
			}
			if r := p.Refusal(http.StatusTooManyRequests, h, nil, now); r.RetryAfter < 0 || !r.ReopenAt.After(now) {
				t.Fatalf("%v: %+v", h, r)
			}
		}
	})
}

// FuzzRefusal: a quota that is closed reopens after now, within two months, or never by itself.
func FuzzRefusal(f *testing.F) {
	f.Add(429, []byte(geminiError("x", "22s", violation(freeTier, perDay, "250"))), int64(1_800_000_000))
	f.Add(429, []byte(`[{"error":{"code":429,"message":"Limit 5, Requested 9","details":[{"@type":"google.rpc.RetryInfo","retryDelay":"1h"}]}}]`), int64(0))
	f.Add(400, []byte(`{"error":{"type":"invalid_request_error","message":"usage limits on 2026-02-01 at 00:00 UTC"}}`),
		int64(1_769_000_000))
	f.Add(429, []byte(`{"error":{"message":"Rate limit reached for gpt-4.1 on tokens per min (TPM): Limit 30000, Used 28039, Requested 3906. Please try again in 3.89s."}}`), int64(5))
	f.Add(529, []byte(`{"type":"error"}`), int64(-1))
	f.Fuzz(func(t *testing.T, status int, body []byte, at int64) {
		now := time.Unix(at%4_000_000_000, 0)
		for _, p := range llm.Profiles() {
			r := p.Refusal(status, nil, body, now)
			if r.RetryAfter < 0 || r.Limit < -1 || r.Limit > drawgate.MaxAmount ||
				len(r.Unit)+len(r.Model)+len(r.QuotaID) > 4096 {
				t.Fatalf("%d %q: %+v", status, body, r)
			}
			if !r.Meaning.Quota() {
				if !r.ReopenAt.IsZero() {
					t.Fatalf("%d %q: no quota reopens at %v", status, body, r.ReopenAt)
				}
				continue
			}
			if !r.ReopenAt.After(now) || r.ReopenAt.After(now.Add(63*24*time.Hour)) {
				t.Fatalf("%d %q: %v reopens at %v, it is %v", status, body, r.Meaning, r.ReopenAt, now)
			}
		}
	})
}
