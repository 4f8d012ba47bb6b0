package llm_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/drawgate/drawgate/llm"
)

// A call to a provider, from the request to the settlement.
func Example() {
	p, _ := llm.ByName("anthropic")
	body := []byte(`{"model":"claude-sonnet-4-5","max_tokens":300,"stream":true,"messages":[{"role":"user","content":"Why is the sky blue?"}]}`)
	call, err := p.Parse(http.MethodPost, "/v1/messages", nil, body)
	if err != nil {
		fmt.Println(err)
		return
	}
	var estimator llm.Estimator
	est := estimator.Likely(p, call)
	fmt.Println("reserve", p.Admission(call, est))

	s := p.NewStream(call)
	answer := strings.NewReader(`data: {"type":"message_start","message":{"usage":{"input_tokens":13,"output_tokens":1}}}

data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"Rayleigh scattering."}}

data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}

data: {"type":"message_stop"}

`)
	_, _ = answer.WriteTo(s) // beside the client: io.TeeReader(response.Body, s)
	s.Close()
	fmt.Println("settle", p.Settlement(call, est, s.Usage()), s.Ended())
	estimator.Learn(p, call, s.Usage())
	// Output:
	// reserve [{requests 1} {input_tokens 18} {output_tokens 300}]
	// settle [{requests 1} {input_tokens 13} {output_tokens 9}] true
}

// A limit per day of Gemini's carries a hint of seconds. The quota reopens at midnight Pacific
// time.
func ExampleProfile_Refusal() {
	p, _ := llm.ByName("gemini")
	body := []byte(`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Please retry in 22s.","details":[
		{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier","quotaValue":"250"}]},
		{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"22s"}]}}`)
	r := p.Refusal(http.StatusTooManyRequests, nil, body, time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC))
	fmt.Println(r.Meaning, r.Limit, r.Unit, r.ReopenAt.UTC())
	// Output: day 250 requests 2026-07-02 07:00:00 +0000 UTC
}

// A table of prices turns usage into money, in millionths.
func ExamplePrices() {
	price := func(text string) int64 { n, _ := llm.ParsePrice(text); return n }
	prices := llm.Prices{Currency: "usd", Models: map[string]llm.Price{
		"gpt-4.1": {Input: price("2.00"), CacheRead: price("0.50"), CacheWrite: price("2.00"), Output: price("8.00")},
	}}
	p, _ := llm.ByName("openai")
	call, _ := p.Parse(http.MethodPost, "/v1/responses", nil,
		[]byte(`{"model":"gpt-4.1","input":"hi","max_output_tokens":100}`))
	unit, micros, err := prices.Cost(call, p.Upper(call), llm.Usage{
		Input: 1000, InputKnown: true, CacheRead: 600,
		Output: 50, OutputKnown: true, Final: true,
	})
	fmt.Println(micros, unit, err)
	// Output: 1500 usd_micros <nil>
}
