package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
)

// Costs has the number of units by unit. In JSON it is an object with integer values. A null value
// is an error, because its meaning is unclear, and so is a duplicate unit.
type Costs map[string]int64

// UnmarshalJSON implements [json.Unmarshaler]. null is the same as a missing object.
func (c *Costs) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*c = nil
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if t, err := d.Token(); err != nil {
		return err
	} else if t != json.Delim('{') {
		return &json.UnmarshalTypeError{Value: kind(t), Type: reflect.TypeFor[Costs]()}
	}
	out := Costs{}
	for d.More() {
		unit, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := unit.(string) // the key of an object is always a string
		v, err := d.Token()
		if err != nil {
			return err
		}
		number, ok := v.(json.Number)
		n, err := strconv.ParseInt(number.String(), 10, 64)
		if !ok || err != nil {
			return &json.UnmarshalTypeError{Value: kind(v), Type: reflect.TypeFor[int64](), Field: name}
		}
		if _, twice := out[name]; twice {
			return fmt.Errorf("the unit %q is used twice", name)
		}
		out[name] = n
	}
	*c = out
	return nil
}

// kind names a token as encoding/json does.
func kind(t json.Token) string {
	switch t := t.(type) {
	case nil:
		return "null"
	case bool:
		return "bool"
	case json.Number:
		return "number " + t.String()
	case json.Delim:
		if t == '[' {
			return "array"
		}
		return "object"
	}
	return "string"
}
