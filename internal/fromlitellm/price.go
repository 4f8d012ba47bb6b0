package fromlitellm

import (
	"fmt"
	"strings"
)

// price is what a model costs, in millionths of a dollar per million tokens.
type price struct{ input, output, read, write int64 } // -1: not said

// perToken turns the dollars per token of LiteLLM into ours.
const perToken = 1_000_000_000_000

// priceOf reads the price of a model from the tables that may have it; nil if none has.
func priceOf(tables ...*table) *price {
	p := price{-1, -1, -1, -1}
	for _, t := range tables {
		for key, to := range map[string]*int64{
			"input_cost_per_token": &p.input, "output_cost_per_token": &p.output,
			"cache_read_input_token_cost": &p.read, "cache_creation_input_token_cost": &p.write,
		} {
			for _, one := range t.keys {
				rest, ok := strings.CutPrefix(one.key, key)
				long := strings.HasPrefix(rest, "_above_") && strings.HasSuffix(rest, "_tokens")
				if !ok || rest != "" && !long {
					continue
				}
				if n, ok := t.get(one.key).times(perToken); ok {
					*to = max(*to, n) // that of long prompts, if it is higher
				}
			}
		}
	}
	if p.input < 0 || p.output < 0 {
		return nil
	}
	return &p
}

// text returns a price as the file has it.
func (p *price) text() string {
	var b strings.Builder
	for i, one := range []struct {
		name   string
		micros int64
	}{{"input", p.input}, {"cache_read", p.read}, {"cache_write", p.write}, {"output", p.output}} {
		if one.micros < 0 {
			continue
		}
		if i > 0 {
			b.WriteString(", ")
		}
		const million = 1_000_000
		text := strings.TrimRight(fmt.Sprintf("%d.%06d", one.micros/million, one.micros%million), "0")
		if i := strings.IndexByte(text, '.'); len(text)-i < 3 {
			text += strings.Repeat("0", 3-len(text)+i)
		}
		fmt.Fprintf(&b, "%s: %q", one.name, text)
	}
	return "{" + b.String() + "}"
}

// prices are LiteLLM's table.
type prices struct{ list []pair }

func readPrices(s Source) (*prices, error) {
	if s.Text == nil {
		return &prices{}, nil
	}
	v, err := parseJSON(s)
	if err != nil {
		return nil, err
	}
	if v.get("gpt-4o").get("input_cost_per_token") == nil && !hasPrices(v) {
		return nil, &Error{File: s.Name, Message: "this is not LiteLLM's table of prices, " +
			"model_prices_and_context_window.json: no model has input_cost_per_token"}
	}
	return &prices{v.keys}, nil
}

func hasPrices(v *value) bool {
	for _, p := range v.keys {
		if p.get("input_cost_per_token") != nil {
			return true
		}
	}
	return false
}

// of returns the prices of the models that an entry stands for, by the names that they have at the
// provider.
func (p *prices) of(e *entry) map[string]*price {
	found := map[string]*price{}
	if e.price != nil {
		found[e.model] = e.price
		return found
	}
	prefix, pattern := strings.CutSuffix(e.model, "*")
	for _, one := range p.list {
		name := strings.TrimPrefix(one.key, e.up.prefix+"/")
		fits := name == e.model || pattern && strings.HasPrefix(name, prefix) && counted(one.value)
		if !fits || !modelNames().MatchString(name) || strings.HasSuffix(name, "*") ||
			one.get("litellm_provider").plain() != e.up.prefix {
			continue
		}
		if price := priceOf(newTable(one.value, "")); price != nil {
			found[name] = price
		}
	}
	return found
}

// counted reports whether a quota counts the calls of a model of the table.
func counted(v *value) bool {
	switch v.get("mode").plain() {
	case "chat", "responses", "completion", "embedding", "":
		return true
	}
	return false
}

// money gives the models their prices. If one has none, budgets could not be kept, so they are left
// out: without a price its calls would cost nothing, or be refused.
func (c *conversion) money() {
	table, missing := map[string]*price{}, []string{}
	for _, u := range c.upstreams {
		for _, e := range u.entries {
			found := c.prices.of(e)
			if len(found) == 0 {
				missing = append(missing, show(e.target()))
			}
			for name, p := range found {
				if other := table[name]; other != nil && *other != *p {
					c.leave(e.value, "price of "+show(name), "upstreams have different prices of it: the higher ones hold")
					p = higher(p, other)
				}
				table[name] = p
			}
		}
	}
	if len(missing) == 0 {
		c.priced = table
		return
	}
	why := "NO budget is kept, because a model has no price: " + several(missing) + ". Give it input_cost_per_token and " +
		"output_cost_per_token (0 if it costs nothing), or a row in the table of --prices, which is LiteLLM's own"
	for _, u := range c.upstreams {
		for _, e := range u.entries {
			e.limits = c.withoutMoney(e.limits, why)
		}
	}
	for _, s := range c.callers.sets {
		s.limits = c.withoutMoney(s.limits, why)
	}
	if c.budget != nil {
		c.withoutMoney([]limit{*c.budget}, why)
		c.budget = nil
	}
}

func higher(a, b *price) *price {
	return &price{max(a.input, b.input), max(a.output, b.output), max(a.read, b.read), max(a.write, b.write)}
}

func (c *conversion) withoutMoney(limits []limit, why string) (rest []limit) {
	for _, l := range limits {
		if l.unit == money {
			c.leave(l.place, "max_budget", "%s", why)
			continue
		}
		rest = append(rest, l)
	}
	return rest
}

// several lists names, the first few of many.
func several(names []string) string {
	const shown = 5
	if len(names) > shown {
		return strings.Join(names[:shown], ", ") + fmt.Sprintf(" and %d more", len(names)-shown)
	}
	return strings.Join(names, ", ")
}
