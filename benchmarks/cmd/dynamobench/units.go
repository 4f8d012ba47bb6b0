package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// capacity is what DynamoDB charges, in units.
//
// A strongly consistent read costs one per 4 KB of the item, any other half of that. A write costs
// one per KB, also if its condition fails. Parts of a transaction cost twice that. Source:
// "DynamoDB read and write operations" and "DynamoDB Item sizes and formats" of AWS's developer
// guide.
type capacity struct {
	read, write float64
	// index is what writes to indexes cost: one per KB for each index that has the item with all
	// of its attributes.
	index float64
}

const (
	readBlock  = 4 << 10
	writeBlock = 1 << 10
)

// table is the contestant's after the calls.
type table struct {
	key     []string        // names of the key's attributes
	indexes [][]string      // the same of each index with all attributes of its items
	items   map[string]item // by keyText
}

type (
	item  map[string]value
	value map[string]json.RawMessage // one entry: the type's letters, and what is in it
)

// part is what a request says of one item.
type part struct {
	Key, Item      item
	ConsistentRead bool
}

// price adds up what requests cost. The size of an item is what it was in the end, or what was
// written.
func price(calls []request, t *table) (c capacity, err error) {
	for _, r := range calls {
		if err := c.add(r, t); err != nil {
			return c, fmt.Errorf("%s: %w", r.op, err)
		}
	}
	return c, nil
}

func (c *capacity) add(r request, t *table) error {
	switch r.op {
	case "GetItem":
		var p part
		err := json.Unmarshal(r.body, &p)
		c.addRead(p, p.ConsistentRead, t)
		return err
	case "BatchGetItem":
		var all struct {
			RequestItems map[string]struct {
				Keys           []item
				ConsistentRead bool
			}
		}
		err := json.Unmarshal(r.body, &all)
		for _, of := range all.RequestItems {
			for _, key := range of.Keys {
				c.addRead(part{Key: key}, of.ConsistentRead, t)
			}
		}
		return err
	case "PutItem", "UpdateItem", "DeleteItem":
		var p part
		err := json.Unmarshal(r.body, &p)
		c.addWrite(p, 1, r.ok, t)
		return err
	case "TransactWriteItems":
		var all struct{ TransactItems []map[string]part }
		err := json.Unmarshal(r.body, &all)
		for _, one := range all.TransactItems {
			for _, p := range one {
				c.addWrite(p, 2, r.ok, t)
			}
		}
		return err
	}
	return fmt.Errorf("it is not known what this costs: %.200s", r.body)
}

func (c *capacity) addRead(p part, consistent bool, t *table) {
	units := blocks(t.items[t.keyText(p.Key)].size(), readBlock)
	if !consistent {
		units /= 2
	}
	c.read += units
}

func (c *capacity) addWrite(p part, factor float64, ok bool, t *table) {
	it := p.Item
	if it == nil {
		it = t.items[t.keyText(p.Key)]
	}
	units := factor * blocks(it.size(), writeBlock)
	c.write += units
	if !ok {
		return
	}
	for _, names := range t.indexes {
		if it.has(names) {
			c.index += units
		}
	}
}

// blocks is how many blocks a size needs, at least one.
func blocks(size, block int) float64 { return float64(max(1, (size+block-1)/block)) }

// keyText is the key of an item.
func (t *table) keyText(it item) string {
	var parts []string
	for _, name := range t.key {
		for _, v := range it[name] {
			parts = append(parts, string(v))
		}
	}
	return strings.Join(parts, " ")
}

func (it item) has(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return it[name] == nil })
}

// size is that of an item, in bytes, as DynamoDB counts them: names and values.
func (it item) size() (n int) {
	for name, v := range it {
		n += len(name) + v.size()
	}
	return n
}

// size is approximate for numbers, as AWS's own description is: a byte for two digits, and one
// more.
func (v value) size() (n int) {
	for kind, raw := range v {
		switch kind {
		case "NULL", "BOOL":
			n++
		case "M":
			n += 3
			for name, e := range read[item](raw) {
				n += 1 + len(name) + e.size()
			}
		case "L":
			n += 3
			for _, e := range read[[]value](raw) {
				n += 1 + e.size()
			}
		case "SS", "NS", "BS":
			for _, text := range read[[]string](raw) {
				n += scalar(kind[:1], text)
			}
		default:
			n += scalar(kind, read[string](raw))
		}
	}
	return n
}

func scalar(kind, text string) int {
	switch kind {
	case "N":
		digits := strings.Trim(strings.NewReplacer("-", "", ".", "").Replace(text), "0")
		n := (len(digits)+1)/2 + 1
		if strings.HasPrefix(text, "-") {
			n++
		}
		return n
	case "B":
		return base64.StdEncoding.DecodedLen(len(text)) - strings.Count(text, "=")
	}
	return len(text)
}

// read decodes what the service or a client has written; what is none of that counts as empty.
func read[T any](raw json.RawMessage) (v T) {
	_ = json.Unmarshal(raw, &v)
	return v
}

// largest is the size of the largest item that single requests have written.
func (t *table) largest(calls []request) (n int) {
	for _, r := range calls {
		p := read[part](r.body)
		if strings.HasPrefix(r.op, "Put") || strings.HasPrefix(r.op, "Update") {
			n = max(n, p.Item.size(), t.items[t.keyText(p.Key)].size())
		}
	}
	return n
}
