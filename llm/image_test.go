package llm_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/llm"
)

// editOf parses an edit of one image.
func editOf(t *testing.T, model, more string) *llm.Call {
	t.Helper()
	const field = "--b\r\nContent-Disposition: form-data; name=\"%s\"%s\r\n\r\n%s\r\n"
	body := fmt.Sprintf(field, "model", "", model) + fmt.Sprintf(field, "image", `; filename="a.png"`,
		"\x89PNG\r\n\x1a\n....") +
		fmt.Sprintf(field, "prompt", "", "A cat") + more + "--b--\r\n"
	header := http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}
	c, err := llm.OpenAI().Parse(http.MethodPost, "/v1/images/edits", header, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTokensOfImages: an image reserves what is published for its size and quality, the most of
// these where one of them is not said or not known, and as much for each of several; of a model of
// which nothing is published nobody says that it is a bound.
func TestTokensOfImages(t *testing.T) {
	t.Parallel()
	p := llm.OpenAI()
	for _, c := range []struct {
		model, more string
		want        int64
		upper       bool
	}{
		{"gpt-image-1", `,"quality":"low","size":"1024x1024"`, 272, true},
		{"gpt-image-1", `,"quality":"high","size":"1536x1024","n":3`, 3 * 6208, true},
		{"gpt-image-1-mini", `,"quality":"medium","size":"1024x1536"`, 1584, true},
		{"gpt-image-1", `,"quality":"low","size":"1024x1024","stream":true,"partial_images":3`, 572, true},
		{"gpt-image-1", ``, 6240, true},
		{"gpt-image-1", `,"quality":"low"`, 6240, true},
		{"gpt-image-1", `,"size":"1024x1024"`, 6240, true},
		{"gpt-image-1", `,"quality":"low","size":"4096x4096"`, 6240, true},
		{"gpt-image-1", `,"quality":"low","size":"1024x1024","more":1`, 6240, true},
		{"gpt-image-1.5", `,"quality":"low","size":"1024x1024"`, 16_384, false},
		{"gpt-image-2", `,"quality":"low","size":"1024x1024","n":2`, 32_768, false},
		{"painter", `,"quality":"low","size":"1024x1024"`, 128_000, false},
		{"dall-e-3", `,"n":1`, 0, true},
	} {
		body := fmt.Sprintf(`{"model":%q,"prompt":"A cat"%s}`, c.model, c.more)
		call, err := p.Parse(http.MethodPost, "/v1/images/generations", nil, []byte(body))
		if err != nil {
			t.Fatal(body, err)
		}
		if e := p.Upper(call); e.Output != c.want || e.Upper != c.upper {
			t.Errorf("%s: %d tokens, a bound: %t; want %d, %t", body, e.Output, e.Upper, c.want, c.upper)
		}
	}
}

// TestPriceOfEdits: images in the prompt of an edit cost what images cost, also where the provider
// does not say how many tokens they had; and an edit is refused where their price is not known.
func TestPriceOfEdits(t *testing.T) {
	t.Parallel()
	p := llm.OpenAI()
	c := editOf(t, "gpt-image-1", "")
	prices := func(image int64) *llm.Prices {
		return &llm.Prices{Currency: "usd", Models: map[string]llm.Price{"gpt-image-1": {
			Input: 5_000_000, Output: 40_000_000, ImageInput: image,
		}}}
	}
	held := p.Upper(c)
	_, most, err := prices(10_000_000).Hold(c, held)
	if err != nil {
		t.Fatal(err)
	}
	_, untold, err := prices(10_000_000).Cost(c, held, llm.Usage{})
	least := (48_169*10_000_000 + 6240*40_000_000) / int64(1_000_000)
	if err != nil || untold < least || untold > most {
		t.Errorf("untold it costs %d, %v; want %d to %d", untold, err, least, most)
	}
	reported := llm.Usage{
		Input: 110, InputKnown: true, ImageInput: 100, Output: 272, OutputKnown: true, Final: true,
		Ended: true,
	}
	if _, n, err := prices(10_000_000).Cost(c, held, reported); n != 10*5+100*10+272*40 || err != nil {
		t.Errorf("told it costs %d, %v", n, err)
	}
	if _, _, err := prices(0).Hold(c, held); err == nil || !strings.Contains(err.Error(), "image_input") {
		t.Errorf("without a price of images: %v", err)
	}
}
