package llm

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Price is what a model costs, in millionths of the currency per million tokens: 2.50 dollars per
// million tokens are 2_500_000. [ParsePrice] reads the usual form. Each is at most [MaxPrice].
type Price struct {
	Input      int64 // tokens of the prompt that no cache is involved with
	CacheRead  int64 // tokens that were read from a cache
	CacheWrite int64 // tokens that were written to a cache
	Output     int64 // tokens of the answer, reasoning included

	ImageInput int64 // tokens of images in the prompt of a call that makes images; 0: as Input
	Image      int64 // each image that is made, beside its tokens: millionths of the currency
}

// MaxPrice is the largest price: a million per million tokens.
const MaxPrice = 1_000_000_000_000

// Prices are what models cost. There are none here: give what your provider charges.
type Prices struct {
	Currency string // such as "usd"; the unit of a cost is "usd_micros"
	// by the model's name, or else by its family's; "ft:" and one of them is for fine-tuned models,
	// and a variant such as "gpt-4o:online" has only a price of its own
	Models map[string]Price
}

// ParsePrice reads a price per million tokens, such as "2.50" or "0.075": at most six decimals.
func ParsePrice(text string) (int64, error) {
	whole, frac, dot := strings.Cut(text, ".")
	digits := whole + frac
	if digits == "" || strings.Trim(digits, "0123456789") != "" || len(frac) > 6 || len(whole) > 7 ||
		dot && frac == "" {
		return 0, fmt.Errorf("llm: %.40q is not a price per million tokens: write one such as 2.50, with at most six decimals", text)
	}
	n, err := strconv.ParseInt(digits+strings.Repeat("0", 6-len(frac)), 10, 64)
	if err != nil || n > MaxPrice {
		return 0, fmt.Errorf("llm: the price %.40q is more than a million per million tokens", text)
	}
	return n, nil
}

// Cost returns what a call has cost, in a unit such as usd_micros, rounded up to a whole millionth.
// Such a unit counts when a call is settled (drawgate.ChargeDefault). The error is for a model that
// has no price: it is not free.
//
// held is what was reserved for: it stands for what the provider has not told, by the rules of
// [Profile.Settlement].
func (t *Prices) Cost(c *Call, held Estimate, u Usage) (unit string, micros int64, err error) {
	if c.Operation == OpStored {
		return t.Unit(), 0, nil
	}
	p, err := t.price(c)
	if err != nil {
		return "", 0, err
	}
	input := settledInput(c, held, u)
	read := min(max(u.CacheRead, 0), input)
	write := min(max(u.CacheWrite, 0), input-read)
	images := int64(0) // tokens of images, and what was read from a cache is not told apart: it may be of text
	if c.makesImages() && p.ImageInput > 0 {
		images = min(max(u.ImageInput, 0), input)
		if !u.Final && c.Media[Image].Count > 0 {
			images = input
		}
		read, write = min(read, input-images), min(write, input-images-read)
	}
	micros = p.sum(input-read-write-images, read, write, images, settledOutput(c, held, u))
	return t.Unit(), add(micros, p.pieces(c)), nil
}

// pieces returns what the images cost that a call makes, beside their tokens.
func (p *Price) pieces(c *Call) int64 {
	if !c.makesImages() {
		return 0
	}
	return mul(c.Answers, p.Image)
}

// Hold returns the most that a call can cost, to reserve it: all of its input at the highest of the
// prices for input, and the largest output. The error is for a model that has no price, and
// [ErrUnpriced] for a call that asks for something that costs more than the table says.
func (t *Prices) Hold(c *Call, e Estimate) (unit string, micros int64, err error) {
	if c.Operation == OpStored { // free, as far as it is known here
		return t.Unit(), 0, nil
	}
	if c.Unpriced != "" {
		return "", 0, fmt.Errorf("%w (%s): leave it out", ErrUnpriced, c.Unpriced)
	}
	p, err := t.price(c)
	if err != nil {
		return "", 0, err
	}
	if what := p.unpricedImage(c); what != "" {
		return "", 0, fmt.Errorf("%w (%s)", ErrUnpriced, what)
	}
	p.Input = max(p.Input, p.CacheRead, p.CacheWrite)
	if c.Media[Image].Count > 0 {
		p.Input = max(p.Input, p.ImageInput)
	}
	return t.Unit(), add(p.sum(e.Input, 0, 0, 0, e.Output), p.pieces(c)), nil
}

// Unit returns the unit of costs, such as usd_micros.
func (t *Prices) Unit() string { return strings.ToLower(t.Currency) + "_micros" }

func (t *Prices) price(c *Call) (Price, error) {
	tuned := "" // fine-tuned models cost more than those that they are made of
	if strings.HasPrefix(c.Model, "ft:") {
		tuned = "ft:"
	}
	names := []string{c.Model, tuned + bareModel(c.Model), tuned + c.Family}
	if tuned == "" && strings.Contains(c.Model, ":") {
		// A variant may cost more than its model, such as OpenRouter's :online, which searches for
		// a fee, or a model that was fine-tuned when names were gpt-3.5-turbo:ft-acme.
		names = []string{c.Model, c.Model[strings.LastIndexByte(c.Model, '/')+1:]}
	}
	if slices.ContainsFunc(dearer, func(prefix string) bool { return strings.HasPrefix(bareModel(c.Model), prefix) }) {
		names = names[:2]
	}
	for _, name := range names {
		if p, ok := t.Models[name]; ok {
			return p, nil
		}
	}
	if c.Operation == OpModerations && slices.ContainsFunc(free,
		func(prefix string) bool { return strings.HasPrefix(c.Model, prefix) }) {
		return Price{}, nil
	}
	return Price{}, fmt.Errorf("llm: model %.80q has no price: add one for it or for its family %.80q", c.Model,
		c.Family)
}

// dearer are versions that cost more than the models that their families are named after, and need
// prices of their own. Any upstream may have any provider's models.
var dearer = all(func(v *provider) []string { return v.dearer })

// free are models whose moderations cost nothing, at any provider.
var free = all(func(v *provider) []string { return v.free })

// sum adds up tokens times prices, in 128 bits, and rounds up.
func (p *Price) sum(input, read, write, images, output int64) int64 {
	var high, low uint64
	for _, v := range [][2]int64{
		{input, p.Input}, {read, p.CacheRead}, {write, p.CacheWrite}, {images, p.ImageInput}, {output, p.Output},
	} {
		n, price := uint64(min(max(v[0], 0), maxAmount)), uint64(min(max(v[1], 0), MaxPrice))
		h, l := bits.Mul64(n, price)
		var carry uint64
		low, carry = bits.Add64(low, l, 0)
		high += h + carry
	}
	const million = 1_000_000
	low, carry := bits.Add64(low, million-1, 0)
	high += carry
	if high >= million {
		return maxAmount
	}
	q, _ := bits.Div64(high, low, million)
	return int64(min(q, maxAmount))
}
