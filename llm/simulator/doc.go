// Package simulator is an HTTP server that behaves like the APIs of LLM providers, and like any
// other JSON API: it enforces quotas by each provider's rules, and records every call. It is the
// referee of tests that promise to stay within a quota.
//
// It shares no code with the rest of this module and imports only the standard library. It is
// simple on purpose: it keeps a list of what was admitted, and counts it.
//
//	sim, err := simulator.New(&simulator.Options{Quotas: quotas})
//	hc := &http.Client{Transport: sim.Transport()} // in this process, or http.Serve(listener, sim)
//	// … the program under test uses hc …
//	if v := sim.Violations(); v.Total > 0 { // calls that found a limit full
//	report := sim.Report(time.Time{})       // the worst window of each limit, counted again
//
// # Paths
//
//	POST /v1/chat/completions                                   OpenAI
//	POST /v1/responses
//	POST /v1/embeddings
//	POST /v1/messages                                           Anthropic
//	POST /v1/messages/count_tokens
//	POST /v1beta/models/{model}:generateContent                 Gemini, also as /v1/models/…
//	POST /v1beta/models/{model}:streamGenerateContent[?alt=sse]
//	POST /v1beta/models/{model}:countTokens
//	POST /PROVIDER/…                                            each of these, such as /openai/v1/…
//	POST /xai/v1/chat/completions                               xAI; Mistral, Together, vLLM, Ollama
//	POST /deepseek/chat/completions                             DeepSeek, also with /v1 and /beta
//	POST /groq/openai/v1/chat/completions                       Groq
//	POST /generic/…                                             any JSON object
//	GET  /simulator/ledger?after=ID&limit=N                     the recorded calls
//	GET  /simulator/report                                      the limits, counted again
//	POST /simulator/reset                                       forgets everything
//	POST /simulator/faults                                      faults for the next calls
//
// # What counts when
//
// A call counts from its arrival: the instant at which its body has been read, and Options.Travel
// has passed. Arrivals are in one order, and time does not go back between them. What it costs
// depends on [Charging], whose defaults are the stricter reading of what each provider documents:
// see [DefaultCharging].
//
// A call that finds a limit full is refused as the provider would refuse it, and is a violation.
// Output that is produced beyond a limit cannot be refused any more. It is no violation, but
// [LimitReport.Over] shows it.
//
// # Steering the answers
//
// The last line of a prompt that has the form
//
//	simulate: output=200 delay=50ms chunk=20ms
//
// says what to answer: see [Options] for the words and their defaults.
//
// # Tokens
//
// Input tokens are counted by [CountTokens], or by Options.Tokens. Output tokens are words of a
// fixed list: each is one token, by definition, and [CountTokens] agrees.
package simulator
