// Command lambda is a function of AWS Lambda that calls a language model within a quota that all
// copies of the function share in a table of DynamoDB.
//
// An invocation takes units from the quota and holds them, calls the model, and settles with what
// was really used. Nothing is left to do afterwards, because Lambda stops the process between two
// invocations: metrics and incidents are sent before the handler returns.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/incident"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
)

const (
	model = "gemini-2.5-flash"
	owner = "project-1" // whose quota it is

	// flushTime is kept back from an invocation, for metrics, incidents and the answer.
	flushTime = 2 * time.Second
)

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	f, err := open(context.Background())
	if err != nil {
		slog.Error("the function cannot start", "error", err)
		os.Exit(1)
	}
	lambda.Start(f.handle)
}

// function is what an instance of the function opens once and uses for all its invocations.
type function struct {
	limits    *config.Runtime
	incidents *incident.Recorder
	model     *http.Client
	url, key  string
}

// open reads drawgate.yaml, which is beside the program.
func open(ctx context.Context) (*function, error) {
	logger := slog.Default()
	r, err := config.Open(ctx, "drawgate.yaml", &config.OpenOptions{Logger: logger})
	if err != nil {
		return nil, err
	}
	rec := incident.New(&incident.Options{Logger: logger, Report: r.Incident}) //nolint:contextcheck // it lives longer than the opening
	calls := outbound.New(&outbound.Policies{Engine: r.Engine, Owner: owner}, &outbound.Options{
		Upstream: "gemini", Observer: outbound.Join(r.Outbound(), rec.Observer()),
	})
	return &function{
		limits: r, incidents: rec,
		model: &http.Client{Transport: outbound.NewTransport(calls, llm.Gemini(), nil)},
		url:   cmp.Or(os.Getenv("MODEL_URL"), "https://generativelanguage.googleapis.com"),
		key:   os.Getenv("MODEL_API_KEY"),
	}, nil
}

// Question is the event of an invocation.
type Question struct {
	Prompt string `json:"prompt"`
}

// Answer is what an invocation returns. A quota that is used up is an answer, not an error: the
// function works, and Lambda need not try again at once.
type Answer struct {
	Status     int             `json:"status"`                // of the model; 429: used up; 503: no answer
	RetryAfter float64         `json:"retry_after,omitempty"` // in seconds, with 429
	Error      string          `json:"error,omitempty"`
	Body       json.RawMessage `json:"body,omitempty"` // what the model said
}

// handle is one invocation. ctx ends when Lambda would kill the process.
func (f *function) handle(ctx context.Context, q Question) (Answer, error) {
	defer f.flush(ctx)
	if end, ok := ctx.Deadline(); ok {
		limited, cancel := context.WithDeadline(ctx, end.Add(-flushTime))
		defer cancel()
		return f.ask(limited, q), nil
	}
	return f.ask(ctx, q), nil
}

// flush sends what would otherwise be sent in the background: incidents first, because they are
// passed on to what is flushed next.
func (f *function) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTime/2) // Lambda kills the process at the deadline of ctx
	defer cancel()
	if err := errors.Join(f.incidents.Flush(ctx), f.limits.Flush(ctx)); err != nil {
		slog.Warn("metrics or incidents were not sent", "error", err)
	}
}

// ask calls the model. The client's transport takes, holds and settles.
func (f *function) ask(ctx context.Context, q Question) Answer {
	body, err := json.Marshal(map[string]any{"contents": []any{map[string]any{
		"role":  "user",
		"parts": []any{map[string]string{"text": q.Prompt}},
	}}})
	if err != nil {
		return refusal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/v1beta/models/"+model+":generateContent",
		bytes.NewReader(body))
	if err != nil {
		return refusal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Goog-Api-Key", f.key)
	resp, err := f.model.Do(req)
	if err != nil {
		return refusal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil { // the transport settles when the body is read or closed
		return refusal(err)
	}
	if !json.Valid(text) {
		return refusal(fmt.Errorf("the model's answer is not JSON: status %d", resp.StatusCode))
	}
	return Answer{Status: resp.StatusCode, Body: text}
}

// refusal is the answer for a call that did not succeed.
func refusal(err error) Answer {
	if limited, ok := errors.AsType[*drawgate.LimitedError](err); ok {
		return Answer{Status: http.StatusTooManyRequests, RetryAfter: limited.RetryAfter.Seconds(), Error: err.Error()}
	}
	return Answer{Status: http.StatusServiceUnavailable, Error: err.Error()}
}
