package simulator

import (
	"encoding/json"
	"fmt"
	"net/http"
)

type responsesRequest struct {
	Model           string          `json:"model"`
	Input           json.RawMessage `json:"input"`
	Instructions    content         `json:"instructions"`
	MaxOutputTokens *int64          `json:"max_output_tokens"`
	Stream          bool            `json:"stream"`
	StreamOptions   *struct {
		IncludeObfuscation *bool `json:"include_obfuscation"`
	} `json:"stream_options"`
	Tools jsonList `json:"tools"`
	Store *bool    `json:"store"`

	Background bool `json:"background"`
}

// inputItem is one item of the input: a message, a tool's call or its result.
type inputItem struct {
	Type      string  `json:"type"`
	Role      string  `json:"role"`
	Content   content `json:"content"`
	Name      string  `json:"name"`
	Arguments string  `json:"arguments"`
	Output    content `json:"output"`
}

func parseResponses(_ *http.Request, body []byte, q *request) (err error) {
	var in responsesRequest
	if err := decode(body, q, &in); err != nil {
		return err
	}
	q.generates, q.stream, q.usage = true, in.Stream, true
	q.obfuscate = in.Stream && (in.StreamOptions == nil || in.StreamOptions.IncludeObfuscation == nil ||
		*in.StreamOptions.IncludeObfuscation)
	q.background = in.Background
	q.unkept = in.Store != nil && !*in.Store
	q.inputItems = []any{object{"type": "message", "role": "user", "id": "msg_input", "content": in.Input}}
	if in.Model == "" {
		return badField("model", "Missing required parameter: 'model'.")
	}
	if q.maxTokens, err = bounded(in.MaxOutputTokens, "max_output_tokens", maxMaxTokens, 0); err != nil {
		return err
	}
	q.fixed = TokensPerRequest
	if in.Instructions.given {
		q.message(in.Instructions)
	}
	for _, t := range in.Tools {
		q.tool(t)
	}
	return q.items(in.Input)
}

// items reads text, or a list of items.
func (q *request) items(input json.RawMessage) error {
	var text string
	if json.Unmarshal(input, &text) == nil && string(input) != "null" {
		q.message(content{texts: []string{text}})
		return nil
	}
	var items []inputItem
	if err := json.Unmarshal(input, &items); err != nil || len(items) == 0 {
		return badField("input", "Missing required parameter: 'input'. It must be text or a list of items.")
	}
	for i, it := range items {
		if it.Type == "" && it.Role == "" {
			return badField(fmt.Sprintf("input[%d]", i), "Invalid value: an item needs a 'type' or a 'role'.")
		}
		c := it.Content
		c.texts, c.files = append(c.texts, it.Output.texts...), c.files+it.Output.files
		q.message(c, it.Name, it.Arguments)
	}
	return nil
}

func answerResponses(x *exchange) any {
	whole := x.keep(newResponses(x).response(true))
	if !x.q.background {
		return whole
	}
	later := newResponses(x).response(false)
	later["status"], later["background"] = "queued", true
	return later
}

// responsesStream is the stream of the Responses API: typed events, numbered from 0.
type responsesStream struct {
	*exchange
	number int64
}

func newResponses(x *exchange) *responsesStream { return &responsesStream{exchange: x} }

// response returns the response as it is when it begins, or when it is complete.
func (s *responsesStream) response(complete bool) object {
	r := object{
		"id": s.requestID("resp_"), "object": "response", "created_at": s.began.Unix(), "model": s.q.model,
		"status": "in_progress",
		"error":  nil, "incomplete_details": nil, "instructions": nil, "max_output_tokens": nil, "metadata": object{},
		"output":              []any{},
		"parallel_tool_calls": true, "previous_response_id": nil, "reasoning": object{"effort": nil, "summary": nil},
		"service_tier": "default",
		"store":        false, "temperature": 1.0, "text": object{"format": object{"type": "text"}},
		"tool_choice": "auto",
		"tools":       []any{}, "top_p": 1.0,
		"truncation": "disabled", "usage": nil, "user": nil,
	}
	if s.q.maxTokens > 0 {
		r["max_output_tokens"] = s.q.maxTokens
	}
	if !complete {
		return r
	}
	r["status"] = "completed"
	r["output"] = []object{s.item(true)}
	if _, truncated := s.q.words(); truncated {
		r["status"], r["incomplete_details"] = "incomplete", object{"reason": "max_output_tokens"}
	}
	if s.fault.Kind == FaultNoUsage {
		return r
	}
	r["usage"] = object{
		"input_tokens": s.q.input, "output_tokens": s.output, "total_tokens": s.q.input + s.output,
		"input_tokens_details":  object{"cached_tokens": s.q.cacheRead, "cache_write_tokens": s.q.cacheWrite},
		"output_tokens_details": object{"reasoning_tokens": s.q.thoughts},
	}
	return r
}

func (s *responsesStream) itemID() string { return s.requestID("msg_") }

func (s *responsesStream) item(complete bool) object {
	item := object{
		"id": s.itemID(), "type": "message", "role": "assistant", "status": "in_progress",
		"content": []any{},
	}
	if complete {
		item["status"], item["content"] = s.q.finish("completed", "incomplete"), []object{s.part(s.q.text())}
	}
	return item
}

func (s *responsesStream) part(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
}

// event returns an event with the next number.
func (s *responsesStream) event(name string, data object) event {
	data["type"], data["sequence_number"] = name, s.number
	s.number++
	return event{name, data}
}

// at returns the place of the text in the response.
func (s *responsesStream) at(more object) object {
	more["item_id"], more["output_index"], more["content_index"] = s.itemID(), 0, 0
	return more
}

func (s *responsesStream) begin() []event {
	return []event{
		s.event("response.created", object{"response": s.response(false)}),
		s.event("response.in_progress", object{"response": s.response(false)}),
		s.event("response.output_item.added", object{"output_index": 0, "item": s.item(false)}),
		s.event("response.content_part.added", s.at(object{"part": s.part("")})),
	}
}

func (s *responsesStream) words(_ int64, text string) []event {
	delta := s.at(object{"delta": text, "logprobs": []any{}})
	if s.q.obfuscate {
		delta["obfuscation"] = padding(len(text))
	}
	return []event{s.event("response.output_text.delta", delta)}
}

func (s *responsesStream) end() []event {
	return []event{
		s.event("response.output_text.done", s.at(object{"text": s.q.text(), "logprobs": []any{}})),
		s.event("response.content_part.done", s.at(object{"part": s.part(s.q.text())})),
		s.event("response.output_item.done", object{"output_index": 0, "item": s.item(true)}),
		s.event("response."+s.q.finish("completed", "incomplete"), object{"response": s.keep(s.response(true))}),
	}
}

func (s *responsesStream) fail() []event {
	return []event{s.event("error", object{
		"code":    "server_error",
		"message": "The server had an error while processing your request. Sorry about that!", "param": nil,
	})}
}
