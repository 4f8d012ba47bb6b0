package simulator

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

// jsonList is a list of JSON values. One value that is no list is a list of one: Google's JSON
// reads it so, and a provider may.
type jsonList []json.RawMessage

// UnmarshalJSON implements [json.Unmarshaler].
func (l *jsonList) UnmarshalJSON(body []byte) error {
	var many []json.RawMessage
	if json.Unmarshal(body, &many) == nil {
		*l = many
		return nil
	}
	*l = jsonList{slices.Clone(body)}
	return nil
}

// stored is what a request makes the provider add to the prompt, and what it costs beyond its
// tokens. It is looked for anywhere, in any shape and case: a provider may be more lenient than its
// documents.
type stored struct {
	refers     bool     // to what the provider has, or to what its tools find
	surcharges []string // what costs beyond the tokens
}

// references are names of fields, in small letters and without underscores, that refer to what the
// provider has.
var references = []string{
	"fileid", "fileuri", "fileurl", "previousresponseid", "conversation", "cachedcontent", "container", "containerid",
	"vectorstoreids",
}

// fees are fields, written likewise, that let the provider search, or run another model, for a fee.
var fees = []string{"searchparameters", "searchsettings", "compoundcustom", "safetymodel", "guardrails", "agentcount"}

// storedTypes are types of what refers to it.
var storedTypes = []string{
	"item_reference", "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call",
	"container_upload",
}

// hosted are parts of the names of tools that the provider runs; those that are true have a fee.
var hosted = map[string]bool{
	"search": true, "retrieval": true, "maps": true, "interpreter": true, "image_generation": true,
	"code_execution": true, "mcp": false, "fetch": false, "urlcontext": false, "codeexecution": false,
}

// look looks through a value.
func (s *stored) look(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			s.field(strings.ReplaceAll(strings.ToLower(k), "_", ""), inner)
			s.look(inner)
		}
		if kind, ok := v["type"].(string); ok && slices.Contains(storedTypes, strings.ToLower(kind)) {
			s.refers = true
		}
	case []any:
		for _, inner := range v {
			s.look(inner)
		}
	case string:
		s.content(v)
	}
}

func (s *stored) field(name string, v any) {
	if v == nil {
		return
	}
	lower := func() string { // texts can be long, and few matter
		text, _ := v.(string)
		return strings.ToLower(text)
	}
	switch {
	case slices.Contains(references, name):
		s.refers = true
	case name == "tools":
		s.tools(v)
	case name == "websearchoptions", slices.Contains(fees, name):
		s.refers = true
		s.extra("tools")
	case name == "servicetier" && (lower() == "priority" || lower() == "scale"),
		name == "speed" && lower() == "fast", name == "inferencegeo" && lower() == "us":
		s.extra(name)
	case name == "ttl" && lower() == "1h":
		s.extra(name)
	case strings.HasSuffix(name, "modalities"):
		all, _ := json.Marshal(v)
		if text := strings.ToLower(string(all)); strings.Contains(text, "audio") || strings.Contains(text, "image") {
			s.extra(name)
		}
	case name == "mimetype" && strings.HasPrefix(lower(), "audio/"), name == "inputaudio":
		s.extra("audio")
	}
}

func (s *stored) extra(what string) { s.surcharges = append(s.surcharges, what) }

// tools looks for tools that the provider runs.
func (s *stored) tools(v any) {
	switch v := v.(type) {
	case []any:
		for _, inner := range v {
			s.tools(inner)
		}
	case map[string]any:
		names := []string{}
		if kind, ok := v["type"].(string); ok {
			names = append(names, kind)
		} else {
			for name := range v {
				names = append(names, name)
			}
		}
		for _, name := range names {
			for part, fee := range hosted {
				if strings.Contains(strings.ToLower(name), part) {
					s.refers = true
					if fee && !strings.HasPrefix(name, "tool_search") {
						s.extra("tools")
					}
				}
			}
		}
	}
}

// content looks at what may be a file: a document or a video has more tokens than it seems.
func (s *stored) content(text string) {
	if _, data, ok := strings.Cut(text, ";base64,"); ok {
		text = data
	}
	b, err := base64.StdEncoding.DecodeString(text[:min(len(text), 16)/4*4])
	if err == nil && (strings.HasPrefix(string(b), "%PDF-") || len(b) > 8 && string(b[4:8]) == "ftyp") {
		s.refers = true
	}
}
