package fromlitellm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// maxJSON is the size of the largest file of JSON. LiteLLM's table of prices has 3 MB.
const maxJSON = 32 << 20

// parseJSON reads a file of JSON. Keys of tables are in the order of their names.
func parseJSON(s Source) (*value, error) {
	if len(s.Text) > maxJSON {
		return nil, &Error{File: s.Name, Message: fmt.Sprintf("the file is larger than %d bytes", maxJSON)}
	}
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(s.Text, []byte("\ufeff"))))
	d.UseNumber()
	var root any
	if err := d.Decode(&root); err != nil || d.More() {
		// The decoder's message may quote the text.
		return nil, &Error{File: s.Name, Message: "the file is not one value of JSON"}
	}
	return fromJSON(s.Name, root), nil
}

func fromJSON(file string, from any) *value {
	v := &value{file: file}
	switch from := from.(type) {
	case string:
		v.kind, v.text = isText, from
	case json.Number:
		v.kind, v.text = isText, from.String()
	case bool:
		v.kind, v.text = isText, fmt.Sprint(from)
	case []any:
		v.kind = isList
		for _, item := range from {
			v.list = append(v.list, fromJSON(file, item))
		}
	case map[string]any:
		v.kind = isTable
		for _, key := range slices.Sorted(maps.Keys(from)) {
			v.keys = append(v.keys, pair{key, fromJSON(file, from[key])})
		}
	}
	return v
}
