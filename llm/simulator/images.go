package simulator

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
)

// imageRequest is a request that makes images: all of a form, or the JSON of one without files.
type imageRequest struct {
	Model         string `json:"model"`
	Prompt        string `json:"prompt"`
	N             *int64 `json:"n"`
	Size          string `json:"size"`
	Quality       string `json:"quality"`
	Stream        bool   `json:"stream"`
	PartialImages int64  `json:"partial_images"`

	images int64 // files of a form
}

// images is what a request that makes images asks for.
type images struct {
	images     int64 // how many; 0: it makes none
	each       int64 // tokens of each
	partials   int64 // how often a stream shows each before it is done
	imageInput int64 // tokens of the input that are of images
	edits      bool
	untold     bool // its usage is not told: such models cost by the image
}

// Tokens of images. Those that are made have as many as OpenAI's guide to image generation says;
// what it leaves to the model is a square of middle quality.
const (
	maxImages     = 10
	maxPartials   = 3
	perPartial    = 100
	usualImage    = 1056
	perInputImage = 65 + 129
)

var imageSizes = map[string]int{"1024x1024": 0, "1024x1536": 1, "1536x1024": 2}

var imageTokens = map[string][3]int64{
	"low": {272, 408, 400}, "medium": {1056, 1584, 1568}, "high": {4160, 6240, 6208},
}

func parseImages(_ *http.Request, body []byte, q *request) error {
	var in imageRequest
	if err := decode(body, q, &in); err != nil {
		return err
	}
	return q.draw(&in)
}

func parseImageEdits(r *http.Request, body []byte, q *request) error {
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return errors.New("the request must be a form")
	}
	form, err := multipart.NewReader(bytes.NewReader(body), params["boundary"]).ReadForm(int64(len(body)))
	if err != nil {
		return errors.New("the form cannot be read")
	}
	defer form.RemoveAll() //nolint:errcheck // all of it is in memory
	var in imageRequest
	for name, list := range form.Value {
		value := strings.Join(list, "")
		number, _ := strconv.ParseInt(value, 10, 64)
		switch name {
		case "model":
			in.Model, q.model = value, value
		case "prompt":
			in.Prompt = value
		case "n":
			in.N = &number
		case "size":
			in.Size = value
		case "quality":
			in.Quality = value
		case "stream":
			in.Stream = value == "true"
		case "partial_images":
			in.PartialImages = number
		}
	}
	for name, files := range form.File {
		for _, f := range files {
			if name != "image" && name != "image[]" && name != "mask" {
				return badField(name, "Unknown parameter: '%s'.", name)
			}
			if !isImage(f) {
				return badField(name, "Invalid file '%s': unsupported mimetype.", name)
			}
			in.images++
		}
	}
	if in.images == 0 {
		return badField("image", "Missing required parameter: 'image'.")
	}
	q.edits = true
	return q.draw(&in)
}

// isImage reports whether a file begins as an image.
func isImage(f *multipart.FileHeader) bool {
	file, err := f.Open()
	if err != nil {
		return false
	}
	defer file.Close() //nolint:errcheck // it was read
	head, _ := io.ReadAll(io.LimitReader(file, 512))
	return strings.HasPrefix(http.DetectContentType(head), "image/")
}

// draw notes what a request asks for.
func (q *request) draw(in *imageRequest) (err error) {
	switch {
	case in.Model == "":
		return badField("model", "you must provide a model parameter")
	case in.Prompt == "":
		return badField("prompt", "Missing required parameter: 'prompt'.")
	case in.PartialImages < 0 || in.PartialImages > maxPartials:
		return badField("partial_images", "Invalid 'partial_images': it must be from 0 to %d.", maxPartials)
	}
	if q.images.images, err = bounded(in.N, "n", maxImages, 1); err != nil {
		return err
	}
	q.generates, q.stream, q.partials = true, in.Stream, in.PartialImages
	q.add(in.Prompt)
	q.imageInput = in.images * perInputImage
	q.fixed += q.imageInput
	if q.untold = strings.HasPrefix(in.Model, "dall-e-"); q.untold {
		return nil
	}
	q.each = usualImage
	if sizes, ok := imageTokens[in.Quality]; ok {
		q.each = sizes[imageSizes[in.Size]]
	}
	q.each += q.partials * perPartial
	return nil
}

// pixel is a PNG of one pixel.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="

func imageUsage(x *exchange) object {
	return object{
		"input_tokens": x.q.input, "output_tokens": x.output, "total_tokens": x.q.input + x.output,
		"input_tokens_details": object{"text_tokens": x.q.input - x.q.imageInput, "image_tokens": x.q.imageInput},
	}
}

func answerImages(x *exchange) any {
	data := []object{}
	for range x.q.images.images {
		data = append(data, object{"b64_json": pixel})
	}
	answer := object{"created": x.began.Unix(), "data": data}
	if !x.q.untold && x.fault.Kind != FaultNoUsage {
		answer["usage"] = imageUsage(x)
	}
	return answer
}

// imageStream is the stream of images: some that are not done, and each that is.
type imageStream struct{ *exchange }

func (s imageStream) event(kind string, more object) event {
	name := "image_generation." + kind
	if s.q.edits {
		name = "image_edit." + kind
	}
	more["type"], more["created_at"], more["b64_json"] = name, s.began.Unix(), pixel
	more["size"], more["quality"], more["background"], more["output_format"] = "1024x1024", "medium", "opaque", "png"
	return event{name, more}
}

func (s imageStream) begin() (events []event) {
	for i := range s.q.partials {
		events = append(events, s.event("partial_image", object{"partial_image_index": i}))
	}
	return events
}

func (imageStream) words(int64, string) []event { return nil }

func (s imageStream) end() (events []event) {
	more := object{}
	if !s.q.untold && s.fault.Kind != FaultNoUsage {
		more["usage"] = imageUsage(s.exchange)
	}
	return []event{s.event("completed", more)}
}

func (s imageStream) fail() []event {
	return []event{{"error", object{"type": "error", "error": object{
		"type": "server_error", "code": "server_error", "param": nil,
		"message": "The server had an error while processing your request. Sorry about that!",
	}}}}
}
