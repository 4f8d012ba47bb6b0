package llm_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/llm"
)

// TestFormsThatReadersReadDifferently: a form is refused in which another program might find
// another value than is counted here: text fields as files (to some servers a part is one even
// though it names a file, above all if that name is empty) or as lists, and ends of lines in other
// places.
func TestFormsThatReadersReadDifferently(t *testing.T) {
	t.Parallel()
	const model = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ngpt-image-1-mini\r\n"
	part := func(disposition, content string) string {
		return "--b\r\nContent-Disposition: form-data; " + disposition + "\r\n\r\n" + content + "\r\n"
	}
	header := http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}
	for _, c := range []struct {
		more string
		good bool
	}{
		{part(`name="n"`, "2"), true},
		{part(`name="image[]"; filename="a.png"`, "x"), true},
		{part(`name="image"; filename=""`, "x"), true},
		{part(`name="other"; filename="a"`, "x"), true}, // which costs the most
		{part(`name="n"; filename=""`, "10"), false},
		{part(`name="n"; filename="a"`, "10"), false},
		{part(`name="n[]"`, "10"), false},
		{part(`name="model"; filename="a"`, "gpt-image-1"), false},
		{part(`name="model[]"`, "gpt-image-1"), false},
		{part(`name="quality"; filename=""`, "high"), false},
		{part("name=\"image\"; filename=\"a\nContent-Disposition: form-data; name=n\n\n10\"", "x"), false},
		{part("name=\"image\"; filename=\"a\rb\"", "x"), false},
		{part("name=\"image\"; filename=\"a\x00\"", "x"), false},
	} {
		call, err := llm.OpenAI().Parse(http.MethodPost, "/v1/images/edits", header, []byte(model+c.more+"--b--\r\n"))
		if (err == nil) != c.good {
			t.Errorf("%q: %v", c.more, err)
		}
		if err == nil && strings.Contains(c.more, "other") && call.Unknown == 0 {
			t.Errorf("%q is understood", c.more)
		}
	}
}
