// Package llm knows LLM providers: what a call will count against which quota, what it did count,
// and what a refusal means.
//
// It is data and pure functions: no goroutine, no clock, no I/O except that a profile reads its
// time zone when it is made. A [Profile] is one provider's knowledge. Who calls a provider uses it
// in this order:
//
//	p, _ := llm.ByName("openai")
//	call, err := p.Parse("POST", "/v1/chat/completions", header, body) // what is asked for
//	est := estimator.Likely(p, call)                                  // how many tokens, or p.Upper(call)
//	hold := p.Admission(call, est)                                    // units to reserve in Drawgate
//	// send the call; give what comes back to a Stream, in pieces of any size
//	s := p.NewStream(call)
//	s.Write(piece)
//	s.Close()
//	used := p.Settlement(call, est, s.Usage()) // units to settle the reservation with
//	estimator.Learn(p, call, s.Usage())
//
// and, if the provider refuses, [Profile.Refusal] says what closed and until when.
//
// Limits, prices and what a model can do are data that change: every number of a profile may be
// replaced. Where a provider's documentation is open, the stricter reading is the default; the
// comments name the reading.
//
// Nothing here keeps or repeats a prompt, an answer or a key: errors name positions, not contents.
package llm
