package simulator_test

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/llm/simulator"
)

// FuzzRequests sends any body to every operation: it must be answered, by JSON or by a stream, with
// a status that fits, and counted.
func FuzzRequests(f *testing.F) {
	paths := []string{
		chatPath, responsePath, embedPath, messagePath, countPath, geminiPath, streamPath,
		streamPath + "?alt=sse", tokensPath, genericPath,
	}
	for i, body := range []string{
		chat("hi", `"n":2,"stream":true,"stream_options":{"include_usage":true}`),
		`{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":"x"},{"role":"user","content":[{"type":"input_image"}]}],"max_output_tokens":16}`,
		`{"model":"m","input":[[1,2],[3]],"encoding_format":"base64","dimensions":3}`,
		message("hi", `"max_tokens":5,"system":[{"type":"text","text":"s"}],"tools":[{"name":"t"}]`),
		`{"model":"m","messages":[{"role":"assistant","content":[{"type":"tool_use","name":"t","input":{}},{"type":"tool_result","content":[{"type":"text","text":"x"}]}]}]}`,
		contents("hi", `"systemInstruction":{"parts":[{"text":"s"}]},"generationConfig":{"maxOutputTokens":3,"candidateCount":2}`),
		`{"contents":[{"parts":[{"inlineData":{}},{"functionCall":{"name":"f"}}]}]}`,
		contents("simulate: output=3 size=1 thoughts=2 cache_read=5"),
		`{"generateContentRequest":{"contents":[{"parts":[{"text":"x"}]}]}}`,
		`{"max_tokens":3,"a":[{"b":["simulate: output=1"]}]}`,
	} {
		f.Add(uint8(i), body)
	}
	f.Fuzz(func(t *testing.T, i uint8, body string) {
		if long.MatchString(body) {
			t.Skip("a long answer takes long")
		}
		synctest.Test(t, func(t *testing.T) { fuzzRequest(t, paths[int(i)%len(paths)], body) })
	})
}

// long matches what might ask for an answer of many chunks.
var long = regexp.MustCompile(`put=[+0]*[0-9]{5}`)

// fuzzRequest sends a request. It may be made to wait, or for an answer without an end: then it
// gives up after a second.
func fuzzRequest(t *testing.T, path, body string) {
	t.Helper()
	s := newServer(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	got := do(s, newRequest(ctx, t, path, body))
	synctest.Wait()
	c := last(t, s)
	if limit := int64(len(body))*simulator.TokensPerFile + 100; c.Input < 0 || c.Input > limit ||
		c.Charged.Of(simulator.Tokens) < 0 || c.Delivered > c.Output {
		t.Fatalf("the ledger has %+v", c)
	}
	if c.Fault != "" || c.Outcome == simulator.Left {
		return
	}
	if got.err != nil || got.status != 200 && got.status != 400 {
		t.Fatalf("%s: got %+v", path, got)
	}
	if (c.Outcome == simulator.Answered) != (got.status == 200) || c.Bytes != int64(len(got.body)) {
		t.Fatalf("got %d, and the ledger has %+v", got.status, c)
	}
	if strings.HasPrefix(got.header.Get("Content-Type"), "text/event-stream") {
		events, err := parseEvents(got.body)
		if err != nil || len(events) == 0 {
			t.Fatalf("%d events, %v, in %q", len(events), err, got.body)
		}
		for _, e := range events {
			if e.data != "[DONE]" && !json.Valid([]byte(e.data)) {
				t.Fatalf("no JSON: %q", e.data)
			}
		}
	} else if !json.Valid([]byte(got.body)) {
		t.Fatalf("no JSON: %q", got.body)
	}
}

// FuzzDirective reads any directive: a mistake is refused, and the rest is obeyed.
func FuzzDirective(f *testing.F) {
	for _, text := range []string{
		"output=5 size=2", "delay=1h chunk=1ns", "fault=cut after=2 stall=3s", "output=-1", "x",
		"cache_read=1 cache_write=99999999999999999999", "size=0",
		"fault=stall", "fault=endless", "fault=latency", "thoughts=3",
	} {
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, stream bool) {
		if long.MatchString(text) {
			t.Skip("a long answer takes long")
		}
		more := `"stream":false`
		if stream {
			more = `"stream":true`
		}
		synctest.Test(t, func(t *testing.T) { fuzzRequest(t, chatPath, chat("simulate: "+text, more)) })
	})
}

// FuzzConfig reads any configuration: what is accepted makes a server, or an error that says so.
func FuzzConfig(f *testing.F) {
	f.Add(`{"preset":"free","limits":{"gemini-2.5-flash/rpd":20},"windows":"aligned","zone":"UTC","seed":7}`)
	f.Add(`{"quotas":[{"provider":"generic","name":"a","models":["*"],"limits":[{"name":"l","dimension":"requests","amount":1,"window":"bucket","period":"1ns","burst":1}]}]}`)
	f.Add(`{"faults":[{"kind":"latency","delay":"2s","rate":0.1}],"keys":[{"key":"k","name":"n"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := simulator.ParseConfig([]byte(text))
		if err != nil {
			return
		}
		o, err := c.Options()
		if err != nil {
			return
		}
		o.Faults = nil // they may wait
		s, err := simulator.New(o)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "simulator: ") {
				t.Fatal(err)
			}
			return
		}
		post(t, s, genericPath, `{}`)
		s.Report(time.Time{})
	})
}
