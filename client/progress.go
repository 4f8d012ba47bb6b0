package client

import (
	"bufio"
	"context"
	"encoding/json"
	"io"

	"github.com/drawgate/drawgate/api"
)

// progressKey is the key of a context's func(api.Progress).
type progressKey struct{}

// WithProgress returns a context whose takes report what they wait for: [Client.Take] and
// [Client.Reserve] with WaitMS call f when the take begins to wait, and then when something has
// changed, at most once a second. The calls are made by the caller's goroutine. A server that does
// not know this reports nothing.
func WithProgress(ctx context.Context, f func(api.Progress)) context.Context {
	return context.WithValue(ctx, progressKey{}, f)
}

// progressOf returns what wants to know the progress of a take; nil if nobody does.
func progressOf(ctx context.Context, t *api.Take) func(api.Progress) {
	f, _ := ctx.Value(progressKey{}).(func(api.Progress))
	if t.WaitMS <= 0 {
		return nil
	}
	return f
}

// lastLine reads lines of progress, which it passes on, and returns the line that is none: the
// answer. If the answer is a problem, it is the error.
func lastLine(r io.Reader, f func(api.Progress)) ([]byte, error) {
	for in := bufio.NewReader(r); ; {
		text, err := in.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		var line struct {
			api.ProgressLine
			Error *api.Problem `json:"error"`
		}
		switch err := json.Unmarshal(text, &line); {
		case err != nil:
			return nil, err
		case line.Error != nil:
			return nil, line.Error
		case line.Progress == nil:
			return text, nil
		}
		f(*line.Progress)
	}
}
