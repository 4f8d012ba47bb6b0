package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/url"
	"slices"
	"strings"

	"github.com/drawgate/drawgate/llm"
)

// other finds out whether a call that nothing counts may pass: its path is one of the upstream's
// others and, if the key has a list, of the key's, and the key may use all models that it names.
func (x *exchange) other(c *call) *refusal {
	up := c.up.config
	group, known := up.Profile.Uncounted(c.path)
	const list = ". To pass them on uncounted, list their paths in others of the upstream"
	switch {
	case known && group.Stored && up.Stored != nil:
		return x.notPassed(" (" + group.Name + "): of what is stored, calls by ids of one's own pass, and no list of " +
			"everybody's")
	case c.Operation != llm.OpOther, up.Profile.HasCall(c.path):
		if known {
			return x.notPassed(" (" + group.Name + "): " + group.Why)
		}
		return x.notPassed(": it is like that of a call which is counted, but none of profile " +
			up.Profile.Name + "; if only what precedes it differs, have that put into the url of the upstream")
	case !listed(up.Others, c.path) && known:
		return x.notPassed(" (" + group.Name + "): nothing would count them, as " + group.Why + list)
	case !listed(up.Others, c.path):
		return x.notPassed(": nothing would count them" + list)
	case len(x.key.Others) > 0 && !listed(x.key.Others, up.Name+c.path):
		return x.notPassed(": nothing would count them, and this key's others do not list it")
	case len(x.key.Models) == 0:
		return nil
	}
	names, err := namedModels(c.path, x.r.URL.RawQuery, x.r.Header.Get("Content-Type"), c.body)
	if err != nil {
		return &refusal{kind: llm.BadRequest, message: err.Error()}
	}
	for _, name := range names {
		if !x.key.may(up.Name, strings.TrimPrefix(name, "models/")) { // as Gemini writes it
			return noModel(name, up.Name)
		}
	}
	return nil
}

// listed reports whether a call is one that the upstream passes on uncounted.
func (x *exchange) listed(c *call) bool {
	up := c.up.config
	return up.Stored == nil && !up.Profile.HasCall(c.path) && listed(up.Others, c.path)
}

// notPassed refuses a path. why begins with what follows the path.
func (x *exchange) notPassed(why string) *refusal {
	message := "this gateway does not pass on " + x.r.Method + " calls of this path" + why
	return &refusal{kind: llm.NoSuchPath, message: message}
}

// noModel refuses a model that does not exist, as far as a key may know.
func noModel(name, upstream string) *refusal {
	message := fmt.Sprintf("there is no model %.80q for this key at %s", name, upstream)
	return &refusal{kind: llm.NotFound, message: message}
}

// modelFields are the names of fields, parameters and segments of paths whose values, or next
// segments, are models.
var modelFields = []string{"model", "models", "engine", "engines", "deployment", "deployments", "tunedmodels"}

func isModelField(name string) bool { return slices.Contains(modelFields, strings.ToLower(name)) }

var errUnreadable = errors.New("this key may use certain models only, and it cannot be read which ones " +
	"this request names: send JSON or a form (multipart/form-data)")

// namedModels returns the models that a call names which nothing counts: in its path, its query and
// its body. The error is for a body that may name some, but cannot be read.
func namedModels(path, query, contentType string, body []byte) (names []string, err error) {
	segments := strings.Split(path, "/")
	for i, s := range segments[1:] {
		if isModelField(segments[i]) {
			name, _, _ := strings.Cut(s, ":")
			names = append(names, name)
		}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, errUnreadable
	}
	for name, list := range values {
		if isModelField(name) {
			names = append(names, list...)
		}
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return names, nil
	}
	kind, params, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
		return nil, errUnreadable
	case kind == "multipart/form-data":
		more, err := modelsOfForm(multipart.NewReader(bytes.NewReader(body), params["boundary"]))
		return append(names, more...), err
	case kind != "application/json" && !strings.HasSuffix(kind, "+json"):
		return nil, errUnreadable
	}
	more, ok := modelsOfJSON(body)
	if !ok {
		return nil, errUnreadable
	}
	return append(names, more...), nil
}

// modelsOfForm returns the models that a form names: in its fields, and in the lines of JSON of its
// files, as a batch has them.
func modelsOfForm(form *multipart.Reader) (names []string, err error) {
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil || part.FormName() == "" {
			return nil, errUnreadable
		}
		text, err := io.ReadAll(part)
		if err != nil {
			return nil, errUnreadable
		}
		if field, _, _ := strings.Cut(part.FormName(), "["); isModelField(field) {
			names = append(names, string(text))
		}
		for line := range bytes.Lines(text) {
			if more, ok := modelsOfJSON(line); ok {
				names = append(names, more...)
			}
		}
	}
}

// modelsOfJSON returns the models that JSON names, at any depth. ok is false if it is not JSON.
func modelsOfJSON(text []byte) (names []string, ok bool) {
	if !json.Valid(text) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	type level struct{ object, key, model bool }
	var open []level
	for {
		t, err := d.Token()
		if err != nil {
			return names, errors.Is(err, io.EOF)
		}
		if delim, ok := t.(json.Delim); ok && (delim == '}' || delim == ']') {
			open = open[:len(open)-1]
			continue
		}
		model := false // t is a value that names models, or has some
		if n := len(open) - 1; n >= 0 {
			if open[n].object {
				if open[n].key = !open[n].key; open[n].key {
					name, _ := t.(string)
					open[n].model = isModelField(name)
					continue
				}
			}
			model = open[n].model
		}
		switch v := t.(type) {
		case json.Delim:
			open = append(open, level{object: v == '{', model: model && v == '['})
		case string:
			if model {
				names = append(names, v)
			}
		}
	}
}
