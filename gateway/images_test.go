package gateway_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/spend"
)

// png is an image of one pixel.
var png, _ = base64.StdEncoding.DecodeString(
	"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==")

// edit writes an edit of images as SDKs do: so many images, and fields such as "n=2".
func edit(t *testing.T, files int, fields ...string) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := range files {
		part, err := w.CreateFormFile("image[]", fmt.Sprintf("%d.png", i))
		if err != nil {
			t.Fatal(err)
		}
		part.Write(png)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		w.WriteField(name, value)
	}
	w.Close()
	return b.String(), "Content-Type: " + w.FormDataContentType()
}

// priceOfImages are the prices of the tests.
func priceOfImages() *llm.Prices {
	return &llm.Prices{Currency: "usd", Models: map[string]llm.Price{
		"gpt-image-1":      {Input: 5_000_000, CacheRead: 1_250_000, Output: 40_000_000, ImageInput: 10_000_000},
		"gpt-image-1-mini": {Input: 2_000_000, Output: 8_000_000},
		"gpt-image-2":      {Input: 5_000_001, Output: 30_000_001, ImageInput: 8_000_001, Image: 7},
		"dall-e-3":         {Image: 40_000},
		"gpt-4o":           {Input: 2_500_000, Output: 10_000_000},
	}}
}

// billOfImages is what the provider bills for a call that made images, by its own record.
func billOfImages(c *simulator.Call) int64 {
	if c.Status != http.StatusOK && c.Outcome != simulator.Cut {
		return 0
	}
	p := priceOfImages().Models[c.Model]
	sum := uint64(0)
	for _, v := range [][2]int64{
		{c.Input - c.ImageInput, p.Input}, {c.ImageInput, p.ImageInput}, {c.Output, p.Output},
	} {
		high, low := bits.Mul64(uint64(v[0]), uint64(v[1]))
		if high != 0 {
			panic("the numbers of the test are too large")
		}
		sum += low
	}
	return int64((sum+999_999)/1_000_000) + c.Images*p.Image
}

// TestBillOfImages: images that are made and edited, one or several, by tokens and by the piece,
// streamed or not: the provider's bill, what is spent, and what the ledger says are the same to the
// millionth. So are the counts of requests, tokens and images, of which the provider's own limits
// refuse nothing.
func TestBillOfImages(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		dir := t.TempDir()
		inBubble(t, func(s *setup) {
			s.ledger, s.config.Prices = dir, priceOfImages()
			s.options.Wait = 3 * time.Hour
			p := drawgate.Policy{Name: "upstream", Limits: []drawgate.Limit{
				drawgate.RollingLimit("rpm", 6, time.Minute),
				drawgate.RollingLimit("ipm", 12, time.Minute).Of(llm.UnitImages),
				drawgate.RollingLimit("tpm", 500_000, time.Minute).Of(llm.UnitTokens),
			}}
			for i := range p.Limits {
				p.Limits[i].Margin = 2 * time.Second
			}
			s.policies = []drawgate.Policy{p}
			s.sim.Quotas = []simulator.Quota{{
				Provider: "openai", Name: "all", Models: []string{"*"}, Shared: true, Limits: []simulator.Limit{
					{Name: "rpm", Dimension: simulator.Requests, Window: simulator.Rolling, Amount: 6},
					{Name: "ipm", Dimension: simulator.Images, Window: simulator.Rolling, Amount: 12},
					{Name: "tpm", Dimension: simulator.Tokens, Window: simulator.Rolling, Amount: 500_000},
				},
			}}
		}, func(t *testing.T, b *bench) {
			rng := rand.New(rand.NewPCG(seed, 7))
			pick := func(list ...string) string { return list[rng.IntN(len(list))] }
			for range 60 {
				model := pick("gpt-image-1", "gpt-image-1-mini", "gpt-image-2", "dall-e-3")
				prompt := strings.Repeat("word ", 1+rng.IntN(50))
				n := 1 + rng.IntN(3)
				stream := model != "dall-e-3" && rng.IntN(3) == 0
				if stream {
					n = 1
				}
				as := "Authorization: Bearer " + pick(alice, bob)
				quality, size := pick("auto", "low", "medium", "high"),
					pick("auto", "1024x1024", "1024x1536", "1536x1024")
				var r *http.Request
				if model == "gpt-image-1" && rng.IntN(2) == 0 {
					body, kind := edit(t, 1+rng.IntN(3), "model="+model, "prompt="+prompt, fmt.Sprint("n=", n),
						fmt.Sprint("stream=", stream), "quality="+quality, "size="+size)
					r = b.raw(t.Context(), http.MethodPost, "/openai/v1/images/edits", body, as, kind)
				} else {
					body := fmt.Sprintf(`{"model":%q,"prompt":%q,"n":%d,"quality":%q,"size":%q,"stream":%t,"partial_images":%d}`,
						model, prompt, n, quality, size, stream, rng.IntN(4))
					r = b.raw(t.Context(), http.MethodPost, "/openai/v1/images/generations", body, as)
				}
				if got := b.do(r); got.status != http.StatusOK {
					t.Fatalf("got %d %s", got.status, got.body)
				}
			}
			time.Sleep(2 * time.Minute)
			if v := b.sim.Violations(); v.Total != 0 {
				t.Errorf("the provider refused %+v", v)
			}
			bill := map[string]int64{}
			calls := b.sim.Calls()
			for i := range calls {
				bill[calls[i].Model] += billOfImages(&calls[i])
			}
			spent := map[string]int64{}
			for m, u := range b.spent() {
				spent[m.Model] += u.Micros
			}
			if diff := cmp.Diff(bill, spent); diff != "" || len(bill) != 4 {
				t.Errorf("seed %d: -bill +spent:\n%s", seed, diff)
			}
			if diff := cmp.Diff(b.reported(), b.spent()); diff != "" {
				t.Errorf("seed %d: -client +store:\n%s", seed, diff)
			}
			rows, reported := b.countedTwice(dir)
			if diff, doubtful := spend.Compare(rows, reported,
				b.money); len(diff)+len(doubtful)+len(reported.Unended) > 0 || reported.Calls != 60 {
				t.Errorf("seed %d: the ledger differs: %+v", seed, diff)
			}
		})
	}
}

// TestImagesThatNeverFit: the refusal of a call of more images than are ever granted says how to
// ask for fewer, and names no max_tokens, which such a call does not have.
func TestImagesThatNeverFit(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		s.policies = []drawgate.Policy{{Name: "upstream", Limits: []drawgate.Limit{
			drawgate.RollingLimit("ipm", 2, time.Minute).Of(llm.UnitImages),
		}}}
	}, func(t *testing.T, b *bench) {
		got := b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/images/generations",
			`{"model":"gpt-image-1","prompt":"a gate","n":3}`, "Authorization: Bearer "+alice))
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, "ask for fewer images (n)") ||
			strings.Contains(got.body, "max_tokens") {
			t.Errorf("got %d %s", got.status, got.body)
		}
	})
}

// TestImagesThatAreNotTold: a provider that does not tell what an image used, that breaks off, or
// whose caller leaves, costs what was reserved for it.
func TestImagesThatAreNotTold(t *testing.T) {
	t.Parallel()
	const most = 6240 * 40 // millionths of an image of the dearest size and quality
	for _, c := range []struct {
		fault, more string
	}{
		{"no_usage", ``},
		{"no_usage", `,"stream":true`},
		{"cut", ``},
		{"cut", `,"stream":true,"partial_images":0`},
		{"error_event", `,"stream":true`},
	} {
		inBubble(t, func(s *setup) { s.config.Prices = priceOfImages() }, func(t *testing.T, b *bench) {
			body := fmt.Sprintf(`{"model":"gpt-image-1","prompt":%q%s}`, "A cat.\nsimulate: fault="+c.fault, c.more)
			b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/images/generations", body, "Authorization: Bearer "+alice))
			time.Sleep(2 * time.Minute)
			if u := b.spent()[b.meter("alice", "red", "openai", "gpt-image-1")]; u.Micros < most ||
				u.AnswerTokens < 6240 {
				t.Errorf("%s %s: %+v is spent, want no less than %d", c.fault, c.more, u, most)
			}
		})
	}
}

// TestImagesThatCannotBeCounted: what is not understood of a call for images does not reach the
// provider, and the error says what it was; nor does a model that the key may not use, in JSON or
// in a form.
func TestImagesThatCannotBeCounted(t *testing.T) {
	t.Parallel()
	const path, edits = "/openai/v1/images/generations", "/openai/v1/images/edits"
	inBubble(t, func(s *setup) {
		s.config.Prices = priceOfImages()
		s.config.Keys[1].Models = []string{"openai/gpt-image-1", "openai/dall-e-*"}
	}, func(t *testing.T, b *bench) {
		form := func(files int, fields ...string) [2]string {
			body, kind := edit(t, files, fields...)
			return [2]string{body, kind}
		}
		good := form(1, "model=gpt-image-1", "prompt=x")
		bare := func(old, with string) [2]string {
			return [2]string{strings.Replace(good[0], old, with, 1), good[1]}
		}
		json := func(text string) [2]string { return [2]string{text, "Content-Type: application/json"} }
		for i, c := range []struct {
			path string
			call [2]string
			want string // of the error; "" passes
		}{
			{path, json(`{"model":"gpt-image-1","prompt":"x","n":2}`), ""},
			{path, json(`{"model":"dall-e-3","prompt":"x"}`), ""},
			{edits, good, ""},
			{path, json(`{"model":"gpt-image-1-mini","prompt":"x"}`), "no model"},
			{path, json(`{"model":"gpt-4o","prompt":"x"}`), "no model"},
			{path, json(`{"prompt":"x"}`), "does not name its model"},
			{path, json(`{"model":"gpt-image-1","prompt":"x","n":"2"}`), "cannot be counted"},
			{path, json(`{"model":"gpt-image-1","prompt":"x","n":-1}`), "negative"},
			{path, json(`{"model":"gpt-image-1","prompt":"x","n":1.5}`), "fraction"},
			{path, json(`{"model":"gpt-image-1","prompt":"x","N":9}`), "other capitals"},
			{path, json(`{"model":"gpt-image-1","prompt":"x","count":9}`), "the field count"},
			{path, json(`{"model":"gpt-image-1","prompt":"x","size":["1024x1024"]}`), "another type"},
			{path, json(`{"model":"gpt-image-1","prompt":"x","n":2,"stream":true}`), "a stream of 2 images"},
			{path, json(`{"model":"gpt-image-1","prompt":"x","model":"dall-e-3"}`), "twice"},
			{edits, json(`{"model":"gpt-image-1","prompt":"x","images":[{"file_id":"file-1"}]}`), "must be a form"},
			{edits, form(1, "model=gpt-image-1-mini", "prompt=x"), "no model"},
			{edits, form(1, "model=gpt-image-1", "prompt=x", "model=gpt-image-1-mini"), "twice"},
			{edits, form(1, "model=gpt-image-1", "prompt=x", "n=1", "n=9"), "twice"},
			{edits, form(1, "model=gpt-image-1", "prompt=x", "n=-1"), "negative"},
			{edits, form(1, "model=gpt-image-1", "prompt=x", "image=file-1"), "the field image"},
			{edits, form(1, "model=gpt-image-1", "prompt=x", "count=9"), "the field count"},
			{edits, form(1, "prompt=x"), "does not name its model"},
			{edits, form(1, "model=dall-e-2", "prompt=x"), "no price"},
			{edits, bare(`name="prompt"`, `name="prompt"; name="model"`), "not written as"},
			{edits, bare(`name="prompt"`, `name=prompt`), "not written as"},
			{edits, bare(`name="model"`, `name="model"; filename*=UTF-8''x`), "not written as"},
			{edits, bare(`filename="0.png"`, `filename="0\"; name=\"model"`), "not written as"},
			{edits, bare("Content-Type: application/octet-stream", "Content-Transfer-Encoding: base64"), "not written as"},
			{edits, bare("\r\n\r\nx\r\n", "\r\n\r\nx\n"), "not written as"},
			{edits, bare("--\r\n", "--\r\nmore"), "not written as"},
			{edits, [2]string{good[0], good[1] + "; boundary=y"}, "not valid"},
			{
				edits,
				[2]string{good[0], strings.ReplaceAll(good[1], "boundary=", `boundary*=utf-8''`)},
				"must be a form",
			},
		} {
			before := len(b.sim.Calls())
			got := b.do(b.raw(t.Context(), http.MethodPost, c.path, c.call[0], "Authorization: Bearer "+bob, c.call[1],
				gateway.HeaderTimeout+": 0"))
			if c.want == "" {
				if got.status != http.StatusOK {
					t.Errorf("%d: %q: got %d %s", i, c.call[0], got.status, got.body)
				}
				continue
			}
			if got.status < 400 || !strings.Contains(got.body, c.want) || len(b.sim.Calls()) != before {
				t.Errorf("%d: %q: got %d %s, and the provider %d calls; want an error with %q", i, c.call[0], got.status,
					got.body, len(b.sim.Calls())-before, c.want)
			}
		}
	})
}

// TestImagesByAnAlias: an alias stands for a model that makes images, also in a form.
func TestImagesByAnAlias(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		s.config.Aliases = []gateway.Alias{{
			Name:   "painter",
			Models: []gateway.Target{{Upstream: "openai", Model: "gpt-image-1"}},
		}}
		s.config.Keys[0].Models = []string{"painter"}
	}, func(t *testing.T, b *bench) {
		body, kind := edit(t, 1, "prompt=x", "model=painter", "n=2")
		for path, call := range map[string][2]string{
			"/openai/v1/images/generations": {`{"model":"painter","prompt":"x","n":2}`, "Content-Type: application/json"},
			"/openai/v1/images/edits":       {body, kind},
		} {
			got := b.do(b.raw(t.Context(), http.MethodPost, path, call[0], "Authorization: Bearer "+alice, call[1]))
			if got.status != http.StatusOK || b.last().Model != "gpt-image-1" || b.last().Images != 2 {
				t.Errorf("%s: got %d %s, sent as %+v", path, got.status, got.body, b.last())
			}
		}
		b.settled()
	})
}

// TestModerations: a moderation counts as a request, and the tokens of its prompt; it needs a model
// that the key may use, is sent with the one that it counts as, and costs nothing at OpenAI. Of
// another model that is not certain.
func TestModerations(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		s.config.Prices = priceOfImages()
		s.config.Keys[1].Models = []string{"openai/gpt-*"}
	}, func(t *testing.T, b *bench) {
		for _, c := range []struct {
			body, as, want string
			status         int
		}{
			{`{"input":"Hello, you."}`, alice, "", 200},
			{`{}`, alice, "input", 400},
			{`{"model":null,"input":["a","b"]}`, alice, "", 200},
			{`{"model":"omni-moderation-2024-09-26","input":[{"type":"text","text":"a"}]}`, alice, "", 200},
			{`{"model":"text-moderation-latest","input":"a"}`, alice, "", 200},
			{`{"model":"other-moderation","input":"a"}`, alice, "has no price", 404},
			{`{"input":"a","inputs":"b"}`, alice, "the field inputs", 400},
			{`{"input":"a"}`, bob, "no model", 404},
			{`{"model":"gpt-4o","input":"a"}`, bob, "", 200},
		} {
			before := len(b.sim.Calls())
			got := b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/moderations", c.body,
				"Authorization: Bearer "+c.as))
			if got.status != c.status || !strings.Contains(got.body, c.want) {
				t.Errorf("%s: got %d %s, want %d %q", c.body, got.status, got.body, c.status, c.want)
			}
			if reached := len(b.sim.Calls()) > before; reached != (c.status == 200 || c.body == "{}") {
				t.Errorf("%s: it reached the provider: %t", c.body, reached)
			}
		}
		time.Sleep(2 * time.Minute)
		u := b.spent()[b.meter("alice", "red", "openai", "omni-moderation")]
		if u.Requests != 4 || u.PromptTokens < 10 || u.AnswerTokens != 0 || u.Micros != 0 {
			t.Errorf("%+v is spent by %+v", u, b.spent())
		}
		if u := b.spent()[b.meter("bob", "blue", "openai", "gpt-4o")]; u.Requests != 1 || u.Micros == 0 {
			t.Errorf("by a model that has a price %+v is spent", u)
		}
	})
}

// TestImpliedModel: what the provider gets of a moderation without a model names the one that was
// counted.
func TestImpliedModel(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"input":"a"}`, `{}`, `{ "model" : null , "input":"a"}`} {
		c, err := llm.OpenAI().Parse(http.MethodPost, "/v1/moderations", nil, []byte(body))
		if err != nil || !c.Implied || c.Model != "omni-moderation-latest" {
			t.Fatal(c, err)
		}
		sent, err := c.WithImplied([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		again, err := llm.OpenAI().Parse(http.MethodPost, "/v1/moderations", nil, sent)
		if err != nil || again.Implied || again.Model != c.Model || again.Text != c.Text {
			t.Errorf("%s is sent as %s: %v", body, sent, err)
		}
		if _, err := c.WithImplied(append(sent, ' ')); err == nil {
			t.Error("another body is accepted")
		}
	}
}
