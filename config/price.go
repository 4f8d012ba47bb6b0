package config

import (
	"fmt"
	"maps"
	"slices"
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

func (p *Prices) settings(d *decoder) []setting {
	var models node
	for _, name := range slices.Sorted(maps.Keys(p.Models)) {
		price := p.Models[name]
		models.pairs = append(models.pairs, pair{quote(name), settingsNode(priceSettings(&price, d))})
	}
	return []setting{
		{"currency", func(e entry) { p.Currency = d.currency(e) }, textNode(p.Currency)},
		{"models", func(e entry) { p.Models = d.prices(e) }, models},
	}
}

func (d *decoder) currency(e entry) string {
	text, ok := d.text(e)
	if ok && (len(text) > 8 || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz") != "") {
		d.problem(spanOf(e.value), "such as usd: costs are then counted in usd_micros, millionths of a dollar", "currency %s is not a word of at most 8 lower-case letters", shorten(text))
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
		before := len(d.problems)
		seen := d.settings(e.value, "the price of "+shorten(e.key), "", priceSettings(&p, d))
		if !seen["input"] && len(d.problems) == before {
			d.missing(e.at, `such as {input: "2.00", output: "8.00"}: per million tokens`, "the price of %s has no input", shorten(e.key))
		}
		// Without a price of its own, what was read from a cache costs as much as other input.
		if !seen["cache_read"] {
			p.CacheRead = p.Input
		}
		if !seen["cache_write"] {
			p.CacheWrite = usualWrite(p.Input)
		}
		list[e.key] = p
	}
	return list
}

// usualWrite is what tokens cost that are written to a cache, unless the file says otherwise: a
// quarter more than other input (platform.claude.com/docs, pricing).
func usualWrite(input int64) int64 { return min(input+(input+3)/4, llm.MaxPrice) }

func priceSettings(p *llm.Price, d *decoder) []setting {
	return []setting{
		{"input", func(e entry) { p.Input = d.price(e) }, priceNode(p.Input, -1)},
		{"cache_read", func(e entry) { p.CacheRead = d.price(e) }, priceNode(p.CacheRead, p.Input)},
		{"cache_write", func(e entry) { p.CacheWrite = d.price(e) }, priceNode(p.CacheWrite, usualWrite(p.Input))},
		{"output", func(e entry) { p.Output = d.price(e) }, priceNode(p.Output, 0)},
	}
}

// price reads a price per million tokens, as a number or a text.
func (d *decoder) price(e entry) int64 {
	switch n := e.value.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.StringNode:
		text := n.GetToken().Value
		if micros, err := llm.ParsePrice(text); err == nil {
			return micros
		}
		d.problem(spanOf(n), `such as 2.50, with at most six decimals`, "%s %s is not a price per million tokens", e.key, shorten(text))
	default:
		d.problem(spanOf(n), "such as 2.50", "%s must be a price per million tokens, not %s", e.key, describe(n))
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
