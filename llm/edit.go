package llm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors of Parse beyond those of JSON.
var (
	errKind  = errors.New("a value of another type than the provider accepts")
	errCount = errors.New("a number of tokens or answers that is negative, a fraction or too large")
	errModel = fmt.Errorf("a model's name of more than %d bytes", maxModel)
)

// edits are positions in a body, 0 where there is nothing.
type edits struct {
	body                int64 // behind the opening brace
	options, optionsEnd int64 // of the value of stream_options
	null                bool  // that value is null
	usage, usageEnd     int64 // of the value of stream_options.include_usage

	models []mention // the values that name the model, in their order
	many   bool      // there are more than maxMentions
}

// mention is a value that names the model.
type mention struct {
	start, end int64
	resource   bool // as Gemini's bodies name it: "models/" and the name
	bare       bool // without quotes: in a form
}

// maxMentions bounds the memory that a batch takes which names its model in each of its requests.
// Google's own limit is 100 requests.
const maxMentions = 1000

func (e *edits) mention(m mention) {
	if len(e.models) == maxMentions {
		e.many = true
		return
	}
	e.models = append(e.models, m)
}

// NeedsUsage reports whether the answer is a stream that will not tell its usage: one of OpenAI's
// chat or completions whose stream_options.include_usage is not set.
func (c *Call) NeedsUsage() bool {
	return c.provider != nil && c.provider.askUsage && c.Stream && !c.IncludeUsage &&
		(c.Operation == OpChat || c.Operation == OpCompletions)
}

// WithUsage returns the body of the call with stream_options.include_usage set, everything else
// byte for byte as it was. It returns body itself if nothing needs to be changed. body must be what
// the call was parsed from; the error says that it is not.
//
// The stream then has one chunk more before its end, with the usage and no choices, and a field
// usage of null in every other chunk. Callers who did not ask for it must cope with that, as the
// official clients do.
func (c *Call) WithUsage(body []byte) ([]byte, error) {
	if !c.NeedsUsage() {
		return body, nil
	}
	e := &c.edit
	if len(body) != c.size || e.body == 0 || e.body > int64(len(body)) {
		return nil, fmt.Errorf("llm: the body has %d bytes, the call was parsed from %d: give the same one", len(body),
			c.size)
	}
	switch {
	case e.usageEnd > 0:
		return splice(body, e.usage, e.usageEnd, "true"), nil
	case e.null:
		return splice(body, e.options, e.optionsEnd, `{"include_usage":true}`), nil
	case e.optionsEnd > 0:
		return insert(body, e.options+1, `"include_usage":true`), nil
	}
	return insert(body, e.body, `"stream_options":{"include_usage":true}`), nil
}

// WithImplied returns the body of a call that does not name its model with the model that it counts
// as: what a provider gives such calls may change. It returns body itself if the call names one.
// body must be what the call was parsed from; the error says that it is not.
func (c *Call) WithImplied(body []byte) ([]byte, error) {
	e := &c.edit
	switch {
	case !c.Implied:
		return body, nil
	case len(body) != c.size || e.body == 0 || e.body > int64(len(body)):
		return nil, fmt.Errorf("llm: the body has %d bytes, the call was parsed from %d: give the same one", len(body),
			c.size)
	case len(e.models) > 0: // null
		return e.withModel(body, c.Model), nil
	}
	return insert(body, e.body, `"model":"`+c.Model+`"`), nil
}

// WithModel returns the path and the body of a call of another model, everything else byte for byte
// as it was: the model is in one of them, or in both. path and body must be what the call was
// parsed from, and model a name of 1 to 256 letters, digits and -._:@/; the error says that they
// are not, or that the call names two models.
func (c *Call) WithModel(path string, body []byte, model string) (newPath string, newBody []byte, err error) {
	if err := checkModel(model); err != nil {
		return "", nil, err
	}
	e := &c.edit
	if n := len(e.models); c.provider == nil || len(body) != c.size || n > 0 && e.models[n-1].end > int64(len(body)) {
		return "", nil, fmt.Errorf("llm: the body has %d bytes, the call was parsed from %d: give the same one",
			len(body), c.size)
	}
	switch {
	case c.Other != "":
		return "", nil, fmt.Errorf("llm: a call of %s names two models", c.Operation)
	case e.many:
		return "", nil, fmt.Errorf("llm: a call of %s names its model more than %d times", c.Operation, maxMentions)
	}
	plain, query, hasQuery := strings.Cut(path, "?")
	newPath, inPath := c.provider.calls.withModel(plain, model)
	if hasQuery {
		newPath += "?" + query
	}
	if len(e.models) == 0 && !inPath {
		return "", nil, fmt.Errorf("llm: a call of %s does not name its model", c.Operation)
	}
	return newPath, e.withModel(body, model), nil
}

// withModel returns a body that names another model.
func (e *edits) withModel(body []byte, model string) []byte {
	if len(e.models) == 0 {
		return body
	}
	const prefix = "models/"
	out := make([]byte, 0, len(body)+len(e.models)*(len(model)+len(prefix)+len(`""`)))
	done := int64(0)
	for _, m := range e.models {
		out = append(out, body[done:m.start]...)
		if !m.bare {
			out = append(out, '"')
		}
		if m.resource {
			out = append(out, prefix...)
		}
		out = append(out, model...)
		if !m.bare {
			out = append(out, '"')
		}
		done = m.end
	}
	return append(out, body[done:]...)
}

// CheckModel returns why no call can be made of a model by this name: it has other characters than
// [Call.WithModel] takes, or cannot stand where the provider's paths have the model.
func (p *Profile) CheckModel(model string) error {
	if err := checkModel(model); err != nil {
		return err
	}
	for segment := range strings.SplitSeq(model, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return fmt.Errorf("llm: the model's name %q has a segment that a path cannot have", model)
		}
	}
	forms := p.provider.paths.calls
	if len(forms) > 0 && !slices.ContainsFunc(forms, func(form string) bool {
		return sameForm(form, strings.ReplaceAll(form, "{}", model))
	}) {
		return fmt.Errorf("llm: the model's name %q has a : or a /, and it stands in the path of calls", model)
	}
	return nil
}

func checkModel(model string) error {
	if model == "" || len(model) > maxModel || strings.Trim(model, modelChars) != "" {
		return fmt.Errorf("llm: %.80q is not a model's name", model)
	}
	return nil
}

// modelChars are in the names of models.
const modelChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:@/"

// insert inserts a member at the start of an object, behind its opening brace.
func insert(body []byte, at int64, member string) []byte {
	for _, b := range body[at:] {
		switch b {
		case ' ', '\t', '\r', '\n':
			continue
		case '}':
			return splice(body, at, at, member)
		}
		break
	}
	return splice(body, at, at, member+",")
}

// splice returns body with the bytes from start to end replaced.
func splice(body []byte, start, end int64, text string) []byte {
	out := make([]byte, 0, len(body)+len(text))
	out = append(out, body[:start]...)
	out = append(out, text...)
	return append(out, body[end:]...)
}
