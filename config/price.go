package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate/llm"
)

// Prices are what models cost. Without models nothing counts money.
type Prices struct {
	Currency string // "" means usd
	Models   map[string]llm.Price
}

// Table returns the prices for package llm, or nil.
func (p *Prices) Table() *llm.Prices {
	if len(p.Models) == 0 {
		return nil
	}
	currency := p.Currency
	if currency == "" {
		currency = "usd"
	}
	return &llm.Prices{Currency: currency, Models: p.Models}
}

var priceSection = &section[Prices]{name: "prices", what: "prices", settings: (*Prices).settings}

func (p *Prices) settings() []setting {
	return []setting{
		{
			"currency", textBy((*decoder).currency, schema{"pattern": "^[a-z]{1,8}$"}).to(&p.Currency), "`usd`",
			"costs are counted in its millionths, such as `usd_micros`",
		},
		{
			"models",
			value{
				read:   func(d *decoder, e entry) { p.Models = d.prices(e) },
				node:   func() node { return mapNode(p.Models, modelPrice.node) },
				schema: mapOf(modelPrice.schema()),
			},
			"money is not counted",
			"the prices of models, or of their families (`claude-sonnet-4`), by name, with no `*`; `ft:gpt-4.1` " +
				"is the price of models that are fine-tuned from it. A name with a colon, such as `gpt-4o:online`, and versions that cost more " +
				"than their family, such as `gpt-4o-2024-05-13` and `claude-opus-4-1`, need prices of their own. " +
				"With any of them, a call of a model without a price is refused",
		},
	}
}

func (d *decoder) currency(e entry) string {
	text, ok := d.text(e)
	if ok && (len(text) > 8 || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz") != "") {
		d.problem(spanOf(e.value), "such as usd: costs are then counted in usd_micros, millionths of a dollar",
			"currency %s is not a word of at most 8 lower-case letters", shorten(text))
	}
	return text
}

func (d *decoder) prices(e entry) map[string]llm.Price {
	entries, ok := d.entries(e.value, "prices")
	if ok && len(entries) == 0 {
		d.missing(spanOf(e.value), `such as {gpt-4.1: {input: "2.00", output: "8.00"}}`, "prices is empty")
	}
	list := map[string]llm.Price{}
	for _, e := range entries {
		var p llm.Price
		s := *modelPrice
		s.what = "the price of " + shorten(e.key)
		s.read(d, e, &p)
		if strings.Contains(e.key, "*") {
			d.problem(e.at, "name each model, or its family, such as claude-sonnet-4 or gpt-4.1",
				"the price of %s fits no model: names of prices are no patterns", shorten(e.key))
		}
		list[e.key] = p
	}
	return list
}

var modelPrice = &section[llm.Price]{
	name: "price", settings: priceSettings,
	check: func(d *decoder, e entry, p *llm.Price, seen map[string]bool, wrong bool) {
		if !seen["input"] && !wrong {
			d.missing(e.at, `such as {input: "2.00", output: "8.00"}: per million tokens`,
				"the price of %s has no input", shorten(e.key))
		}
		// Without a price of its own, what was read from a cache costs as much as other input.
		if !seen["cache_read"] {
			p.CacheRead = p.Input
		}
		if !seen["cache_write"] {
			p.CacheWrite = usualWrite(p.Input)
		}
	},
}

// usualWrite is what tokens cost that are written to a cache, unless the file says otherwise: a
// quarter more than other input (platform.claude.com/docs, pricing).
func usualWrite(input int64) int64 { return min(input+(input+3)/4, llm.MaxPrice) }

func priceSettings(p *llm.Price) []setting {
	price := func(to *int64, usual int64) value {
		f := asPrice
		f.node = func(micros int64) node { return priceNode(micros, usual) }
		return f.to(to)
	}
	return []setting{
		{"input", price(&p.Input, -1), required, "per million tokens of the prompt, with at most six decimals"},
		{"cache_read", price(&p.CacheRead, p.Input), "as `input`", "of tokens of the prompt that were read from a " +
			"cache"},
		{
			"cache_write", price(&p.CacheWrite, usualWrite(p.Input)), "a quarter more than `input`, as at Anthropic",
			"of tokens of the prompt that were written to a cache",
		},
		{"output", price(&p.Output, 0), "0", "of tokens of the answer, reasoning included; of a model that makes " +
			"images the dearest of its text and its images"},
		{"image_input", price(&p.ImageInput, 0), "as `input`; calls that edit images are refused", "of tokens of " +
			"images that a call sends to a model that makes images"},
		{"image", asPiece.to(&p.Image), "0", "of each image that a call makes, beside its tokens; of a model with several prices " +
			"the dearest"},
	}
}

// asPiece is the price of one image.
var asPiece = form[int64]{
	read:   func(d *decoder, e entry) int64 { return d.priceOf(e, "an image", "0.04") },
	schema: asPrice.schema,
	node:   func(micros int64) node { return priceNode(micros, 0) },
}

var asPrice = form[int64]{
	read: (*decoder).price,
	schema: define("amount", schema{"anyOf": []schema{
		{"type": "number", "minimum": 0, "maximum": 1_000_000},
		{"type": "string", "pattern": decimals().String(), "examples": []string{"2.50"}},
	}}, nil),
}

// price reads a price per million tokens, as a number or a text.
func (d *decoder) price(e entry) int64 { return d.priceOf(e, "a million tokens", "2.50") }

// priceOf reads the price of something.
func (d *decoder) priceOf(e entry, what, such string) int64 {
	switch n := e.value.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.StringNode:
		text := n.GetToken().Value
		if micros, err := llm.ParsePrice(text); err == nil {
			return micros
		}
		d.problem(spanOf(n), "such as "+such+", with at most six decimals", "%s %s is not the price of %s",
			e.key, shorten(text), what)
	default:
		d.problem(spanOf(n), "such as "+such, "%s must be the price of %s, not %s", e.key, what, describe(n))
	}
	return 0
}

// priceNode is a price, unless it is what it would be anyway.
func priceNode(micros, usual int64) (n node) {
	if micros == usual {
		return n
	}
	const million = 1_000_000
	text := strconv.FormatInt(micros/million, 10)
	if rest := micros % million; rest != 0 {
		text += "." + strings.TrimRight(fmt.Sprintf("%06d", rest), "0")
	}
	n.scalar = strconv.Quote(text)
	return n
}
