package simulator

import (
	"bytes"
	"fmt"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
)

// keptCall is a call for what an account has stored: responses and files, of OpenAI's API.
type keptCall struct {
	files  bool // otherwise responses
	id     string
	action string // behind the id
	method string
	upload []byte // a file
	name   string // of the file
	why    string // its purpose
}

// keptThing is what is stored.
type keptThing struct {
	about   object
	content []byte
	input   []any // of a response
}

// keptPath returns the call for what is stored at a path, or nil.
func keptPath(method, path string) *keptCall {
	segments := strings.Split(strings.TrimPrefix(path, "/v1/"), "/")
	k := &keptCall{files: segments[0] == "files", method: method}
	if !strings.HasPrefix(path, "/v1/") || !k.files && segments[0] != "responses" || len(segments) > 3 {
		return nil
	}
	if len(segments) > 1 {
		k.id = segments[1]
	}
	if len(segments) > 2 {
		k.action = segments[2]
	}
	if !k.files && k.id == "" {
		return nil // it makes one
	}
	return k
}

var keptAPI = &api{parse: parseKept}

func parseKept(r *http.Request, body []byte, q *request) error {
	k := keptPath(r.Method, r.URL.Path)
	q.kept, q.free = k, true
	if !k.files || k.id != "" || r.Method != http.MethodPost {
		return nil
	}
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return badField("file", "the request must be a form")
	}
	form, err := multipart.NewReader(bytes.NewReader(body), params["boundary"]).ReadForm(int64(len(body)))
	if err != nil || len(form.File["file"]) != 1 || len(form.Value["purpose"]) != 1 {
		return badField("file", "the form needs a file and a purpose")
	}
	defer form.RemoveAll() //nolint:errcheck // all of it is in memory
	k.name, k.why = form.File["file"][0].Filename, form.Value["purpose"][0]
	f, err := form.File["file"][0].Open()
	if err != nil {
		return badField("file", "the file cannot be read")
	}
	defer f.Close() //nolint:errcheck // it was read
	var b bytes.Buffer
	_, err = b.ReadFrom(f)
	k.upload = b.Bytes()
	return err
}

// keep stores a response, unless its call says that it should not.
func (x *exchange) keep(response object) object {
	response["store"] = !x.q.unkept
	if x.q.unkept {
		return response
	}
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	x.s.kept[fmt.Sprint(response["id"])] = &keptThing{about: response, input: x.q.inputItems}
	return response
}

// answerKept answers a call for what is stored.
func (x *exchange) answerKept() Outcome {
	x.headers(x.w.Header())
	x.w.Header().Set("Content-Type", "application/json")
	status, body := x.keptAnswer()
	if text, ok := body.([]byte); ok {
		x.w.Header().Set("Content-Type", "application/octet-stream")
		x.write(status, text)
		return Answered
	}
	x.write(status, encode(body))
	if status >= http.StatusBadRequest {
		return Rejected
	}
	return Answered
}

func (x *exchange) keptAnswer() (int, any) {
	k := x.q.kept
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if k.files && k.id == "" {
		if k.method == http.MethodGet {
			data := []object{}
			for _, id := range slices.Sorted(maps.Keys(x.s.kept)) {
				if strings.HasPrefix(id, "file-") {
					data = append(data, x.s.kept[id].about)
				}
			}
			return http.StatusOK, object{"object": "list", "data": data, "has_more": false}
		}
		about := object{
			"id": x.requestID("file-"), "object": "file", "bytes": len(k.upload), "created_at": x.began.Unix(),
			"filename": k.name, "purpose": k.why, "status": "processed",
		}
		x.s.kept[fmt.Sprint(about["id"])] = &keptThing{about: about, content: k.upload}
		return http.StatusOK, about
	}
	kind := "response"
	if k.files {
		kind = "file"
	}
	thing := x.s.kept[k.id]
	if thing == nil || thing.about["object"] != kind {
		return http.StatusNotFound, openAIError(fmt.Sprintf("No such %s: '%s'.", kind, k.id), "invalid_request_error",
			"id", nil)
	}
	switch {
	case k.method == http.MethodDelete && k.action == "":
		delete(x.s.kept, k.id)
		return http.StatusOK, object{"id": k.id, "object": kind, "deleted": true}
	case k.method == http.MethodGet && k.action == "":
		return http.StatusOK, thing.about
	case k.method == http.MethodGet && k.files && k.action == "content":
		return http.StatusOK, thing.content
	case k.method == http.MethodGet && !k.files && k.action == "input_items":
		return http.StatusOK, object{"object": "list", "data": thing.input, "has_more": false}
	case k.method == http.MethodPost && !k.files && k.action == "cancel":
		return http.StatusBadRequest, openAIError("Cannot cancel a synchronous response.", "invalid_request_error", nil, nil)
	}
	return http.StatusMethodNotAllowed, openAIError("Not allowed.", "invalid_request_error", nil,
		"method_not_supported")
}
