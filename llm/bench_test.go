package llm_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/llm"
)

func BenchmarkParse(b *testing.B) {
	for name, text := range map[string]string{
		"english": strings.Repeat("The river was calm that evening, and nobody spoke. ", 2000),
		"chinese": strings.Repeat("限流器的作用是保护后端服务。", 2400),
	} {
		b.Run("text="+name, func(b *testing.B) {
			p := llm.OpenAI()
			body := []byte(`{"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user","content":"` + text + `"}]}`)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Parse(http.MethodPost, "/v1/chat/completions", nil, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLikely(b *testing.B) {
	p := llm.OpenAI()
	c, err := p.Parse(http.MethodPost, "/v1/chat/completions", nil,
		[]byte(`{"model":"gpt-4o","messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		b.Fatal(err)
	}
	var e llm.Estimator
	b.ReportAllocs()
	for b.Loop() {
		e.Likely(p, c)
	}
}

func BenchmarkStream(b *testing.B) {
	p := llm.OpenAI()
	c, err := p.Parse(http.MethodPost, "/v1/chat/completions", nil, []byte(`{"stream":true}`))
	if err != nil {
		b.Fatal(err)
	}
	piece := []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o","choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n")
	s := p.NewStream(c)
	b.SetBytes(int64(len(piece)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = s.Write(piece)
	}
}
