package sdktest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	openairesponses "github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"
)

// goClient makes calls with an SDK for Go.
type goClient func(ctx context.Context, j *job, r *result) error

// golang returns the SDK for Go.
func golang(_ *testing.T, operation string) client {
	return map[string]goClient{
		chat: goChat, responses: goResponses, messages: goMessages,
		generate: goGenerate,
	}[operation]
}

// call implements client.
func (c goClient) call(ctx context.Context, j *job) (*result, error) {
	r := &result{}
	if err := c(ctx, j, r); err != nil {
		r.Error = goFailure(err)
	}
	return r, nil
}

// add adds a piece of text. It is false if the stream is to be left.
func (r *result) add(j *job, text string) bool {
	if text == "" {
		return true
	}
	r.Text += text
	r.Pieces++
	return j.Leave == 0 || r.Pieces < j.Leave
}

func goChat(ctx context.Context, j *job, r *result) error {
	c := openai.NewClient(option.WithBaseURL(j.URL+"/v1"), option.WithAPIKey(j.Key))
	ask := openai.ChatCompletionNewParams{
		Model: j.Model, MaxTokens: openai.Int(int64(j.Max)),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(j.Prompt)},
	}
	if !j.Stream {
		a, err := c.Chat.Completions.New(ctx, ask)
		if err != nil {
			return err
		}
		r.add(j, a.Choices[0].Message.Content)
		r.Input, r.Output = a.Usage.PromptTokens, a.Usage.CompletionTokens
		return nil
	}
	ask.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	s := c.Chat.Completions.NewStreaming(ctx, ask)
	defer s.Close()
	for s.Next() {
		e := s.Current()
		if e.Usage.TotalTokens > 0 {
			r.Input, r.Output = e.Usage.PromptTokens, e.Usage.CompletionTokens
		}
		if len(e.Choices) > 0 && !r.add(j, e.Choices[0].Delta.Content) {
			break
		}
	}
	return s.Err()
}

func goResponses(ctx context.Context, j *job, r *result) error {
	c := openai.NewClient(option.WithBaseURL(j.URL+"/v1"), option.WithAPIKey(j.Key))
	ask := openairesponses.ResponseNewParams{
		Model: j.Model, MaxOutputTokens: openai.Int(int64(j.Max)),
		Input: openairesponses.ResponseNewParamsInputUnion{OfString: openai.String(j.Prompt)},
	}
	if !j.Stream {
		a, err := c.Responses.New(ctx, ask)
		if err != nil {
			return err
		}
		r.add(j, a.OutputText())
		r.Input, r.Output = a.Usage.InputTokens, a.Usage.OutputTokens
		return nil
	}
	s := c.Responses.NewStreaming(ctx, ask)
	defer s.Close()
	for s.Next() {
		e := s.Current()
		switch e.Type {
		case "response.completed", "response.incomplete":
			r.Input, r.Output = e.Response.Usage.InputTokens, e.Response.Usage.OutputTokens
		case "response.output_text.delta":
			if !r.add(j, e.Delta) {
				return nil
			}
		}
	}
	return s.Err()
}

func goMessages(ctx context.Context, j *job, r *result) error {
	c := anthropic.NewClient(anthropicoption.WithBaseURL(j.URL), anthropicoption.WithAPIKey(j.Key))
	ask := anthropic.MessageNewParams{
		Model: j.Model, MaxTokens: int64(j.Max),
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(j.Prompt))},
	}
	if !j.Stream {
		a, err := c.Messages.New(ctx, ask)
		if err != nil {
			return err
		}
		r.add(j, a.Content[0].Text)
		r.Input, r.Output = a.Usage.InputTokens, a.Usage.OutputTokens
		return nil
	}
	s := c.Messages.NewStreaming(ctx, ask)
	defer s.Close()
	whole := anthropic.Message{}
	for s.Next() {
		e := s.Current()
		if err := whole.Accumulate(e); err != nil {
			return err
		}
		if e.Type == "content_block_delta" && !r.add(j, e.Delta.Text) {
			break
		}
	}
	r.Input, r.Output = whole.Usage.InputTokens, whole.Usage.OutputTokens
	return s.Err()
}

func goGenerate(ctx context.Context, j *job, r *result) error {
	c, err := genai.NewClient(ctx, &genai.ClientConfig{
		APIKey: j.Key, Backend: genai.BackendGeminiAPI,
		HTTPOptions: genai.HTTPOptions{BaseURL: j.URL},
	})
	if err != nil {
		return err
	}
	conf := &genai.GenerateContentConfig{MaxOutputTokens: int32(j.Max)}
	used := func(u *genai.GenerateContentResponseUsageMetadata) {
		if u != nil {
			r.Input, r.Output = int64(u.PromptTokenCount), int64(u.CandidatesTokenCount)
		}
	}
	if !j.Stream {
		a, err := c.Models.GenerateContent(ctx, j.Model, genai.Text(j.Prompt), conf)
		if err != nil {
			return err
		}
		r.add(j, a.Text())
		used(a.UsageMetadata)
		return nil
	}
	for a, err := range c.Models.GenerateContentStream(ctx, j.Model, genai.Text(j.Prompt), conf) {
		if err != nil {
			return err
		}
		used(a.UsageMetadata)
		if !r.add(j, a.Text()) {
			break
		}
	}
	return nil
}

// goFailure returns what an error of an SDK for Go says.
func goFailure(err error) *failure {
	f := &failure{Message: err.Error(), Type: fmt.Sprintf("%T", err)}
	if e, ok := errors.AsType[*openai.Error](err); ok {
		f.Type, f.Message, f.Status, f.Code, f.After = "openai.Error", e.Message, e.StatusCode, e.Code,
			retryAfter(e.Response)
	}
	if e, ok := errors.AsType[*anthropic.Error](err); ok {
		f.Type, f.Status, f.Code, f.After = "anthropic.Error", e.StatusCode, string(e.Type()), retryAfter(e.Response)
	}
	if e, ok := errors.AsType[genai.APIError](err); ok {
		f.Type, f.Status, f.Code = "genai.APIError", e.Code, e.Status
		for _, d := range e.Details {
			if text, ok := d["retryDelay"].(string); ok {
				f.After, _ = strconv.ParseFloat(strings.TrimSuffix(text, "s"), 64)
			}
		}
	}
	return f
}

func retryAfter(resp *http.Response) float64 {
	if resp == nil {
		return 0
	}
	ms, _ := strconv.ParseFloat(resp.Header.Get("Retry-After-Ms"), 64)
	return ms / 1000
}
