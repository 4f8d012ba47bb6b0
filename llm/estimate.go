package llm

import (
	"slices"
	"sync"
)

// Upper returns an upper bound of the tokens that a call uses: whoever reserves it never reserves
// too little. There are two exceptions, for which the result's Upper is false: after each use of a
// tool that the provider runs, the model reads its prompt again, and the usage adds up all readings
// (platform.claude.com/docs, server tools; OpenAI's Responses API likewise). Nothing bounds how
// often that is, so one whole context is reserved for it. And of images that are made some models'
// largest number of tokens is not documented: see imageTokens.
//
// Text: every provider's tokenizer works on bytes or falls back to them, so a token has at least
// one byte, and a text has at most as many tokens as bytes, and one for its start. This holds for
// byte-level BPE (OpenAI) and for SentencePiece with byte fallback (Gemma, Gemini); Anthropic
// publishes no tokenizer, and we assume the same. Messages and tools have a bound each. An image
// has the provider's documented maximum. Audio has at least 32 bytes per second in every codec, and
// at most 32 tokens per second (Gemini; others less), so a token has at least one byte. An item of
// reasoning that only the provider has was part of an answer, which has a largest size. Video and
// files have no such bound; they, whatever the body only names, and what the provider adds by
// itself count as the model's whole context. If the profile has a tokenizer, its count replaces the
// bytes.
func (p *Profile) Upper(c *Call) Estimate {
	e := Estimate{Output: p.MaxOutput(c), Upper: c.Searches == 0 && !p.guessesImages(c)}
	if c.Operation == OpOther || c.Operation == OpStored {
		return e
	}
	f := p.Family(c.Model)
	o := &p.Overhead
	text := add(c.Text.Bytes, c.Text.Pieces, c.Schemas.Bytes, c.Schemas.Pieces)
	most := text
	switch {
	case c.Exact >= 0:
		text, most = c.Exact, c.Exact
	case p.Most != nil:
		most = min(most, ceil(p.Most.Tokens(&c.Text)+p.Most.Tokens(&c.Schemas)))
	}
	e.Input = add(text, o.CallBound, mul(c.Messages, o.MessageBound), mul(c.Tools, o.ToolBound))
	if c.Tools+c.Searches > 0 {
		e.Input = add(e.Input, o.ToolsBound)
	}
	audio := c.Media[Audio]
	e.Input = add(e.Input,
		mul(c.Media[Image].Count, f.Images),
		audio.Bytes, mul(audio.Named, f.Audio),
		mul(c.Media[Video].Count, f.Video),
		mul(c.Media[File].Count, f.Files),
	)
	if c.Hidden+c.Searches > 0 {
		e.Input = add(e.Input, f.Context)
	} else {
		e.Input = add(e.Input, min(mul(c.Reasonings, max(f.MaxOutput, p.Default.MaxOutput)), f.Context))
	}
	e.Input = max(1, e.Input)
	e.inputMost = max(1, e.Input-(text-most))
	return e
}

// likely is the estimate without anything learned.
func (p *Profile) likely(c *Call) (e Estimate, class Class) {
	f := p.Family(c.Model)
	o := &p.Overhead
	e.Output = p.MaxOutput(c)
	all := c.Text
	all.plus(&c.Schemas)
	e.likely = f.Weights.Tokens(&c.Text) + f.Weights.Tokens(&c.Schemas)
	if p.Correction > 0 {
		e.likely *= p.Correction
	}
	fixed := add(o.Call, mul(c.Messages, o.Message), mul(c.Tools, o.Tool), mul(c.Searches, o.Search))
	if c.Tools+c.Searches > 0 {
		fixed = add(fixed, o.Tools)
	}
	per := func(m Media, bytes, named int64) int64 {
		n := mul(m.Named, named)
		if bytes > 0 {
			n = add(n, m.Bytes/bytes, m.Count-m.Named)
		}
		return n
	}
	fixed = add(fixed, mul(c.Media[Image].Count, o.Image),
		per(c.Media[Audio], o.AudioBytes, f.Audio), per(c.Media[Video], o.VideoBytes, f.Video),
		per(c.Media[File], o.FileBytes, f.Files))
	e.fixed = float64(fixed)
	return e, all.Class()
}

// Bounds of what an Estimator keeps and believes.
const (
	learnWindow   = 256  // calls per caller, model and class of content
	learnQuantile = 0.95 // of actual ÷ estimate: the part of the calls for which the estimate suffices
	learnFrom     = 24   // calls before an estimate is made smaller; it is made larger at once
	learnMost     = 8.0  // the largest correction; the smallest is the profile's
	learnTokens   = 16   // a prompt with less text says nothing about the tokenizer
	learnEntries  = 4096 // callers, models and classes in all
	learnModels   = 256  // models and classes of one caller
)

// Estimator estimates how many tokens a prompt will likely have, and learns from calls that were
// settled how far its estimates are off, per caller, model and class of content: what one caller's
// calls show moves nobody else's estimates. The zero value is ready to use. It is safe for
// concurrent use.
//
// An estimate is a sum over the features of the text, by the tokenizer's [Weights], with a term for
// each message, tool, image and so on. The correction is a high quantile of actual ÷ estimate over
// the last calls, so most calls use no more than what is reserved.
type Estimator struct {
	mu      sync.Mutex
	learned map[learnKey]*ratios
	callers map[string]int // entries of learned, by caller
}

type learnKey struct {
	provider, caller, model string
	class                   Class
}

func (c *Call) learnKey(class Class) learnKey {
	k := learnKey{caller: c.Caller, model: c.Model, class: class}
	if c.provider != nil { // it was read
		k.provider = c.provider.name
	}
	return k
}

// ratios are the last ones, and their quantile.
type ratios struct {
	last    [learnWindow]float32
	n       int // that were ever seen
	quantil float64
}

// Likely returns an estimate of the tokens that a call uses: nearly always enough, and seldom far
// too much. Its Output is the largest possible one. What the body only names and what the provider
// adds by itself counts as far as the profile's numbers say; it is never known. If the profile has
// a tokenizer, its count replaces the estimate of text.
func (e *Estimator) Likely(p *Profile, c *Call) Estimate {
	upper := p.Upper(c)
	if c.Operation == OpOther || c.Operation == OpStored || c.Unknown > 0 {
		return upper
	}
	est, class := p.likely(c)
	est.inputMost = upper.inputMost
	text := est.likely
	if c.Exact >= 0 {
		text = float64(c.Exact)
	} else {
		text *= max(e.correction(c.learnKey(class)), p.leastRatio())
	}
	est.Input = max(1, min(ceil(text+est.fixed), upper.Input))
	return est
}

// leastRatio is the smallest correction.
func (p *Profile) leastRatio() float64 {
	if p.LeastRatio <= 0 {
		return 1
	}
	return min(p.LeastRatio, 1)
}

// correction returns what to multiply an estimate with.
func (e *Estimator) correction(k learnKey) float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.learned[k]
	switch {
	case r == nil:
		return 1
	case r.n < learnFrom:
		return max(1, r.quantil)
	}
	return r.quantil
}

// Learn notes how many tokens the prompt of a call had by the provider's word. Calls with media or
// hidden parts teach nothing, as their text is not all that counts, and neither do estimates by a
// tokenizer.
func (e *Estimator) Learn(p *Profile, c *Call, u Usage) {
	if !u.InputKnown || c.Exact >= 0 || c.Hidden+c.Reasonings+c.Searches > 0 {
		return
	}
	for _, m := range c.Media {
		if m.Count > 0 {
			return
		}
	}
	est, class := p.likely(c)
	if est.likely < learnTokens {
		return
	}
	ratio := (float64(u.Input) - est.fixed) / est.likely
	ratio = min(max(ratio, p.leastRatio()), learnMost)
	k := c.learnKey(class)
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.learned[k]
	if r == nil {
		if len(e.learned) >= learnEntries || e.callers[k.caller] >= learnModels {
			return
		}
		if e.learned == nil {
			e.learned, e.callers = map[learnKey]*ratios{}, map[string]int{}
		}
		r = &ratios{}
		e.callers[k.caller]++
		e.learned[k] = r
	}
	r.note(ratio)
}

func (r *ratios) note(ratio float64) {
	r.last[r.n%learnWindow] = float32(ratio)
	r.n++
	sorted := r.last
	some := sorted[:min(r.n, learnWindow)]
	slices.Sort(some)
	r.quantil = float64(some[min(len(some)-1, int(learnQuantile*float64(len(some))))])
}
