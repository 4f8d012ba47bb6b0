package llm

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"testing"
)

// FuzzForm: of a form that is read here another reader finds the same fields and files, in the same
// order, and none besides.
func FuzzForm(f *testing.F) {
	const kind = "multipart/form-data; boundary=b"
	const field = "--b\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n2\r\n"
	for _, body := range []string{
		"", "--b--", "--b--\r\n", field, field + "--b--", field + "--b--\r\n", field + field + "--b--\r\n", field +
			"--b--\r\nmore",
		"preamble\r\n" + field + "--b--\r\n", "--b \r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n2\r\n--b--\r\n",
		"--b\r\ncontent-disposition: form-data; name=\"image[]\"; filename=\"x\"\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n--b--\r\n",
		"--b\nContent-Disposition: form-data; name=\"n\"\n\n2\n--b--\n",
		"--b\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n\r\n--b\r\n--b--\r\n",
		"--b\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n2\n--b\nContent-Disposition: form-data; name=\"model\"\n\nx\r\n--b--\r\n",
		"--b\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n2\r\n--b--\r\n--b\r\n",
		"--b\r\nContent-Disposition: form-data; name=\"n\"\r\n x: y\r\n\r\n2\r\n--b--\r\n",
	} {
		f.Add(kind, []byte(body))
	}
	f.Add(`multipart/form-data; boundary="b"`, []byte(field+"--b--"))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		parts, err := formParts(contentType, body)
		if err != nil {
			return
		}
		_, params, err := mime.ParseMediaType(contentType)
		if err != nil {
			t.Fatalf("%q is read: %v", contentType, err)
		}
		r := multipart.NewReader(bytes.NewReader(body), params["boundary"])
		for _, p := range parts {
			other, err := r.NextRawPart()
			if err != nil {
				t.Fatalf("%q: %v", body, err)
			}
			content, err := io.ReadAll(other)
			if err != nil || other.FormName() != p.name || (other.FileName() != "") && !p.file ||
				!bytes.Equal(content, body[p.start:p.end]) {
				t.Fatalf("%q: %q %q, another reader has %q %q, %v", body, p.name, body[p.start:p.end], other.FormName(), content, err)
			}
		}
		if _, err := r.NextRawPart(); err != io.EOF {
			t.Fatalf("%q: there is more: %v", body, err)
		}
	})
}
