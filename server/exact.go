package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// exact returns an error if an object names something twice, or spells a field in another way than the protocol. encoding/json takes the last one, and does
// not mind the case of letters; what stands between a client and this server may read the same text otherwise. The JSON has been read into v before.
func exact(body []byte, v any) error {
	return exactly(json.NewDecoder(bytes.NewReader(body)), reflect.TypeOf(v).Elem(), fields{})
}

// exactly checks the next value, which was read into a t.
func exactly(d *json.Decoder, t reflect.Type, known fields) error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	begin, err := d.Token()
	if err != nil || begin != json.Delim('{') && begin != json.Delim('[') {
		return err
	}
	seen := map[string]bool{}
	for d.More() {
		var of reflect.Type
		if begin == json.Delim('[') {
			of = t.Elem()
		} else if of, err = member(d, t, seen, known); err != nil {
			return err
		}
		if err := exactly(d, of, known); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// member reads a name of an object, and returns the type of what it names.
func member(d *json.Decoder, t reflect.Type, seen map[string]bool, known fields) (reflect.Type, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	name, _ := token.(string)
	if seen[name] {
		return nil, fmt.Errorf("%q is named twice", name)
	}
	seen[name] = true
	if t.Kind() == reflect.Map {
		return t.Elem(), nil
	}
	if of := known.of(t)[name]; of != nil {
		return of, nil
	}
	return nil, fmt.Errorf("unknown field %q: names are in lower case", name)
}

// fields are the types of the fields of structs, by their names in JSON.
type fields map[reflect.Type]map[string]reflect.Type

func (f fields) of(t reflect.Type) map[string]reflect.Type {
	if f[t] == nil {
		f[t] = map[string]reflect.Type{}
		for _, v := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(v.Tag.Get("json"), ",")
			f[t][name] = v.Type
		}
	}
	return f[t]
}
