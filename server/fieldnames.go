package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// checkFieldNames returns an error if an object has a name twice, or a field with other capitals
// than in the protocol. encoding/json accepts both, and uses the last value; a program between a
// client and this server may read the same text differently. The JSON has already been decoded into
// v.
func checkFieldNames(body []byte, v any) error {
	return checkNextNames(json.NewDecoder(bytes.NewReader(body)), reflect.TypeOf(v).Elem())
}

// checkNextNames checks the next value, which was decoded into a t.
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

// member reads a name of an object, and returns the type of its value.
func member(d *json.Decoder, t reflect.Type, seen map[string]bool) (reflect.Type, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	name, _ := token.(string)
	if seen[name] {
		return nil, fmt.Errorf("the name %q is used twice", name)
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

// fields caches the types of the fields of each struct of the protocol, by their names in JSON: a
// map[string]reflect.Type by reflect.Type.
var fields sync.Map

func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if have, ok := fields.Load(t); ok {
		return have.(map[string]reflect.Type) //nolint:forcetypeassert // there is nothing else in it
	}
	made := map[string]reflect.Type{}
	for _, v := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(v.Tag.Get("json"), ",")
		made[name] = v.Type
	}
	fields.Store(t, made)
	return made
}
