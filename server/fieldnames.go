package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// checkFieldNames returns an error if an object names something twice, or spells a field in another
// way than the protocol. encoding/json takes the last one, and does not mind the case of letters;
// what stands between a client and this server may read the same text otherwise. The JSON has been
// read into v before.
func checkFieldNames(body []byte, v any) error {
	return checkNextNames(json.NewDecoder(bytes.NewReader(body)), reflect.TypeOf(v).Elem())
}

// checkNextNames checks the next value, which was read into a t.
func checkNextNames(d *json.Decoder, t reflect.Type) error {
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
		} else if of, err = member(d, t, seen); err != nil {
			return err
		}
		if err := checkNextNames(d, of); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// member reads a name of an object, and returns the type of what it names.
func member(d *json.Decoder, t reflect.Type, seen map[string]bool) (reflect.Type, error) {
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
	if of := fieldsOf(t)[name]; of != nil {
		return of, nil
	}
	return nil, fmt.Errorf("unknown field %q: names are in lower case", name)
}

// fields has the types of the fields of each struct of the protocol, by their names in JSON: a
// map[string]reflect.Type by reflect.Type.
var fields sync.Map

func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if have, ok := fields.Load(t); ok {
		return have.(map[string]reflect.Type) //nolint:forcetypeassert // nothing else is in it
	}
	made := map[string]reflect.Type{}
	for _, v := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(v.Tag.Get("json"), ",")
		made[name] = v.Type
	}
	fields.Store(t, made)
	return made
}
