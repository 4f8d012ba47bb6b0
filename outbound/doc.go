// Package outbound calls an upstream with a quota, such as an LLM provider's API, without exceeding
// it, however many processes share it.
//
// Each call is estimated, held in the quota, made, and settled with what it really used:
//
//	estimate → circuit → take with a hold, in the queue if need be → call → settle
//
// [Client] wraps any function ([Do], [Limited]); [Transport] does the same for HTTP, below an
// official SDK:
//
//	quota := outbound.PerModel("project-1", flash, pro) // limiters, named as the models
//	sdk := &http.Client{Transport: outbound.NewTransport(outbound.New(quota, nil), llm.Gemini(), nil)}
//
// What the upstream says counts: a refusal for the quota pauses it for all processes that share
// the store, until the instant that the refusal means. Time-outs, lost connections and failures of
// the upstream open a [Breaker] of this process alone.
package outbound
