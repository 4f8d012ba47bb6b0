// Package lambdaext is a client of the Extensions API of AWS Lambda: for a program that Lambda
// starts beside a function, stops between invocations, and tells when the environment ends.
package lambdaext

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	version   = "/2020-01-01/extension/"
	idHeader  = "Lambda-Extension-Identifier"
	maxAnswer = 1 << 20 // bytes
)

// Kind says what an event is about. There may be others than these.
type Kind string

// The kinds of events.
const (
	Invoke   Kind = "INVOKE"
	Shutdown Kind = "SHUTDOWN"
)

// Event is something that Lambda tells its extensions.
type Event struct {
	Kind     Kind
	Deadline time.Time // when the function's time is over, or that of the shutdown
}

// Client speaks for one extension. It is not safe for concurrent use.
type Client struct {
	url, name string
	id        string // "" before Register
	running   bool   // Next was called
	http      *http.Client
}

// New returns a client. api is the value of AWS_LAMBDA_RUNTIME_API. name is the file name of the
// extension: Lambda starts the function only when an extension with the name of each file has
// registered.
func New(api, name string) *Client {
	// No proxy: HTTP_PROXY is for the function's calls, and the API is in its environment.
	return &Client{url: "http://" + api + version, name: name, http: &http.Client{Transport: &http.Transport{}}}
}

// Register tells Lambda that the extension is there. Lambda then goes on to start the function.
func (c *Client) Register(ctx context.Context) error {
	h, _, err := c.ask(ctx, http.MethodPost, "register", map[string]string{"Lambda-Extension-Name": c.name},
		map[string][]Kind{"events": {Invoke, Shutdown}})
	if err != nil {
		return err
	}
	if c.id = h.Get(idHeader); c.id == "" {
		return errors.New("lambdaext: Lambda's answer to register names no extension")
	}
	return nil
}

// Next tells Lambda that the extension has nothing more to do, and waits for the next event.
// Meanwhile Lambda may stop the process, for any time.
func (c *Client) Next(ctx context.Context) (Event, error) {
	c.running = true
	_, body, err := c.ask(ctx, http.MethodGet, "event/next", nil, nil)
	if err != nil {
		return Event{}, err
	}
	var e struct {
		EventType  Kind
		DeadlineMs int64 // Unix time
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return Event{}, fmt.Errorf("lambdaext: read an event: %w", err)
	}
	return Event{Kind: e.EventType, Deadline: time.UnixMilli(e.DeadlineMs)}, nil
}

// Fail tells Lambda why the extension ends: it could not start, or it fails after the first call of
// Next. It registers the extension first if necessary. reason has the form Extension.ConfigInvalid.
func (c *Client) Fail(ctx context.Context, reason, message string) error {
	if c.id == "" {
		if err := c.Register(ctx); err != nil {
			return err
		}
	}
	path := "init/error"
	if c.running {
		path = "exit/error"
	}
	_, _, err := c.ask(ctx, http.MethodPost, path, map[string]string{"Lambda-Extension-Function-Error-Type": reason},
		map[string]any{"errorType": reason, "errorMessage": message, "stackTrace": []string{}})
	return err
}

// ask sends a request. It has no timeout of its own, because event/next may take hours.
func (c *Client) ask(ctx context.Context, method, path string, headers map[string]string, body any) (http.Header,
	[]byte, error,
) {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, nil, err
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, content)
	if err != nil {
		return nil, nil, fmt.Errorf("lambdaext: %w", err)
	}
	if c.id != "" {
		req.Header.Set(idHeader, c.id)
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("lambdaext: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, nil, fmt.Errorf("lambdaext: %s: %w", path, err)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil, nil, fmt.Errorf("lambdaext: Lambda answers %s with status %d: %.200s", path, resp.StatusCode,
			answer)
	}
	return resp.Header, answer, nil
}
