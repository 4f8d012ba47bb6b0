package llm

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/drawgate/drawgate/internal/pattern"
)

// Forms (multipart/form-data) are read in one way only, in which official SDKs, browsers and curl
// write them: then no program reads another value in a form than is counted here.
var (
	formType = pattern.New(`^multipart/form-data; ?boundary=([0-9A-Za-z_-]{1,70})$`)
	formName = pattern.New(`^form-data; name="([0-9A-Za-z_]{1,64}(?:\[\])?)"(; filename="[^"\\]{0,512}")?$`)
	fileType = pattern.New(`^[0-9A-Za-z.+-]{1,64}/[0-9A-Za-z.+-]{1,64}$`)
	textType = pattern.New(`(?i)^text/plain(; ?charset=utf-8)?$`)
)

// formFields are the fields of a form that have a text.
var formFields = map[string]bool{
	"model": true, "prompt": true, "n": true, "size": true, "quality": true, "partial_images": true, "stream": true,
	"background": true, "input_fidelity": true, "output_format": true, "output_compression": true,
	"response_format": true, "user": true, "moderation": true,
}

// maxParts bounds the parts of a form: OpenAI accepts 16 images.
const maxParts = 64

var (
	errForm     = errors.New("it is not written as official SDKs and curl write forms (multipart/form-data)")
	errFormType = errors.New("it must be a form (multipart/form-data; boundary=…), as official SDKs send it: " +
		"in JSON an image may be one that nobody here sees")
)

// formPart is a field of a form, or a file.
type formPart struct {
	name       string
	file       bool
	start, end int // of its content, in the body
}

// formParts reads a form.
func formParts(contentType string, body []byte) (parts []formPart, err error) {
	m := formType().FindStringSubmatch(contentType)
	if m == nil {
		return nil, errFormType
	}
	mark := []byte("--" + m[1])
	at := 0
	for {
		if !bytes.HasPrefix(body[at:], mark) {
			return nil, errForm
		}
		at += len(mark)
		switch rest := string(body[at:min(len(body), at+len("--\r\n")+1)]); {
		case len(parts) > 0 && (rest == "--" || rest == "--\r\n"):
			return parts, nil
		case !strings.HasPrefix(rest, "\r\n") || len(parts) == maxParts:
			return nil, errForm
		}
		at += len("\r\n")
		const most = 2048 // bytes of headers
		head := bytes.Index(body[at:min(len(body), at+most)], []byte("\r\n\r\n"))
		if head < 0 {
			return nil, errForm
		}
		p, err := partHead(string(body[at : at+head]))
		if err != nil {
			return nil, err
		}
		p.start = at + head + len("\r\n\r\n")
		next := bytes.Index(body[p.start:], mark)
		if next < len("\r\n") || string(body[p.start+next-2:p.start+next]) != "\r\n" {
			return nil, errForm
		}
		at = p.start + next
		p.end = at - len("\r\n")
		parts = append(parts, p)
	}
}

// partHead reads the headers of a part.
func partHead(text string) (p formPart, err error) {
	kind := ""
	control := func(r rune) bool { return r < ' ' } // some programs end a line at \n alone, or at \r
	for line := range strings.SplitSeq(text, "\r\n") {
		if strings.ContainsFunc(line, control) {
			return p, errForm
		}
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case strings.EqualFold(name, "Content-Disposition") && p.name == "":
			m := formName().FindStringSubmatch(value)
			if m == nil {
				return p, errForm
			}
			p.name, p.file = m[1], m[2] != ""
		case strings.EqualFold(name, "Content-Type") && kind == "" && value != "":
			kind = value
		default:
			return p, errForm
		}
	}
	if p.name == "" || p.file && kind != "" && !fileType().MatchString(kind) ||
		!p.file && kind != "" && !textType().MatchString(kind) {
		return p, errForm
	}
	return p, nil
}

// readForm reads the request of an edit of images.
func (c *Call) readForm(header http.Header, body []byte) error {
	parts, err := formParts(header.Get("Content-Type"), body)
	if err != nil {
		return err
	}
	r := &requestReader{call: c}
	seen := map[string]bool{}
	for _, p := range parts {
		content := body[p.start:p.end]
		image := p.name == "image" || p.name == "image[]" || p.name == "mask"
		if base := strings.TrimSuffix(p.name, "[]"); !image && formFields[base] && (p.file || base != p.name) {
			return fmt.Errorf("the field %s is in the form as a file, or as a list: programs do not agree on its value", base)
		}
		if p.file {
			c.formFile(r, &p, content)
			continue
		}
		if seen[p.name] {
			return fmt.Errorf("the field %s is in the form twice", p.name)
		}
		seen[p.name] = true
		if err := c.formField(r, &p, string(content)); err != nil {
			return fmt.Errorf("the field %s of the form: %w", p.name, err)
		}
	}
	return nil
}

// formFile counts a file of a form.
func (c *Call) formFile(r *requestReader, p *formPart, content []byte) {
	switch p.name {
	case "image", "image[]", "mask":
	default:
		r.unknown([]byte(p.name))
		return
	}
	const head = 48
	if lookAt(base64.StdEncoding.EncodeToString(content[:min(len(content), head)])) == lookImage {
		r.count1(Image, int64(len(content)))
		return
	}
	r.count1(File, 0)
}

// formField reads a field of a form.
func (c *Call) formField(r *requestReader, p *formPart, text string) (err error) {
	switch p.name {
	case "model":
		if text == "" || len(text) > maxModel {
			return errModel
		}
		c.edit.mention(mention{start: int64(p.start), end: int64(p.end), bare: true})
		switch {
		case c.Model == "":
			c.Model = text
		case c.Model != text:
			c.Other = text
		}
	case "prompt":
		c.Text.Add(text)
	case "n":
		n, err := count('0', []byte(text))
		if err != nil || n > maxAnswers {
			return errCount
		}
		c.Answers = max(c.Answers, n)
	case "size":
		c.image.size = text
	case "quality":
		c.image.quality = text
	case "partial_images":
		c.image.partials, err = count('0', []byte(text))
	case "stream":
		if text != "true" && text != "false" {
			return errKind
		}
		c.Stream = text == "true"
	default:
		if !formFields[p.name] { // such as an image that is given by an id
			r.unknown([]byte(p.name))
		}
	}
	return err
}
