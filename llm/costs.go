package llm

import "github.com/drawgate/drawgate"

// Admission returns the units to reserve before a call is sent, in the order of the profile's
// Units: never less than what the provider counts when the call starts, and, if the estimate is an
// upper bound, never less than what it will have counted when the call ends. It is empty for an
// operation that does not count.
//
// A policy may have fewer units: leave out those that it does not have.
//
//   - requests: 1; for a batch of embeddings of Gemini one for each text.
//   - tokens: input and largest output together, and at least what the provider counts when the
//     call starts, if it has a rule for that.
//   - input_tokens: the input. Reads from a cache are known only afterwards.
//   - output_tokens: the largest output.
//   - images: those that the call makes; a call that makes none has no such cost.
//   - bytes: those of the request of a call of OpStored; no other one has such a cost.
func (p *Profile) Admission(c *Call, e Estimate) []drawgate.Cost {
	if !p.Counts(c.Operation) {
		return nil
	}
	output := e.Output
	if p.OutputAtStart {
		output = max(output, p.MaxOutput(c))
	}
	var costs []drawgate.Cost
	for _, unit := range p.Units {
		var n int64
		switch unit {
		case drawgate.UnitRequests:
			n = p.requests(c)
		case UnitTokens:
			n = max(add(e.Input, output), p.atStart(c))
		case UnitInputTokens:
			n = e.Input
		case UnitOutputTokens:
			n = output
		default:
			var counts bool
			if n, counts = c.things(unit); !counts {
				continue
			}
		}
		if unit != drawgate.UnitRequests && (c.Operation == OpOther || c.Operation == OpStored && unit != UnitBytes) {
			continue // only the request is known
		}
		costs = append(costs, drawgate.Units(unit, n))
	}
	return costs
}

func (p *Profile) requests(c *Call) int64 {
	if p.provider.perInput && c.Operation == OpEmbeddings {
		return max(1, c.Inputs)
	}
	return 1
}

// atStart returns the tokens that the provider counts when a call starts, whatever it uses then.
func (p *Profile) atStart(c *Call) int64 {
	if p.provider.atStart == nil {
		return 0
	}
	return p.provider.atStart(c)
}

// Settlement returns the units to settle a reservation with, given what was reserved for: what the
// provider counts for the call when it is over. It never gives back what the provider still counts:
//
//   - tokens: input and output together, and at least what the provider counted when the call
//     started, if it has a rule for that: nothing says that OpenAI corrects it.
//   - input_tokens: the whole input, without what was read from a cache if the family's CacheReads
//     is false. If the provider did not tell, it is the most that the prompt can have: by the
//     profile's Most, where it has them, which is less than what was reserved by bytes.
//   - output_tokens: the whole output. If the provider did not tell the final number, it is what
//     was delivered by an answer that ended, or by a stream that was cut off after it had begun.
//     Otherwise the provider may still be working, or has answered in fields that are not known
//     here, and the reservation stands: no answer was heard, or no text in it, or it is made in
//     the background, or more of it may have come than was read. It also stands if the answer may
//     have output that is not shown, such as the reasoning of models that are not known to do
//     without, and the provider has not told how much.
//   - images, bytes: what was reserved.
//
// For a call that the provider refused or failed see [Profile.Failed]. A call that was never sent
// is cancelled, not settled.
func (p *Profile) Settlement(c *Call, held Estimate, u Usage) []drawgate.Cost {
	if !p.Counts(c.Operation) {
		return nil
	}
	if c.Operation == OpOther || c.Operation == OpStored {
		return p.Admission(c, held)
	}
	input := settledInput(c, held, u)
	counted := input
	if u.InputKnown {
		if f := p.Family(c.Model); !f.CacheReads {
			counted = max(0, counted-max(0, u.CacheRead))
		}
	}
	output := settledOutput(c, held, u)
	var costs []drawgate.Cost
	for _, unit := range p.Units {
		var n int64
		switch unit {
		case drawgate.UnitRequests:
			n = p.requests(c)
		case UnitTokens:
			n = max(add(input, output), u.Total, p.atStart(c))
		case UnitInputTokens:
			n = counted
		case UnitOutputTokens:
			n = output
		default:
			var counts bool
			if n, counts = c.things(unit); !counts {
				continue
			}
		}
		costs = append(costs, drawgate.Units(unit, min(max(n, 0), maxAmount)))
	}
	return costs
}

// Tokens returns what a call used, given what was reserved for: the tokens of its prompt, caches
// included, and of its answers. It follows the rules of [Profile.Settlement] for what the provider
// did not tell, but takes no account of how the provider's limits count.
func (p *Profile) Tokens(c *Call, held Estimate, u Usage) (prompt, answer int64) {
	if !p.Counts(c.Operation) || c.Operation == OpOther || c.Operation == OpStored {
		return 0, 0
	}
	return settledInput(c, held, u), settledOutput(c, held, u)
}

// settledInput returns the tokens of a call's prompt, as far as they are known. What the provider
// told of a prompt that searches make longer is not all of it until the answer has ended. What it
// did not tell is the most that the prompt can have.
func settledInput(c *Call, held Estimate, u Usage) int64 {
	switch {
	case !u.InputKnown && held.inputMost > 0:
		return held.inputMost
	case !u.InputKnown:
		return held.Input
	case c.Searches > 0 && !u.Final:
		return max(held.Input, u.Input)
	}
	return u.Input
}

// settledOutput returns the tokens of a call's answers, as far as they are known.
func settledOutput(c *Call, held Estimate, u Usage) int64 {
	switch {
	case u.Final:
		return u.Output
	case c.wordless():
		return 0
	}
	n := u.Output
	if !u.OutputKnown { // what was delivered is bounded by what was asked for
		n = min(n, held.Output)
	}
	// An answer without usage and without any text has it where nobody looks for it.
	begun := u.Ended && (u.Output > 0 || u.OutputKnown) || c.Stream && u.Output > 0
	if c.Background || !begun || u.Unread || c.unseen && !u.SoFar {
		n = max(n, held.Output)
	}
	return n
}

// Failed returns the units that stay counted for a call that the provider answered with an error,
// without any usage: the request, and, if the profile's FailedInput says so, the input that was
// reserved. Both OpenAI and Gemini count failed requests. An answer that ends with an error after
// it has begun is settled as any other: see [Profile.Settlement].
func (p *Profile) Failed(c *Call, held Estimate) []drawgate.Cost {
	costs := p.Admission(c, held)
	for i := range costs {
		switch {
		case costs[i].Unit == drawgate.UnitRequests, (costs[i].Unit == UnitImages || costs[i].Unit == UnitBytes) &&
			p.FailedInput:
		case costs[i].Unit == UnitOutputTokens || !p.FailedInput:
			costs[i].N = 0
		case costs[i].Unit == UnitTokens:
			costs[i].N = max(held.Input, p.atStart(c))
		}
	}
	return costs
}

// things returns how many images or bytes a call counts as, if it counts as such.
func (c *Call) things(unit string) (n int64, counts bool) {
	switch unit {
	case UnitImages:
		return c.Answers, c.makesImages()
	case UnitBytes:
		return int64(c.size), c.Operation == OpStored
	}
	return 0, false
}
