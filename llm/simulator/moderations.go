package simulator

import (
	"encoding/json"
	"net/http"
)

// defaultModeration is the model of moderations that name none.
const defaultModeration = "omni-moderation-latest"

func parseModerations(_ *http.Request, body []byte, q *request) error {
	var in struct {
		Input json.RawMessage `json:"input"`
	}
	if err := decode(body, q, &in); err != nil {
		return err
	}
	if q.model == "" {
		q.model = defaultModeration
	}
	var (
		one   string
		texts []string
		parts content
	)
	switch {
	case string(in.Input) == "null" || len(in.Input) == 0:
		return badField("input", "Missing required parameter: 'input'.")
	case json.Unmarshal(in.Input, &one) == nil:
		q.vectors = 1
		q.add(one)
	case json.Unmarshal(in.Input, &texts) == nil:
		q.vectors, q.texts = len(texts), texts
	case json.Unmarshal(in.Input, &parts) == nil:
		q.vectors = 1
		q.message(parts)
	default:
		return badField("input", "'$.input' is invalid: it must be text, or a list of texts or of parts.")
	}
	return nil
}

func answerModerations(x *exchange) any {
	results := []object{}
	for range x.q.vectors {
		results = append(results, object{
			"flagged": false, "categories": object{"violence": false}, "category_scores": object{"violence": 0.001},
			"category_applied_input_types": object{"violence": []string{"text"}},
		})
	}
	return object{"id": x.requestID("modr-"), "model": x.q.model, "results": results}
}
